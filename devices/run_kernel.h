// SPDX-License-Identifier: Apache-2.0
// Calls into kernels. What is not a tensor (elements of a list, a text) is made by the standard library, which throws
// where there is no memory; that ends the node, not the thread.
#pragma once
#include <new>
#include <stdexcept>

#include "troupe/kernel.h"

namespace troupe {

/// What `call` returns, or kResourceExhausted where it ran out of memory.
template <class F> auto without_bad_alloc(F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return make_error(Code::kResourceExhausted, "no memory for what is beside the tensors");
  } catch (const std::length_error&) {
    return make_error(Code::kResourceExhausted, "more elements than a list can have");
  }
}

inline Status run_kernel(ComputeKernel& kernel, KernelContext& context) {
  return without_bad_alloc([&] { return kernel.compute(context); });
}

}  // namespace troupe
