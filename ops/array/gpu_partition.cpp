// SPDX-License-Identifier: Apache-2.0
// DynamicPartition, DynamicStitch and ParallelDynamicStitch on GPUs. How large results are depends on which row goes
// where, so that is read at the host, and rows are gathered and scattered by lists that the host makes of it. Nothing
// here is launched by itself, so that this serves CUDA and its fake.
#include <numeric>

#include "devices/host_arguments.h"
#include "ops/array/gather.h"
#include "ops/array/partition.h"
#include "ops/array/register.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/scatter.h"

namespace troupe {
namespace {

class GpuDynamicPartition final : public ComputeKernel {
 public:
  explicit GpuDynamicPartition(LaunchGather launch) : launch_(launch) {}

  Status compute(KernelContext& c) override {
    const gpu::Compute& gpu = *c.device().gpu;
    const Tensor &x = c.input(0), &partitions = c.input(1);
    const auto to = partitions.values<int32_t>();
    TROUPE_RETURN_IF_ERROR(check_indices(to, c.num_outputs()));
    std::vector<int64_t> first(static_cast<size_t>(c.num_outputs()) + 1);  // in `order`, of each part
    for (const int32_t p : to) ++first[static_cast<size_t>(p) + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<Tensor> parts;
    std::vector<const Tensor*> written;
    for (size_t p = 0; p + 1 < first.size(); ++p) {
      TROUPE_ASSIGN(const PartialShape shape,
                    slices_shape(x.shape(), partitions.shape(), first[p + 1] - first[p], "partitions"));
      TROUPE_ASSIGN(parts.emplace_back(), c.allocate(x.dtype(), shape.shape()));
    }
    for (const Tensor& part : parts) written.push_back(&part);
    if (x.elements() > 0) {
      const auto rows = static_cast<int64_t>(to.size());
      TROUPE_ASSIGN(Tensor order, Tensor::make(DType::kInt64, {rows}));  // the rows of all parts, one after the other
      std::vector<int64_t> next(first.begin(), first.end() - 1);
      for (int64_t row = 0; row < rows; ++row) order.mutable_data<int64_t>()[next[to[row]]++] = row;
      TROUPE_ASSIGN(order, gpu.upload(order));
      written.push_back(&order);
      declare_uses(c, written);
      for (size_t p = 0; p < parts.size(); ++p) {
        TROUPE_ASSIGN(const Tensor rows_of_part, order.slice(first[p], first[p + 1]));
        const GatherPlan plan{.shape = parts[p].shape(),
                              .count = first[p + 1] - first[p],
                              .inner = x.elements() / rows,
                              .bounds = {rows}};
        TROUPE_RETURN_IF_ERROR(launch_({gpu, plan, parts[p], x, rows_of_part}));
      }
    }
    for (size_t p = 0; p < parts.size(); ++p) c.set_output(static_cast<int>(p), std::move(parts[p]));
    return {};
  }

 private:
  const LaunchGather launch_;
};

class GpuDynamicStitch final : public ComputeKernel {
 public:
  explicit GpuDynamicStitch(LaunchScatter launch) : launch_(launch) {}

  Status compute(KernelContext& c) override {
    const gpu::Compute& gpu = *c.device().gpu;
    const int n = c.num_inputs() / 2;
    TROUPE_ASSIGN(const Shape shape, stitched_shape(c));
    TROUPE_ASSIGN(Tensor y, c.allocate(c.input(n).dtype(), shape));
    if (y.elements() > 0) {
      declare_uses(c, {&y});
      TROUPE_RETURN_IF_ERROR(gpu.stream.fill(y.mutable_address(), 0, y.bytes()));  // of rows nobody gives
      const int64_t bounds[] = {shape[0]};
      for (int i = 0; i < n; ++i) {
        const int64_t count = c.input(i).elements();
        if (count == 0) continue;
        TROUPE_ASSIGN(const Tensor rows, gpu.upload(c.input(i)));
        TROUPE_RETURN_IF_ERROR(
            launch_({gpu, ScatterHow::kUpdate, y, rows, c.input(n + i), bounds, count, y.elements() / shape[0]}));
      }
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const LaunchScatter launch_;
};

}  // namespace

void register_partition_gpu(KernelRegistry& kernels, LaunchGather gather, Status (*scatter)(const GpuScatter&)) {
  const KernelRegistry::Types types = {{"T", gpu_dtypes()}};
  kernels.add("DynamicPartition", DeviceKind::kCuda, types,
              [gather](const KernelInit&) { return Result(std::make_unique<GpuDynamicPartition>(gather)); }, {{1}, {}});
  for (const char* op : {"DynamicStitch", "ParallelDynamicStitch"})
    kernels.add(op, DeviceKind::kCuda, types,
                [scatter](const KernelInit&) { return Result(std::make_unique<GpuDynamicStitch>(scatter)); },
                {{kFirstHalf}, {}});
}

}  // namespace troupe
