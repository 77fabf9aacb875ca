// SPDX-License-Identifier: Apache-2.0
// StepCall: one run of a plan, shared by the device actors that take part. Thread-safe.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "devices/step_plan.h"
#include "troupe/trace.h"

namespace troupe {

/// Where a step's values go while it runs: to the caller of a partial run, or to other tasks. On a thread of the
/// engine.
class StepSink {
 public:
  virtual ~StepSink() = default;
  /// Fetch number `fetch` of a partial run is there; once for each, before the step ends well.
  virtual void fetched(uint32_t fetch, Tensor value) {}
  /// It is dead: what the step fails with.
  virtual Error dead(uint32_t fetch) { return {}; }
  /// A Send to another task has fired; once for each edge, in a loop once in each iteration. See ReadyTensor. True:
  /// that task cannot take more now, so this device fires nothing of the step until Executor::may_send().
  virtual bool sent(uint32_t edge, Tensor value, bool dead, std::vector<uint32_t> iterations) { return false; }
};

/// The parts of a step that other tasks run.
class RemoteParts {
 public:
  virtual ~RemoteParts() = default;
  /// The step has failed: all parts are to end. Once, from any thread.
  virtual void abort(const Error& error) = 0;
  /// Whether the task runs one, or did.
  virtual bool has(const std::string& task) const = 0;
};

/// States: running -> (failed) -> done. fail() may come at any time from any thread; the first error wins. The last
/// partition_done(), or abandon(), makes it done and calls `done`, exactly once.
class StepCall {
 public:
  using Done = std::function<void(Result<std::vector<Tensor>>)>;

  /// `parts`: of a step whose nodes are in parts, which report as partitions do; its plan has none.
  StepCall(int64_t id, std::shared_ptr<const StepPlan> plan, std::vector<Tensor> feeds, bool check_numerics, Done done,
           std::shared_ptr<Trace> trace = {}, int64_t random_step = -1, int parts = 0)
      : id(id), plan(std::move(plan)), feeds(std::move(feeds)), check_numerics(check_numerics), trace(std::move(trace)),
        random_step(random_step), done_(std::move(done)) {
    fetches.resize(this->plan->fetches.size());
    partitions_left_ = parts > 0 ? parts : static_cast<int>(this->plan->partitions.size());
  }

  const int64_t id;
  const std::shared_ptr<const StepPlan> plan;
  const std::vector<Tensor> feeds;
  const bool check_numerics;
  const std::shared_ptr<Trace> trace;  // none: nobody asked
  const int64_t random_step;           // of RunOptions
  std::shared_ptr<StepSink> sink;      // of a partial run or a part; set before it begins
  std::shared_ptr<RemoteParts> parts;  // of a step that several tasks run; likewise
  /// Element i is written by the one partition or part that produces fetch i, before its partition_done().
  std::vector<Tensor> fetches;

  /// Keeps the first error; true if this was it, and then the caller tells the other partitions.
  bool fail(Error error) {
    std::optional<std::stop_source> watched;
    {
      std::lock_guard guard(mutex_);
      if (failed_.load(std::memory_order_relaxed)) return false;
      error_ = std::move(error);
      failed_.store(true, std::memory_order_release);
      watched = stop_;
    }
    if (watched) watched->request_stop();
    return true;
  }
  /// Names a node that had not ended when the step was cancelled or its deadline passed; the first one is kept.
  void waited_for(const std::string& op, const std::string& node, const std::string& device) {
    std::lock_guard guard(mutex_);
    if (!error_.node.empty() || (error_.code != Code::kDeadlineExceeded && error_.code != Code::kCancelled)) return;
    error_.op = op;
    error_.node = node;
    error_.device = device;
    error_.message += " while it waited for this node";
  }
  /// Asks to stop when the step fails: on the thread of fail(), without a lock.
  std::stop_token stop_token() {
    std::lock_guard guard(mutex_);
    if (!stop_) {
      stop_.emplace();
      if (failed_.load(std::memory_order_relaxed)) stop_->request_stop();  // nobody has a token yet
    }
    return stop_->get_token();
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// What it has failed with; before it is done.
  Error error() {
    std::lock_guard guard(mutex_);
    return error_;
  }

  /// Each partition reports once, with nothing of it running any more.
  void partition_done() {
    if (partitions_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) finish();
  }
  /// For a plan without partitions.
  void finish() {
    if (done_called_.exchange(true, std::memory_order_acq_rel)) return;
    Done done = std::move(done_);
    if (failed()) {
      done(error());
    } else {
      for (auto [feed, fetch] : plan->fed_fetches) fetches[fetch] = feeds[feed];
      for (const Tensor& fetch : fetches) fetch.freeze();
      done(std::move(fetches));
    }
  }
  /// An actor that the step needs has died: ends it with an error at once. What its partitions report counts no more.
  void abandon(Error error) {
    fail(std::move(error));
    finish();
  }

 private:
  std::atomic<int> partitions_left_;
  std::atomic<bool> done_called_{false};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Error error_;
  std::optional<std::stop_source> stop_;  // none: nobody asked
  Done done_;
};

using StepRef = std::shared_ptr<StepCall>;

/// What a step fails with whose fetch is dead.
Error dead_fetch(const Output& fetch, int64_t step);

}  // namespace troupe
