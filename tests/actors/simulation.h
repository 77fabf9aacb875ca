// SPDX-License-Identifier: Apache-2.0
// Simulation: an engine's actors under a scheduler that carries out one message at a time, in the order that the test
// chooses, all in the test's thread. What may wait (kernels, jobs) runs there too, when its turn comes. Time stands
// still unless the test moves it.
#pragma once
#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <catch2/catch.hpp>

#include <deque>
#include <map>

#include "actors/blocking_jobs.h"
#include "actors/device_actor.h"
#include "actors/resource_actor.h"
#include "actors/step_timer.h"
#include "containers/container.h"
#include "ops/input/file_reader.h"
#include "ops/input/iterator_resource.h"
#include "plan/plan.h"
#include "queues/queue.h"
#include "tests/op_library.h"
#include "troupe/dataset.h"
#include "troupe/scope.h"

namespace troupe {

/// What actors carried out, in order: see Simulation::carry_out.
using Messages = std::vector<std::string>;

class Simulation {
 public:
  explicit Simulation(uint32_t count = 2) : system_(configure(config_)), scheduler_(coordinator(system_)) {
    scheduler_.clock().current_time += std::chrono::hours(1);  // a real clock is not at 0
    directory = std::make_shared<Directory>([this](std::unique_ptr<Resource> resource) -> caf::actor {
      const std::string name = dynamic_cast<Container*>(resource.get())          ? "container"
                               : dynamic_cast<Queue*>(resource.get())            ? "queue"
                               : dynamic_cast<FileReader*>(resource.get())       ? "reader"
                               : dynamic_cast<IteratorResource*>(resource.get()) ? "iterator"
                                                                                 : "mutex";
      return named(name, system_.spawn<ResourceActor>(std::move(resource), directory));
    });
    counters.resize(count);
    for (uint32_t i = 0; i < count; ++i)
      devices.push_back(
          {fmt::format("/job:localhost/replica:0/task:0/device:cpu:{}", i), DeviceKind::kCpu, 1, system_allocator()});
    for (const DeviceInfo& device : devices) working_.emplace_back(device);
    for (uint32_t i = 0; i < count; ++i)
      directory->devices.push_back(
          named(fmt::format("cpu:{}", i),
                system_.spawn<DeviceActor>(i, std::ref(working_[i]), std::ref(counters[i]), directory)));
    directory->blocking = std::make_shared<BlockingJobs>(
        [this](BlockingJobs::Job job) -> Status {
          jobs_.push_back(std::move(job));
          return {};
        },
        *directory);
    timer = named("timer", system_.spawn<StepTimer>(directory));
    settle();
  }
  ~Simulation() {
    caf::anon_send_exit(timer, caf::exit_reason::user_shutdown);
    for (const caf::actor& actor : directory->all()) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    settle();
    directory->blocking->close();
    jobs_.clear();
    directory.reset();
    timer = nullptr;
  }

  /// Begins a step as a session does. Its end is put into `results`, by the number of the step, once.
  StepRef start(std::vector<Output> fetches, std::vector<const Node*> targets = {}) {
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    auto plan = make_plan(graph, {}, std::move(fetches), targets,
                          {.kernels = kernels, .devices = devices, .passes = GraphPasses::none()}, cache_);
    INFO((plan.ok() ? "" : plan.error().str()));
    REQUIRE(plan.ok());
    const int64_t id = next_step_++;
    auto call =
        std::make_shared<StepCall>(id, *plan, std::vector<Tensor>(), false, [this, id](Result<std::vector<Tensor>> r) {
          CHECK_FALSE(results.contains(id));
          results.emplace(id, std::move(r));
        });
    for (const PartitionPlan& partition : call->plan->partitions)
      caf::anon_send(directory->devices[partition.device], RunStep{partition.device, call});
    return call;
  }
  /// Has the step end with kDeadlineExceeded after `span`.
  void watch(const StepRef& call, caf::timespan span) {
    caf::anon_send(timer, WatchStep{call, scheduler_.clock().now() + span, span});
  }
  void advance(caf::timespan span) { scheduler_.clock().advance_time(span); }

  /// Actors that have a message, or another reason to run; behind them, what waits for a thread.
  size_t waiting() const { return scheduler_.jobs.size() + jobs_.size(); }
  /// Has the i-th of them carry out one message; returns who, and which: "cpu:0 RunStep". Of a job: "job".
  std::string carry_out(size_t i = 0) {
    auto& jobs = scheduler_.jobs;
    if (i >= jobs.size()) {
      const auto at = jobs_.begin() + static_cast<ptrdiff_t>(i - jobs.size());
      const BlockingJobs::Job job = std::move(*at);
      jobs_.erase(at);
      job();
      return "job";
    }
    std::rotate(jobs.begin(), jobs.begin() + static_cast<ptrdiff_t>(i), jobs.begin() + static_cast<ptrdiff_t>(i) + 1);
    auto& actor = scheduler_.next_job<caf::scheduled_actor>();
    std::string out = names_[actor.id()];
    if (const caf::mailbox_element* message = actor.mailbox().peek()) out += " " + kind(message->content());
    scheduler_.run_once();
    return out;
  }
  /// All messages until nothing is left to do, first come first served.
  Messages settle() {
    Messages out;
    while (waiting() > 0) out.push_back(carry_out());
    return out;
  }

  OpRegistry ops = testing::op_library()->ops;
  KernelRegistry kernels = testing::op_library()->kernels;
  Graph graph{ops};
  Scope scope{graph};
  std::vector<DeviceInfo> devices;
  std::deque<Executor::Counters> counters;  // of each device
  std::shared_ptr<Directory> directory;
  caf::actor timer;
  std::map<int64_t, Result<std::vector<Tensor>>> results;

 private:
  static caf::actor_system_config& configure(caf::actor_system_config& config) {
    config.set("scheduler.policy", caf::atom("testing"));
    return config;
  }
  static caf::scheduler::test_coordinator& coordinator(caf::actor_system& system) {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  }
  caf::actor named(const std::string& name, caf::actor actor) {
    names_[actor.id()] = name;
    return actor;
  }
  template <class T> static bool is(const caf::type_erased_tuple& message) { return message.match_elements<T>(); }
  static std::string kind(const caf::type_erased_tuple& m) {
    return is<RunStep>(m)           ? "RunStep"
           : is<TensorsReady>(m)    ? "TensorsReady"
           : is<AbortStep>(m)       ? "AbortStep"
           : is<GoOn>(m)            ? "GoOn"
           : is<UseResource>(m)     ? "UseResource"
           : is<AskResource>(m)     ? "AskResource"
           : is<WakeResource>(m)    ? "WakeResource"
           : is<ResourceAnswers>(m) ? "ResourceAnswers"
           : is<CancelUses>(m)      ? "CancelUses"
           : is<WithResource>(m)    ? "WithResource"
           : is<CloseResource>(m)   ? "CloseResource"
           : is<Work>(m)            ? "Work"
           : is<WatchStep>(m)       ? "WatchStep"
           : is<DeadlinePassed>(m)  ? "DeadlinePassed"
                                    : "";
  }

  caf::actor_system_config config_;
  caf::actor_system system_;
  caf::scheduler::test_coordinator& scheduler_;
  std::map<caf::actor_id, std::string> names_;
  KernelCache cache_;
  int64_t next_step_ = 1;
  std::deque<CpuDevice> working_;
  std::deque<BlockingJobs::Job> jobs_;
};

}  // namespace troupe
