// SPDX-License-Identifier: Apache-2.0
// Staging: a thread of the host that does for GPUs what takes long: large values are copied into pinned memory by it,
// not by the actors of devices.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe::gpu {

/// Thread-safe. The thread begins with the first piece of work; where the system gives none, whoever posts works.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  /// Does what is left.
  ~Staging() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  /// Has `work` done, behind what came before; it throws nothing. Not by work of its own destructor.
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (begin()) waiting_.push_back(std::exchange(work, nullptr));
    }
    if (work) work();
    else changed_.notify_all();
  }

 private:
  /// Whether there is a thread. Under the mutex.
  bool begin() {
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
    }
    return thread_.joinable();
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work();
      work = nullptr;  // what it holds may be large
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace troupe::gpu
