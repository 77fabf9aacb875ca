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

}  // namespace

GeluFusion::GeluFusion(StepGraph& step, const PassDevices& devices, Of of) : step_(step) {
  if (!devices.on_gpu) return;
  const Readers readers(step);
  for (const Node* last : step.nodes()) {
    // Most are not the last of one, and a search takes long.
    if (last->inputs().empty() || last->num_outputs() != 1 || !devices.on_gpu(*last)) continue;
    Fused fused;
    std::vector<const Node*> parts, kept;
    const auto take = [&](auto&& found, const char* suffix, std::vector<Output> inputs) {
      fused = {std::string(found.exact ? "_GeluExact" : "_GeluApproximate") + suffix, std::move(inputs)};
      parts = std::move(found.parts);
    };
    if (of == Of::kForward) {
      if (auto found = find_gelu(step, *last)) take(*found, "", {found->x});
    } else if (auto found = find_gelu_gradient(step, *last)) {
      kept = std::move(found->kept);
      take(*found, "Grad", {found->dy, found->x});
    }
    if (parts.empty() || !devices.serves(*last, fused.op)) continue;
    if (all_beside(step, parts, *last) && all_beside(step, kept, *last) && read_within(step, readers, parts, *last))
      found_.emplace(last->id(), std::move(fused));
  }
}

bool GeluFusion::visit(const Node& node) {
  const auto at = found_.find(node.id());
  if (at == found_.end()) return false;
  const Output made = step_.add_like(node, at->second.op, at->second.inputs);
  if (!made) return false;
  step_.replace(node, {&made, 1});
  return true;
}

}  // namespace troupe
