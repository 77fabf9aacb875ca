// SPDX-License-Identifier: Apache-2.0
// The graph of a Trainer: input steps, one tower for each replica, and the update of each mode. Implemented in
// train/towers.cpp, what is for replicas with variables of their own in train/copies.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "train/buckets.h"
#include "troupe/train.h"

namespace troupe::nn {

/// A step that loops: what it is fed, fetches and runs.
struct StepSpec {
  std::vector<Output> feeds, fetches;
  std::vector<const Node*> targets;
};

/// Variables whose optimizer state is parted: in the container of replica i is chunk i of `name`, the packed variables,
/// and of each of its slots "<name>/<slot>".
struct Shards {
  std::string name;
  Bucket bucket;
};

/// Signatures of every step a Trainer runs.
struct Towers {
  std::vector<StepSpec> enqueue;    // one for each queue, taken in turn
  StepSpec close;                   // closes the queues
  StepSpec count;                   // of replicas on other tasks that share a queue: fetches how many batches it has
  std::vector<StepSpec> replicas;   // fetch loss, accuracy, examples. kSync: one for all; kHybrid: fed the local step
  StepSpec update;                  // kHybrid: takes gradients, updates, hands out tokens
  StepSpec token;                   // kHybrid: fetches the step a replica goes on with
  StepSpec set_step;                // kHybrid: fed a step, tells it to the accumulators
  StepSpec average;                 // kLocal: makes the variables of all replicas their mean
  StepSpec publish;                 // with copies: gives them the values of the first replica's variables
  std::vector<StepSpec> tests;      // one for each device, fed a batch, fetch loss and accuracy
  std::vector<std::string> tested;  // the devices
  std::vector<const Node*> initialise;
  Output global_step;
  std::vector<std::unique_ptr<Variables>> copies;  // of replicas 1, 2, ...; empty: all share one container
  std::vector<Shards> shards;
};

/// Adds everything to the scope's graph. `options` name the tasks of their devices, see Tasks; the dataset is in the
/// task of the device `own_task`, if that is not empty. Errors: options that do not fit; the first of the graph.
Result<Towers> build_towers(const Scope& scope, Variables& variables, const ModelFn& model, const Dataset& batches,
                            const TrainerOptions& options, const std::string& own_task);

/// Where the queues and accumulators of the trainer of that name are.
std::string trainer_container(const std::string& name);
/// Whether a replica has a queue of batches to itself, so that batch i always goes to replica i modulo N.
inline bool own_queues(ReplicaMode mode) { return mode == ReplicaMode::kSync || mode == ReplicaMode::kLocal; }
/// Nodes of the rings have names that begin so; they run first.
inline constexpr const char* kReduceScope = "reduce/";

}  // namespace troupe::nn
