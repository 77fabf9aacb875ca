// SPDX-License-Identifier: Apache-2.0
// _FusedMatMul, _FusedConv2D, _FusedDepthwiseConv2dNative: a product, a bias and an activation in one node, and the sum
// of a residual block after a convolution.
//
// Convolutions leave all that to oneDNN, and so do matrix products by a constant (kept_product.h). Other products do it
// by the ops' own kernels on the result, which is in the cache by then: measured on AVX-512 with one thread, oneDNN's
// product with bias and activation is up to twice as slow as its plain one unless it may reorder the weights.
#include "ops/fused/kept_product.h"
#include "ops/fused/part_kernels.h"
#include "ops/fused/register.h"
#include "ops/nn/conv_kernel.h"
#include "ops/nn/epilogue.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

class FusedMatMul final : public ComputeKernel {
 public:
  FusedMatMul(std::shared_ptr<ComputeKernel> product, Epilogue epilogue, std::unique_ptr<KeptProduct> kept)
      : product_(std::move(product)), epilogue_(std::move(epilogue)), kept_(std::move(kept)) {}

  Status compute(KernelContext& c) override {
    if (kept_) {
      TROUPE_ASSIGN(Tensor y, kept_->compute(c));
      if (y.defined()) {
        c.set_output(0, std::move(y));
        return {};
      }
    }
    TROUPE_ASSIGN(Tensor y, run_part(*product_, c, {c.input(0), c.input(1)}, false));
    TROUPE_RETURN_IF_ERROR(epilogue_.apply(c, y));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const std::shared_ptr<ComputeKernel> product_;
  const Epilogue epilogue_;
  const std::unique_ptr<KeptProduct> kept_;
};

OpDef with_epilogue(OpDef op) {
  op.attr("num_args: int >= 0").attr("fused_ops: list(string)").attr(type_attr("T", FloatTypes{}));
  return op;
}

OpDef with_fused_window(OpDef op) {
  op.attr("strides: list(int)")
      .attr("use_cudnn_on_gpu: bool = true")
      .attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .attr("explicit_paddings: list(int) = []")
      .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .attr("dilations: list(int) = [1, 1, 1, 1]");
  return op;
}

}  // namespace

void register_fused_product_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto epilogues = std::make_shared<const EpilogueKernels>(kernels);
  const auto add = [&](OpDef op, const std::string& plain, const KernelFactory& factory) {
    const std::string name = op.name();
    ops.add(with_epilogue(std::move(op))
                .shape(ops.find(plain)->shape_fn())
                .cost(ops.find(plain)->cost_fn())
                .doc("The result of " + plain +
                     ", then of fused_ops: BiasAdd of the first of args or nothing, on CPUs Add of the next of args or "
                     "nothing, and one of Relu, Relu6, Elu, Tanh, Sigmoid, Swish (x times its Sigmoid), "
                     "GeluApproximate (by tanh) and GeluExact (by erf) or nothing. A pass makes it. Relu and Relu6 of "
                     "a NaN after a convolution or a product by a constant, and Relu of one after a product on a GPU, "
                     "may be 0."),
            not_differentiable("passes make it, after gradients"));
    kernels.add(name, DeviceKind::kCpu, {{"T", FullFloatTypes::dtypes()}}, factory);
  };
  OpDef product("_FusedMatMul");
  product.input("a: T").input("b: T").input("args: num_args * T").output("product: T");
  product.attr("transpose_a: bool = false").attr("transpose_b: bool = false");
  product.attr("grad_a: bool = false").attr("grad_b: bool = false");
  add(std::move(product), "MatMul",
      [epilogues, parts = std::make_shared<const PartKernels>(kernels)](
          const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
        TROUPE_ASSIGN(Epilogue epilogue, Epilogue::make(init, *epilogues, true));
        auto kept = KeptProduct::make(init, epilogue);
        auto kernel =
            parts->product(init.attr<DType>("T"), init.attr<bool>("transpose_a"), init.attr<bool>("transpose_b"));
        return std::unique_ptr<ComputeKernel>(new FusedMatMul(std::move(kernel), std::move(epilogue), std::move(kept)));
      });
  for (const bool depthwise : {false, true}) {
    const std::string plain = depthwise ? "DepthwiseConv2dNative" : "Conv2D";
    OpDef conv("_Fused" + plain);
    conv.input("input: T").input("filter: T").input("args: num_args * T").output("output: T");
    add(with_fused_window(std::move(conv)), plain,
        [epilogues, depthwise](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
          TROUPE_ASSIGN(Epilogue epilogue, Epilogue::make(init, *epilogues, true));
          return make_conv_kernel(init, ConvDirection::kOutput, depthwise, std::move(epilogue));
        });
  }
}

}  // namespace troupe
