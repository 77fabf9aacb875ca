// SPDX-License-Identifier: Apache-2.0
// The actor that keeps the deadlines of steps.
//
// | message        | from    | effect                                                                |
// |----------------|---------|-----------------------------------------------------------------------|
// | WatchStep      | session | from its deadline on, a step that still runs fails: kDeadlineExceeded |
// | DeadlinePassed | itself  | looks through the deadlines that have passed                          |
#pragma once
#include <map>
#include <set>

#include "actors/directory.h"
#include "actors/messages.h"

namespace troupe {

class StepTimer : public caf::event_based_actor {
 public:
  StepTimer(caf::actor_config& config, std::shared_ptr<Directory> directory);
  caf::behavior make_behavior() override;
  void on_exit() override { directory_.reset(); }

 private:
  using Time = caf::actor_clock::time_point;
  void arm();
  void forget_finished();

  std::shared_ptr<Directory> directory_;
  std::multimap<Time, WatchStep> watched_;
  size_t forget_at_ = 1024;  // finished steps are swept out when there are so many
  std::set<Time> armed_;     // when DeadlinePassed is on its way for
};

/// Fails `call` with `error` and tells its devices; from any thread.
void abort_step(const StepRef& call, Error error, const Directory& directory);

}  // namespace troupe
