// SPDX-License-Identifier: Apache-2.0
// The actor of one device: hands messages to its Executor and sends what that puts out.
//
// | message         | from           | effect, reply                                              |
// |-----------------|----------------|------------------------------------------------------------|
// | RunStep         | session        | begins this device's part of a step; its end is counted in |
// |                 |                | the StepCall, whose last partition answers the caller      |
// | TensorsReady    | device actor,  | values for Recv nodes; may come before their RunStep       |
// |                 | partial run    |                                                            |
// | ResourceAnswers | resource actor,| outputs of nodes that asked                                |
// |                 | blocking jobs  |                                                            |
// | AbortStep       | session, timer,| fires nothing more of the step, drops what waits for it    |
// |                 | device actor   |                                                            |
// | GoOn            | itself         | goes on firing after it let others have the thread         |
// | MaySend         | peer actor     | goes on with steps that had sent a task more than it takes |
//
// Errors of nodes end their step: StepCall::fail, then AbortStep to the other devices of the step.
#pragma once
#include "actors/directory.h"
#include "actors/messages.h"
#include "actors/resource_requests.h"
#include "devices/executor.h"

namespace troupe {

class DeviceActor : public caf::event_based_actor, private Outbox {
 public:
  /// `device` and `counters` live as long as the engine.
  DeviceActor(caf::actor_config& config, uint32_t index, Device& device, Executor::Counters& counters,
              std::shared_ptr<Directory> directory);
  caf::behavior make_behavior() override;
  void on_exit() override;
  /// One message a turn, whatever the system says: a step that does not end always leaves another one behind, and
  /// others are to have the thread too.
  resume_result resume(caf::execution_unit* context, size_t) override {
    return caf::event_based_actor::resume(context, 1);
  }

 private:
  void send_tensors(uint32_t device, std::vector<ReadyTensor> tensors) override;
  Status use_resource(const StepCall& of, const ResourceRef& handle, ResourceUse&& use) override;
  void run_blocking(BlockingUse use) override;
  void flush_uses() override;
  void cancel_uses(int64_t step) override;
  void abort_elsewhere(const StepRef& call) override;
  int64_t now_ns() override;
  bool messages_wait() override { return !mailbox().empty(); }
  void run();

  const uint32_t index_;
  const caf::actor_clock& clock_;
  std::shared_ptr<Directory> directory_;
  Executor executor_;
  ResourceRequests requests_;
  bool will_go_on_ = false;
  size_t passed_ = 0;  // messages since the executor ran
};

}  // namespace troupe
