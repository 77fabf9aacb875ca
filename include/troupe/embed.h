// SPDX-License-Identifier: Apache-2.0
// For programs that are CAF actors themselves: steps asked for and answered by message, also by actors of other nodes,
// and actors that nodes ask. The only public header that includes CAF, and little of it: the program includes what it
// uses, as <caf/actor.hpp>. Implemented in actors/embed.cpp, actors/cluster.cpp, actors/run_server.cpp,
// actors/tensor_messages.cpp and actors/user_actor.cpp.
#pragma once
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/type_id.hpp>

#include "troupe/cluster.h"
#include "troupe/export.h"
#include "troupe/scope.h"
#include "troupe/session.h"

/// The first of four type IDs of CAF that this header takes. A program whose own IDs, or another library's, are there
/// defines another one, the same for all its files.
#ifndef TROUPE_FIRST_TYPE_ID
#define TROUPE_FIRST_TYPE_ID 64000
#endif

namespace caf {
class actor;
class actor_system;
}  // namespace caf

namespace TROUPE_API troupe {

/// Answer to run_step: a message to the actor that asked.
struct StepDone {
  uint64_t tag = 0;                         // as given to run_step
  std::shared_ptr<const RunResult> result;  // never null
};

/// Runs one step of `session`; `receiver` gets one StepDone with `tag`. From any thread or actor; returns at once.
void run_step(Session& session, const std::shared_ptr<Session::Prepared>& prepared, std::vector<Tensor> values,
              const caf::actor& receiver, uint64_t tag = 0, const RunOptions& options = {});

/// An engine whose actors run in `system`: one scheduler, no second set of threads. The system must outlive the engine;
/// EngineOptions::scheduler_threads has no meaning. Sessions and all else are as with an engine of its own. For the
/// engine's speed the system should have a worker for each CPU device, the work-stealing policy (CAF's default) and
/// "scheduler.max-throughput" 1. How often its idle workers wake is the system's to say; those of an engine with a
/// system of its own rest. One with options.cluster waits for the tasks, so that no actor of the system may make it.
/// Errors: as Engine::create; with options.cluster kFailedPrecondition in an actor of the system that is not
/// detached, and where that has not loaded caf::io::middleman, with CAF's own multiplexer.
Result<std::unique_ptr<Engine>> create_engine(caf::actor_system& system, EngineOptions options = {});

/// A task of a cluster (ClusterWorker::start) whose actors run in `system`, and whose connections its middleman serves:
/// beside the program's own actors, other tasks and engines. The system must outlive the worker, which no actor of it
/// may destroy. Returns without waiting for anybody. Errors: as ClusterWorker::start and create_engine.
Result<std::unique_ptr<ClusterWorker>> start_worker(caf::actor_system& system, EngineOptions options);

/// The actor system of an engine, to spawn actors beside its own. In a system of the engine's own they must have ended
/// before the engine does. Calls that wait for the engine (Session::run, ...) are errors in actors of its system, of
/// whichever kind, that are not detached: the steps may need their threads.
caf::actor_system& actor_system(Engine& engine);

// -- sessions that actors of other nodes ask --------------------------------------------------------------------------
//
// Tensors, alone or in a std::vector, and the two messages below may be sent to an actor of another process by CAF's
// network (publish and remote_actor of its middleman). Both systems register them:
//
//   config.load<caf::io::middleman>().add_message_types<caf::id_block::troupe_embed>();
//
// A tensor travels as dtype, shape and the bytes of its elements; strings too. One of resources or variants does not:
// what holds it is not sent, and CAF logs why. What comes is checked before memory is taken for it. CAF itself trusts
// the network: whoever reaches a port where an actor is published can ask it, and can have CAF take memory.

/// Asks the actor that serve() returned for one step, by request() or send().
struct RunRequest {
  uint64_t tag = 0;            // the answer has it too
  std::vector<Tensor> values;  // in the order of the prepared feeds
};
/// Its answer.
struct RunAnswer {
  uint64_t tag = 0;
  RunResult result = std::vector<Tensor>();  // the fetches, or the error
};

struct ServeOptions {
  /// Of each step, as RunOptions::deadline.
  Deadline deadline = {};
  /// Steps under way at once; a request beyond is answered with kResourceExhausted. Below 1 counts as 1.
  int most_steps = 256;
};

/// An actor in `system` (the engine's or any other of the process) that runs one step for each RunRequest and answers
/// with a RunAnswer: any number at once, each when it has ended. The steps of an asker that ends, or whose node is
/// lost, are cancelled; those of one who sent anonymously run, and nobody is answered. A fetch that cannot travel is an
/// error. Once the session has closed, or the engine gone, each request is answered with kFailedPrecondition. The actor
/// ends as others do (exit messages); its steps are then cancelled, and who asked for them is answered with kCancelled.
/// A system does not end before it. Who asks from another process monitors it: CAF tells nobody else that its process
/// has gone. Any thread.
caf::actor serve(caf::actor_system& system, std::shared_ptr<Session::Prepared> prepared,
                 const ServeOptions& options = {});

/// For CAF. Errors: of a tensor that cannot travel, and of bytes that are none.
caf::error inspect(caf::serializer& to, Tensor& tensor);
caf::error inspect(caf::deserializer& from, Tensor& tensor);
caf::error inspect(caf::serializer& to, RunRequest& request);
caf::error inspect(caf::deserializer& from, RunRequest& request);
caf::error inspect(caf::serializer& to, RunAnswer& answer);
caf::error inspect(caf::deserializer& from, RunAnswer& answer);

// -- actors of the embedder's as ops, queues and sources --------------------------------------------------------------
//
// A node ActorCall sends its inputs to an actor and ends when the actor answers. An actor that answers from what it is
// sent is an op; one that keeps requests until it has what they ask for is a queue or a source
// (examples/user_actor.cpp). Nobody waits meanwhile: any number of requests may be open, of one step and of many, and
// they come in the order in which one device sent them.

/// The right to answer one request; copies share it. Thread-safe.
class ActorReply {
 public:
  ActorReply() = default;
  /// Answers: the node's outputs, or the error that its step ends with. From any thread, at any time; the first answer
  /// counts, a later one, or one to a step that has ended, is dropped. Tensors are frozen (see tensor.h). Outputs of
  /// another number, dtype or shape are an error of the step. When the last copy goes unused the step ends with
  /// kCancelled.
  void operator()(Result<std::vector<Tensor>> outputs) const;
  /// Whether an answer would still count: false once there was one or the step has ended.
  bool wanted() const;

  class State;
  explicit ActorReply(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

/// The message that an ActorCall node sends; not answered as CAF's requests are, but by `reply`.
struct ActorRequest {
  std::string call;            // the node's attribute: which of the things that the actor can do
  int64_t step = 0;            // as Error::step
  std::vector<Tensor> inputs;  // of the node
  ActorReply reply;
};

/// Registers the ops ActorHandle and ActorCall: call it in EngineOptions::register_ops.
void register_actor_ops(OpRegistry& ops, KernelRegistry& kernels);

/// From now on nodes ask `actor` under this name. It may be in any actor system of the process and is kept until
/// remove_actor or the end of the engine, whatever containers are reset. When it ends, requests that wait and later
/// ones fail with kFailedPrecondition, which says why; one that reaches it as it ends is dropped (kCancelled). A step
/// that is cancelled or passes its deadline does not wait for an answer. Any thread. Errors: kAlreadyExists when there
/// is one of that name, kInvalidArgument for an empty handle or name and for an actor of another process.
Status add_actor(Engine& engine, const std::string& name, const caf::actor& actor);
/// Takes it out; requests that wait are cancelled. Any thread. Error: kNotFound.
Status remove_actor(Engine& engine, const std::string& name);

/// What a node expects of an actor.
struct ActorOutput {
  DType dtype;
  PartialShape shape = PartialShape::unknown();
};
/// Adds a node that asks the actor `actor` for `call` with `inputs` and gives `outputs`; without any it is a target.
/// Faults stick to the scope, and the result is nullptr.
const Node* actor_call(const Scope& scope, const std::string& actor, const std::string& call,
                       std::vector<Output> inputs, const std::vector<ActorOutput>& outputs,
                       std::source_location where = std::source_location::current());

}  // namespace troupe

CAF_BEGIN_TYPE_ID_BLOCK(troupe_embed, TROUPE_FIRST_TYPE_ID)
CAF_ADD_TYPE_ID(troupe_embed, (troupe::Tensor))
CAF_ADD_TYPE_ID(troupe_embed, (std::vector<troupe::Tensor>))
CAF_ADD_TYPE_ID(troupe_embed, (troupe::RunRequest))
CAF_ADD_TYPE_ID(troupe_embed, (troupe::RunAnswer))
CAF_END_TYPE_ID_BLOCK(troupe_embed)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::StepDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ActorRequest)
