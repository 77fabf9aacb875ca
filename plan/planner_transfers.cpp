// SPDX-License-Identifier: Apache-2.0
// What crosses from device to device in a plan: a Send and a Recv for each tensor and destination, made smaller on
// request, and received no sooner than it is needed.
#include <algorithm>

#include "base/check.h"
#include "graph/node_maker.h"
#include "plan/firing_counts.h"
#include "plan/node_kernels.h"
#include "plan/op_costs.h"
#include "plan/planner.h"
#include "plan/receive_schedule.h"

namespace troupe {

Result<Planner::Place> Planner::transfer(const Output& what, bool value, uint32_t partition) {
  const Node& from = *what.node;
  auto [at, fresh] = transfers_.try_emplace({from.id(), what.port, value, partition}, Place{partition, kNone});
  if (!fresh) return at->second;
  const Place there = where_[static_cast<size_t>(from.id())];
  Place& out = at->second;
  if (value && is_compressed(what)) {
    TROUPE_ASSIGN(out, transfer_compressed(what, there, partition));
    return out;
  }
  if (context_.task.empty() || task_of_partition(there.partition) == task_of_partition(partition)) {
    TROUPE_ASSIGN(out, add_pair(there, what.port, value, partition));
    return out;
  }
  // It comes to a task once, and goes on from there to other devices.
  auto [first, is_first] =
      first_in_task_.try_emplace({from.id(), what.port, value, task_of_partition(partition)}, Place{});
  if (!is_first) {
    TROUPE_ASSIGN(out, add_pair(first->second, 0, value, partition, what));
    return out;
  }
  TROUPE_ASSIGN(first->second, add_pair(there, what.port, value, partition));
  return out = first->second;
}

Result<Planner::Place> Planner::add_pair(Place from, int port, bool value, uint32_t partition, Output what) {
  PartitionDraft& source = drafts_[from.partition];
  PartitionDraft& target = drafts_[partition];
  const Node* producer = source.plan.graph_nodes[from.node];
  if (!what) what = {producer, port};
  uint32_t slot = 0;
  bool direct = false;  // from one GPU's memory to another's
  if (value) {
    slot = source.plan.nodes[from.node].first_output + static_cast<uint32_t>(port);
    TROUPE_ASSIGN(const Space space, space_of_output(from, port));
    direct = space == Space::kGpu && has_memory(partition);
    if (!direct) {
      TROUPE_ASSIGN(slot, slot_at_host(from, port, slot));
    }
  }
  const uint32_t frame = frame_of_outputs(from);
  crossings_.emplace(from.partition, partition, frame);

  PlanNode recv;
  recv.kind = NodeKind::kRecv;
  recv.num_outputs = 1;
  recv.first_output = target.add_slots(1, frame);
  const Place there{partition, target.add_node(recv, producer, frame)};
  target.dependencies[there.node] = 1;

  PlanNode send;
  send.kind = NodeKind::kSend;
  send.to = {partition, there.node};
  const uint32_t send_index = source.add_node(send, producer, frame);
  if (value) read_later(from.partition, send_index, slot);
  source.add_edge(from.node, send_index, port);
  pairs_.push_back({{from.partition, send_index}, there, what, value});
  if (!direct) return there;
  return copied({there, 0, recv.first_output, Space::kHost, producer}, Space::kGpu).from;
}

uint32_t Planner::frame_of_outputs(Place at) const {
  const PlanNode& node = drafts_[at.partition].plan.nodes[at.node];
  const uint32_t frame = drafts_[at.partition].node_frames[at.node];
  if (node.kind == NodeKind::kEnter) return node.enter.frame;
  return node.kind == NodeKind::kExit ? static_cast<uint32_t>(frames_.frames[frame].parent) : frame;
}

void Planner::read_later(uint32_t partition, uint32_t node, uint32_t slot) {
  ++drafts_[partition].plan.nodes[node].num_inputs;
  ++drafts_[partition].uses[slot];
  late_readers_.push_back({partition, node, slot});
}

bool Planner::is_compressed(const Output& what) const {
  return what.dtype() == DType::kFloat32 &&
         transfer_compression(*what.node).value_or(context_.compress_transfers) == TransferCompression::kBFloat16;
}

Result<Planner::Place> Planner::transfer_compressed(const Output& what, Place from, uint32_t partition) {
  auto [at, fresh] = compressed_.try_emplace({what.node->id(), what.port}, Place{});
  if (fresh) {
    TROUPE_ASSIGN(at->second, convert(what, from, DType::kBFloat16));
  }
  TROUPE_ASSIGN(const Place recv, add_pair(at->second, 0, true, partition));
  return convert(drafts_[from.partition].plan.graph_nodes[at->second.node]->out(), recv, DType::kFloat32);
}

Result<Planner::Place> Planner::convert(const Output& what, Place from, DType to) {
  PartitionDraft& draft = drafts_[from.partition];
  Node& node = plan_->conversions->emplace_back();
  const int id = step_->ids() + static_cast<int>(plan_->conversions->size()) - 1;
  const bool expands = to == DType::kFloat32;
  NodeSpec spec{"Cast", what.node->name() + (expands ? "/expanded" : "/compressed"), {what}};
  spec.attrs = {{"DstT", to}, {"Truncate", true}};
  TROUPE_CHECK(NodeMaker::make(*graph_.ops().find("Cast"), std::move(spec), id, node).ok());
  auto kernel = kernel_of(node, draft.plan.device);
  if (!kernel.ok()) {
    lacking_.push_back(std::move(kernel.error()));
    return from;
  }
  plan_->kernels.push_back(kernel->kernel);
  PlanNode cast;
  cast.kind = NodeKind::kCompute;
  cast.compute = static_cast<ComputeKernel*>(kernel->kernel.get());
  cast.num_outputs = 1;
  cast.first_output = draft.add_slots(1, frame_of_outputs(from));
  const Place here{from.partition, draft.add_node(cast, &node, frame_of_outputs(from))};
  const bool received = draft.plan.nodes[from.node].kind == NodeKind::kRecv;
  TROUPE_ASSIGN(const Held held, output_held(from, received ? 0 : what.port));
  TROUPE_ASSIGN(const Space space, space_of_input(here, 0, what.dtype()));
  const Held value = copied(held, space);
  read_later(here.partition, here.node, value.slot);
  drafts_[here.partition].add_edge(value.from.node, here.node, value.port);
  return here;
}

Status Planner::hold_back_receives() {
  const auto rates = [&](const Node& node) -> const DeviceInfo& {
    return context_.devices[devices_[static_cast<size_t>(node.id())]];
  };
  const std::vector<double> firings = firings_of(*step_, frames_, context_.costs);
  const auto node_ns = [&](const Node& node) {
    const DeviceInfo& device = rates(node);
    return firings[static_cast<size_t>(node.id())] * (context_.costs
                                                          ? context_.costs->time_ns(node, kind_of(device), device.rates)
                                                          : cost_of(node).time_ns(device.rates));
  };
  const auto expand_ns = [&](const Output& what) {
    if (!is_compressed(what)) return 0.;
    const double bytes = bytes_of(what.dtype(), step_->shape(what));
    return NodeCost{0, 1.5 * bytes}.time_ns(rates(*what.node).rates);
  };
  const ReceiveSchedule schedule =
      schedule_receives({*step_, frames_, devices_, node_ns, expand_ns, context_.links, constants_});
  for (const auto& [node, until] : schedule.made) {
    const Place here = where_[static_cast<size_t>(node->id())];
    TROUPE_ASSIGN(const uint32_t before, release(*until, here.partition));
    drafts_[here.partition].add_edge(before, here.node, -1);
  }
  for (const auto& [what, device, until] : schedule.expanded) {
    const uint32_t partition = partition_by_device_.at(device);
    const Place expansion = transfers_.at({what.node->id(), what.port, true, partition});
    TROUPE_ASSIGN(const uint32_t before, release(*until, partition));
    drafts_[partition].add_edge(before, expansion.node, -1);
  }
  return {};
}

Result<uint32_t> Planner::release(const Node& until, uint32_t partition) {
  auto [at, fresh] = releases_.try_emplace({until.id(), partition}, kNone);
  if (!fresh) return at->second;
  Place there = where_[static_cast<size_t>(until.id())];
  if (there.partition != partition) {
    TROUPE_ASSIGN(there, transfer({&until, -1}, false, partition));
  }
  at->second = there.node;
  if (!control_flow_) return at->second;
  PlanNode trigger;
  trigger.kind = NodeKind::kTrigger;
  at->second = drafts_[partition].add_node(trigger, &until);
  drafts_[partition].add_edge(there.node, at->second, -1);
  return at->second;
}

}  // namespace troupe
