// SPDX-License-Identifier: Apache-2.0
// BatchSource over datasets of a user's own that throw.
#include "train/batch_source.h"

#include <catch2/catch.hpp>

namespace troupe::nn {
namespace {

/// Gives one batch after the other; throws where it is told to.
struct Throwing final : Dataset::Stage {
  struct Iterator final : DatasetIterator {
    Result<std::optional<Element>> next() override { return std::optional<Element>({Tensor::scalar(1)}); }
    void cancel() override { throw std::runtime_error("in cancel"); }
  };
  explicit Throwing(bool in_may_wait) : in_may_wait(in_may_wait) {}
  Result<std::unique_ptr<DatasetIterator>> iterate() const override {
    return std::unique_ptr<DatasetIterator>(new Iterator());
  }
  std::vector<DType> dtypes() const override { return {DType::kInt32}; }
  std::vector<PartialShape> shapes() const override { return {{}}; }
  bool may_wait() const override {
    if (in_may_wait) throw std::runtime_error("in may_wait");
    return true;
  }
  const bool in_may_wait;
};

TEST_CASE("an iterator whose cancel() throws ends with its source") {
  auto source = BatchSource::make(Dataset(std::make_shared<Throwing>(false)));
  REQUIRE(source.ok());
  const auto batch = (*source)->next([] { return false; });
  REQUIRE(batch.has_value());
  CHECK(batch->ok());
  source->reset();
}

TEST_CASE("what may_wait() throws is the error of the source") {
  const auto source = BatchSource::make(Dataset(std::make_shared<Throwing>(true)));
  REQUIRE_FALSE(source.ok());
  CHECK_THAT(source.error().message, Catch::Contains("in may_wait"));
}

}  // namespace
}  // namespace troupe::nn
