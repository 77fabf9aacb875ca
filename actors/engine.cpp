// SPDX-License-Identifier: Apache-2.0
// Starting and ending the actor system, and calls to the hosts of resources from outside.
#include "troupe/engine.h"

#include <algorithm>
#include <thread>

#include "actors/blocking_actor.h"
#include "actors/device_actor.h"
#include "actors/engine_impl.h"
#include "actors/resource_actor.h"
#include "actors/sim_actor.h"
#include "actors/step_timer.h"
#include "containers/container.h"
#include "ops/all.h"
#include "tensor/phantom_memory.h"

namespace troupe {

namespace {

/// Devices of one process hand pointers to one another; a thread with nothing to do looks for messages now and then.
constexpr LinkRates kWithinProcess = {.bandwidth = 1e15, .latency_ns = 100'000};

/// A guess, until nodes are measured.
DeviceRates cpu_rates(int threads, int64_t memory) {
  DeviceRates rates;
  rates.flops *= threads;
  rates.memory = memory;
  return rates;
}

}  // namespace

Engine::Impl::Impl(EngineOptions options) {
  register_all_ops(ops, kernels);
  if (options.register_ops) options.register_ops(ops, kernels);

  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (options.cpu_threads.empty()) options.cpu_threads = {cores};
  const int count = static_cast<int>(options.cpu_threads.size());
  for (int i = 0; i < count; ++i)
    devices.push_back({fmt::format("/job:localhost/replica:0/task:0/device:cpu:{}", i), DeviceKind::kCpu,
                       options.cpu_threads[static_cast<size_t>(i)], make_caching_allocator(options.memory_limit),
                       cpu_rates(options.cpu_threads[static_cast<size_t>(i)], options.memory_limit)});
  for (size_t i = 0; i < options.sim.devices.size(); ++i) {
    DeviceRates rates = options.sim.devices[i];
    if (rates.memory == 0) rates.memory = options.memory_limit;
    devices.push_back(
        {fmt::format("/job:localhost/replica:0/task:0/device:sim:{}", i), DeviceKind::kSim, 1,
         options.sim.compute ? make_caching_allocator(rates.memory) : make_phantom_allocator(rates.memory), rates});
  }
  counters.resize(devices.size());
  link = options.sim.devices.empty() ? kWithinProcess : options.sim.link;

  // One budget of cores: a worker for each device; the helpers of a device's kernels are the rest. Where one device
  // has all the cores, one worker runs everything, so that the helper team is the device's own.
  const int helpers = *std::ranges::max_element(options.cpu_threads) - 1;
  int workers = options.scheduler_threads;
  if (workers == 0) workers = helpers > 0 ? count : std::max(count, std::min(2, cores));
  config.set("scheduler.max-threads", static_cast<size_t>(workers));
  // One message a turn: a device that runs long kernels must not keep the others of its worker waiting.
  config.set("scheduler.max-throughput", size_t{1});
  // Work that arises on one worker is stolen by another only when that one looks: look often. Between looks wait for
  // messages from outside, which end that wait at once; the scheduler's moderate polling would sleep through them.
  config.set("work-stealing.relaxed-sleep-duration", caf::timespan(std::chrono::microseconds(500)));
  config.set("work-stealing.moderate-poll-attempts", size_t{1});
  config.set("work-stealing.moderate-sleep-duration", caf::timespan(0));
  system = std::make_unique<caf::actor_system>(config);

  // The spawner holds no reference to the directory: that would be a circle.
  directory = std::make_shared<Directory>([this](std::unique_ptr<Resource> resource) -> caf::actor {
    return system->spawn<ResourceActor>(std::move(resource), directory);
  });
  const auto cpus = static_cast<uint32_t>(count);
  directory->homes = Homes(*system, cpus);
  for (uint32_t i = 0; i < cpus; ++i)
    directory->devices.push_back(
        system->spawn<DeviceActor>(i, std::cref(devices[i]), std::ref(counters[i]), directory));
  if (devices.size() > cpus) {
    sim = system->spawn<SimActor>(cpus, std::cref(devices), std::ref(counters), options.sim, std::ref(sim_clock_ns),
                                  directory);
    directory->devices.resize(devices.size(), sim);
  }
  directory->blocking = system->spawn<BlockingActor, caf::detached>(directory);
  timer = system->spawn<StepTimer>(directory);
}

Engine::Impl::~Impl() {
  caf::anon_send_exit(timer, caf::exit_reason::user_shutdown);
  for (const caf::actor& actor : directory->all()) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  system->await_all_actors_done();
  timer = nullptr;
  sim = nullptr;
  directory.reset();
  system.reset();
}

caf::actor Engine::Impl::container(const std::string& name) {
  ResourceHandle handle;
  handle.type = "container";
  handle.container = name;
  handle.factory = []() -> Result<std::unique_ptr<Resource>> { return std::unique_ptr<Resource>(new Container()); };
  return *directory->host(handle);
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

namespace {

Status check_sim(const SimOptions& sim) {
  for (size_t i = 0; i < sim.devices.size(); ++i) {
    const DeviceRates& r = sim.devices[i];
    if (!(r.flops > 0) || !(r.memory_bandwidth > 0) || !(r.launch_ns >= 0) || r.memory < 0)
      return invalid_argument("device sim:{} cannot do {} FLOP/s, {} B/s of memory, launch in {} ns, with {} bytes", i,
                              r.flops, r.memory_bandwidth, r.launch_ns, r.memory);
  }
  if (!(sim.link.bandwidth > 0) || !(sim.link.latency_ns >= 0))
    return invalid_argument("a link of {} B/s with a latency of {} ns", sim.link.bandwidth, sim.link.latency_ns);
  return {};
}

}  // namespace

int64_t Engine::sim_now_ns() const { return impl_->sim_clock_ns.load(std::memory_order_relaxed); }

std::shared_ptr<void> Engine::hold_sim() {
  if (!impl_->sim) return nullptr;
  caf::anon_send(impl_->sim, HoldClock{1});
  return {nullptr, [weak = impl_->sim->address()](void*) {
            if (const auto sim = caf::actor_cast<caf::actor>(weak)) caf::anon_send(sim, HoldClock{-1});
          }};
}

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) {
  for (size_t i = 0; i < options.cpu_threads.size(); ++i)
    if (options.cpu_threads[i] < 1 || options.cpu_threads[i] > 1024)
      return invalid_argument("device cpu:{} cannot have {} threads", i, options.cpu_threads[i]);
  if (options.memory_limit < 0) return invalid_argument("memory limit {} is negative", options.memory_limit);
  if (options.scheduler_threads < 0) return invalid_argument("{} scheduler threads", options.scheduler_threads);
  TROUPE_RETURN_IF_ERROR(check_sim(options.sim));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(std::move(options))));
}

const OpRegistry& Engine::ops() const { return impl_->ops; }
const KernelRegistry& Engine::kernels() const { return impl_->kernels; }

std::vector<std::string> Engine::devices() const {
  std::vector<std::string> out;
  for (const DeviceInfo& d : impl_->devices) out.push_back(d.name);
  return out;
}

std::vector<DeviceStats> Engine::device_stats() const {
  std::vector<DeviceStats> out;
  for (size_t i = 0; i < impl_->devices.size(); ++i) {
    const DeviceInfo& d = impl_->devices[i];
    const Executor::Counters& c = impl_->counters[i];
    out.push_back({d.name, d.threads, c.steps.load(), c.nodes.load(), c.busy_ns.load(), c.input_wait_ns.load(),
                   d.allocator->stats()});
  }
  return out;
}

void Engine::trim_memory() {
  for (const DeviceInfo& d : impl_->devices) d.allocator->trim();
}

namespace {

/// Calls `f` on a resource at its host and waits for what it returns.
Status call_and_wait(const caf::actor& host, std::function<Status(Resource&)> f) {
  auto promise = std::make_shared<std::promise<Status>>();
  std::future<Status> answer = promise->get_future();
  caf::anon_send(host, WithResource{[promise, f = std::move(f)](Resource* r) {
                   promise->set_value(r ? f(*r) : make_error(Code::kFailedPrecondition, "the resource was closed"));
                 }});
  return answer.get();
}

std::string iterator_key(const std::string& name) {
  ResourceHandle handle;
  handle.type = "iterator";
  handle.name = name;
  return handle.host_key();
}

Error no_dataset(const std::string& name) { return make_error(Code::kNotFound, "there is no dataset '{}'", name); }

}  // namespace

Status Engine::add_dataset(const std::string& name, Dataset dataset) {
  return impl_->directory->add(iterator_key(name), std::make_unique<IteratorResource>(std::move(dataset)));
}

Status Engine::remove_dataset(const std::string& name) {
  const caf::actor host = impl_->directory->remove(iterator_key(name));
  if (!host) return no_dataset(name);
  caf::anon_send(host, CloseResource{});
  return {};
}

Status Engine::restart_dataset(const std::string& name) {
  const caf::actor host = impl_->directory->find(iterator_key(name));
  if (!host) return no_dataset(name);
  return call_and_wait(host, [](Resource& r) -> Status {
    static_cast<IteratorResource&>(r).restart();
    return {};
  });
}

void Engine::snapshot(std::function<void(Result<Snapshot>)> done, const std::string& container) {
  caf::anon_send(impl_->container(container), WithResource{[done = std::move(done)](Resource* r) {
                   if (r) done(Snapshot{static_cast<Container&>(*r).snapshot()});
                   else done(make_error(Code::kFailedPrecondition, "the container was reset"));
                 }});
}

std::future<Result<Snapshot>> Engine::snapshot(const std::string& container) {
  auto promise = std::make_shared<std::promise<Result<Snapshot>>>();
  std::future<Result<Snapshot>> out = promise->get_future();
  snapshot([promise](Result<Snapshot> s) { promise->set_value(std::move(s)); }, container);
  return out;
}

Status Engine::restore(const Snapshot& snapshot, const std::string& container) {
  return call_and_wait(impl_->container(container), [variables = snapshot.variables](Resource& r) {
    return static_cast<Container&>(r).restore(variables);
  });
}

void Engine::reset_container(const std::string& container) {
  for (const caf::actor& host : impl_->directory->remove_container(container)) caf::anon_send(host, CloseResource{});
}

}  // namespace troupe
