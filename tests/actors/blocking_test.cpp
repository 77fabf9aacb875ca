// SPDX-License-Identifier: Apache-2.0
// Kernels that wait for files: the device and its other steps go on meanwhile, and a step that failed runs none.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/actors/fixtures.h"

namespace troupe {
namespace {

/// A named pipe: to open it for reading waits until somebody opens it for writing.
struct Pipe {
  std::string directory, path;
  Pipe() {
    directory = (std::filesystem::temp_directory_path() / "troupe_pipe_XXXXXX").string();
    REQUIRE(mkdtemp(directory.data()));
    path = directory + "/pipe";
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  }
  ~Pipe() { std::filesystem::remove_all(directory); }
  /// Returns once somebody has opened it for reading.
  void open_for_writing() const {
    const int end = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(end >= 0);
    close(end);
  }
};

Output restore(const TestEngine& t, const std::string& path) {
  const Output names = t.scope.constant(Tensor::of<std::string>({"w"}, {1}));
  const Output whole = t.scope.constant(Tensor::of<std::string>({""}, {1}));
  return t.scope.named("load").op("RestoreV2", {t.scope.constant(Tensor::scalar(path)), names, whole},
                                  {{"dtypes", std::vector<DType>{DType::kFloat32}}});
}

TEST_CASE("while a file is waited for, the device runs other steps") {
  const Pipe pipe;
  TestEngine t({1});
  const Output x = t.placeholder(DType::kInt32, {});
  auto waiting = t.session->run_future({}, {restore(t, pipe.path)});
  // The device takes up one step after the other: a step behind one that blocks it would not end.
  auto other = t.session->run_future({{x, Tensor::scalar(3)}}, {t.scope.op("Neg", {x})});
  const bool meanwhile = other.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  pipe.open_for_writing();
  REQUIRE(meanwhile);
  const auto result = other.get();
  REQUIRE(result.ok());
  CHECK((*result)[0].identical(Tensor::scalar(-3)));
  const auto read = waiting.get();
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().node == "load");
  CHECK(read.error().op == "RestoreV2");
  CHECK_THAT(read.error().message, Catch::Contains(pipe.path));
}

TEST_CASE("a save that waits behind another is not begun when its step was cancelled") {
  const Pipe pipe;
  TestEngine t({1});
  const std::string path = pipe.directory + "/never";
  const Output x = t.placeholder(DType::kInt32, {});
  const Output names = t.scope.constant(Tensor::of<std::string>({"x"}, {1}));
  const Output whole = t.scope.constant(Tensor::of<std::string>({""}, {1}));
  const Node* save = t.scope.node("SaveV2", {t.scope.constant(Tensor::scalar(path)), names, whole, x});
  CancelToken token;
  auto waiting = t.session->run_future({}, {restore(t, pipe.path)});
  auto saving = t.session->run_future({{x, Tensor::scalar(1)}}, {}, {save}, {.cancel = token});
  REQUIRE(t.session->run({{x, Tensor::scalar(3)}}, {t.scope.op("Neg", {x})}).ok());  // the device has seen both
  token.cancel();
  pipe.open_for_writing();
  CHECK(saving.get().error().code == Code::kCancelled);
  CHECK_FALSE(waiting.get().ok());
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("variables are saved by one step and restored by another") {
  const Pipe directory;
  TestEngine t({1, 1});
  const Output path = t.scope.constant(Tensor::scalar(directory.directory + "/model.safetensors"));
  const Output w = t.variable("w", DType::kFloat32, {2});
  const Output names = t.scope.constant(Tensor::of<std::string>({"w"}, {1}));
  const Output whole = t.scope.constant(Tensor::of<std::string>({""}, {1}));
  const Tensor value = Tensor::of<float>({1, 2});
  REQUIRE(
      t.session->run(std::vector<Feed>{}, {}, {t.scope.node("AssignVariableOp", {w, t.scope.constant(value)})}).ok());
  const Output read = t.scope.op("ReadVariableOp", {w}, {{"dtype", DType::kFloat32}});
  const Scope there = t.scope.device("/cpu:1");
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {there.node("SaveV2", {path, names, whole, read})}).ok());
  const auto back = t.session->run(
      std::vector<Feed>{},
      {t.scope.op("RestoreV2", {path, names, whole}, {{"dtypes", std::vector<DType>{DType::kFloat32}}})});
  REQUIRE(back.ok());
  CHECK((*back)[0].identical(value));
}

}  // namespace
}  // namespace troupe
