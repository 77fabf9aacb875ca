// SPDX-License-Identifier: Apache-2.0
// What steps and sessions share: memory, which a tensor leaves with its last reader, and resources, on which they must
// agree.
#include "tests/engine/fixtures.h"

namespace troupe {
namespace {

TEST_CASE("a tensor is freed when the last node that reads it has run") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {-1});
  const Output more = t.scope.constant(Tensor::of<float>({1}, {1}));
  Output y = x;
  constexpr int kNodes = 30;
  for (int i = 0; i < kNodes; ++i)  // each longer than the one before, so none fits into its buffer
    y = t.scope.op("ConcatV2", {y, more, t.scope.constant(0)});
  constexpr int64_t kFloats = 1 << 16;
  const auto r = t.session->run({{x, *Tensor::zeros(DType::kFloat32, Shape{kFloats})}}, {y});
  REQUIRE(r.ok());
  CHECK((*r)[0].elements() == kFloats + kNodes);
  CHECK(t.engine->device_stats()[0].memory.peak < 4 * kFloats * 4);
}

TEST_CASE("sessions that disagree on a variable of one container are told of both shapes") {
  TestEngine t;
  const Output two = t.variable("v", DType::kFloat32, {2});
  const Node* assign = t.scope.node("AssignVariableOp", {two, t.scope.constant(Tensor::of<float>({1, 2}))});
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {assign}).ok());

  Graph graph(t.engine->ops());
  const Scope scope(graph);
  Session other(*t.engine, graph);
  const Output three = scope.named("w").op(
      "VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}, {"shared_name", std::string("v")}});
  const auto read =
      other.run(std::vector<Feed>{}, {scope.named("r").op("ReadVariableOp", {three}, {{"dtype", DType::kFloat32}})});
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().node == "r");
  CHECK_THAT(read.error().message, Catch::Contains("v") && Catch::Contains("[2]") && Catch::Contains("[3]"));
  const Output same = t.scope.op("ReadVariableOp", {two}, {{"dtype", DType::kFloat32}});
  CHECK((*t.session->run(std::vector<Feed>{}, {same}))[0].identical(Tensor::of<float>({1, 2})));
}

TEST_CASE("sessions that disagree on a queue of one name are told of both kinds") {
  TestEngine t;
  const Output ints = t.queue("q", DType::kInt32);
  const Node* put = t.scope.node("QueueEnqueueV2", {ints, t.scope.constant(1)});
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {put}).ok());

  Graph graph(t.engine->ops());
  const Scope scope(graph);
  Session other(*t.engine, graph);
  const Output floats = scope.named("q").op(
      "FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat32}}, {"capacity", int64_t{4}}});
  const auto r = other.run(std::vector<Feed>{}, {scope.named("size").op("QueueSizeV2", {floats})});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kInvalidArgument);
  CHECK(r.error().node == "size");
  CHECK_THAT(r.error().message, Catch::Contains("'q'") && Catch::Contains("int32") && Catch::Contains("float32"));
  const Output size = t.scope.op("QueueSizeV2", {ints});
  CHECK((*t.session->run(std::vector<Feed>{}, {size}))[0].identical(Tensor::scalar(1)));
}

}  // namespace
}  // namespace troupe
