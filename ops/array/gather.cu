// SPDX-License-Identifier: Apache-2.0
// Gather, GatherV2 and GatherNd on GPUs: a thread for each piece of a slice. An index that is out of range, which is an
// error on CPUs, reads zeros.
#include "ops/array/gather.h"

#include "ops/array/register.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/gpu_index.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/pieces.cuh"
#include "ops/parts/type_dispatch.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

constexpr int kGatherThreads = 256;

/// A GatherPlan for kernels.
struct GpuGatherSizes {
  GpuSizes sizes;      // batches, outer, count, inner in pieces
  int64_t slices = 1;  // the bounds, multiplied
  int depth = 0;
  int64_t bounds[kMaxRank] = {};
};

template <class S, class I>
__global__ void gather_slices(S* out, const S* x, const I* indices, int64_t n,
                              const __grid_constant__ GpuGatherSizes plan) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    int64_t batch = i;
    const int64_t piece = plan.sizes.pop(3, batch), number = plan.sizes.pop(2, batch), outer = plan.sizes.pop(1, batch);
    const I* const row = indices + (batch * plan.sizes.size[2] + number) * plan.depth;
    int64_t slice = 0;
    bool there = true;
    for (int d = 0; d < plan.depth && there; ++d) {
      const int64_t index = row[d];
      there = index >= 0 && index < plan.bounds[d];
      if (there) slice = slice * plan.bounds[d] + index;
    }
    slice += (batch * plan.sizes.size[1] + outer) * plan.slices;
    out[i] = there ? x[slice * plan.sizes.size[3] + piece] : S{};
  }
}

}  // namespace

Status launch_gather(const GpuGather& g) {
  if (g.y.elements() == 0) return {};
  const auto size = static_cast<int64_t>(size_of(g.x.dtype()));
  Piece piece;
  piece.take(g.y.mutable_address());
  piece.take(g.x.address());
  piece.take(g.plan.inner * size);
  const int64_t sizes[] = {g.plan.batches, g.plan.outer, g.plan.count, g.plan.inner * size / piece.bytes()};
  GpuGatherSizes plan{GpuSizes(sizes, 4)};
  plan.depth = static_cast<int>(g.plan.bounds.size());
  for (int d = 0; d < plan.depth; ++d) {
    plan.bounds[d] = g.plan.bounds[static_cast<size_t>(d)];
    plan.slices *= plan.bounds[d];
  }
  const int64_t n = g.y.elements() * size / piece.bytes();
  return with_piece(piece.bytes(), [&]<class S>() {
    Status status;
    with_type(g.indices.dtype(), TypeList<int32_t, int64_t, int16_t>{}, [&]<class I>() {
      status = TROUPE_LAUNCH(g.gpu.stream, (gather_slices<S, I>), gpu::blocks_for(g.gpu.card, n, kGatherThreads),
                             kGatherThreads, 0, static_cast<S*>(g.y.mutable_address()),
                             static_cast<const S*>(g.x.address()), static_cast<const I*>(g.indices.address()), n, plan);
    });
    return status;
  });
}

namespace {

class GpuGatherKernel final : public ComputeKernel {
 public:
  explicit GpuGatherKernel(const KernelInit& init)
      : nd_(init.op == "GatherNd"), batch_dims_(init.attrs->get_or<int64_t>("batch_dims", 0)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &indices = c.input(1);
    GatherPlan plan;
    if (nd_) {
      TROUPE_ASSIGN(plan, plan_gather_nd(x.shape(), indices.shape()));
    } else {
      TROUPE_ASSIGN(const int axis, c.num_inputs() == 3 ? axis_from(c.input(2), x.rank()) : axis_from(0, x.rank()));
      TROUPE_ASSIGN(plan, plan_gather(x.shape(), indices.shape(), axis, batch_dims_));
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), plan.shape));
    declare_uses(c, {&y});
    TROUPE_RETURN_IF_ERROR(launch_gather({*c.device().gpu, plan, y, x, indices}));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool nd_;
  const int64_t batch_dims_;
};

}  // namespace

void register_gather_gpu(KernelRegistry& kernels) {
  const std::vector<DType> indices = {DType::kInt32, DType::kInt64, DType::kInt16};
  const KernelRegistry::Types types = {{"Tparams", gpu_dtypes()}, {"Tindices", indices}};
  kernels.add<GpuGatherKernel>("Gather", DeviceKind::kCuda, types);
  kernels.add<GpuGatherKernel>("GatherV2", DeviceKind::kCuda, types, {{2}, {}});
  kernels.add<GpuGatherKernel>("GatherNd", DeviceKind::kCuda, types);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
