// SPDX-License-Identifier: Apache-2.0
// When devices should receive what other devices make for them: as late as the step allows, so that less of it waits
// in memory. Source: TensorFlow white paper, section 5.2.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "graph/frames.h"
#include "troupe/device_rates.h"

namespace troupe {

/// A step and what its nodes take. Spans and references live as long as schedule_receives() runs.
struct ReceiveEstimates {
  const StepGraph& step;
  const Frames& frames;
  std::span<const uint32_t> devices;               // by node id: where each node of the step runs
  std::function<double(const Node&)> node_ns;      // on its device
  std::function<double(const Output&)> expand_ns;  // what a receiver takes to expand the output; 0: it travels as it is
  Links links = {};
  /// By node id: what the plan has of a node that never runs. Consts count as such, also where none is given.
  std::span<const Tensor* const> constants = {};
};

/// What is to be held back. Nothing of it is in a loop, and no node waits for itself.
struct ReceiveSchedule {
  /// `node` and what follows from it on its device serve another device alone: there `until` is done shortly before.
  struct Made {
    const Node* node;
    const Node* until;
  };
  /// `what` has arrived on `device` in a smaller form, but is not needed before `until`, a node there.
  struct Expanded {
    Output what;
    uint32_t device;
    const Node* until;
  };
  std::vector<Made> made;
  std::vector<Expanded> expanded;
};

/// Estimates when each node begins, as soon as possible with one node at a time on a device, and from the first reader
/// of what crosses back to when it has to be made and sent at the latest. Held back is what takes at least 64 KiB and
///  - is made by nodes without state from constants, fed values and variables alone (a variable only where whoever
///    changes it in the step waits for the reading), for one other device and nobody else; or
///  - is expanded where it arrives;
/// and that only until a node for which its first reader waits anyway, and which the estimate has done so early that
/// twice the time from there to the reader, and a node as long as any of the sending device, fit in between.
ReceiveSchedule schedule_receives(const ReceiveEstimates& estimates);

}  // namespace troupe
