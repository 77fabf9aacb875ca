// SPDX-License-Identifier: Apache-2.0
// How the threads of a GPU share a reduction. Passed to kernels by value.
#pragma once
#include <algorithm>

#include "gpu/runtime.h"
#include "ops/parts/gpu_index.h"
#include "ops/parts/reduce_plan.h"

namespace troupe {

/// Dimensions of one kind for kernels.
struct GpuReduceDims {
  GpuSizes sizes;
  int64_t stride[kMaxRank] = {};

  /// With an innermost run beside them, if that is of their kind.
  GpuReduceDims(ReduceDims dims, bool with_run, int64_t run) {
    if (with_run || dims.rank == 0) dims.push(with_run ? run : 1, 1);
    sizes = GpuSizes(dims.size.data(), dims.rank);
    for (int d = 0; d < dims.rank; ++d) stride[d] = dims.stride[d];
  }
  TROUPE_HOST_DEVICE int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (int d = sizes.rank - 1; d > 0; --d) at += sizes.pop(d, i) * stride[d];
    return at + i * stride[0];
  }
};

struct GpuReduction {
  GpuReduceDims kept, reduced;
  int64_t outputs, count;  // results, and elements that meet in each
  bool rows;               // the elements of a result lie side by side, rather than the results
  int segments = 1;        // parts of a result's elements, each a piece of work of its own

  GpuReduction(const ReducePlan& plan, const gpu::Card& card)
      : kept(plan.kept, !plan.inner_reduced, plan.inner), reduced(plan.reduced, plan.inner_reduced, plan.inner),
        outputs(plan.kept.count() * (plan.inner_reduced ? 1 : plan.inner)),
        count(plan.reduced.count() * (plan.inner_reduced ? plan.inner : 1)), rows(plan.inner_reduced) {
    // Enough blocks to keep the card busy, but each with some work. By the card and the sizes alone, so that sums do
    // not change from step to step.
    const int64_t blocks = rows ? outputs : (outputs + 31) / 32;
    const int64_t wanted = int64_t{std::max(card.multiprocessors, 1)} * 4, least = rows ? 4096 : 256;
    if (outputs > 0 && blocks < wanted)
      segments = static_cast<int>(std::clamp<int64_t>(std::min(wanted / blocks, count / least), 1, 512));
  }
};

}  // namespace troupe
