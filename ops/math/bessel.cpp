// SPDX-License-Identifier: Apache-2.0
// Bessel functions, element by element: BesselI0, I0e, I1, I1e, K0, K0e, K1, K1e, J0, J1, Y0, Y1; and the integrals
// Dawsn, Expint, FresnelCos, FresnelSin, Spence.
#include <numbers>

#include "ops/math/bessel_math.h"
#include "ops/math/register.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gradient_math.h"

namespace troupe {
namespace {

template <double (*f)(double)> struct Of {
  template <class T> static T apply(T x) { return static_cast<T>(f(x)); }
};

/// dy/dx from x and y.
using Slope = Output (*)(GradientContext& c, Output x, Output y);

Output number(GradientContext& c, Output like, double value) { return scalar_like(c, like.dtype(), value); }
Output is_zero(GradientContext& c, Output x) { return c.op("Equal", {x, number(c, x, 0)}); }

/// The slope of a function of order 1 by that of order 0, its limit 1/2 where x is 0; `scaled` by exp(-|x|).
Output of_order_one(GradientContext& c, Output x, Output y, const char* zeroth, bool scaled) {
  const Output safe = c.op("SelectV2", {is_zero(c, x), number(c, x, 1), x});
  Output ratio = c.op("Reciprocal", {safe});
  if (scaled) ratio = c.op("AddV2", {ratio, c.op("Sign", {x})});
  const Output slope = c.op("Sub", {c.op(zeroth, {x}), c.op("Mul", {y, ratio})});
  return c.op("SelectV2", {is_zero(c, x), number(c, x, 0.5), slope});
}

Output quarter_turn(GradientContext& c, Output x) {
  return c.op("Mul", {number(c, x, std::numbers::pi / 2), c.op("Square", {x})});
}

}  // namespace

void register_bessel_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&]<class F>(F, const char* name, const char* doc, Slope slope) {
    ops.add(OpDef(name).input("x: T").output("y: T").attr(type_attr("T", FloatTypes{})).shape(unchanged_shape).doc(doc),
            gradient([slope](GradientContext& c) -> Status {
              if (c.dy(0)) c.set_dx(0, c.op("Mul", {c.dy(0), slope(c, c.input(0), c.output(0))}));
              return {};
            }));
    add_unary_kernels<F>(kernels, name, FloatTypes{}, 256);
  };
  using Context = GradientContext;
  add(Of<special::bessel_i0>{}, "BesselI0", "The modified Bessel function of the first kind of order 0.",
      [](Context& c, Output x, Output) { return c.op("BesselI1", {x}); });
  add(Of<special::bessel_i0e>{}, "BesselI0e", "exp(-|x|) times BesselI0.", [](Context& c, Output x, Output y) {
    return c.op("Sub", {c.op("BesselI1e", {x}), c.op("Mul", {c.op("Sign", {x}), y})});
  });
  add(Of<special::bessel_i1>{}, "BesselI1", "The modified Bessel function of the first kind of order 1.",
      [](Context& c, Output x, Output y) { return of_order_one(c, x, y, "BesselI0", false); });
  add(Of<special::bessel_i1e>{}, "BesselI1e", "exp(-|x|) times BesselI1.",
      [](Context& c, Output x, Output y) { return of_order_one(c, x, y, "BesselI0e", true); });
  add(Of<special::bessel_k0>{}, "BesselK0",
      "The modified Bessel function of the second kind of order 0; infinite for x <= 0.",
      [](Context& c, Output x, Output) { return c.op("Neg", {c.op("BesselK1", {x})}); });
  add(Of<special::bessel_k0e>{}, "BesselK0e", "exp(x) times BesselK0.", [](Context& c, Output x, Output y) {
    return c.op("Sub", {y, c.op("BesselK1e", {x})});
  });
  add(Of<special::bessel_k1>{}, "BesselK1",
      "The modified Bessel function of the second kind of order 1; infinite for x <= 0.",
      [](Context& c, Output x, Output y) {
        return c.op("Neg", {c.op("AddV2", {c.op("BesselK0", {x}), c.op("RealDiv", {y, x})})});
      });
  add(Of<special::bessel_k1e>{}, "BesselK1e", "exp(x) times BesselK1.", [](Context& c, Output x, Output y) {
    const Output part = c.op("Mul", {y, c.op("Sub", {number(c, x, 1), c.op("Reciprocal", {x})})});
    return c.op("Sub", {part, c.op("BesselK0e", {x})});
  });
  add(Of<special::bessel_j0>{}, "BesselJ0", "The Bessel function of the first kind of order 0.",
      [](Context& c, Output x, Output) { return c.op("Neg", {c.op("BesselJ1", {x})}); });
  add(Of<special::bessel_j1>{}, "BesselJ1", "The Bessel function of the first kind of order 1.",
      [](Context& c, Output x, Output y) { return of_order_one(c, x, y, "BesselJ0", false); });
  add(Of<special::bessel_y0>{}, "BesselY0",
      "The Bessel function of the second kind of order 0; minus infinity for x <= 0.",
      [](Context& c, Output x, Output) { return c.op("Neg", {c.op("BesselY1", {x})}); });
  add(Of<special::bessel_y1>{}, "BesselY1",
      "The Bessel function of the second kind of order 1; minus infinity for x <= 0.",
      [](Context& c, Output x, Output y) {
        return c.op("Sub", {c.op("BesselY0", {x}), c.op("RealDiv", {y, x})});
      });

  add(Of<special::dawsn>{}, "Dawsn", "exp(-x^2) times the integral of exp(t^2) from 0 to x.",
      [](Context& c, Output x, Output y) {
        return c.op("Sub", {number(c, x, 1), c.op("Mul", {number(c, x, 2), c.op("Mul", {x, y})})});
      });
  add(Of<special::expint>{}, "Expint", "The exponential integral of exp(t) / t up to x; NaN for x < 0.",
      [](Context& c, Output x, Output) {
        return c.op("RealDiv", {c.op("Exp", {x}), x});
      });
  add(Of<special::fresnel_cos>{}, "FresnelCos", "The integral of cos(pi t^2 / 2) from 0 to x.",
      [](Context& c, Output x, Output) { return c.op("Cos", {quarter_turn(c, x)}); });
  add(Of<special::fresnel_sin>{}, "FresnelSin", "The integral of sin(pi t^2 / 2) from 0 to x.",
      [](Context& c, Output x, Output) { return c.op("Sin", {quarter_turn(c, x)}); });
  add(Of<special::spence>{}, "Spence", "The integral of log t / (1 - t) from 1 to x; NaN for x < 0.",
      [](Context& c, Output x, Output) {
        const Output one = number(c, x, 1), at_one = c.op("Equal", {x, one});
        const Output below = c.op("SelectV2", {at_one, one, c.op("Sub", {one, x})});
        return c.op("SelectV2", {at_one, number(c, x, -1), c.op("RealDiv", {c.op("Log", {x}), below})});
      });
}

}  // namespace troupe
