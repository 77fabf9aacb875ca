// SPDX-License-Identifier: Apache-2.0
// Swapping, on request: what a GPU will not read for long is brought to the host meanwhile, so that its memory serves
// others: activations between forward and backward, as in TensorFlow's memory optimizer.
//
// A device that runs on takes memory when it puts a node in, not when the card comes to it. So to leave and to come
// back are tied to the card, by nodes of the plan that are done when the card is:
//
//   producer -> copy out ------> copy in -> reader        the value comes back from the host,
//                   \              ^
//                    v             |
//                 a node        wait for the card
//               some places        ^
//                 later            |
//                               a node some places before the reader
//
// The first edge keeps the host from running ahead with new values while old ones still leave; the second keeps values
// from coming back before they are nearly needed. All edges lead from earlier to later in the order of the plan, so
// they make no cycle.
#include "plan/planner.h"

namespace troupe {
namespace {

/// What is smaller as far as its shape is known stays.
constexpr int64_t kLeastSwappedBytes = 64 << 10;

bool is_worth_swapping(DType dtype, const PartialShape& shape) {
  if (!shape.has_rank()) return true;
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  for (const int64_t size : shape.dims()) {
    if (size < 0) return true;
    bytes *= size;
  }
  return bytes >= kLeastSwappedBytes;
}

}  // namespace

bool Planner::swaps(const Held& value, Place here) const {
  if (context_.swap_to_host_after <= 0 || context_.part || context_.partial || control_flow_ || frames_.loops())
    return false;
  const PartitionPlan& plan = drafts_[here.partition].plan;
  // Of nodes of the graph, which are numbered in the order of the plan. What a variable holds would not go.
  if (value.space != Space::kGpu || value.from.partition != here.partition || value.from.node == kNone ||
      value.from.node >= here.node || plan.nodes[value.from.node].kind != NodeKind::kCompute ||
      plan.nodes[here.node].kind != NodeKind::kCompute)
    return false;
  const Node& node = *plan.graph_nodes[value.from.node];
  return is_worth_swapping(node.dtype(value.port), step_->shape({&node, value.port}));
}

uint32_t Planner::compute_node_between(uint32_t partition, uint32_t begin, uint32_t end, bool first) const {
  const PartitionPlan& plan = drafts_[partition].plan;
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t at = first ? i : end - 1 - (i - begin);
    if (plan.nodes[at].kind == NodeKind::kCompute) return at;
  }
  return kNone;
}

Planner::Held Planner::swapped(const Held& value, Place here) {
  const auto apart = static_cast<uint32_t>(context_.swap_to_host_after);
  const uint32_t lead = std::max(apart / 4, 1u);
  const auto [at, fresh] =
      swaps_.try_emplace({here.partition, value.slot}, Swapped{value.from.node, value, /*left=*/false});
  Swapped& swap = at->second;
  const uint32_t before = std::exchange(swap.last_reader, here.node);
  if (here.node - before < apart) return swap.value;

  PartitionDraft& draft = drafts_[here.partition];
  const Held away = copied(value, Space::kHost);
  if (!std::exchange(swap.left, true)) {
    const uint32_t held_up = compute_node_between(here.partition, value.from.node + lead, here.node, true);
    if (held_up != kNone) draft.add_edge(away.from.node, held_up, -1);
  }
  PlanNode back;
  back.kind = NodeKind::kCopy;
  back.num_outputs = 1;
  back.first_output = draft.add_slots(1);
  back.space = Space::kGpu;
  const Place there{here.partition, draft.add_node(back, value.node)};
  read_later(here.partition, there.node, away.slot);
  draft.add_edge(away.from.node, there.node, away.port);
  const uint32_t near = compute_node_between(here.partition, before + 1, here.node - lead + 1, false);
  if (near != kNone) {
    const auto [waits, made] = card_waits_.try_emplace({here.partition, near}, kNone);
    if (made) {
      PlanNode wait;
      wait.kind = NodeKind::kWait;
      waits->second = draft.add_node(wait, draft.plan.graph_nodes[near]);
      draft.add_edge(near, waits->second, -1);
    }
    draft.add_edge(waits->second, there.node, -1);
  }
  swap.value = {there, 0, back.first_output, Space::kGpu, value.node};
  return swap.value;
}

}  // namespace troupe
