// SPDX-License-Identifier: Apache-2.0
// A handful of small ops, so that the tests of graph/ need no op family.
#pragma once
#include "troupe/scope.h"

namespace troupe::test {

inline Status matmul_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape a, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape b, c.with_rank(1, 2));
  if (a[1] >= 0 && b[0] >= 0 && a[1] != b[0]) return invalid_argument("inner sizes differ: {} x {}", a.str(), b.str());
  c.set_output(0, PartialShape{a[0], b[1]});
  return {};
}

inline Status reshape_shape(ShapeContext& c) {
  if (const auto dims = c.constant_input(1)) {
    TROUPE_ASSIGN(PartialShape shape, PartialShape::make(std::vector<int64_t>(
                                          dims->data<int32_t>(), dims->data<int32_t>() + dims->elements())));
    c.set_output(0, shape);
  }
  return {};
}

/// The registry of these tests. Gradients are written in terms of the same ops.
inline void register_fake_ops(OpRegistry& ops) {
  const auto number = "T: {float32, float64, int32}";
  ops.add(OpDef("Const")
              .output("output: dtype")
              .attr("value: tensor")
              .attr("dtype: type")
              .doc("A constant.")
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, c.attr<Tensor>("value").shape());
                return {};
              }),
          not_differentiable("it has no inputs"));
  ops.add(OpDef("Placeholder")
              .output("output: dtype")
              .attr("dtype: type")
              .attr("shape: shape = <unknown>")
              .doc("A feed.")
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, c.attr<PartialShape>("shape"));
                return {};
              }),
          not_differentiable("it has no inputs"));
  ops.add(OpDef("NoOp").doc("Nothing.").shape(no_outputs), not_differentiable("it has no outputs"));
  ops.add(OpDef("Identity").input("input: T").output("output: T").attr("T: type").doc("Itself.").shape(unchanged_shape),
          gradient([](GradientContext& c) -> Status {
            c.set_dx(0, c.dy(0));
            return {};
          }));
  ops.add(OpDef("OnesLike").input("x: T").output("y: T").attr("T: type").doc("Ones.").shape(unchanged_shape),
          not_differentiable("constant"));
  ops.add(OpDef("Neg").input("x: T").output("y: T").attr(number).doc("Minus x.").shape(unchanged_shape),
          gradient([](GradientContext& c) -> Status {
            c.set_dx(0, c.op("Neg", {c.dy(0)}));
            return {};
          }));
  ops.add(OpDef("Mul").input("x: T").input("y: T").output("z: T").attr(number).doc("x y.").shape(broadcast_shape),
          gradient([](GradientContext& c) -> Status {
            c.set_dx(0, c.op("Mul", {c.dy(0), c.input(1)}));
            c.set_dx(1, c.op("Mul", {c.dy(0), c.input(0)}));
            return {};
          }));
  ops.add(OpDef("AddN")
              .input("inputs: N * T")
              .output("sum: T")
              .attr("N: int >= 1")
              .attr(number)
              .doc("Sum.")
              .shape(unchanged_shape),
          gradient([](GradientContext& c) -> Status {
            for (int i = 0; i < c.num_inputs(); ++i) c.set_dx(i, c.dy(0));
            return {};
          }));
  ops.add(OpDef("MatMul")
              .input("a: T")
              .input("b: T")
              .output("product: T")
              .attr("transpose_a: bool = false")
              .attr("T: {float32, float64}")
              .doc("Matrix product.")
              .shape(matmul_shape),
          not_differentiable("it is not needed in these tests"));
  ops.add(OpDef("Floor").input("x: T").output("y: T").attr("T: {float32}").doc("Floor.").shape(unchanged_shape),
          not_differentiable("its derivative is zero"));
  ops.add(OpDef("Cast")
              .input("x: SrcT")
              .output("y: DstT")
              .attr("SrcT: type")
              .attr("DstT: type")
              .doc("Cast.")
              .shape(unchanged_shape),
          gradient([](GradientContext& c) -> Status {
            c.set_dx(0, c.op("Cast", {c.dy(0)}, {{"DstT", c.input(0).dtype()}}));
            return {};
          }));
  ops.add(OpDef("Reshape")
              .input("tensor: T")
              .input("shape: int32")
              .output("output: T")
              .attr("T: type")
              .doc("Reshape.")
              .shape(reshape_shape),
          not_differentiable("it is not needed in these tests"));
  ops.add(OpDef("Split")
              .input("value: T")
              .output("output: num_split * T")
              .attr("num_split: int >= 1")
              .attr("T: type")
              .doc("Split.")
              .shape(unknown_shape),
          not_differentiable("it is not needed in these tests"));
  ops.add(OpDef("Pair")
              .input("x: T")
              .output("a: T")
              .output("b: T")
              .attr("T: {float32}")
              .doc("x, 2x.")
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, c.input(0));
                c.set_output(1, c.input(0));
                return {};
              }),
          gradient([](GradientContext& c) -> Status {
            if (c.dy(0) && c.dy(1)) c.set_dx(0, c.op("AddN", {c.dy(0), c.dy(1), c.dy(1)}));
            else c.set_dx(0, c.dy(0) ? c.dy(0) : c.op("AddN", {c.dy(1), c.dy(1)}));
            return {};
          }));
  ops.add(OpDef("Enqueue")
              .input("handle: resource")
              .input("components: Tcomponents")
              .attr("Tcomponents: list(type) >= 1")
              .attr("timeout_ms: int = -1")
              .doc("Enqueue.")
              .shape(no_outputs)
              .stateful(),
          not_differentiable("it has no outputs"));
  ops.add(OpDef("Handle")
              .output("handle: resource")
              .attr("shared_name: string = ''")
              .attr("dtype: type")
              .attr("shape: shape")
              .doc("A handle.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("it has no inputs"));
  ops.add(OpDef("Read")
              .input("handle: resource")
              .output("value: dtype")
              .attr("dtype: type")
              .doc("The value.")
              .stateful()
              .shape([](ShapeContext& c) -> Status {
                if (const auto* shape = c.source(0).node->attrs().get<PartialShape>("shape")) c.set_output(0, *shape);
                return {};
              }),
          gradient([](GradientContext& c) -> Status {
            c.set_dx(0, c.dy(0));
            return {};
          }));
  ops.add(OpDef("Pool")
              .input("x: T")
              .output("y: T")
              .attr("T: {float32} = float32")
              .attr("ksize: list(int) >= 4")
              .attr("padding: {'SAME', 'VALID'}")
              .attr("alpha: float = 0.5")
              .attr("names: list(string) = ['a', 'b']")
              .attr("big: int = -9000000000")
              .attr("shape: shape = [2,?]")
              .doc("A bit of everything.")
              .shape(unknown_shape),
          not_differentiable("it is not needed in these tests"));
}

/// A registry and a graph over it.
struct Fixture {
  Fixture() { register_fake_ops(ops); }
  OpRegistry ops;
  Graph graph{ops};
  Scope scope{graph};

  Output placeholder(const std::string& name, PartialShape shape, DType dtype = DType::kFloat32) {
    return scope.named(name).op("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}});
  }
};

}  // namespace troupe::test
