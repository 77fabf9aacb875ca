// SPDX-License-Identifier: Apache-2.0
#include "base/memory_available.h"

#include <sys/mman.h>

#if __has_include(<execinfo.h>)
#include <execinfo.h>
#endif

namespace troupe {

bool memory_available(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, bytes);
  return true;
}

void prepare_for_exceptions() {
#if __has_include(<execinfo.h>)
  void* frame = nullptr;
  backtrace(&frame, 1);
#endif
}

}  // namespace troupe
