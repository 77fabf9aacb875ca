// SPDX-License-Identifier: Apache-2.0
#include "replica_flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace nn = troupe::nn;

void ReplicaFlags::add_to(CLI::App& app, const int& replicas) {
  app.add_option("--mode", mode,
                 "sync: gradients of all replicas averaged, one update; ring: the same by ring all-reduce in buckets;\n"
                 "zero: as ring, the optimizer's state in shares (ZeRO-1); async: every replica updates on its own;\n"
                 "hybrid: by accumulators, among all but --backups replicas; local: every replica updates a copy of\n"
                 "its own, and copies are averaged. sync, ring, zero and local give the same result in every run")
      ->check(CLI::IsMember({"sync", "ring", "zero", "async", "hybrid", "local"}))
      ->capture_default_str();
  app.add_option("--staleness", staleness, "async: updates that a replica may be ahead of the slowest; -1: no bound")
      ->check(CLI::Range(-1, 1'000'000))
      ->capture_default_str();
  auto* const backups_option =
      app.add_option("--backups", backups,
                     "hybrid: replicas that an update does not wait for [1, if there are several]")
          ->check(CLI::Range(0, 63))
          ->default_str("");
  app.add_option("--local-steps", local_steps, "local: updates between two averages")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--bucket-kib", bucket_kib, "ring, zero, local: size of the parts that go round, in KiB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--servers", servers, "Variables live on the tasks of the job ps of the cluster");
  app.final_callback([this, &app, &replicas, backups_option] {
    const auto only_of = [&](const char* flag, std::initializer_list<const char*> modes) {
      if (app.count(flag) > 0 && std::ranges::find(modes, mode) == modes.end())
        throw CLI::ValidationError(flag, "has no meaning in mode " + mode);
    };
    only_of("--staleness", {"async"});
    only_of("--backups", {"hybrid"});
    only_of("--local-steps", {"local"});
    only_of("--bucket-kib", {"ring", "zero", "local"});
    only_of("--servers", {"sync", "async", "hybrid"});
    if (backups_option->count() == 0) backups = std::min(1, replicas - 1);
    if (backups >= replicas) throw CLI::ValidationError("--backups", "there must be more replicas");
  });
}

void ReplicaFlags::apply_to(nn::TrainerOptions& options) const {
  options.bucket_bytes = bucket_kib << 10;
  if (mode == "ring" || mode == "zero") options.reduce = nn::ReduceBy::kRing;
  options.shard_optimizer_state = mode == "zero";
  if (mode == "async") options.mode = nn::ReplicaMode::kAsync, options.max_staleness = staleness;
  if (mode == "hybrid") options.mode = nn::ReplicaMode::kHybrid, options.backups = backups;
  if (mode == "local") options.mode = nn::ReplicaMode::kLocal, options.local_steps = local_steps;
}
