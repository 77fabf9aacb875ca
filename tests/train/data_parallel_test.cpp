// SPDX-License-Identifier: Apache-2.0
// Replicas with variables of their own: by a ring, with parted optimizer state, local; and the bound of staleness.
#include <atomic>
#include <set>

#include "tests/train/trainer_fixture.h"

namespace troupe::nn {
namespace {

ModelOutputs two_layers(const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
  const Output logits = dense(s, v, tanh(s, dense(s, v, batch[0], 8, "hidden")), 2, "logits");
  return {sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
}

TrainerOptions ring(const Engine& engine, bool shard = false) {
  TrainerOptions o = settings(engine, ReplicaMode::kSync);
  o.reduce = ReduceBy::kRing;
  o.shard_optimizer_state = shard;
  o.bucket_bytes = 64;  // several buckets, some of several variables
  return o;
}

TrainerOptions local(const Engine& engine, int64_t steps) {
  TrainerOptions o = settings(engine, ReplicaMode::kLocal);
  o.local_steps = steps;
  return o;
}

Snapshot whole_of(Trainer& trainer) {
  auto taken = trainer.snapshot();
  INFO((taken.ok() ? std::string() : taken.error().str()));
  REQUIRE(taken.ok());
  return std::move(*taken);
}

void check_close(const Snapshot& a, const Snapshot& b, double margin = 1e-5) {
  REQUIRE(a.variables.size() == b.variables.size());
  for (const auto& [name, value] : a.variables) {
    INFO(name);
    REQUIRE(b.variables.contains(name));
    const Tensor& other = b.variables.at(name);
    REQUIRE(value.shape() == other.shape());
    if (value.dtype() == DType::kInt64) CHECK(value.identical(other));
    else
      for (int64_t i = 0; i < value.elements(); ++i)
        CHECK(value.data<float>()[i] == Approx(other.data<float>()[i]).epsilon(1e-3).margin(margin));
  }
}

/// What `updates` of a trainer with these options make of the variables.
Snapshot variables_after(int replicas, const std::function<TrainerOptions(const Engine&)>& options, int64_t updates,
                         const ModelFn& model = two_layers, Dataset data = circle(512, 16)) {
  auto engine = engine_of(replicas);
  auto trainer = trainer_of(*engine, options(*engine), std::move(data), model);
  REQUIRE(trainer->initialise().ok());
  auto summary = trainer->run(updates);
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == updates);
  return whole_of(*trainer);
}

TEST_CASE("the modes with copies learn, with several replicas and with one") {
  const int replicas = GENERATE(1, 3);
  const int kind = GENERATE(0, 1, 2);
  if (kSlowness > 1 && replicas == 1) return;
  auto engine = engine_of(replicas);
  const TrainerOptions o = kind == 2 ? local(*engine, 4) : ring(*engine, kind == 1);
  auto trainer = trainer_of(*engine, o);
  REQUIRE(trainer->initialise().ok());
  const auto before = trainer->evaluate(circle(500, 100, 1));
  REQUIRE(before.ok());
  int64_t reports = 0;
  for (int part = 1; part <= 2; ++part) {
    auto summary = trainer->run(90, [&](const StepReport&) { ++reports; });
    INFO((summary.ok() ? std::string() : summary.error().str()));
    REQUIRE(summary.ok());
    CHECK(summary->updates == 90);
    CHECK(trainer->step() == 90 * part);
    CHECK(snapshot_of(*engine).variables.at("global_step").data<int64_t>()[0] == 90 * part);
  }
  CHECK(reports == (kind == 2 ? replicas : 1) * 180);
  const auto after = trainer->evaluate(circle(500, 100, 1));
  REQUIRE(after.ok());
  CHECK(after->accuracy > 0.85);
  CHECK(after->loss < before->loss);
}

TEST_CASE("gradients reduced by a ring give what the chief gives, within rounding") {
  const auto clip = GENERATE(false, true);
  const auto with = [&](ReduceBy reduce, bool shard) {
    return variables_after(
        3,
        [&](const Engine& e) {
          TrainerOptions o = ring(e, shard);
          o.reduce = reduce;
          o.optimizer.l2 = 1e-3f;
          o.optimizer.weight_decay = 1e-3f;
          if (clip) o.optimizer.clip = clip_by_global_norm(0.5f);
          return o;
        },
        12);
  };
  const Snapshot chief = with(ReduceBy::kChief, false), by_ring = with(ReduceBy::kRing, false);
  check_close(chief, by_ring);
  check_close(by_ring, with(ReduceBy::kRing, true));
}

TEST_CASE("parted optimizer state changes no bit where chunks fill vector registers") {
  // Elements left over from whole registers may round differently, and which these are depends on the chunk.
  const auto wide = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
    const Output logits = dense(s, v, tanh(s, dense(s, v, batch[0], 48, "hidden")), 2, "logits");
    return ModelOutputs{sparse_softmax_cross_entropy(s, logits, batch[1]), {}};
  };
  const auto weights = [&](bool shard) {
    return variables_after(
        3, [&](const Engine& e) { return ring(e, shard); }, 20, wide);
  };
  const Snapshot all = weights(false), parted = weights(true);
  CHECK(identical(all, parted));
  CHECK(all.variables.contains("hidden/kernel/adam_m"));
}

TEST_CASE("each replica keeps its share of the optimizer's state, and the same variables") {
  auto engine = engine_of(3);
  auto trainer = trainer_of(*engine, ring(*engine, true), circle(512, 16), two_layers);
  REQUIRE(trainer->initialise().ok());
  REQUIRE(trainer->run(5).ok());
  const Snapshot first = snapshot_of(*engine);
  int64_t all = 0, most = 0, slots = 0, trainable = 0;
  for (const Variable& v : trainer->variables().trainable()) trainable += v.shape.elements();
  for (const std::string container : {"", "train/replica_1", "train/replica_2"}) {
    auto taken = engine->snapshot(container).get();
    REQUIRE(taken.ok());
    int64_t own = 0;
    for (const auto& [name, value] : taken->variables) {
      if (name.ends_with("/adam_m")) own += value.elements(), ++slots;
      if (!name.starts_with("train/")) CHECK(value.identical(first.variables.at(name)));
    }
    all += own;
    most = std::max(most, own);
  }
  CHECK(all == trainable);
  CHECK(slots > 3);
  CHECK(most <= (trainable + 2) / 3 + slots / 3);  // a chunk is larger by at most one element
}

TEST_CASE("the modes with copies repeat bit by bit, and all copies agree") {
  const int kind = GENERATE(0, 1, 2);
  const auto weights = [&] {
    auto engine = engine_of(3);
    auto trainer = trainer_of(*engine, kind == 2 ? local(*engine, 3) : ring(*engine, kind == 1));
    REQUIRE(trainer->initialise().ok());
    REQUIRE(trainer->run(20).ok());
    const Snapshot first = snapshot_of(*engine);
    for (const std::string container : {"train/replica_1", "train/replica_2"}) {
      auto taken = engine->snapshot(container).get();
      REQUIRE(taken.ok());
      for (const Variable& v : trainer->variables().trainable())
        CHECK(taken->variables.at(v.name).identical(first.variables.at(v.name)));
    }
    return whole_of(*trainer);
  };
  CHECK(identical(weights(), weights()));
}

TEST_CASE("a snapshot restores in any mode; a run by a ring continues bit by bit") {
  const bool shard = GENERATE(false, true);
  auto engine = engine_of(2);
  auto whole = trainer_of(*engine, ring(*engine, shard));
  REQUIRE(whole->initialise().ok());
  REQUIRE(whole->run(10).ok());
  const Snapshot half = whole_of(*whole);
  REQUIRE(whole->run(10).ok());

  auto fresh = engine_of(2);
  auto rest = trainer_of(*fresh, ring(*fresh, shard), circle(512, 32).skip(20));
  REQUIRE(rest->restore(half).ok());
  CHECK(rest->step() == 10);
  REQUIRE(rest->run(10).ok());
  CHECK(identical(whole_of(*whole), whole_of(*rest)));

  auto other = engine_of(3);  // another mode, another number of replicas
  auto chief = trainer_of(*other, shard ? settings(*other, ReplicaMode::kAsync) : ring(*other, true));
  REQUIRE(chief->restore(half).ok());
  CHECK(identical(whole_of(*chief), half));
  REQUIRE(chief->run(5).ok());

  Snapshot broken = half;
  broken.variables.at("hidden/kernel/adam_m") = Tensor::of<float>({1, 2});
  auto last = engine_of(2);
  auto refusing = trainer_of(*last, ring(*last, true));
  const Status status = refusing->restore(broken);
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().message, Catch::Contains("hidden/kernel/adam_m"));
}

// Words by number: each batch touches some rows of a table.
Dataset words(int64_t count, int64_t batch) {
  std::mt19937 random(5);
  std::vector<int32_t> ids, labels;
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<int32_t>(random() % 40);
    ids.push_back(id);
    labels.push_back(id % 3 == 0);
  }
  auto made = Dataset::from_tensors(
      {Tensor::of<int32_t>(std::span<const int32_t>(ids)), Tensor::of<int32_t>(std::span<const int32_t>(labels))});
  REQUIRE(made.ok());
  return made->repeat(-1).batch(batch, true);
}

// By a gather from the table's value, and another from its handle.
ModelOutputs embedded(const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
  const Output table = v.read(s, "table", {40, 6}, glorot_uniform());
  Output x = s.op("GatherV2", {table, batch[0], s.constant(int32_t{0})});
  const Output handle = v.handle(s, "table", {40, 6}, glorot_uniform(), true);
  x = s.op("AddV2", {x, s.op("ResourceGather", {handle, batch[0]}, {{"dtype", DType::kFloat32}})});
  const Output logits = dense(s, v, x, 2, "logits");
  return {sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
}

TEST_CASE("gradients of gathers stay rows on their way and give what one replica with whole batches gives") {
  const auto rule = GENERATE(0, 1, 2);
  const auto run = [&](int replicas, TrainerOptions o) {
    o.optimizer = rule == 0   ? sgd(constant_rate(0.5f))
                  : rule == 1 ? adagrad(constant_rate(0.1f))
                              : momentum(constant_rate(0.1f));
    o.devices.clear();
    for (int i = 0; i < replicas; ++i) o.devices.push_back(fmt::format("/cpu:{}", i));
    return variables_after(
        replicas, [&](const Engine&) { return o; }, 15, embedded, words(480, 24 / replicas));
  };
  auto engine = engine_of(1);
  const TrainerOptions sync = settings(*engine, ReplicaMode::kSync);
  const Snapshot alone = run(1, sync);
  check_close(alone, run(3, sync));
  check_close(alone, run(3, settings(*engine, ReplicaMode::kHybrid)));
  check_close(alone, run(3, ring(*engine)));
  check_close(alone, run(3, ring(*engine, true)));
}

TEST_CASE("no dense gradient of a table crosses devices, nor is one made for an optimizer that takes rows") {
  const std::string way = GENERATE("sync", "ring", "async", "hybrid");
  auto engine = engine_of(2);
  TrainerOptions o = settings(*engine, way == "async"    ? ReplicaMode::kAsync
                                       : way == "hybrid" ? ReplicaMode::kHybrid
                                                         : ReplicaMode::kSync);
  if (way == "ring") o.reduce = ReduceBy::kRing;
  o.optimizer = sgd(constant_rate(0.5f));
  auto trainer = trainer_of(*engine, o, words(480, 8), embedded);
  const Graph& graph = trainer->graph();
  std::map<std::string, int> count;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    ++count[node.op().name()];
    if (node.name().starts_with("reduce/all_gather")) ++count["gathered"];
    const bool sent = node.op().name() == "ResourceAccumulatorApplyGradient";
    for (const Output& in : node.inputs())
      if ((sent || in.node->device() != node.device()) && in.node->op().name() != "Const" && in.shape().fully_known())
        CHECK(in.shape().shape().elements() < 40 * 6);
  }
  INFO(way);
  CHECK(count["ResourceScatterSub"] == (way == "ring" || way == "async" ? 2 : 1));
  CHECK((count["gathered"] > 0) == (way == "ring"));
  CHECK(count["SparseAccumulatorApplyGradient"] == (way == "hybrid" ? 2 : 0));
}

TEST_CASE("local steps of one are synchronous training within rounding; of more they are not") {
  const auto optimizer = [](TrainerOptions o) {
    o.optimizer = sgd(constant_rate(0.2f));
    return o;
  };
  const auto locally = [&](int64_t steps) {
    return variables_after(
        3, [&](const Engine& e) { return optimizer(local(e, steps)); }, 12);
  };
  const Snapshot sync = variables_after(
      3, [&](const Engine& e) { return optimizer(settings(e, ReplicaMode::kSync)); }, 12);
  check_close(sync, locally(1), 1e-5);
  CHECK_FALSE(identical(locally(1), locally(5)));  // 5, 5, and 2 at the end of the run
}

TEST_CASE("the end of the data and stop end runs of modes with copies") {
  const int kind = GENERATE(0, 1, 2);
  auto engine = engine_of(2);
  const TrainerOptions o = kind == 2 ? local(*engine, 4) : ring(*engine, kind == 1);
  SECTION("data") {
    auto trainer = trainer_of(*engine, o, circle(352, 32, 1));  // eleven batches
    REQUIRE(trainer->initialise().ok());
    auto summary = trainer->run(1000);
    INFO((summary.ok() ? std::string() : summary.error().str()));
    REQUIRE(summary.ok());
    CHECK(summary->end_of_data);
    CHECK(summary->updates == (kind == 2 ? 6 : 5));
    CHECK(snapshot_of(*engine).variables.at("global_step").data<int64_t>()[0] == summary->updates);
    CHECK(trainer->run(1).ok());
  }
  SECTION("stop") {
    auto trainer = trainer_of(*engine, o);
    REQUIRE(trainer->initialise().ok());
    int reports = 0;
    auto summary = trainer->run(1'000'000, [&](const StepReport&) {
      if (++reports == 11) trainer->stop();
    });
    REQUIRE(summary.ok());
    CHECK(summary->stopped);
    const int64_t before = trainer->step();
    CHECK(snapshot_of(*engine).variables.at("global_step").data<int64_t>()[0] == before);
    REQUIRE(trainer->run(5).ok());
    CHECK(trainer->step() == before + 5);
  }
}

TEST_CASE("rings turn while the backward pass goes on") {
  // The time of a step on simulated devices whose links take about as long as their arithmetic.
  const auto deep = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
    Output x = batch[0];
    for (int layer = 0; layer < 8; ++layer) x = tanh(s, dense(s, v, x, 256, fmt::format("layer_{}", layer)));
    return ModelOutputs{sparse_softmax_cross_entropy(s, dense(s, v, x, 2, "logits"), batch[1]), {}};
  };
  const auto step_ns = [&](int64_t bucket_bytes) {
    auto engine = Engine::create({.cpu_threads = {1},
                                  .sim = {.devices = std::vector<DeviceRates>(4, {.flops = 50e9, .launch_ns = 100}),
                                          .link = {.bandwidth = 1e9, .latency_ns = 100}}});
    REQUIRE(engine.ok());
    TrainerOptions o = settings(**engine, ReplicaMode::kSync);
    o.devices = {"/sim:0", "/sim:1", "/sim:2", "/sim:3"};
    o.input_device = "/cpu:0";
    o.reduce = ReduceBy::kRing;
    o.bucket_bytes = bucket_bytes;
    o.optimizer = sgd(constant_rate(0.01f));
    auto trainer = trainer_of(**engine, o, circle(512, 128), deep);
    REQUIRE(trainer->initialise().ok());
    int64_t least = INT64_MAX;
    for (int i = 0; i < 4; ++i) {
      const int64_t before = (*engine)->sim_now_ns();
      REQUIRE(trainer->run(1).ok());
      least = std::min(least, (*engine)->sim_now_ns() - before);
    }
    return static_cast<double>(least);
  };
  const double together = step_ns(1 << 30), by_layer = step_ns(256 * 256 * 4);
  CHECK(by_layer < 0.8 * together);
}

// -- staleness --------------------------------------------------------------------------------------------------------

/// The second replica takes a number from a queue in each step, so that a test decides how fast it is.
struct QueueGate {
  Engine& engine;
  Graph graph{engine.ops()};
  Session session{engine, graph};
  const Node* open_node = nullptr;
  const Node* close_node = nullptr;

  static Output queue(const Scope& s) {
    return s.op("FIFOQueueV2", {},
                {{"component_types", std::vector{DType::kFloat32}},
                 {"shapes", std::vector{PartialShape::scalar()}},
                 {"shared_name", std::string("gate")}});
  }
  explicit QueueGate(Engine& e) : engine(e) {
    const Scope s(graph);
    open_node = s.node("QueueEnqueueV2", {queue(s), s.constant(0.f)});
    close_node = s.node("QueueCloseV2", {queue(s)});
    REQUIRE(s.ok());
  }
  void open() { REQUIRE(session.run(std::vector<Feed>{}, {}, {open_node}).ok()); }
  void close() { REQUIRE(session.run(std::vector<Feed>{}, {}, {close_node}).ok()); }
};

ModelOutputs gated(const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
  ModelOutputs m = two_layers(s, v, batch, training);
  if (training && s.prefix().starts_with("replica_1")) {
    const Output pass =
        s.op("QueueDequeueV2", {QueueGate::queue(s)}, {{"component_types", std::vector{DType::kFloat32}}});
    m.loss = s.op("AddV2", {m.loss, pass});
  }
  return m;
}

TEST_CASE("no replica gets further ahead of the slowest than the bound, and the bound is reached") {
  const int64_t staleness = GENERATE(0, 1, 3);
  auto engine = engine_of(3);
  TrainerOptions o = settings(*engine, ReplicaMode::kAsync);
  o.max_staleness = staleness;
  auto trainer = trainer_of(*engine, o, circle(512, 16), gated);
  REQUIRE(trainer->initialise().ok());
  QueueGate gate(*engine);
  // Replica 1 makes its next update once both others are as far ahead as they may be: one more begun at the bound.
  std::vector<int64_t> made(3);
  int64_t most = 0;
  auto summary = trainer->run(60, [&](const StepReport& r) {
    ++made[static_cast<size_t>(r.replica)];
    for (const int64_t m : made) most = std::max(most, m - std::ranges::min(made));
    if (made[0] + made[1] + made[2] == 59) return gate.open();  // only that of replica 1 is left
    if (made[0] == made[1] + staleness + 1 && made[2] == made[1] + staleness + 1) {
      // Whoever could go on would have, by the time that steps of the same devices have passed.
      for (int i = 0; i < 3; ++i) REQUIRE(trainer->evaluate(circle(48, 16, 1)).ok());
      CHECK(trainer->step() == made[0] + made[1] + made[2]);
      gate.open();
    }
  });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == 60);
  CHECK(most == staleness + 1);
}

TEST_CASE("a replica that ends keeps no other from ending") {
  auto engine = engine_of(3);
  TrainerOptions o = settings(*engine, ReplicaMode::kAsync);
  o.max_staleness = 1;
  auto trainer = trainer_of(*engine, o, circle(512, 16), gated);
  REQUIRE(trainer->initialise().ok());
  QueueGate gate(*engine);
  gate.close();  // the first step of replica 1 ends as at the end of its data
  auto summary = trainer->run(60);
  REQUIRE(summary.ok());
  CHECK(summary->end_of_data);
  CHECK(summary->updates <= 4);
}

// -- failure ----------------------------------------------------------------------------------------------------------

TEST_CASE("a replica that fails ends the run with its error, in every mode") {
  const int kind = GENERATE(range(0, 7));
  auto engine = engine_of(3);
  TrainerOptions o = settings(*engine, kind == 1 || kind == 2 ? ReplicaMode::kAsync
                                       : kind == 3            ? ReplicaMode::kHybrid
                                                              : ReplicaMode::kSync);
  if (kind == 2) o.max_staleness = 1;
  if (kind == 3) o.backups = 1;
  if (kind == 4 || kind == 5) o = ring(*engine, kind == 5);
  if (kind == 6) o = local(*engine, 3);
  const auto failing = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    ModelOutputs m = two_layers(s, v, batch, training);
    if (training && s.prefix().starts_with("replica_2")) {
      const Output row = s.op("Cast", {v.global_step(s)}, {{"DstT", DType::kInt32}});
      const Output few = s.constant(Tensor::of<float>({0, 0, 0, 0}));
      m.loss = s.op("AddV2", {m.loss, s.named("fails").op("GatherV2", {few, row, s.constant(int32_t{0})})});
    }
    return m;
  };
  auto trainer = trainer_of(*engine, o, circle(512, 16), failing);
  REQUIRE(trainer->initialise().ok());
  auto summary = trainer->run(1'000'000);
  INFO("kind " << kind);
  REQUIRE_FALSE(summary.ok());
  INFO(summary.error().str());
  CHECK_THAT(summary.error().node, Catch::Contains("replica_2") && Catch::Contains("fails"));
  CHECK_THAT(summary.error().device, Catch::Contains("cpu:2"));
  CHECK_FALSE(trainer->run(1).ok());
}

TEST_CASE("options that do not fit the mode are errors") {
  auto engine = engine_of(2);
  const auto refused = [&](const std::string& text, const TrainerOptions& o) {
    auto made = Trainer::create(*engine, two_layers, circle(64, 32), o);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code == Code::kInvalidArgument);
    CHECK_THAT(made.error().message, Catch::Contains(text));
  };
  TrainerOptions o = settings(*engine, ReplicaMode::kAsync);
  o.reduce = ReduceBy::kRing;
  refused("ring", o);
  o = settings(*engine, ReplicaMode::kSync);
  o.shard_optimizer_state = true;
  refused("shard_optimizer_state", o);
  o = settings(*engine, ReplicaMode::kSync);
  o.max_staleness = 2;
  refused("max_staleness", o);
  o = settings(*engine, ReplicaMode::kSync);
  o.local_steps = 2;
  refused("local_steps", o);
  refused("local_steps", local(*engine, 0));
  o = ring(*engine);
  o.bucket_bytes = 0;
  refused("bucket_bytes", o);
  const auto uneven = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    if (!s.prefix().starts_with("replica_1")) return two_layers(s, v, batch, training);
    const Output logits = dense(s, v, batch[0], 2, "logits_of_another");
    return ModelOutputs{sparse_softmax_cross_entropy(s, logits, batch[1]), {}};
  };
  auto made = Trainer::create(*engine, uneven, circle(64, 32), ring(*engine));
  REQUIRE_FALSE(made.ok());
  CHECK_THAT(made.error().message, Catch::Contains("differ"));
}

TEST_CASE("what the replicas of a dead client left does not keep a trainer from its variables") {
  auto engine = engine_of(3);
  // Of two replicas, whose shares were larger.
  const Snapshot left{{{"train/shard_0", Tensor::of<float>({1, 2, 3})}}};
  REQUIRE(engine->restore(left, "train/replica_1").ok());
  auto trainer = trainer_of(*engine, ring(*engine, true), circle(512, 16), two_layers);
  const Status begun = trainer->initialise();
  INFO((begun.ok() ? std::string() : begun.error().str()));
  CHECK(begun.ok());
}

TEST_CASE("a loss that is not a number is told as what it is: of a replica, or of all") {
  const auto broken = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    ModelOutputs m = two_layers(s, v, batch, training);
    m.loss = s.op("Mul", {m.loss, s.constant(std::numeric_limits<float>::quiet_NaN())});
    return m;
  };
  auto engine = engine_of(3);
  const auto said = [&](const TrainerOptions& options) {
    const auto trainer = trainer_of(*engine, options, circle(512, 16), broken);
    REQUIRE(trainer->initialise().ok());
    const auto ended = trainer->run(5);
    REQUIRE_FALSE(ended.ok());
    return ended.error().message;
  };
  CHECK_THAT(said(ring(*engine)), Catch::Contains("the loss, a mean of all replicas', is nan at step"));
  CHECK_THAT(said(local(*engine, 4)), Catch::Contains("the loss of replica "));
}

}  // namespace
}  // namespace troupe::nn
