// SPDX-License-Identifier: Apache-2.0
#include "actors/run_server.h"

#include "net/tensor_bytes.h"

namespace troupe {
namespace {

/// The result, or that it cannot travel.
RunResult to_travel(const RunResult& result) {
  if (!result.ok()) return result;
  for (size_t i = 0; i < result->size(); ++i)
    if (const Status travels = net::check_travels((*result)[i]); !travels.ok())
      return invalid_argument("fetch {} is {}", i, travels.error().message);
  return result;
}

}  // namespace

RunServer::RunServer(caf::actor_config& config, std::shared_ptr<Session::Prepared> prepared,
                     const ServeOptions& options)
    : caf::event_based_actor(config), prepared_(std::move(prepared)), options_(options) {}

caf::behavior RunServer::make_behavior() {
  set_down_handler([this](const caf::down_msg& m) {
    const auto asker = asked_.extract(caf::actor_cast<caf::actor_addr>(m.source));
    if (!asker) return;
    for (const uint64_t number : asker.mapped()) steps_.at(number).cancel.cancel();
  });
  return {
      [this](RunRequest& request) { return begin(request); },
      [this](const StepDone& done) { ended(done); },
  };
}

void RunServer::on_exit() {
  for (auto& [number, step] : steps_) {
    step.cancel.cancel();
    step.answer.deliver(
        RunAnswer{step.tag, make_error(Code::kCancelled, "the actor that serves the session has ended")});
  }
  steps_.clear();
  asked_.clear();
}

caf::response_promise RunServer::begin(RunRequest& request) {
  const auto asker = caf::actor_cast<caf::actor_addr>(current_sender());
  caf::response_promise answer = make_response_promise();  // takes the sender over
  if (steps_.size() >= static_cast<size_t>(std::max(options_.most_steps, 1))) {
    answer.deliver(
        RunAnswer{request.tag, make_error(Code::kResourceExhausted, "{} steps are under way, at most {} may be",
                                          steps_.size(), options_.most_steps)});
    return answer;
  }
  const uint64_t number = steps_begun_++;
  Step& step = steps_.emplace(number, Step{request.tag, asker, answer, {}}).first->second;
  if (asker) {
    auto& its = asked_[asker];
    if (its.empty()) monitor(asker);
    its.insert(number);
  }
  RunOptions run;
  run.deadline = options_.deadline;
  run.cancel = step.cancel;
  run_prepared(
      prepared_, std::move(request.values),
      [self = caf::actor_cast<caf::actor>(this), number](RunResult result) {
        caf::anon_send(self, StepDone{number, std::make_shared<const RunResult>(std::move(result))});
      },
      run);
  return answer;
}

void RunServer::ended(const StepDone& done) {
  const auto step = steps_.extract(done.tag);
  if (!step) return;
  const caf::actor_addr& asker = step.mapped().asker;
  if (const auto its = asked_.find(asker); its != asked_.end()) {
    its->second.erase(done.tag);
    if (its->second.empty()) {
      demonitor(asker);
      asked_.erase(its);
    }
  }
  step.mapped().answer.deliver(RunAnswer{step.mapped().tag, to_travel(*done.result)});
}

caf::actor serve(caf::actor_system& system, std::shared_ptr<Session::Prepared> prepared, const ServeOptions& options) {
  return system.spawn<RunServer>(std::move(prepared), options);
}

}  // namespace troupe
