// SPDX-License-Identifier: Apache-2.0
// Updates of variables in a GPU's memory: what surrounds their launches. Implemented in
// ops/training/gpu_updates.cpp.
#pragma once
#include <string_view>

#include "gpu/compute.h"
#include "ops/training/update_checks.h"
#include "troupe/kernel.h"

namespace troupe {

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
/// The same of rows of n elements each: with row k of the gradient for the row that the k-th index names, of `rows`
/// that there are, one index after the other. In place. An index that is out of range is passed over.
struct GpuRows {
  const Tensor* indices;  // int32 or int64
  int64_t rows;
};
using LaunchRowUpdate = Status (*)(const gpu::Compute&, const GpuUpdate&, const GpuRows&);
using LaunchUpdate = Status (*)(const gpu::Compute&, const GpuUpdate&);

/// A rule for one type, as ops/training/rules.h says.
struct GpuRule {
  DType dtype;
  int variables, scalars, gradient;
  int step = -1;  // which scalar is an int64
  std::string_view flag = {};
  LaunchUpdate launch = nullptr;
  LaunchRowUpdate launch_rows = nullptr;  // in its place where indices follow the gradient
};

/// The kernel of an op with handles of the rule's variables and then its scalars and gradient, whose type is the
/// attribute `attr`. It runs at the variables' host, which puts the update into the stream of the device that asks:
/// what that made before, the gradient, comes before it, and what that does next comes behind. Errors: as of the CPU's
/// kernel.
void add_gpu_update(KernelRegistry& kernels, const std::string& op, const std::string& attr, const GpuRule& rule);

}  // namespace troupe
