// SPDX-License-Identifier: Apache-2.0
// Gradients of rows: sums and means by hand, rows that come twice, stale ones; what does not fit.
#include "containers/sparse_gradient_accumulator.h"

#include "tests/queues/recording_sink.h"

using namespace troupe;
using Catch::Contains;

namespace {

using Rule = Accumulator::Reduction;

struct RowsFixture {
  explicit RowsFixture(Rule reduction, PartialShape shape = {5, 2})
      : core(SparseGradientAccumulator::make("a", DType::kFloat32, std::move(shape), reduction).value()) {}
  SparseGradientAccumulator& accumulator() { return static_cast<SparseGradientAccumulator&>(*core); }
  Status apply(std::initializer_list<int64_t> rows, std::initializer_list<float> values, int64_t step = 0,
               const Tensor& whole = Tensor::of<int64_t>({}), int64_t replica = -1) {
    const auto n = static_cast<int64_t>(rows.size());
    return accumulator().apply_gradient(step, Tensor::of<int64_t>(rows), Tensor::of<float>(values, {n, 2}), whole,
                                        replica, system_allocator());
  }
  const std::vector<Tensor>& take(int64_t n) {
    accumulator().take_gradient(n, sink.reply());
    return sink.outputs(sink.last());
  }

  RecordingSink sink;
  std::unique_ptr<Resource> core;
};

}  // namespace

TEST_CASE("rows are summed, or the mean of the gradients that have them") {
  for (const bool mean : {true, false}) {
    RowsFixture f(mean ? Rule::kMean : Rule::kSum);
    REQUIRE(f.apply({3, 1}, {3, 4, 1, 2}).ok());
    REQUIRE(f.apply({0, 3}, {1, 1, 1, 1}, 0, Tensor::of<int64_t>({5, 2})).ok());
    const auto& taken = f.take(2);
    CHECK(taken[0].identical(Tensor::of<int64_t>({0, 1, 3})));
    CHECK(taken[1].identical(mean ? Tensor::of<float>({1, 1, 1, 2, 2, 2.5}, {3, 2})
                                  : Tensor::of<float>({1, 1, 1, 2, 4, 5}, {3, 2})));
    CHECK(taken[2].identical(Tensor::of<int64_t>({5, 2})));
    CHECK(f.accumulator().num_accumulated() == 0);
    CHECK(f.accumulator().global_step() == 1);
    REQUIRE(f.apply({2}, {9, 9}).ok());  // stale now: dropped
    CHECK(f.accumulator().num_accumulated() == 0);
  }
}

TEST_CASE("a mean may be that of all gradients, whether they have a row or not") {
  RowsFixture f(Rule::kMeanOfAll);
  REQUIRE(f.apply({3, 1}, {3, 4, 1, 2}).ok());
  REQUIRE(f.apply({3}, {1, 1}).ok());
  CHECK(f.take(2)[1].identical(Tensor::of<float>({0.5, 1, 2, 2.5}, {2, 2})));
}

TEST_CASE("gradients of rows are summed in the order of their replicas") {
  const auto sum = [](std::initializer_list<int64_t> order) {
    RowsFixture f(Rule::kSum);
    const float values[] = {1e8f, 1, -1e8f};  // of which another order makes another sum
    for (const int64_t r : order) REQUIRE(f.apply({2}, {values[r], values[r]}, 0, Tensor::of<int64_t>({}), r).ok());
    return f.take(3)[1];
  };
  const Tensor in_order = sum({0, 1, 2});
  CHECK(in_order.identical(sum({2, 0, 1})));
  CHECK(in_order.identical(sum({1, 2, 0})));
  CHECK(in_order.identical(Tensor::of<float>({0, 0}, {1, 2})));
}

TEST_CASE("an index that a gradient has twice counts once") {
  RowsFixture f(Rule::kMean);
  REQUIRE(f.apply({1, 1}, {1, 2, 3, 4}).ok());
  REQUIRE(f.apply({1}, {4, 4}).ok());
  CHECK(f.take(1)[1].identical(Tensor::of<float>({4, 5}, {1, 2})));
}

TEST_CASE("of a shape without its first size, rows may be anywhere; no rows are a gradient too") {
  RowsFixture f(Rule::kSum, {-1, 2});
  REQUIRE(f.apply({}, {}).ok());
  const auto& none = f.take(1);
  CHECK(none[1].shape() == Shape{0, 2});
  REQUIRE(f.apply({1'000'000}, {1, 2}, 1).ok());
  CHECK(f.take(1)[2].identical(Tensor::of<int64_t>({-1, 2})));
}

TEST_CASE("gradients that do not fit are errors and change nothing") {
  RowsFixture f(Rule::kMean);
  CHECK_THAT(f.apply({1, 5}, {1, 2, 3, 4}).error().message, Contains("out of range") && Contains("'a'"));
  CHECK_THAT(f.apply({-1}, {1, 2}).error().message, Contains("out of range"));
  CHECK_THAT(f.apply({1}, {1, 2}, 0, Tensor::of<int64_t>({5, 3})).error().message, Contains("rows"));
  CHECK_THAT(f.apply({1}, {1, 2}, 0, Tensor::of<int64_t>({6, 2})).error().message, Contains("another shape"));
  CHECK_THAT(f.apply({1}, {1, 2}, 0, Tensor::of<int64_t>({5})).error().message, Contains("number of sizes"));
  const auto apply = [&](const Tensor& indices, const Tensor& values) {
    return f.accumulator().apply_gradient(0, indices, values, Tensor::of<int64_t>({}), -1, system_allocator());
  };
  const Tensor one = Tensor::of<int64_t>({1});
  CHECK_FALSE(apply(one, Tensor::of<float>({1, 2, 3}, {1, 3})).ok());
  CHECK_FALSE(apply(one, Tensor::of<double>({1, 2}, {1, 2})).ok());
  CHECK_FALSE(apply(one, Tensor::scalar(1.f)).ok());
  CHECK_FALSE(apply(Tensor::of<int32_t>({1}), Tensor::of<float>({1, 2}, {1, 2})).ok());
  CHECK(f.accumulator().num_accumulated() == 0);
  CHECK_FALSE(SparseGradientAccumulator::make("a", DType::kInt32, {}, Rule::kSum).ok());
}
