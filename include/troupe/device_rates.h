// SPDX-License-Identifier: Apache-2.0
// DeviceRates, LinkRates, Links: what devices and the links between them can do, as placement and simulation take it.
// Implemented in base/.
#pragma once
#include <cstdint>
#include <vector>

#include "troupe/export.h"

namespace TROUPE_API troupe {

/// What one device can do. The defaults are about those of one core.
struct DeviceRates {
  double flops = 50e9;             // floating-point operations a second
  double memory_bandwidth = 10e9;  // bytes a second
  double launch_ns = 500;          // what every node takes beside its work
  int64_t memory = 0;              // bytes it may hold; 0: no limit
};

/// What one link between two devices can do, in each direction.
struct LinkRates {
  double bandwidth = 10e9;  // bytes a second
  double latency_ns = 1000;

  /// Nanoseconds from the first byte that leaves to the last that is there.
  double time_ns(double bytes) const { return latency_ns + bytes / bandwidth * 1e9; }
};

/// The links between devices, which are numbered from 0 on.
class Links {
 public:
  /// All are alike.
  Links(const LinkRates& all = {}) : within_(all) {}
  /// Devices are in groups, such as those of one task: `group_of` by device. Links within a group are all alike, and so
  /// are those from one group to another: as `within` until set() says otherwise.
  Links(std::vector<uint32_t> group_of, const LinkRates& within);
  /// Of the links from one group to another. Groups that no device is in are passed over.
  void set(uint32_t from_group, uint32_t to_group, const LinkRates& rates);

  /// From one device to another. A device beyond those that were told is in group 0.
  const LinkRates& between(uint32_t from, uint32_t to) const {
    if (between_.empty()) return within_;
    const uint32_t a = group(from), b = group(to);
    return a == b ? within_ : between_[a * groups_ + b];
  }
  bool all_alike() const { return between_.empty(); }
  /// One that stands for any two devices: with the mean latency and the mean time of a byte.
  LinkRates mean() const;

 private:
  uint32_t group(uint32_t device) const { return device < group_of_.size() ? group_of_[device] : 0; }
  LinkRates within_;
  std::vector<uint32_t> group_of_;
  uint32_t groups_ = 0;
  std::vector<LinkRates> between_;  // groups_ times groups_
};

}  // namespace troupe
