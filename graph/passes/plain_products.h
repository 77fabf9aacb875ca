// SPDX-License-Identifier: Apache-2.0
// Products of many matrices by one.
#pragma once
#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// On CPUs puts Reshape(MatMul(Reshape(x), w)) in place of BatchMatMulV2(x, w) with a matrix w, as Keras writes the
/// projections of attention and layers of sequences: a weight can be laid out once, and a bias come along
/// (fuse_epilogues.h). Of the result no more than one size may be unknown.
class PlainProducts {
 public:
  /// `step` must outlive it and change by visit() alone from now on.
  explicit PlainProducts(StepGraph& step, const PassDevices& devices = {}) : step_(step), devices_(devices) {}
  /// True if something else now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  StepGraph& step_;
  const PassDevices devices_;
};

}  // namespace troupe
