// SPDX-License-Identifier: Apache-2.0
// The actor that runs steps for actors of this and of other nodes: troupe::serve().
//
// | message    | from              | effect, reply                                                                |
// |------------|-------------------|------------------------------------------------------------------------------|
// | RunRequest | any, of any node  | begins a step; RunAnswer once, when it has ended or could not begin          |
// | StepDone   | engine            | a step has ended: its asker is answered                                      |
// | down_msg   | CAF               | an asker has ended, or its node is lost: its steps are cancelled             |
#pragma once
#include <caf/all.hpp>

#include <map>
#include <set>

#include "troupe/embed.h"

namespace troupe {

/// Runs what was prepared, as Session::run_async does, but may come while the session closes and after it has gone:
/// `done` then gets kFailedPrecondition, within the call. Any thread.
void run_prepared(const std::shared_ptr<Session::Prepared>& prepared, std::vector<Tensor> values, RunCallback done,
                  const RunOptions& options);

class RunServer final : public caf::event_based_actor {
 public:
  RunServer(caf::actor_config& config, std::shared_ptr<Session::Prepared> prepared, const ServeOptions& options);
  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  struct Step {
    uint64_t tag = 0;  // the asker's
    caf::actor_addr asker;
    caf::response_promise answer;
    CancelToken cancel;
  };
  caf::response_promise begin(RunRequest& request);
  void ended(const StepDone& done);

  const std::shared_ptr<Session::Prepared> prepared_;
  const ServeOptions options_;
  uint64_t steps_begun_ = 0;
  std::map<uint64_t, Step> steps_;                       // by a number of its own
  std::map<caf::actor_addr, std::set<uint64_t>> asked_;  // by whom; they are monitored
};

}  // namespace troupe
