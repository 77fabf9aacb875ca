// SPDX-License-Identifier: Apache-2.0
// Values on devices that have memory of their own: what comes from elsewhere, and what leaves, is in the host's; what
// kernels read and set is in the device's, but for what they are registered to have at the host. Where the two differ a
// node copies the value, once for all who read it.
#include "devices/host_arguments.h"
#include "plan/planner.h"

namespace troupe {
namespace {

/// Where loops and branches pass values on: counters and sizes stay at the host, where ops/gpu_shapes.cpp counts.
Space space_of_passed(DType dtype) { return is_object(dtype) || dtype == DType::kInt32 ? Space::kHost : Space::kGpu; }

}  // namespace

bool Planner::has_memory(uint32_t partition) const {
  return context_.devices[drafts_[partition].plan.device].kind == DeviceKind::kCuda && !spans_tasks();
}

Result<Space> Planner::space_of_output(Place at, int port) const {
  if (!has_memory(at.partition)) return Space::kHost;
  const PartitionPlan& plan = drafts_[at.partition].plan;
  const PlanNode& node = plan.nodes[at.node];
  const Node& graph_node = *plan.graph_nodes[at.node];
  switch (node.kind) {
    case NodeKind::kCopy: return node.space;
    case NodeKind::kConst:
    case NodeKind::kNoOp:
    case NodeKind::kSend:
    case NodeKind::kRecv:
    case NodeKind::kTrigger:
    case NodeKind::kWait:
    case NodeKind::kAlive: return Space::kHost;
    case NodeKind::kMerge:
      if (port > 0) return Space::kHost;
      [[fallthrough]];
    case NodeKind::kSwitch:
    case NodeKind::kEnter:
    case NodeKind::kExit:
    case NodeKind::kNextIteration: return space_of_passed(graph_node.dtype(0));
    case NodeKind::kCompute:
    case NodeKind::kResource:
    case NodeKind::kBlocking: break;
  }
  if (is_object(graph_node.dtype(port))) return Space::kHost;
  TROUPE_ASSIGN(const KernelRegistry::HostMemory host,
                context_.kernels.host_memory(graph_node.op().name(), DeviceKind::kCuda, graph_node.attrs()));
  return names_argument(host.outputs, port, graph_node.num_outputs()) ? Space::kHost : Space::kGpu;
}

Result<Space> Planner::space_of_input(Place here, int index, DType dtype) const {
  if (!has_memory(here.partition) || is_object(dtype)) return Space::kHost;
  const PartitionPlan& plan = drafts_[here.partition].plan;
  const Node& graph_node = *plan.graph_nodes[here.node];
  switch (plan.nodes[here.node].kind) {
    case NodeKind::kSwitch: return index == 0 ? space_of_passed(dtype) : Space::kHost;
    case NodeKind::kMerge:
    case NodeKind::kEnter:
    case NodeKind::kExit:
    case NodeKind::kNextIteration: return space_of_passed(dtype);
    case NodeKind::kCompute:
    case NodeKind::kResource:
    case NodeKind::kBlocking: break;
    default: return Space::kHost;
  }
  TROUPE_ASSIGN(const KernelRegistry::HostMemory host,
                context_.kernels.host_memory(graph_node.op().name(), DeviceKind::kCuda, graph_node.attrs()));
  return names_argument(host.inputs, index, static_cast<int>(graph_node.inputs().size())) ? Space::kHost : Space::kGpu;
}

Result<Planner::Held> Planner::output_held(Place at, int port) const {
  TROUPE_ASSIGN(const Space space, space_of_output(at, port));
  const PartitionPlan& plan = drafts_[at.partition].plan;
  return Held{at, port, plan.nodes[at.node].first_output + static_cast<uint32_t>(port), space,
              plan.graph_nodes[at.node]};
}

Planner::Held Planner::copied(const Held& value, Space space) {
  if (value.space == space) return value;
  const uint32_t partition = value.from.partition;
  PartitionDraft& draft = drafts_[partition];
  auto [at, fresh] = copies_.try_emplace({partition, value.slot}, Place{partition, kNone});
  if (fresh) {
    const uint32_t frame = draft.slot_frames[value.slot];
    PlanNode copy;
    copy.kind = NodeKind::kCopy;
    copy.num_outputs = 1;
    copy.first_output = draft.add_slots(1, frame);
    copy.space = space;
    at->second.node = draft.add_node(copy, value.node, frame);
    read_later(partition, at->second.node, value.slot);
    if (value.from.node != kNone) draft.add_edge(value.from.node, at->second.node, value.port);
  }
  return {at->second, 0, draft.plan.nodes[at->second.node].first_output, space, value.node};
}

Result<uint32_t> Planner::slot_at_host(Place& from, int& port, uint32_t slot) {
  TROUPE_ASSIGN(const Space space, space_of_output(from, port));
  const Held held =
      copied({from, port, slot, space, drafts_[from.partition].plan.graph_nodes[from.node]}, Space::kHost);
  from = held.from;
  port = held.port;
  return held.slot;
}

}  // namespace troupe
