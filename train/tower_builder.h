// SPDX-License-Identifier: Apache-2.0
// What builds a Trainer's graph, for train/towers.cpp and train/copies.cpp.
#pragma once
#include "nn/updates.h"
#include "train/towers.h"

namespace troupe::nn {

/// One replica's forward and backward pass.
struct Tower {
  Output loss, accuracy, examples;
  std::vector<Output> gradients;  // by trainable variable; empty where the loss does not depend on it
  std::vector<const Node*> updates;
};

class TowerBuilder {
 public:
  TowerBuilder(const Scope& scope, Variables& variables, const ModelFn& model, const Dataset& batches,
               const TrainerOptions& options, const std::string& own_task);
  Result<Towers> build();

 private:
  int replicas() const { return static_cast<int>(devices_.size()); }
  Scope at(int replica) const { return root_.device(devices_[static_cast<size_t>(replica)]); }
  Scope chief() const { return at(0); }

  // -- train/towers.cpp
  Status check() const;
  /// Has variables live on options.variable_devices.
  void spread_variables();
  /// The components of a batch, fed.
  std::vector<Output> fed_batch(const Scope& scope) const;
  Output queue(const Scope& scope, const std::string& name, std::vector<DType> types, std::vector<PartialShape> parts,
               int64_t capacity, const char* op = "FIFOQueueV2") const;
  /// The scope for nodes that use the queue of a replica.
  bool batches_on_gpu(int replica) const;
  Scope at_queue(const Scope& scope, int replica) const;
  Output batch_queue(const Scope& scope, int replica) const;
  void input();
  Tower tower(int replica);
  std::vector<Tower> all_towers();
  /// One step of all replicas: their mean loss and accuracy, the moving averages of the first.
  StepSpec step_of(const std::vector<Tower>& towers);
  void sync();
  void async();
  void hybrid();
  void tests();

  // -- train/copies.cpp: each replica has variables of its own
  Variables& variables_of(int replica) {
    return replica == 0 || towers_.copies.empty() ? variables_ : *towers_.copies[static_cast<size_t>(replica - 1)];
  }
  void make_copies();
  /// Trainable variables that have gradients, in the order in which the backward pass makes these.
  std::vector<size_t> trained(const std::vector<Tower>& towers) const;
  /// By replica and variable the mean of the gradients; those of rows are gathered, not summed.
  std::vector<std::vector<Gradient>> reduce(const std::vector<Tower>& towers, const std::vector<size_t>& members);
  std::vector<Gradient> gradients_of(const Scope& scope, const Tower& tower) const;
  /// The same by replica, on the device of each; of rows are those that are so in all replicas.
  std::vector<std::vector<Gradient>> gradients_of(const Scope& scope, const std::vector<Tower>& towers) const;
  void ring();
  void sharded();
  void update_shards(const Bucket& bucket, const std::vector<Output>& pieces, StepSpec& step,
                     std::vector<std::vector<const Node*>>& updates);
  void local();
  void publish();
  bool is_shard(const std::string& name) const;

  const Scope& root_;
  Variables& variables_;
  const ModelFn& model_;
  const TrainerOptions& options_;
  const std::string own_task_;  // a device of the task where the dataset is; empty: there is one task
  std::vector<DType> dtypes_;
  std::vector<PartialShape> shapes_;
  std::vector<std::string> devices_;
  std::string input_device_;
  Scope reduce_;  // where rings are
  std::vector<UpdateRate> rates_;
  Towers towers_;
};

}  // namespace troupe::nn
