// SPDX-License-Identifier: Apache-2.0
#include "plan/partition_draft.h"

#include <numeric>

namespace troupe {
namespace {

/// The new number of each element when they are sorted by group, else as they are; `begins` becomes where each group
/// begins.
std::vector<uint32_t> number_by_group(const std::vector<uint32_t>& group_of, size_t groups,
                                      std::vector<uint32_t>& begins) {
  begins.assign(groups + 1, 0);
  for (uint32_t group : group_of) ++begins[group + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<uint32_t> next(begins.begin(), begins.end() - 1), numbers(group_of.size());
  for (size_t i = 0; i < group_of.size(); ++i) numbers[i] = next[group_of[i]]++;
  return numbers;
}

template <class T> void permute(std::vector<T>& values, const std::vector<uint32_t>& numbers) {
  std::vector<T> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[numbers[i]] = std::move(values[i]);
  values = std::move(out);
}

void count_input(const PlanNode& from, PlanNode& merge) {
  if (from.kind == NodeKind::kEnter && !from.enter.every_iteration) ++merge.merge.enters;
  if (from.kind == NodeKind::kNextIteration) ++merge.merge.nexts;
}

}  // namespace

uint32_t PartitionDraft::add_slots(uint32_t count, uint32_t frame) {
  const auto first = static_cast<uint32_t>(uses.size());
  uses.resize(first + count, 0);
  slot_frames.resize(first + count, frame);
  return first;
}

uint32_t PartitionDraft::add_constant(const Tensor& value, uint32_t frame) {
  const uint32_t slot = add_slots(1, frame);
  uses[slot] = kKeptUses;
  constants.emplace_back(slot, &value);
  return slot;
}

uint32_t PartitionDraft::add_node(PlanNode node, const Node* graph_node, uint32_t frame) {
  plan.nodes.push_back(node);
  plan.graph_nodes.push_back(graph_node);
  dependencies.push_back(node.kind == NodeKind::kMerge ? 1 : 0);
  node_frames.push_back(frame);
  return static_cast<uint32_t>(plan.nodes.size() - 1);
}

void PartitionDraft::add_edge(uint32_t from, uint32_t to, int port) {
  edges.push_back({from, to, static_cast<int16_t>(port)});
  if (plan.nodes[to].kind != NodeKind::kMerge) ++dependencies[to];
  else if (port < 0) dependencies[to] += 2;
}

std::vector<uint32_t> PartitionDraft::close(const Frames& frames) {
  std::vector<uint32_t> renumbered;
  if (frames.loops()) {
    renumbered = sort_by_frame(frames);
  } else {
    plan.frames.emplace_back();
    plan.frames[0].num_nodes = plan.size();
    plan.frames[0].num_slots = static_cast<uint32_t>(uses.size());
    plan.frames[0].constants = std::move(constants);
  }
  const uint32_t n = plan.size();
  plan.nodes.emplace_back();
  for (const Edge& e : edges) {
    ++plan.nodes[e.from + 1].first_successor;
    if (plan.nodes[e.to].kind == NodeKind::kMerge && e.port >= 0) count_input(plan.nodes[e.from], plan.nodes[e.to]);
  }
  for (uint32_t i = 0; i < n; ++i) plan.nodes[i + 1].first_successor += plan.nodes[i].first_successor;
  std::vector<uint32_t> next(n);
  for (uint32_t i = 0; i < n; ++i) next[i] = plan.nodes[i].first_successor;
  plan.successors.resize(edges.size());
  if (plan.control_flow) plan.successor_ports.resize(edges.size());
  for (const Edge& e : edges) {
    if (plan.control_flow) plan.successor_ports[next[e.from]] = e.port;
    plan.successors[next[e.from]++] = e.to;
  }
  for (uint32_t i = 0; i < n; ++i)
    if (dependencies[i] == 0) plan.roots.push_back(i);
  plan.cost_ns = std::make_unique<std::atomic<uint32_t>[]>(n);
  plan.measured = std::make_unique<PartitionPlan::Measured[]>(n);
  set_counts();
  return renumbered;
}

void PartitionDraft::set_counts() {
  auto node = dependencies.begin(), slot = uses.begin();
  for (FramePlan& frame : plan.frames) {
    frame.counts.reserve(2 * frame.num_nodes + frame.num_slots);
    frame.counts.assign(node, node + frame.num_nodes);
    frame.counts.insert(frame.counts.end(), slot, slot + frame.num_slots);
    if (plan.control_flow) frame.counts.resize(frame.counts.size() + frame.num_nodes, 0);
    node += frame.num_nodes;
    slot += frame.num_slots;
  }
}

std::vector<uint32_t> PartitionDraft::sort_by_frame(const Frames& frames) {
  const size_t count = frames.frames.size();
  std::vector<uint32_t> node_begins, slot_begins;
  const std::vector<uint32_t> nodes = number_by_group(node_frames, count, node_begins);
  std::vector<uint32_t> slot_groups = slot_frames;  // of each frame three: see FramePlan
  for (uint32_t& group : slot_groups) group *= 3;
  for (const auto& [slot, value] : constants) slot_groups[slot] += 2;
  for (const PlanNode& node : plan.nodes)
    if (node.kind == NodeKind::kEnter && node.enter.every_iteration) {
      ++slot_groups[node.first_output];
      uses[node.first_output] += kKeptUses;
    }
  const std::vector<uint32_t> slots = number_by_group(slot_groups, 3 * count, slot_begins);
  const auto local = [&](uint32_t slot) { return slots[slot] - slot_begins[3 * slot_frames[slot]]; };
  for (size_t f = 0; f < count; ++f) {
    const Frame& frame = frames.frames[f];
    FramePlan& p = plan.frames.emplace_back();
    p.name = frame.name;
    p.parent = static_cast<uint32_t>(frame.parent);
    p.first_node = node_begins[f];
    p.num_nodes = node_begins[f + 1] - node_begins[f];
    p.num_slots = slot_begins[3 * f + 3] - slot_begins[3 * f];
    p.num_values = slot_begins[3 * f + 1] - slot_begins[3 * f];
    p.num_invariants = slot_begins[3 * f + 2] - slot_begins[3 * f + 1];
    p.parallel = static_cast<uint32_t>(frame.parallel_iterations);
  }
  for (const auto& [slot, value] : constants) plan.frames[slot_frames[slot]].constants.emplace_back(local(slot), value);
  for (PlanNode& node : plan.nodes) {
    if (node.num_outputs > 0) node.first_output = local(node.first_output);
    if (node.kind == NodeKind::kEnter) ++plan.frames[node.enter.frame].enters;
  }
  for (uint32_t i = 0; i < plan.size(); ++i)
    if (plan.nodes[i].kind == NodeKind::kRecv && node_frames[i] > 0) ++plan.frames[node_frames[i]].num_recvs;
  for (uint32_t& slot : plan.input_slots) slot = local(slot);
  for (auto& [feed, slot] : plan.feeds) slot = local(slot);
  for (auto& [slot, fetch] : plan.fetches) slot = local(slot);
  for (Edge& e : edges) e = {nodes[e.from], nodes[e.to], e.port};
  permute(plan.nodes, nodes);
  permute(plan.graph_nodes, nodes);
  permute(dependencies, nodes);
  for (FramePlan& frame : plan.frames)
    for (uint32_t i = frame.first_node; i < frame.first_node + frame.num_nodes; ++i)
      if (plan.nodes[i].kind == NodeKind::kExit) frame.exits.push_back(i);
  permute(uses, slots);
  return nodes;
}

}  // namespace troupe
