// SPDX-License-Identifier: Apache-2.0
// DeviceRates, LinkRates: what devices and the links between them can do, as placement and simulation take it.
// Implemented in base/.
#pragma once
#include <cstdint>

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

}  // namespace troupe
