// SPDX-License-Identifier: Apache-2.0
// Cuts: snapshots of a container that steps are updating, each between whole steps. Implemented in containers/cuts.cpp.
//
// The updates of one step reach a container one by one, mixed with those of other steps. When a snapshot is asked for,
// the steps that have changed something and still run are in it and all others are not: a copy of the container (which
// shares the tensors) gets the further updates of those steps, beside the container itself, and is the snapshot when
// the last of them has ended. So no step waits, and each step's updates are in a snapshot wholly or not at all.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unordered_set>

#include "containers/container.h"

namespace troupe {

/// What a Cuts asks about the steps of its engine.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  virtual bool is_running(int64_t step) = 0;
  /// Whether it is running; then step_ended(step) will be called once it has ended, after its last update.
  virtual bool tell_when_ended(int64_t step) = 0;
};

/// A passive core: the host of the container calls it, one call at a time.
class Cuts {
 public:
  using Variables = std::map<std::string, Tensor>;
  using Done = std::function<void(Result<Variables>)>;

  Cuts(Container& container, StepWatch& steps) : container_(container), steps_(steps) {}
  /// Snapshots that wait are answered with an error.
  ~Cuts();

  /// Runs one request of a step: calls run(Container&, last) on each copy that is to have it, then on the container
  /// itself, where `last` is true. What run does must depend on the container it is given and on the request alone; it
  /// returns what the request is answered with. An update that a copy has no memory for is the error of its snapshot.
  template <class F> void apply(int64_t step, F&& run) {
    for (Cut& cut : cuts_)
      if (cut.steps.contains(step)) cut.status = run(cut.copy, false);
    const uint64_t before = container_.changes();
    const Status status = run(container_, true);
    for (Cut& cut : cuts_)
      if (cut.torn.ok() && !cut.status.ok() && status.ok()) cut.torn = cut.status;
    if (container_.changes() != before && step != last_writer_) note(step);
    if (container_.temporaries() > 0) watch_temporaries(step);
  }
  /// Calls fn(Container&) with the container and with all copies.
  template <class F> void for_each(F&& fn) {
    fn(container_);
    for (Cut& cut : cuts_) fn(cut.copy);
  }
  /// Calls `done`, now or when the steps that it has to have have ended: those that have changed something, and `also`,
  /// which may have changed something elsewhere.
  void snapshot(Done done, const std::vector<int64_t>& also = {});
  void step_ended(int64_t step);

 private:
  struct Cut {
    Container copy;
    std::set<int64_t> steps;  // that are still to end
    Done done;
    Status status = {};  // of the last request that the copy had
    Status torn = {};    // the copy lacks an update
  };
  static void finish(Cut& cut);
  void note(int64_t step);
  void watch_temporaries(int64_t step);

  Container& container_;
  StepWatch& steps_;
  std::list<Cut> cuts_;
  std::unordered_set<int64_t> writers_;  // that have changed something and may still run
  int64_t last_writer_ = -1;
  size_t sweep_at_ = 64;
  std::set<int64_t> with_temporaries_;  // whose end we will be told
};

}  // namespace troupe
