// SPDX-License-Identifier: Apache-2.0
// The actor for what waits for files: kernels, and jobs of resources. It alone has a thread of its own, so devices and
// resources go on meanwhile.
//
// | message     | from           | effect, reply                                                                      |
// |-------------|----------------|------------------------------------------------------------------------------------|
// | RunBlocking | device actor   | runs the kernel, unless its step has failed by then; ResourceAnswers with its only |
// |             |                | answer                                                                             |
// | DoBlocking  | resource actor | calls the job; ResourceAnswers without outputs. Cancelling does not reach it       |
// | CancelUses  | resource actor | nothing: its resource has answered those who wait for the job                      |
#pragma once
#include "actors/directory.h"
#include "actors/messages.h"

namespace troupe {

class BlockingActor : public caf::event_based_actor {
 public:
  BlockingActor(caf::actor_config& config, std::shared_ptr<Directory> directory)
      : caf::event_based_actor(config), directory_(std::move(directory)) {}
  caf::behavior make_behavior() override;
  void on_exit() override { directory_.reset(); }

 private:
  std::shared_ptr<Directory> directory_;
};

}  // namespace troupe
