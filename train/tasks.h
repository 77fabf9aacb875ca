// SPDX-License-Identifier: Apache-2.0
// Tasks: the tasks that the devices of a trainer or a pipeline are of. Each task has containers of its own, so names of
// devices must tell where a resource is to be. With an engine alone there is one task, and names stay as they are.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "troupe/engine.h"
#include "troupe/scope.h"

namespace troupe::nn {

class Tasks {
 public:
  explicit Tasks(const Engine& engine);

  /// `device` with the whole name of its task, which is that of the engine's first device that fits; as it is where
  /// none fits, or where the engine is alone.
  std::string complete(const std::string& device) const;
  /// The task of a device, "/job:worker/task:1".
  std::string task_of(const std::string& device) const;
  /// The first device of the engine's own task, where datasets are; empty if the engine is alone.
  const std::string& own() const { return own_; }

 private:
  const OpRegistry& ops_;
  const std::vector<std::string> devices_;
  std::string own_;
};

/// Whether two names of devices tell different tasks.
bool in_other_task(const OpRegistry& ops, std::string_view a, std::string_view b);

}  // namespace troupe::nn
