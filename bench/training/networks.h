// SPDX-License-Identifier: Apache-2.0
// The networks measured, the same ones as in the peers' scripts: "mlp" 784-512-10, "lenet" LeNet-5, "convnet" with
// 1.2 M parameters.
#pragma once
#include "troupe/nn.h"

namespace troupe::bench {

/// Logits [N,10] of images x: [N,28,28,1].
Output network(const std::string& name, const Scope& scope, nn::Variables& variables, Output x);

/// What one measurement tells.
struct Speed {
  double images_per_second = 0;
  double resident_100 = 0;   // MiB after 100 steps
  double resident_last = 0;  // MiB after the last
  double peak = 0;           // MiB
  double busy_cores = 0;     // of the whole machine meanwhile: of all processes, and of the kernel
};

/// Trains on random images with plain gradient descent, batch 64: `replicas` devices of `threads` each, asynchronous
/// when there are several. `steps` for each replica.
Result<Speed> train(const std::string& net, int threads, int replicas, int steps);

/// The same work by nn::Trainer, one thread a replica, fed through queues; `mode` is one of kModes, `steps` of each
/// replica. Only images_per_second and busy_cores are measured. `cluster`: on devices of its tasks; empty: in this
/// process.
Result<Speed> train_replicas(const std::string& net, const std::string& mode, int replicas, int steps,
                             const std::string& cluster = {});
inline constexpr const char* kModes[] = {"sync", "ring", "zero", "async", "stale", "local"};

}  // namespace troupe::bench
