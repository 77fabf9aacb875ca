// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparison and logic of two tensors, which broadcast by NumPy's rules. Selection and sums of
// many tensors are in select.cpp.
#include "ops/math/binary_functors.h"
#include "ops/math/register.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gradient_math.h"

namespace troupe {
namespace {

using namespace binary_functors;

/// One string after the other.
struct JoinStrings {
  template <class T> static T apply(const T& a, const T& b) { return a + b; }
};

/// PowFloats. An exponent that is one for all is looked at once, as the kernel runs: within a loop of the graph it is
/// known no earlier.
template <class T> bool power_loop(void* out, const void* a, const void* b, int64_t n, Operands operands) {
  const auto run = [&](auto power) {
    return elementwise::binary_loop<decltype(power), T>().loop(out, a, b, n, operands);
  };
  return operands == Operands::kRightScalar ? with_power(widen(*static_cast<const T*>(b)), run) : run(PowFloats());
}
template <class... T> void add_power_kernels(KernelRegistry& kernels, TypeList<T...>) {
  add_binary_loops(kernels, "Pow", std::array{TypedLoop<BinaryLoop>{dtype_of<T>, dtype_of<T>, power_loop<T>}...},
                   kDearGrain, "", true);
}

// --- gradients ---

Status addition_gradient(GradientContext& c) {
  set_broadcast_gradients(c, c.dy(0), c.dy(0));
  return {};
}
Status sub_gradient(GradientContext& c) {
  if (c.dy(0)) set_broadcast_gradients(c, c.dy(0), c.op("Neg", {c.dy(0)}));
  return {};
}
Status mul_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  if (dy) set_broadcast_gradients(c, c.op("Mul", {dy, conj(c, c.input(1))}), c.op("Mul", {dy, conj(c, c.input(0))}));
  return {};
}
Status div_gradient(GradientContext& c) {
  const Output dy = c.dy(0), a = conj(c, c.input(0)), b = conj(c, c.input(1));
  if (!dy) return {};
  const Output db = c.op("Mul", {dy, c.op("RealDiv", {c.op("RealDiv", {c.op("Neg", {a}), b}), b})});
  set_broadcast_gradients(c, c.op("RealDiv", {dy, b}), db);
  return {};
}
Status squared_difference_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  if (!dy) return {};
  const Output two = scalar_like(c, dy.dtype(), 2);
  const Output da = c.op("Mul", {c.op("Mul", {two, dy}), c.op("Sub", {c.input(0), c.input(1)})});
  set_broadcast_gradients(c, da, c.op("Neg", {da}));
  return {};
}
Status floor_mod_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  if (!dy) return {};
  const Output quotient = c.op("FloorDiv", {c.input(0), c.input(1)});
  set_broadcast_gradients(c, dy, c.op("Mul", {dy, c.op("Neg", {quotient})}));
  return {};
}
Status pow_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = conj(c, c.input(0)), y = conj(c, c.input(1));
  if (!dy) return {};
  const Output one = scalar_like(c, x.dtype(), 1), zero = scalar_like(c, x.dtype(), 0);
  const Output dx = c.op("Mul", {c.op("Mul", {dy, y}), c.op("Pow", {x, c.op("Sub", {y, one})})});
  // The logarithm is taken of positive x alone, or of complex x but 0; elsewhere the gradient by y is 0, as in
  // TensorFlow.
  const Output has_log = c.op(is_complex(x.dtype()) ? "NotEqual" : "Greater", {x, zero});
  const Output safe = c.op("SelectV2", {has_log, x, c.op("OnesLike", {x})});
  const Output log = c.op("SelectV2", {has_log, c.op("Log", {safe}), c.op("ZerosLike", {x})});
  set_broadcast_gradients(c, dx, c.op("Mul", {c.op("Mul", {dy, conj(c, c.output(0))}), log}));
  return {};
}
GradientFn winner_gradient(const char* first_wins) {
  return [first_wins](GradientContext& c) -> Status {
    const Output dy = c.dy(0);
    if (!dy) return {};
    const Output first = c.op(first_wins, {c.input(0), c.input(1)}), zero = scalar_like(c, dy.dtype(), 0);
    set_broadcast_gradients(c, c.op("SelectV2", {first, dy, zero}), c.op("SelectV2", {first, zero, dy}));
    return {};
  };
}

/// Equal and NotEqual: with incompatible_shape_error false, tensors whose shapes do not broadcast are just not equal.
class EqualityKernel final : public ComputeKernel {
 public:
  EqualityKernel(BinaryLoop loop, bool when_incompatible)
      : inner_(loop, DType::kBool, kCheapGrain, ""), when_incompatible_(when_incompatible) {}
  Status compute(KernelContext& c) override {
    if (broadcast(c.input(0).shape(), c.input(1).shape()).ok()) return inner_.compute(c);
    c.set_output(0, Tensor::scalar<bool>(when_incompatible_));
    return {};
  }

 private:
  BinaryKernel inner_;
  const bool when_incompatible_;
};

template <class F, class... T> void add_equality(KernelRegistry& kernels, const char* op, TypeList<T...>) {
  const auto add = [&](DType dtype, BinaryLoop loop) {
    kernels.add(op, DeviceKind::kCpu, {{"T", {dtype}}},
                [loop](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                  if (init.attrs->get_or<bool>("incompatible_shape_error", true))
                    return std::unique_ptr<ComputeKernel>(new BinaryKernel(loop, DType::kBool, kCheapGrain, ""));
                  return std::unique_ptr<ComputeKernel>(new EqualityKernel(loop, std::is_same_v<F, NotEqual>));
                });
  };
  (add(dtype_of<T>, elementwise::binary_plain<F, T, bool>), ...);
}

Status equality_shape(ShapeContext& c) {
  if (c.attr<bool>("incompatible_shape_error")) return broadcast_shape(c);
  const auto shape = broadcast(c.input(0), c.input(1));
  if (shape.ok() && shape->fully_known() && c.input(0).fully_known() && c.input(1).fully_known())
    c.set_output(0, *shape);
  else if (!shape.ok()) c.set_output(0, PartialShape::scalar());
  return {};
}

template <class... T> OpDef predicate(const char* name, TypeList<T...> types, const char* doc) {
  return std::move(OpDef(name)
                       .input("x: T")
                       .input("y: T")
                       .output("z: bool")
                       .attr(type_attr("T", types))
                       .shape(broadcast_shape)
                       .doc(doc));
}

void add_arithmetic(OpRegistry& ops, KernelRegistry& kernels) {
  const NumberOrComplexTypes all;
  const NumberTypes numbers;
  const FloatTypes floats;
  const IntegerTypes integers;
  const FloatOrComplexTypes float_or_complex;
  using SumTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                            uint32_t, uint64_t, complex64, complex128, std::string>;
  ops.add(
      binary_op("Add", SumTypes{}, "x + y, element by element; of strings one after the other. The shapes broadcast."),
      gradient(addition_gradient));
  ops.add(binary_op("AddV2", all, "x + y, element by element. The shapes broadcast."), gradient(addition_gradient));
  ops.add(binary_op("Sub", all, "x - y, element by element. The shapes broadcast."), gradient(sub_gradient));
  ops.add(binary_op("Mul", all, "x * y, element by element. The shapes broadcast."), gradient(mul_gradient));
  ops.add(binary_op("SquaredDifference", all,
                    "(x - y)^2, of complex numbers |x - y|^2, element by element. The shapes broadcast."),
          gradient(squared_difference_gradient));
  add_binary_kernels<Add>(kernels, "Add", all);
  add_binary_kernels<JoinStrings>(kernels, "Add", TypeList<std::string>{});
  add_binary_kernels<Add>(kernels, "AddV2", all);
  add_binary_kernels<Sub>(kernels, "Sub", all);
  add_binary_kernels<Mul>(kernels, "Mul", all);
  add_binary_kernels<SquaredDifference>(kernels, "SquaredDifference", all);

  ops.add(binary_op("Div", all, "x / y; of integers truncated towards zero, and division by zero is an error."),
          gradient(div_gradient));
  ops.add(binary_op("RealDiv", all, "x / y, of floating and complex numbers."), gradient(div_gradient));
  ops.add(binary_op("TruncateDiv", numbers, "x / y, truncated towards zero. Division of integers by zero is an error."),
          not_differentiable("it is piecewise constant"));
  ops.add(
      binary_op("FloorDiv", numbers, "The largest integer not above x / y. Division of integers by zero is an error."),
      not_differentiable("it is piecewise constant"));
  for (const char* op : {"Mod", "TruncateMod"})
    ops.add(
        binary_op(op, numbers, "The rest of truncated division; it has the sign of x. Zero y of integers: an error."),
        undefined_gradient("TensorFlow defines none, and a path through it is an error; FloorMod has one"));
  ops.add(binary_op("FloorMod", numbers,
                    "The rest of floored division; it has the sign of y. Zero y of integers: an "
                    "error."),
          gradient(floor_mod_gradient));
  add_binary_kernels<DivideFloats>(kernels, "Div", float_or_complex);
  add_binary_kernels<DivideIntegers>(kernels, "Div", integers, kDearGrain);
  add_binary_kernels<DivideFloats>(kernels, "RealDiv", float_or_complex);
  add_binary_kernels<TruncateDivideFloats>(kernels, "TruncateDiv", floats);
  add_binary_kernels<DivideIntegers>(kernels, "TruncateDiv", integers, kDearGrain);
  add_binary_kernels<FloorDivideFloats>(kernels, "FloorDiv", floats);
  add_binary_kernels<FloorDivideIntegers>(kernels, "FloorDiv", integers, kDearGrain);
  for (const char* op : {"Mod", "TruncateMod"}) {
    add_binary_kernels<RestFloats>(kernels, op, floats, kDearGrain);
    add_binary_kernels<RestIntegers>(kernels, op, integers, kDearGrain);
  }
  add_binary_kernels<FloorRest>(kernels, "FloorMod", floats, kDearGrain);
  add_binary_kernels<FloorRestIntegers>(kernels, "FloorMod", integers, kDearGrain);

  ops.add(binary_op("Pow", all, "x to the power y. An integer to a negative power is an error."),
          gradient(pow_gradient));
  add_power_kernels(kernels, FloatTypes{});
  add_binary_kernels<PowFloats>(kernels, "Pow", ComplexTypes{}, kDearGrain);
  add_binary_kernels<PowIntegers>(kernels, "Pow", integers, kDearGrain);
  ops.add(binary_op("Maximum", numbers, "The larger of x and y; NaN where one is. At equality the gradient goes to x."),
          gradient(winner_gradient("GreaterEqual")));
  ops.add(
      binary_op("Minimum", numbers, "The smaller of x and y; NaN where one is. At equality the gradient goes to x."),
      gradient(winner_gradient("LessEqual")));
  add_binary_kernels<Maximum>(kernels, "Maximum", numbers);
  add_binary_kernels<Minimum>(kernels, "Minimum", numbers);
}

void add_comparisons(OpRegistry& ops, KernelRegistry& kernels) {
  const NumberTypes numbers;
  const char* boolean = "its result is boolean";
  ops.add(predicate("Less", numbers, "x < y, element by element. The shapes broadcast."), not_differentiable(boolean));
  ops.add(predicate("LessEqual", numbers, "x <= y, element by element. The shapes broadcast."),
          not_differentiable(boolean));
  ops.add(predicate("Greater", numbers, "x > y, element by element. The shapes broadcast."),
          not_differentiable(boolean));
  ops.add(predicate("GreaterEqual", numbers, "x >= y, element by element. The shapes broadcast."),
          not_differentiable(boolean));
  add_binary_kernels<Less>(kernels, "Less", numbers);
  add_binary_kernels<LessEqual>(kernels, "LessEqual", numbers);
  add_binary_kernels<Greater>(kernels, "Greater", numbers);
  add_binary_kernels<GreaterEqual>(kernels, "GreaterEqual", numbers);
  using Comparable = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                              uint32_t, uint64_t, complex64, complex128, bool, std::string>;
  const Comparable comparable;
  ops.add(predicate("Equal", comparable,
                    "x == y, element by element. The shapes broadcast; shapes that do not are an "
                    "error, and with incompatible_shape_error false the result is the scalar false.")
              .attr("incompatible_shape_error: bool = true")
              .shape(equality_shape),
          not_differentiable(boolean));
  ops.add(predicate("NotEqual", comparable,
                    "x != y, element by element. The shapes broadcast; shapes that do not are "
                    "an error, and with incompatible_shape_error false the result is the scalar true.")
              .attr("incompatible_shape_error: bool = true")
              .shape(equality_shape),
          not_differentiable(boolean));
  add_equality<Equal>(kernels, "Equal", comparable);
  add_equality<NotEqual>(kernels, "NotEqual", comparable);
  for (const char* op : {"LogicalAnd", "LogicalOr"})
    ops.add(OpDef(op)
                .input("x: bool")
                .input("y: bool")
                .output("z: bool")
                .shape(broadcast_shape)
                .doc(op[7] == 'A' ? "x and y, element by element. The shapes broadcast."
                                  : "x or y, element by element. The shapes broadcast."),
            not_differentiable(boolean));
  add_binary_kernels<LogicalAnd>(kernels, "LogicalAnd", TypeList<bool>{});
  add_binary_kernels<LogicalOr>(kernels, "LogicalOr", TypeList<bool>{});
}

}  // namespace

void register_math_binary_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_arithmetic(ops, kernels);
  add_comparisons(ops, kernels);
}

}  // namespace troupe
