// SPDX-License-Identifier: Apache-2.0
// Pipelines whose stages are on devices of several tasks: the bits of one engine with as many devices.
#include "tests/train/cluster_fixture.h"
#include "tests/train/pipeline_fixture.h"
#include "troupe/tensor_parallel.h"

namespace troupe::nn {
namespace {

std::unique_ptr<Pipeline> made(Engine& engine, const ModelFn& model, const PipelineOptions& options, int batches) {
  auto pipeline = Pipeline::create(engine, model, points(batches), options);
  INFO((pipeline.ok() ? std::string() : pipeline.error().str()));
  REQUIRE(pipeline.ok());
  const Status begun = (*pipeline)->initialise();
  INFO((begun.ok() ? std::string() : begun.error().str()));
  REQUIRE(begun.ok());
  check_homes((*pipeline)->graph());
  return std::move(*pipeline);
}

Trained run(Engine& engine, const ModelFn& model, const PipelineOptions& options, int batches = 3) {
  const auto pipeline = made(engine, model, options, batches);
  Trained out;
  const auto summary = pipeline->run(batches, [&](const StepReport& r) { out.losses.push_back(r.loss); });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  const int64_t updates = options.asynchronous ? batches * kMicroBatches : batches;
  CHECK(summary->updates == updates);
  const auto tested = pipeline->evaluate(points(2));
  INFO((tested.ok() ? std::string() : tested.error().str()));
  REQUIRE(tested.ok());
  CHECK(tested->examples == 48);
  out.losses.push_back(static_cast<float>(tested->loss));
  out.variables = values_of(engine, pipeline->variables());
  CHECK(out.variables.at("global_step").data<int64_t>()[0] == updates);
  return out;
}

/// The model on one engine and on as many devices of tasks.
void compare(FakeCluster& cluster, const ModelFn& model, PipelineOptions options, std::vector<std::string> devices) {
  static int number = 0;
  options.container = options.name = fmt::format("pipeline_{}", number++);
  const auto engine = engine_of(static_cast<int>(devices.size()));
  options.devices = engine->devices();
  const Trained expected = run(*engine, model, options);
  options.devices = std::move(devices);
  check_same(run(*cluster.client, model, options), expected);
}

PipelineOptions options_of(PipelineSchedule schedule, const Optimizer& optimizer, int stages) {
  PipelineOptions o = options_of(schedule, 0, optimizer);
  for (int i = 0; i < stages; ++i) o.scopes.push_back(fmt::format("stage_{}", i));
  return o;
}

TEST_CASE("every schedule over stages on several tasks gives the bits of one engine") {
  Optimizer decayed = adam(constant_rate(.02f)), clipped = momentum(constant_rate(.2f));
  decayed.weight_decay = .01f;
  decayed.l2 = .001f;
  clipped.clip = clip_by_global_norm(.1f);
  FakeCluster cluster(1, 3, 1);
  for (const PipelineSchedule schedule : kSchedules)
    for (const Optimizer& optimizer : {decayed, clipped}) {
      INFO("schedule " << static_cast<int>(schedule) << (optimizer.clip ? ", clipped" : ", decayed"));
      const int stages = schedule == PipelineSchedule::kInterleaved ? 6 : 3;
      compare(cluster, chain(stages_of(stages, true, true)), options_of(schedule, optimizer, stages),
              worker_devices(3, 1));
    }
}

TEST_CASE("variables live with their stage") {
  FakeCluster cluster(2, 2, 1);
  PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, adam(constant_rate(.02f)), 3);
  options.devices = {"/cpu:0", "/job:worker/task:0", "/job:worker/task:1/cpu:0"};
  const auto pipeline = made(*cluster.client, chain(stages_of(3, true, true)), options, 1);
  REQUIRE(pipeline->run(1).ok());
  const std::map<std::string, std::string> tasks = {{"hidden_0", "/job:localhost/replica:0/task:0"},
                                                    {"norm_0", "/job:localhost/replica:0/task:0"},
                                                    {"hidden_1", "/job:worker/replica:0/task:0"},
                                                    {"norm_1", "/job:worker/replica:0/task:0"},
                                                    {"logits", "/job:worker/replica:0/task:1"}};
  int handles = 0;
  Graph names(pipeline->graph().ops());
  for (int id = 0; id < pipeline->graph().size(); ++id) {
    const Node& node = pipeline->graph().node(id);
    if (node.op().name() != "VarHandleOp") continue;
    INFO(node.name());
    const std::string name = *node.attrs().get<std::string>("shared_name");
    const auto task = tasks.find(name.substr(0, name.find('/')));
    if (task == tasks.end()) continue;
    CHECK(Scope(names).device(node.device()).task_name() == task->second);
    ++handles;
  }
  CHECK(handles > 20);  // slots and sums among them
}

TEST_CASE("replicas of a pipeline on several tasks give the bits of one engine") {
  Optimizer decayed = adam(constant_rate(.02f));
  decayed.weight_decay = .01f;
  FakeCluster cluster(3, 4, 1);
  for (const PipelineSchedule schedule : kSchedules) {
    INFO("schedule " << static_cast<int>(schedule));
    const int stages = schedule == PipelineSchedule::kInterleaved ? 4 : 2;
    PipelineOptions options = options_of(schedule, decayed, stages);
    options.replicas = 2;
    compare(cluster, chain(stages_of(stages, true, true)), options, worker_devices(4, 1));
  }
}

TEST_CASE("stages on several tasks may share variables, whole and by rows, and be cut by cost") {
  const ModelFn tied = [](const Scope& scope, Variables& v, const std::vector<Output>& batch, bool) {
    const Scope first = scope.scope("stage_0"), middle = scope.scope("stage_1"), last = scope.scope("stage_2");
    Output x = first.op("AddV2", {embedding(first, v, batch[1], 16, 8, "words"), batch[0]});
    x = tanh(middle, dense(middle, v, x, 8, "middle"));
    const Output table = v.read(last, "words/table", {16, 8}, zeros());
    const Output logits = last.op("MatMul", {x, table}, {{"transpose_b", true}});
    return ModelOutputs{sparse_softmax_cross_entropy(last, logits, batch[1]), {}};
  };
  FakeCluster cluster(4, 3, 2);
  for (const PipelineSchedule schedule : {PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble})
    for (const int replicas : {1, 2}) {
      INFO("schedule " << static_cast<int>(schedule) << ", " << replicas << " replicas");
      PipelineOptions options = options_of(schedule, adagrad(constant_rate(.1f)), 3);
      options.replicas = replicas;
      std::vector<std::string> devices = worker_devices(3, 2);
      if (replicas == 1) devices = {devices[0], devices[2], devices[4]};
      compare(cluster, tied, options, devices);
      options.scopes.clear();
      compare(cluster, chain(stages_of(3)), options, devices);
    }
}

TEST_CASE("stages of two parts may be on two tasks") {
  const ModelFn model = [](const Scope& scope, Variables& v, const std::vector<Output>& batch, bool) {
    const Scope first = scope.scope("stage_0"), last = scope.scope("stage_1");
    const Spread up = each(first, dense_by_columns(first, v, batch[0], 9, "up", part_devices(2)), tanh);
    const Output x = tanh(first, dense_by_rows(first, v, up, 8, "down"));
    const Output logits = dense(last, v, x, 2, "logits");
    return ModelOutputs{sparse_softmax_cross_entropy(last, logits, batch[1]), accuracy(last, logits, batch[1])};
  };
  FakeCluster cluster(5, 4, 2);
  for (const int replicas : {1, 2}) {
    PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, adam(constant_rate(.02f)), 2);
    options.parts = 2;
    options.replicas = replicas;
    compare(cluster, model, options, worker_devices(4, replicas));
  }
}

TEST_CASE("asynchronous pipelines on several tasks learn, and every micro-batch updates") {
  Optimizer decayed = sgd(constant_rate(.1f));
  decayed.weight_decay = .001f;
  constexpr int kBatches = 12;
  int number = 0;
  FakeCluster cluster(6, 4, 1);
  for (const PipelineSchedule schedule : kSchedules)
    for (const int replicas : {1, 2}) {
      INFO("schedule " << static_cast<int>(schedule) << ", " << replicas << " replicas");
      const int stages = (schedule == PipelineSchedule::kInterleaved ? 8 : 4) / replicas;
      PipelineOptions options = options_of(schedule, decayed, stages);
      options.asynchronous = true;
      options.replicas = replicas;
      options.container = options.name = fmt::format("pipeline_{}", number++);
      options.devices = worker_devices(4, 1);
      const auto pipeline = made(*cluster.client, chain(stages_of(stages, false)), options, kBatches);
      // Of the same points each time: what batches lose differs by more than they learn.
      const auto loss = [&] {
        const auto tested = pipeline->evaluate(points(kBatches));
        INFO((tested.ok() ? std::string() : tested.error().str()));
        REQUIRE(tested.ok());
        return tested->loss;
      };
      const double before = loss();
      const auto summary = pipeline->run(kBatches);
      INFO((summary.ok() ? std::string() : summary.error().str()));
      REQUIRE(summary.ok());
      CHECK(summary->updates == kBatches * kMicroBatches);
      const double after = loss();
      CHECK(after < before);
    }
}

TEST_CASE("a pipeline on several tasks goes on from a snapshot as if it had not stopped, on other tasks") {
  FakeCluster cluster(8, 3, 1);
  PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, adam(constant_rate(.02f)), 2);
  const ModelFn model = chain(stages_of(2, true, true));
  const std::vector<std::string> all = worker_devices(3, 1);
  options.devices = {all[0], all[1]};
  options.container = "whole";
  const Trained whole = run(*cluster.client, model, options, 4);
  // The name is free again, and its counts are on other tasks.
  options.devices = {all[1], all[2]};
  options.container = "first";
  auto first = made(*cluster.client, model, options, 4);
  REQUIRE(first->run(2).ok());
  const auto taken = cluster.client->snapshot("first").get();
  REQUIRE(taken.ok());
  CHECK(step_of(*taken).value() == 2);
  first.reset();
  options.devices = {all[2], all[0]};
  options.container = "second";
  const auto rest = Pipeline::create(*cluster.client, model, points(4).skip(2), options);
  REQUIRE(rest.ok());
  const Status restored = (*rest)->restore(*taken);
  INFO((restored.ok() ? std::string() : restored.error().str()));
  REQUIRE(restored.ok());
  REQUIRE((*rest)->run(2).ok());
  check_values(values_of(*cluster.client, (*rest)->variables()), whole.variables);
}

TEST_CASE("a task that fails a step, or is lost, ends a pipeline's run with its error") {
  for (const PipelineSchedule schedule : kSchedules)
    for (const bool lost : {false, true}) {
      INFO("schedule " << static_cast<int>(schedule) << (lost ? ", lost" : ""));
      FakeCluster cluster(7, 3, 1);
      const int stages = schedule == PipelineSchedule::kInterleaved ? 6 : 3;
      PipelineOptions options = options_of(schedule, sgd(constant_rate(.1f)), stages);
      options.devices = worker_devices(3, 1);
      // A label beyond the classes: the loss fails at the third micro-batch.
      std::vector<int32_t> labels(24, 0);
      if (!lost) labels[2 * 4] = 99;
      const auto data = Dataset::from_tensors({*Tensor::zeros(DType::kFloat32, {24, 8}), Tensor::of<int32_t>(labels)});
      REQUIRE(data.ok());
      auto created =
          Pipeline::create(*cluster.client, chain(stages_of(stages, false)), data->repeat(-1).batch(24, true), options);
      REQUIRE(created.ok());
      REQUIRE((*created)->initialise().ok());
      int reports = 0;
      const auto summary = (*created)->run(1'000'000, [&](const StepReport&) {
        if (++reports == 3)
          cluster.worker("/job:worker/replica:0/task:2").close(make_error(Code::kUnavailable, "the task was lost"));
      });
      REQUIRE_FALSE(summary.ok());
      CHECK_THAT(summary.error().str(), Catch::Contains(lost ? "the task was lost" : "99"));
      if (!lost) CHECK(summary.error().device == options.devices[2]);
      CHECK_FALSE((*created)->run(1).ok());
    }
}

}  // namespace
}  // namespace troupe::nn
