// SPDX-License-Identifier: Apache-2.0
// The bounds of random integers, as kernels of CPUs and GPUs check them.
#pragma once
#include "ops/random/distributions.h"
#include "troupe/kernel.h"

namespace troupe {

/// What inputs `first` and the next, minval and maxval, of type T and in the host's memory, say; all integers where
/// there are no such inputs, or no `elements`. Errors: they are not scalars, or no integer lies between them.
template <class T> Result<IntRange> int_range(const KernelContext& c, int first, int64_t elements) {
  IntRange out;
  if (c.num_inputs() <= first || elements == 0) return out;
  for (int i : {first, first + 1})
    if (c.input(i).rank() != 0)
      return invalid_argument("minval and maxval must be scalars, not {}", c.input(i).shape().str());
  const T from = *c.input(first).data<T>(), to = *c.input(first + 1).data<T>();
  if (from >= to) return invalid_argument("minval {} is not below maxval {}", from, to);
  out.low = static_cast<uint64_t>(from);
  out.range = static_cast<uint64_t>(to) - out.low;
  return out;
}

}  // namespace troupe
