// SPDX-License-Identifier: Apache-2.0
// A trainer whose tasks a test ends and starts again.
#pragma once
#include "tests/actors/socket_cluster.h"
#include "tests/train/cluster_fixture.h"
#include "tests/train/trainer_fixture.h"

namespace troupe::nn {

/// A trainer over a cluster, whose tasks are ended by kill() and, told that they are lost, started again.
struct LossFixture {
  explicit LossFixture(int tasks, const Mode& mode, std::function<void(TrainerOptions&)> change = {},
                       Dataset data = circle(512, 32))
      : cluster(tasks), client(cluster.client()) {
    TrainerOptions options = settings(*client, mode);
    options.devices = worker_devices(tasks, 1);
    options.recovery.snapshot_interval = std::chrono::seconds(30);
    options.recovery.on_task = [this](const TaskReport& report) {
      told.push_back(report);
      if (!report.back && restarts) start_missing();
      if (on_task) on_task(report);
    };
    if (change) change(options);
    trainer = trainer_of(*client, options, std::move(data));
    REQUIRE(trainer->initialise().ok());
  }
  void kill(int task) { cluster.workers[static_cast<size_t>(task)].reset(); }
  void start_missing() {
    for (size_t i = 0; i < cluster.workers.size(); ++i)
      if (!cluster.workers[i]) cluster.start(static_cast<int>(i));
  }
  RunSummary run(int64_t updates, const std::function<void(const StepReport&)>& on_step = {}) {
    const auto summary = trainer->run(updates, on_step);
    INFO((summary.ok() ? std::string() : summary.error().str()));
    REQUIRE(summary.ok());
    return *summary;
  }
  Snapshot snapshot() {
    auto taken = trainer->snapshot();
    INFO((taken.ok() ? std::string() : taken.error().str()));
    REQUIRE(taken.ok());
    return std::move(*taken);
  }

  SocketCluster cluster;
  std::unique_ptr<Engine> client;
  bool restarts = true;
  std::vector<TaskReport> told;
  std::function<void(const TaskReport&)> on_task;
  std::unique_ptr<Trainer> trainer;
};

}  // namespace troupe::nn
