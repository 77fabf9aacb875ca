// SPDX-License-Identifier: Apache-2.0
// The graph of a Pipeline: the model's nodes on the devices of their stages, what makes them wait for one another, sums
// of gradients and updates.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "train/pipeline_cut.h"

namespace troupe::nn {

/// Which forward pass of its device a micro-batch's is, and which backward pass, by the chunk of the stage: passes are
/// counted from the start of the pipeline. Those of each device are taken in groups of as many micro-batches as there
/// are devices, chunk after chunk. Source: Narayanan et al., 2021, section 2.2.
struct Passes {
  int64_t devices = 1, chunks = 1, micro_batches = 1;  // of one replica, in a batch
  int64_t number(int64_t micro_batch, int64_t chunk, bool forward) const;
};

/// Containers of the engine that belong to the pipeline of that name: its event counts, and the sums of gradients of
/// each stage.
std::string events_container(const std::string& name);
std::string sums_container(const std::string& name, int stage);

/// A signature of the session.
struct PipelineStep {
  std::vector<Output> feeds, fetches;
  std::vector<const Node*> targets;
};

struct PipelineGraph {
  // What every training step is fed: int64 scalars, then the components of the micro-batch.
  Output micro_batch;                                   // its number since the start of the pipeline
  Output batch;                                         // the number of its batch
  Output step;                                          // updates of the variables before it
  std::vector<Output> forward_passes, backward_passes;  // by chunk: its numbers on each device (Passes)

  /// The step of micro-batch i of a batch: steps[i]. They fetch loss and accuracy.
  std::vector<PipelineStep> steps;
  PipelineStep test;
  std::vector<const Node*> initialise;
  Output global_step;
  std::vector<PipelineStage> stages;
  std::unordered_map<std::string, int> priorities;  // by name of node
};

/// Adds everything to `graph`. `options` are complete: no defaults left. Errors: see Pipeline::create.
Result<PipelineGraph> build_pipeline(Graph& graph, Variables& variables, const ModelFn& model,
                                     const std::vector<DType>& dtypes, const std::vector<PartialShape>& shapes,
                                     const PipelineOptions& options, std::source_location where);

}  // namespace troupe::nn
