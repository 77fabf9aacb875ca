// SPDX-License-Identifier: Apache-2.0
// Sessions: plans by signature, the start of steps, waiting for their ends.
#include "troupe/session.h"

#include <condition_variable>
#include <mutex>
#include <semaphore>

#include "actors/engine_impl.h"
#include "actors/messages.h"
#include "actors/step_timer.h"

namespace troupe {

// -- cancel tokens ----------------------------------------------------------------------------------------------------

/// Knows the runs it may have to cancel, while they run.
class CancelToken::State {
 public:
  /// False, without keeping it, if cancel() has come already.
  bool add(uint64_t id, std::function<void()> abort) {
    std::lock_guard guard(mutex_);
    if (cancelled_) return false;
    aborts_.emplace(id, std::move(abort));
    return true;
  }
  void remove(uint64_t id) {
    std::lock_guard guard(mutex_);
    aborts_.erase(id);
  }
  void cancel() {
    std::unordered_map<uint64_t, std::function<void()>> aborts;
    {
      std::lock_guard guard(mutex_);
      cancelled_ = true;
      aborts.swap(aborts_);
    }
    for (auto& [id, abort] : aborts) abort();
  }
  bool cancelled() const {
    std::lock_guard guard(mutex_);
    return cancelled_;
  }

 private:
  mutable std::mutex mutex_;
  bool cancelled_ = false;
  std::unordered_map<uint64_t, std::function<void()>> aborts_;
};

CancelToken::CancelToken() : state_(std::make_shared<State>()) {}
void CancelToken::cancel() { state_->cancel(); }
bool CancelToken::cancelled() const { return state_->cancelled(); }

// -- session ----------------------------------------------------------------------------------------------------------

class Session::Prepared {
 public:
  std::shared_ptr<const StepPlan> plan;
  std::vector<const Node*> targets;
  /// The plan without passes, for runs that check numerics; made for the first of them, under plans_mutex.
  std::shared_ptr<const StepPlan> as_written;
};

class Session::Impl {
 public:
  Impl(Engine& engine, const Graph& graph, SessionOptions options)
      : engine(engine), graph(graph), options(std::move(options)) {}

  Result<std::shared_ptr<Prepared>> prepare(std::vector<Output> feeds, std::vector<Output> fetches,
                                            const std::vector<const Node*>& targets);
  void start(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values, RunCallback done,
             const RunOptions& run);
  Result<std::shared_ptr<const StepPlan>> plan(std::vector<Output> feeds, std::vector<Output> fetches,
                                               const std::vector<const Node*>& targets, const GraphPasses& passes);
  Result<std::shared_ptr<const StepPlan>> as_written(Prepared& prepared);
  CostModel costs();
  void step_ended() {
    // Under the lock: the destructor may go on as soon as it sees zero, and take the condition with it.
    std::lock_guard guard(idle_mutex);
    if (--in_flight == 0) idle.notify_all();
  }

  Engine& engine;
  const Graph& graph;
  const SessionOptions options;

  std::mutex plans_mutex;  // guards the next two
  std::unordered_map<std::string, std::shared_ptr<Prepared>> plans;
  KernelCache kernels;

  std::mutex idle_mutex;
  std::condition_variable idle;
  int64_t in_flight = 0;
};

namespace {

/// What makes two runs share a plan.
std::string signature(const std::vector<Output>& feeds, const std::vector<Output>& fetches,
                      const std::vector<const Node*>& targets) {
  std::string key;
  auto add = [&key](int id, int port) {
    key.append(reinterpret_cast<const char*>(&id), sizeof id);
    key.append(reinterpret_cast<const char*>(&port), sizeof port);
  };
  for (const Output& o : feeds) add(o.node->id(), o.port);
  add(-1, -1);
  for (const Output& o : fetches) add(o.node->id(), o.port);
  add(-1, -1);
  for (const Node* n : targets) add(n->id(), 0);
  return key;
}

Status check_output(const Output& o, const char* what) {
  if (!o.node) return invalid_argument("an empty output cannot be {}", what);
  if (o.port < 0 || o.port >= o.node->num_outputs())
    return make_error(Code::kNotFound, "node '{}' has {} outputs, no number {} to be {}", o.node->name(),
                      o.node->num_outputs(), o.port, what);
  return {};
}

Status check_feed(const Output& o, const Tensor& value) {
  if (value.dtype() != o.dtype())
    return invalid_argument("feed of '{}': {} expected, {} given", o.name(), to_string(o.dtype()),
                            to_string(value.dtype()));
  if (!o.shape().compatible(value.shape()))
    return invalid_argument("feed of '{}': shape {} expected, {} given", o.name(), o.shape().str(),
                            value.shape().str());
  return {};
}

/// A callback and a way to wait for it.
class Waiter {
 public:
  RunCallback callback() {
    return [this](RunResult r) {
      result_ = std::move(r);
      done_.release();
    };
  }
  RunResult wait() {
    done_.acquire();
    return std::move(*result_);
  }

 private:
  std::optional<RunResult> result_;
  std::binary_semaphore done_{0};
};

void split(const std::vector<Feed>& feeds, std::vector<Output>& outputs, std::vector<Tensor>& values) {
  for (const Feed& f : feeds) {
    outputs.push_back(f.output);
    values.push_back(f.value);
  }
}

}  // namespace

Result<std::shared_ptr<Session::Prepared>> Session::Impl::prepare(std::vector<Output> feeds,
                                                                  std::vector<Output> fetches,
                                                                  const std::vector<const Node*>& targets) {
  for (const Output& o : feeds) TROUPE_RETURN_IF_ERROR(check_output(o, "fed"));
  for (const Output& o : fetches) TROUPE_RETURN_IF_ERROR(check_output(o, "fetched"));
  for (const Node* n : targets)
    if (!n) return invalid_argument("an empty node cannot be a target");
  for (size_t i = 0; i < feeds.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (feeds[i] == feeds[j]) return invalid_argument("'{}' is fed twice", feeds[i].name());

  TROUPE_RETURN_IF_ERROR(graph.status());
  std::string key = signature(feeds, fetches, targets);
  std::lock_guard guard(plans_mutex);
  if (auto at = plans.find(key); at != plans.end()) return at->second;
  auto prepared = std::make_shared<Prepared>();
  TROUPE_ASSIGN(prepared->plan, plan(std::move(feeds), std::move(fetches), targets, options.passes));
  prepared->targets = targets;
  plans.emplace(std::move(key), prepared);
  return prepared;
}

/// Makes a plan; under plans_mutex.
Result<std::shared_ptr<const StepPlan>> Session::Impl::plan(std::vector<Output> feeds, std::vector<Output> fetches,
                                                            const std::vector<const Node*>& targets,
                                                            const GraphPasses& passes) {
  Engine::Impl& e = engine.impl();
  PlanContext context{e.kernels,
                      e.devices,
                      0,
                      options.soft_placement,
                      passes,
                      options.priority,
                      options.placing,
                      options.costs.get(),
                      options.link.value_or(e.link),
                      options.timed_steps,
                      options.compress_transfers,
                      options.schedule_receives};
  if (!options.default_device.empty()) {
    TROUPE_ASSIGN(context.default_device, find_device(options.default_device, e.devices));
  }
  std::lock_guard growth(graph.mutex());
  return make_plan(graph, std::move(feeds), std::move(fetches), targets, context, kernels);
}

Result<std::shared_ptr<const StepPlan>> Session::Impl::as_written(Prepared& prepared) {
  std::lock_guard guard(plans_mutex);
  if (!prepared.as_written) {
    TROUPE_ASSIGN(prepared.as_written,
                  plan(prepared.plan->feeds, prepared.plan->fetches, prepared.targets, GraphPasses::none()));
  }
  return prepared.as_written;
}

void Session::Impl::start(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values, RunCallback done,
                          const RunOptions& run) {
  auto chosen = run.check_numerics ? as_written(*prepared) : prepared->plan;
  if (!chosen.ok()) return done(std::move(chosen.error()));
  const StepPlan& plan = **chosen;
  Status status;
  if (values.size() != plan.feeds.size())
    status = invalid_argument("{} values for {} feeds", values.size(), plan.feeds.size());
  for (size_t i = 0; status.ok() && i < values.size(); ++i) status = check_feed(plan.feeds[i], values[i]);
  if (!status.ok()) return done(std::move(status.error()));

  Engine::Impl& e = engine.impl();
  const int64_t id = e.next_step.fetch_add(1, std::memory_order_relaxed);
  {
    std::lock_guard guard(idle_mutex);
    ++in_flight;
  }
  std::shared_ptr<CancelToken::State> token = run.cancel ? run.cancel->state() : nullptr;
  auto ended = [this, id, token, done = std::move(done)](RunResult result) mutable {
    if (token) token->remove(static_cast<uint64_t>(id));
    done(std::move(result));
    done = nullptr;  // what the caller captured goes before the session may
    step_ended();
  };
  // Not make_shared: the timer's weak reference must not keep the step's memory.
  StepRef call(
      new StepCall(id, *chosen, std::move(values), run.check_numerics, std::move(ended), run.trace, run.random_step));
  if (token && !token->add(static_cast<uint64_t>(id), [weak = std::weak_ptr(call), directory = e.directory] {
        if (StepRef running = weak.lock())
          abort_step(running, make_error(Code::kCancelled, "the caller cancelled"), *directory);
      })) {
    call->fail(make_error(Code::kCancelled, "the caller had cancelled"));
  }
  const auto deadline = run.deadline.count() > 0 ? run.deadline : options.deadline;
  if (deadline.count() > 0)
    caf::anon_send(e.timer, WatchStep{call, e.system->clock().now() +
                                                std::chrono::duration_cast<caf::actor_clock::duration_type>(deadline)});
  if (plan.partitions.empty()) return call->finish();
  bool simulated = false;
  for (const PartitionPlan& partition : plan.partitions) {
    const caf::actor& actor = e.directory->devices[partition.device];
    if (actor == e.sim && std::exchange(simulated, true)) continue;  // it has been told of all that it does
    e.directory->tell_device(partition.device, RunStep{partition.device, call});
  }
}

CostModel Session::Impl::costs() {
  CostModel out = options.costs ? *options.costs : CostModel();
  const auto add = [&](const StepPlan& plan) {
    for (const PartitionPlan& partition : plan.partitions) {
      const std::string kind = kind_of(engine.impl().devices[partition.device]);
      for (uint32_t i = 0; i < partition.size(); ++i) {
        const PartitionPlan::Measured& m = partition.measured[i];
        if (const uint32_t firings = m.firings.load(std::memory_order_acquire))
          out.add(partition.graph_nodes[i]->name(), kind, m.ns.load(std::memory_order_relaxed),
                  m.bytes.load(std::memory_order_relaxed), firings, m.in_step.load(std::memory_order_relaxed));
      }
    }
  };
  std::lock_guard guard(plans_mutex);
  for (const auto& [signature, prepared] : plans) {
    add(*prepared->plan);
    if (prepared->as_written) add(*prepared->as_written);
  }
  return out;
}

Session::Session(Engine& engine, const Graph& graph, SessionOptions options)
    : impl_(std::make_unique<Impl>(engine, graph, std::move(options))) {}

Session::~Session() {
  std::unique_lock lock(impl_->idle_mutex);
  impl_->idle.wait(lock, [this] { return impl_->in_flight == 0; });
}

Engine& Session::engine() const { return impl_->engine; }
const Graph& Session::graph() const { return impl_->graph; }
CostModel Session::costs() const { return impl_->costs(); }

Result<std::shared_ptr<Session::Prepared>> Session::prepare(const std::vector<Output>& feeds,
                                                            const std::vector<Output>& fetches,
                                                            const std::vector<const Node*>& targets) {
  return impl_->prepare(feeds, fetches, targets);
}

RunResult Session::run(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values,
                       const RunOptions& options) {
  Waiter waiter;
  impl_->start(prepared, std::move(values), waiter.callback(), options);
  return waiter.wait();
}

void Session::run_async(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values, RunCallback done,
                        const RunOptions& options) {
  impl_->start(prepared, std::move(values), std::move(done), options);
}

void Session::run_async(const std::vector<Feed>& feeds, const std::vector<Output>& fetches,
                        const std::vector<const Node*>& targets, RunCallback done, const RunOptions& options) {
  std::vector<Output> outputs;
  std::vector<Tensor> values;
  split(feeds, outputs, values);
  auto prepared = impl_->prepare(std::move(outputs), fetches, targets);
  if (!prepared.ok()) return done(std::move(prepared.error()));
  impl_->start(*prepared, std::move(values), std::move(done), options);
}

RunResult Session::run(const std::vector<Feed>& feeds, const std::vector<Output>& fetches,
                       const std::vector<const Node*>& targets, const RunOptions& options) {
  Waiter waiter;
  run_async(feeds, fetches, targets, waiter.callback(), options);
  return waiter.wait();
}

std::future<RunResult> Session::run_future(const std::vector<Feed>& feeds, const std::vector<Output>& fetches,
                                           const std::vector<const Node*>& targets, const RunOptions& options) {
  auto promise = std::make_shared<std::promise<RunResult>>();
  std::future<RunResult> out = promise->get_future();
  run_async(
      feeds, fetches, targets, [promise](RunResult r) { promise->set_value(std::move(r)); }, options);
  return out;
}

RunResult Session::run(const std::vector<std::pair<std::string, Tensor>>& feeds,
                       const std::vector<std::string>& fetches, const std::vector<std::string>& targets,
                       const RunOptions& options) {
  const Graph& graph = impl_->graph;
  std::vector<Feed> fed;
  std::vector<Output> fetched;
  std::vector<const Node*> wanted;
  for (const auto& [name, value] : feeds) {
    TROUPE_ASSIGN(const Output output, graph.output(name));
    fed.push_back({output, value});
  }
  for (const std::string& name : fetches) {
    TROUPE_ASSIGN(const Output output, graph.output(name));
    fetched.push_back(output);
  }
  for (const std::string& name : targets) {
    const Node* node = graph.find(name);
    if (!node) return make_error(Code::kNotFound, "the graph has no node '{}' to be a target", name);
    wanted.push_back(node);
  }
  return run(fed, fetched, wanted, options);
}

}  // namespace troupe
