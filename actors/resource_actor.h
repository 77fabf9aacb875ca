// SPDX-License-Identifier: Apache-2.0
// The actor that hosts one resource: a container of variables, a queue, an iterator, an accumulator.
//
// | message       | from         | effect, reply                                                               |
// |---------------|--------------|-----------------------------------------------------------------------------|
// | UseResource   | device actor | runs each request's kernel on the resource; ResourceAnswers, one answer a   |
// |               |              | request, now or when the resource can (a dequeue waits for an element)      |
// | CancelUses    | device actor | waiting requests of the step are answered with kCancelled                   |
// | WithResource  | engine       | calls a function on the resource: snapshot, restore, restart                |
// | CloseResource | engine       | drops the resource; what waits and what comes is answered with an error     |
// | Work          | itself       | one piece of background work, while the resource wants it                   |
#pragma once
#include "actors/directory.h"
#include "actors/messages.h"

namespace troupe {

class ResourceActor : public caf::event_based_actor, private ReplySink {
 public:
  ResourceActor(caf::actor_config& config, std::unique_ptr<Resource> resource, std::shared_ptr<Directory> directory);
  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  void deliver(const RequestTag& tag, Result<std::vector<Tensor>> outputs) override;
  void use(ResourceUse request);
  void close();
  /// At the end of each handler: sends the answers gathered, and asks itself for work if there is some.
  void settle();

  std::shared_ptr<Directory> directory_;
  std::unique_ptr<Resource> resource_;                // nullptr once closed
  std::vector<std::vector<ResourceAnswer>> answers_;  // by requester
  bool will_work_ = false;
};

}  // namespace troupe
