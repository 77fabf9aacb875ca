// SPDX-License-Identifier: Apache-2.0
// Which device each group of tasks goes to, so that the simulated step ends soonest: the white paper's placement
// (3.2.1), in the order of the way left to the end as HEFT takes tasks (Topcuoglu, Hariri and Wu, 2002).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "plan/simulated_step.h"

namespace troupe {

/// Devices of each group, in order and never empty.
using AllowedDevices = std::span<const std::vector<uint32_t>>;

/// Why a group is where it is.
enum class Chosen : uint8_t {
  kOnly,        // constraints leave one device
  kSoonest,     // its first task would finish there soonest
  kWithReader,  // it is light, and went along with the first that reads it
  kMoved,       // moved afterwards, which made the step shorter
  kTogether,    // the step is the shorter when all is on one device
};

struct Assignment {
  std::vector<uint32_t> device_of;   // by task
  std::vector<Chosen> chosen;        // by group
  std::vector<uint32_t> decided_by;  // by group: the task that finished soonest there, or that reads it; kNone: none
  Schedule schedule;                 // of it, with everything
  std::vector<double> ranks;         // see Simulator
};

/// Each task goes, the one with the longest way to the end of the step first, to the allowed device where it would
/// finish soonest, with what it reads brought there, and takes its group along. Light tasks without inputs go with
/// their first reader. Devices' memory is respected where the tasks leave a choice. Then groups on the critical path
/// move where that shortens the simulated step. The result is never longer than with everything on one device, nor any
/// device fuller. `effort`: tasks simulated while improving, about. Deterministic. Time: tasks times devices, and
/// effort.
Assignment assign(const TaskGraph& tasks, const Cluster& cluster, AllowedDevices allowed, int64_t effort = 1'000'000);

/// When a task would finish on each device, had only it another than in `assignment`.
class Alternatives {
 public:
  Alternatives(const TaskGraph& tasks, const Cluster& cluster, const Assignment& assignment);
  /// Nanoseconds; on its own device the time that it did finish.
  std::vector<double> finish_ns(uint32_t task) const;

 private:
  const TaskGraph& tasks_;
  const Cluster& cluster_;
  const Assignment& assignment_;
  std::vector<std::vector<std::pair<double, double>>> busy_;  // by device, from and to, in order
};

}  // namespace troupe
