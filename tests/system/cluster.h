// SPDX-License-Identifier: Apache-2.0
// Clusters of troupe worker processes, and programs that are run to their end.
#pragma once
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/io/temporary_directory.h"
#include "tests/system/program.h"

namespace troupe::testing {

inline const char* const kTroupePath = "../cli/troupe";

/// A cluster of workers on UNIX sockets, its JSON in a file.
struct Cluster : TemporaryDirectory {
  explicit Cluster(int workers, int servers = 0) {
    const auto list = [&](const char* name, int count) {
      std::string out;
      for (int i = 0; i < count; ++i) out += (i > 0 ? ", \"unix:" : "\"unix:") + file(name + std::to_string(i)) + "\"";
      return out;
    };
    json = R"({"cluster": {"worker": [)" + list("w", workers) + "]" +
           (servers > 0 ? R"(, "ps": [)" + list("p", servers) + "]" : "") + "}}";
    write("cluster.json", json);
  }
  std::unique_ptr<Program> start(int task, std::vector<std::string> more = {}, const std::string& job = "worker",
                                 const std::string& how = {}) const {
    std::vector<std::string> arguments = {"worker", "--cluster", file("cluster.json"), "--job",
                                          job,      "--task",    std::to_string(task)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto out = std::make_unique<Program>(kTroupePath, arguments);
    const bool listens =
        out->read_for(std::chrono::minutes(1), " listens at unix:" + file(job[0] + std::to_string(task)) + how + "\n");
    INFO(out->out() << out->err());
    REQUIRE(listens);
    return out;
  }
  std::string json;
};

/// A loopback address of this process's own: no test beside it listens there, at any port.
inline std::string own_loopback() {
  const auto number = static_cast<unsigned>(::getpid());
  return "127." + std::to_string(64 + (number >> 16) % 64) + "." + std::to_string((number >> 8) % 256) + "." +
         std::to_string(number % 256);
}

struct Ended {
  int status = 0;
  std::string out, err;
};
inline Ended run(const std::vector<std::string>& arguments, const char* path = kTroupePath) {
  Program program(path, arguments);
  const int status = program.wait();
  return {status, program.out(), program.err()};
}

inline void check_error(const Ended& ended, int status, const std::vector<std::string>& parts) {
  INFO(ended.out << ended.err);
  CHECK(ended.status == status);
  CHECK_THAT(ended.err, Catch::StartsWith("troupe: "));
  CHECK(std::ranges::count(ended.err, '\n') == 1);
  for (const std::string& part : parts) CHECK_THAT(ended.err, Catch::Contains(part));
}

/// A variable on one task, counted up by a value from the other, in each step.
inline const char* const kGraph = R"(
  node { name: 'one' op: 'Const' device: '/job:worker/task:0/cpu:0' attr { key: 'dtype' value { type: DT_FLOAT } }
         attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1.5 } } } }
  node { name: 'more' op: 'Neg' input: 'one' device: '/job:worker/task:1/cpu:0'
         attr { key: 'T' value { type: DT_FLOAT } } }
  node { name: 'v' op: 'VarHandleOp' device: '/job:worker/task:1/cpu:0' attr { key: 'dtype' value { type: DT_FLOAT } }
         attr { key: 'shape' value { shape { dim { size: 2 } } } } }
  node { name: 'init' op: 'AssignVariableOp' input: 'v' input: 'one' device: '/job:worker/task:1/cpu:0'
         attr { key: 'dtype' value { type: DT_FLOAT } } }
  node { name: 'add' op: 'AssignAddVariableOp' input: 'v' input: 'more' device: '/job:worker/task:1/cpu:0'
         attr { key: 'dtype' value { type: DT_FLOAT } } }
  node { name: 'sum' op: 'ReadVariableOp' input: 'v' input: '^add' device: '/job:worker/task:1/cpu:0'
         attr { key: 'dtype' value { type: DT_FLOAT } } }
  node { name: 'y' op: 'Square' input: 'sum' device: '/job:worker/task:0/cpu:0'
         attr { key: 'T' value { type: DT_FLOAT } } })";

/// train_images in synchronous mode, with two replicas; the last checkpoint that it leaves.
struct Training {
  Training(const Cluster& cluster, const std::string& name) : out(cluster.file(name)) {}
  std::vector<std::string> arguments(int epochs, std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"--replicas", "2",    "--mode",         "sync", "--epochs", std::to_string(epochs),
                                    "--limit",    "2560", "--model",        "mlp",  "--out",    out,
                                    "--batch",    "32",   "--save-seconds", "0.1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string checkpoint() const {
    std::string last;
    for (const auto& entry : std::filesystem::directory_iterator(out + "/checkpoints"))
      if (entry.path().extension() == ".safetensors") last = std::max(last, entry.path().string());
    return std::filesystem::path(last).filename().string() + TemporaryDirectory::read(last);
  }
  const std::string out;
};
inline const char* const kTrain = "../examples/train_images";

}  // namespace troupe::testing
