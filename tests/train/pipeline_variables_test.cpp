// SPDX-License-Identifier: Apache-2.0
// Variables of pipelines: used in several stages, read whole and by rows.
#include "tests/train/pipeline_fixture.h"

namespace troupe::nn {
namespace {

TEST_CASE("stages may share a variable, and a stage may skip the next") {
  const ModelFn model = [](const Scope& scope, Variables& v, const std::vector<Output>& batch, bool) {
    std::vector<Scope> s;
    for (int i = 0; i < 3; ++i) s.push_back(scope.scope(fmt::format("stage_{}", i)));
    const auto tied = [&](int i) { return v.read(s[static_cast<size_t>(i)], "tied", {8, 8}, glorot_uniform()); };
    const Output a = tanh(s[0], s[0].op("MatMul", {batch[0], tied(0)}));
    const Output b = tanh(s[1], dense(s[1], v, a, 8, "middle"));
    const Output c = s[2].op("AddV2", {s[2].op("MatMul", {b, tied(2)}), a});
    return ModelOutputs{sparse_softmax_cross_entropy(s[2], dense(s[2], v, c, 2, "logits"), batch[1]), {}};
  };
  const Optimizer optimizer = momentum(constant_rate(.1f));
  const Trained expected = reference(model, optimizer, 3, kMicroBatches);
  for (const PipelineSchedule schedule : {PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble}) {
    auto engine = engine_of(3);
    PipelineOptions o = options_of(schedule, 3, optimizer);
    o.scopes = {"stage_0", "stage_1", "stage_2"};
    auto made = Pipeline::create(*engine, model, points(3), o);
    INFO((made.ok() ? std::string() : made.error().str()));
    REQUIRE(made.ok());
    REQUIRE((*made)->initialise().ok());
    REQUIRE((*made)->run(3).ok());
    check_same({engine->snapshot().get()->variables, {}}, {expected.variables, {}});
  }
}

TEST_CASE("a weight that a stage uses twice has the same gradient wherever the model is cut") {
  const StageFn twice = [](const Scope& s, Variables& v, const std::vector<Output>& in, const std::vector<Output>&,
                           bool) {
    Output x = in[0];
    for (int i = 0; i < 2; ++i) {
      v.reuse("twice");
      x = tanh(s, dense(s, v, x, 12, "twice"));
    }
    return std::vector<Output>{x};
  };
  const StageFn first = hidden(0, false, false);
  const StageFn joined = [=](const Scope& s, Variables& v, const std::vector<Output>& in,
                             const std::vector<Output>& batch, bool training) {
    return last(s, v, twice(s, v, first(s, v, in, batch, training), batch, training), batch, training);
  };
  const Optimizer optimizer = momentum(constant_rate(.1f));
  const Trained expected = reference(chain({joined}), optimizer, 3, kMicroBatches);
  for (const std::vector<StageFn>& stages : {std::vector<StageFn>{joined}, {first, twice, last}}) {
    const int devices = static_cast<int>(stages.size());
    auto engine = engine_of(devices);
    check_same(trained(*engine, stages, options_of(PipelineSchedule::kGPipe, devices, optimizer), 3), expected);
  }
}

TEST_CASE("a table may be read by rows in the first stage and whole in the last") {
  const ModelFn model = [](const Scope& scope, Variables& v, const std::vector<Output>& batch, bool) {
    const Scope first = scope.scope("stage_0"), middle = scope.scope("stage_1"), last = scope.scope("stage_2");
    const auto table = [&](const Scope& s) { return v.handle(s, "table", {16, 8}, glorot_uniform(), true); };
    Output x = first.op("ResourceGather", {table(first), batch[1]}, {{"dtype", DType::kFloat32}});
    x = tanh(middle, dense(middle, v, middle.op("AddV2", {x, batch[0]}), 8, "middle"));
    const Output whole = last.op("ReadVariableOp", {table(last)}, {{"dtype", DType::kFloat32}});
    const Output logits = last.op("MatMul", {x, whole}, {{"transpose_b", true}});
    return ModelOutputs{sparse_softmax_cross_entropy(last, logits, batch[1]), {}};
  };
  const Optimizer optimizer = momentum(constant_rate(.5f));
  const auto run = [&](int devices, PipelineOptions o) {
    auto engine = engine_of(devices);
    auto made = Pipeline::create(*engine, model, points(6), std::move(o));
    INFO((made.ok() ? std::string() : made.error().str()));
    REQUIRE(made.ok());
    if (devices > 1) CHECK((*made)->stages()[0].variables == std::vector<std::string>{"table"});
    REQUIRE((*made)->initialise().ok());
    REQUIRE((*made)->run(6).ok());
    return Trained{engine->snapshot().get()->variables, {}};
  };
  const Trained expected = run(1, options_of(PipelineSchedule::kGPipe, 1, optimizer));
  for (const PipelineSchedule schedule :
       {PipelineSchedule::kGPipe, PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble}) {
    PipelineOptions o = options_of(schedule, 3, optimizer);
    o.scopes = {"stage_0", "stage_1", "stage_2"};
    check_same(run(3, o), expected);
  }
}

TEST_CASE("what is gathered from a table trains it") {
  const ModelFn model = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
    const Output table = v.handle(s, "table", {2, 8}, zeros(), true);
    const Output x = s.op("ResourceGather", {table, batch[1]}, {{"dtype", DType::kFloat32}});
    const Output y = tanh(s, dense(s, v, x, 8, "middle"));
    return ModelOutputs{sparse_softmax_cross_entropy(s, dense(s, v, y, 2, "logits"), batch[1]), {}};
  };
  auto engine = engine_of(2);
  // Cut by cost: the gather is a layer too.
  PipelineOptions o = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.5f)));
  auto made = Pipeline::create(*engine, model, points(3), o);
  REQUIRE(made.ok());
  CHECK((*made)->stages()[0].variables.at(0) == "table");
  REQUIRE((*made)->initialise().ok());
  REQUIRE((*made)->run(3).ok());
  const Tensor table = engine->snapshot().get()->variables.at("table");
  CHECK(std::ranges::any_of(table.values<float>(), [](float x) { return x != 0; }));
}

}  // namespace
}  // namespace troupe::nn
