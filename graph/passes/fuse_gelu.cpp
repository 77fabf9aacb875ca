// SPDX-License-Identifier: Apache-2.0
// A fused node comes in place of the last of its parts.
#include "graph/passes/fuse_gelu.h"

#include <algorithm>

#include "graph/passes/readers.h"
#include "graph/passes/same_place.h"

namespace troupe {
namespace {

/// Whether all these nodes do nothing but compute, where `last` is.
bool all_beside(const StepGraph& step, const std::vector<const Node*>& nodes, const Node& last) {
  return std::ranges::all_of(
      nodes, [&](const Node* n) { return n->control_inputs().empty() && !step.is_fed(*n) && same_place(*n, last); });
}

/// Whether of these nodes nobody but each other reads any but `last`.
bool read_within(const StepGraph& step, const Readers& readers, const std::vector<const Node*>& nodes,
                 const Node& last) {
  return std::ranges::all_of(nodes, [&](const Node* n) {
    uint32_t times = 0;
    for (const Node* reader : nodes)
      for (const Output& input : reader->inputs()) times += step.now(input).node == n;
    return n == &last || readers.reads(*n) == times;
  });
}

bool serves_gelu(const PassDevices& devices, const Node& last, bool exact, const char* suffix) {
  return devices.on_gpu && devices.on_gpu(last) &&
         devices.serves(last, std::string(exact ? "_GeluExact" : "_GeluApproximate") + suffix);
}

/// Whether `node` may be the last of what is looked for: most are not, and a search takes long.
bool may_be_last(const Node& node, const PassDevices& devices) {
  return !node.inputs().empty() && node.num_outputs() == 1 && devices.on_gpu && devices.on_gpu(node);
}

}  // namespace

GeluGradientFusion::GeluGradientFusion(StepGraph& step, const PassDevices& devices) : step_(step) {
  const Readers readers(step);
  for (const Node* last : step.nodes()) {
    if (!may_be_last(*last, devices)) continue;
    auto found = find_gelu_gradient(step, *last);
    if (!found || !serves_gelu(devices, *last, found->exact, "Grad")) continue;
    if (!all_beside(step, found->parts, *last) || !all_beside(step, found->kept, *last)) continue;
    if (read_within(step, readers, found->parts, *last)) found_.emplace(last->id(), std::move(*found));
  }
}

bool GeluGradientFusion::visit(const Node& node) {
  const auto at = found_.find(node.id());
  if (at == found_.end()) return false;
  const GeluGradient& g = at->second;
  const Output made = step_.add_like(node, g.exact ? "_GeluExactGrad" : "_GeluApproximateGrad", {g.dy, g.x});
  if (!made) return false;
  step_.replace(node, {&made, 1});
  return true;
}

GeluFusion::GeluFusion(StepGraph& step, const PassDevices& devices) : step_(step) {
  const Readers readers(step);
  for (const Node* last : step.nodes()) {
    if (!may_be_last(*last, devices)) continue;
    auto found = find_gelu(step, *last);
    if (!found || !serves_gelu(devices, *last, found->exact, "")) continue;
    if (all_beside(step, found->parts, *last) && read_within(step, readers, found->parts, *last))
      found_.emplace(last->id(), std::move(*found));
  }
}

bool GeluFusion::visit(const Node& node) {
  const auto at = found_.find(node.id());
  if (at == found_.end()) return false;
  const Output made = step_.add_like(node, at->second.exact ? "_GeluExact" : "_GeluApproximate", {at->second.x});
  if (!made) return false;
  step_.replace(node, {&made, 1});
  return true;
}

}  // namespace troupe
