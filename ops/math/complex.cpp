// SPDX-License-Identifier: Apache-2.0
// Complex numbers and their parts: Complex, Real, Imag, Conj, Angle, ComplexAbs.
#include "ops/math/register.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gradient_math.h"

namespace troupe {
namespace {

struct JoinParts {
  static complex64 apply(float real, float imag) { return {real, imag}; }
};
struct RealPart {
  static float apply(complex64 x) { return x.real(); }
};
struct ImagPart {
  static float apply(complex64 x) { return x.imag(); }
};
struct Conjugate {
  static complex64 apply(complex64 x) { return std::conj(x); }
};
struct Phase {
  static float apply(complex64 x) { return std::arg(x); }
};
struct Magnitude {
  static float apply(complex64 x) { return std::abs(x); }
};

Output complex(GradientContext& c, Output real, Output imag) { return c.op("Complex", {real, imag}); }

Status join_parts_gradient(GradientContext& c) {
  if (c.dy(0)) set_broadcast_gradients(c, c.op("Real", {c.dy(0)}), c.op("Imag", {c.dy(0)}));
  return {};
}
Status real_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, complex(c, c.dy(0), scalar_like(c, DType::kFloat32, 0)));
  return {};
}
Status imag_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, complex(c, scalar_like(c, DType::kFloat32, 0), c.dy(0)));
  return {};
}
Status conj_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op("Conj", {c.dy(0)}));
  return {};
}
/// -dy / (Im x + i Re x)
Status angle_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output x = c.input(0), turned = complex(c, c.op("Imag", {x}), c.op("Real", {x}));
  const Output minus = complex(c, c.op("Neg", {c.dy(0)}), scalar_like(c, DType::kFloat32, 0));
  c.set_dx(0, c.op("RealDiv", {minus, turned}));
  return {};
}
/// dy along the direction of x; 0 where x is.
Status magnitude_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const auto to_complex = [&](Output real) { return complex(c, real, scalar_like(c, DType::kFloat32, 0)); };
  const Output x = c.input(0), direction = c.op("DivNoNan", {x, to_complex(c.output(0))});
  c.set_dx(0, c.op("Mul", {to_complex(c.dy(0)), direction}));
  return {};
}

template <class F, class R>
void add_part(OpRegistry& ops, KernelRegistry& kernels, const char* name, const char* doc, GradientFn gradient_fn,
              const std::string& input = "input", const std::string& output = "output") {
  OpDef op(name);
  op.input(input + ": T").attr("T: {complex64} = complex64").shape(unchanged_shape).doc(doc);
  if constexpr (std::is_same_v<R, complex64>) op.output(output + ": T");
  else op.output(output + ": Tout").attr("Tout: {float32} = float32");
  ops.add(std::move(op), gradient(std::move(gradient_fn)));
  kernels.add(name, DeviceKind::kCpu, {}, [](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
    return std::unique_ptr<ComputeKernel>(
        new UnaryKernel(elementwise::unary_plain<F, complex64, R>, dtype_of<R>, kCheapGrain));
  });
}

}  // namespace

void register_complex_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Complex")
              .input("real: T")
              .input("imag: T")
              .output("out: Tout")
              .attr("T: {float32} = float32")
              .attr("Tout: {complex64} = complex64")
              .shape(broadcast_shape)
              .doc("real + i imag, element by element. The shapes broadcast."),
          gradient(join_parts_gradient));
  kernels.add("Complex", DeviceKind::kCpu, {}, [](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
    return std::unique_ptr<ComputeKernel>(
        new BinaryKernel(elementwise::binary_plain<JoinParts, float, complex64>, DType::kComplex64, kCheapGrain, ""));
  });
  add_part<RealPart, float>(ops, kernels, "Real", "The real part.", real_gradient);
  add_part<ImagPart, float>(ops, kernels, "Imag", "The imaginary part.", imag_gradient);
  add_part<Conjugate, complex64>(ops, kernels, "Conj", "The complex conjugate.", conj_gradient);
  add_part<Phase, float>(ops, kernels, "Angle", "The argument in radians, in (-pi, pi].", angle_gradient);
  add_part<Magnitude, float>(ops, kernels, "ComplexAbs", "The magnitude.", magnitude_gradient, "x", "y");
}

}  // namespace troupe
