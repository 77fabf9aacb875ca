// SPDX-License-Identifier: Apache-2.0
// Rows of updates combined with the rows of a table that indices name: what becomes of an element, on CPUs and GPUs,
// and the launches of GPUs. Implemented in ops/parts/scatter.cu.
#pragma once
#include <span>

#include "ops/parts/wrapping.h"
#include "troupe/kernel.h"

namespace troupe {

enum class ScatterHow { kUpdate, kAdd, kSub, kMul, kDiv, kMin, kMax };

/// a and b combined; integers wrap around, and of bools the result is whether it is not 0.
template <ScatterHow kHow, class T> TROUPE_HOST_DEVICE inline T combine(T a, T b) {
  if constexpr (kHow == ScatterHow::kUpdate) return b;
  else if constexpr (std::is_same_v<T, bool>) return kHow == ScatterHow::kSub ? a != b : a || b;
  else if constexpr (kHow == ScatterHow::kMin) return b < a ? b : a;
  else if constexpr (kHow == ScatterHow::kMax) return a < b ? b : a;
  else if constexpr (kHow == ScatterHow::kAdd) return wrapping_add(a, b);
  else if constexpr (kHow == ScatterHow::kSub) return wrapping_subtract(a, b);
  else if constexpr (kHow == ScatterHow::kMul) return wrapping_multiply(a, b);
  else if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
    return b == T(-1) ? wrapping_subtract(T(0), a) : static_cast<T>(a / b);
  else return static_cast<T>(a / b);
}

/// A scatter in a GPU's memory.
struct GpuScatter {
  const gpu::Compute& gpu;
  ScatterHow how;
  Tensor& y;                        // the table
  const Tensor& indices;            // int16, int32 or int64; rows of bounds.size() numbers
  const Tensor& updates;            // a row for each row of indices, or a scalar for all; of y's dtype
  std::span<const int64_t> bounds;  // the leading dimensions of y, whose slices are the rows
  int64_t count, width;             // rows of indices, elements of a row of the table
};
/// Puts it into the stream, having told what is used. An index that is out of range is passed over: a GPU has no way to
/// say so. Each element meets the updates in the order of the indices. Errors: those of launches; kResourceExhausted.
using LaunchScatter = Status (*)(const GpuScatter&);

namespace on_cuda {
/// Changes y in place. For numbers that element-wise ops have on GPUs; kUpdate for all types, kDiv for floats.
Status launch_scatter(const GpuScatter&);
/// Fills y with sums of updates, 0 where there are none; 16-bit floats are summed up in float32. `how` is kAdd.
Status launch_segment_sum(const GpuScatter&);
}  // namespace on_cuda
namespace on_fake {
Status launch_scatter(const GpuScatter&);
Status launch_segment_sum(const GpuScatter&);
}  // namespace on_fake

}  // namespace troupe
