// SPDX-License-Identifier: Apache-2.0
// _FusedMatMulReluGrad, _FusedMatMulGeluGrad and _FusedMatMulBiasAddGrad on GPUs: by the matrix library where it has
// such, else its plain product with a pass for each of the rest. The library has a bit for each element that says where
// Relu is on. The mask that it makes in a forward product has 1 also where that is 0, where TensorFlow's gradient is 0;
// so it is made here.
#include <atomic>

#include "gpu/blas.h"
#include "ops/fused/register.h"
#include "ops/linear/product_plan.h"
#include "ops/parts/elementwise.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// What the library does itself, tried until it says that it has none of it for these types or sizes.
class TriedProduct {
 public:
  /// Whether it did.
  Result<bool> multiply(const gpu::Compute& gpu, const gpu::Product& product) {
    if (!has_.load(std::memory_order_relaxed)) return false;
    Status status = gpu.blas->multiply(gpu, product);
    if (status.ok()) return true;
    if (status.error().code != Code::kUnimplemented) return std::move(status.error());
    has_.store(false, std::memory_order_relaxed);
    return false;
  }

 private:
  std::atomic<bool> has_{true};
};

gpu::Product product_of(const KernelContext& c, const ProductPlan& plan, bool ta, bool tb, Tensor& y) {
  gpu::Product p{.dtype = y.dtype(), .m = plan.m, .n = plan.n, .k = plan.k, .ta = ta, .tb = tb};
  p.a = c.input(0).address();
  p.b = c.input(1).address();
  p.c = y.mutable_address();
  return p;
}

Status fill_zero(const gpu::Compute& gpu, Tensor& t) {
  return t.bytes() == 0 ? Status() : gpu.stream.fill(t.mutable_address(), 0, t.bytes());
}

/// `kGelu`: else of Relu.
template <bool kGelu> class GpuFusedMatMulActivationGrad final : public ComputeKernel {
 public:
  GpuFusedMatMulActivationGrad(const KernelInit& init, bool sums, const GpuEpilogueLaunches& launches)
      : ta_(init.attr<bool>("transpose_a")), tb_(init.attr<bool>("transpose_b")), sums_(sums), launches_(launches) {}

  Status compute(KernelContext& c) override {
    const gpu::Compute& gpu = *c.device().gpu;
    const Tensor& a = c.input(0);
    TROUPE_ASSIGN(const ProductPlan plan, plan_product(a.shape(), c.input(1).shape(),
                                                       {.batches = false, .broadcasts = true, .ta = ta_, .tb = tb_}));
    TROUPE_ASSIGN(const Tensor features, features_as_matrix(c.input(2), plan.out));
    TROUPE_ASSIGN(Tensor y, c.allocate(a.dtype(), plan.out));
    Tensor sums;
    if (sums_) {
      TROUPE_ASSIGN(sums, c.allocate(a.dtype(), {plan.n}));
    }
    declare_uses(c, {&y, sums_ ? &sums : &y});
    if (y.elements() == 0 || plan.k == 0) {
      TROUPE_RETURN_IF_ERROR(fill_zero(gpu, y));
      if (sums_) TROUPE_RETURN_IF_ERROR(fill_zero(gpu, sums));
    } else {
      TROUPE_RETURN_IF_ERROR(multiply(c, product_of(c, plan, ta_, tb_, y), features, y, sums));
    }
    if (sums_) c.set_output(1, std::move(sums));
    TROUPE_ASSIGN(y, y.reshape(c.input(2).shape()));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  Status multiply(KernelContext& c, const gpu::Product& plain, const Tensor& features, Tensor& y, Tensor& sums) {
    const gpu::Compute& gpu = *c.device().gpu;
    if (slopes_.load(std::memory_order_relaxed)) {
      gpu::Product fused = plain;
      Tensor mask;
      if constexpr (kGelu) {
        fused.gelu_of = features.address();
      } else {
        TROUPE_ASSIGN(mask, c.allocate(DType::kUInt8, {gpu::Blas::mask_bytes(plain.m, plain.n)}));
        declare_uses(c, {&y, &mask, sums_ ? &sums : &y});
        TROUPE_RETURN_IF_ERROR(launches_.relu_mask(gpu, features, mask));
        fused.mask = mask.address();
      }
      if (sums_) {
        gpu::Product both = fused;
        both.sums = gpu::SumsOf::kResult;
        both.sums_to = sums.mutable_address();
        TROUPE_ASSIGN(const bool done, with_sums_.multiply(gpu, both));
        if (done) return {};
      }
      TROUPE_ASSIGN(const bool done, with_slopes_.multiply(gpu, fused));
      if (done) return sums_ ? launches_.bias_gradient(c, y, sums) : Status();
      slopes_.store(false, std::memory_order_relaxed);
    }
    TROUPE_RETURN_IF_ERROR(gpu.blas->multiply(gpu, plain));
    TROUPE_RETURN_IF_ERROR((kGelu ? launches_.gelu_gradient : launches_.relu_gradient)(gpu, features, y));
    return sums_ ? launches_.bias_gradient(c, y, sums) : Status();
  }

  const bool ta_, tb_, sums_;
  const GpuEpilogueLaunches launches_;
  TriedProduct with_sums_, with_slopes_;
  std::atomic<bool> slopes_{true};  // whether the library has them
};

class GpuFusedMatMulBiasAddGrad final : public ComputeKernel {
 public:
  GpuFusedMatMulBiasAddGrad(const KernelInit& init, int summed, const GpuEpilogueLaunches& launches)
      : ta_(init.attr<bool>("transpose_a")), tb_(init.attr<bool>("transpose_b")), summed_(summed), launches_(launches) {
  }

  Status compute(KernelContext& c) override {
    const gpu::Compute& gpu = *c.device().gpu;
    const Tensor& a = c.input(0);
    TROUPE_ASSIGN(const ProductPlan plan, plan_product(a.shape(), c.input(1).shape(),
                                                       {.batches = false, .broadcasts = true, .ta = ta_, .tb = tb_}));
    TROUPE_ASSIGN(Tensor y, c.allocate(a.dtype(), plan.out));
    TROUPE_ASSIGN(Tensor sums, c.allocate(a.dtype(), {summed_ == 0 ? plan.m : plan.n}));
    declare_uses(c, {&y, &sums});
    if (plan.k == 0) {
      TROUPE_RETURN_IF_ERROR(fill_zero(gpu, y));
      TROUPE_RETURN_IF_ERROR(fill_zero(gpu, sums));
    } else {
      TROUPE_RETURN_IF_ERROR(multiply(c, plan, y, sums));
    }
    c.set_output(0, std::move(y));
    c.set_output(1, std::move(sums));
    return {};
  }

 private:
  Status multiply(KernelContext& c, const ProductPlan& plan, Tensor& y, Tensor& sums) {
    const gpu::Compute& gpu = *c.device().gpu;
    if (y.elements() > 0) {
      const gpu::Product plain = product_of(c, plan, ta_, tb_, y);
      gpu::Product fused = plain;
      fused.sums = summed_ == 0 ? gpu::SumsOf::kA : gpu::SumsOf::kB;
      fused.sums_to = sums.mutable_address();
      TROUPE_ASSIGN(const bool done, with_sums_.multiply(gpu, fused));
      if (done) return {};
      TROUPE_RETURN_IF_ERROR(gpu.blas->multiply(gpu, plain));
    }
    return sums.elements() > 0 ? launches_.bias_gradient(c, c.input(summed_), sums) : Status();
  }

  const bool ta_, tb_;
  const int summed_;
  const GpuEpilogueLaunches launches_;
  TriedProduct with_sums_;
};

}  // namespace

void register_product_gradient_gpu(KernelRegistry& kernels, const GpuEpilogueLaunches& launches) {
  const auto add = [&]<bool kGelu>(const char* name, std::bool_constant<kGelu>) {
    kernels.add(name, DeviceKind::kCuda, {{"T", FloatTypes::dtypes()}},
                [launches](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                  TROUPE_ASSIGN(const bool sums, sums_of_activation_gradient(init));
                  return std::unique_ptr<ComputeKernel>(new GpuFusedMatMulActivationGrad<kGelu>(init, sums, launches));
                });
  };
  add("_FusedMatMulReluGrad", std::false_type());
  add("_FusedMatMulGeluGrad", std::true_type());
  kernels.add("_FusedMatMulBiasAddGrad", DeviceKind::kCuda, {{"T", FloatTypes::dtypes()}},
              [launches](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(const int summed, summed_operand(init));
                return std::unique_ptr<ComputeKernel>(new GpuFusedMatMulBiasAddGrad(init, summed, launches));
              });
}

}  // namespace troupe
