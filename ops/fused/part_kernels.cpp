// SPDX-License-Identifier: Apache-2.0
// Kernels by the registry, as for a node of the op.
#include "ops/fused/part_kernels.h"

#include <array>

#include "base/check.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

std::shared_ptr<ComputeKernel> part_kernel(const KernelRegistry& kernels, const std::string& op, const Attrs& attrs) {
  KernelInit init;
  init.op = op;
  init.attrs = &attrs;
  auto kernel = kernels.make(init, DeviceKind::kCpu);
  TROUPE_CHECK(kernel.ok());
  auto* compute = dynamic_cast<ComputeKernel*>(kernel->release());
  TROUPE_CHECK(compute);
  return std::shared_ptr<ComputeKernel>(compute);
}

}  // namespace

PartKernels::PartKernels(const KernelRegistry& kernels) {
  for (const DType dtype : FullFloatTypes::dtypes()) {
    Attrs attrs;
    attrs.set("T", dtype);
    attrs.set("data_format", std::string("NHWC"));
    for (const char* op : {"ReluGrad", "_GeluApproximateGrad", "BiasAddGrad"})
      others_[{op, dtype}] = part_kernel(kernels, op, attrs);
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        attrs.set("transpose_a", ta);
        attrs.set("transpose_b", tb);
        products_[{dtype, ta, tb}] = part_kernel(kernels, "MatMul", attrs);
      }
  }
}

Result<Tensor> run_part(ComputeKernel& kernel, const KernelContext& c, std::vector<Tensor> inputs, bool ours) {
  const auto n = static_cast<int>(inputs.size());
  static constexpr std::array<uint32_t, 4> slots = {0, 1, 2, 3};
  std::array<int32_t, slots.size()> uses = {2, 2, 2, 2};
  TROUPE_CHECK(inputs.size() <= slots.size());
  if (ours) uses[0] = 1;
  inputs.emplace_back();
  KernelContext part(inputs.data(), uses.data(), slots.data(), n, static_cast<uint32_t>(n), 1, c.device(), c.step());
  TROUPE_RETURN_IF_ERROR(kernel.compute(part));
  return std::move(inputs.back());
}

}  // namespace troupe
