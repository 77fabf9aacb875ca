// SPDX-License-Identifier: Apache-2.0
// _FusedMatMulReluGrad, _FusedMatMulGeluGrad, _FusedMatMulBiasAddGrad: products of a backward pass with the gradients
// next to them. Passes make them for GPUs; here are their schemas, and the kernels of CPUs, which run their parts one
// after the other.
#include "ops/fused/part_kernels.h"
#include "ops/fused/register.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

struct GradientForm {
  explicit GradientForm(const KernelInit& init, const PartKernels& parts)
      : product(parts.product(init.attr<DType>("T"), init.attr<bool>("transpose_a"), init.attr<bool>("transpose_b"))),
        sums(parts.find("BiasAddGrad", init.attr<DType>("T"))) {}
  const std::shared_ptr<ComputeKernel> product, sums;
};

class FusedMatMulActivationGrad final : public ComputeKernel {
 public:
  FusedMatMulActivationGrad(GradientForm form, std::shared_ptr<ComputeKernel> gradient, bool sums)
      : form_(std::move(form)), gradient_(std::move(gradient)), sums_(sums) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, run_part(*form_.product, c, {c.input(0), c.input(1)}, false));
    TROUPE_ASSIGN(Tensor features, features_as_matrix(c.input(2), y.shape()));
    TROUPE_ASSIGN(y, run_part(*gradient_, c, {std::move(y), std::move(features)}, true));
    if (sums_) {
      TROUPE_ASSIGN(Tensor sums, run_part(*form_.sums, c, {y}, false));
      c.set_output(1, std::move(sums));
    }
    TROUPE_ASSIGN(y, y.reshape(c.input(2).shape()));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const GradientForm form_;
  const std::shared_ptr<ComputeKernel> gradient_;
  const bool sums_;
};

class FusedMatMulBiasAddGrad final : public ComputeKernel {
 public:
  FusedMatMulBiasAddGrad(GradientForm form, int summed) : form_(std::move(form)), summed_(summed) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, run_part(*form_.product, c, {c.input(0), c.input(1)}, false));
    TROUPE_ASSIGN(Tensor sums, run_part(*form_.sums, c, {c.input(summed_)}, false));
    c.set_output(0, std::move(y));
    c.set_output(1, std::move(sums));
    return {};
  }

 private:
  const GradientForm form_;
  const int summed_;
};

/// [m,n] of operands that may be unknown.
Status gradient_product_shape(ShapeContext& c, PartialShape& out) {
  TROUPE_ASSIGN(const PartialShape a, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape b, c.with_rank(1, 2));
  const int ta = c.attr<bool>("transpose_a"), tb = c.attr<bool>("transpose_b");
  if (a[1 - ta] >= 0 && b[tb] >= 0 && a[1 - ta] != b[tb])
    return invalid_argument("inner sizes differ: {} x {}", a.str(), b.str());
  out = PartialShape({a[ta], b[1 - tb]});
  return {};
}

OpDef gradient_of_product(const char* name) {
  OpDef op(name);
  op.input("a: T").input("b: T");
  op.attr("transpose_a: bool = false").attr("transpose_b: bool = false").attr(type_attr("T", FloatTypes{}));
  return op;
}

/// features has as many elements as the product, of any shape, which is that of the first output too.
Status activation_gradient_shape(ShapeContext& c) {
  PartialShape y;
  TROUPE_RETURN_IF_ERROR(gradient_product_shape(c, y));
  const PartialShape features = c.input(2);
  if (features.fully_known() && y.fully_known() && features.shape().elements() != y.shape().elements())
    return invalid_argument("features {} has not as many elements as the product, {}", features.str(), y.str());
  if (c.num_outputs() > 1) c.set_output(1, {y[1]});
  c.set_output(0, features);
  return {};
}

/// `gradient`: the op of the activation's gradient.
void add_activation_gradient(OpRegistry& ops, KernelRegistry& kernels, const std::shared_ptr<const PartKernels>& parts,
                             const char* name, const char* gradient, const char* doc) {
  OpDef op = gradient_of_product(name);
  op.input("features: T").output("backprops: T").output("sums: num_sums * T");
  op.attr("num_sums: int >= 0");
  op.shape(activation_gradient_shape).cost(ops.find("MatMul")->cost_fn());
  ops.add(op.doc(fmt::format("{}(MatMul(a, b), features), and with num_sums 1 the BiasAddGrad of that. features may be "
                             "that matrix reshaped, which backprops is then too. A pass makes it. {}",
                             gradient, doc)),
          not_differentiable("passes make it, after gradients"));
  kernels.add(name, DeviceKind::kCpu, {{"T", FullFloatTypes::dtypes()}},
              [parts, gradient](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(const bool sums, sums_of_activation_gradient(init));
                return std::unique_ptr<ComputeKernel>(new FusedMatMulActivationGrad(
                    GradientForm(init, *parts), parts->find(gradient, init.attr<DType>("T")), sums));
              });
}

void add_bias_gradient(OpRegistry& ops, KernelRegistry& kernels, const std::shared_ptr<const PartKernels>& parts) {
  OpDef op = gradient_of_product("_FusedMatMulBiasAddGrad");
  op.output("product: T").output("sums: T").attr("summed: {'a', 'b'}");
  ops.add(op.shape([](ShapeContext& c) -> Status {
              PartialShape y;
              TROUPE_RETURN_IF_ERROR(gradient_product_shape(c, y));
              c.set_output(1, {c.attr<std::string>("summed") == "a" ? y[0] : y[1]});
              c.set_output(0, std::move(y));
              return {};
            })
              .cost(ops.find("MatMul")->cost_fn())
              .doc("MatMul(a, b), and the BiasAddGrad of that operand whose rows the product sums over: of a, which is "
                   "transposed, or of b, which is not. A pass makes it."),
          not_differentiable("passes make it, after gradients"));
  kernels.add("_FusedMatMulBiasAddGrad", DeviceKind::kCpu, {{"T", FullFloatTypes::dtypes()}},
              [parts](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(const int summed, summed_operand(init));
                return std::unique_ptr<ComputeKernel>(new FusedMatMulBiasAddGrad(GradientForm(init, *parts), summed));
              });
}

}  // namespace

Result<bool> sums_of_activation_gradient(const KernelInit& init) {
  const auto sums = init.attr<int64_t>("num_sums");
  if (sums > 1) return invalid_argument("num_sums must be 0 or 1, got {}", sums);
  return sums == 1;
}

Result<Tensor> features_as_matrix(const Tensor& features, const Shape& product) {
  if (features.elements() != product.elements())
    return invalid_argument("features {} has not as many elements as the product, {}", features.shape().str(),
                            product.str());
  return features.reshape(product);
}

Result<int> summed_operand(const KernelInit& init) {
  const int i = init.attr<std::string>("summed") == "a" ? 0 : 1;
  if (init.attr<bool>(i == 0 ? "transpose_a" : "transpose_b") != (i == 0))
    return invalid_argument("summed may be 'a' with transpose_a or 'b' without transpose_b");
  return i;
}

void register_product_gradient_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto parts = std::make_shared<const PartKernels>(kernels);
  add_activation_gradient(ops, kernels, parts, "_FusedMatMulReluGrad", "ReluGrad",
                          "On a GPU, an infinite gradient where features is not above 0 may give 0.");
  add_activation_gradient(ops, kernels, parts, "_FusedMatMulGeluGrad", "_GeluApproximateGrad", "");
  add_bias_gradient(ops, kernels, parts);
}

}  // namespace troupe
