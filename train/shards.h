// SPDX-License-Identifier: Apache-2.0
// Optimizer state that is parted over replicas, to and from the form it has with one replica. Implemented in
// train/shards.cpp.
#pragma once
#include <vector>

#include "train/towers.h"

namespace troupe::nn {

/// One snapshot of those of all replicas: the first's, with slots joined and named "<variable>/<slot>", without shards.
/// Error: kInternal for chunks of a slot that do not add up to their variables.
Result<Snapshot> join_slots(const std::vector<Shards>& shards, std::vector<Snapshot> replicas);

/// Error: kInvalidArgument for a snapshot without any of a model's trainable variables, which is that of another model.
Status check_of_model(const Snapshot& snapshot, const std::vector<Variable>& trainable);

/// What each replica is to restore: chunks of slots, the first also everything but slots. `variables` are those of
/// each. A slot that the snapshot has for no variable is left out. Error: kInvalidArgument for one that it has for some
/// only, or with another dtype or shape than its variable.
Result<std::vector<Snapshot>> part_slots(const std::vector<Shards>& shards,
                                         const std::vector<const Variables*>& variables, const Snapshot& snapshot);

}  // namespace troupe::nn
