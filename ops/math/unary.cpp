// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor, element by element. Activations and their Grad ops are in activation.cpp.
#include <numbers>

#include "ops/math/register.h"
#include "ops/math/unary_functors.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gradient_math.h"

namespace troupe {
namespace {

using namespace unary_functors;

using SignedTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t>;
using SignedOrComplex =
    TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, complex64, complex128>;

/// dx = dy * conj(factor(x, y)).
using Factor = Output (*)(GradientContext& c, Output x, Output y);
Gradient times(Factor factor) {
  return gradient([factor](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, c.op("Mul", {c.dy(0), conj(c, factor(c, c.input(0), c.output(0)))}));
    return {};
  });
}
/// dx = dy / conj(divisor(x, y)).
Gradient over(Factor divisor) {
  return gradient([divisor](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, c.op("RealDiv", {c.dy(0), conj(c, divisor(c, c.input(0), c.output(0)))}));
    return {};
  });
}
/// dx = GradOp(y, dy).
Gradient by_output(const char* op) {
  return gradient([op](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, c.op(op, {c.output(0), c.dy(0)}));
    return {};
  });
}

Output one(GradientContext& c, Output like) { return scalar_like(c, like.dtype(), 1); }
/// sqrt(1 - x^2)
Output root(GradientContext& c, Output x) { return c.op("Sqrt", {c.op("Sub", {one(c, x), c.op("Square", {x})})}); }

struct Registration {
  OpRegistry& ops;
  KernelRegistry& kernels;

  template <class F, class... T>
  void add(const char* name, TypeList<T...> types, const char* doc, Gradient gradient, int64_t grain = kDearGrain) {
    ops.add(OpDef(name).input("x: T").output("y: T").attr(type_attr("T", types)).shape(unchanged_shape).doc(doc),
            std::move(gradient));
    add_unary_kernels<F>(kernels, name, types, grain);
  }
};

Gradient signed_gradient(double sign) {
  return gradient([sign](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, sign > 0 ? c.dy(0) : c.op("Neg", {c.dy(0)}));
    return {};
  });
}

void add_algebra(Registration& r) {
  r.add<Neg>("Neg", SignedOrComplex{}, "The negative of x.", signed_gradient(-1), kCheapGrain);
  r.add<Abs>("Abs", SignedTypes{}, "The magnitude of x.",
             times([](GradientContext& c, Output x, Output) { return c.op("Sign", {x}); }), kCheapGrain);
  r.add<Sign>("Sign", SignedOrComplex{}, "-1, 0 or 1 by the sign of x; NaN stays; x / |x| of a complex number.",
              not_differentiable("it is piecewise constant"), kCheapGrain);
  using AllNumbers = NumberOrComplexTypes;
  r.add<Square>("Square", AllNumbers{}, "x times x.", times([](GradientContext& c, Output x, Output) {
                  return c.op("Mul", {scalar_like(c, x.dtype(), 2), x});
                }),
                kCheapGrain);
  r.add<Sqrt>("Sqrt", FloatOrComplexTypes{}, "The square root; NaN where x < 0.", by_output("SqrtGrad"));
  r.add<Rsqrt>("Rsqrt", FloatOrComplexTypes{}, "1 over the square root of x.", by_output("RsqrtGrad"));
  r.add<Reciprocal>("Reciprocal", FloatOrComplexTypes{}, "1 / x.", by_output("ReciprocalGrad"), kCheapGrain);
  r.add<Reciprocal>("Inv", FloatOrComplexTypes{}, "1 / x, under its older name.", by_output("ReciprocalGrad"),
                    kCheapGrain);
  r.add<Exp>("Exp", FloatOrComplexTypes{}, "e to the power x.",
             times([](GradientContext&, Output, Output y) { return y; }));
  r.add<Expm1>("Expm1", FloatOrComplexTypes{}, "exp(x) - 1, exact near 0.",
               times([](GradientContext& c, Output x, Output) { return c.op("Exp", {x}); }));
  r.add<Log>("Log", FloatOrComplexTypes{}, "The natural logarithm.",
             over([](GradientContext&, Output x, Output) { return x; }));
  r.add<Log1p>("Log1p", FloatOrComplexTypes{}, "log(1 + x), exact near 0.",
               over([](GradientContext& c, Output x, Output) {
                 return c.op("Add", {one(c, x), x});
               }));
}

void add_trigonometry(Registration& r) {
  r.add<Sin>("Sin", FloatOrComplexTypes{}, "The sine of x in radians.",
             times([](GradientContext& c, Output x, Output) { return c.op("Cos", {x}); }));
  r.add<Cos>("Cos", FloatOrComplexTypes{}, "The cosine of x in radians.",
             times([](GradientContext& c, Output x, Output) { return c.op("Neg", {c.op("Sin", {x})}); }));
  r.add<Tan>("Tan", FloatOrComplexTypes{}, "The tangent of x in radians.",
             over([](GradientContext& c, Output x, Output) { return c.op("Square", {c.op("Cos", {x})}); }));
  r.add<Asin>("Asin", FloatOrComplexTypes{}, "The inverse of the sine, in radians; NaN where |x| > 1.",
              over([](GradientContext& c, Output x, Output) { return root(c, x); }));
  r.add<Acos>("Acos", FloatOrComplexTypes{}, "The inverse of the cosine, in radians; NaN where |x| > 1.",
              over([](GradientContext& c, Output x, Output) { return c.op("Neg", {root(c, x)}); }));
  r.add<Atan>("Atan", FloatOrComplexTypes{}, "The inverse of the tangent, in radians.",
              over([](GradientContext& c, Output x, Output) {
                return c.op("Add", {one(c, x), c.op("Square", {x})});
              }));
  r.add<Sinh>("Sinh", FloatOrComplexTypes{}, "The hyperbolic sine.",
              times([](GradientContext& c, Output x, Output) { return c.op("Cosh", {x}); }));
  r.add<Cosh>("Cosh", FloatOrComplexTypes{}, "The hyperbolic cosine.",
              times([](GradientContext& c, Output x, Output) { return c.op("Sinh", {x}); }));
  r.add<Asinh>("Asinh", FloatOrComplexTypes{}, "The inverse of the hyperbolic sine.",
               over([](GradientContext& c, Output, Output y) { return c.op("Cosh", {y}); }));
  r.add<Acosh>("Acosh", FloatOrComplexTypes{}, "The inverse of the hyperbolic cosine; NaN where x < 1.",
               over([](GradientContext& c, Output, Output y) { return c.op("Sinh", {y}); }));
  r.add<Atanh>("Atanh", FloatOrComplexTypes{}, "The inverse of the hyperbolic tangent; NaN where |x| > 1.",
               over([](GradientContext& c, Output x, Output) {
                 return c.op("Sub", {one(c, x), c.op("Square", {x})});
               }));
  const auto bell = [](double sign) {
    return gradient([sign](GradientContext& c) -> Status {
      if (!c.dy(0)) return {};
      const Output x = c.input(0), scale = scalar_like(c, x.dtype(), sign * 2 * std::numbers::inv_sqrtpi);
      const Output factor = c.op("Mul", {scale, c.op("Exp", {c.op("Neg", {c.op("Square", {x})})})});
      c.set_dx(0, c.op("Mul", {c.dy(0), factor}));
      return {};
    });
  };
  r.add<Erf>("Erf", FloatTypes{}, "The error function.", bell(1));
  r.add<Erfc>("Erfc", FloatTypes{}, "1 minus the error function, exact for large x.", bell(-1));
}

void add_rounding(Registration& r) {
  const Gradient constant = not_differentiable("it is piecewise constant");
  r.add<Floor>("Floor", FloatTypes{}, "The largest integer not above x.", constant, kCheapGrain);
  r.add<Ceil>("Ceil", FloatTypes{}, "The smallest integer not below x.", constant, kCheapGrain);
  r.add<Rint>("Rint", FloatTypes{}, "The integer next to x, halves to even.", constant, kCheapGrain);
  r.add<Round>("Round", SignedTypes{}, "The integer next to x, halves to even.", constant, kCheapGrain);
  const auto predicate = [&](const char* name, const char* doc) {
    r.ops.add(
        OpDef(name).input("x: T").output("y: bool").attr(type_attr("T", FloatTypes{})).shape(unchanged_shape).doc(doc),
        not_differentiable("its result is boolean"));
  };
  predicate("IsNan", "Whether x is not a number.");
  predicate("IsInf", "Whether x is infinite.");
  predicate("IsFinite", "Whether x is neither infinite nor NaN.");
  add_unary_kernels<IsNan>(r.kernels, "IsNan", FloatTypes{});
  add_unary_kernels<IsInf>(r.kernels, "IsInf", FloatTypes{});
  add_unary_kernels<IsFinite>(r.kernels, "IsFinite", FloatTypes{});
  r.ops.add(OpDef("LogicalNot").input("x: bool").output("y: bool").shape(unchanged_shape).doc("Not x."),
            not_differentiable("its result is boolean"));
  add_unary_kernels<LogicalNot>(r.kernels, "LogicalNot", TypeList<bool>{});
}

}  // namespace

void register_math_unary_ops(OpRegistry& ops, KernelRegistry& kernels) {
  Registration r{ops, kernels};
  add_algebra(r);
  add_trigonometry(r);
  add_rounding(r);
}

}  // namespace troupe
