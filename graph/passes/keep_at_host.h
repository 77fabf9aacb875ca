// SPDX-License-Identifier: Apache-2.0
// Logic beside a GPU: what is computed from values that are at the host stays there.
#pragma once
#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// An attribute of type bool's DType that says that a node of a GPU is to compute in the host's memory. A type, since
/// kernels are chosen by types.
inline constexpr const char* kAtHostAttr = "_at_host";

/// Marks LogicalAnd, LogicalOr and LogicalNot of GPUs all of whose inputs are at the host, as the tests of counters are
/// by which loops go on: on the GPU they would go up and come back in every iteration, and the host would wait.
class HostLogic {
 public:
  HostLogic(StepGraph& step, const PassDevices& devices) : step_(step), devices_(devices) {}
  /// True if a marked node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);
  static bool may_apply(const StepGraph& step);

 private:
  StepGraph& step_;
  const PassDevices& devices_;
};

}  // namespace troupe
