// SPDX-License-Identifier: Apache-2.0
// One pass over the tasks of a step that gives each group of them a device.
#pragma once
#include "base/link_ports.h"
#include "plan/assignment.h"

namespace troupe {

/// See assign(). One thread at a time; may be run again with other settings.
class ListPlacement {
 public:
  /// All must outlive it.
  ListPlacement(const TaskGraph& tasks, const Cluster& cluster, AllowedDevices allowed);

  struct Settings {
    double caution = 1;              // what transfers count for, times
    std::span<const double> memory;  // by device, bytes; 0: no limit
  };
  /// Fills device_of, chosen and decided_by.
  void run(const Settings& settings, Assignment& out);

 private:
  static constexpr uint32_t kNone = TaskGraph::kNone;
  static constexpr uint32_t kGaps = 8;

  /// When a device is at work, as far as it is known: until when, and the newest times before that it is idle.
  struct Timeline {
    double until = 0;
    struct Gap {
      double from, to;
    } gaps[kGaps];
    uint32_t count = 0;

    /// The soonest begin of something that is ready then and takes so long.
    double begin(double ready, double ns) const;
    void take(double begin, double ns);
  };
  struct Copy {
    uint32_t device;
    double there;
    uint32_t next;
  };

  void sort_by_rank();
  void place(uint32_t task, Assignment& out);
  void find_ready(uint32_t task);
  bool fits(uint32_t device, double more) const { return limit(device) <= 0 || live_[device] + more <= limit(device); }
  double limit(uint32_t device) const { return settings_.memory.empty() ? 0 : settings_.memory[device]; }
  /// Bytes that come to a device with a task, but for what it reads.
  double brings(uint32_t task) const;
  uint32_t choose(uint32_t task, const std::vector<uint32_t>& devices);
  void settle(uint32_t task, uint32_t device, Assignment& out);
  void give(uint32_t group, uint32_t device, Chosen why, Assignment& out);
  /// The sources that `reader` follows from and that nobody has placed yet go to `device`.
  void pull(uint32_t reader, uint32_t device, Assignment& out);
  const Copy* copy(uint32_t value, uint32_t device) const;

  const TaskGraph& tasks_;
  const Cluster& cluster_;
  const AllowedDevices allowed_;
  Settings settings_;
  std::vector<uint32_t> order_;
  std::vector<double> resident_;  // by group
  std::vector<bool> source_;      // by task: light, and so is all that it follows from
  std::vector<uint32_t> group_device_;
  std::vector<double> finish_;       // by task
  std::vector<bool> placed_;         // by task
  std::vector<bool> marked_;         // by task: is or was in pulled_
  std::vector<Timeline> timelines_;  // by device
  std::vector<LinkPorts> ports_;
  std::vector<uint32_t> first_copy_;  // by value, on devices other than its producer's
  std::vector<Copy> copies_;
  std::vector<double> live_;                      // by device, bytes
  std::vector<uint32_t> unread_;                  // by value: readers not placed
  std::vector<double> ready_, receives_, moved_;  // by device, of the task looked at
  std::vector<uint32_t> inputs_;                  // of it, in the order in which they are there
  std::vector<uint32_t> pulled_;
};

}  // namespace troupe
