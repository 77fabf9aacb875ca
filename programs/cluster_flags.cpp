// SPDX-License-Identifier: Apache-2.0
#include "programs/cluster_flags.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>

#include <CLI/CLI.hpp>

#include "troupe/cluster.h"

namespace programs {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // a cluster of 1,000 tasks has about 50,000

/// JSON as it is, or the text of a file.
std::string read_spec(const std::string& source, const std::string& told) {
  const size_t first = told.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && told[first] == '{') return told;
  std::string out;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(told.c_str(), "rbe"), std::fclose);
  if (file) {
    out.resize(kMostBytes + 1);  // what is larger is told to be
    out.resize(std::fread(out.data(), 1, out.size(), file.get()));
  }
  if (!file || std::ferror(file.get()))
    throw CLI::ValidationError(
        source, fmt::format("cannot read the file '{}': {}", told, std::generic_category().message(errno)));
  if (out.empty()) throw CLI::ValidationError(source, fmt::format("the file '{}' is empty", told));
  return out;
}

}  // namespace

void ClusterFlags::add_cluster_to(CLI::App& app, const std::string& otherwise) {
  app.add_option("--cluster", told_, "The tasks of a cluster, as JSON or a file that has it [" + otherwise + "]")
      ->type_name("FILE|JSON")
      ->capture_default_str();
}

void ClusterFlags::add_tls_to(CLI::App& app) {
  app.add_option("--tls", tls_,
                 "Talk TLS: the folder of this process, with ca.pem, certificate.pem and key.pem, as 'troupe cluster "
                 "keys' makes it [what TROUPE_TLS holds, else none]")
      ->type_name("DIR")
      ->capture_default_str();
}

void ClusterFlags::add_times_to(CLI::App& app) {
  app.add_option("--heartbeat", heartbeat_, "Milliseconds after which a task of the cluster that is silent is asked")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  app.add_option("--silence", silence_, "Milliseconds of silence after which it is lost, at least two heartbeats")
      ->check(CLI::Range(2, 7'200'000))
      ->capture_default_str();
}

void ClusterFlags::add_list_to(CLI::App& app) {
  add_cluster_to(app, "what TROUPE_CLUSTER holds, else none");
  app.parse_complete_callback([this] { read({"TROUPE_CLUSTER"}, false); });
}

void ClusterFlags::add_to(CLI::App& app, bool waits) {
  add_cluster_to(app, "what TROUPE_CLUSTER holds, else none");
  add_tls_to(app);
  if (waits)
    app.add_option("--cluster-wait", wait_, "Seconds to wait for all tasks of the cluster")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
  add_times_to(app);
  if (waits)
    app.add_option("--scatter", options_.scatter,
                   "For tests: not 0, put nodes on random devices of the cluster's tasks, by this seed")
        ->check(CLI::Range(int64_t{0}, INT64_MAX))
        ->capture_default_str();
  app.parse_complete_callback([this] { read({"TROUPE_CLUSTER"}); });
}

void ClusterFlags::add_task_to(CLI::App& app) {
  add_cluster_to(app, "what TF_CONFIG holds, else TROUPE_CLUSTER");
  add_tls_to(app);
  CLI::Option* const job =
      app.add_option("--job", options_.job, "The job of the task that this process is [what the JSON says]");
  app.add_option("--task", options_.task, "The number of the task that this process is")
      ->check(CLI::Range(0, 1'000'000'000))
      ->needs(job)
      ->capture_default_str();
  add_times_to(app);
  app.parse_complete_callback([this] { read({"TF_CONFIG", "TROUPE_CLUSTER"}); });
}

void ClusterFlags::read(std::initializer_list<const char*> variables, bool with_tls) {
  std::string source = "--cluster", told = told_, tls_source = "--tls";
  for (const char* const variable : variables)
    if (const char* const text = std::getenv(variable); told.empty() && text) source = variable, told = text;
  options_.wait = std::chrono::nanoseconds(std::llround(wait_ * 1e9));
  options_.heartbeat = std::chrono::milliseconds(heartbeat_);
  options_.silence = std::chrono::milliseconds(silence_);
  if (told.empty()) {
    if (!tls_.empty()) throw CLI::ValidationError(tls_source, "there is no cluster to talk to: give --cluster");
    return;
  }
  if (silence_ < 2 * heartbeat_)
    throw CLI::ValidationError("--silence",
                               fmt::format("{} must be at least twice --heartbeat {}", silence_, heartbeat_));
  options_.spec = read_spec(source, told);
  const char* const folder = std::getenv("TROUPE_TLS");
  if (with_tls && tls_.empty() && folder) tls_source = "TROUPE_TLS", tls_ = folder;
  if (!tls_.empty()) options_.tls = {tls_ + "/" + kCaFile, tls_ + "/" + kCertificateFile, tls_ + "/" + kKeyFile};
  const auto status = troupe::check_cluster(options_);
  if (status.ok()) return;
  const bool of_spec = status.error().code == troupe::Code::kInvalidArgument;
  throw CLI::ValidationError(of_spec ? source : tls_source, status.error().message);
}

troupe::EngineOptions ClusterFlags::engine(troupe::EngineOptions engine) const {
  engine.cluster = options_;
  return engine;
}

}  // namespace programs
