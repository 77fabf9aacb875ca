// SPDX-License-Identifier: Apache-2.0
// BlockingJobs: has kernels and jobs that may wait run on other threads, and sends what comes of it to the actors that
// asked, as ResourceAnswers. It stands between threads that may come back late, or never, and actors that are gone by
// then: after close() it sends nothing. Thread-safe.
#pragma once
#include <caf/all.hpp>

#include <functional>
#include <memory>
#include <mutex>

#include "devices/exchange.h"
#include "devices/hosted_resource.h"

namespace troupe {

class Directory;

class BlockingJobs : public std::enable_shared_from_this<BlockingJobs> {
 public:
  using Job = ResourceHost::Job;
  /// Has a job called by another thread, or destroys it; see BlockingPool::run.
  using Run = std::function<Status(Job)>;

  /// The actors are those of `directory`, until close().
  /// `functions` calls the functions that nodes carry; none: nobody does.
  BlockingJobs(Run run, const Directory& directory, std::shared_ptr<FunctionCaller> functions = {})
      : run_(std::move(run)), functions_(std::move(functions)), directory_(&directory) {}

  /// Runs the kernel, unless its step has failed by then. The device that asked gets one answer, in any case.
  void run_kernel(BlockingUse use);
  /// Runs `job`. The host whose number is tag.requester gets one answer, without outputs or with an error.
  void run_job(Job job, const RequestTag& tag);
  /// Runs `job`, of whose end nobody is told. Errors: those of BlockingPool::run.
  Status start(Job job) { return run_(std::move(job)); }
  /// Sends WakeResource to the actor, if it is there.
  void wake(const caf::actor_addr& host);
  /// Lets go of the actors: from its return on nothing is sent, so they and their system may go.
  void close();

 private:
  class Asked;
  using Call = std::function<Result<std::vector<Tensor>>()>;

  void run(Call call, const RequestTag& tag);
  void answer(const RequestTag& tag, Result<std::vector<Tensor>> outputs);

  const Run run_;
  const std::shared_ptr<FunctionCaller> functions_;
  std::mutex mutex_;
  const Directory* directory_;  // nullptr: closed
};

}  // namespace troupe
