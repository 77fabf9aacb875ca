// SPDX-License-Identifier: Apache-2.0
// GenerateVocabRemapping and LoadAndRemapMatrix: what they read and what they refuse. The golden case warm_start holds
// them to TensorFlow's results.
#include <filesystem>
#include <fstream>

#include "tests/op_library.h"
#include "tests/ops/state_fixture.h"
#include "troupe/blocking_kernel.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct Folder {
  std::string path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe_warm_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Tensor write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return Tensor::scalar<std::string>(path + "/" + name);
  }
};

Result<std::vector<Tensor>> run_blocking(const std::string& op, std::vector<Tensor> values, const Attrs& attrs,
                                         std::vector<DType> outputs) {
  const auto& [ops, kernels] = *testing::op_library();
  KernelInit init{op, "node", &attrs, {}, std::move(outputs), {}, {}};
  TROUPE_ASSIGN(const auto kernel, kernels.make(init, DeviceKind::kCpu));
  return dynamic_cast<BlockingKernel&>(*kernel).run({std::move(values), system_allocator(), 4});
}

Result<std::vector<Tensor>> remapped(const Tensor& newer, const Tensor& older, int64_t offset, int64_t count,
                                     int64_t size = -1) {
  return run_blocking("GenerateVocabRemapping", {newer, older},
                      {{"new_vocab_offset", offset}, {"num_new_vocab", count}, {"old_vocab_size", size}},
                      {DType::kInt64, DType::kInt32});
}

/// Of the matrix [3,2] {0, 1, ..., 5}.
Result<std::vector<Tensor>> loaded(const Folder& folder, std::initializer_list<int64_t> rows,
                                   std::initializer_list<int64_t> columns, std::initializer_list<float> missing,
                                   int64_t width = 2, int64_t most = -1) {
  const Tensor path = Tensor::scalar<std::string>(folder.path + "/model"), name = Tensor::of<std::string>({"m"}),
               whole = Tensor::of<std::string>({""});
  REQUIRE(run_blocking("SaveV2", {path, name, whole, Tensor::of<float>({0, 1, 2, 3, 4, 5}, {3, 2})},
                       {{"dtypes", std::vector<DType>{DType::kFloat32}}}, {})
              .ok());
  return run_blocking(
      "LoadAndRemapMatrix",
      {path, Tensor::scalar<std::string>("m"), Tensor::of<int64_t>(rows), Tensor::of<int64_t>(columns),
       Tensor::of<float>(missing)},
      {{"num_rows", static_cast<int64_t>(rows.size())}, {"num_cols", width}, {"max_rows_in_memory", most}},
      {DType::kFloat32});
}

std::string error_of(const Result<std::vector<Tensor>>& result) {
  REQUIRE_FALSE(result.ok());
  return result.error().message;
}

}  // namespace

TEST_CASE("words of a vocabulary are found in an older one") {
  const Folder folder;
  const Tensor newer = folder.write("new", "c\na\r\nx\nb"), older = folder.write("old", "a\nb\nc\n"),
               twice = folder.write("twice", "a\nb\na\n");
  const auto all = remapped(newer, older, 0, 4);
  REQUIRE(all.ok());
  CHECK(all->at(0).identical(Tensor::of<int64_t>({2, 0, -1, 1})));
  CHECK(all->at(1).identical(Tensor::scalar<int32_t>(3)));
  const auto part = remapped(newer, older, 1, 3, 1);
  REQUIRE(part.ok());
  CHECK(part->at(0).identical(Tensor::of<int64_t>({0, -1, -1})));
  CHECK_THAT(error_of(remapped(newer, older, 2, 3)), Contains("has 4 words, not 3 behind the first 2"));
  CHECK_THAT(error_of(remapped(newer, older, INT64_MAX, INT64_MAX)), Contains("has 4 words"));
  CHECK_THAT(error_of(remapped(newer, older, 0, 1, 4)), Contains("has 3 lines, fewer than vocab_size 4"));
  CHECK_THAT(error_of(remapped(newer, twice, 0, 1)), Contains("has \"a\" in the lines 1 and 3"));
  CHECK_THAT(error_of(remapped(newer, Tensor::scalar<std::string>("/none"), 0, 1)), Contains("/none"));
}

TEST_CASE("rows and columns of a checkpoint's matrix come in a new order") {
  const Folder folder;
  for (const int64_t most : {-1, 1, 2, 9}) {
    const auto rows = loaded(folder, {2, -1, 0}, {}, {7, 8}, 2, most);
    REQUIRE(rows.ok());
    CHECK(rows->at(0).identical(Tensor::of<float>({4, 5, 7, 8, 0, 1}, {3, 2})));
    const auto both = loaded(folder, {-1, 1}, {-1, 1, -1}, {7, 8, 9, 10, 11}, 3, most);
    REQUIRE(both.ok());
    CHECK(both->at(0).identical(Tensor::of<float>({7, 8, 9, 10, 3, 11}, {2, 3})));
  }
  const auto none = loaded(folder, {}, {}, {});
  REQUIRE(none.ok());
  CHECK(none->at(0).shape() == Shape{0, 2});
}

TEST_CASE("remappings that do not fit the matrix are errors", "[bad_input]") {
  const Folder folder;
  CHECK_THAT(error_of(loaded(folder, {0, 0}, {}, {})), Contains("row_remapping has 0 twice, at 0 and 1"));
  CHECK_THAT(error_of(loaded(folder, {0}, {1, 1}, {})), Contains("col_remapping has 1 twice"));
  CHECK_THAT(error_of(loaded(folder, {3}, {}, {})), Contains("row_remapping has 3, but tensor 'm' has 3 rows"));
  CHECK_THAT(error_of(loaded(folder, {0}, {}, {}, 3)), Contains("has 2 columns, num_cols is 3"));
  CHECK_THAT(error_of(loaded(folder, {-1}, {}, {1})),
             Contains("initializing_values has 1 elements, but 2 are missing"));
  CHECK_THAT(error_of(loaded(folder, {0}, {}, {1})), Contains("initializing_values has 1 elements, but 0 are missing"));
}
