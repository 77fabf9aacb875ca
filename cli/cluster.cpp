// SPDX-License-Identifier: Apache-2.0
// The subcommand cluster: what the tasks of a cluster are doing.
#include "troupe/cluster.h"

#include <algorithm>
#include <cmath>

#include "base/device_name.h"
#include "base/join.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"

namespace troupe {
namespace {

struct ClusterArguments {
  programs::ClusterFlags cluster;
  double timeout = 5;
};

/// "cpu:0, cpu:1" for full names.
std::string devices_of(const TaskStatus& task) {
  std::vector<std::string> out;
  for (const std::string& name : task.devices) {
    const auto device = DeviceName::parse(name);
    out.push_back(device.ok() && device->kind && device->index ? fmt::format("{}:{}", *device->kind, *device->index)
                                                               : printable(name));
  }
  return join(out, ", ");
}

Status show_status(const ClusterArguments& o) {
  const auto limit = std::chrono::nanoseconds(std::llround(o.timeout * 1e9));
  TROUPE_ASSIGN(const auto tasks, probe_cluster(o.cluster.options(), limit));
  size_t task_width = 4, address_width = 7;
  for (const TaskStatus& task : tasks) {
    task_width = std::max(task_width, task.task.size());
    address_width = std::max(address_width, task.address.size());
  }
  const auto line = [&](const std::string& task, const std::string& address, const char* state,
                        const std::string& more) {
    programs::print("{:<{}}  {:<{}}  {:<5}  {}\n", task, task_width, address, address_width, state, more);
  };
  line("task", "address", "state", "devices, or why it is not up");
  for (const TaskStatus& task : tasks)
    line(task.task, task.address,
         task.up     ? "up"
         : task.busy ? "busy"
                     : "down",
         task.ready ? devices_of(task)
         : task.up  ? "not connected to all that are up: " + printable(task.reason)
                    : printable(task.reason));
  const auto down = std::ranges::count_if(tasks, [](const TaskStatus& task) { return !task.up && !task.busy; });
  const auto apart = std::ranges::count_if(tasks, [](const TaskStatus& task) { return task.up && !task.ready; });
  if (down == 0 && apart == 0) return {};
  if (down == 0)
    return make_error(Code::kUnavailable, "{} of {} tasks are not connected to all others", apart, tasks.size());
  return make_error(Code::kUnavailable, "{} of {} tasks are not up", down, tasks.size());
}

}  // namespace

void add_cluster(CLI::App& app, Job& job) {
  auto o = std::make_shared<ClusterArguments>();
  CLI::App& cluster = *app.add_subcommand("cluster", "Tells of a cluster, and makes its keys")->require_subcommand(1);
  CLI::App& status = *cluster.add_subcommand("status", "The tasks of a cluster: where they are, whether they are up");
  o->cluster.add_to(status, false);
  status.add_option("--timeout", o->timeout, "Seconds to wait for answers")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  status.footer(
      "Exit status: 0 all tasks are up, or busy with another client; 1 one is not, or does not reach the others; 2 a "
      "wrong command line,\nor environment.");
  status.callback([o, &job] {
    if (!o->cluster.given())
      throw CLI::ValidationError("status", "which cluster? --cluster and TROUPE_CLUSTER say nothing");
    job = [o] { return show_status(*o); };
  });
  add_cluster_keys(cluster, job);
}

}  // namespace troupe
