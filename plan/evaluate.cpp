// SPDX-License-Identifier: Apache-2.0
// One kernel, one call.
#include "plan/evaluate.h"

#include <numeric>

#include "devices/parallel.h"
#include "devices/run_kernel.h"

namespace troupe {
namespace {

/// Of the outputs of one node; what is folded is smaller still.
constexpr int64_t kMostBytes = int64_t{1} << 30;

}  // namespace

std::optional<std::vector<Tensor>> evaluate(const KernelRegistry& kernels, const Node& node,
                                            std::span<const Tensor> inputs) {
  KernelInit init{node.op().name(), node.name(), &node.attrs(), {}, {}, {}, {inputs.begin(), inputs.end()}};
  for (const Tensor& in : inputs) {
    init.input_dtypes.push_back(in.dtype());
    init.input_shapes.push_back(in.shape());
  }
  for (int port = 0; port < node.num_outputs(); ++port) init.output_dtypes.push_back(node.dtype(port));
  auto kernel = kernels.make(init, DeviceKind::kCpu);
  auto* compute = kernel.ok() ? dynamic_cast<ComputeKernel*>(kernel->get()) : nullptr;
  if (!compute) return {};

  const auto n = static_cast<uint32_t>(inputs.size());
  std::vector<Tensor> values(inputs.begin(), inputs.end());
  values.resize(n + static_cast<size_t>(node.num_outputs()));
  std::vector<uint32_t> slots(n);
  std::iota(slots.begin(), slots.end(), 0);
  const std::vector<int32_t> uses(n, 2);  // never the last: the inputs are the graph's
  const DeviceInfo device{"planner", DeviceKind::kCpu, 1, make_caching_allocator(kMostBytes, 0)};
  KernelContext context(values.data(), uses.data(), slots.data(), static_cast<int>(n), n, node.num_outputs(), device,
                        0);
  const KeptTeam kept;
  set_team(1);  // results must not depend on how many cores there are
  if (!run_kernel(*compute, context).ok()) return {};
  values.erase(values.begin(), values.begin() + n);
  if (!check_outputs(node, *compute, values).ok()) return {};
  return values;
}

}  // namespace troupe
