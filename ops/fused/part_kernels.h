// SPDX-License-Identifier: Apache-2.0
// The kernels of CPUs that fused products of float32 and float64 run. Implemented in ops/fused/part_kernels.cpp.
#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "troupe/kernel.h"

namespace troupe {

/// Found once; shared by the kernels of all nodes.
class PartKernels {
 public:
  explicit PartKernels(const KernelRegistry& kernels);
  std::shared_ptr<ComputeKernel> product(DType dtype, bool ta, bool tb) const { return products_.at({dtype, ta, tb}); }
  /// ReluGrad, _GeluApproximateGrad or BiasAddGrad.
  std::shared_ptr<ComputeKernel> find(const std::string& op, DType dtype) const { return others_.at({op, dtype}); }

 private:
  std::map<std::tuple<DType, bool, bool>, std::shared_ptr<ComputeKernel>> products_;
  std::map<std::pair<std::string, DType>, std::shared_ptr<ComputeKernel>> others_;
};

/// Runs a kernel of one output on these inputs in place of those of `c`. It may write into the first if `ours` and
/// nobody else has it.
Result<Tensor> run_part(ComputeKernel& kernel, const KernelContext& c, std::vector<Tensor> inputs, bool ours);

}  // namespace troupe
