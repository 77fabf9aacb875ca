// SPDX-License-Identifier: Apache-2.0
// Depths first, then depth after depth sorted by the position of the last input.
#include "plan/firing_order.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr uint32_t kUnnumbered = UINT32_MAX;

/// f(number) of each input and control input whose number is known.
template <class F>
void for_each_known_input(const StepGraph& step, const Node& node, const std::vector<uint32_t>& numbers, F f) {
  const auto look = [&](const Node& n) {
    if (const uint32_t number = numbers[static_cast<size_t>(n.id())]; number != kUnnumbered) f(number);
  };
  for (const Output& in : node.inputs()) look(*step.now(in).node);
  step.for_each_control(node, [&](const Output& before) { look(*before.node); });
}

}  // namespace

std::vector<const Node*> firing_order(const StepGraph& step) {
  const std::vector<const Node*>& nodes = step.nodes();
  std::vector<uint32_t> numbers(static_cast<size_t>(step.ids()),
                                kUnnumbered);  // by node id: first depths, then positions
  std::vector<uint32_t> begins = {0};          // where each depth begins in the result
  for (const Node* node : nodes) {
    uint32_t depth = 0;
    for_each_known_input(step, *node, numbers, [&](uint32_t of_input) { depth = std::max(depth, of_input + 1); });
    numbers[static_cast<size_t>(node->id())] = depth;
    if (begins.size() < depth + 2) begins.resize(depth + 2, 0);
    ++begins[depth + 1];
  }
  for (size_t d = 1; d < begins.size(); ++d) begins[d] += begins[d - 1];

  struct Entry {
    uint32_t last_input;
    const Node* node;
  };
  std::vector<Entry> entries(nodes.size());
  std::vector<uint32_t> next(begins.begin(), begins.end());
  for (const Node* node : nodes) entries[next[numbers[static_cast<size_t>(node->id())]]++] = {0, node};

  // A depth's inputs have their positions by the time it is looked at; back edges come from greater depths.
  for (const Entry& e : entries) numbers[static_cast<size_t>(e.node->id())] = kUnnumbered;
  std::vector<const Node*> ordered;
  ordered.reserve(nodes.size());
  for (size_t d = 0; d + 1 < begins.size(); ++d) {
    const std::span depth(entries.data() + begins[d], entries.data() + begins[d + 1]);
    for (Entry& e : depth)
      for_each_known_input(step, *e.node, numbers, [&](uint32_t at) { e.last_input = std::max(e.last_input, at); });
    if (depth.size() > 1) std::ranges::stable_sort(depth, {}, &Entry::last_input);
    for (const Entry& e : depth) {
      numbers[static_cast<size_t>(e.node->id())] = static_cast<uint32_t>(ordered.size());
      ordered.push_back(e.node);
    }
  }
  return ordered;
}

}  // namespace troupe
