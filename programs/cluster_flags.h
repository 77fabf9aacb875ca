// SPDX-License-Identifier: Apache-2.0
// --cluster, --tls and what goes with them, as every program that makes an engine has it. docs/cluster.md tells it to
// users.
#pragma once
#include <initializer_list>
#include <string>

#include "troupe/engine.h"

namespace CLI {
class App;
}

namespace programs {

// Files in the folder of a process, as `troupe cluster keys` writes them and --tls reads them.
inline constexpr const char* kCaFile = "ca.pem";
inline constexpr const char* kCertificateFile = "certificate.pem";
inline constexpr const char* kKeyFile = "key.pem";

/// Parsing refuses what is not a cluster as it refuses any wrong command line: one line, kBadCommandLine.
class ClusterFlags {
 public:
  /// Of a client: --cluster, by default what TROUPE_CLUSTER holds, --tls, by default what TROUPE_TLS holds, --heartbeat
  /// and --silence, and for one that `waits`
  /// --cluster-wait and --scatter. They must outlive `app`, which may be a subcommand, and take its
  /// parse_complete_callback.
  void add_to(CLI::App& app, bool waits = true);
  /// Of a task, which `troupe worker` is: --cluster, by default what TF_CONFIG or else TROUPE_CLUSTER holds, --tls as
  /// above, --job and --task, --heartbeat and --silence.
  void add_task_to(CLI::App& app);
  /// --cluster alone, by default what TROUPE_CLUSTER holds.
  void add_list_to(CLI::App& app);
  /// --heartbeat and --silence alone.
  void add_times_to(CLI::App& app);

  bool given() const { return !options_.spec.empty(); }
  const troupe::ClusterOptions& options() const { return options_; }
  /// The same engine, of the cluster where there is one.
  troupe::EngineOptions engine(troupe::EngineOptions engine = {}) const;
  /// Drops what a client before, perhaps with another model, has left in the default container of the cluster's tasks.
  /// For programs whose variables begin anew, before they make any.
  void forget_former_client(troupe::Engine& engine) const {
    if (given()) engine.reset_container("");
  }

 private:
  void add_cluster_to(CLI::App& app, const std::string& otherwise);
  void add_tls_to(CLI::App& app);
  /// Throws CLI::ValidationError.
  void read(std::initializer_list<const char*> variables, bool with_tls = true);

  std::string told_;                      // JSON or a file that has it
  std::string tls_;                       // a folder
  double wait_ = 60;                      // seconds
  int heartbeat_ = 200, silence_ = 2000;  // ms
  troupe::ClusterOptions options_;
};

}  // namespace programs
