// SPDX-License-Identifier: Apache-2.0
// Barrier and sparse accumulator ops: from node to host and back; shapes and errors when the graph is built.
#include "tests/ops/state_fixture.h"

using namespace troupe;
using Catch::Contains;

namespace {
const Attrs kBarrier{{"component_types", kTypes}, {"shapes", std::vector<PartialShape>{{2}, PartialShape::scalar()}}};
}  // namespace

TEST_CASE("what nodes put into a barrier other nodes take") {
  StateFixture f;
  const auto b = f.handle("Barrier", "b", kBarrier);
  const auto waiting = f.ask("BarrierTakeMany", {b, Tensor::scalar<int32_t>(1)}, kTaken);
  CHECK(f.last_node->shape(0) == PartialShape{1});
  CHECK(f.last_node->shape(2) == PartialShape{1, 2});
  CHECK(f.last_node->shape(3) == PartialShape{1});
  const Tensor keys = Tensor::of<std::string>({"a", "b"});
  REQUIRE(f.run("BarrierInsertMany", {b, keys, Tensor::of<int32_t>({1, 2})}, {{"component_index", int64_t{1}}}).ok());
  CHECK(f.run("BarrierIncompleteSize", {b})->at(0).identical(Tensor::scalar<int32_t>(2)));
  REQUIRE(
      f.run("BarrierInsertMany", {b, keys, Tensor::of<float>({1, 2, 3, 4}, {2, 2})}, {{"component_index", int64_t{0}}})
          .ok());
  CHECK(f.sink.outputs(*waiting)[1].identical(Tensor::of<std::string>({"a"})));
  CHECK(f.run("BarrierReadySize", {b})->at(0).identical(Tensor::scalar<int32_t>(1)));
  REQUIRE(f.run("BarrierClose", {b}).ok());
  Attrs small = kTaken;
  small.set("allow_small_batch", true);
  CHECK(f.run("BarrierTakeMany", {b, Tensor::scalar<int32_t>(9)}, small)->at(3).identical(Tensor::of<int32_t>({2})));
  CHECK(f.last_node->shape(2) == PartialShape{-1, 2});
}

TEST_CASE("nodes that do not fit a barrier are errors with the values") {
  StateFixture f;
  const auto b = f.handle("Barrier", "b", kBarrier);
  const Attrs first{{"component_index", int64_t{0}}};
  CHECK_THAT(
      f.run("BarrierInsertMany", {b, Tensor::of<std::string>({"a"}), Tensor::of<int32_t>({1, 2})}, first).error().str(),
      Contains("1 keys for 2 values"));
  CHECK_THAT(
      f.run("BarrierInsertMany", {b, Tensor::of<std::string>({"a"}), Tensor::of<int32_t>({1})}, first).error().str(),
      Contains("float32[2]") && Contains("int32[1]"));
  CHECK_THAT(f.run("BarrierTakeMany", {b, Tensor::scalar<int32_t>(1)}, {{"component_types", std::vector{DType::kInt8}}})
                 .error()
                 .str(),
             Contains("int8") && Contains("float32,int32"));
  CHECK_THAT(f.run("BarrierTakeMany", {b, Tensor::scalar<int32_t>(-3)}, kTaken).error().str(), Contains("-3"));
  const auto queue = f.handle("FIFOQueueV2", "q", kTaken);
  CHECK_THAT(f.run("BarrierClose", {queue}).error().str(), Contains("needs a barrier"));
}

TEST_CASE("gradients of rows applied by nodes are taken by a node that waits for them") {
  StateFixture f;
  const Attrs dtype{{"dtype", DType::kFloat32}};
  const auto a = f.handle("SparseConditionalAccumulator", "a",
                          {{"dtype", DType::kFloat32}, {"shape", PartialShape{5, 2}}, {"reduction_type", "SUM"}});
  const auto taken = f.ask("SparseAccumulatorTakeGradient", {a, Tensor::scalar<int32_t>(2)}, dtype);
  CHECK(f.last_node->shape(1) == PartialShape{-1, 2});
  CHECK(f.last_node->shape(2) == PartialShape{2});
  const auto apply = [&](const Tensor& shape, bool known) {
    return f.run("SparseAccumulatorApplyGradient",
                 {a, Tensor::scalar<int64_t>(0), Tensor::of<int64_t>({1}), Tensor::of<float>({1, 2}, {1, 2}), shape},
                 {{"has_known_shape", known}});
  };
  REQUIRE(apply(Tensor::of<int64_t>({5, 2}), true).ok());
  REQUIRE(apply(Tensor::of<int64_t>({9, 9}), false).ok());
  CHECK(f.sink.outputs(*taken)[1].identical(Tensor::of<float>({2, 4}, {1, 2})));
  CHECK_FALSE(apply(Tensor::of<int64_t>({9, 9}), true).ok());
  REQUIRE(f.run("ResourceAccumulatorSetGlobalStep", {a, Tensor::scalar<int64_t>(5)}).ok());
  REQUIRE(apply(Tensor::of<int64_t>({5, 2}), true).ok());
  CHECK(f.run("ResourceAccumulatorNumAccumulated", {a})->at(0).identical(Tensor::scalar<int32_t>(0)));
  CHECK_FALSE(f.run("ResourceAccumulatorTakeGradient", {a, Tensor::scalar<int32_t>(1)}, dtype).ok());
}
