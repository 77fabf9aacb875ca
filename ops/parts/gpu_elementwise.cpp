// SPDX-License-Identifier: Apache-2.0
// Broadcasting and buffer reuse around element-wise kernels of GPUs.
#include "ops/parts/gpu_elementwise.h"

#include "ops/parts/elementwise.h"

namespace troupe {

std::vector<DType> gpu_dtypes() {
  std::vector<DType> all = NumberOrComplexTypes::dtypes();
  all.push_back(DType::kBool);
  return all;
}

std::vector<DType> gpu_numbers() {
  return {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32, DType::kInt64};
}

void declare_uses(const KernelContext& c, std::initializer_list<const Tensor*> written) {
  declare_uses(c, std::span(written.begin(), written.size()));
}

void declare_uses(const KernelContext& c, std::span<const Tensor* const> written) {
  std::vector<gpu::Access> accesses;
  for (int i = 0; i < c.num_inputs(); ++i)
    if (const Tensor& x = c.input(i); x.space() == Space::kGpu) accesses.push_back({x.address(), x.bytes(), false});
  for (const Tensor* y : written) accesses.push_back({y->address(), y->bytes(), true});
  c.device().gpu->stream.uses(accesses);
}

Reads reads_of(const Tensor& input, int64_t n) {
  return input.elements() == n ? Reads::kDense : input.elements() == 1 ? Reads::kOne : Reads::kStrided;
}

Status GpuUnaryKernel::compute(KernelContext& c) {
  const Tensor& x = c.input(0);
  TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, out_, x.shape()));
  if (y.elements() > 0) {
    declare_uses(c, {&y});
    TROUPE_RETURN_IF_ERROR(launch_({*c.device().gpu, y.mutable_address(), x.address(), y.elements(), parameter_}));
  }
  c.set_output(0, std::move(y));
  return {};
}

Status GpuBinaryKernel::compute(KernelContext& c) {
  const Tensor &a = c.input(0), &b = c.input(1);
  if (!broadcasts_) TROUPE_RETURN_IF_ERROR(same_shapes(a.shape(), b.shape()));
  TROUPE_ASSIGN(const Broadcast plan, plan_broadcast(a.shape(), b.shape()));
  const int reuse = a.shape() == plan.shape && (a.unique() || b.shape() != plan.shape) ? 0 : 1;
  TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(reuse, out_, plan.shape));
  if (const int64_t n = y.elements(); n > 0) {
    declare_uses(c, {&y});
    TROUPE_RETURN_IF_ERROR(launch_({*c.device().gpu, y.mutable_address(), a.address(), b.address(), n, reads_of(a, n),
                                    reads_of(b, n), plan, parameter_}));
  }
  c.set_output(0, std::move(y));
  return {};
}

namespace {

double float_attr(const KernelInit& init, const std::string& name) {
  return name.empty() ? 0.0 : init.attr<float>(name);
}

}  // namespace

void add_gpu_unary(KernelRegistry& kernels, std::string_view op, DType in, DType out, GpuUnaryLaunch launch,
                   std::string_view parameter) {
  kernels.add(
      op, DeviceKind::kCuda, "T", in,
      [=, parameter = std::string(parameter)](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
        return std::unique_ptr<ComputeKernel>(new GpuUnaryKernel(launch, out, float_attr(init, parameter)));
      });
}

void add_gpu_binary(KernelRegistry& kernels, std::string_view op, DType in, DType out, GpuBinaryLaunch launch,
                    bool broadcasts, std::string_view parameter) {
  kernels.add(
      op, DeviceKind::kCuda, "T", in,
      [=, parameter = std::string(parameter)](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
        return std::unique_ptr<ComputeKernel>(
            new GpuBinaryKernel(launch, out, broadcasts, float_attr(init, parameter)));
      });
}

}  // namespace troupe
