// SPDX-License-Identifier: Apache-2.0
#include "base/stack.h"

#include <pthread.h>

#include <cstdint>
#include <utility>

namespace troupe {
namespace {

/// The lowest address, and that behind the highest; both 0 where the system does not say.
std::pair<uintptr_t, uintptr_t> bounds() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* lowest = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<uintptr_t>(lowest);
  return known ? std::pair(begin, begin + size) : std::pair<uintptr_t, uintptr_t>();
}

}  // namespace

bool has_stack(size_t bytes) {
  thread_local const auto [lowest, end] = bounds();  // the system is slow to tell
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return here >= lowest && here < end && here - lowest >= bytes;
}

}  // namespace troupe
