// SPDX-License-Identifier: Apache-2.0
// Accumulator and iterator ops: from node to host and back.
#include "ops/input/iterator_resource.h"
#include "tests/ops/state_fixture.h"

using namespace troupe;
using Catch::Contains;

TEST_CASE("gradients applied by nodes are taken by a node that waits for them") {
  StateFixture f;
  const auto a =
      f.handle("ResourceConditionalAccumulator", "a", {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}});
  const auto taken =
      f.ask("ResourceAccumulatorTakeGradient", {a, Tensor::scalar<int32_t>(2)}, {{"dtype", DType::kFloat32}});
  CHECK(f.last_node->shape(0) == PartialShape{2});
  const Tensor step = Tensor::scalar<int64_t>(0);
  REQUIRE(
      f.run("ResourceAccumulatorApplyGradient", {a, step, Tensor::of<float>({1, 2})}, {{"replica", int64_t{1}}}).ok());
  CHECK(f.run("ResourceAccumulatorNumAccumulated", {a})->at(0).identical(Tensor::scalar<int32_t>(1)));
  REQUIRE(f.run("ResourceAccumulatorApplyGradient", {a, step, Tensor::of<float>({3, 4})}).ok());
  CHECK(f.sink.outputs(*taken)[0].identical(Tensor::of<float>({2, 3})));
  REQUIRE(f.run("ResourceAccumulatorSetGlobalStep", {a, Tensor::scalar<int64_t>(5)}).ok());
  REQUIRE(f.run("ResourceAccumulatorApplyGradient", {a, step, Tensor::of<float>({3, 4})}).ok());
  CHECK(f.run("ResourceAccumulatorNumAccumulated", {a})->at(0).identical(Tensor::scalar<int32_t>(0)));
  CHECK_THAT(f.run("ResourceAccumulatorApplyGradient", {a, step, Tensor::of<float>({3})}).error().str(),
             Contains("[2]") && Contains("[1]"));
}

TEST_CASE("a node takes the elements of a dataset, checked against what it promised") {
  StateFixture f;
  const Attrs attrs{{"output_types", std::vector{DType::kInt32}},
                    {"output_shapes", std::vector<PartialShape>{PartialShape::scalar()}}};
  Resource& host = *(f.hosts[iterator_key("numbers")] = std::make_unique<IteratorResource>(
                         Dataset::from_tensors({Tensor::of<int32_t>({7, 8})}).value()));
  const auto it = f.handle("IteratorV2", "numbers", attrs);
  const auto next = [&](const Attrs& as) {
    const auto request = f.ask("IteratorGetNext", {it}, as);
    if (!request.ok()) FAIL(request.error().str());
    while (!f.sink.answered(*request) && host.wants_work()) host.work();
    REQUIRE(f.sink.answered(*request));
    return f.sink.answers.at(*request);
  };
  CHECK(next(attrs)->at(0).identical(Tensor::scalar<int32_t>(7)));
  CHECK(f.last_node->shape(0) == PartialShape::scalar());
  Attrs wrong = attrs;
  wrong.set("output_types", std::vector{DType::kFloat32});
  CHECK_THAT(next(wrong).error().message, Contains("int32[]") && Contains("float32[]"));
  CHECK(next(attrs).error().code == Code::kOutOfRange);
  wrong.set("output_shapes", std::vector<PartialShape>{{}, {}});
  CHECK_FALSE(f.ask("IteratorGetNext", {it}, wrong).ok());
}
