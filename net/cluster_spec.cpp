// SPDX-License-Identifier: Apache-2.0
// Clusters from JSON and back.
#include "net/cluster_spec.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/join.h"
#include "base/printable.h"

namespace troupe::net {
namespace {

using nlohmann::json;

/// JSON texts that are larger are no cluster's.
constexpr size_t kLongestSpec = size_t{1} << 20;
/// Values that nest deeper are passed over.
constexpr int kDeepest = 8;

/// A value as JSON, cut short.
std::string json_text(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// An object whose keys are all different and known.
Result<json> parse_object(std::string_view text) {
  if (text.size() > kLongestSpec)
    return invalid_argument("a cluster's JSON has {} bytes, at most {}", text.size(), kLongestSpec);
  std::string twice;
  std::set<std::string> keys[kDeepest + 2];  // of the object that is open at a depth
  const auto look = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest) return false;  // printing what nests without end would take the stack
    if (event == json::parse_event_t::object_start) keys[depth + 1].clear();
    if (event == json::parse_event_t::key && !keys[depth].insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  json out = json::parse(text.begin(), text.end(), look, false);
  if (out.is_discarded() || !out.is_object())
    return invalid_argument("a cluster is not a JSON object: {}", in_quotes(text.substr(0, 60)));
  if (!twice.empty()) return invalid_argument("a cluster's JSON has the key '{}' twice", twice);
  return out;
}

/// A task number from JSON: 3 or "3".
std::optional<int> task_number(const json& value) {
  int64_t out = -1;
  if (value.is_number_unsigned()) {
    out = static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX));
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty() || text[0] == '-' || (text.size() > 1 && text[0] == '0')) return {};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc() || end != text.data() + text.size()) return {};
  }
  if (out < 0 || out > INT32_MAX) return {};
  return static_cast<int>(out);
}

Result<std::map<int, Address>> parse_job(const std::string& job, const json& value) {
  std::map<int, Address> out;
  const auto add = [&](int task, const json& text) -> Status {
    const std::string name = TaskId{job, task}.str();
    if (!text.is_string()) return invalid_argument("{} has no address but {}", name, json_text(text));
    auto address = Address::parse(text.get_ref<const std::string&>());
    if (!address.ok()) return invalid_argument("{}: {}", name, address.error().message);
    out.emplace(task, std::move(*address));
    return {};
  };
  if (value.size() > kMostTasks)
    return invalid_argument("job '{}' has {} tasks, a cluster at most {}", job, value.size(), kMostTasks);
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) TROUPE_RETURN_IF_ERROR(add(static_cast<int>(i), value[i]));
  } else if (value.is_object()) {
    for (const auto& [key, address] : value.items()) {
      const auto task = task_number(key);
      if (!task) return invalid_argument("job '{}': '{}' is not a number of a task", job, key);
      TROUPE_RETURN_IF_ERROR(add(*task, address));
    }
  } else {
    return invalid_argument("job '{}' is neither a list of addresses nor a map of them: {}", job, json_text(value));
  }
  return out;
}

Result<ClusterSpec> parse_cluster(const json& all) {
  // All but the first three are what TF_CONFIG has for others.
  constexpr std::string_view kKnown[] = {
      "name",   "cluster",   "task",           "environment",        "job", "rpc_layer", "service",
      "master", "model_dir", "session_master", "eval_session_master"};
  for (const auto& [key, value] : all.items())
    if (std::ranges::find(kKnown, key) == std::end(kKnown))
      return invalid_argument("a cluster has no '{}': {}", key, json_text(value));
  std::string name = "troupe";
  if (const auto at = all.find("name"); at != all.end()) {
    if (!at->is_string()) return invalid_argument("a cluster's name is not a text: {}", json_text(*at));
    name = at->get<std::string>();
  }
  const auto cluster = all.find("cluster");
  if (cluster == all.end() || !cluster->is_object())
    return invalid_argument("a cluster's JSON has no 'cluster' that maps jobs to addresses: {}", json_text(all));
  ClusterSpec::Jobs jobs;
  for (const auto& [job, value] : cluster->items()) {
    TROUPE_ASSIGN(jobs[job], parse_job(job, value));
  }
  return ClusterSpec::make(std::move(name), std::move(jobs));
}

}  // namespace

Result<ClusterSpec> ClusterSpec::make(std::string name, Jobs jobs) {
  if (!TaskId{name, 0}.check().ok())
    return invalid_argument("'{}' is not a name of a cluster: a letter, then letters, digits, '_', '-' and '.'", name);
  if (jobs.empty()) return invalid_argument("cluster '{}' has no jobs", name);
  std::map<std::string, TaskId> by_address;
  for (const auto& [job, tasks] : jobs) {
    if (job == kClientJob)
      return invalid_argument("cluster '{}': no job is called '{}', which those are that ask for steps", name, job);
    if (job == kOwnJob)
      return invalid_argument("cluster '{}': no job is called '{}', which a client's own devices are of", name, job);
    if (tasks.empty()) return invalid_argument("cluster '{}': job '{}' has no tasks", name, job);
    for (const auto& [task, address] : tasks) {
      const TaskId id{job, task};
      TROUPE_RETURN_IF_ERROR(id.check());
      const auto [at, added] = by_address.emplace(address.str(), id);
      if (!added)
        return invalid_argument("cluster '{}': {} and {} have the same address '{}'", name, at->second.str(), id.str(),
                                at->first);
    }
  }
  if (by_address.size() > kMostTasks)
    return invalid_argument("cluster '{}' has {} tasks, at most {}", name, by_address.size(), kMostTasks);
  return ClusterSpec(std::move(name), std::move(jobs));
}

Result<ClusterSpec> ClusterSpec::parse(std::string_view text) {
  TROUPE_ASSIGN(ClusterConfig config, ClusterConfig::parse(text));
  return std::move(config.cluster);
}

Result<ClusterConfig> ClusterConfig::parse(std::string_view text) {
  TROUPE_ASSIGN(const json all, parse_object(text));
  ClusterConfig out;
  TROUPE_ASSIGN(out.cluster, parse_cluster(all));
  const auto task = all.find("task");
  if (task == all.end()) return out;
  if (!task->is_object() || !task->contains("type") || !(*task)["type"].is_string())
    return invalid_argument("'task' has no 'type' that names a job: {}", json_text(*task));
  const json index = task->value("index", json());
  const auto number = task_number(index);
  if (!number) return invalid_argument("'task' has no 'index' from 0 on: {}", json_text(*task));
  out.task = TaskId{(*task)["type"].get<std::string>(), *number};
  TROUPE_RETURN_IF_ERROR(out.cluster.address(*out.task).status());
  return out;
}

std::vector<TaskId> ClusterSpec::tasks() const {
  std::vector<TaskId> out;
  for (const auto& [job, tasks] : jobs_)
    for (const auto& [task, address] : tasks) out.push_back({job, task});
  return out;
}

size_t ClusterSpec::size() const {
  size_t out = 0;
  for (const auto& [job, tasks] : jobs_) out += tasks.size();
  return out;
}

const Address* ClusterSpec::find(const TaskId& task) const {
  const auto job = jobs_.find(task.job);
  if (job == jobs_.end()) return nullptr;
  const auto at = job->second.find(task.task);
  return at == job->second.end() ? nullptr : &at->second;
}

Result<Address> ClusterSpec::address(const TaskId& task) const {
  if (const Address* found = find(task)) return *found;
  const auto job = jobs_.find(task.job);
  if (job == jobs_.end()) {
    std::vector<std::string> names;
    for (const auto& [other, tasks] : jobs_) names.push_back(other);
    return invalid_argument("cluster '{}' has no job '{}', but {}", name_, task.job, join(names, ", "));
  }
  return invalid_argument("cluster '{}' has no {}: job '{}' has {} tasks, the last is {}", name_, task.str(), task.job,
                          job->second.size(), job->second.rbegin()->first);
}

std::string ClusterSpec::to_json() const {
  json cluster = json::object();
  for (const auto& [job, tasks] : jobs_) {
    const bool dense = tasks.rbegin()->first + size_t{1} == tasks.size();
    json& out = cluster[job] = dense ? json::array() : json::object();
    for (const auto& [task, address] : tasks) {
      if (dense) out.push_back(address.str());
      else out[std::to_string(task)] = address.str();
    }
  }
  return json{{"name", name_}, {"cluster", cluster}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace troupe::net
