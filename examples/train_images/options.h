// SPDX-License-Identifier: Apache-2.0
// The command line of train_images.
#pragma once
#include <cstdint>
#include <string>

#include "programs/cluster_flags.h"
#include "replica_flags.h"

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string out = "runs/train_images";
  std::string model = "convnet";
  std::string optimizer = "adam";
  std::string dtype = "float32";
  ReplicaFlags together;
  int replicas = 2;
  int batch = 64;
  int epochs = 8;
  double rate = 0;  // 0: the optimizer's own
  int64_t seed = 1;
  int64_t limit = 0;  // images to train on; 0: all
  double save_seconds = 30;
  bool resume = false;
  bool fresh = false;
  bool augment = false;
  bool check_numerics = false;
  std::string devices = "cpu";
  std::string trace;  // file to write; empty: none
  programs::ClusterFlags cluster;

  /// Batches that one update takes.
  int batches_per_update() const { return together.batches_per_update(replicas); }
};

/// What the program is, for its help.
extern const char* const kDescription;
/// Adds the options, which outlive `app`.
void add_options(CLI::App& app, Options& options);

/// The optimizer asked for, its rate falling as a cosine over `updates`.
troupe::nn::Optimizer make_optimizer(const Options& options, int64_t updates);
