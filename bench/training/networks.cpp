// SPDX-License-Identifier: Apache-2.0
#include "bench/training/networks.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>

#include "bench/turns.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"
#include "troupe/train.h"

namespace troupe::bench {
namespace {

constexpr int64_t kBatch = 64;

struct Batch {
  Tensor images, labels;
};
Batch random_batch() {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> pixels(static_cast<size_t>(kBatch * 28 * 28));
  for (float& p : pixels) p = uniform(random);
  std::vector<int32_t> labels(kBatch);
  for (int32_t& l : labels) l = static_cast<int32_t>(random() % 10);
  return {Tensor::of<float>(std::span<const float>(pixels), Shape{kBatch, 28, 28, 1}),
          Tensor::of<int32_t>(std::span<const int32_t>(labels))};
}

/// A loop of steps of one replica; each step's end starts the next.
struct Loop {
  Session& session;
  std::shared_ptr<Session::Prepared> prepared;
  std::vector<Tensor> batch;
  int left;
  std::function<void()> at_100;
  std::promise<Status> ended = {};
  int done = 0;

  void next() {
    session.run_async(prepared, batch, [this](RunResult r) {
      if (++done == 100 && at_100) at_100();
      if (!r.ok() || --left == 0) ended.set_value(r.status());
      else next();
    });
  }
};

}  // namespace

Output network(const std::string& name, const Scope& s, nn::Variables& v, Output x) {
  auto conv = [&](Output in, int64_t filters, int size, const char* label, const char* padding) {
    return nn::relu(s, nn::conv2d(s, v, in, filters, size, label, {.padding = padding}));
  };
  auto dense = [&](Output in, int64_t units, const char* label) {
    return nn::relu(s, nn::dense(s, v, in, units, label));
  };
  Output h;
  if (name == "mlp") {
    h = dense(nn::flatten(s, x), 512, "fc1");
  } else if (name == "lenet") {
    h = nn::max_pool(s, conv(x, 6, 5, "conv1", "SAME"), 2);
    h = nn::max_pool(s, conv(h, 16, 5, "conv2", "VALID"), 2);
    h = dense(dense(nn::flatten(s, h), 120, "fc1"), 84, "fc2");
  } else {
    h = conv(conv(x, 32, 3, "conv1", "VALID"), 64, 3, "conv2", "VALID");
    h = dense(nn::flatten(s, nn::max_pool(s, h, 2)), 128, "fc1");
  }
  return nn::dense(s, v, h, 10, "logits");
}

Result<Speed> train(const std::string& net, int threads, int replicas, int steps) {
  TROUPE_ASSIGN(auto engine, Engine::create({.cpu_threads = std::vector<int>(static_cast<size_t>(replicas), threads)}));
  Graph graph(engine->ops());
  const Scope root(graph);
  nn::Variables variables;
  std::vector<std::vector<Output>> feeds;
  std::vector<Output> losses;
  std::vector<const Node*> updates;
  for (int i = 0; i < replicas; ++i) {
    variables.reuse();
    const Scope s = root.scope(fmt::format("replica{}", i)).device(fmt::format("/cpu:{}", i));
    const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{kBatch, 28, 28, 1}}});
    const Output y = s.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{kBatch}}});
    losses.push_back(nn::sparse_softmax_cross_entropy(s, network(net, s, variables, x), y));
    updates.push_back(nn::minimize(s, variables, nn::sgd(nn::constant_rate(0.01f)), losses.back()));
    feeds.push_back({x, y});
  }
  TROUPE_RETURN_IF_ERROR(root.status());

  Session session(*engine, graph);
  TROUPE_RETURN_IF_ERROR(session.run(std::vector<Feed>{}, {}, variables.initializers()));
  const auto [x, y] = random_batch();

  Speed out;
  auto run = [&](int count, bool watch) -> Status {
    std::vector<std::unique_ptr<Loop>> loops;
    for (int i = 0; i < replicas; ++i) {
      const auto r = static_cast<size_t>(i);
      TROUPE_ASSIGN(auto prepared, session.prepare(feeds[r], {losses[r]}, {updates[r]}));
      loops.emplace_back(new Loop{session, prepared, {x, y}, count, {}});
    }
    if (watch) loops[0]->at_100 = [&out] { out.resident_100 = memory_mib("VmRSS"); };
    for (auto& loop : loops) loop->next();
    Status first;
    for (auto& loop : loops) {
      Status s = loop->ended.get_future().get();
      if (first.ok()) first = std::move(s);
    }
    return first;
  };
  TROUPE_RETURN_IF_ERROR(run(20, false));
  const auto begin = std::chrono::steady_clock::now();
  TROUPE_RETURN_IF_ERROR(run(steps, true));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  out.images_per_second = static_cast<double>(replicas) * steps * kBatch / seconds;
  out.resident_last = memory_mib("VmRSS");
  out.peak = memory_mib("VmHWM");
  return out;
}

namespace {

/// Seconds that the machine's cores have been at work since it started, all together.
double busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft_interrupts = 0;
  file >> cpu >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts;
  return (user + nice + system + interrupts + soft_interrupts) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

Result<Speed> train_replicas(const std::string& net, const std::string& mode, int replicas, int steps,
                             const std::string& cluster) {
  EngineOptions where;
  where.cpu_threads.assign(cluster.empty() ? static_cast<size_t>(replicas) : 1, 1);
  where.cluster.spec = cluster;
  TROUPE_ASSIGN(auto engine, Engine::create(where));
  nn::TrainerOptions options;
  for (const std::string& device : engine->devices())
    if (device.starts_with("/job:ps")) options.variable_devices.push_back(device);
    else if (cluster.empty() || device.starts_with("/job:worker")) options.devices.push_back(device);
  if (options.devices.size() < static_cast<size_t>(replicas))
    return make_error(Code::kInvalidArgument, "{} devices for {} replicas", options.devices.size(), replicas);
  options.devices.resize(static_cast<size_t>(replicas));
  options.optimizer = nn::sgd(nn::constant_rate(0.01f));
  if (mode == "ring" || mode == "zero") options.reduce = nn::ReduceBy::kRing;
  options.shard_optimizer_state = mode == "zero";
  if (mode == "async" || mode == "stale") options.mode = nn::ReplicaMode::kAsync;
  if (mode == "stale") options.max_staleness = 2;
  if (mode == "local") options.mode = nn::ReplicaMode::kLocal, options.local_steps = 8;
  const auto model = [&](const Scope& s, nn::Variables& v, const std::vector<Output>& batch, bool) {
    return nn::ModelOutputs{nn::sparse_softmax_cross_entropy(s, network(net, s, v, batch[0]), batch[1]), {}};
  };
  // One batch, over and over.
  const auto [x, y] = random_batch();
  TROUPE_ASSIGN(const Tensor images, x.reshape(Shape{1, kBatch, 28, 28, 1}));
  TROUPE_ASSIGN(const Tensor labels, y.reshape(Shape{1, kBatch}));
  TROUPE_ASSIGN(Dataset batches, Dataset::from_tensors({images, labels}));
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(*engine, model, batches.repeat(-1), options));
  TROUPE_RETURN_IF_ERROR(trainer->initialise());
  const bool each = options.mode == nn::ReplicaMode::kAsync;  // an update is one of one replica
  TROUPE_RETURN_IF_ERROR(trainer->run(each ? 20 * replicas : 20));
  const double busy = busy_seconds();
  const auto begin = std::chrono::steady_clock::now();
  TROUPE_RETURN_IF_ERROR(trainer->run(each ? int64_t{steps} * replicas : steps));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Speed out;
  out.busy_cores = (busy_seconds() - busy) / seconds;
  out.images_per_second = static_cast<double>(replicas) * steps * kBatch / seconds;
  return out;
}

}  // namespace troupe::bench
