// SPDX-License-Identifier: Apache-2.0
// PartitionDraft: one device's part of a plan while it grows, before its edges are laid out in rows and its nodes and
// slots by frame.
#pragma once
#include <map>
#include <vector>

#include "devices/step_plan.h"
#include "graph/frames.h"

namespace troupe {

struct PartitionDraft {
  struct Edge {
    uint32_t from, to;
    int16_t port;  // of `from`; -1: a control edge
  };
  PartitionPlan plan;
  std::vector<Edge> edges;
  std::map<uint32_t, uint32_t> feed_slots;  // by feed
  std::vector<uint32_t> node_frames, slot_frames;
  std::vector<int32_t> dependencies, uses;                    // see FramePlan::counts
  std::vector<std::pair<uint32_t, const Tensor*>> constants;  // by slot

  uint32_t add_slots(uint32_t count, uint32_t frame = 0);
  /// The slot of a constant, which must outlive the plan.
  uint32_t add_constant(const Tensor& value, uint32_t frame);
  uint32_t add_node(PlanNode node, const Node* graph_node, uint32_t frame = 0);
  void add_edge(uint32_t from, uint32_t to, int port);

  /// Lays everything out. Returns the new number of each node, empty where none has changed.
  std::vector<uint32_t> close(const Frames& frames);

 private:
  std::vector<uint32_t> sort_by_frame(const Frames& frames);
  void set_counts();
};

}  // namespace troupe
