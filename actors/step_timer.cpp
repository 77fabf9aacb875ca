// SPDX-License-Identifier: Apache-2.0
#include "actors/step_timer.h"

namespace troupe {

StepTimer::StepTimer(caf::actor_config& config, std::shared_ptr<Directory> directory)
    : caf::event_based_actor(config), directory_(std::move(directory)) {}

caf::behavior StepTimer::make_behavior() {
  return {
      [this](WatchStep& m) {
        watched_.emplace(m.deadline, std::move(m));
        if (watched_.size() > forget_at_) forget_finished();
        arm();
      },
      [this](DeadlinePassed) {
        const Time now = clock().now();
        armed_.erase(armed_.begin(), armed_.upper_bound(now));
        while (!watched_.empty() && watched_.begin()->first <= now) {
          const WatchStep& passed = watched_.begin()->second;
          if (StepRef call = passed.call.lock()) {
            const std::chrono::duration<double, std::milli> allowed = passed.allowed;
            abort_step(
                call, make_error(Code::kDeadlineExceeded, "the deadline of the step, {:g} ms, passed", allowed.count()),
                *directory_);
          }
          watched_.erase(watched_.begin());
        }
        arm();
      },
  };
}

void StepTimer::arm() {
  if (watched_.empty()) return;
  const Time next = watched_.begin()->first;
  // What was sent for a later time is still on its way when an earlier one has passed: a second one would have others
  // follow it for good.
  if (!armed_.empty() && *armed_.begin() <= next) return;
  armed_.insert(next);
  scheduled_send(this, next, DeadlinePassed{});
}

void StepTimer::forget_finished() {
  std::erase_if(watched_, [](auto& entry) { return entry.second.call.expired(); });
  forget_at_ = std::max<size_t>(1024, 2 * watched_.size());
}

void abort_step(const StepRef& call, Error error, const Directory& directory) {
  error.step = call->id;
  if (!call->fail(error)) return;
  if (call->parts) call->parts->abort(error);
  for (const PartitionPlan& partition : call->plan->partitions)
    directory.tell_device(partition.device, AbortStep{partition.device, call});
}

}  // namespace troupe
