// SPDX-License-Identifier: Apache-2.0
// Loops whose nodes are on several devices: each device that takes part has iterations of its own, which follow those
// of the device that decides.
#include <algorithm>

#include "plan/node_kernels.h"
#include "plan/planner.h"

namespace troupe {

LoopPlaces::Wishes Planner::wishes_of(const Placer& placer) const {
  const auto device_of = [this, &placer](const Node& n) {
    const auto moved = moved_.find(n.id());
    return moved == moved_.end() ? placer.device_of(n) : moved->second;
  };
  const bool gpus =
      std::ranges::any_of(context_.devices, [](const DeviceInfo& d) { return d.kind == DeviceKind::kCuda; });
  LoopPlaces::Wishes wishes{[device_of](const Node& n) -> Result<uint32_t> { return device_of(n); },
                            [this](const Node& n) { return !n.device().empty() || moved_.contains(n.id()); },
                            gpus || !context_.task.empty()};
  if (gpus)
    wishes.serves = [this, &placer](const Node& n, uint32_t device) {
      return placer.serves(n, context_.devices[device].kind);
    };
  return wishes;
}

Status Planner::place_loops(const std::vector<const Node*>& needed) {
  TROUPE_ASSIGN(loops_, LoopPlaces::make(*step_, frames_, needed, wishes_of(placer_)));
  return {};
}

Result<Planner::Place> Planner::copy_enter(const Node& node, uint32_t partition) {
  auto [at, fresh] = enter_copies_.try_emplace({node.id(), partition}, Place{partition, kNone});
  if (!fresh) return at->second;
  PartitionDraft& draft = drafts_[partition];
  const auto frame = static_cast<uint32_t>(frames_.of_output(node));
  const Place here = at->second = add_enter(node, frame, true, partition);
  const size_t first_edge = draft.edges.size();
  const Output in = step_->now(node.inputs()[0]);
  TROUPE_ASSIGN(const uint32_t slot, input_slot(in, here, 0));
  read_later(partition, here.node, slot);
  TROUPE_RETURN_IF_ERROR(wait_for_controls(node, here, first_edge));
  return here;
}

Planner::Place Planner::add_enter(const Node& like, uint32_t frame, bool every_iteration, uint32_t partition) {
  PartitionDraft& draft = drafts_[partition];
  PlanNode enter;
  enter.kind = NodeKind::kEnter;
  enter.num_outputs = 1;
  enter.first_output = draft.add_slots(1, frame);
  enter.enter = {frame, every_iteration};
  return {partition, draft.add_node(enter, &like, static_cast<uint32_t>(frames_.frames[frame].parent))};
}

Status Planner::share_loops() {
  for (const auto& [frame, shared] : loops_.shared()) {
    const uint32_t decides = where_[static_cast<size_t>(shared.condition.node->id())].partition;
    std::vector<Place> merges;
    for (const uint32_t device : shared.devices) {
      TROUPE_ASSIGN(const Place merge, follow_loop(static_cast<uint32_t>(frame), shared, partition_of(device)));
      merges.push_back(merge);
    }
    // Who decides is told that the others have begun an iteration, so that it does not run away from them.
    for (const Place& merge : merges)
      if (merge.partition != decides && !crossings_.contains({merge.partition, decides, frame}))
        TROUPE_RETURN_IF_ERROR(add_pair(merge, 0, false, decides).status());
  }
  return {};
}

Result<Planner::Place> Planner::follow_loop(uint32_t frame, const LoopPlaces::Shared& shared, uint32_t partition) {
  PartitionDraft& draft = drafts_[partition];
  const Node& condition = *shared.condition.node;
  // Enters when, and lives if, the loop is entered elsewhere.
  const Place enter = add_enter(*shared.enter, frame, false, partition);
  const size_t first_edge = draft.edges.size();
  read_later(partition, enter.node,
             draft.add_constant(plan_->token, static_cast<uint32_t>(frames_.frames[frame].parent)));
  if (const Output in = step_->now(shared.enter->inputs()[0]); !step_->is_fed(in)) {
    if (!constant(*in.node)) TROUPE_RETURN_IF_ERROR(wait_for(in, enter));
  }
  TROUPE_RETURN_IF_ERROR(wait_for_controls(*shared.enter, enter, first_edge));

  PlanNode merge, branch, next;
  merge.kind = NodeKind::kMerge;
  branch.kind = NodeKind::kSwitch;
  next.kind = NodeKind::kNextIteration;
  merge.num_outputs = branch.num_outputs = 2;
  next.num_outputs = 1;
  for (PlanNode* node : {&merge, &branch, &next}) node->first_output = draft.add_slots(node->num_outputs, frame);
  const Place merged{partition, draft.add_node(merge, &condition, frame)};
  const uint32_t branched = draft.add_node(branch, &condition, frame),
                 follows = draft.add_node(next, &condition, frame);
  read_later(partition, merged.node, draft.plan.nodes[enter.node].first_output);
  read_later(partition, merged.node, next.first_output);
  draft.add_edge(enter.node, merged.node, 0);
  draft.add_edge(follows, merged.node, 0);
  read_later(partition, branched, merge.first_output);
  draft.add_edge(merged.node, branched, 0);
  TROUPE_ASSIGN(const uint32_t decision, input_slot(shared.condition, {partition, branched}, 1));
  read_later(partition, branched, decision);
  read_later(partition, follows, branch.first_output + 1);
  draft.add_edge(branched, follows, 1);
  return merged;
}

Status Planner::wait_for(const Output& before, Place here) {
  Place there = where_[static_cast<size_t>(before.node->id())];
  if (there.partition != here.partition && is_constant_enter(*before.node)) {
    TROUPE_ASSIGN(there, copy_enter(*before.node, here.partition));
  }
  const bool local = there.partition == here.partition;
  if (!local) {
    TROUPE_ASSIGN(there, transfer(before, false, here.partition));
  }
  drafts_[here.partition].add_edge(there.node, here.node, local ? before.port : -1);
  return {};
}

}  // namespace troupe
