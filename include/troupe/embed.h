// SPDX-License-Identifier: Apache-2.0
// For programs that are CAF actors themselves: steps asked for and answered by message. The only public header that
// includes CAF, and little of it: the program includes what it uses, as <caf/actor.hpp>. Implemented in
// actors/embed.cpp.
#pragma once
#include <caf/allowed_unsafe_message_type.hpp>

#include "troupe/export.h"
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
/// "scheduler.max-throughput" 1. Errors: as Engine::create.
Result<std::unique_ptr<Engine>> create_engine(caf::actor_system& system, EngineOptions options = {});

/// The actor system of an engine, to spawn actors beside its own. In a system of the engine's own they must have ended
/// before the engine does.
caf::actor_system& actor_system(Engine& engine);

}  // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::StepDone)
