// SPDX-License-Identifier: Apache-2.0
// Starting and ending the actor system, and calls to the hosts of resources from outside.
#include "troupe/engine.h"

#include <caf/io/middleman.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <system_error>
#include <thread>

#include "actors/device_actor.h"
#include "actors/engine_impl.h"
#include "actors/engine_options.h"
#include "actors/graph_functions.h"
#include "actors/network.h"
#include "actors/resource_actor.h"
#include "actors/scheduler.h"
#include "actors/sim_actor.h"
#include "actors/step_timer.h"
#include "base/engine_thread.h"
#include "base/forks.h"
#include "base/log.h"
#include "containers/container.h"
#include "ops/all.h"
#include "ops/input/iterator_resource.h"
#include "tensor/phantom_memory.h"
#include "troupe/guarded.h"

namespace troupe {

namespace {

/// Devices of one process hand pointers to one another; a thread with nothing to do looks for messages now and then.
constexpr LinkRates kWithinProcess = {.bandwidth = 1e15, .latency_ns = 100'000};
/// How long the end of an engine waits for its actor system, when all its actors have ended.
constexpr std::chrono::seconds kSystemEnd{1};

/// A guess, until nodes are measured.
DeviceRates cpu_rates(int threads, int64_t memory) {
  DeviceRates rates;
  rates.flops *= threads;
  rates.memory = memory;
  return rates;
}

/// Calls `f`, which makes or spawns in `system`. CAF then keeps the system's logger in a thread-local variable, and a
/// system does not end before all threads have let go of its logger; so the thread gets back what it had.
template <class F> auto keep_logger(caf::actor_system& system, F&& f) {
  const caf::logger* const before = caf::logger::current_logger();
  if (before == &system.logger()) return f();
  if (before) {  // of a system that cannot be asked for
    decltype(f()) result;
    std::thread([&] { result = f(); }).join();
    return result;
  }
  auto result = f();
  caf::logger::set_current_actor_system(nullptr);
  return result;
}

}  // namespace

Engine::Impl::Impl(caf::actor_system* host, std::string_view task) : task(task), forks_(forks()), system_(host) {}

Result<std::shared_ptr<Engine::Impl>> Engine::Impl::make(EngineOptions options, caf::actor_system* host,
                                                         std::string_view task) {
  choose_devices(options);
  TROUPE_RETURN_IF_ERROR(check_options(options));
  return guarded([&]() -> Result<std::shared_ptr<Impl>> {
    std::shared_ptr<Impl> impl(new Impl(host, task));
    try {
      if (options.gpus.cards != 0) {
        TROUPE_ASSIGN(impl->gpus, GpuDevices::make(options.gpus, impl->task));
      }
      if (!host) TROUPE_RETURN_IF_ERROR(check_threads(options));  // the GPUs have theirs
      impl->start(std::move(options));
    } catch (const std::system_error& e) {
      return make_error(Code::kResourceExhausted, "the system refused the engine something: {}", e.what());
    }
    return impl;
  });
}

void Engine::Impl::start(EngineOptions options) {
  if (!options.op_library) options.op_library = make_op_library();
  ops = options.op_library->ops;
  kernels = options.op_library->kernels;
  if (gpus) gpus->platform().register_kernels(kernels);
  if (gpus && gpus->collectives()) register_card_collectives(ops, kernels, gpus->collectives());
  kernels.check_from_now_on();
  if (options.register_ops) options.register_ops(ops, kernels);

  const int count = static_cast<int>(options.cpu_threads.size());
  for (int i = 0; i < count; ++i)
    devices.push_back({fmt::format("{}/device:cpu:{}", task, i), DeviceKind::kCpu,
                       options.cpu_threads[static_cast<size_t>(i)], make_caching_allocator(options.memory_limit),
                       cpu_rates(options.cpu_threads[static_cast<size_t>(i)], options.memory_limit)});
  if (gpus) devices.insert(devices.end(), gpus->infos().begin(), gpus->infos().end());
  for (size_t i = 0; i < options.sim.devices.size(); ++i) {
    DeviceRates rates = options.sim.devices[i];
    if (rates.memory == 0) rates.memory = options.memory_limit;
    devices.push_back(
        {fmt::format("{}/device:sim:{}", task, i), DeviceKind::kSim, 1,
         options.sim.compute ? make_caching_allocator(rates.memory) : make_phantom_allocator(rates.memory), rates});
  }
  all_devices = devices;
  counters.resize(devices.size());
  leaders.resize(devices.size());
  dead_.resize(devices.size());
  links = options.sim.devices.empty() ? kWithinProcess : options.sim.link;
  if (!system_) start_system(options);
  (void)keep_logger(*system_, [&] { return start_actors(options), true; });
}

/// In a thread of its own, see keep_logger().
void Engine::Impl::start_system(const EngineOptions& options) {
  config_ = std::make_unique<caf::actor_system_config>();
  config_->set("scheduler.max-threads", static_cast<size_t>(count_workers(options)));
  // One message a turn: a device that runs long kernels must not keep the others of its worker waiting.
  config_->set("scheduler.max-throughput", size_t{1});
  caf::put(config_->content, RestingPolicy::kSpins, options.cluster.spec.empty());
  config_->load<Scheduler>();
  if (!options.cluster.spec.empty()) {
    config_->set("middleman.workers", size_t{0});  // of its own messages, of which there are none
    config_->load<caf::io::middleman>();
  }
  std::exception_ptr failed;
  std::thread([&] {
    try {
      own_system_ = std::make_unique<caf::actor_system>(*config_);
    } catch (...) {
      failed = std::current_exception();
    }
  }).join();
  if (failed) std::rethrow_exception(failed);
  system_ = own_system_.get();
}

void Engine::Impl::start_actors(const EngineOptions& options) {
  const auto spawn = [this](std::unique_ptr<Resource> resource) {
    caf::actor actor =
        keep_logger(*system_, [&] { return system_->spawn<ResourceActor>(std::move(resource), directory); });
    count_actor();
    return actor;
  };
  const auto watch_resource = [this](const caf::actor& actor) {
    watch(actor, [this, id = actor.id()](const std::string& reason) {
      directory->remove(id);
      // Any step may wait for it; those without a resource do not.
      abandon([](const StepPlan& plan) { return plan.uses_resources(); }, fmt::format("a resource's actor {}", reason));
    });
  };
  directory = std::make_shared<Directory>(spawn, watch_resource);
  directory->functions = std::make_shared<GraphFunctions>(weak_from_this());
  directory->blocking = std::make_shared<BlockingJobs>(
      [pool = pool](BlockingJobs::Job job) { return pool->run(std::move(job)); }, *directory, directory->functions);
  const auto cpus = static_cast<uint32_t>(options.cpu_threads.size());
  const auto working = cpus + static_cast<uint32_t>(gpus ? gpus->infos().size() : 0);
  for (uint32_t i = 0; i < cpus; ++i) working_devices.push_back(std::make_unique<CpuDevice>(devices[i]));
  for (uint32_t i = cpus; i < working; ++i) {
    auto device = gpus->device(i - cpus, devices[i]);
    device->answer_by([directory = directory.get(), i](ResourceAnswer answer) {
      auto answers = std::make_shared<std::vector<ResourceAnswer>>();
      answers->push_back(std::move(answer));
      directory->tell_device(i, ResourceAnswers{std::move(answers)});
    });
    working_devices.push_back(std::move(device));
  }
  if (gpus)
    directory->bring_to_host = [gpus = gpus.get()](auto variables, auto done) {
      gpus->bring_to_host(std::move(variables), std::move(done));
    };
  directory->homes = Homes(*system_, working);
  for (uint32_t i = 0; i < working; ++i)
    directory->devices.push_back(
        watched(system_->spawn<DeviceActor>(i, std::ref(*working_devices[i]), std::ref(counters[i]), directory),
                [this, i](const std::string& reason) { device_died(i, reason); }));
  if (devices.size() > working) {
    sim = watched(system_->spawn<SimActor>(working, std::cref(devices), std::ref(counters), options.sim,
                                           std::ref(sim_clock_ns), directory),
                  [this, working](const std::string& reason) {
                    for (uint32_t i = working; i < devices.size(); ++i) device_died(i, reason);
                  });
    directory->devices.resize(devices.size(), sim);
  }
  if (task != kAlone) datasets = std::make_shared<TaskDatasets>(options.cluster.datasets, directory);
  worker = std::make_shared<Worker>(
      Worker::Host{ops, kernels, devices, directory, next_step,
                   [pool = pool](std::function<void()> job) { return pool->run(std::move(job)); },
                   [this](const std::string& to, EdgeValue value) { return send_(to, std::move(value)); },
                   [this](const std::string& name) { return container(name); }, datasets, weak_from_this()});
  const auto ignore = [](const std::string&) {};
  timer = watched(system_->spawn<StepTimer>(directory), ignore);
  caller = watched(
      system_->spawn([](caf::event_based_actor*) -> caf::behavior { return {[](const CallBack& m) { m.call(); }}; }),
      ignore);
}

void Engine::Impl::may_send() {
  directory->from_outside([&] {
    for (uint32_t i = 0; i < directory->devices.size(); ++i) directory->tell_device(i, MaySend{i});
  });
}

namespace {

/// The client's own task, as a client asks it.
class OwnTask final : public TaskLink {
 public:
  OwnTask(std::shared_ptr<Worker> worker, uint64_t client) : worker_(std::move(worker)), client_(client) {}
  void add_program(PartProgram program) override {
    worker_->add_program(client_, program.program, program.session,
                         [program]() -> Result<Worker::Program> { return local_program(program); });
  }
  void drop_program(uint64_t program) override { worker_->drop_program(client_, program); }
  void drop_session(uint64_t session) override { worker_->drop_session(client_, session); }
  void run(PartRun run) override { worker_->run(client_, std::move(run)); }
  void abort(int64_t step, const Error& error) override { worker_->abort(client_, step, error); }
  void ask(ContainerAsk ask) override { worker_->ask(client_, std::move(ask)); }

 private:
  const std::shared_ptr<Worker> worker_;
  const uint64_t client_;
};

}  // namespace

void Engine::Impl::join(uint64_t client, std::vector<RemoteTask> tasks) {
  std::map<std::string, std::shared_ptr<TaskLink>> links{{task, std::make_shared<OwnTask>(worker, client)}};
  for (RemoteTask& remote : tasks) {
    links[remote.name] = std::move(remote.link);
    all_devices.insert(all_devices.end(), remote.devices.begin(), remote.devices.end());
  }
  cluster = std::make_shared<ClusterView>(task, std::move(links));
  std::vector<std::string> names;
  for (const DeviceInfo& device : all_devices) names.push_back(device.name);
  cluster->set_devices(std::move(names));
}

const caf::actor& Engine::Impl::watched(const caf::actor& actor, std::function<void(const std::string&)> died) {
  count_actor();
  watch(actor, std::move(died));
  return actor;
}

caf::actor Engine::Impl::adopt(const std::function<caf::actor()>& spawn) {
  return watched(keep_logger(*system_, spawn),
                 [](const std::string& reason) { log_error("a peer's actor {}", reason); });
}

void Engine::Impl::count_actor() {
  std::lock_guard guard(actors_mutex_);
  ++actors_;
}

void Engine::Impl::watch(const caf::actor& actor, std::function<void(const std::string&)> died) {
  // Not the actor itself: it would keep itself alive.
  actor->attach_functor([this, died = std::move(died)](const caf::error& reason) {
    const bool ordinary = !reason || reason == caf::exit_reason::user_shutdown ||
                          reason == caf::exit_reason::unreachable || reason == caf::exit_reason::normal;
    if (!ordinary && !ended_) died(fmt::format("has died: {}", caf::to_string(reason)));
    std::lock_guard guard(actors_mutex_);
    if (--actors_ == 0) actors_ended_.notify_all();
  });
}

void Engine::Impl::device_died(uint32_t device, const std::string& reason) {
  dead_[device] = true;
  abandon(
      [device](const StepPlan& plan) {
        return std::ranges::find(plan.partitions, device, &PartitionPlan::device) != plan.partitions.end();
      },
      fmt::format("the actor of device {} {}", devices[device].name, reason));
}

void Engine::Impl::abandon(const std::function<bool(const StepPlan&)>& needs, const std::string& what) {
  log_error("{}", what);
  for (const StepRef& step : directory->steps.running()) {
    if (!needs(*step->plan)) continue;
    const Error error = make_error(Code::kInternal, "{}", what);
    abort_step(step, error, *directory);
    step->abandon(error);
  }
}

Status Engine::Impl::check_alive(const StepPlan& plan) const {
  for (const PartitionPlan& partition : plan.partitions)
    if (dead_[partition.device].load(std::memory_order_relaxed))
      return make_error(Code::kInternal, "the actor of device {} has died", devices[partition.device].name);
  return {};
}

Status Engine::Impl::status() const {
  if (ended_.load(std::memory_order_relaxed))
    return make_error(Code::kFailedPrecondition, "the engine has been destroyed");
  return in_child();
}

Status Engine::Impl::in_child() const {
  if (forks() != forks_)
    return make_error(Code::kFailedPrecondition,
                      "the engine is of the parent process: its threads did not come along through fork(). Create "
                      "an engine after fork()");
  return {};
}

bool Engine::Impl::on_own_thread() const { return EngineThread::is_of(directory.get()); }

Status Engine::Impl::may_wait(std::string_view what, std::string_view instead) const {
  TROUPE_RETURN_IF_ERROR(status());
  return check_thread(what, instead);
}

Status Engine::Impl::check_thread(std::string_view what, std::string_view instead) const {
  // An actor of the user's own in the system holds a thread up as one of the engine's does.
  if (on_own_thread() || directory->homes.on_worker())
    return make_error(Code::kFailedPrecondition,
                      "{} would wait for itself: it was called by a callback, a kernel or an actor, on a thread of the "
                      "engine's actor system; call {}",
                      what, instead);
  return {};
}

void Engine::Impl::called(const std::function<void()>& callback) const {
  const EngineThread mark(directory.get());
  if (const Status status = guarded_call(callback); !status.ok())
    log_error("a callback failed: {}", status.error().message);
}

void Engine::Impl::shut_down() {
  if (ended_ || !directory) return;
  // Of a task it is others whose steps end with it. First: whoever asks meanwhile is to see a task that ends.
  const bool alone = task == kAlone;
  if (worker)
    worker->close(alone ? make_error(Code::kCancelled, "the engine is being destroyed")
                        : make_error(Code::kUnavailable, "{} ends", task));
  if (ended_.exchange(true)) return;
  directory->shut();
  for (const StepRef& step : directory->steps.running())
    abort_step(step, make_error(Code::kCancelled, "the engine is being destroyed"), *directory);
  directory->steps.wait_until_answered();
  if (network) network->stop("the engine ends");
  for (const caf::actor& actor : {timer, caller}) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  for (const caf::actor& actor : directory->all()) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  {
    std::unique_lock lock(actors_mutex_);
    actors_ended_.wait(lock, [this] { return actors_ == 0; });
  }
  if (gpus) gpus->stop();  // while there are mailboxes for what it says
  directory->blocking->close();
  pool->shutdown();
  timer = caller = sim = nullptr;
  directory->clear();
  if (!own_system_) return;
  // Else a thread that spawned actors of its own would wait for itself, see keep_logger().
  if (caf::logger::current_logger() == &own_system_->logger()) caf::logger::set_current_actor_system(nullptr);
  // As it was made; and a thread of the user's that has a scoped_actor of the system keeps it from ending: then it ends
  // with that thread, behind our back.
  struct Ending {
    void operator()() {
      system.reset();
      config.reset();
      ended.set_value();
    }
    std::unique_ptr<caf::actor_system> system;
    std::unique_ptr<caf::actor_system_config> config;
    std::promise<void> ended;
  };
  const auto ending = std::make_shared<Ending>();
  ending->system = std::move(own_system_);
  ending->config = std::move(config_);
  std::future<void> end = ending->ended.get_future();
  // Without a thread to be had this one does it, and waits as long as it takes.
  if (!guarded_call([&] { std::thread([ending] { (*ending)(); }).detach(); }).ok()) (*ending)();
  end.wait_for(kSystemEnd);
}

Engine::Impl::~Impl() { shut_down(); }

Result<caf::actor> Engine::Impl::container(const std::string& name) {
  TROUPE_RETURN_IF_ERROR(status());
  ResourceHandle handle;
  handle.type = "container";
  handle.container = name;
  handle.factory = [name]() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(new Container(name));
  };
  return directory->host(handle);
}

Engine::Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  if (!impl_->status().ok()) {
    new std::shared_ptr<Impl>(std::move(impl_));  // after fork(): what it has cannot be ended, only left
  } else if (impl_->on_own_thread()) {
    // In a callback, which the end waits for. Without a thread to be had the engine is left as it is.
    auto* const left = new std::shared_ptr<Impl>(std::move(impl_));
    const auto end = [left] {
      (*left)->shut_down();
      delete left;
    };
    if (const Status begun = guarded_call([&] { std::thread(end).detach(); }); !begun.ok())
      log_error("an engine that a callback destroys cannot be ended: {}", begun.error().message);
  } else {
    impl_->shut_down();
  }
}

bool Engine::on_engine_thread() const { return impl_->on_own_thread(); }
Status Engine::may_wait(std::string_view what, std::string_view instead) const {
  return impl_->may_wait(what, instead);
}
Status Engine::status() const { return impl_->status(); }

int64_t Engine::sim_now_ns() const { return impl_->sim_clock_ns.load(std::memory_order_relaxed); }

std::shared_ptr<void> Engine::hold_sim() {
  if (!impl_->usable() || !impl_->sim) return nullptr;
  caf::anon_send(impl_->sim, HoldClock{1});
  return {static_cast<void*>(impl_.get()),
          [weak = impl_->sim->address(), engine = std::weak_ptr(impl_->directory)](void*) {
            if (const auto directory = engine.lock())
              directory->from_outside([&] {
                if (const auto sim = caf::actor_cast<caf::actor>(weak)) caf::anon_send(sim, HoldClock{-1});
              });
          }};
}

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) {
  return EngineMaker::make(std::move(options), nullptr);
}

Result<std::unique_ptr<Engine>> EngineMaker::make(EngineOptions options, caf::actor_system* host) {
  const auto wait = options.cluster.wait;
  const bool measures = options.cluster.measure_links;
  TROUPE_ASSIGN(auto impl, make_client(std::move(options), host));
  std::unique_ptr<Engine> out = of(impl);  // which ends it
  if (impl->network) TROUPE_RETURN_IF_ERROR(impl->network->connect(wait));
  if (impl->network && measures) {
    TROUPE_ASSIGN(impl->links, measure_links(*out));
  }
  return out;
}

const OpRegistry& Engine::ops() const { return impl_->ops; }
const KernelRegistry& Engine::kernels() const { return impl_->kernels; }

std::vector<std::string> Engine::devices() const {
  std::vector<std::string> out;
  for (const DeviceInfo& d : impl_->all_devices) out.push_back(d.name);
  return out;
}

std::vector<DeviceStats> Engine::device_stats() const {
  std::vector<DeviceStats> out;
  for (size_t i = 0; i < impl_->devices.size(); ++i) {
    const DeviceInfo& d = impl_->devices[i];
    const Executor::Counters& c = impl_->counters[i];
    out.push_back({d.name, d.threads, c.steps.load(), c.nodes.load(), c.busy_ns.load(), c.input_wait_ns.load(),
                   d.kind == DeviceKind::kCuda ? impl_->gpus->memory(d) : d.allocator->stats()});
  }
  return out;
}

void Engine::trim_memory() {
  for (const DeviceInfo& d : impl_->devices) d.allocator->trim();
}

namespace {

/// A callback that is called once with an R, whatever happens to the message that carries it.
template <class R> class Answer {
 public:
  explicit Answer(std::function<void(R)> done) : done_(std::move(done)) {}
  ~Answer() { (*this)(make_error(Code::kCancelled, "the engine is being destroyed")); }
  void operator()(R result) {
    if (auto done = std::exchange(done_, nullptr)) done(std::move(result));
  }

 private:
  std::function<void(R)> done_;
};

/// What comes, or kDeadlineExceeded where `deadline` is not 0 and nothing comes within it.
Status await(std::future<Status>& status, Deadline deadline, const char* what) {
  const auto now = std::chrono::steady_clock::now();
  const bool bounded = deadline.count() != 0 && deadline < std::chrono::steady_clock::time_point::max() - now;
  if (bounded && status.wait_until(now + deadline) == std::future_status::timeout)
    return make_error(Code::kDeadlineExceeded, "{} took longer than its deadline of {} ns", what, deadline.count());
  return status.get();
}

/// Calls `f` on a resource at its host and waits for what it returns.
Status call_and_wait(const caf::actor& host, std::function<Status(Resource&)> f, Deadline deadline, const char* what) {
  auto promise = std::make_shared<std::promise<Status>>();
  std::future<Status> status = promise->get_future();
  auto answer = std::make_shared<Answer<Status>>([promise](Status s) { promise->set_value(std::move(s)); });
  caf::anon_send(host, WithResource{[answer, f = std::move(f)](Resource* r) {
                   (*answer)(r ? guarded([&] { return f(*r); })
                               : Status(make_error(Code::kFailedPrecondition, "the resource was closed")));
                 }});
  answer.reset();
  return await(status, deadline, what);
}

Error no_dataset(const std::string& name) { return make_error(Code::kNotFound, "there is no dataset '{}'", name); }

}  // namespace

Status Engine::add_dataset(const std::string& name, Dataset dataset) {
  TROUPE_RETURN_IF_ERROR(impl_->status());
  return guarded([&] {
    return impl_->directory->add(iterator_key(name), std::make_unique<IteratorResource>(std::move(dataset)), "");
  });
}

Status Engine::remove_dataset(const std::string& name) {
  TROUPE_RETURN_IF_ERROR(impl_->status());
  const caf::actor host = impl_->directory->remove(iterator_key(name));
  if (!host) return no_dataset(name);
  caf::anon_send(host, CloseResource{fmt::format("dataset '{}' was removed", name)});
  return {};
}

Status Engine::restart_dataset(const std::string& name, Deadline deadline) {
  TROUPE_RETURN_IF_ERROR(may_wait("Engine::restart_dataset"));
  if (impl_->cluster) {
    auto promise = std::make_shared<std::promise<Status>>();
    std::future<Status> restarted = promise->get_future();
    impl_->cluster->restart_dataset(name, [promise](Status s) { promise->set_value(std::move(s)); });
    return await(restarted, deadline, "restart_dataset");
  }
  const caf::actor host = impl_->directory->find(iterator_key(name));
  if (!host) return no_dataset(name);
  const auto restart = [](Resource& r) -> Status {
    static_cast<IteratorResource&>(r).restart();
    return {};
  };
  return call_and_wait(host, restart, deadline, "restart_dataset");
}

void Engine::snapshot(std::function<void(Result<Snapshot>)> done, const std::string& container) {
  using Variables = std::map<std::string, Tensor>;
  auto answer =
      std::make_shared<Answer<Result<Variables>>>([impl = impl_, done = std::move(done)](Result<Variables> v) {
        if (!v.ok()) return impl->call(done, Result<Snapshot>(std::move(v.error())));
        for (const auto& [name, tensor] : *v) tensor.freeze();
        impl->call(done, Result<Snapshot>(Snapshot{std::move(*v)}));
      });
  const auto host = impl_->container(container);
  if (host.ok() && impl_->cluster) {
    impl_->cluster->snapshot(container, [answer](Result<Variables> v) { (*answer)(std::move(v)); });
  } else if (host.ok()) {
    caf::anon_send(*host, TakeSnapshot{[answer](Result<Variables> v) { (*answer)(std::move(v)); }});
  } else if (impl_->usable()) {
    caf::anon_send(impl_->caller, CallBack{[answer, error = host.error()] { (*answer)(error); }});
  } else {
    (*answer)(host.error());
  }
}

std::future<Result<Snapshot>> Engine::snapshot(const std::string& container) {
  auto promise = std::make_shared<std::promise<Result<Snapshot>>>();
  std::future<Result<Snapshot>> out = promise->get_future();
  if (impl_->on_own_thread()) {
    promise->set_value(make_error(Code::kFailedPrecondition,
                                  "nobody may wait for a snapshot in a callback of the engine: pass a callback"));
  } else {
    snapshot([promise](Result<Snapshot> s) { promise->set_value(std::move(s)); }, container);
  }
  return out;
}

Status Engine::restore(const Snapshot& snapshot, const std::string& container, Deadline deadline) {
  TROUPE_RETURN_IF_ERROR(may_wait("Engine::restore"));
  for (const auto& [name, tensor] : snapshot.variables) tensor.freeze();
  if (impl_->cluster) {
    auto promise = std::make_shared<std::promise<Status>>();
    std::future<Status> restored = promise->get_future();
    impl_->cluster->restore(container, snapshot.variables, [promise](Status s) { promise->set_value(std::move(s)); });
    return await(restored, deadline, "restore");
  }
  TROUPE_ASSIGN(const caf::actor host, impl_->container(container));
  const auto restore = [variables = snapshot.variables](Resource& r) {
    return static_cast<Container&>(r).restore(variables);
  };
  return call_and_wait(host, restore, deadline, "restore");
}

void Engine::reset_container(const std::string& container) {
  if (!impl_->usable()) return;
  if (impl_->cluster) return impl_->cluster->reset(container);
  const std::string why = why_reset(container, impl_->datasets ? " by its task" : "");
  for (const caf::actor& host : impl_->directory->remove_container(container)) caf::anon_send(host, CloseResource{why});
  if (container.empty() && impl_->datasets) impl_->datasets->reset();
}

}  // namespace troupe
