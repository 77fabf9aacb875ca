// SPDX-License-Identifier: Apache-2.0
// LossRecord: since when training is lost, and whether what fails is another loss than the last one.
#pragma once
#include <algorithm>

#include "train/task_watch.h"

namespace troupe::nn {

/// A passive class; its owner guards it.
class LossRecord {
 public:
  /// Training fails at `step`; `known`: a task is known to be lost. Whether that is another loss than the last. What
  /// fails again at the same step though all tasks are there is still the same one, as is a loss without an update
  /// since the last.
  bool fail(int64_t step, bool known, Clock::time_point now) {
    const bool another = last_update_ >= since_ && (known || step > failed_at_);
    if (another) since_ = now;
    failed_before_ = failed_at_;
    if (!known) failed_at_ = std::max(failed_at_, step);
    return another;
  }
  /// A task was lost after all: others only told of it sooner.
  void explain() { failed_at_ = failed_before_; }
  void update(Clock::time_point now) { last_update_ = now; }
  /// What fails from now on is another loss, at whatever step.
  void renew(Clock::time_point now) {
    last_update_ = now;
    failed_at_ = -1;
  }
  /// When the last loss began.
  Clock::time_point since() const { return since_; }
  Clock::time_point last_update() const { return last_update_; }

 private:
  Clock::time_point last_update_ = {}, since_ = {};
  int64_t failed_at_ = -1;      // the last step that failed though all tasks were there
  int64_t failed_before_ = -1;  // the same, before the failure at hand
};

}  // namespace troupe::nn
