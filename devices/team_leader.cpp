// SPDX-License-Identifier: Apache-2.0
#include "devices/team_leader.h"

#include <omp.h>

#include "base/forks.h"
#include "base/steady_clock.h"

namespace troupe {
namespace {

uint64_t number_of_thread() {
  static std::atomic<uint64_t> last = 0;
  thread_local const uint64_t number = ++last;
  return number;
}

}  // namespace

bool TeamLeader::take() {
  if (omp_in_parallel() || came_through_fork()) return false;
  const uint64_t own = number_of_thread();
  const int64_t now = steady_ns();
  uint64_t before = thread_.load(std::memory_order_relaxed);
  if (before != own && before != 0 && now - taken_ns_.load(std::memory_order_relaxed) < kKeptNs) return false;
  if (before != own && !thread_.compare_exchange_strong(before, own, std::memory_order_relaxed)) return false;
  taken_ns_.store(now, std::memory_order_relaxed);
  return true;
}

}  // namespace troupe
