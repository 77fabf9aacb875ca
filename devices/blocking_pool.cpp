// SPDX-License-Identifier: Apache-2.0
#include "devices/blocking_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/long_wait.h"
#include "troupe/guarded.h"

namespace troupe {
namespace {
/// Longer than anybody waits, and short enough for any clock.
constexpr std::chrono::nanoseconds kForEver = std::chrono::hours(24 * 365);
}  // namespace

/// Shared with the threads, so that one that is left behind still finds it.
struct BlockingPool::State : std::enable_shared_from_this<State>, WaitObserver {
  using Threads = std::list<std::thread>;

  explicit State(Options o) : options(std::move(o)) {}

  const Options options;
  mutable std::mutex mutex;  // guards the rest
  std::condition_variable work, left;
  std::deque<Job> jobs;
  Threads threads;
  std::thread ended;  // the last one that did; the next joins it
  size_t idle = 0;
  size_t waiting = 0;  // in a LongWait
  bool closed = false;
  bool abandoned = false;  // threads that are still there have been detached

  // -- under the mutex ------------------------------------------------------------------------------------------------

  /// Those that count for most_threads.
  size_t counted() const { return threads.size() - waiting; }
  /// Threads that waited have come back: one of those that work is to end.
  bool too_many() const { return counted() > options.most_threads; }
  Status start() {
    const Status status = guarded([&]() -> Status {
      if (options.may_start && !options.may_start()) return make_error(Code::kResourceExhausted, "not allowed");
      threads.emplace_back();
      threads.back() = std::thread(serve, shared_from_this(), std::prev(threads.end()));
      return {};
    });
    if (!status.ok() && !threads.empty() && !threads.back().joinable()) threads.pop_back();
    return status;
  }

  // -- by the threads -------------------------------------------------------------------------------------------------

  void wait_begins() override {
    const std::lock_guard lock(mutex);
    ++waiting;
    // Where it fails, the job waits for a thread that comes back.
    if (!closed && jobs.size() > idle && counted() < options.most_threads) (void)start().ok();
  }
  void wait_ended() override {
    const std::lock_guard lock(mutex);
    --waiting;
  }

  static void serve(const std::shared_ptr<State>& s, Threads::iterator self) {
    LongWait::observe_thread(s.get());
    std::unique_lock lock(s->mutex);
    do {
      while (!s->jobs.empty() && !s->too_many()) {
        Job job = std::move(s->jobs.front());
        s->jobs.pop_front();
        lock.unlock();
        (void)guarded_call(job).ok();
        job = nullptr;
        lock.lock();
      }
      if (s->too_many()) {
        s->work.notify_one();  // what there is to do is for another
        break;
      }
      ++s->idle;
      s->work.wait_for(lock, s->options.keep_idle, [&] { return s->closed || !s->jobs.empty(); });
      --s->idle;
    } while (!s->jobs.empty());
    if (s->abandoned) return;
    std::thread before = std::exchange(s->ended, std::move(*self));
    s->threads.erase(self);
    s->left.notify_all();
    lock.unlock();
    if (before.joinable()) before.join();
  }
};

BlockingPool::BlockingPool() : BlockingPool(Options()) {}
BlockingPool::BlockingPool(Options options) : state_(std::make_shared<State>(std::move(options))) {}
BlockingPool::~BlockingPool() { shutdown(); }

Status BlockingPool::run(Job job) {
  State& s = *state_;
  Job refused;  // what it holds goes when nobody waits for the lock any more
  const std::lock_guard lock(s.mutex);
  if (s.closed) return make_error(Code::kCancelled, "the engine is ending");
  s.jobs.push_back(std::move(job));
  if (s.idle >= s.jobs.size()) {
    s.work.notify_one();
    return {};
  }
  if (s.counted() >= s.options.most_threads) return {};
  Status status = s.start();
  if (status.ok() || s.counted() > 0) return {};
  refused = std::move(s.jobs.back());
  s.jobs.pop_back();
  return make_error(Code::kResourceExhausted, "no thread could be started for what may wait: {}",
                    status.error().message);
}

bool BlockingPool::shutdown(std::chrono::nanoseconds patience) {
  State& s = *state_;
  std::deque<Job> dropped;
  std::unique_lock lock(s.mutex);
  if (s.abandoned) return false;
  s.closed = true;
  dropped.swap(s.jobs);
  s.work.notify_all();
  lock.unlock();
  dropped.clear();
  lock.lock();
  const auto all_back = [&] { return s.threads.empty(); };
  const bool back = s.left.wait_for(lock, std::clamp(patience, std::chrono::nanoseconds(0), kForEver), all_back);
  s.abandoned = !back;
  for (std::thread& thread : s.threads) thread.detach();
  std::thread last = std::move(s.ended);
  lock.unlock();
  if (last.joinable()) last.join();
  return back;
}

size_t BlockingPool::threads() const {
  const std::lock_guard lock(state_->mutex);
  return state_->threads.size();
}

size_t BlockingPool::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->idle;
}

}  // namespace troupe
