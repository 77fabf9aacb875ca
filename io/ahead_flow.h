// SPDX-License-Identifier: Apache-2.0
// A flow whose values another thread makes ahead of the one that asks for them.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/long_wait.h"
#include "io/dataset_stages.h"
#include "troupe/guarded.h"

namespace troupe {

/// The values of a source in their order. A thread that the pass's FunctionCaller has makes up to `ahead` of them
/// before they are asked for, and goes while there are so many. Where no thread is free, whoever asks makes them
/// itself: so nobody waits here for a thread. Source: PrefetchDataset.
template <class T> class AheadFlow final : public Flow<T> {
 public:
  static Result<FlowPtr<T>> make(const Source<T>& source, int64_t ahead, const Pass& pass) {
    auto shared = std::make_shared<Shared>(ahead, pass);
    Pass inner = pass;
    inner.stop = shared->stop.get_token();
    TROUPE_ASSIGN(shared->from, source(inner));
    return FlowPtr<T>(new AheadFlow(std::move(shared)));
  }
  ~AheadFlow() override {
    shared_->drop();
    shared_->stop.request_stop();
  }
  Result<std::optional<T>> next() override {
    bool ask = false;
    Made out = shared_->take(ask);
    if (ask) run_ahead();
    return out;
  }

 private:
  using Made = Result<std::optional<T>>;

  /// By this flow and by the thread, which may go on when the flow has gone.
  struct Shared {
    Shared(int64_t ahead, const Pass& pass)
        : functions(pass.functions), stop_too(pass.stop, [this] { stop.request_stop(); }), ahead(ahead) {}

    /// The next value. `ask`: a thread is to be asked for.
    Made take(bool& ask) {
      std::unique_lock lock(mutex);
      if (ready.empty() && !busy && !ended) make_one(lock);
      if (ready.empty() && !ended) {
        const LongWait wait;
        changed.wait(lock, [&] { return !ready.empty() || ended; });
      }
      Made out = std::optional<T>();
      if (!ready.empty()) {
        out = std::move(ready.front());
        ready.pop_front();
      }
      // To wake a thread costs more than many a value: not for each, but once more than half of them are gone.
      ask = functions && !asked && !busy && !ended && 2 * std::ssize(ready) < ahead;
      asked |= ask;
      return out;
    }
    /// By a thread that was asked for.
    void run() {
      std::unique_lock lock(mutex);
      if (!busy)
        while (!dropped && !ended && std::ssize(ready) < ahead) make_one(lock);
      asked = false;
    }
    void drop() {
      std::deque<Made> gone;  // without the lock
      const std::lock_guard lock(mutex);
      dropped = true;
      gone.swap(ready);
    }
    /// Nobody else is at it.
    void make_one(std::unique_lock<std::mutex>& lock) {
      busy = true;
      lock.unlock();
      Made made = guarded([&] { return from->next(); });
      lock.lock();
      busy = false;
      ended = made.ok() && !*made;
      if (!ended && !dropped) ready.push_back(std::move(made));
      changed.notify_all();
    }

    const std::shared_ptr<FunctionCaller> functions;
    std::stop_source stop;  // of what the values are made of
    const std::stop_callback<std::function<void()>> stop_too;
    const int64_t ahead;
    FlowPtr<T> from;   // for whoever is busy
    std::mutex mutex;  // guards the rest
    std::condition_variable changed;
    std::deque<Made> ready;
    bool busy = false;     // a value is being made
    bool asked = false;    // a thread was asked for, and has not gone
    bool ended = false;    // there are no more than the ready ones
    bool dropped = false;  // nobody wants more
  };

  explicit AheadFlow(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  void run_ahead() {
    if (shared_->functions->run_apart([shared = shared_] { shared->run(); }).ok()) return;
    const std::lock_guard lock(shared_->mutex);
    shared_->asked = false;
  }

  const std::shared_ptr<Shared> shared_;
};

}  // namespace troupe
