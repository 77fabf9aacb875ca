// SPDX-License-Identifier: Apache-2.0
// Complex numbers and their parts: Complex, Real, Imag, Conj, Angle, ComplexAbs.
#include "ops/math/register.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/precision.h"

namespace troupe {
namespace {

struct JoinParts {
  template <class R> static std::complex<R> apply(R real, R imag) { return {real, imag}; }
};
struct RealPart {
  template <class T> static Real<T> apply(T x) { return x.real(); }
};
struct ImagPart {
  template <class T> static Real<T> apply(T x) { return x.imag(); }
};
struct Conjugate {
  template <class T> static T apply(T x) { return std::conj(x); }
};
struct Phase {
  template <class T> static Real<T> apply(T x) { return std::arg(x); }
};
struct Magnitude {
  /// Squares of floats neither overflow nor vanish in float64.
  template <class T> static Real<T> apply(T x) {
    if constexpr (std::is_same_v<T, complex64>) {
      const double real = x.real(), imag = x.imag();
      const bool infinite = std::isinf(x.real()) || std::isinf(x.imag());  // also beside NaN
      return infinite ? HUGE_VALF : static_cast<float>(std::sqrt(real * real + imag * imag));
    } else {
      return std::abs(x);
    }
  }
};

Output zero_like(GradientContext& c, Output real) { return scalar_like(c, real.dtype(), 0); }

Status join_parts_gradient(GradientContext& c) {
  if (c.dy(0)) set_broadcast_gradients(c, real_part(c, c.dy(0)), imaginary_part(c, c.dy(0)));
  return {};
}
Status real_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, complex_number(c, c.dy(0), zero_like(c, c.dy(0))));
  return {};
}
Status imag_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, complex_number(c, zero_like(c, c.dy(0)), c.dy(0)));
  return {};
}
Status conj_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op("Conj", {c.dy(0)}));
  return {};
}
/// -dy / (Im x + i Re x)
Status angle_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output x = c.input(0), turned = complex_number(c, imaginary_part(c, x), real_part(c, x));
  const Output minus = complex_number(c, c.op("Neg", {c.dy(0)}), zero_like(c, c.dy(0)));
  c.set_dx(0, c.op("RealDiv", {minus, turned}));
  return {};
}
/// dy along the direction of x; 0 where x is.
Status magnitude_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const auto to_complex = [&](Output real) { return complex_number(c, real, zero_like(c, real)); };
  const Output x = c.input(0), direction = c.op("DivNoNan", {x, to_complex(c.output(0))});
  c.set_dx(0, c.op("Mul", {to_complex(c.dy(0)), direction}));
  return {};
}

/// F of complex numbers, to numbers of the same kind or, with `to_real`, to real ones.
template <class F, bool to_real>
void add_part(OpRegistry& ops, KernelRegistry& kernels, const char* name, const char* doc, GradientFn gradient_fn,
              const std::string& input = "input", const std::string& output = "output") {
  OpDef op(name);
  op.input(input + ": T").attr(type_attr("T", ComplexTypes{}, "complex64")).doc(doc);
  if constexpr (to_real) {
    op.output(output + ": Tout").attr(type_attr("Tout", FullFloatTypes{}, "float32"));
    op.shape([](ShapeContext& c) -> Status {
      TROUPE_RETURN_IF_ERROR(check_precision(c, "Tout", c.input_dtype(0), real_of(c.input_dtype(0))));
      return unchanged_shape(c);
    });
  } else {
    op.output(output + ": T").shape(unchanged_shape);
  }
  ops.add(std::move(op), gradient(std::move(gradient_fn)));
  const auto add = [&]<class T>() {
    using To = std::conditional_t<to_real, Real<T>, T>;
    kernels.add(name, DeviceKind::kCpu, "T", dtype_of<T>,
                [](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(
                      new UnaryKernel(elementwise::unary_plain<F, T, To>, dtype_of<To>, kCheapGrain));
                });
  };
  add.template operator()<complex64>();
  add.template operator()<complex128>();
}

template <class R> void add_join(KernelRegistry& kernels) {
  kernels.add(
      "Complex", DeviceKind::kCpu, "T", dtype_of<R>, [](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
        return std::unique_ptr<ComputeKernel>(new BinaryKernel(elementwise::binary_plain<JoinParts, R, std::complex<R>>,
                                                               dtype_of<std::complex<R>>, kCheapGrain, ""));
      });
}

}  // namespace

void register_complex_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Complex")
              .input("real: T")
              .input("imag: T")
              .output("out: Tout")
              .attr(type_attr("T", FullFloatTypes{}, "float32"))
              .attr(type_attr("Tout", ComplexTypes{}, "complex64"))
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(check_precision(c, "Tout", c.input_dtype(0), complex_of(c.input_dtype(0))));
                return broadcast_shape(c);
              })
              .doc("real + i imag, element by element. The shapes broadcast."),
          gradient(join_parts_gradient));
  add_join<float>(kernels);
  add_join<double>(kernels);
  add_part<RealPart, true>(ops, kernels, "Real", "The real part.", real_gradient);
  add_part<ImagPart, true>(ops, kernels, "Imag", "The imaginary part.", imag_gradient);
  add_part<Conjugate, false>(ops, kernels, "Conj", "The complex conjugate.", conj_gradient);
  add_part<Phase, true>(ops, kernels, "Angle", "The argument in radians, in (-pi, pi].", angle_gradient);
  add_part<Magnitude, true>(ops, kernels, "ComplexAbs", "The magnitude.", magnitude_gradient, "x", "y");
}

}  // namespace troupe
