// SPDX-License-Identifier: Apache-2.0
// The gamma function and its relatives, element by element: Lgamma, Digamma, Polygamma, Zeta, Igamma, Igammac,
// IgammaGradA, RandomGammaGrad, Betainc; and the inverses Erfinv and Ndtri. Bessel functions are in bessel.cpp.
#include <numbers>

#include "ops/math/register.h"
#include "ops/math/special_math.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gradient_math.h"

namespace troupe {
namespace {

template <double (*f)(double)> struct Unary {
  template <class T> static T apply(T x) { return static_cast<T>(f(x)); }
};
template <double (*f)(double, double)> struct Binary {
  template <class T> static T apply(T a, T b) { return static_cast<T>(f(a, b)); }
};

/// Elements below which one thread does all: each costs some hundred nanoseconds.
constexpr int64_t kSpecialGrain = 256;

/// dx = dy * slope(x, y).
Gradient times_slope(Output (*slope)(GradientContext& c, Output x, Output y)) {
  return gradient([slope](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, c.op("Mul", {c.dy(0), slope(c, c.input(0), c.output(0))}));
    return {};
  });
}

/// scale * exp(y^2 / divisor).
Output bell(GradientContext& c, Output y, double scale, double divisor) {
  const Output power = c.op("RealDiv", {c.op("Square", {y}), scalar_like(c, y.dtype(), divisor)});
  return c.op("Mul", {scalar_like(c, y.dtype(), scale), c.op("Exp", {power})});
}

/// The gradient of P(a, x), or of -P: by x the density of the gamma distribution.
Gradient igamma_gradient(bool upper) {
  return gradient([upper](GradientContext& c) -> Status {
    if (!c.dy(0)) return {};
    const Output a = c.input(0), x = c.input(1), dy = upper ? c.op("Neg", {c.dy(0)}) : c.dy(0);
    const DType dtype = a.dtype();
    const Attrs wide = {{"DstT", DType::kFloat32}}, back = {{"DstT", dtype}};
    const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
    Output by_a =
        half ? c.op("IgammaGradA", {c.op("Cast", {a}, wide), c.op("Cast", {x}, wide)}) : c.op("IgammaGradA", {a, x});
    if (half) by_a = c.op("Cast", {by_a}, back);
    const Output power = c.op("Mul", {c.op("Sub", {a, scalar_like(c, dtype, 1)}), c.op("Log", {x})});
    const Output density = c.op("Exp", {c.op("Sub", {c.op("Sub", {power, x}), c.op("Lgamma", {a})})});
    set_broadcast_gradients(c, c.op("Mul", {dy, by_a}), c.op("Mul", {dy, density}));
    return {};
  });
}

/// The gradient by the second input alone, as in TensorFlow.
Status zeta_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output x = c.input(0), q = c.input(1), one = scalar_like(c, x.dtype(), 1);
  const Output slope = c.op("Mul", {c.op("Neg", {x}), c.op("Zeta", {c.op("AddV2", {x, one}), q})});
  c.set_dx(1, sum_to(c, c.op("Mul", {c.dy(0), slope}), q, x));
  return {};
}
Status polygamma_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output n = c.input(0), x = c.input(1), one = scalar_like(c, x.dtype(), 1);
  const Output slope = c.op("Polygamma", {c.op("AddV2", {n, one}), x});
  c.set_dx(1, sum_to(c, c.op("Mul", {c.dy(0), slope}), x, n));
  return {};
}

/// Three tensors of one shape, but for scalars.
template <class T> class Betainc final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    Shape shape;
    for (int i = 0; i < 3; ++i) {
      const Shape& s = c.input(i).shape();
      if (s.rank() == 0) continue;
      if (shape.rank() != 0 && s != shape) return invalid_argument("shapes {} and {} differ", shape.str(), s.str());
      shape = s;
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, shape));
    const T *a = c.input(0).data<T>(), *b = c.input(1).data<T>(), *x = c.input(2).data<T>();
    const int64_t da = c.input(0).rank() != 0, db = c.input(1).rank() != 0, dx = c.input(2).rank() != 0;
    T* out = y.mutable_data<T>();
    parallel_for(c.threads(), shape.elements(), kSpecialGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(special::betainc(a[i * da], b[i * db], x[i * dx]));
    });
    c.set_output(0, std::move(y));
    return {};
  }
};

Status betainc_shape(ShapeContext& c) {
  PartialShape shape = PartialShape::scalar();
  bool unknown = false;
  for (int i = 0; i < 3; ++i) {
    const PartialShape& s = c.input(i);
    if (!s.has_rank()) unknown = true;
    else if (s.rank() != 0) {
      TROUPE_ASSIGN(shape, PartialShape::merge(shape.rank() == 0 ? PartialShape() : shape, s));
    }
  }
  if (!unknown || shape.rank() != 0) c.set_output(0, shape);
  return {};
}

/// By x alone, as in TensorFlow: x^(a-1) (1-x)^(b-1) / B(a, b).
Status betainc_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output a = c.input(0), b = c.input(1), x = c.input(2), one = scalar_like(c, x.dtype(), 1);
  const Output log_beta =
      c.op("Sub", {c.op("AddV2", {c.op("Lgamma", {a}), c.op("Lgamma", {b})}), c.op("Lgamma", {c.op("AddV2", {a, b})})});
  const Output low = c.op("Xlogy", {c.op("Sub", {a, one}), x});
  const Output high = c.op("Xlog1py", {c.op("Sub", {b, one}), c.op("Neg", {x})});
  const Output slope = c.op("Exp", {c.op("Sub", {c.op("AddV2", {low, high}), log_beta})});
  c.set_dx(2, sum_to(c, c.op("Mul", {c.dy(0), slope}), x, c.output(0)));
  return {};
}

}  // namespace

void register_special_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto unary = [&]<class F>(F, const char* name, const char* doc, Gradient gradient) {
    ops.add(OpDef(name).input("x: T").output("y: T").attr(type_attr("T", FloatTypes{})).shape(unchanged_shape).doc(doc),
            std::move(gradient));
    add_unary_kernels<F>(kernels, name, FloatTypes{}, kSpecialGrain);
  };
  unary(Unary<special::lgamma>{}, "Lgamma", "The logarithm of |gamma(x)|.",
        times_slope([](GradientContext& c, Output x, Output) { return c.op("Digamma", {x}); }));
  unary(Unary<special::digamma>{}, "Digamma", "The derivative of Lgamma; NaN at 0, -1, -2 and so on.",
        gradient([](GradientContext& c) -> Status {
          const Output x = c.input(0);
          if (!c.dy(0)) return {};
          const DType dtype = x.dtype();
          const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
          const Output wide = half ? c.op("Cast", {x}, {{"DstT", DType::kFloat32}}) : x;
          const Output slope = c.op("Polygamma", {scalar_like(c, wide.dtype(), 1), wide});
          c.set_dx(0, c.op("Mul", {c.dy(0), half ? c.op("Cast", {slope}, {{"DstT", dtype}}) : slope}));
          return {};
        }));
  unary(
      Unary<special::erfinv>{}, "Erfinv", "The inverse of Erf; NaN where |x| > 1.",
      times_slope([](GradientContext& c, Output, Output y) { return bell(c, y, 0.5 / std::numbers::inv_sqrtpi, 1); }));
  unary(Unary<special::ndtri>{}, "Ndtri", "The quantile of the standard normal distribution; NaN outside [0, 1].",
        times_slope([](GradientContext& c, Output, Output y) {
          return bell(c, y, std::numbers::sqrt2 / std::numbers::inv_sqrtpi, 2);
        }));

  const auto binary = [&]<class F, class... T>(F, const char* name, const char* a, const char* b, const char* out,
                                               TypeList<T...> types, const char* doc, Gradient gradient) {
    ops.add(OpDef(name)
                .input(std::string(a) + ": T")
                .input(std::string(b) + ": T")
                .output(std::string(out) + ": T")
                .attr(type_attr("T", types))
                .shape(broadcast_shape)
                .doc(doc),
            std::move(gradient));
    add_binary_kernels<F>(kernels, name, types, kSpecialGrain);
  };
  const FullFloatTypes full;
  const FloatTypes floats;
  binary(Binary<special::igamma>{}, "Igamma", "a", "x", "z", floats,
         "The lower regularised incomplete gamma function P(a, x). The shapes broadcast.", igamma_gradient(false));
  binary(Binary<special::igammac>{}, "Igammac", "a", "x", "z", floats,
         "The upper regularised incomplete gamma function Q(a, x) = 1 - P(a, x). The shapes broadcast.",
         igamma_gradient(true));
  binary(Binary<special::igamma_grad_a>{}, "IgammaGradA", "a", "x", "z", full,
         "The gradient of Igamma by a. The shapes broadcast.", undefined_gradient());
  binary(Binary<special::random_gamma_grad>{}, "RandomGammaGrad", "alpha", "sample", "output", full,
         "The gradient of a sample of the gamma distribution by its shape alpha. The shapes broadcast.",
         undefined_gradient());
  binary(Binary<special::zeta>{}, "Zeta", "x", "q", "z", full,
         "Hurwitz' zeta function, the sum of (q + n)^-x over n >= 0. The shapes broadcast.", gradient(zeta_gradient));
  binary(Binary<special::polygamma>{}, "Polygamma", "a", "x", "z", full,
         "The derivative of order a of Digamma; NaN where a is not a whole number >= 0. The shapes broadcast.",
         gradient(polygamma_gradient));
  ops.add(OpDef("Betainc")
              .input("a: T")
              .input("b: T")
              .input("x: T")
              .output("z: T")
              .attr(type_attr("T", full))
              .shape(betainc_shape)
              .doc("The regularised incomplete beta function I_x(a, b). The three have one shape; scalars repeat."),
          gradient(betainc_gradient));
  add_cpu_kernels<Betainc>(kernels, "Betainc", full);
}

}  // namespace troupe
