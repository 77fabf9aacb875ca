// SPDX-License-Identifier: Apache-2.0
// Runs that coroutines wait for, on top of runs with a callback.
#include "troupe/run_awaitable.h"

#include <atomic>
#include <optional>

#include "base/log.h"
#include "troupe/guarded.h"
#include "troupe/session.h"

namespace troupe {

/// running -> waiting (a coroutine) -> ended, or running -> ended; either -> given up. Who changes the phase to ended
/// from waiting resumes the coroutine.
class RunAwaitable::State {
 public:
  bool has_ended() const { return phase_.load(std::memory_order_acquire) == Phase::kEnded; }

  bool wait(std::coroutine_handle<> waiting) {
    waiting_ = waiting;
    Phase phase = Phase::kRunning;
    return phase_.compare_exchange_strong(phase, Phase::kWaiting, std::memory_order_acq_rel);
  }

  void end(RunResult result) {
    result_ = std::move(result);
    if (phase_.exchange(Phase::kEnded, std::memory_order_acq_rel) != Phase::kWaiting) return;
    if (Status resumed = guarded_call([this] { waiting_.resume(); }); !resumed.ok())
      log_warning("a coroutine that a run resumed: {}", resumed.error().message);
  }

  void give_up() {
    Phase phase = phase_.load(std::memory_order_acquire);
    while (phase != Phase::kEnded && !phase_.compare_exchange_weak(phase, Phase::kGivenUp, std::memory_order_acq_rel)) {
    }
  }

  RunResult take() { return std::move(*result_); }

 private:
  enum class Phase { kRunning, kWaiting, kEnded, kGivenUp };
  std::atomic<Phase> phase_{Phase::kRunning};
  std::coroutine_handle<> waiting_;
  std::optional<RunResult> result_;
};

RunAwaitable::~RunAwaitable() {
  if (state_) state_->give_up();
}

bool RunAwaitable::await_ready() const { return state_->has_ended(); }
bool RunAwaitable::await_suspend(std::coroutine_handle<> waiting) { return state_->wait(waiting); }
RunResult RunAwaitable::await_resume() { return state_->take(); }

RunAwaitable Session::run_async(const FeedList& feeds, const OutputList& fetches, const NodeList& targets,
                                const RunOptions& options) {
  auto state = std::make_shared<RunAwaitable::State>();
  run_async(
      feeds, fetches, targets, [state](RunResult result) { state->end(std::move(result)); }, options);
  return RunAwaitable(std::move(state));
}

RunAwaitable Session::run_async(const OutputList& fetches, const NodeList& targets, const RunOptions& options) {
  return run_async(FeedList(), fetches, targets, options);
}

RunAwaitable Session::run_async(const OutputList& fetches, const RunOptions& options) {
  return run_async(FeedList(), fetches, NodeList(), options);
}

RunAwaitable Session::run_async(const NodeList& targets, const RunOptions& options) {
  return run_async(FeedList(), OutputList(), targets, options);
}

RunAwaitable Session::run_async(const std::shared_ptr<Prepared>& prepared, ValueList values,
                                const RunOptions& options) {
  auto state = std::make_shared<RunAwaitable::State>();
  run_async(
      prepared, std::move(values), [state](RunResult result) { state->end(std::move(result)); }, options);
  return RunAwaitable(std::move(state));
}

}  // namespace troupe
