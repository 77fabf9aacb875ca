// SPDX-License-Identifier: Apache-2.0
// What a Session is made of. Of a user's session an Engine is known; one that the engine has for itself, to call
// functions that nodes carry (function_caller.h), has only what the engine owns.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actors/cluster_view.h"
#include "actors/engine_impl.h"
#include "actors/partial_run.h"
#include "base/recently_used.h"
#include "plan/plan.h"
#include "troupe/session.h"

namespace troupe {

class SessionHelper;  // session.cpp

class Session::Prepared {
 public:
  using Homes = std::map<std::string, uint32_t>;
  std::weak_ptr<Impl> session;  // whose it is
  std::shared_ptr<const StepPlan> plan;
  std::vector<const Node*> targets;
  std::shared_ptr<CutProgram> program;  // of a plan that several tasks run
  /// In a cluster: on which devices the plan has its resources, by key, and ClusterView::resets() when that held last.
  Homes homes;
  std::atomic<uint64_t> resets = 0;
  /// The plan without passes, for runs that check numerics; made for the first of them, kept under plans_mutex.
  std::shared_ptr<const StepPlan> as_written;
  std::shared_ptr<CutProgram> program_as_written;
};

class Session::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Engine* engine, std::shared_ptr<Engine::Impl> e, const Graph& graph, SessionOptions options)
      : engine(engine), e(std::move(e)), graph(graph), options(std::move(options)),
        plans(static_cast<size_t>(std::max<int64_t>(this->options.plans, 1)),
              std::max<int64_t>(this->options.plan_bytes, 0)),
        number(this->e->cluster ? this->e->cluster->next_session.fetch_add(1, std::memory_order_relaxed) : 0) {}
  ~Impl() {
    if (e->cluster && !e->cluster->in_child())
      for (const auto& [task, link] : e->cluster->links) link->drop_session(number);
  }

  /// Why no step can begin, if so.
  Status status() const;
  Result<std::shared_ptr<Prepared>> prepare(std::vector<Output> feeds, std::vector<Output> fetches,
                                            const std::vector<const Node*>& targets, bool partial = false);
  /// Begins a step; an error if it cannot begin, and then nothing calls `done`. `inline_end`: a step without nodes ends
  /// here, on the caller's thread. `partial`: of a partial run, which brings its values later. `helper`: of a caller
  /// that will run what it is told, at once.
  Status start(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values, RunCallback& done,
               const RunOptions& run, bool inline_end, std::shared_ptr<PartialStep> partial = nullptr,
               SessionHelper* helper = nullptr);
  /// Has the step end by its deadline.
  void watch(const StepRef& call, std::chrono::nanoseconds deadline);
  /// start(), whose errors come to `done` as all results do.
  void start_async(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values, RunCallback done,
                   const RunOptions& run);
  /// Has a thread of the engine call `done`. A close() that comes later waits for it; `of_step`: so does one that has
  /// begun, since it is a step in flight that `done` waited for.
  void answer(RunCallback done, RunResult result, bool of_step = false);
  RunResult run(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values, const RunOptions& run);
  Result<std::shared_ptr<const StepPlan>> plan(std::vector<Output> feeds, std::vector<Output> fetches,
                                               const std::vector<const Node*>& targets, const GraphPasses& passes,
                                               bool partial, Prepared::Homes* homes = nullptr);
  /// Gives what was reset since the plan was made the home again that the plan has for it, with what was restored
  /// meanwhile. Error: it has another one by now.
  Status claim_homes(Prepared& prepared);
  /// The plan without passes, and the program of it.
  Result<std::pair<std::shared_ptr<const StepPlan>, std::shared_ptr<CutProgram>>> as_written(Prepared& prepared);
  /// Tells the tasks of a plan that several run; nullptr for one of this task alone.
  Result<std::shared_ptr<CutProgram>> tell_tasks(const StepPlan& plan);
  /// Adds to `out` what the steps of a plan have measured.
  void add_costs(const Prepared& prepared, CostModel& out) const;
  CostModel costs();
  void close();
  void step_ended() {
    std::lock_guard guard(idle_mutex);
    if (--in_flight == 0) idle.notify_all();
  }

  Engine* const engine;  // none: the engine's own session
  const std::shared_ptr<Engine::Impl> e;
  const Graph& graph;
  const SessionOptions options;
  std::atomic<bool> closed{false};

  KernelCache kernels;
  std::mutex plans_mutex;  // guards the next two; not held while a plan is made
  RecentlyUsed<Prepared> plans;
  CostModel costs_of_gone;  // plans
  const uint64_t number;    // for the tasks of a cluster

  std::mutex idle_mutex;
  std::condition_variable idle;
  int64_t in_flight = 0;  // callbacks that close() waits for
};

}  // namespace troupe
