// SPDX-License-Identifier: Apache-2.0
// Does a snapshot of step N, taken while training goes on, hold the same in every run? Trains a small network again and
// again on a loaded machine, takes snapshots at random moments, and compares those of one step bit by bit. Prints one
// Markdown table. Not among them: asynchronous and hybrid replicas, whose batches follow from who is first, so that
// runs differ. That their snapshots are whole tells tests/containers/cuts_test.cpp.
#include <CLI/CLI.hpp>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "programs/program.h"
#include "troupe/train.h"

using namespace troupe;

namespace {

struct Mode {
  const char* name;
  nn::ReplicaMode mode;
  nn::ReduceBy reduce = nn::ReduceBy::kChief;
  bool sharded = false;
  int replicas = 2;
};
constexpr Mode kModes[] = {{"sync", nn::ReplicaMode::kSync},
                           {"ring", nn::ReplicaMode::kSync, nn::ReduceBy::kRing},
                           {"zero", nn::ReplicaMode::kSync, nn::ReduceBy::kRing, true},
                           {"hybrid, one replica", nn::ReplicaMode::kHybrid, nn::ReduceBy::kChief, false, 1},
                           {"local", nn::ReplicaMode::kLocal}};

// Threads that only burn time.
class Load {
 public:
  explicit Load(int threads) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        for (volatile int64_t burn = 0; !stop_;) burn = burn + 1;
      });
  }
  ~Load() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

Result<Dataset> points() {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<float> place(-2, 2);
  std::vector<float> x;
  std::vector<int32_t> labels;
  for (int i = 0; i < 512; ++i) {
    const float a = place(random), b = place(random);
    x.insert(x.end(), {a, b});
    labels.push_back(a * a + b * b < 2);
  }
  TROUPE_ASSIGN(Dataset all, Dataset::from_tensors({Tensor::of<float>(x, {512, 2}), Tensor::of<int32_t>(labels)}));
  return all.shuffle(512, 3).repeat().batch(16, true);
}

nn::ModelOutputs network(const Scope& s, nn::Variables& v, const std::vector<Output>& batch, bool training) {
  Output x = batch[0];
  for (int layer = 0; layer < 4; ++layer)
    x = nn::tanh(s, nn::batch_norm(s, v, nn::dense(s, v, x, 16, fmt::format("hidden{}", layer)),
                                   fmt::format("norm{}", layer), training));
  const Output logits = nn::dense(s, v, x, 2, "logits");
  return {nn::sparse_softmax_cross_entropy(s, logits, batch[1]), nn::accuracy(s, logits, batch[1])};
}

struct Counts {
  int64_t snapshots = 0, compared = 0, different = 0;
};

bool same(const Snapshot& a, const Snapshot& b) {
  return a.variables.size() == b.variables.size() && std::ranges::all_of(a.variables, [&](const auto& v) {
           const auto other = b.variables.find(v.first);
           return other != b.variables.end() && v.second.identical(other->second);
         });
}

Status run_once(const Mode& m, int run, int updates, std::map<int64_t, Snapshot>& seen, Counts& counts) {
  TROUPE_ASSIGN(auto engine, Engine::create({.cpu_threads = std::vector<int>(m.replicas, 1)}));
  TROUPE_ASSIGN(const Dataset data, points());
  nn::TrainerOptions o{.mode = m.mode, .devices = engine->devices()};
  o.reduce = m.reduce;
  o.shard_optimizer_state = m.sharded;
  o.local_steps = m.mode == nn::ReplicaMode::kLocal ? 2 : 1;
  o.optimizer = nn::adam(nn::constant_rate(0.01f));
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(*engine, network, data, o));
  TROUPE_RETURN_IF_ERROR(trainer->initialise());
  std::mt19937 random(static_cast<unsigned>(run));
  Status faults;
  const auto done = trainer->run(updates, [&](const nn::StepReport&) {
    if (!faults.ok() || random() % 3) return;
    auto taken = trainer->snapshot();
    if (!taken.ok()) {
      faults = taken.status();
      return;
    }
    ++counts.snapshots;
    const int64_t step = nn::step_of(*taken).value();
    const auto [at, fresh] = seen.try_emplace(step, std::move(*taken));
    if (fresh) return;
    ++counts.compared;
    counts.different += !same(at->second, *taken);
  });
  TROUPE_RETURN_IF_ERROR(faults);
  return done.status();
}

Status measure(int runs, int updates, int load) {
  const Load burning(load);
  programs::print("| mode | runs | snapshots | of a step seen before | that differ |\n|---|---|---|---|---|\n");
  int64_t different = 0;
  for (const Mode& m : kModes) {
    std::map<int64_t, Snapshot> seen;
    Counts counts;
    for (int run = 0; run < runs; ++run) TROUPE_RETURN_IF_ERROR(run_once(m, run, updates, seen, counts));
    programs::print("| {} | {} | {} | {} | {} |\n", m.name, runs, counts.snapshots, counts.compared, counts.different);
    TROUPE_RETURN_IF_ERROR(programs::flush());
    different += counts.different;
  }
  if (different > 0) return make_error(Code::kDataLoss, "{} snapshots differ", different);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Takes snapshots of trainings at random moments, on a machine with other work, and compares those of the same\n"
      "step between runs, bit by bit; prints a Markdown table. Fails where two differ.");
  int runs = 200, updates = 30, load = 2;
  app.add_option("--runs", runs, "Trainings in each mode")->check(CLI::Range(2, 100'000))->capture_default_str();
  app.add_option("--updates", updates, "Updates in each")->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--load", load, "Threads that only burn time")->check(CLI::Range(0, 1024))->capture_default_str();
  return programs::run(app, argc, argv, [&] { return measure(runs, updates, load); });
}
