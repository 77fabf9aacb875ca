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
// |                 | blocking jobs  | waited for files                                                          |
// | Settle          | device actor   | Settled: what was asked before and can be answered now is answered        |
// | TakeSnapshot    | engine         | of a container: calls a function with its variables, once the steps that  |
// |                 |                | have changed some have ended                                              |
// | StepEnded       | any thread     | of a container: a step that a snapshot waits for, or that has temporary   |
// |                 |                | variables, has ended                                                      |
// | ValuesCame      | GPUs           | of a container: values that a request of another device uses have come to |
// |                 |                | the host's memory; that request, and those behind it, are carried out     |
// | LateReply       | any thread     | a request that waited was answered by a thread that is not the host's     |
// | WithResource    | engine         | calls a function on the resource: restore, restart                        |
// | CloseResource   | engine         | drops the resource; what waits and what comes is answered with an error,  |
// |                 |                | and its own questions are cancelled                                       |
// | Work            | itself         | one piece of background work, while the resource wants it                 |
// | WakeResource    | any thread     | the resource looks whether those that wait can be answered: a mutex was   |
// |                 |                | unlocked, an element of a dataset came                                    |
//
// Every request is answered once, whatever the resource does: one that it has not answered when its step is cancelled
// is answered for it, and what it replies afterwards, or a second time, is dropped. An exception is the error of the
// request, or of the call, in which it was thrown.
#pragma once
#include <deque>
#include <optional>
#include <set>
#include <tuple>

#include "actors/directory.h"
#include "actors/messages.h"
#include "containers/cuts.h"
#include "devices/hosted_resource.h"

namespace troupe {

class ResourceActor : public caf::event_based_actor, private ResourceHost, private StepWatch {
 public:
  ResourceActor(caf::actor_config& config, std::unique_ptr<Resource> resource, std::shared_ptr<Directory> directory);
  ~ResourceActor() override;
  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  class Port;
  /// A request: requester, step, node, iteration.
  using Key = std::tuple<uint64_t, int64_t, uint32_t, uint32_t>;
  static Key key(const RequestTag& tag) { return {tag.requester, tag.step, tag.node, tag.iteration}; }

  /// `done`, called with values that are in the host's memory.
  std::function<void(Result<Directory::Variables>)> at_host(
      std::function<void(Result<Directory::Variables>)> done) const;
  /// What each handler does: marks the thread, calls `f`, then settles.
  template <class F> void handle(F&& f);
  /// Answers the request at work, or one that waits; another was answered before.
  void answer(const RequestTag& tag, Result<std::vector<Tensor>> outputs);
  /// Keeps an answer until the handler at work ends.
  void gather(const RequestTag& tag, Result<std::vector<Tensor>> outputs);
  /// The answer to this request that the handler at work has gathered; nullptr: there is none.
  ResourceAnswer* answer_given(const RequestTag& tag);
  bool is_running(int64_t step) override;
  bool tell_when_ended(int64_t step) override;
  uint64_t ask(const ResourceRef& other, Use use) override;
  void withdraw(uint64_t question) override;
  uint64_t run_blocking(Job job) override;
  Status start_blocking(Job job) override;
  std::function<void()> waker() override;
  std::shared_ptr<FunctionCaller> functions() override { return directory_->functions; }
  /// Runs it, or keeps it until values that it uses have come from a GPU, and those that came before are run.
  void use(ResourceUse&& request);
  /// The values of variables of that request which are in the memory of a GPU that is not the request's.
  Directory::Variables elsewhere(const ResourceUse& request);
  void bring(Directory::Variables values);
  void came(const ValuesCame& m);
  void run(ResourceUse&& request);
  /// What it was answered with, where that was at once.
  Status execute(ResourceUse& request, Resource& resource);
  Status execute_on_copy(const ResourceUse& request, Container& copy);
  /// Keeps the request at work, if it is not answered, until it is.
  void keep_waiting();
  /// Calls into the resource outside of a request; an exception is logged.
  template <class F> void attempt(F&& f);
  void cancel(uint64_t requester, int64_t step);
  /// The tag of a question of our own.
  RequestTag question(caf::actor to);
  /// Answers what waits with kCancelled and `why`, and lets go of the resource.
  void close(const std::string& why);
  /// At the end of each handler: sends the answers gathered, and asks itself for work if there is some.
  void settle();

  std::shared_ptr<Directory> directory_;
  std::unique_ptr<Resource> resource_;                // nullptr once closed
  std::string why_closed_;                            // then
  HostedResource* hosted_;                            // the same, where it is one
  std::unique_ptr<Cuts> cuts_;                        // of a container
  std::shared_ptr<Port> port_;                        // where replies come in
  ResourceRequest asked_at_once_;                     // of kernels that answer at once: the allocator is kept
  std::optional<Key> current_;                        // the request at work, until it is answered
  std::set<Key> waiting_;                             // earlier ones that are not answered
  std::deque<ResourceUse> held_;                      // of those: the ones that are not run yet
  std::vector<std::vector<ResourceAnswer>> answers_;  // by requester, a device
  std::vector<uint32_t> answered_;                    // devices that have some
  std::vector<ResourceAnswer> answers_to_hosts_;      // that asked
  bool will_work_ = false;
  bool silent_ = false;                             // sends nothing any more
  uint64_t number_ = 0;                             // as a requester; 0: it has asked nobody
  uint64_t questions_ = 0;                          // asked
  std::unordered_map<uint64_t, caf::actor> asked_;  // by question: who has not answered; invalid: a job
};

}  // namespace troupe
