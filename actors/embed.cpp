// SPDX-License-Identifier: Apache-2.0
#include "troupe/embed.h"

#include <caf/all.hpp>

#include "actors/engine_impl.h"
#include "actors/homes.h"

namespace troupe {

void run_step(Session& session, const std::shared_ptr<Session::Prepared>& prepared, std::vector<Tensor> values,
              const caf::actor& receiver, uint64_t tag, const RunOptions& options) {
  session.run_async(
      prepared, std::move(values),
      [receiver, tag](RunResult result) {
        caf::anon_send(receiver, StepDone{tag, std::make_shared<const RunResult>(std::move(result))});
      },
      options);
}

Result<std::unique_ptr<Engine>> create_engine(caf::actor_system& system, EngineOptions options) {
  if (!options.cluster.spec.empty() && Homes(system, 0).on_worker())
    return make_error(Code::kFailedPrecondition,
                      "create_engine would wait for itself: it was called by an actor, on a thread of the actor system "
                      "whose tasks it waits for; call it from a thread of your own");
  return EngineMaker::make(std::move(options), &system);
}

caf::actor_system& actor_system(Engine& engine) { return engine.impl().system(); }

}  // namespace troupe
