// SPDX-License-Identifier: Apache-2.0
// LinkPorts: when the two ports of a device, the one that sends and the one that receives, are free again. Placement
// and simulated devices share this model of transfers.
#pragma once
#include <algorithm>

#include "troupe/device_rates.h"

namespace troupe {

struct LinkPorts {
  double sends_until = 0, receives_until = 0;  // nanoseconds

  /// Occupies the ports for a transfer of `bytes` that is ready at `now`; returns when its last byte is there. It
  /// leaves when the sender is free, and comes in when the receiver is: a transfer that waits there holds up no other.
  static double transfer(LinkPorts& from, LinkPorts& to, const LinkRates& link, double bytes, double now) {
    const double span = bytes / link.bandwidth * 1e9;
    const double leaves = std::max(now, from.sends_until);
    from.sends_until = leaves + span;
    const double comes = std::max(leaves + link.latency_ns, to.receives_until);
    to.receives_until = comes + span;
    return comes + span;
  }
};

}  // namespace troupe
