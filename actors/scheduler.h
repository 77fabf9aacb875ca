// SPDX-License-Identifier: Apache-2.0
// Scheduler: CAF's work stealing for an engine that stays open: workers look often for work to steal while there is
// some about, and rest when there has been none for a while (docs/decisions/0010-idle-workers.md).
#pragma once
// CAF's workers tell its logger, which is off, whose turn it is: by a search through the actor's bases, and through a
// table under a lock. That is as much as all else that CAF does for a message, so it is left out of their code here.
#include <caf/logger.hpp>
#pragma push_macro("CAF_PUSH_AID_FROM_PTR")
#pragma push_macro("CAF_SET_LOGGER_SYS")
#undef CAF_PUSH_AID_FROM_PTR
#undef CAF_SET_LOGGER_SYS
#define CAF_PUSH_AID_FROM_PTR(actor) static_cast<void>(0)
#define CAF_SET_LOGGER_SYS(system) static_cast<void>(0)
#include <caf/scheduler/worker.hpp>
#pragma pop_macro("CAF_PUSH_AID_FROM_PTR")
#pragma pop_macro("CAF_SET_LOGGER_SYS")

#include <caf/policy/work_stealing.hpp>
#include <caf/scheduler/coordinator.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include <pthread.h>

#include "base/relax.h"

namespace troupe {

/// How a worker of the scheduler finds its next job. It hides those functions of CAF's policy that it redefines.
///
/// A worker is *busy*, *looking* or *resting*:
///   busy -> looking      its queue is empty and nothing could be stolen, not even while it spins: it does so for
///                        kMostSpin at most, and less each time that this was in vain
///   looking -> busy      a job came into its queue, which wakes it at once, or one could be stolen: tried each kLook
///   looking -> resting   it has looked kLooks times in vain
///   resting -> looking   a job came into its queue, or into that of a busy worker, which wakes one that rests
/// A wake-up may miss a worker that is just about to rest, so a resting one tries to steal each kRest.
class RestingPolicy : public caf::policy::work_stealing {
 public:
  static constexpr std::chrono::microseconds kLook{500};
  static constexpr int kLooks = 40;  // 20 ms: longer than the gaps between the steps of a training loop
  static constexpr std::chrono::milliseconds kRest{250};
  static constexpr std::chrono::nanoseconds kMostSpin{50'000}, kLeastSpin{2'000};
  /// Key of the system's configuration: whether workers spin for more than kLeastSpin. In a cluster they should not:
  /// jobs come from sockets, and processes of one machine share its cores.
  static constexpr const char* kSpins = "troupe.workers-spin";

  struct coordinator_data : work_stealing::coordinator_data {
    using work_stealing::coordinator_data::coordinator_data;
    std::atomic<int> resting{0};
  };
  struct worker_data : work_stealing::worker_data {
    explicit worker_data(caf::scheduler::abstract_coordinator* scheduler)
        : work_stealing::worker_data(scheduler),
          most_spin(get_or(scheduler->system().config(), kSpins, true) ? kMostSpin : kLeastSpin) {}
    worker_data(const worker_data& other) : work_stealing::worker_data(other), most_spin(other.most_spin) {}
    bool resting = false;             // under waitdata.lock
    bool named = false;               // of the worker's thread
    std::atomic<bool> spins = false;  // and has not been given a job
    const std::chrono::nanoseconds most_spin;
    std::chrono::nanoseconds spin = most_spin;  // of the worker's thread
  };

  /// A job from outside, which CAF gives to each worker in turn: one that spins takes it, in place of one that must be
  /// woken. So a thread that asks for one step after the other finds the same worker, and the others sleep.
  template <class Worker> void external_enqueue(Worker* self, caf::resumable* job) {
    worker_data& to = awake(self);
    to.queue.append(job);
    if (sleeps(to)) to.waitdata.cv.notify_one();
    else wake_one(*self->parent());
  }

  template <class Worker> void internal_enqueue(Worker* self, caf::resumable* job) {
    work_stealing::internal_enqueue(self, job);
    wake_one(*self->parent());
  }

  template <class Worker> void resume_job_later(Worker* self, caf::resumable* job) {
    work_stealing::resume_job_later(self, job);
    wake_one(*self->parent());
  }

  template <class Worker> caf::resumable* dequeue(Worker* self) {
    // CAF has all of its threads called "caf.multiplexer".
    if (!std::exchange(d(self).named, true)) pthread_setname_np(pthread_self(), "troupe.worker");
    for (;;) {
      if (auto* job = spin(self)) return job;
      for (int i = 0; i < kLooks; ++i) {
        const bool called = wait(self, kLook);
        if (auto* job = called ? d(self).queue.take_head() : try_steal(self)) return job;
      }
      std::atomic<int>& resting = d(self->parent()).resting;
      resting.fetch_add(1);
      caf::resumable* job = nullptr;
      while (!job && !wait(self, kRest, true)) job = try_steal(self);
      resting.fetch_sub(1);
      if (job) return job;
    }
  }

 private:
  /// Until there is a job, or the worker's time is up. A wake-up takes 10 to 40 us on a virtual machine, so for jobs
  /// that come in quick succession it pays to wait for the next one awake; others may have the core meanwhile.
  static constexpr int kSpinsBetweenThefts = 10;
  template <class Worker> caf::resumable* spin(Worker* self) {
    worker_data& own = d(self);
    const auto begun = std::chrono::steady_clock::now();
    caf::resumable* job = nullptr;
    own.spins.store(true, std::memory_order_relaxed);
    for (int i = 0; !(job = own.queue.take_head()); ++i) {
      if (i % kSpinsBetweenThefts != 0) {
        relax();
        continue;
      }
      if ((job = try_steal(self)) || std::chrono::steady_clock::now() - begun >= own.spin) break;
      if (i > 0) std::this_thread::yield();
    }
    own.spins.store(false, std::memory_order_relaxed);
    if (!job) own.spin = std::max(own.spin / 2, kLeastSpin);
    return job;
  }

  /// A worker that spins, if there is one, which counts as busy from now on; else `self`. One that goes to sleep just
  /// then sees the job, or is seen asleep by who gave it.
  template <class Worker> static worker_data& awake(Worker* self) {
    if (d(self).spins.exchange(false, std::memory_order_relaxed)) return d(self);
    auto& scheduler = *self->parent();
    for (size_t i = 0; i < scheduler.num_workers(); ++i)
      if (worker_data& other = d(scheduler.worker_by_id(i));
          other.spins.load(std::memory_order_relaxed) && other.spins.exchange(false, std::memory_order_relaxed))
        return other;
    return d(self);
  }

  /// The lock is free again when the worker is called: it would wake up to wait for it.
  static bool sleeps(worker_data& worker) {
    const std::lock_guard guard(worker.waitdata.lock);
    return worker.waitdata.sleeping;
  }

  /// Waits until the queue has a job or, while `resting`, until another worker calls. False when `longest` passed.
  template <class Worker, class Duration> bool wait(Worker* self, Duration longest, bool resting = false) {
    worker_data& own = d(self);
    std::unique_lock guard(own.waitdata.lock);
    const auto begun = std::chrono::steady_clock::now();
    own.waitdata.sleeping = true;
    own.resting = resting;
    const bool called =
        own.waitdata.cv.wait_for(guard, longest, [&] { return !own.queue.empty() || own.resting != resting; });
    own.waitdata.sleeping = false;
    own.resting = false;
    if (called && std::chrono::steady_clock::now() - begun < 2 * kMostSpin)
      own.spin = own.most_spin;  // it slept in vain
    return called;
  }

  /// Has a worker that rests look for work again, if there is one.
  template <class Coordinator> static void wake_one(Coordinator& scheduler) {
    if (d(&scheduler).resting.load(std::memory_order_relaxed) == 0) return;
    for (size_t i = 0; i < scheduler.num_workers(); ++i) {
      worker_data& other = d(scheduler.worker_by_id(i));
      std::lock_guard guard(other.waitdata.lock);
      if (!other.resting) continue;
      other.resting = false;
      other.waitdata.cv.notify_one();
      return;
    }
  }
};

using Scheduler = caf::scheduler::coordinator<RestingPolicy>;

}  // namespace troupe
