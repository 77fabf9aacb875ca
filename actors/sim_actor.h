// SPDX-License-Identifier: Apache-2.0
// The actor of all simulated devices. It has their executors and one virtual clock: what takes time (a node, a
// transfer) ends by an event, and events happen in the order of their times, those of one time in the order in which
// they arose. So what it does depends on the order of messages alone where these come from outside, and on nothing
// else.
//
// | message         | from           | effect, reply                                                         |
// |-----------------|----------------|-----------------------------------------------------------------------|
// | RunStep         | session        | begins the parts of all simulated devices of a step                   |
// | TensorsReady,   | as of a        | as of a DeviceActor, at the present virtual time                      |
// | ResourceAnswers,| DeviceActor    |                                                                       |
// | AbortStep       |                |                                                                       |
// | Settled         | resource actor | one host has dealt with the requests before it: the clock may go on   |
// | HoldClock       | engine         | the clock stands still from now on, or (the last hold) may go on      |
// | GoOn            | itself         | the next events happen, if the clock may go on                        |
// | MaySend         | peer actor     | goes on with steps that had sent a task more than it takes            |
#pragma once
#include <deque>
#include <queue>

#include "actors/directory.h"
#include "actors/messages.h"
#include "actors/resource_requests.h"
#include "base/link_ports.h"
#include "devices/executor.h"
#include "troupe/cost_model.h"
#include "troupe/engine.h"

namespace troupe {

class SimActor : public caf::event_based_actor {
 public:
  /// `devices` and `counters` of the engine, of which the simulated ones begin at `first`, live as long as it; so does
  /// `clock_ns`, where the clock can be read.
  SimActor(caf::actor_config& config, uint32_t first, const std::vector<DeviceInfo>& devices,
           std::deque<Executor::Counters>& counters, const SimOptions& options, std::atomic<int64_t>& clock_ns,
           std::shared_ptr<Directory> directory);
  ~SimActor() override;
  caf::behavior make_behavior() override;
  void on_exit() override;
  /// As of a DeviceActor.
  resume_result resume(caf::execution_unit* context, size_t) override {
    return caf::event_based_actor::resume(context, 1);
  }

 private:
  class Simulated;
  struct Event {
    int64_t at_ns = 0;
    uint64_t serial = 0;  // of those at one time the smallest first
    Simulated* device = nullptr;
    std::vector<ReadyTensor> tensors = {};  // that come; none: the node at work ends

    bool operator<(const Event& other) const {  // the top of a heap is the greatest
      return at_ns != other.at_ns ? at_ns > other.at_ns : serial > other.serial;
    }
  };

  bool simulates(uint32_t index) const { return index >= first_ && index - first_ < devices_.size(); }
  Simulated& device(uint32_t index);
  void touch(Simulated& device);
  void at(int64_t ns, Simulated& device, std::vector<ReadyTensor> tensors = {});
  /// At the end of each handler: devices go on until they are at work or have nothing to do, then the clock may.
  void settle();
  /// Everything that happens at the next time of an event.
  void advance();

  const uint32_t first_;
  const LinkRates link_;
  const bool compute_;
  const std::shared_ptr<const CostModel> costs_;
  std::atomic<int64_t>& clock_ns_;
  std::shared_ptr<Directory> directory_;
  std::vector<std::unique_ptr<Simulated>> devices_;
  std::vector<Simulated*> touched_;  // have something to do now, perhaps
  std::vector<Event> events_;        // a heap
  uint64_t serial_ = 0;
  int64_t unsettled_ = 0;  // hosts that were asked and have not said Settled
  int64_t holds_ = 0;
  bool will_go_on_ = false;
};

}  // namespace troupe
