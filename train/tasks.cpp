// SPDX-License-Identifier: Apache-2.0
#include "train/tasks.h"

#include <algorithm>
#include <cctype>

namespace troupe::nn {

bool in_other_task(const OpRegistry& ops, std::string_view a, std::string_view b) {
  Graph graph(ops);
  const std::string first = Scope(graph).device(a).task_name(), second = Scope(graph).device(b).task_name();
  // A scope keeps its own kind of device unless it has to go to another task.
  const Scope there = Scope(graph).device(first + "/device:cpu:0").in_task_of(second);
  return there.device_name().find("/device:") == std::string::npos;
}

Tasks::Tasks(const Engine& engine) : ops_(engine.ops()), devices_(engine.devices()) {
  const auto elsewhere = [&](const std::string& device) { return in_other_task(ops_, devices_[0], device); };
  if (std::ranges::any_of(devices_, elsewhere)) own_ = devices_[0];
}

std::string Tasks::task_of(const std::string& device) const {
  Graph graph(ops_);
  std::string out = Scope(graph).device(device).task_name();
  if (const size_t replica = out.find("/replica:0"); replica != std::string::npos) out.erase(replica, 10);
  return out;
}

std::string Tasks::complete(const std::string& device) const {
  if (own_.empty()) return device;
  Graph graph(ops_);
  const Scope scope = Scope(graph).device(device);
  for (const std::string& candidate : devices_) {
    if (in_other_task(ops_, device, candidate)) continue;
    const std::string whole = scope.in_task_of(candidate).device_name();
    const size_t n = whole.size();
    if (candidate.starts_with(whole) && (candidate.size() == n || candidate[n] == '/' || candidate[n] == ':'))
      return whole;
  }
  return device;
}

}  // namespace troupe::nn
