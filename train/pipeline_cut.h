// SPDX-License-Identifier: Apache-2.0
// The training step of a pipeline's model on one device, and where it is cut into stages.
#pragma once
#include <string>
#include <vector>

#include "troupe/pipeline.h"

namespace troupe::nn {

/// A model as written, in a graph that never runs: every node is copied from here to the device of its stage.
struct Draft {
  explicit Draft(const OpRegistry& ops, const PipelineOptions& options)
      : graph(ops), variables(options.container, options.seed) {}

  Graph graph;
  Variables variables;
  std::vector<Output> batch;  // placeholders
  Output loss, accuracy;
  std::vector<const Node*> updates;          // of moving averages
  std::vector<std::vector<Output>> handles;  // of the trainable variables, in order: one for each device that uses it
  std::vector<Output> gradients;             // by the trainable variables, in order; may be empty
  std::vector<bool> needed, backward;        // by node id: part of the step; and of its backward pass
  std::vector<int> stage;                    // by node id; -1: not needed
  bool training = false;

  bool is_forward(const Node& node) const { return needed[size_t(node.id())] && !backward[size_t(node.id())]; }
};

/// Builds the model, with gradients of loss * `loss_scale` if `training`. Errors: the first of the graph.
Status write_draft(Draft& draft, const ModelFn& model, const std::vector<DType>& dtypes,
                   const std::vector<PartialShape>& shapes, const PipelineOptions& options, bool training,
                   float loss_scale, std::source_location where);

/// Whether the node needs nothing but itself: constants, handles, and what follows from constants.
std::vector<bool> free_nodes(const Draft& draft);

/// Which nodes of a draft are in loops, by node id.
struct LoopNodes {
  std::vector<bool> runs;   // in an iteration, or brings something of the backward pass into a loop of the forward pass
  std::vector<bool> gives;  // its outputs are an iteration's
};
LoopNodes find_loop_nodes(const Draft& draft);

/// Gives every needed node its stage: forward nodes by `scopes` or, where there are none, by their cost; gradients go
/// with the node that they are the gradient of. In testing a stage may be without nodes, as one of dropout alone is.
/// Returns what each stage costs, nanoseconds.
/// Errors: see Pipeline::create.
Result<std::vector<double>> cut(Draft& draft, int stages, const std::vector<std::string>& scopes,
                                const DeviceRates& rates);

}  // namespace troupe::nn
