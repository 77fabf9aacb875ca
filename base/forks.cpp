// SPDX-License-Identifier: Apache-2.0
#include "base/forks.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace troupe {

uint64_t forks() {
  static std::atomic<uint64_t> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return count.load(std::memory_order_relaxed);
}

// It is the first thread of its process.
bool came_through_fork() { return forks() > 0 && ::gettid() == ::getpid(); }

}  // namespace troupe
