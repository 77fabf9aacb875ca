// SPDX-License-Identifier: Apache-2.0
// A cluster over sockets, its tasks in the test's process.
#pragma once
#include <catch2/catch.hpp>

#include "tests/io/temporary_directory.h"
#include "tests/op_library.h"
#include "troupe/cluster.h"

namespace troupe {

/// Workers "/job:worker/task:0" and on, on UNIX sockets.
struct SocketCluster {
  explicit SocketCluster(int count, bool start_all = true) {
    std::string list;
    for (int i = 0; i < count; ++i) list += fmt::format("{}\"unix:{}/{}\"", i ? "," : "", directory.path(), i);
    options.cpu_threads = {1};
    options.cluster.spec = fmt::format("{{\"name\":\"test\",\"cluster\":{{\"worker\":[{}]}}}}", list);
    options.cluster.wait = std::chrono::seconds(60);
    options.cluster.data_folders = {"/"};
    options.op_library = testing::op_library();
    options.cluster.silence = std::chrono::seconds(60);  // machines of tests are busy
    workers.resize(static_cast<size_t>(count));
    for (int i = 0; start_all && i < count; ++i) start(i);
  }
  void start(int task) {
    const Status status = try_start(task);
    INFO((status.ok() ? "" : status.error().str()));
    REQUIRE(status.ok());
  }
  /// For threads, which may not assert.
  Status try_start(int task) {
    EngineOptions own = options;
    own.cluster.job = "worker";
    own.cluster.task = task;
    if (of_task) of_task(own.cluster, task);
    TROUPE_ASSIGN(workers[static_cast<size_t>(task)], ClusterWorker::start(own));
    return {};
  }
  std::unique_ptr<Engine> client() const {
    auto engine = Engine::create(options);
    INFO((engine.ok() ? "" : engine.error().str()));
    REQUIRE(engine.ok());
    return std::move(*engine);
  }
  /// Where that task listens.
  std::string path(int task) const { return directory.path() + "/" + std::to_string(task); }
  /// Of a client that finds the task at another socket, such as a relay's.
  EngineOptions options_by(int task, const std::string& other) const {
    EngineOptions out = options;
    const std::string listed = "unix:" + path(task) + "\"";
    out.cluster.spec.replace(out.cluster.spec.find(listed), listed.size(), "unix:" + other + "\"");
    return out;
  }
  TemporaryDirectory directory;
  EngineOptions options;
  /// What one task has otherwise than `options` say; before it starts.
  std::function<void(ClusterOptions&, int task)> of_task;
  std::vector<std::unique_ptr<ClusterWorker>> workers;
};

}  // namespace troupe
