// SPDX-License-Identifier: Apache-2.0
// Tensor arrays and stacks: what is written is read, once; gradients; what is refused.
#include "tests/ops/op_case.h"
#include "tests/ops/op_graph.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Arrays : OpGraph {
  Output handle, flow;
  const Attrs dtype{{"dtype", DType::kFloat64}};

  explicit Arrays(int size, Attrs attrs = {}) {
    attrs.set("dtype", DType::kFloat64);
    const Node* made = scope.node("TensorArrayV3", {of(I(size))}, attrs);
    handle = made->out(0);
    flow = made->out(1);
  }
  Output write(Output after, int i, Output value) { return op("TensorArrayWriteV3", {handle, of(I(i)), value, after}); }
  Output read(Output after, int i) { return op("TensorArrayReadV3", {handle, of(I(i)), after}, dtype); }
};

}  // namespace

TEST_CASE("elements of a tensor array are written once and read once") {
  Arrays t(2);
  const Output x = t.of(D({1, 2}));
  const Output written = t.write(t.flow, 1, x);
  const Output seen = t.read(written, 1);
  CHECK(t.run(seen).identical(D({1, 2})));
  CHECK(t.gradient(seen, x, D({3, 4})).identical(D({3, 4})));
  CHECK(t.run(t.op("TensorArraySizeV3", {t.handle, t.flow})).identical(I(2)));
  CHECK_THAT(t.error(t.write(written, 1, x)).message, Catch::Contains("element 1 was written already"));
  CHECK_THAT(t.error(t.write(t.flow, 2, x)).message, Catch::Contains("index 2 into a tensor array of 2"));
  CHECK_THAT(t.error(t.write(t.flow, -1, x)).message, Catch::Contains("index -1"));
  CHECK_THAT(t.error(t.read(written, 0)).message, Catch::Contains("element 0 was never written"));
  const Output again = t.scope.after({seen}).op("TensorArrayReadV3", {t.handle, t.of(I(1)), written}, t.dtype);
  CHECK_THAT(t.error(again).message, Catch::Contains("read already"));
  CHECK_THAT(t.error(t.write(t.flow, 0, t.of(I({1})))).message, Catch::Contains("int32[1] does not go into"));
  const Node* closed = t.scope.node("TensorArrayCloseV3", {t.handle});
  CHECK_THAT(t.error(t.scope.after({closed}).op("TensorArrayReadV3", {t.handle, t.of(I(1)), written}, t.dtype)).message,
             Catch::Contains("closed"));
  CHECK_THAT(
      t.error(t.op("TensorArrayReadV3",
                   {t.op("StackV2", {t.of(I(-1))}, {{"elem_type", DType::kFloat64}}), t.of(I(0)), t.flow}, t.dtype))
          .message,
      Catch::Contains("not a handle of a tensor array"));
}

TEST_CASE("an element that is read twice gets both gradients") {
  Arrays t(1, {{"clear_after_read", false}});
  const Output x = t.of(D({1, 2}));
  const Output written = t.write(t.flow, 0, x);
  const Output sum = t.op("AddV2", {t.read(written, 0), t.read(written, 0)});
  CHECK(t.run(sum).identical(D({2, 4})));
  CHECK(t.gradient(sum, x, D({1, 10})).identical(D({2, 20})));
}

TEST_CASE("a tensor array grows where it may") {
  Arrays t(0, {{"dynamic_size", true}});
  const Output written = t.write(t.write(t.flow, 2, t.of(D({5}))), 0, t.of(D({4})));
  CHECK(t.run(t.op("TensorArraySizeV3", {t.handle, written})).identical(I(3)));
  CHECK(t.run(t.read(written, 2)).identical(D({5})));
}

TEST_CASE("the first element tells the sizes of those alike: others are zeros, or errors") {
  Arrays t(2, {{"identical_element_shapes", true}});
  const Output written = t.write(t.flow, 1, t.of(D({4, 5})));
  CHECK(t.run(t.op("TensorArrayGatherV3", {t.handle, t.of(I({0, 1})), written}, t.dtype))
            .identical(D({0, 0, 4, 5}, {2, 2})));
  CHECK_THAT(t.error(t.write(written, 0, t.of(D({6})))).message, Catch::Contains("does not go into"));
}

TEST_CASE("rows are scattered to a tensor array and gathered, with gradients") {
  Arrays t(3);
  const Output x = t.of(kRows);
  const Output written = t.op("TensorArrayScatterV3", {t.handle, t.of(I({2, 0, 1})), x, t.flow});
  const Output read = t.op("TensorArrayGatherV3", {t.handle, t.of(I({0, 1})), written}, t.dtype);
  CHECK(t.run(read).identical(D({3, 4, 5, 6}, {2, 2})));
  CHECK(t.gradient(read, x, D({1, 2, 3, 4}, {2, 2})).identical(D({0, 0, 1, 2, 3, 4}, {3, 2})));
  CHECK_THAT(t.error(t.op("TensorArrayScatterV3", {t.handle, t.of(I({0})), x, t.flow})).message,
             Catch::Contains("1 indices for 3 rows"));
}

TEST_CASE("rows are split into a tensor array and joined, with gradients") {
  Arrays t(2);
  const Output x = t.of(kRows), lengths = t.of(L({2, 1}));
  const Output written = t.op("TensorArraySplitV3", {t.handle, x, lengths, t.flow});
  const Output joined = t.op("TensorArrayConcatV3", {t.handle, written}, t.dtype);
  CHECK(t.run(joined).identical(kRows));
  CHECK(t.run({joined.node, 1}).identical(L({2, 1})));
  CHECK(t.gradient(joined, x, ramp({3, 2})).identical(ramp({3, 2})));
  CHECK_THAT(t.error(t.op("TensorArraySplitV3", {t.handle, x, t.of(L({1, 1})), t.flow})).message,
             Catch::Contains("lengths 1,1 do not part 3 rows"));
  Attrs narrow = t.dtype;
  narrow.set("element_shape_except0", PartialShape{3});
  CHECK_THAT(t.error(t.op("TensorArrayConcatV3", {t.handle, written}, narrow)).message, Catch::Contains("[?,3]"));
}

TEST_CASE("a gradient with more dimensions has its own shape") {
  Arrays t(1);
  const Output written = t.write(t.flow, 0, t.of(D({1, 2})));
  const Node* grad =
      t.scope.node("TensorArrayGradWithShape", {t.handle, written, t.of(I({3}))}, {{"source", std::string("wide")}});
  REQUIRE(grad);
  const Output zero = t.op("TensorArrayReadV3", {grad->out(0), t.of(I(0)), grad->out(1)}, t.dtype);
  CHECK(t.run(zero).identical(D({0, 0, 0, 0, 0, 0}, {3, 2})));
}

TEST_CASE("a stack gives back the newest first") {
  Arrays t(0);
  const Output stack = t.op("StackV2", {t.of(I(2))}, {{"elem_type", DType::kFloat64}});
  const Output one = t.op("StackPushV2", {stack, t.of(D({1}))});
  const Output two = t.scope.after({one}).op("StackPushV2", {stack, t.of(D({2}))});
  const Attrs type{{"elem_type", DType::kFloat64}};
  const Output pop = t.scope.after({two}).op("StackPopV2", {stack}, type);
  const Output pop2 = t.scope.after({pop}).op("StackPopV2", {stack}, type);
  auto values = t.evaluator.run({pop, pop2});
  REQUIRE(values.ok());
  CHECK((*values)[0].identical(D({2})));
  CHECK((*values)[1].identical(D({1})));
  CHECK_THAT(t.error(t.scope.after({pop2}).op("StackPopV2", {stack}, type)).message, Catch::Contains("is empty"));
  CHECK_THAT(t.error(t.scope.after({two}).op("StackPushV2", {stack, t.of(D({3}))})).message,
             Catch::Contains("has its 2 elements already"));
  CHECK_THAT(t.error(t.op("StackPushV2", {stack, t.of(I({3}))})).message, Catch::Contains("int32 does not go on"));
  const Node* closed = t.scope.node("StackCloseV2", {stack});
  CHECK_THAT(t.error(t.scope.after({closed}).op("StackPopV2", {stack}, type)).message, Catch::Contains("closed"));
}
