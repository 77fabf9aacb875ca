// SPDX-License-Identifier: Apache-2.0
#include "devices/sim_device.h"

#include <cmath>

#include "devices/run_kernel.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

bool makes_known_floats(const Node& node) {
  for (int i = 0; i < node.num_outputs(); ++i)
    if (!is_floating(node.dtype(i)) || !node.shape(i).fully_known()) return false;
  return node.num_outputs() > 0;
}

Status put_zeros(const Node& node, KernelContext& context) {
  for (int i = 0; i < node.num_outputs(); ++i) {
    TROUPE_ASSIGN(Tensor zeros, context.allocate(node.dtype(i), node.shape(i).shape()));
    context.set_output(i, std::move(zeros));
  }
  return {};
}

/// Whether a node that updates a variable does so with floats. Which input has them depends on the op: handles of
/// slots, indices and rates may come before.
bool brings_floats(const KernelContext& context) {
  for (int i = 1; i < context.num_inputs(); ++i)
    if (is_floating(context.input(i).dtype())) return true;
  return false;
}

}  // namespace

Result<Ran> SimDevice::run(const Node& node, ComputeKernel* kernel, KernelContext& context,
                           std::span<const Tensor> outputs) {
  Ran out;
  if (kernel) {
    if (!model_.compute && makes_known_floats(node)) TROUPE_RETURN_IF_ERROR(put_zeros(node, context));
    else TROUPE_RETURN_IF_ERROR(run_kernel(*kernel, context));
  }
  if (!kernel) {
    if (!model_.takes_part(node)) return Ran{.asks = true};
    // What it puts out is told by the resource, unless that is floats.
    out.asks = model_.compute || !brings_floats(context) || (node.num_outputs() > 0 && !makes_known_floats(node));
    if (!out.asks) TROUPE_RETURN_IF_ERROR(put_zeros(node, context));
  }
  const double ns = model_.cost_ns(node, context, kernel ? outputs : std::span<const Tensor>());
  if (!(static_cast<double>(model_.now_ns()) + ns <= kEndOfTime))
    return invalid_argument("it would take {} ns; the virtual clock of simulated devices ends at {} ns", ns,
                            kEndOfTime);
  out.ns = std::llround(ns);
  return out;
}

}  // namespace troupe
