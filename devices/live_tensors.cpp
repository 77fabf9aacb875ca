// SPDX-License-Identifier: Apache-2.0
// Walks the slots of all iterations of all steps; slow, and only for an error.
#include "devices/live_tensors.h"

#include <algorithm>
#include <unordered_set>

#include "troupe/tensor_list.h"

namespace troupe {
namespace {

constexpr size_t kMostNamed = 8;

struct LiveTensor {
  Output output;
  const Tensor* value;
  size_t bytes;
  int64_t step;
};

/// The frame that the outputs of a node belong to, which runs in `frame`.
uint32_t frame_of_outputs(const PartitionPlan& plan, const PlanNode& node, uint32_t frame) {
  if (node.kind == NodeKind::kEnter) return node.enter.frame;
  return node.kind == NodeKind::kExit ? plan.frames[frame].parent : frame;
}

/// Bytes that none of `seen` has: of the buffer, or those of a list's elements.
size_t bytes_beside(const Tensor& value, std::unordered_set<const void*>& seen) {
  size_t bytes = 0;
  for (std::vector<const Tensor*> rest = {&value}; !rest.empty();) {
    const Tensor& t = *rest.back();
    rest.pop_back();
    if (!t.defined() || t.bytes() == 0 || t.dtype() == DType::kResource || !seen.insert(t.address()).second) continue;
    if (t.dtype() != DType::kVariant) {
      bytes += t.bytes();
      continue;
    }
    for (const TensorListRef& list : t.values<TensorListRef>())
      if (list)
        for (const Tensor& element : list->elements) rest.push_back(&element);
  }
  return bytes;
}

std::vector<LiveTensor> find_live(std::span<const std::unique_ptr<StepState>> steps) {
  std::vector<LiveTensor> out;
  std::unordered_set<const void*> seen;
  const auto look = [&](const StepState& s, const Iteration& in) {
    const PartitionPlan& plan = *s.plan;
    for (uint32_t f = 0; f < plan.frames.size(); ++f)
      for (uint32_t i = plan.frames[f].first_node; i < plan.frames[f].first_node + plan.frames[f].num_nodes; ++i) {
        const PlanNode& node = plan.nodes[i];
        if (node.kind == NodeKind::kRecv || node.kind == NodeKind::kConst || !plan.graph_nodes[i]) continue;
        if (frame_of_outputs(plan, node, f) != in.frame) continue;
        for (uint32_t port = 0; port < node.num_outputs; ++port) {
          const Tensor& value = in.values[node.first_output + port];
          if (const size_t bytes = bytes_beside(value, seen))
            out.push_back({{plan.graph_nodes[i], static_cast<int>(port)}, &value, bytes, s.call->id});
        }
      }
  };
  for (const auto& s : steps) {
    look(*s, *s->iterations[0]);
    for (const auto& loop : s->loops)
      for (const uint32_t iteration : loop->iterations) look(*s, *s->iterations[iteration]);
  }
  return out;
}

}  // namespace

std::string describe_live_tensors(std::span<const std::unique_ptr<StepState>> steps, const AllocatorStats& memory) {
  std::vector<LiveTensor> live = find_live(steps);
  std::ranges::stable_sort(live, std::ranges::greater(), &LiveTensor::bytes);
  size_t total = 0;
  for (const LiveTensor& t : live) total += t.bytes;
  std::string out =
      fmt::format("{} bytes in use, limit {}; of {} live tensors in {} steps ({} bytes) the largest:", memory.in_use,
                  memory.limit, live.size(), steps.size(), total);
  for (size_t i = 0; i < std::min(live.size(), kMostNamed); ++i)
    out += fmt::format("{} '{}' {}{} {} bytes (step {})", i ? "," : "", live[i].output.name(),
                       to_string(live[i].value->dtype()), live[i].value->shape().str(), live[i].bytes, live[i].step);
  return out + (live.empty() ? " none" : "");
}

}  // namespace troupe
