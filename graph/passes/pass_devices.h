// SPDX-License-Identifier: Apache-2.0
// PassDevices: what passes that choose a form which not all devices have ask of where nodes will run.
#pragma once
#include <functional>
#include <string>

#include "troupe/graph.h"

namespace troupe {

/// A value. All may be empty: then all nodes run on CPUs.
struct PassDevices {
  /// Whether the device of `node` has a kernel for an op with these attributes, of which only types count.
  std::function<bool(const Node& node, const std::string& op, const Attrs& types)> has_kernel = {};
  std::function<bool(const Node&)> on_gpu = {};
  /// Whether what a node gives is in the host's memory.
  std::function<bool(const Output&)> at_host = {};

  /// Whether where `node` is an op of T runs that CPUs have for float32 and float64 alone.
  bool serves(const Node& node, const std::string& op) const {
    const DType dtype = node.dtype(0);
    if (!has_kernel) return dtype == DType::kFloat32 || dtype == DType::kFloat64;
    Attrs types;
    types.set("T", dtype);
    return has_kernel(node, op, types);
  }
};

}  // namespace troupe
