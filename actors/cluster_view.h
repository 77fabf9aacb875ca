// SPDX-License-Identifier: Apache-2.0
// ClusterView: the cluster as a client's engine sees it: its own task, ways to all tasks, and which of its steps the
// tasks may forget. CutProgram: what a session has tasks keep for the steps of one signature.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "actors/directory.h"
#include "actors/task_link.h"
#include "base/forks.h"
#include "troupe/cost_model.h"

namespace troupe {

class ClusterView : public std::enable_shared_from_this<ClusterView> {
 public:
  ClusterView(std::string task, std::map<std::string, std::shared_ptr<TaskLink>> links)
      : task(std::move(task)), links(std::move(links)) {}

  /// Whether this is a child after fork(), where the tasks are the parent's: nothing is to be told them.
  bool in_child() const { return forks() != forks_; }

  const std::string task;  // the client's own
  const std::map<std::string, std::shared_ptr<TaskLink>> links;
  std::atomic<uint64_t> next_program{1}, next_session{1};

  /// A number for a step that begins, drawn from `next`. None that is smaller begins later.
  int64_t begin(std::atomic<int64_t>& next);
  /// Of the steps that have begun and not ended.
  int64_t oldest() const;
  void ended(int64_t step);

  /// Has the runs of a step sent, by `send`, now or when nothing holds it. `changes`: it may change variables.
  void send_runs(int64_t step, bool changes, std::function<void()> send);
  /// From now on, until release(), no run is sent. `then` is called, perhaps later and by another thread, when all that
  /// were begun to be sent are, with the steps whose runs were, that may change variables and that have not ended.
  using Held = std::function<void(const std::vector<int64_t>& steps)>;
  void hold(Held then);
  void release();

  /// A cut through all tasks' containers of that name: each step is in it wholly or not at all, and none is held up for
  /// longer than it takes to tell the tasks. It waits for the steps under way that may change variables, whether they
  /// have begun to or not. A variable that has a home counts there alone, whatever another client has left elsewhere;
  /// others of one name on two tasks are an error, and so is a task that is not there, if it is the home of one. What
  /// was restored and is nowhere yet is in it too.
  using Variables = ContainerAsk::Variables;
  void snapshot(const std::string& container, std::function<void(Result<Variables>)> done);
  /// Sets variables where they are; those that are nowhere yet when a step first uses them.
  void restore(const std::string& container, const Variables& variables, std::function<void(Status)> done);
  void reset(const std::string& container);
  /// How many there were: what home() told before the last one may hold no more.
  uint64_t resets() const { return resets_.load(std::memory_order_acquire); }
  /// Has the datasets of that name, the client's and the tasks', begin again. A task that is lost begins by itself.
  /// Errors: kNotFound where there is none; kUnavailable where there is none and a task that is lost may have one.
  void restart_dataset(const std::string& name, std::function<void(Status)> done);
  /// The device on which a resource is, by the key of its kind, container and name; `device`, if it is on none yet.
  /// Each task has containers of its own, so the same name on two tasks would be two things.
  uint32_t home(const std::string& key, uint32_t device);
  /// The full names of all devices, by number. Once, before the first step.
  void set_devices(std::vector<std::string> names);
  /// The number of a device.
  std::optional<uint32_t> device(const std::string& name) const;

 private:
  class Gathering;
  /// Some runs are sent. What waits for that is called in order, one at a time.
  void sent();
  /// hold() under mutex_, but for sent(), which is to be called after it.
  void begin_hold(Held then);
  /// A restored value on its way to the variable's home.
  struct Placing {
    Tensor value;
    bool told = false;  // the value, to its home
  };
  /// Tells the home that value and, when restore() gives another meanwhile, that too. Ends a hold.
  void place(TaskLink& link, const std::string& container, const std::string& name,
             const std::shared_ptr<Placing>& placing);
  /// Asks every task, and calls `done` with what all have; `made` when all have made their cut.
  void ask_all(ContainerAsk::Kind kind, const std::string& container, const std::vector<int64_t>& steps,
               std::function<void()> made, std::function<void(Result<Variables>)> done);
  /// Whether something of the container may be on that task.
  bool has_any(const std::string& task, const std::string& container) const;
  /// The task of that variable's home; empty: it has none yet.
  std::string home_task(const std::string& container, const std::string& name) const;

  const uint64_t forks_ = forks();
  mutable std::mutex mutex_;
  std::set<int64_t> steps_, sent_;  // the second: of those that may change variables
  int holds_ = 0;
  int sending_ = 0;  // runs, now
  std::deque<Held> when_sent_;
  bool telling_ = false;  // those, one by one
  struct Run {
    int64_t step;
    bool changes;
    std::function<void()> send;
  };
  std::vector<Run> held_;  // in order
  std::vector<std::string> devices_;
  std::unordered_map<std::string, uint32_t> numbers_;              // of devices
  std::map<std::string, std::map<std::string, Tensor>> unplaced_;  // by container: restored, and nowhere yet
  std::map<std::string, std::map<std::string, std::shared_ptr<Placing>>> placing_;  // the same, once they have homes
  std::map<std::string, uint32_t> homes_;                                           // of resources
  std::atomic<uint64_t> resets_{0};
  std::map<std::string, std::set<std::string>> holders_;  // by container: tasks that were ever homes in it
};

/// Tells the tasks of a cut step of its parts, and in the end that they may forget them.
class CutProgram : public std::enable_shared_from_this<CutProgram> {
 public:
  /// Error: kUnavailable where there is no way to a task.
  static Result<std::shared_ptr<CutProgram>> make(std::shared_ptr<ClusterView> cluster, uint64_t session,
                                                  std::shared_ptr<const CutStep> cut, int64_t timed_steps);
  ~CutProgram();
  CutProgram(const CutProgram&) = delete;

  /// What ends the parts of that step: StepCall::parts.
  std::shared_ptr<RemoteParts> parts(int64_t step) const;
  /// Runs all parts of a step, which report to `call` as partitions do. `caller`: of a partial run.
  void run(const StepRef& call, const Directory& directory, const std::shared_ptr<PartCaller>& caller) const;
  const CutStep& cut() const { return *cut_; }
  /// Adds what its nodes were seen to take, as far as the tasks have told. Any thread.
  void add_costs(CostModel& out) const;
  /// Whether its steps may change variables.
  bool changes_variables() const { return changes_variables_; }

 private:
  CutProgram() = default;
  class Parts;
  /// Keeps what a part tells of a step.
  void take_report(uint32_t part, StepCall& call, PartEnd& end) const;

  std::shared_ptr<ClusterView> cluster_;
  std::shared_ptr<const CutStep> cut_;
  std::vector<std::shared_ptr<TaskLink>> links_;  // by part
  uint64_t number_ = 0;
  int64_t timed_steps_ = 3;
  bool changes_variables_ = false;
  mutable std::atomic<int64_t> runs_{0};
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<net::CostRecord>> costs_;  // by part: the newest
};

}  // namespace troupe
