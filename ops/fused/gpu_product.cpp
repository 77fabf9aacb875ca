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
  GpuFusedMatMul(const KernelInit& init, EpilogueForm form, bool keeps, GpuEpilogueLaunch launch)
      : ta_(init.attr<bool>("transpose_a")), tb_(init.attr<bool>("transpose_b")), form_(std::move(form)),
        launch_(launch), activation_(library_activation(form_.activation)), by_library_(activation_.has_value()),
        has_kept_(keeps), keeps_(keeps) {}

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
    Tensor kept;
    if (has_kept_) {
      const bool keeps = keeps_.load(std::memory_order_relaxed) && by_library_.load(std::memory_order_relaxed) &&
                         y.elements() > 0 && plan.k > 0;
      const size_t bytes = keeps ? gpu::Blas::kept_bytes(gpu::Activation::kRelu, a.dtype(), plan.m, plan.n) : size_t{0};
      TROUPE_ASSIGN(kept, c.allocate(DType::kUInt8, {static_cast<int64_t>(bytes)}));
    }
    if (y.elements() > 0) {
      if (kept.defined() && kept.bytes() > 0) declare_uses(c, {&y, &kept});
      else declare_uses(c, {&y});
      gpu::Product p{.dtype = a.dtype(), .m = plan.m, .n = plan.n, .k = plan.k, .ta = ta_, .tb = tb_};
      p.a = a.address();
      p.b = b.address();
      p.c = y.mutable_address();
      if (kept.defined() && kept.bytes() > 0) p.keep = kept.mutable_address();
      TROUPE_ASSIGN(const bool was_kept, multiply(gpu, p, bias, y));
      if (p.keep && !was_kept) {
        TROUPE_ASSIGN(kept, c.allocate(DType::kUInt8, {0}));
      }
    }
    if (has_kept_) c.set_output(1, std::move(kept));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// Whether the library kept what was to be kept.
  Result<bool> multiply(const gpu::Compute& gpu, const gpu::Product& product, const Tensor* bias, Tensor& y) {
    gpu::Product plain = product;
    plain.keep = nullptr;
    if (plain.k == 0) {
      TROUPE_RETURN_IF_ERROR(gpu.stream.fill(y.mutable_address(), 0, y.bytes()));
      TROUPE_RETURN_IF_ERROR(launch_(gpu, {.form = form_, .bias = bias}, y));
      return false;
    }
    if (by_library_.load(std::memory_order_relaxed)) {
      gpu::Product fused = product;
      fused.bias = bias ? bias->address() : nullptr;
      fused.activation = *activation_;
      // What it has none of, for these types or sizes, it is not asked for again.
      if (fused.keep) {
        TROUPE_ASSIGN(const bool done, has(gpu, fused));
        if (done) return true;
        keeps_.store(false, std::memory_order_relaxed);
        fused.keep = nullptr;
      }
      TROUPE_ASSIGN(const bool done, has(gpu, fused));
      if (done) return false;
      by_library_.store(false, std::memory_order_relaxed);
    }
    TROUPE_RETURN_IF_ERROR(gpu.blas->multiply(gpu, plain));
    TROUPE_RETURN_IF_ERROR(launch_(gpu, {.form = form_, .bias = bias}, y));
    return false;
  }
  /// Multiplies, if the library has that.
  static Result<bool> has(const gpu::Compute& gpu, const gpu::Product& product) {
    Status status = gpu.blas->multiply(gpu, product);
    if (status.ok()) return true;
    if (status.error().code == Code::kUnimplemented) return false;
    return std::move(status.error());
  }

  const bool ta_, tb_;
  const EpilogueForm form_;
  const GpuEpilogueLaunch launch_;
  const std::optional<gpu::Activation> activation_;  // of the library
  std::atomic<bool> by_library_;
  const bool has_kept_;  // an output for what the gradient needs
  std::atomic<bool> keeps_;
};

}  // namespace

void register_fused_product_gpu(KernelRegistry& kernels, const GpuEpilogueLaunches& launches) {
  kernels.add("_FusedMatMul", DeviceKind::kCuda, {{"T", FloatTypes::dtypes()}},
              [launch = launches.epilogue](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(EpilogueForm form, EpilogueForm::parse(init));
                TROUPE_ASSIGN(const bool keeps, keeps_relu(init, form.activation));
                return std::unique_ptr<ComputeKernel>(new GpuFusedMatMul(init, std::move(form), keeps, launch));
              });
}

}  // namespace troupe
