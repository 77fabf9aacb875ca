// SPDX-License-Identifier: Apache-2.0
// A small problem and trainers of it, for tests of each mode.
#pragma once
#include <cmath>
#include <random>

#include "tests/nn/fixture.h"
#include "tests/repeats.h"
#include "troupe/train.h"

namespace troupe::nn {

// Points in the plane, labelled by whether they lie in a circle.
inline Dataset circle(int64_t count, int64_t batch, int64_t repeat = -1, uint64_t seed = 3) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> place(-2, 2);
  std::vector<float> points;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    const float x = place(random), y = place(random), r = std::hypot(x, y);
    points.insert(points.end(), {x, y});
    labels.push_back(r < 1.5f);
  }
  auto made = Dataset::from_tensors({Tensor::of<float>(points, {count, 2}), Tensor::of<int32_t>(labels)});
  REQUIRE(made.ok());
  return made->shuffle(count, seed).repeat(repeat).batch(batch, true);
}

inline ModelOutputs network(const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
  Output x = tanh(s, batch_norm(s, v, dense(s, v, batch[0], 24, "hidden"), "norm", training));
  x = dropout(s, v, x, 0.05f, training);
  const Output logits = dense(s, v, x, 2, "logits");
  return {sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
}

inline TrainerOptions settings(const Engine& engine, ReplicaMode mode, int backups = 0) {
  TrainerOptions o;
  o.mode = mode;
  o.devices = engine.devices();
  o.backups = backups;
  o.optimizer = adam(constant_rate(0.02f));
  return o;
}

/// A way in which replicas work together.
struct Mode {
  const char* name;
  ReplicaMode mode;
  ReduceBy reduce = ReduceBy::kChief;
  bool sharded = false;
};
constexpr Mode kSyncMode = {"sync", ReplicaMode::kSync};
constexpr Mode kRingMode = {"ring", ReplicaMode::kSync, ReduceBy::kRing};
constexpr Mode kZeroMode = {"zero", ReplicaMode::kSync, ReduceBy::kRing, true};
constexpr Mode kAsyncMode = {"async", ReplicaMode::kAsync};
constexpr Mode kHybridMode = {"hybrid", ReplicaMode::kHybrid};
constexpr Mode kLocalMode = {"local", ReplicaMode::kLocal};
constexpr Mode kAllModes[] = {kSyncMode, kRingMode, kZeroMode, kAsyncMode, kHybridMode, kLocalMode};

/// All modes, or under a sanitizer half of them: sync, zero and hybrid with 0, the others with 1. Tests take turns.
inline std::vector<Mode> modes(int half) {
  std::vector<Mode> out;
  for (const Mode& mode : kAllModes)
    if (kSlowness == 1 || static_cast<int>(&mode - kAllModes) % 2 == half) out.push_back(mode);
  return out;
}

inline TrainerOptions settings(const Engine& engine, const Mode& m) {
  TrainerOptions o = settings(engine, m.mode);
  o.reduce = m.reduce;
  o.shard_optimizer_state = m.sharded;
  return o;
}

inline std::unique_ptr<Trainer> trainer_of(Engine& engine, const TrainerOptions& options,
                                           Dataset data = circle(512, 32), ModelFn model = network) {
  auto made = Trainer::create(engine, std::move(model), std::move(data), options);
  INFO((made.ok() ? std::string() : made.error().str()));
  REQUIRE(made.ok());
  return std::move(*made);
}

inline Snapshot snapshot_of(Engine& engine) {
  auto taken = engine.snapshot().get();
  REQUIRE(taken.ok());
  return std::move(*taken);
}

inline bool identical(const Snapshot& a, const Snapshot& b) {
  if (a.variables.size() != b.variables.size()) return false;
  for (const auto& [name, value] : a.variables)
    if (!b.variables.contains(name) || !value.identical(b.variables.at(name))) return false;
  return true;
}

}  // namespace troupe::nn
