// SPDX-License-Identifier: Apache-2.0
// The subcommand worker: a task of a cluster, until a signal ends it.
#include <arpa/inet.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/worker_datasets.h"
#include "io/data_folders.h"
#include "net/cluster_spec.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/cluster.h"

namespace troupe {
namespace {

struct WorkerArguments {
  programs::ClusterFlags cluster;
  std::string devices = "cpu=1";
  std::vector<std::string> data;
  WorkerDatasets files;                     // as the command line names them
  std::map<std::string, Dataset> datasets;  // once they are read
  int cores = 0;
  bool insecure = false, quiet = false;
};

/// Whether only processes of this machine reach it.
bool is_local(const net::Address& address) {
  if (address.kind == net::Address::Kind::kUnix || address.host == "localhost" || address.host == "::1") return true;
  in_addr ip = {};
  return inet_pton(AF_INET, address.host.c_str(), &ip) == 1 && (ntohl(ip.s_addr) >> 24) == 127;
}

/// What is wrong with the command line, if anything is; else its datasets are read.
Status check(WorkerArguments& o) {
  TROUPE_RETURN_IF_ERROR(read_own_devices(o.devices, o.cores));
  if (const auto folders = DataFolders::make(o.data); !folders.ok())
    return invalid_argument("--data: {}", folders.error().message);
  const ClusterOptions& options = o.cluster.options();
  if (options.spec.empty())
    return invalid_argument("which cluster? --cluster, TF_CONFIG and TROUPE_CLUSTER say nothing");
  TROUPE_ASSIGN(auto config, net::ClusterConfig::parse(options.spec));
  if (!options.job.empty()) config.task = net::TaskId{options.job, options.task};
  if (!config.task) return invalid_argument("which task is it? Neither --job and --task nor the JSON's \"task\" says");
  TROUPE_ASSIGN(const net::Address address, config.cluster.address(*config.task));
  if (!is_local(address) && !o.insecure && options.tls == ClusterTls())
    return invalid_argument(
        "{} would listen at {}, and whoever reaches that can read and change all it has: nothing is encrypted, nobody "
        "is asked who he is. --tls DIR makes that safe, and so does a loopback address or unix:PATH; --insecure "
        "listens all the same",
        config.task->str(), address.str());
  TROUPE_ASSIGN(o.datasets, read_datasets(o.files, shard_of(config.cluster, *config.task)));
  return {};
}

Status run(const WorkerArguments& o) {
  programs::count_signals();
  if (o.quiet) spdlog::set_level(spdlog::level::err);
  TROUPE_ASSIGN(const OwnDevices devices, read_own_devices(o.devices, o.cores));
  EngineOptions options = o.cluster.engine({.cpu_threads = devices.cpu_threads, .gpus = {.cards = devices.gpus}});
  options.cluster.data_folders = o.data;
  options.cluster.datasets = o.datasets;
  TROUPE_ASSIGN(const auto worker, ClusterWorker::start(options));
  programs::print("{} listens at {}{}\n", worker->task(), worker->address(),
                  o.cluster.options().tls == ClusterTls() ? "" : " with TLS");
  TROUPE_RETURN_IF_ERROR(programs::flush());
  programs::wait_for_signal();
  return {};
}

}  // namespace

void add_worker(CLI::App& app, Job& job) {
  auto o = std::make_shared<WorkerArguments>();
  CLI::App& worker = *app.add_subcommand(
      "worker",
      "A task of a cluster: its devices run the steps of clients, one client at a time, until a signal ends it");
  o->cluster.add_task_to(worker);
  worker.add_option("--devices", o->devices, "cpu=N, gpu=N, or both with +; CPU devices share the cores")
      ->capture_default_str();
  worker.add_option("--cores", o->cores, "Threads of its devices together; 0: as many as there are cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  worker.add_option("--data", o->data, "A folder in which graphs may read and write files; may be given again [none]")
      ->type_name("DIR");
  worker
      .add_option(
          "--records", o->files.records,
          "A dataset of that name for graphs: the records of TFRecord files, with *, ? or [...] in the last part of "
          "the path, of which each task of the job reads its shard; may be given again [none]")
      ->type_name("NAME=PATTERN")
      ->allow_extra_args(false);
  worker.add_option("--lines", o->files.lines, "The same, of the lines of text files")
      ->type_name("NAME=PATTERN")
      ->allow_extra_args(false);
  worker.add_option("--batch", o->files.batch, "Elements of these datasets in one, on a first axis [one by one]")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, INT64_MAX - 1));
  worker.add_flag("--repeat", o->files.repeat, "Have them begin again at their ends, for ever [the end is an error]");
  worker.add_flag("--insecure", o->insecure,
                  "Listen where other machines reach it, though nothing is encrypted and anybody may be a client");
  worker.add_flag("--quiet", o->quiet, "Log errors alone, not who has come and gone");
  worker.footer("Exit status: 0 ended by a signal; 1 failed; 2 a wrong command line, or environment.");
  worker.callback([o, &job] {
    if (const Status status = check(*o); !status.ok()) throw CLI::ValidationError("worker", status.error().message);
    job = [o] { return run(*o); };
  });
}

}  // namespace troupe
