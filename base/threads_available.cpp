// SPDX-License-Identifier: Apache-2.0
#include "base/threads_available.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace troupe {

Status check_threads_available(int count) {
  std::mutex mutex;
  std::condition_variable changed;
  bool end = false;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  Status status;
  try {
    while (static_cast<int>(threads.size()) < count)
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return end; });
      });
  } catch (const std::system_error& e) {
    status = make_error(Code::kResourceExhausted, "the system gave {} of {} threads: {}", threads.size(), count,
                        e.code().message());
  } catch (const std::bad_alloc&) {
    status = make_error(Code::kResourceExhausted, "no memory for {} threads", count);
  }
  {
    std::lock_guard lock(mutex);
    end = true;
  }
  changed.notify_all();
  for (std::thread& t : threads) t.join();
  return status;
}

int count_cores_available() {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  cpu_set_t own;  // of machines with more cores than it has room for the call fails
  return sched_getaffinity(0, sizeof own, &own) == 0 ? std::clamp(CPU_COUNT(&own), 1, all) : all;
}

}  // namespace troupe
