// SPDX-License-Identifier: Apache-2.0
// How several replicas of a model train together, as a command line says: --mode and what belongs to one mode.
//
//   sync    the first replica's device adds the gradients up and updates variables that all share
//   ring    the gradients go round in buckets while the backward pass goes on; each updates its copy of the variables
//   zero    as ring, but each keeps and updates a share of the optimizer's state and sends the others what follows
//   async   each updates shared variables on its own, at most --staleness updates ahead of the slowest
//   hybrid  gradients gather in accumulators; an update takes those of all but --backups replicas and drops late ones
//   local   each updates a copy of its own; every --local-steps the copies are averaged
#pragma once
#include <cstdint>
#include <string>

#include "troupe/train.h"

namespace CLI {
class App;
}

struct ReplicaFlags {
  std::string mode = "async";
  int64_t staleness = -1, local_steps = 8, bucket_kib = 1024;
  int backups = -1;  // -1: 1, or 0 of a single replica
  bool servers = false;

  /// The flags; what the mode does not know, and --backups beyond `replicas`, are mistakes. Both outlive `app`.
  void add_to(CLI::App& app, const int& replicas);
  void apply_to(troupe::nn::TrainerOptions& options) const;

  /// Batches that one update takes.
  int batches_per_update(int replicas) const { return mode == "async" ? 1 : replicas; }
};
