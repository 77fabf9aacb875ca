// SPDX-License-Identifier: Apache-2.0
// The graph of a Trainer: input steps, one tower for each replica, and the update of each mode.
#pragma once
#include <string>
#include <vector>

#include "troupe/train.h"

namespace troupe::nn {

/// A step that loops: what it is fed, fetches and runs.
struct StepSpec {
  std::vector<Output> feeds, fetches;
  std::vector<const Node*> targets;
};

/// Signatures of every step a Trainer runs.
struct Towers {
  std::vector<StepSpec> enqueue;   // one for each queue, taken in turn
  StepSpec close;                  // closes the queues
  std::vector<StepSpec> replicas;  // fetch loss, accuracy, examples. kSync: one for all; kHybrid: fed the local step
  StepSpec update;                 // kHybrid: takes gradients, updates, hands out tokens
  StepSpec token;                  // kHybrid: fetches the step a replica goes on with
  StepSpec set_step;               // kHybrid: fed a step, tells it to the accumulators
  std::vector<StepSpec> tests;     // one for each device, fed a batch, fetch loss and accuracy
  std::vector<const Node*> initialise;
  Output global_step;
};

/// Adds everything to the scope's graph. Errors: the first of the graph.
Result<Towers> build_towers(const Scope& scope, Variables& variables, const ModelFn& model, const Dataset& batches,
                            const TrainerOptions& options);

}  // namespace troupe::nn
