// SPDX-License-Identifier: Apache-2.0
// How slices of a tensor are found by indices: what the kernels of CPUs and GPUs for Gather, GatherV2, GatherNd and the
// reads of variables by index check. Implemented in ops/array/gather.cpp and ops/array/gather.cu.
#pragma once
#include <vector>

#include "troupe/kernel.h"

namespace troupe {

/// The result is [batches, outer, count] slices of `inner` elements. The indices are [batches, count] rows of
/// bounds.size() numbers, each below its bound; what is read is [batches, outer, bounds...] slices.
struct GatherPlan {
  Shape shape;  // of the result
  int64_t batches = 1, outer = 1, count = 1, inner = 1;
  std::vector<int64_t> bounds;
};

/// Indices into dimension `axis` of x, which has that; the first `batch_dims` dimensions of both go together, and
/// negative ones count from the end of those of the indices. Errors: batches that do not fit.
Result<GatherPlan> plan_gather(const Shape& x, const Shape& indices, int axis, int64_t batch_dims);
/// Rows of indices into the leading dimensions of x. Errors: as of nd_shape().
Result<GatherPlan> plan_gather_nd(const Shape& x, const Shape& indices);

/// A gather in a GPU's memory.
struct GpuGather {
  const gpu::Compute& gpu;
  const GatherPlan& plan;
  Tensor& y;  // of the plan's shape
  const Tensor& x;
  const Tensor& indices;  // int16, int32 or int64
};
/// Puts it into the stream. What an index that is out of range reads is zeros: a GPU has no way to say so. Whoever
/// calls has told what is used. Errors: those of launches.
using LaunchGather = Status (*)(const GpuGather&);
namespace on_cuda {
Status launch_gather(const GpuGather&);
}
namespace on_fake {
Status launch_gather(const GpuGather&);
}

}  // namespace troupe
