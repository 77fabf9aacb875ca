// SPDX-License-Identifier: Apache-2.0
// Matrix products on GPUs: MatMul and BatchMatMul, by the device's matrix library. Nothing here is launched by itself,
// so that this serves CUDA and its fake as it is.
#include "gpu/blas.h"
#include "ops/linear/product_plan.h"
#include "ops/linear/register.h"
#include "ops/parts/broadcast.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

class GpuMatMul final : public ComputeKernel {
 public:
  explicit GpuMatMul(const KernelInit& init) : form_(product_form(init)) {}
  Status compute(KernelContext& c) override {
    const Tensor &a = c.input(0), &b = c.input(1);
    TROUPE_ASSIGN(const ProductPlan plan, plan_product(a.shape(), b.shape(), form_));
    TROUPE_ASSIGN(Tensor y, c.allocate(a.dtype(), plan.out));
    if (y.elements() > 0) {
      declare_uses(c, {&y});
      TROUPE_RETURN_IF_ERROR(plan.k == 0 ? c.device().gpu->stream.fill(y.mutable_address(), 0, y.bytes())
                                         : multiply(c, a, b, y, plan));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  Status multiply(KernelContext& c, const Tensor& a, const Tensor& b, Tensor& y, const ProductPlan& plan) const {
    const gpu::Compute& gpu = *c.device().gpu;
    gpu::Product p{.dtype = a.dtype(), .m = plan.m, .n = plan.n, .k = plan.k, .ta = form_.ta, .tb = form_.tb};
    p.a = a.address();
    p.b = b.address();
    p.c = y.mutable_address();
    if (!form_.ta && plan.b_batch.elements() == 1) {
      // Matrices by one and the same: one product of all their rows.
      p.m *= plan.batch.elements();
      return gpu.blas->multiply(gpu, p);
    }
    // As many products at once as have the same step between their matrices.
    TROUPE_ASSIGN(const Broadcast batch, plan_broadcast(plan.a_batch, plan.b_batch));
    const int64_t of_a = plan.m * plan.k, of_b = plan.k * plan.n, of_y = plan.m * plan.n;
    const auto size = static_cast<int64_t>(size_of(a.dtype()));
    const auto at = [&](const void* from, int64_t elements) {
      return const_cast<char*>(static_cast<const char*>(from)) + elements * size;
    };
    p.a_step = batch.stride[0][batch.rank - 1] * of_a;
    p.b_step = batch.stride[1][batch.rank - 1] * of_b;
    Status status;
    for_each_run(batch, 1, 1, [&](int64_t first, const std::array<int64_t, 3>& in, int64_t n) {
      if (!status.ok()) return;
      p.a = at(a.address(), in[0] * of_a);
      p.b = at(b.address(), in[1] * of_b);
      p.c = at(y.mutable_address(), first * of_y);
      p.batch = n;
      status = gpu.blas->multiply(gpu, p);
    });
    return status;
  }

  const ProductForm form_;
};

}  // namespace

void register_matmul_gpu(KernelRegistry& kernels) {
  for (const char* op : {"MatMul", "BatchMatMul", "BatchMatMulV2"})
    kernels.add<GpuMatMul>(op, DeviceKind::kCuda, {{"T", FloatTypes::dtypes()}});
  for (DType dtype : FloatTypes::dtypes())
    kernels.add<GpuMatMul>("BatchMatMulV3", DeviceKind::kCuda, {{"Ta", {dtype}}, {"Tb", {dtype}}, {"Tout", {dtype}}});
}

}  // namespace troupe
