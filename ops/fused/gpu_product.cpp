// SPDX-License-Identifier: Apache-2.0
// _FusedMatMul on GPUs. The matrix library does a bias, Relu and GELU by tanh with its product where it has such;
// another activation follows in one pass, with the bias. Nothing here is launched by itself, so that this serves CUDA
// and its fake.
#include <atomic>
#include <optional>

#include "gpu/blas.h"
#include "ops/fused/register.h"
#include "ops/linear/product_plan.h"
#include "ops/nn/bias.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// nullopt: the library has it not.
std::optional<gpu::Activation> library_activation(const std::string& name) {
  if (name.empty()) return gpu::Activation::kNone;
  if (name == "Relu") return gpu::Activation::kRelu;
  if (name == "GeluApproximate") return gpu::Activation::kGelu;
  return {};
}

class GpuFusedMatMul final : public ComputeKernel {
 public:
  GpuFusedMatMul(const KernelInit& init, EpilogueForm form, GpuEpilogueLaunch launch)
      : ta_(init.attr<bool>("transpose_a")), tb_(init.attr<bool>("transpose_b")), form_(std::move(form)),
        launch_(launch), activation_(library_activation(form_.activation)), by_library_(activation_.has_value()) {}

  Status compute(KernelContext& c) override {
    const gpu::Compute& gpu = *c.device().gpu;
    const Tensor &a = c.input(0), &b = c.input(1);
    const Tensor* const bias = form_.bias ? &c.input(2) : nullptr;
    TROUPE_ASSIGN(const ProductPlan plan,
                  plan_product(a.shape(), b.shape(), {.batches = false, .broadcasts = true, .ta = ta_, .tb = tb_}));
    TROUPE_ASSIGN(Tensor y, c.allocate(a.dtype(), plan.out));
    if (bias) {
      TROUPE_ASSIGN(const BiasView view, bias_view(y.shape(), false));
      TROUPE_RETURN_IF_ERROR(check_bias(bias->shape(), view, y.shape()));
    }
    if (y.elements() > 0) {
      declare_uses(c, {&y});
      gpu::Product p{.dtype = a.dtype(), .m = plan.m, .n = plan.n, .k = plan.k, .ta = ta_, .tb = tb_};
      p.a = a.address();
      p.b = b.address();
      p.c = y.mutable_address();
      TROUPE_RETURN_IF_ERROR(multiply(gpu, p, bias, y));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  Status multiply(const gpu::Compute& gpu, const gpu::Product& plain, const Tensor* bias, Tensor& y) {
    if (plain.k > 0 && by_library_.load(std::memory_order_relaxed)) {
      gpu::Product fused = plain;
      fused.bias = bias ? bias->address() : nullptr;
      fused.activation = *activation_;
      Status status = gpu.blas->multiply(gpu, fused);
      if (status.ok() || status.error().code != Code::kUnimplemented) return status;
      by_library_.store(false, std::memory_order_relaxed);  // for these types or sizes: it is not asked again
    }
    TROUPE_RETURN_IF_ERROR(plain.k > 0 ? gpu.blas->multiply(gpu, plain)
                                       : gpu.stream.fill(y.mutable_address(), 0, y.bytes()));
    return launch_(gpu, {.form = form_, .bias = bias}, y);
  }

  const bool ta_, tb_;
  const EpilogueForm form_;
  const GpuEpilogueLaunch launch_;
  const std::optional<gpu::Activation> activation_;  // of the library
  std::atomic<bool> by_library_;
};

}  // namespace

void register_fused_product_gpu(KernelRegistry& kernels, const GpuEpilogueLaunches& launches) {
  kernels.add("_FusedMatMul", DeviceKind::kCuda, {{"T", FloatTypes::dtypes()}},
              [launch = launches.epilogue](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(EpilogueForm form, EpilogueForm::parse(init, true));
                if (form.image)
                  return make_error(Code::kUnimplemented, "fused_ops with an Add are for CPUs; put the sum behind");
                return std::unique_ptr<ComputeKernel>(new GpuFusedMatMul(init, std::move(form), launch));
              });
}

}  // namespace troupe
