// SPDX-License-Identifier: Apache-2.0
// Scatters on GPUs.
#include "ops/parts/scatter.h"

#include "ops/parts/elementwise.cuh"
#include "ops/parts/indexed_rows.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// y is a table of To, which may be wider than the updates; those are `step` elements apart, 0: the same for all.
template <ScatterHow kHow, class To, class T>
__global__ void scatter_rows(To* y, const T* updates, int64_t step, const __grid_constant__ IndexedRows rows) {
  using A = Arithmetic<To>;
  for_each_part(rows, [&](int64_t owner, int64_t column) {
    const bool there = column < rows.width;
    // Of a row that comes several times in a row, nothing is written but what becomes of it in the end.
    int64_t held = -1;
    To value{};
    const auto put = [&] {
      if (there && held >= 0) y[held * rows.width + column] = value;
    };
    for_each_named(
        rows, owner, [&](int64_t i) { return !there      ? T{}
                                             : step == 0 ? *updates
                                                         : updates[i * step + column]; },
        [&](int64_t row, T update) {
          if (row != held) {
            put();
            held = row;
            if (there) value = y[row * rows.width + column];
          }
          value = narrow<To>(combine<kHow>(widen(value), static_cast<A>(widen(update))));
        });
    put();
  });
}

template <ScatterHow kHow, class To, class T> Status launch(const GpuScatter& g, void* y) {
  const IndexedRows rows = index_rows(g.gpu.card, g.indices, g.bounds, g.count, g.width);
  return TROUPE_LAUNCH(g.gpu.stream, (scatter_rows<kHow, To, T>), indexed_blocks(g.gpu.card, rows), indexed_threads(),
                       0, static_cast<To*>(y), static_cast<const T*>(g.updates.address()),
                       g.updates.rank() == 0 ? 0 : g.width, rows);
}

template <ScatterHow kHow> Status launch_numbers(const GpuScatter& g) {
  Status status = make_error(Code::kUnimplemented, "no scatter of {}", to_string(g.y.dtype()));
  with_type(g.y.dtype(), GpuNumbers{}, [&]<class T>() {
    if constexpr (kHow != ScatterHow::kDiv || !std::is_integral_v<T>)
      status = launch<kHow, T, T>(g, g.y.mutable_address());
  });
  return status;
}

Status launch_how(const GpuScatter& g) {
  switch (g.how) {
    case ScatterHow::kAdd: return launch_numbers<ScatterHow::kAdd>(g);
    case ScatterHow::kSub: return launch_numbers<ScatterHow::kSub>(g);
    case ScatterHow::kMul: return launch_numbers<ScatterHow::kMul>(g);
    case ScatterHow::kDiv: return launch_numbers<ScatterHow::kDiv>(g);
    case ScatterHow::kMin: return launch_numbers<ScatterHow::kMin>(g);
    case ScatterHow::kMax: return launch_numbers<ScatterHow::kMax>(g);
    case ScatterHow::kUpdate: break;
  }
  Status status;
  with_storage(g.y.dtype(), [&]<class S>() {
    if constexpr (std::is_trivially_copyable_v<S>) status = launch<ScatterHow::kUpdate, S, S>(g, g.y.mutable_address());
  });
  return status;
}

/// Tells the stream what a scatter into `to` uses.
void tell(const GpuScatter& g, const Tensor& to, const Tensor& from) {
  const gpu::Access accesses[] = {{g.indices.address(), g.indices.bytes(), false},
                                  {g.updates.address(), g.updates.bytes(), false},
                                  {from.address(), from.bytes(), true},
                                  {to.address(), to.bytes(), true}};
  g.gpu.stream.uses(accesses);
}

template <class T> __global__ void narrow_sums(T* out, const float* sums, int64_t n) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) out[i] = narrow<T>(sums[i]);
}

template <class T> Status sum_wide(const GpuScatter& g) {
  const int64_t n = g.y.elements();
  TROUPE_ASSIGN(Tensor sums, Tensor::make(DType::kFloat32, g.y.shape(), g.gpu.allocator));
  TROUPE_RETURN_IF_ERROR(g.gpu.stream.fill(sums.mutable_address(), 0, sums.bytes()));
  tell(g, g.y, sums);
  if (g.updates.elements() > 0) TROUPE_RETURN_IF_ERROR((launch<ScatterHow::kAdd, float, T>(g, sums.mutable_address())));
  return TROUPE_LAUNCH(g.gpu.stream, narrow_sums<T>, gpu::blocks_for(g.gpu.card, n, kElementThreads), kElementThreads,
                       0, static_cast<T*>(g.y.mutable_address()), static_cast<const float*>(sums.address()), n);
}

}  // namespace

Status launch_scatter(const GpuScatter& g) {
  if (g.y.elements() == 0 || g.count == 0) return {};
  tell(g, g.y, g.y);
  Status status = launch_how(g);
  g.gpu.stream.uses({});
  return status;
}

Status launch_segment_sum(const GpuScatter& g) {
  if (g.y.elements() == 0) return {};
  Status status;
  if (g.y.dtype() == DType::kFloat16) {
    status = sum_wide<float16>(g);
  } else if (g.y.dtype() == DType::kBFloat16) {
    status = sum_wide<bfloat16>(g);
  } else {
    TROUPE_RETURN_IF_ERROR(g.gpu.stream.fill(g.y.mutable_address(), 0, g.y.bytes()));
    return launch_scatter(g);
  }
  g.gpu.stream.uses({});
  return status;
}

}  // namespace troupe::TROUPE_GPU_VARIANT
