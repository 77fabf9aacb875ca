// SPDX-License-Identifier: Apache-2.0
// ClusterSpec: which tasks a cluster has and where they listen; TaskId and Address. Implemented in net/address.cpp and
// net/cluster_spec.cpp. Source of the JSON: TensorFlow's ClusterSpec and TF_CONFIG.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/error.h"

namespace troupe::net {

/// The most tasks of a cluster.
inline constexpr int kMostTasks = 1000;
/// The most letters of a job's and of a cluster's name.
inline constexpr size_t kLongestName = 200;
/// The job of those that run steps on a cluster without being a task of it. No job of a cluster has this name.
inline constexpr std::string_view kClientJob = "client";
/// The job of a client's own devices, and of those of an engine without a cluster. No job of a cluster has this name.
inline constexpr std::string_view kOwnJob = "localhost";

/// One process of a cluster. Ordered by job, then by number: of two tasks the lower one dials.
struct TaskId {
  std::string job;
  int task = 0;

  auto operator<=>(const TaskId&) const = default;
  /// "/job:worker/task:1", as in the names of its devices.
  std::string str() const;
  /// From str()'s text. Errors: kInvalidArgument that quotes the text.
  static Result<TaskId> parse(std::string_view text);
  /// The same rules for parts that come from elsewhere: a job begins with a letter and has letters, digits, '_', '-'
  /// and '.'; a task counts from 0.
  Status check() const;
};

/// Where a task listens.
struct Address {
  enum class Kind { kTcp, kUnix };
  Kind kind = Kind::kTcp;
  std::string host;   // a name, an IPv4 or an IPv6 address, the latter without brackets; empty for kUnix
  uint16_t port = 0;  // from 1 on; 0 for kUnix
  std::string path;   // for kUnix

  bool operator==(const Address&) const = default;
  /// "host:80", "[::1]:80", "unix:/run/troupe.sock".
  std::string str() const;
  /// From str()'s text. A host name is kept in lower case and not looked up. Errors: kInvalidArgument that quotes the
  /// text and says what is wrong with it.
  static Result<Address> parse(std::string_view text);
};

/// The tasks of a cluster with their addresses. A value that does not change; copies are its owner's.
/// Errors of what follows are kInvalidArgument and name key and value.
class ClusterSpec {
 public:
  /// Tasks by job and number. Numbers may be left out ("sparse"), as they are where a task knows some others only.
  using Jobs = std::map<std::string, std::map<int, Address>>;

  ClusterSpec() = default;  // without tasks
  /// Errors: a name that is not one; a job without tasks, or called "client"; an address that two tasks have; no tasks
  /// at all, or more than kMostTasks.
  static Result<ClusterSpec> make(std::string name, Jobs jobs);
  /// From JSON: {"name": "...", "cluster": {"worker": ["host:port", ...], "ps": {"0": "host:port"}}}. The name may be
  /// left out ("troupe"); a "task" is checked and passed over. Errors: also text that is not JSON, and other keys than
  /// these and TF_CONFIG's "environment", "rpc_layer" and "session_master".
  static Result<ClusterSpec> parse(std::string_view json);

  const std::string& name() const { return name_; }
  const Jobs& jobs() const { return jobs_; }
  /// All tasks, in their order.
  std::vector<TaskId> tasks() const;
  size_t size() const;
  /// nullptr: there is no such task.
  const Address* find(const TaskId& task) const;
  /// The same. Errors: kInvalidArgument that names the jobs there are, or the task numbers of its job.
  Result<Address> address(const TaskId& task) const;
  /// What parse() reads back.
  std::string to_json() const;

  bool operator==(const ClusterSpec&) const = default;

 private:
  ClusterSpec(std::string name, Jobs jobs) : name_(std::move(name)), jobs_(std::move(jobs)) {}

  std::string name_;
  Jobs jobs_;
};

/// What a task is started with: the cluster, and which of its tasks it is.
struct ClusterConfig {
  ClusterSpec cluster;
  std::optional<TaskId> task;

  /// From ClusterSpec's JSON with {"task": {"type": "worker", "index": 0}}, TensorFlow's TF_CONFIG; an index may be
  /// written as text. Errors: as there, and a task that the cluster does not have.
  static Result<ClusterConfig> parse(std::string_view json);
};

}  // namespace troupe::net
