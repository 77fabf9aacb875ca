// SPDX-License-Identifier: Apache-2.0
// _FusedMatMulReluGrad, _FusedMatMulBiasAddGrad: products of a backward pass with the gradients next to them. Passes
// make them for GPUs; here are their schemas, and the kernels of CPUs, which run their parts one after the other.
#include "ops/fused/part_kernels.h"
#include "ops/fused/register.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

struct GradientForm {
  explicit GradientForm(const KernelInit& init, const PartKernels& parts)
      : product(parts.product(init.attr<DType>("T"), init.attr<bool>("transpose_a"), init.attr<bool>("transpose_b"))),
        relu(parts.find("ReluGrad", init.attr<DType>("T"))), sums(parts.find("BiasAddGrad", init.attr<DType>("T"))) {}
  const std::shared_ptr<ComputeKernel> product, relu, sums;
};

class FusedMatMulReluGrad final : public ComputeKernel {
 public:
  FusedMatMulReluGrad(GradientForm form, bool sums) : form_(std::move(form)), sums_(sums) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, run_part(*form_.product, c, {c.input(0), c.input(1)}, false));
    TROUPE_ASSIGN(y, run_part(*form_.relu, c, {std::move(y), c.input(2)}, true));
    if (sums_) {
      TROUPE_ASSIGN(Tensor sums, run_part(*form_.sums, c, {y}, false));
      c.set_output(1, std::move(sums));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const GradientForm form_;
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

void add_relu_gradient(OpRegistry& ops, KernelRegistry& kernels, const std::shared_ptr<const PartKernels>& parts) {
  OpDef op = gradient_of_product("_FusedMatMulReluGrad");
  op.input("features: T").output("backprops: T").output("sums: num_sums * T");
  op.attr("num_sums: int >= 0");
  ops.add(op.shape([](ShapeContext& c) -> Status {
              PartialShape y;
              TROUPE_RETURN_IF_ERROR(gradient_product_shape(c, y));
              TROUPE_ASSIGN(y, PartialShape::merge(y, c.input(2)));
              if (c.num_outputs() > 1) c.set_output(1, {y[1]});
              c.set_output(0, std::move(y));
              return {};
            })
              .cost(ops.find("MatMul")->cost_fn())
              .doc("ReluGrad(MatMul(a, b), features), and with num_sums 1 the BiasAddGrad of that. A pass makes it. "
                   "On a GPU, an infinite gradient where features is not above 0 may give 0."),
          not_differentiable("passes make it, after gradients"));
  kernels.add("_FusedMatMulReluGrad", DeviceKind::kCpu, {{"T", FullFloatTypes::dtypes()}},
              [parts](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(const bool sums, sums_of_relu_gradient(init));
                return std::unique_ptr<ComputeKernel>(new FusedMatMulReluGrad(GradientForm(init, *parts), sums));
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

Result<bool> sums_of_relu_gradient(const KernelInit& init) {
  const auto sums = init.attr<int64_t>("num_sums");
  if (sums > 1) return invalid_argument("num_sums must be 0 or 1, got {}", sums);
  return sums == 1;
}

Result<int> summed_operand(const KernelInit& init) {
  const int i = init.attr<std::string>("summed") == "a" ? 0 : 1;
  if (init.attr<bool>(i == 0 ? "transpose_a" : "transpose_b") != (i == 0))
    return invalid_argument("summed may be 'a' with transpose_a or 'b' without transpose_b");
  return i;
}

void register_product_gradient_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto parts = std::make_shared<const PartKernels>(kernels);
  add_relu_gradient(ops, kernels, parts);
  add_bias_gradient(ops, kernels, parts);
}

}  // namespace troupe
