// SPDX-License-Identifier: Apache-2.0
// Long short-term memories in inference without what their gradients alone would need.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// Puts _BlockLSTMStates in place of a BlockLSTM or BlockLSTMV2 of float32 on CPUs of which only cs and h are read:
/// then five of seven arrays need not be written, which leaves the faster way for more rows.
/// Left alone: what is fed, nodes with control inputs.
class GateDropping {
 public:
  /// `step` must outlive it and change by visit() alone from now on.
  GateDropping(StepGraph& step, const PassDevices& devices);
  /// True if another node now stands for `node`.
  bool visit(const Node& node);

 private:
  StepGraph& step_;
  const PassDevices& devices_;
  std::vector<bool> gates_read_;  // by id
};

}  // namespace troupe
