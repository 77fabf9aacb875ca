// SPDX-License-Identifier: Apache-2.0
// Functions of two numbers with rules of their own at zero, on GPUs.
#include "ops/math/guarded_functors.h"
#include "ops/math/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {

using namespace guarded_functors;

void register_math_guarded_gpu(KernelRegistry& kernels) {
  const GpuFloats floats;
  add_binary<Xlogy>(kernels, "Xlogy", floats);
  add_binary<Xlog1py>(kernels, "Xlog1py", floats);
  add_binary<Xdivy>(kernels, "Xdivy", floats);
  add_binary<MulNoNan>(kernels, "MulNoNan", floats);
  add_binary<DivNoNan>(kernels, "DivNoNan", floats);
  add_binary<Atan2>(kernels, "Atan2", floats);
  add_binary<NextAfter>(kernels, "NextAfter", FullFloatTypes{});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
