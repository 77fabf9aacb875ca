// SPDX-License-Identifier: Apache-2.0
// Sessions: plans by signature, the start of steps, waiting for their ends.
#include "troupe/session.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <thread>

#include "actors/cluster_view.h"
#include "actors/engine_impl.h"
#include "actors/lender.h"
#include "actors/messages.h"
#include "actors/partial_run.h"
#include "actors/run_server.h"
#include "actors/session_impl.h"
#include "actors/step_timer.h"
#include "base/engine_thread.h"
#include "base/long_wait.h"
#include "base/making.h"
#include "base/recently_used.h"
#include "base/relax.h"
#include "base/stack.h"
#include "devices/parallel.h"
#include "graph/feed_check.h"
#include "graph/prune.h"
#include "plan/plan.h"
#include "troupe/guarded.h"

namespace troupe {

// -- cancel tokens ----------------------------------------------------------------------------------------------------

/// Knows the runs it may have to cancel, of whatever engines, while they run.
class CancelToken::State {
 public:
  /// A number for a run that will be added.
  uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed); }
  /// False, without keeping it, if cancel() has come already.
  bool add(uint64_t run, std::function<void()> abort) {
    std::lock_guard guard(mutex_);
    if (cancelled_) return false;
    aborts_.emplace(run, std::move(abort));
    return true;
  }
  void remove(uint64_t run) {
    std::lock_guard guard(mutex_);
    aborts_.erase(run);
  }
  void cancel() {
    std::unordered_map<uint64_t, std::function<void()>> aborts;
    {
      std::lock_guard guard(mutex_);
      cancelled_ = true;
      aborts.swap(aborts_);
    }
    for (auto& [run, abort] : aborts) abort();
  }
  bool cancelled() const {
    std::lock_guard guard(mutex_);
    return cancelled_;
  }

 private:
  std::atomic<uint64_t> next_{0};
  mutable std::mutex mutex_;
  bool cancelled_ = false;
  std::unordered_map<uint64_t, std::function<void()>> aborts_;
};

CancelToken::CancelToken() : state_(std::make_shared<State>()) {}
void CancelToken::cancel() { state_->cancel(); }
bool CancelToken::cancelled() const { return state_->cancelled(); }

/// Lets the thread that waits for a step run one of the step's devices (lender.h), so that a step of one device wakes
/// nobody and stays in one core's cache. Not a thread whose stack is small, or not the system's: it may be a fiber's.
/// While it helps, the engine does not end.
class SessionHelper {
 public:
  explicit SessionHelper(Engine::Impl& engine)
      : engine_(engine), lender_(engine.system(), Lender::Time::kAll), free_(!engine.network && has_stack(kStack)) {}
  ~SessionHelper() {
    if (helps_) engine_.directory->steps.answered();
  }
  SessionHelper(const SessionHelper&) = delete;

  /// Within from_outside().
  void tell(uint32_t device, RunStep message) {
    const DeviceInfo& info = engine_.devices[device];
    if (!free_ || info.kind != DeviceKind::kCpu || (info.threads > 1 && !engine_.leaders[device].take()))
      return engine_.directory->tell_device(device, std::move(message));
    free_ = false;
    helps_ = true;
    engine_.directory->steps.will_answer();
    engine_.directory->tell_device_by(&lender_, device, std::move(message));
  }
  void run(const std::function<bool()>& done) {
    if (!helps_) return;
    const KeptTeam kept;
    lender_.run(done);
  }

 private:
  static constexpr size_t kStack = size_t{1} << 20;

  Engine::Impl& engine_;
  Lender lender_;
  bool free_, helps_ = false;
};

// -- session ----------------------------------------------------------------------------------------------------------

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

/// An output that is there twice; an empty one: none is.
Output find_twice(const std::vector<Output>& outputs) {
  constexpr size_t kFew = 16;
  if (outputs.size() <= kFew) {
    for (size_t i = 0; i < outputs.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (outputs[i] == outputs[j]) return outputs[i];
    return {};
  }
  std::vector<Output> sorted = outputs;
  std::ranges::sort(sorted, {}, [](const Output& o) { return std::pair(o.node->id(), o.port); });
  const auto at = std::ranges::adjacent_find(sorted);
  return at == sorted.end() ? Output() : *at;
}

/// Bytes of the constants that passes made for a plan.
int64_t bytes_of_constants(const StepPlan& plan) {
  int64_t bytes = 0;
  for (const Node& node : *plan.made_nodes)
    if (const auto* value = node.op().name() == "Const" ? node.attrs().get<Tensor>("value") : nullptr)
      bytes += static_cast<int64_t>(value->bytes());
  return bytes;
}

Error asks_for_itself() {
  return make_error(Code::kFailedPrecondition,
                    "a priority function, a kernel or its factory must not run what the plan is made for that it is "
                    "called for");
}

/// A callback and a way to wait for it. With `spins` a thread that waits spins first, as the engine's workers do
/// (scheduler.h), so that a short step wakes nobody.
class Waiter {
 public:
  RunCallback callback() {
    return [this](RunResult r) {
      result_ = std::move(r);
      has_result_.store(true, std::memory_order_relaxed);
      done_.release();
    };
  }
  bool done() const { return has_result_.load(std::memory_order_relaxed); }
  RunResult wait(bool spins) {
    const auto begun = std::chrono::steady_clock::now();
    bool done = false;
    for (int i = 1; spins && !(done = done_.try_acquire()); ++i) {
      relax();
      if (i % 10 != 0) continue;
      if (std::chrono::steady_clock::now() - begun > kMostSpin) break;
      std::this_thread::yield();
    }
    if (!done) done_.acquire();
    return std::move(*result_);
  }

 private:
  static constexpr std::chrono::microseconds kMostSpin{50};

  std::optional<RunResult> result_;
  std::atomic<bool> has_result_ = false;
  std::binary_semaphore done_{0};
};

}  // namespace

Status Session::Impl::status() const {
  TROUPE_RETURN_IF_ERROR(e->status());
  if (closed) return make_error(Code::kFailedPrecondition, "the session is closed");
  return {};
}

Result<std::shared_ptr<Session::Prepared>> Session::Impl::prepare(std::vector<Output> feeds,
                                                                  std::vector<Output> fetches,
                                                                  const std::vector<const Node*>& targets,
                                                                  bool partial) {
  TROUPE_RETURN_IF_ERROR(status());
  TROUPE_RETURN_IF_ERROR(graph.status());
  {
    std::lock_guard growth(graph.mutex());
    TROUPE_RETURN_IF_ERROR(check_signature(graph, feeds, fetches, targets));
  }
  if (const Output twice = find_twice(feeds)) return invalid_argument("'{}' is fed twice", twice.name());

  std::string key = signature(feeds, fetches, targets);
  if (partial) key += "partial";
  {
    std::lock_guard guard(plans_mutex);
    if (auto known = plans.find(key)) return known;
  }
  if (Making::has(this, key)) return asks_for_itself();
  const Making making(this, key);
  auto prepared = std::make_shared<Prepared>();
  prepared->session = weak_from_this();
  if (e->cluster) prepared->resets = e->cluster->resets();
  TROUPE_ASSIGN(prepared->plan,
                plan(std::move(feeds), std::move(fetches), targets, options.passes, partial, &prepared->homes));
  prepared->targets = targets;
  TROUPE_ASSIGN(prepared->program, tell_tasks(*prepared->plan));
  std::vector<std::shared_ptr<Prepared>> gone;  // when nobody waits for the lock any more
  std::lock_guard guard(plans_mutex);
  if (auto known = plans.find(key)) return known;  // another thread was faster
  gone = plans.add(key, prepared, bytes_of_constants(*prepared->plan));
  for (const auto& p : gone) add_costs(*p, costs_of_gone);
  if (!gone.empty()) kernels.forget_unused();
  return prepared;
}

/// Makes a plan; without a lock, since it calls the user's functions.
Result<std::shared_ptr<const StepPlan>> Session::Impl::plan(std::vector<Output> feeds, std::vector<Output> fetches,
                                                            const std::vector<const Node*>& targets,
                                                            const GraphPasses& passes, bool partial,
                                                            Prepared::Homes* homes) {
  if (const auto& link = options.link; link && (!(link->bandwidth > 0) || !(link->latency_ns >= 0)))
    return invalid_argument("a link's bandwidth must be positive and its latency at least 0, got {} B/s and {} ns",
                            link->bandwidth, link->latency_ns);
  PlanContext context{.kernels = e->kernels,
                      .devices = e->all_devices,
                      .soft_placement = options.soft_placement,
                      .passes = passes,
                      .priority = options.priority,
                      .placing = options.placing,
                      .costs = options.costs.get(),
                      .links = options.link ? Links(*options.link) : e->links,
                      .timed_steps = options.timed_steps,
                      .compress_transfers = options.compress_transfers,
                      .schedule_receives = options.schedule_receives,
                      .swap_to_host_after = options.swap_to_host_after,
                      .partial = partial,
                      .task = e->cluster ? e->cluster->task : std::string(),
                      .scatter = e->scatter};
  if (e->cluster)
    context.home = [cluster = e->cluster, homes](const std::string& key, uint32_t device) {
      const uint32_t home = cluster->home(key, device);
      if (homes) homes->emplace(key, home);
      return home;
    };
  if (e->gpus && e->gpus->collectives())
    context.collectives = [this](std::span<const uint32_t> devices) {
      std::vector<const gpu::Compute*> computes;
      for (const uint32_t device : devices) computes.push_back(e->all_devices[device].gpu);
      return e->gpus->collectives()->can_join(computes);
    };
  if (!options.default_device.empty()) {
    TROUPE_ASSIGN(context.default_device, find_device(options.default_device, e->all_devices));
  }
  return guarded([&] { return make_plan(graph, std::move(feeds), std::move(fetches), targets, context, kernels); });
}

Status Session::Impl::claim_homes(Prepared& prepared) {
  const uint64_t resets = e->cluster->resets();
  if (prepared.resets == resets) return {};
  for (const auto& [key, device] : prepared.homes) {
    const std::string &then = e->all_devices[device].name, &now = e->all_devices[e->cluster->home(key, device)].name;
    if (task_of(then) != task_of(now))
      return invalid_argument("{} is on {} since its container was reset, and was on {} when this was first run", key,
                              task_of(now), task_of(then));
  }
  prepared.resets = resets;
  return {};
}

Result<std::shared_ptr<CutProgram>> Session::Impl::tell_tasks(const StepPlan& plan) {
  if (!plan.cut) return std::shared_ptr<CutProgram>();
  return CutProgram::make(e->cluster, number, plan.cut, options.timed_steps);
}

Result<std::pair<std::shared_ptr<const StepPlan>, std::shared_ptr<CutProgram>>> Session::Impl::as_written(
    Prepared& prepared) {
  {
    std::lock_guard guard(plans_mutex);
    if (prepared.as_written) return std::pair(prepared.as_written, prepared.program_as_written);
  }
  constexpr std::string_view kAsWritten = "as written";
  if (Making::has(&prepared, kAsWritten)) return asks_for_itself();
  const Making making(&prepared, kAsWritten);
  TROUPE_ASSIGN(auto made, plan(prepared.plan->feeds, prepared.plan->fetches, prepared.targets, GraphPasses::none(),
                                prepared.plan->partial.has_value()));
  TROUPE_ASSIGN(auto program, tell_tasks(*made));
  std::lock_guard guard(plans_mutex);
  if (!prepared.as_written) {
    prepared.as_written = std::move(made);
    prepared.program_as_written = std::move(program);
  }
  return std::pair(prepared.as_written, prepared.program_as_written);
}

Status Session::Impl::start(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values, RunCallback& done,
                            const RunOptions& run, bool inline_end, std::shared_ptr<PartialStep> partial,
                            SessionHelper* helper) {
  TROUPE_RETURN_IF_ERROR(status());
  if (!prepared) return invalid_argument("nothing was prepared to be run: the pointer is empty");
  if (prepared->session.lock().get() != this)
    return invalid_argument("what was prepared by another session cannot be run by this one");
  if (e->cluster) TROUPE_RETURN_IF_ERROR(claim_homes(*prepared));
  std::pair chosen(prepared->plan, prepared->program);
  if (run.check_numerics) {
    TROUPE_ASSIGN(chosen, as_written(*prepared));
  }
  const StepPlan& plan = *chosen.first;
  const std::shared_ptr<CutProgram> program = chosen.second;
  if (!partial && values.size() != plan.feeds.size())
    return invalid_argument("{} values for {} feeds", values.size(), plan.feeds.size());
  for (size_t i = 0; i < values.size(); ++i) {
    TROUPE_RETURN_IF_ERROR(check_feed(plan.feeds[i], values[i]));
    values[i].freeze();
  }
  TROUPE_RETURN_IF_ERROR(e->check_alive(plan));

  // The nodes alone: with the plan a trace would keep the memory of GPUs, which its constants are in.
  if (run.trace && !plan.made_nodes->empty()) run.trace->keep(plan.made_nodes);
  if (run.trace && !plan.conversions->empty()) run.trace->keep(plan.conversions);

  const int64_t id = program ? e->cluster->begin(e->next_step) : e->next_step.fetch_add(1, std::memory_order_relaxed);
  {
    std::lock_guard guard(idle_mutex);
    ++in_flight;
  }
  const std::shared_ptr<CancelToken::State> token = run.cancel ? run.cancel->state() : nullptr;
  const uint64_t token_run = token ? token->next() : 0;
  auto ended = [self = shared_from_this(), id, token, token_run, waits = inline_end,
                done = std::move(done)](RunResult result) mutable {
    Engine::Impl& e = *self->e;
    if (token) token->remove(token_run);
    e.directory->steps.ended(id);
    if (e.cluster) e.cluster->ended(id);
    // A callback may take its time.
    if (EngineThread::is_lent() && !waits) self->answer(std::move(done), std::move(result), true);
    else e.call(done, std::move(result));
    done = nullptr;  // what the caller captured goes before the session may
    self->step_ended();
    e.directory->steps.answered();
  };
  // Not make_shared: the timer's weak reference must not keep the step's memory.
  StepRef call(new StepCall(id, chosen.first, std::move(values), run.check_numerics, std::move(ended), run.trace,
                            run.random_step, program ? static_cast<int>(program->cut().parts.size()) : 0));
  if (program) call->parts = program->parts(id);
  if (partial) {
    partial->begin(call);
    call->sink = partial;
  }
  e->directory->steps.add(call, this);
  const auto deadline = run.deadline.count() != 0 ? run.deadline : options.deadline;
  const bool begun = e->directory->from_outside([&] {
    if (token && !token->add(token_run, [weak = std::weak_ptr(call), directory = e->directory] {
          if (StepRef running = weak.lock())
            directory->from_outside(
                [&] { abort_step(running, make_error(Code::kCancelled, "the caller cancelled"), *directory); });
        })) {
      call->fail(make_error(Code::kCancelled, "the caller had cancelled"));
    }
    if (deadline.count() != 0) watch(call, deadline);
    if (!program && plan.partitions.empty()) {
      if (!inline_end) caf::anon_send(e->caller, CallBack{[call] { call->finish(); }});
      return;
    }
    if (closed) call->fail(make_error(Code::kCancelled, "the session was closed"));  // close() may have missed it
    bool simulated = false;
    for (const PartitionPlan& partition : plan.partitions) {
      const caf::actor& actor = e->directory->devices[partition.device];
      if (actor == e->sim && std::exchange(simulated, true)) continue;  // it has been told of all that it does
      if (helper) helper->tell(partition.device, RunStep{partition.device, call});
      else e->directory->tell_device(partition.device, RunStep{partition.device, call});
    }
  });
  if (!begun) call->fail(e->status().error());
  if (begun && program)
    e->cluster->send_runs(id, program->changes_variables(),
                          [call, program, partial, engine = e] { program->run(call, *engine->directory, partial); });
  else if (!begun || (!program && plan.partitions.empty() && inline_end)) call->finish();
  return {};
}

void run_prepared(const std::shared_ptr<Session::Prepared>& prepared, std::vector<Tensor> values, RunCallback done,
                  const RunOptions& options) {
  const std::shared_ptr<Session::Impl> session = prepared ? prepared->session.lock() : nullptr;
  bool open = false;
  if (session) {
    std::lock_guard guard(session->idle_mutex);
    open = !session->closed;
    if (open) ++session->in_flight;  // close() waits until the step has begun
  }
  if (!open) return done(make_error(Code::kFailedPrecondition, "the session is closed"));
  session->start_async(prepared, std::move(values), std::move(done), options);
  session->step_ended();
}

void Session::Impl::watch(const StepRef& call, std::chrono::nanoseconds deadline) {
  using Clock = caf::actor_clock;
  const auto now = e->system().clock().now();
  if (deadline.count() < 0)
    call->fail(make_error(Code::kDeadlineExceeded, "a deadline of {} ns is before the step", deadline.count()));
  else if (deadline < Clock::time_point::max() - now)
    caf::anon_send(e->timer,
                   WatchStep{call, now + std::chrono::duration_cast<Clock::duration_type>(deadline), deadline});
}

void Session::Impl::start_async(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values, RunCallback done,
                                const RunOptions& run) {
  if (Status begun = start(prepared, std::move(values), done, run, false); !begun.ok())
    answer(std::move(done), std::move(begun.error()));
}

void Session::Impl::answer(RunCallback done, RunResult result, bool of_step) {
  const auto call = std::make_shared<std::pair<RunCallback, RunResult>>(std::move(done), std::move(result));
  const bool sent = e->usable() && e->directory->from_outside([&] {
    e->directory->steps.will_answer();
    bool awaited = false;
    {
      std::lock_guard guard(idle_mutex);
      awaited = of_step || !closed;
      if (awaited) ++in_flight;
    }
    caf::anon_send(e->caller, CallBack{[self = shared_from_this(), call, awaited] {
                     Engine::Impl& e = *self->e;
                     e.call(call->first, std::move(call->second));
                     call->first = nullptr;
                     if (awaited) self->step_ended();
                     e.directory->steps.answered();
                   }});
  });
  if (!sent) e->call(call->first, std::move(call->second));
}

RunResult Session::Impl::run(const std::shared_ptr<Prepared>& prepared, std::vector<Tensor> values,
                             const RunOptions& run) {
  TROUPE_RETURN_IF_ERROR(e->may_wait("Session::run", "run_async"));
  const LongWait wait;
  Waiter waiter;
  RunCallback done = waiter.callback();
  SessionHelper helper(*e);
  TROUPE_RETURN_IF_ERROR(start(prepared, std::move(values), done, run, true, nullptr, &helper));
  helper.run([&] { return waiter.done(); });
  return waiter.wait(!e->network);
}

void Session::Impl::close() {
  if (!e->in_child().ok()) {
    closed = true;  // nobody answers, and whoever held the lock is not here
    return;
  }
  {
    std::lock_guard guard(idle_mutex);
    closed = true;
  }
  // An engine that is ending, on another thread, has cancelled the steps itself; their callbacks are to be waited for.
  const std::vector<StepRef> running = e->directory->steps.running(this);
  e->directory->from_outside([&] {
    for (const StepRef& step : running)
      abort_step(step, make_error(Code::kCancelled, "the session was closed"), *e->directory);
  });
  // The callback under way is one of those to be waited for; an actor of the system may have the thread that they need.
  if (!e->check_thread("Session::close", "it from a thread of your own").ok()) return;
  std::unique_lock lock(idle_mutex);
  idle.wait(lock, [this] { return in_flight == 0; });
}

void Session::Impl::add_costs(const Prepared& prepared, CostModel& out) const {
  const auto add = [&](const StepPlan& plan) {
    for (const PartitionPlan& partition : plan.partitions) {
      const std::string kind = kind_of(e->all_devices[partition.device]);
      for (uint32_t i = 0; i < partition.size(); ++i) {
        const PartitionPlan::Measured& m = partition.measured[i];
        if (const uint32_t firings = m.firings.load(std::memory_order_acquire))
          out.add(partition.graph_nodes[i]->name(), kind, m.ns.load(std::memory_order_relaxed),
                  m.bytes.load(std::memory_order_relaxed), firings, m.in_step.load(std::memory_order_relaxed));
      }
    }
  };
  add(*prepared.plan);
  if (prepared.program) prepared.program->add_costs(out);
  if (prepared.as_written) add(*prepared.as_written);
  if (prepared.program_as_written) prepared.program_as_written->add_costs(out);
}

CostModel Session::Impl::costs() {
  CostModel out = options.costs ? *options.costs : CostModel();
  std::lock_guard guard(plans_mutex);
  out.add(costs_of_gone);
  plans.for_each([&](const Prepared& prepared) { add_costs(prepared, out); });
  return out;
}

namespace {

/// The session as its partial runs see it.
class PartialHost final : public PartialStep::Host {
 public:
  explicit PartialHost(std::shared_ptr<Session::Impl> session) : session_(std::move(session)) {}

  void send(const StepRef& step, const PartialPlan::Receiver& to, const Tensor& value) override {
    value.freeze();
    const Directory& directory = *session_->e->directory;
    const uint32_t device = step->plan->partitions[to.partition].device;
    directory.from_outside([&] {
      auto tensors = std::make_shared<std::vector<ReadyTensor>>();
      tensors->push_back({step, to.node, value});
      directory.tell_device(device, TensorsReady{device, std::move(tensors)});
    });
  }
  void abort(const StepRef& step, Error error) override {
    if (!in_child().ok()) return;
    const Directory& directory = *session_->e->directory;
    directory.from_outside([&] { abort_step(step, std::move(error), directory); });
  }
  void answer(PartialStep::Callback done, RunResult result, bool of_step) override {
    session_->answer(std::move(done), std::move(result), of_step);
  }
  Status in_child() const override { return session_->e->in_child(); }
  Status may_wait() const override { return session_->e->check_thread("PartialRun::run", "run_async"); }

 private:
  const std::shared_ptr<Session::Impl> session_;
};

}  // namespace

Result<PartialRun> Session::partial_run(const OutputList& feeds, const OutputList& fetches, const NodeList& targets,
                                        const RunOptions& options) {
  TROUPE_ASSIGN(const auto prepared, impl_->prepare(feeds.outputs, fetches.outputs, targets.nodes, true));
  if (const Output twice = find_twice(fetches.outputs)) return invalid_argument("'{}' is fetched twice", twice.name());
  auto step = std::make_shared<PartialStep>(std::make_shared<PartialHost>(impl_));
  RunCallback ended = [step](RunResult result) { step->ended(std::move(result)); };
  TROUPE_RETURN_IF_ERROR(impl_->start(prepared, {}, ended, options, true, step));
  return PartialRun(step);
}

Session::Session(Engine& engine, const Graph& graph, SessionOptions options)
    : impl_(std::make_shared<Impl>(&engine, engine.shared_impl(), graph, std::move(options))) {}

Session::~Session() { impl_->close(); }

void Session::close() { impl_->close(); }

Status Session::may_wait(std::string_view what, std::string_view instead) const {
  return impl_->e->may_wait(what, instead);
}
Engine& Session::engine() const { return *impl_->engine; }
const Graph& Session::graph() const { return impl_->graph; }
CostModel Session::costs() const { return impl_->costs(); }

Result<std::shared_ptr<Session::Prepared>> Session::prepare(const std::vector<Output>& feeds,
                                                            const std::vector<Output>& fetches,
                                                            const std::vector<const Node*>& targets) {
  return impl_->prepare(feeds, fetches, targets);
}

RunResult Session::run(const std::shared_ptr<Prepared>& prepared, ValueList values, const RunOptions& options) {
  return impl_->run(prepared, std::move(values.values), options);
}

void Session::run_async(const std::shared_ptr<Prepared>& prepared, ValueList values, RunCallback done,
                        const RunOptions& options) {
  impl_->start_async(prepared, std::move(values.values), std::move(done), options);
}

void Session::run_async(const FeedList& feeds, const OutputList& fetches, const NodeList& targets, RunCallback done,
                        const RunOptions& options) {
  auto prepared = impl_->prepare(feeds.outputs, fetches.outputs, targets.nodes);
  if (!prepared.ok()) return impl_->answer(std::move(done), std::move(prepared.error()));
  impl_->start_async(*prepared, feeds.values, std::move(done), options);
}

RunResult Session::run(const FeedList& feeds, const OutputList& fetches, const NodeList& targets,
                       const RunOptions& options) {
  TROUPE_ASSIGN(const auto prepared, impl_->prepare(feeds.outputs, fetches.outputs, targets.nodes));
  return impl_->run(prepared, feeds.values, options);
}

RunResult Session::run(const OutputList& fetches, const NodeList& targets, const RunOptions& options) {
  return run(FeedList(), fetches, targets, options);
}

RunResult Session::run(const OutputList& fetches, const RunOptions& options) {
  return run(FeedList(), fetches, NodeList(), options);
}

RunResult Session::run(const NodeList& targets, const RunOptions& options) {
  return run(FeedList(), OutputList(), targets, options);
}

std::future<RunResult> Session::run_future(const FeedList& feeds, const OutputList& fetches, const NodeList& targets,
                                           const RunOptions& options) {
  auto promise = std::make_shared<std::promise<RunResult>>();
  std::future<RunResult> out = promise->get_future();
  run_async(
      feeds, fetches, targets, [promise](RunResult r) { promise->set_value(std::move(r)); }, options);
  return out;
}

RunResult Session::run(const std::vector<std::pair<std::string, Tensor>>& feeds, const NameList& fetches,
                       const NameList& targets, const RunOptions& options) {
  const Graph& graph = impl_->graph;
  FeedList fed;
  OutputList fetched;
  NodeList wanted;
  std::unique_lock growth(graph.mutex());
  for (const auto& [name, value] : feeds) {
    TROUPE_ASSIGN(const Output output, graph.output(name));
    fed.outputs.push_back(output);
    fed.values.push_back(value);
  }
  for (const std::string& name : fetches.names) {
    TROUPE_ASSIGN(const Output output, graph.output(name));
    fetched.outputs.push_back(output);
  }
  for (const std::string& name : targets.names) {
    const Node* node = graph.find(name);
    if (!node) return make_error(Code::kNotFound, "the graph has no node '{}' to be a target", name);
    wanted.nodes.push_back(node);
  }
  growth.unlock();
  return run(fed, fetched, wanted, options);
}

}  // namespace troupe
