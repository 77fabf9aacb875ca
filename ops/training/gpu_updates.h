// SPDX-License-Identifier: Apache-2.0
// Updates of variables in a GPU's memory: what surrounds their launches. Implemented in ops/training/updates.cpp.
#pragma once
#include <string_view>

#include "gpu/compute.h"
#include "troupe/kernel.h"

namespace troupe {

constexpr int kMostVariables = 4, kMostScalars = 8;

/// One launch over n elements: element i of to[k] becomes what the rule makes of that of from[k] (which may be to[k]),
/// with the gradient's and the scalars, all in the GPU's memory.
struct GpuUpdate {
  void* to[kMostVariables];
  const void* from[kMostVariables];
  const void* gradient;
  const void* scalars[kMostScalars];
  bool flag;
  int64_t n;
};
using LaunchUpdate = Status (*)(const gpu::Compute&, const GpuUpdate&);

/// A rule for one type, as ops/training/rules.h says.
struct GpuRule {
  DType dtype;
  int variables, scalars, gradient;
  int step = -1;  // which scalar is an int64
  std::string_view flag = {};
  LaunchUpdate launch;
};

/// The kernel of an op with handles of the rule's variables and then its scalars and gradient, whose type is the
/// attribute `attr`. It runs at the variables' host, which puts the update into the stream of the device that asks:
/// what that made before, the gradient, comes before it, and what that does next comes behind. Errors: as of the CPU's
/// kernel.
void add_gpu_update(KernelRegistry& kernels, const std::string& op, const std::string& attr, const GpuRule& rule);

}  // namespace troupe
