// SPDX-License-Identifier: Apache-2.0
// The actor that hosts one resource: a container of variables, a queue, an iterator, an accumulator, a reader, ...
//
// | message         | from           | effect, reply                                                             |
// |-----------------|----------------|---------------------------------------------------------------------------|
// | UseResource     | device actor   | runs each request's kernel on the resource; ResourceAnswers, one answer a |
// |                 |                | request, now or when the resource can (a dequeue waits for an element)    |
// | AskResource     | resource actor | calls a function on the resource; ResourceAnswers with its answer, now or |
// |                 |                | when the resource can: a reader asks a queue for the name of a file       |
// | CancelUses      | device actor,  | waiting requests of the step, or the question of that number, are         |
// |                 | resource actor | answered with kCancelled                                                  |
// | ResourceAnswers | resource actor,| the answer to a question of this resource, or the end of a job that       |
// |                 | blocking actor | waited for files                                                          |
// | Settle          | device actor   | Settled: what was asked before and can be answered now is answered        |
// | WithResource    | engine         | calls a function on the resource: snapshot, restore, restart              |
// | CloseResource   | engine         | drops the resource; what waits and what comes is answered with an error,  |
// |                 |                | and its own questions are cancelled                                       |
// | Work            | itself         | one piece of background work, while the resource wants it                 |
// | WakeResource    | any thread     | the resource looks whether those that wait can be answered: a mutex was   |
// |                 |                | unlocked                                                                  |
#pragma once
#include "actors/directory.h"
#include "actors/messages.h"
#include "devices/hosted_resource.h"

namespace troupe {

class ResourceActor : public caf::event_based_actor, private ReplySink, private ResourceHost {
 public:
  ResourceActor(caf::actor_config& config, std::unique_ptr<Resource> resource, std::shared_ptr<Directory> directory);
  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  void deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) override;
  uint64_t ask(const ResourceRef& other, Use use) override;
  void withdraw(uint64_t question) override;
  uint64_t run_blocking(Job job) override;
  std::function<void()> waker() override;
  void use(ResourceUse request);
  /// The tag of a question of our own.
  RequestTag question(caf::actor to);
  void close();
  /// At the end of each handler: sends the answers gathered, and asks itself for work if there is some.
  void settle();

  std::shared_ptr<Directory> directory_;
  std::unique_ptr<Resource> resource_;                // nullptr once closed
  HostedResource* hosted_;                            // the same, where it is one
  std::vector<std::vector<ResourceAnswer>> answers_;  // by requester, a device
  std::vector<ResourceAnswer> answers_to_hosts_;      // that asked
  bool will_work_ = false;
  uint64_t number_ = 0;                             // as a requester; 0: it has asked nobody
  uint64_t questions_ = 0;                          // asked
  std::unordered_map<uint64_t, caf::actor> asked_;  // by question: who has not answered
};

}  // namespace troupe
