// SPDX-License-Identifier: Apache-2.0
// Queue ops: from node to queue and back; shapes and errors when the graph is built.
#include "tests/ops/state_fixture.h"

using namespace troupe;
using Catch::Contains;

namespace {
const Attrs kQueue{{"component_types", kTypes},
                   {"shapes", std::vector<PartialShape>{{2}, PartialShape::scalar()}},
                   {"capacity", int64_t{10}}};
}  // namespace

TEST_CASE("what is enqueued by nodes is dequeued by nodes, with its shapes known") {
  StateFixture f;
  const auto op = GENERATE("FIFOQueueV2", "RandomShuffleQueueV2", "PaddingFIFOQueueV2");
  const auto q = f.handle(op, "q", kQueue);
  const auto waiting = f.ask("QueueDequeueV2", {q}, kTaken);
  CHECK(f.last_node->shape(0) == PartialShape{2});
  CHECK_FALSE(f.sink.answered(*waiting));
  REQUIRE(f.run("QueueEnqueueV2", {q, Tensor::of<float>({1, 2}), Tensor::scalar<int32_t>(1)}).ok());
  CHECK(f.sink.outputs(*waiting)[0].identical(Tensor::of<float>({1, 2})));
  CHECK(f.sink.outputs(*waiting)[1].identical(Tensor::scalar<int32_t>(1)));
  REQUIRE(
      f.run("QueueEnqueueManyV2", {q, Tensor::of<float>({1, 2, 1, 2, 1, 2}, {3, 2}), Tensor::of<int32_t>({4, 4, 4})})
          .ok());
  CHECK(f.run("QueueSizeV2", {q})->at(0).identical(Tensor::scalar<int32_t>(3)));
  const auto batch = f.run("QueueDequeueManyV2", {q, Tensor::scalar<int32_t>(2)}, kTaken);
  CHECK(f.last_node->shape(0) == PartialShape{2, 2});
  CHECK(batch->at(0).identical(Tensor::of<float>({1, 2, 1, 2}, {2, 2})));
  CHECK_FALSE(f.run("QueueIsClosedV2", {q})->at(0).data<bool>()[0]);
  REQUIRE(f.run("QueueCloseV2", {q}).ok());
  CHECK(f.run("QueueIsClosedV2", {q})->at(0).data<bool>()[0]);
  CHECK(
      f.run("QueueDequeueUpToV2", {q, Tensor::scalar<int32_t>(5)}, kTaken)->at(1).identical(Tensor::of<int32_t>({4})));
  CHECK(f.last_node->shape(0) == PartialShape{-1, 2});
  CHECK(f.run("QueueDequeueV2", {q}, kTaken).error().code == Code::kOutOfRange);
}

TEST_CASE("a priority queue's elements begin with their priority") {
  StateFixture f;
  const auto q = f.handle(
      "PriorityQueueV2", "q",
      {{"component_types", std::vector{DType::kInt32}}, {"shapes", std::vector<PartialShape>{PartialShape::scalar()}}});
  for (int i : {3, 1, 2})
    REQUIRE(f.run("QueueEnqueueV2", {q, Tensor::scalar<int64_t>(i), Tensor::scalar<int32_t>(i * 10)}).ok());
  const auto out = f.run("QueueDequeueManyV2", {q, Tensor::scalar<int32_t>(3)},
                         {{"component_types", std::vector{DType::kInt64, DType::kInt32}}});
  CHECK(out->at(1).identical(Tensor::of<int32_t>({10, 20, 30})));
}

TEST_CASE("what does not fit a queue is an error with the values") {
  StateFixture f;
  const auto q = f.handle("FIFOQueueV2", "q", kQueue);
  CHECK_THAT(f.run("QueueEnqueueV2", {q, Tensor::of<float>({1}), Tensor::scalar<int32_t>(1)}).error().str(),
             Contains("component 0") && Contains("[2]") && Contains("[1]"));
  CHECK_THAT(f.run("QueueDequeueV2", {q}, {{"component_types", std::vector{DType::kFloat64}}}).error().message,
             Contains("float64") && Contains("float32,int32"));
  CHECK(f.run("QueueDequeueManyV2", {q, Tensor::scalar<int32_t>(-2)}, kTaken).error().code == Code::kInvalidArgument);

  Attrs bad = kQueue;
  bad.set("capacity", int64_t{0});
  const Node* node = *f.graph.add({"FIFOQueueV2", "bad", {}, bad});
  KernelInit init{"FIFOQueueV2", "bad", &node->attrs(), {}, {DType::kResource}, {}, {}};
  CHECK_THAT(f.kernels.make(init, DeviceKind::kCpu).error().message, Contains("capacity 0"));
}
