// SPDX-License-Identifier: Apache-2.0
// CutStep: a step that several tasks run, cut into one graph a task. What a part's graph holds is placed, rewritten and
// complete: each node names its device in full, and what crosses from device to device goes through a _Send and the
// _Recv of the same edge (ops/control/edges.cpp), in loops as well. So a task plans its part by looking kernels up and
// laying nodes out, and nothing else: PlanContext::part. Source: TensorFlow white paper, 3.2.2; TensorFlow's partition.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "troupe/graph.h"

namespace troupe {

/// Attributes of a part's nodes: the id of the node of the client's graph that it is (its kernel goes on from step to
/// step, whichever parts have it), and its priority (SessionOptions::priority).
inline constexpr std::string_view kNodeIdAttr = "_id";
inline constexpr std::string_view kPriorityAttr = "_priority";

/// What one task does in a step.
struct StepPart {
  std::string task;  // "/job:worker/replica:0/task:1"
  std::unique_ptr<Graph> graph;
  std::vector<std::pair<uint32_t, Output>> feeds;    // (index of the step's feed, a Placeholder here)
  std::vector<std::pair<uint32_t, Output>> fetches;  // (index of the step's fetch, an output here)
  /// The client's own part of a partial run: it alone has feeds and fetches, and its plan is a partial one.
  bool partial = false;
  /// By the id of a node here: the client's node that it is or serves, of whose output a _Send and a _Recv are;
  /// nullptr: none. They live as long as the client's plan and graph.
  std::vector<const Node*> origins;
  /// The origin of the node of that name, or of the one that it was made for by the task, whose name it continues.
  const Node* origin(std::string_view name) const;
};

/// What crosses from task to task: a _Send in one part, a _Recv in another.
struct CutEdge {
  uint32_t edge = 0;          // the number of both
  uint32_t from = 0, to = 0;  // parts
};

struct CutStep {
  std::vector<StepPart> parts;
  std::vector<CutEdge> edges;  // by number
};

/// The task of a full device name: "/job:worker/replica:0/task:1".
std::string task_of(const std::string& device);
/// What a node that makes a handle names, the same for all that name it; empty for other nodes.
std::string resource_key(const Node& node);

}  // namespace troupe
