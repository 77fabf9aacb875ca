// SPDX-License-Identifier: Apache-2.0
// What kernels of update rules (ops/training/rules.h) share.
#pragma once
#include "gpu/launch.h"
#include "ops/parts/type_dispatch.h"
#include "ops/training/gpu_updates.h"

namespace troupe::TROUPE_GPU_VARIANT {

/// Which scalar of a rule is an int64; -1: none.
template <class Rule> constexpr int step_of() {
  if constexpr (requires { Rule::kStep; }) return Rule::kStep;
  else return -1;
}

/// The scalars of a rule for T.
template <class Rule, class T, class A = Arithmetic<T>> __device__ inline void read_scalars(const GpuUpdate& u, A* s) {
  for (int k = 0; k < Rule::kScalars; ++k)
    s[k] = k == step_of<Rule>() ? static_cast<A>(*static_cast<const int64_t*>(u.scalars[k]))
                                : static_cast<A>(widen(*static_cast<const T*>(u.scalars[k])));
}

}  // namespace troupe::TROUPE_GPU_VARIANT
