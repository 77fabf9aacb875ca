// SPDX-License-Identifier: Apache-2.0
// For programs that are CAF actors themselves: steps asked for and answered by message, and actors that nodes ask. The
// only public header that includes CAF, and little of it: the program includes what it uses, as <caf/actor.hpp>.
// Implemented in actors/embed.cpp and actors/user_actor.cpp.
#pragma once
#include <caf/allowed_unsafe_message_type.hpp>

#include "troupe/export.h"
#include "troupe/scope.h"
#include "troupe/session.h"

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
/// system of its own rest. Errors: as Engine::create.
Result<std::unique_ptr<Engine>> create_engine(caf::actor_system& system, EngineOptions options = {});

/// The actor system of an engine, to spawn actors beside its own. In a system of the engine's own they must have ended
/// before the engine does.
caf::actor_system& actor_system(Engine& engine);

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
/// is one of that name, kInvalidArgument for an empty handle or name.
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

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::StepDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ActorRequest)
