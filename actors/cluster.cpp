// SPDX-License-Identifier: Apache-2.0
#include "troupe/cluster.h"

#include "actors/engine_impl.h"
#include "actors/network.h"
#include "io/data_folders.h"
#include "troupe/embed.h"

namespace troupe {

namespace {

Result<net::ClusterConfig> read_spec(const ClusterOptions& options) {
  TROUPE_ASSIGN(auto config, net::ClusterConfig::parse(options.spec));
  if (options.job.empty()) return config;
  config.task = net::TaskId{options.job, options.task};
  TROUPE_RETURN_IF_ERROR(config.task->check());
  TROUPE_RETURN_IF_ERROR(config.cluster.address(*config.task));
  return config;
}

/// Null where the cluster has no TLS.
Result<std::shared_ptr<const net::TlsContext>> read_tls(const ClusterTls& tls, const net::ClusterConfig& config) {
  if (tls == ClusterTls()) return std::shared_ptr<const net::TlsContext>();
  for (const auto& [what, file] :
       {std::pair("an authority", &tls.ca), std::pair("a certificate", &tls.certificate), std::pair("a key", &tls.key)})
    if (file->empty()) return invalid_argument("TLS needs three files, and there is none of {}", what);
  return net::TlsContext::load({tls.ca, tls.certificate, tls.key}, {config.cluster.name(), config.task});
}

Result<NetworkOptions> network_options(const ClusterOptions& options, net::ClusterConfig config) {
  TROUPE_ASSIGN(auto tls, read_tls(options.tls, config));
  NetworkOptions out{std::move(config.cluster), std::move(config.task)};
  out.tls = std::move(tls);
  out.heartbeat.interval_ns = std::min(options.heartbeat, kForEver).count();
  out.heartbeat.limit_ns = std::min(options.silence, kForEver).count();
  return out;
}

Status check_times(const ClusterOptions& options) {
  if (options.heartbeat.count() <= 0 || options.silence / 2 < options.heartbeat)
    return invalid_argument(
        "the heartbeat of a cluster must be above 0 and its longest silence twice that, got {} and {} ms",
        options.heartbeat.count() / 1'000'000, options.silence.count() / 1'000'000);
  return {};
}

Status check_datasets(const ClusterOptions& options, bool of_task) {
  if (options.datasets.empty()) return {};
  if (!of_task)
    return invalid_argument(
        "ClusterOptions::datasets are of a ClusterWorker, and this is a client, with dataset '{}': Engine::add_dataset "
        "takes a client's own",
        options.datasets.begin()->first);
  if (options.datasets.contains("")) return invalid_argument("a task's dataset must have a name, got ''");
  return {};
}

}  // namespace

Result<std::shared_ptr<Engine::Impl>> make_client(EngineOptions options, caf::actor_system* host) {
  TROUPE_RETURN_IF_ERROR(check_datasets(options.cluster, false));
  if (options.cluster.spec.empty()) return Engine::Impl::make(std::move(options), host);
  TROUPE_RETURN_IF_ERROR(check_times(options.cluster));
  const ClusterOptions cluster = options.cluster;
  TROUPE_ASSIGN(auto config, read_spec(cluster));
  config.task.reset();
  TROUPE_ASSIGN(auto network, network_options(cluster, std::move(config)));
  TROUPE_ASSIGN(auto impl, Engine::Impl::make(std::move(options), host));
  impl->scatter = cluster.scatter;
  TROUPE_ASSIGN(impl->network, Network::start(*impl, std::move(network)));
  return impl;
}

Result<std::shared_ptr<Engine::Impl>> make_task(EngineOptions options, caf::actor_system* host) {
  TROUPE_RETURN_IF_ERROR(check_times(options.cluster));
  const ClusterOptions cluster = options.cluster;
  TROUPE_ASSIGN(auto config, read_spec(cluster));
  if (!config.task) return invalid_argument("which task this is, neither job and task nor the JSON's \"task\" says");
  TROUPE_RETURN_IF_ERROR(check_datasets(cluster, true));
  TROUPE_ASSIGN(auto folders, DataFolders::make(cluster.data_folders));
  const std::string task = task_name(*config.task);
  TROUPE_ASSIGN(auto network, network_options(cluster, std::move(config)));
  TROUPE_ASSIGN(auto impl, Engine::Impl::make(std::move(options), host, task));
  impl->kernels.limit_files(std::move(folders));
  TROUPE_RETURN_IF_ERROR(impl->datasets->begin());
  TROUPE_ASSIGN(impl->network, Network::start(*impl, std::move(network)));
  return impl;
}

class ClusterWorker::Impl {
 public:
  Impl(std::shared_ptr<Engine::Impl> impl, std::unique_ptr<Engine> engine)
      : impl(std::move(impl)), engine(std::move(engine)) {}
  const std::shared_ptr<Engine::Impl> impl;
  const std::unique_ptr<Engine> engine;
};

ClusterWorker::ClusterWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ClusterWorker::~ClusterWorker() = default;

Engine& ClusterWorker::engine() const { return *impl_->engine; }
std::string ClusterWorker::task() const { return impl_->impl->network->self().str(); }
std::string ClusterWorker::address() const { return impl_->impl->network->address().str(); }

std::vector<std::string> ClusterWorker::connected() const { return impl_->impl->network->connected(); }

namespace {

Result<std::unique_ptr<ClusterWorker>> start_worker_in(caf::actor_system* host, EngineOptions options) {
  TROUPE_ASSIGN(auto impl, make_task(std::move(options), host));
  auto engine = EngineMaker::of(impl);
  return std::make_unique<ClusterWorker>(std::make_unique<ClusterWorker::Impl>(std::move(impl), std::move(engine)));
}

}  // namespace

Result<std::unique_ptr<ClusterWorker>> ClusterWorker::start(EngineOptions options) {
  return start_worker_in(nullptr, std::move(options));
}

Result<std::unique_ptr<ClusterWorker>> start_worker(caf::actor_system& system, EngineOptions options) {
  return start_worker_in(&system, std::move(options));
}

Status check_cluster(const ClusterOptions& options) {
  TROUPE_RETURN_IF_ERROR(check_times(options));
  TROUPE_ASSIGN(auto config, read_spec(options));
  TROUPE_RETURN_IF_ERROR(check_datasets(options, config.task.has_value()));
  const Status as_told = read_tls(options.tls, config).status();
  if (as_told.ok() || !config.task || !options.job.empty()) return as_told;
  // A client may have JSON that tells of a task.
  config.task.reset();
  return read_tls(options.tls, config).ok() ? Status() : as_told;
}

std::vector<TaskStatus> cluster_status(const Engine& engine) {
  const auto& impl = engine.impl();
  return impl.network ? impl.network->status() : std::vector<TaskStatus>();
}

std::shared_ptr<void> watch_cluster(Engine& engine, std::function<void()> changed) {
  const auto& impl = engine.impl();
  return impl.network ? impl.network->watch(std::move(changed)) : nullptr;
}

Result<std::vector<TaskStatus>> probe_cluster(const ClusterOptions& options, std::chrono::nanoseconds limit) {
  EngineOptions engine_options;
  engine_options.cpu_threads = {1};
  engine_options.cluster = options;
  TROUPE_ASSIGN(const auto impl, make_client(std::move(engine_options), nullptr));
  (void)impl->network->connect(limit, false);
  return impl->network->status();
}

}  // namespace troupe
