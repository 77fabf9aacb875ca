// SPDX-License-Identifier: Apache-2.0
// Activation functions, and the ops that compute gradients from results: ReluGrad, TanhGrad, SqrtGrad, ...
#include "ops/nn/activation_functors.h"
#include "ops/nn/register.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gradient_math.h"

namespace troupe {
namespace {

using namespace activation_functors;

template <class T> class LeakyReluGradKernel final : public ComputeKernel {
 public:
  explicit LeakyReluGradKernel(const KernelInit& init) : alpha_(init.attr<float>("alpha")) {}
  Status compute(KernelContext& c) override {
    const Tensor &dy = c.input(0), &x = c.input(1);
    TROUPE_RETURN_IF_ERROR(same_shapes(dy.shape(), x.shape()));
    TROUPE_ASSIGN(Tensor dx, c.forward_or_allocate(0, dtype_of<T>, dy.shape()));
    const T *g = dy.data<T>(), *v = x.data<T>();
    T* out = dx.mutable_data<T>();
    const double alpha = alpha_;
    parallel_for(c.threads(), dy.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = narrow<T>(LeakyReluGrad::apply(widen(g[i]), widen(v[i]), &alpha));
    });
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const float alpha_;
};

Status shape_of_both(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape shape, PartialShape::merge(c.input(0), c.input(1)));
  c.set_output(0, shape);
  return {};
}

/// dx = op(dy, y) or op(dy, x).
Gradient of_output(const char* op) {
  return gradient([op](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, c.op(op, {c.dy(0), c.output(0)}));
    return {};
  });
}
Gradient of_input(const char* op) {
  return gradient([op](GradientContext& c) -> Status {
    if (!c.dy(0)) return {};
    Attrs attrs;
    if (const AttrValue* alpha = c.node().attrs().find("alpha")) attrs.set("alpha", *alpha);
    c.set_dx(0, c.op(op, {c.dy(0), c.input(0)}, attrs));
    return {};
  });
}
/// dx = op(conj(y), dy).
Gradient output_first(const char* op) {
  return gradient([op](GradientContext& c) -> Status {
    if (c.dy(0)) c.set_dx(0, c.op(op, {conj(c, c.output(0)), c.dy(0)}));
    return {};
  });
}

template <class F, class... T>
void add_activation(OpRegistry& ops, KernelRegistry& kernels, const char* name, TypeList<T...> types, const char* doc,
                    Gradient gradient, int64_t grain) {
  ops.add(OpDef(name)
              .input("features: T")
              .output("activations: T")
              .attr(type_attr("T", types))
              .shape(unchanged_shape)
              .doc(doc),
          std::move(gradient));
  add_unary_kernels<F>(kernels, name, types, grain);
}

/// A Grad op of (dy, x or y).
template <class F, class... T>
void add_grad(OpRegistry& ops, KernelRegistry& kernels, const char* name, const char* second, TypeList<T...> types,
              const char* doc, Gradient gradient) {
  ops.add(OpDef(name)
              .input("gradients: T")
              .input(std::string(second) + ": T")
              .output("backprops: T")
              .attr(type_attr("T", types))
              .shape(shape_of_both)
              .doc(doc),
          std::move(gradient));
  add_binary_kernels<F>(kernels, name, types);
}

/// A Grad op of (y, dy).
template <class F>
void add_grad_of_result(OpRegistry& ops, KernelRegistry& kernels, const char* name, const char* doc,
                        Gradient gradient) {
  ops.add(OpDef(name)
              .input("y: T")
              .input("dy: T")
              .output("z: T")
              .attr(type_attr("T", FloatOrComplexTypes{}))
              .shape(shape_of_both)
              .doc(doc),
          std::move(gradient));
  add_binary_kernels<F>(kernels, name, FloatOrComplexTypes{});
}

/// Second order of a piecewise linear function: linear in dy, nothing by x.
Gradient piecewise(const char* op) {
  return gradient([op](GradientContext& c) -> Status {
    if (!c.dy(0)) return {};
    Attrs attrs;
    if (const AttrValue* alpha = c.node().attrs().find("alpha")) attrs.set("alpha", *alpha);
    c.set_dx(0, c.op(op, {c.dy(0), c.input(1)}, attrs));
    return {};
  });
}
/// Second order of Elu and Selu: where y < 0, dy * y changes with y as well.
Gradient exponential(const char* op) {
  return gradient([op](GradientContext& c) -> Status {
    const Output g = c.dy(0), y = c.input(1);
    if (!g) return {};
    const Output zero = scalar_like(c, y.dtype(), 0);
    c.set_dx(0, c.op(op, {g, y}));
    c.set_dx(1, c.op("SelectV2", {c.op("Less", {y, zero}), c.op("Mul", {g, c.input(0)}), zero}));
    return {};
  });
}
/// z = f(y, dy), linear in dy: dz/dy by `by_y`, given conjugates of y and dy; by dy the op itself again, of conj(y).
Gradient second_order(const char* op, Output (*by_y)(GradientContext&, Output g, Output y, Output dy)) {
  return gradient([op, by_y](GradientContext& c) -> Status {
    if (!c.dy(0)) return {};
    const Output y = conj(c, c.input(0));
    c.set_dx(0, by_y(c, c.dy(0), y, conj(c, c.input(1))));
    c.set_dx(1, c.op(op, {y, c.dy(0)}));
    return {};
  });
}
/// The same of an f that takes the conjugate of y: by y it is conj(g) * slope(y, dy).
Gradient second_order_of_conjugate(const char* op, Output (*slope)(GradientContext&, Output y, Output dy)) {
  return gradient([op, slope](GradientContext& c) -> Status {
    if (!c.dy(0)) return {};
    const Output y = conj(c, c.input(0));
    c.set_dx(0, c.op("Mul", {conj(c, c.dy(0)), slope(c, y, c.input(1))}));
    c.set_dx(1, c.op(op, {y, c.dy(0)}));
    return {};
  });
}

Output product(GradientContext& c, double factor, std::initializer_list<Output> of) {
  Output out = scalar_like(c, of.begin()->dtype(), factor);
  for (Output x : of) out = c.op("Mul", {out, x});
  return out;
}

void add_grads(OpRegistry& ops, KernelRegistry& kernels) {
  const FloatTypes floats;
  const NumberTypes numbers;
  add_grad<ReluGrad>(ops, kernels, "ReluGrad", "features", numbers,
                     "gradients where features > 0, else 0; features "
                     "may be the inputs or the outputs of Relu.",
                     piecewise("ReluGrad"));
  add_grad<Relu6Grad>(ops, kernels, "Relu6Grad", "features", numbers, "gradients where 0 < features < 6, else 0.",
                      piecewise("Relu6Grad"));
  add_grad<EluGrad>(ops, kernels, "EluGrad", "outputs", floats, "The gradient of Elu, from its outputs.",
                    exponential("EluGrad"));
  add_grad<SeluGrad>(ops, kernels, "SeluGrad", "outputs", floats, "The gradient of Selu, from its outputs.",
                     exponential("SeluGrad"));
  add_grad<SoftplusGrad>(ops, kernels, "SoftplusGrad", "features", floats, "gradients * sigmoid(features).",
                         gradient([](GradientContext& c) -> Status {
                           const Output g = c.dy(0), x = c.input(1);
                           if (!g) return {};
                           const Output s = c.op("Sigmoid", {x});
                           c.set_dx(0, c.op("SoftplusGrad", {g, x}));
                           c.set_dx(1, c.op("SigmoidGrad", {s, c.op("Mul", {g, c.input(0)})}));
                           return {};
                         }));
  add_grad<SoftsignGrad>(ops, kernels, "SoftsignGrad", "features", floats, "gradients / (1 + |features|)^2.",
                         gradient([](GradientContext& c) -> Status {
                           const Output g = c.dy(0), x = c.input(1);
                           if (!g) return {};
                           c.set_dx(0, c.op("SoftsignGrad", {g, x}));
                           const Output steep = c.op("SoftsignGrad", {c.op("Mul", {g, c.input(0)}), x});
                           const Output two = scalar_like(c, x.dtype(), -2), one = scalar_like(c, x.dtype(), 1);
                           c.set_dx(1, c.op("Mul", {c.op("RealDiv", {steep, c.op("AddV2", {c.op("Abs", {x}), one})}),
                                                    c.op("Mul", {c.op("Sign", {x}), two})}));
                           return {};
                         }));
  ops.add(OpDef("LeakyReluGrad")
              .input("gradients: T")
              .input("features: T")
              .output("backprops: T")
              .attr("alpha: float = 0.2")
              .attr(type_attr("T", floats, "float32"))
              .shape(shape_of_both)
              .doc("gradients where features > 0, else alpha * gradients."),
          piecewise("LeakyReluGrad"));
  add_cpu_kernels<LeakyReluGradKernel>(kernels, "LeakyReluGrad", floats);
  add_grad<GeluApproximateGrad>(ops, kernels, "_GeluApproximateGrad", "features", floats,
                                "gradients times the derivative of GELU by tanh. A pass makes it.",
                                not_differentiable("passes make it, after gradients"));
  add_grad<GeluExactGrad>(ops, kernels, "_GeluExactGrad", "features", floats,
                          "gradients times the derivative of GELU by erf. A pass makes it.",
                          not_differentiable("passes make it, after gradients"));
  add_grad_of_result<SigmoidGrad>(ops, kernels, "SigmoidGrad", "The gradient of Sigmoid: dy * y * (1 - y).",
                                  second_order("SigmoidGrad", [](GradientContext& c, Output g, Output y, Output dy) {
                                    const Output gd = c.op("Mul", {g, dy});
                                    return c.op("Sub", {gd, product(c, 2, {gd, y})});
                                  }));
  add_grad_of_result<TanhGrad>(ops, kernels, "TanhGrad", "The gradient of Tanh: dy * (1 - y^2).",
                               second_order("TanhGrad", [](GradientContext& c, Output g, Output y, Output dy) {
                                 return product(c, -2, {g, dy, y});
                               }));
  add_grad_of_result<SqrtGrad>(ops, kernels, "SqrtGrad", "The gradient of Sqrt: dy / (2 conj(y)).",
                               second_order_of_conjugate("SqrtGrad", [](GradientContext& c, Output y, Output) {
                                 return c.op("Neg", {c.op("RealDiv", {c.output(0), y})});
                               }));
  add_grad_of_result<RsqrtGrad>(ops, kernels, "RsqrtGrad", "The gradient of Rsqrt: -dy * conj(y)^3 / 2.",
                                second_order_of_conjugate("RsqrtGrad", [](GradientContext& c, Output y, Output dy) {
                                  return product(c, -1.5, {dy, y, y});
                                }));
  for (const char* name : {"ReciprocalGrad", "InvGrad"})
    add_grad_of_result<ReciprocalGrad>(
        ops, kernels, name, "The gradient of Reciprocal: -dy * conj(y)^2.",
        second_order_of_conjugate("ReciprocalGrad", [](GradientContext& c, Output y, Output dy) {
          return product(c, -2, {dy, y});
        }));
}

}  // namespace

void register_activation_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const FloatTypes floats;
  const NumberTypes numbers;
  add_activation<Relu>(ops, kernels, "Relu", numbers, "max(features, 0).", of_output("ReluGrad"), kCheapGrain);
  add_activation<Relu6>(ops, kernels, "Relu6", numbers, "features limited to [0, 6].", of_output("Relu6Grad"),
                        kCheapGrain);
  add_activation<Elu>(ops, kernels, "Elu", floats, "features where positive, else exp(features) - 1.",
                      of_output("EluGrad"), kDearGrain);
  add_activation<Selu>(ops, kernels, "Selu", floats, "Scaled Elu (Klambauer et al., 2017).", of_output("SeluGrad"),
                       kDearGrain);
  add_activation<Softplus>(ops, kernels, "Softplus", floats, "log(1 + exp(features)).", of_input("SoftplusGrad"),
                           kDearGrain);
  add_activation<Softsign>(ops, kernels, "Softsign", floats, "features / (1 + |features|).", of_input("SoftsignGrad"),
                           kCheapGrain);
  add_activation<GeluApproximate>(ops, kernels, "_GeluApproximate", floats, "GELU by tanh. A pass makes it.",
                                  not_differentiable("passes make it, after gradients"), kDearGrain);
  add_activation<GeluExact>(ops, kernels, "_GeluExact", floats, "GELU by erf. A pass makes it.",
                            not_differentiable("passes make it, after gradients"), kDearGrain);
  ops.add(OpDef("LeakyRelu")
              .input("features: T")
              .output("activations: T")
              .attr("alpha: float = 0.2")
              .attr(type_attr("T", floats, "float32"))
              .shape(unchanged_shape)
              .doc("features where positive, else alpha * features."),
          of_input("LeakyReluGrad"));
  add_unary_kernels<LeakyRelu>(kernels, "LeakyRelu", floats, kCheapGrain, "alpha");
  const auto curve = [&]<class F>(F, const char* name, const char* doc, const char* grad) {
    const FloatOrComplexTypes types;
    ops.add(OpDef(name).input("x: T").output("y: T").attr(type_attr("T", types)).shape(unchanged_shape).doc(doc),
            output_first(grad));
    add_unary_kernels<F>(kernels, name, types, kDearGrain);
  };
  curve(Sigmoid{}, "Sigmoid", "1 / (1 + exp(-x)).", "SigmoidGrad");
  curve(Tanh{}, "Tanh", "The hyperbolic tangent.", "TanhGrad");
  add_grads(ops, kernels);
}

}  // namespace troupe
