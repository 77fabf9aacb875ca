// SPDX-License-Identifier: Apache-2.0
// Elements kept in files: what is written and read, by whom, and what is left after errors.
#include <catch2/catch.hpp>

#include "io/graph_stages.h"
#include "io/tensor_bundle.h"
#include "tests/io/simulated_files.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

/// Elements [i], "text i", of which `calls` counts how many were made.
StagePtr numbered(int64_t n, std::shared_ptr<int> calls = std::make_shared<int>()) {
  const PassFn fn = [calls](const Pass&, Element element) -> Result<Element> {
    ++*calls;
    const int64_t i = element[0].data<int64_t>()[0];
    return Element{Tensor::of<int64_t>({i}), Tensor::scalar<std::string>("text " + std::to_string(i))};
  };
  return make_pass_map_stage(*make_range_stage(0, n, 1, DType::kInt64), fn, {DType::kInt64, DType::kString},
                             {PartialShape{1}, PartialShape::scalar()});
}

/// How many elements come, in order. Error: the first one.
Result<int64_t> count(const StagePtr& stage) {
  TROUPE_ASSIGN(auto iterator, stage->iterate());
  for (int64_t i = 0;; ++i) {
    TROUPE_ASSIGN(const std::optional<Element> element, iterator->next());
    if (!element) return i;
    CHECK((*element)[0].identical(Tensor::of<int64_t>({i})));
    CHECK((*element)[1].identical(Tensor::scalar<std::string>("text " + std::to_string(i))));
  }
}

std::vector<std::string> files_in(const TemporaryDirectory& directory) {
  return *make_posix_file_system()->list(directory.path());
}

}  // namespace

TEST_CASE("a cache in files is written by the first whole pass and read by later ones") {
  const TemporaryDirectory directory;
  const std::string prefix = directory.file("cache");
  const auto calls = std::make_shared<int>();
  const StagePtr stage = make_file_cache_stage(numbered(12, calls), prefix, {});
  CHECK(*count(stage) == 12);
  CHECK(files_in(directory) == std::vector<std::string>{"cache.data-00000-of-00001", "cache.index"});
  CHECK(*count(stage) == 12);
  CHECK(*calls == 12);
  CHECK(*count(make_file_cache_stage(numbered(3), prefix, {})) == 12);  // of another program
  const auto bundle = open_bundle({}, prefix);
  REQUIRE((*bundle)->parts().size() == 24);
  CHECK((*bundle)->parts()[0].name == "      0_0");  // as TensorFlow calls them
  CHECK((*bundle)->parts()[23].name == "     11_1");

  const std::string none = directory.file("none");
  CHECK(*count(make_file_cache_stage(numbered(0), none, {})) == 0);
  CHECK(*count(make_file_cache_stage(numbered(3), none, {})) == 0);
}

TEST_CASE("a cache in files is written in pieces where elements are large") {
  const TemporaryDirectory directory;
  const PassFn large = [](const Pass&, Element element) -> Result<Element> {
    TROUPE_ASSIGN(Tensor out, Tensor::make(DType::kInt64, {1 << 20}));
    std::fill_n(out.mutable_data<int64_t>(), 1 << 20, element[0].data<int64_t>()[0]);
    return Element{out};
  };
  for (int pass = 0; pass < 2; ++pass) {
    const StagePtr from = make_pass_map_stage(*make_range_stage(0, pass ? 0 : 9, 1, DType::kInt64), large,
                                              {DType::kInt64}, {PartialShape{1 << 20}});
    auto iterator = make_file_cache_stage(from, directory.file("cache"), {})->iterate();
    for (int64_t i = 0; i < 9; ++i) {
      const auto element = (*iterator)->next();
      REQUIRE((element.ok() && *element));
      CHECK((**element)[0].data<int64_t>()[(1 << 20) - 1] == i);
    }
    CHECK_FALSE((*iterator)->next()->has_value());
    CHECK(files_in(directory).size() == 4);  // the index, and three files of data
  }
}

TEST_CASE("a pass that ends early leaves no cache in files") {
  const TemporaryDirectory directory;
  const StagePtr stage = make_file_cache_stage(numbered(4), directory.file("cache"), {});
  {
    auto first = stage->iterate(), second = stage->iterate();
    REQUIRE((*first)->next().ok());
    const auto refused = (*second)->next();
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Code::kFailedPrecondition);
    CHECK(refused.error().message.find("cache.lock' is locked by") != std::string::npos);
  }
  CHECK(files_in(directory).empty());
  CHECK(*count(stage) == 4);

  const PassFn fails = [](const Pass&, Element element) -> Result<Element> {
    if (element[0].data<int64_t>()[0] == 2) return invalid_argument("two");
    return element;
  };
  const StagePtr failing = make_file_cache_stage(
      make_pass_map_stage(*make_range_stage(0, 4, 1, DType::kInt64), fails, {DType::kInt64}, {PartialShape::scalar()}),
      directory.file("failing"), {});
  auto iterator = failing->iterate();
  for (int i = 0; i < 5; ++i) CHECK((*iterator)->next().ok() == (i != 2));
  CHECK(files_in(directory).size() == 2);
}

TEST_CASE("a cache in files that cannot be written or read is an error") {
  for (const char* operation : {"append", "sync", "rename", "create"}) {
    const auto files = std::make_shared<SimulatedFiles>();
    files->fail = operation;
    const StagePtr stage = make_file_cache_stage(numbered(4), "cache", FileAccess{files, nullptr});
    INFO(operation);
    CHECK_FALSE(count(stage).ok());
    CHECK(*count(stage) == 4);
    CHECK(*count(stage) == 4);
  }
  const TemporaryDirectory directory;
  const std::string prefix = directory.file("cache");
  CHECK(*count(make_file_cache_stage(numbered(4), prefix, {})) == 4);
  const auto message = [&](const StagePtr& input) {
    const auto got = (*make_file_cache_stage(input, prefix, {})->iterate())->next();
    REQUIRE_FALSE(got.ok());
    return got.error().message;
  };
  const StagePtr three =
      make_single_stage({Tensor::of<int64_t>({1}), Tensor::scalar<std::string>(""), Tensor::scalar(1)});
  CHECK(message(three).find("is not a cache of elements of 3 components: there is no tensor '      0_2'") !=
        std::string::npos);
  const StagePtr floats = make_single_stage({Tensor::of<float>({1}), Tensor::scalar<std::string>("")});
  CHECK(message(floats).find("the cache in a file") != std::string::npos);
  directory.write("cache.index", "no index");
  CHECK_FALSE(count(make_file_cache_stage(numbered(4), prefix, {})).ok());
  const auto missing = count(make_file_cache_stage(numbered(4), directory.file("no/cache"), {}));
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().message.find("no/cache") != std::string::npos);
}
