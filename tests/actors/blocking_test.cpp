// SPDX-License-Identifier: Apache-2.0
// Kernels that read and write files. That they hold up nobody: waiting_sources_test.cpp.
#include "tests/actors/fixtures.h"
#include "tests/io/temporary_directory.h"

namespace troupe {
namespace {

TEST_CASE("an error of a kernel that may wait names its node, op and file") {
  const TemporaryDirectory d;
  TestEngine t({1});
  const Output names = t.scope.constant(Tensor::of<std::string>({"w"}, {1}));
  const Output whole = t.scope.constant(Tensor::of<std::string>({""}, {1}));
  const Output path = t.scope.constant(Tensor::scalar(d.file("missing")));
  const Output load =
      t.scope.named("load").op("RestoreV2", {path, names, whole}, {{"dtypes", std::vector<DType>{DType::kFloat32}}});
  const auto read = t.session->run(std::vector<Feed>{}, {load});
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().node == "load");
  CHECK(read.error().op == "RestoreV2");
  CHECK_THAT(read.error().message, Catch::Contains(d.file("missing")));
}

TEST_CASE("variables are saved by one step and restored by another") {
  const TemporaryDirectory directory;
  TestEngine t({1, 1});
  const Output path = t.scope.constant(Tensor::scalar(directory.file("model.safetensors")));
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
