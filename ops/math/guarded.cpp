// SPDX-License-Identifier: Apache-2.0
// Functions of two numbers with rules of their own at zero: Xlogy, Xdivy, Xlog1py, MulNoNan, DivNoNan; also Atan2 and
// NextAfter.
#include "ops/math/guarded_functors.h"
#include "ops/math/register.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gradient_math.h"

namespace troupe {
namespace {

using namespace guarded_functors;

/// 1 where x is not 0, else 0.
Output is_not_zero(GradientContext& c, Output x) {
  const Output zero = scalar_like(c, x.dtype(), 0);
  return c.op("Cast", {c.op("NotEqual", {x, zero})}, {{"DstT", x.dtype()}});
}

/// The gradient of x f(y), 0 where x is: by x it is f(y), 0 again where x is 0; by y what `by_y` says.
Gradient guarded_gradient(const char* op, Output (*by_y)(GradientContext&, Output x, Output y)) {
  return gradient([op, by_y](GradientContext& c) -> Status {
    const Output dy = c.dy(0);
    if (!dy) return {};
    const Output x = conj(c, c.input(0)), y = conj(c, c.input(1));
    set_broadcast_gradients(c, c.op("Mul", {dy, c.op(op, {is_not_zero(c, x), y})}), c.op("Mul", {dy, by_y(c, x, y)}));
    return {};
  });
}

Status mul_no_nan_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  if (!dy) return {};
  const Output x = conj(c, c.input(0)), y = conj(c, c.input(1));
  set_broadcast_gradients(c, c.op("MulNoNan", {dy, y}), c.op("MulNoNan", {x, dy}));
  return {};
}

Status div_no_nan_gradient(GradientContext& c) {
  const Output dy = c.dy(0);
  if (!dy) return {};
  const Output x = conj(c, c.input(0)), y = conj(c, c.input(1));
  const Output by_y = c.op("DivNoNan", {c.op("DivNoNan", {c.op("Neg", {x}), y}), y});
  set_broadcast_gradients(c, c.op("DivNoNan", {dy, y}), c.op("Mul", {dy, by_y}));
  return {};
}

Status atan2_gradient(GradientContext& c) {
  const Output dz = c.dy(0), y = c.input(0), x = c.input(1);
  if (!dz) return {};
  const Output part = c.op("RealDiv", {dz, c.op("AddV2", {c.op("Square", {x}), c.op("Square", {y})})});
  set_broadcast_gradients(c, c.op("Mul", {x, part}), c.op("Mul", {c.op("Neg", {y}), part}));
  return {};
}

}  // namespace

void register_math_guarded_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const FloatOrComplexTypes types;
  const auto add = [&]<class F>(F, const char* name, const char* doc, Gradient gradient) {
    ops.add(binary_op(name, types, doc), std::move(gradient));
    add_binary_kernels<F>(kernels, name, types, kDearGrain);
  };
  add(Xlogy{}, "Xlogy", "x log y, and 0 where x is 0 whatever y. The shapes broadcast.",
      guarded_gradient("Xlogy", [](GradientContext& c, Output x, Output y) {
        return c.op("Xdivy", {x, y});
      }));
  add(Xlog1py{}, "Xlog1py", "x log(1 + y), and 0 where x is 0 whatever y. The shapes broadcast.",
      guarded_gradient("Xlog1py", [](GradientContext& c, Output x, Output y) {
        return c.op("Xdivy", {x, c.op("AddV2", {y, scalar_like(c, y.dtype(), 1)})});
      }));
  add(Xdivy{}, "Xdivy", "x / y, and 0 where x is 0 whatever y. The shapes broadcast.",
      guarded_gradient("Xdivy", [](GradientContext& c, Output x, Output y) {
        return c.op("Xdivy", {c.op("Neg", {x}), c.op("Square", {y})});
      }));
  add(MulNoNan{}, "MulNoNan", "x y, and 0 where y is 0 even if x is infinite or NaN. The shapes broadcast.",
      gradient(mul_no_nan_gradient));
  add(DivNoNan{}, "DivNoNan", "x / y, and 0 where y is 0. The shapes broadcast.", gradient(div_no_nan_gradient));

  ops.add(OpDef("Atan2")
              .input("y: T")
              .input("x: T")
              .output("z: T")
              .attr(type_attr("T", FloatTypes{}))
              .shape(broadcast_shape)
              .doc("The angle of the point (x, y), in radians from -pi to pi. The shapes broadcast."),
          gradient(atan2_gradient));
  add_binary_kernels<Atan2>(kernels, "Atan2", FloatTypes{}, kDearGrain);
  ops.add(OpDef("NextAfter")
              .input("x1: T")
              .input("x2: T")
              .output("output: T")
              .attr(type_attr("T", FullFloatTypes{}, "float32"))
              .shape(broadcast_shape)
              .doc("The number next to x1 on the way to x2. The shapes broadcast."),
          gradient([](GradientContext& c) -> Status {
            if (c.dy(0)) set_broadcast_gradients(c, c.dy(0), c.op("ZerosLike", {c.dy(0)}));
            return {};
          }));
  add_binary_kernels<NextAfter>(kernels, "NextAfter", FullFloatTypes{});
}

}  // namespace troupe
