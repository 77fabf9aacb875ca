// SPDX-License-Identifier: Apache-2.0
// Faults of functions that add several nodes name the line that called them, and those of a function that was handed in
// its own.
#include "tests/train/pipeline_fixture.h"
#include "tests/train/trainer_fixture.h"
#include "troupe/collectives.h"
#include "troupe/control_flow.h"
#include "troupe/tensor_parallel.h"

namespace troupe::nn {
namespace {

using Outputs = std::vector<Output>;

/// A graph that can fail once.
struct Faulty {
  explicit Faulty(const Engine& engine) : graph(engine.ops()) {}
  Graph graph;
  Scope s{graph};
  Variables v;
  Output words = s.constant(Tensor::of<std::string>({"a", "b"}));  // what no layer computes with
  Output image = s.op("Placeholder", {}, {{"dtype", DType::kString}, {"shape", PartialShape{2, 4, 4, 3}}});
  Output rows = s.op("Placeholder", {}, {{"dtype", DType::kString}, {"shape", PartialShape{2, 3}}});
  Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2, 3}}});
  std::vector<std::string> devices = {"/cpu:0", "/cpu:0"};
};

/// Checks that the fault that `build` leaves in the scope names that line; a macro because __LINE__ is one.
void names_line(const Engine& engine, const std::function<void(Faulty&)>& build, int line) {
  Faulty f(engine);
  REQUIRE(f.s.ok());
  build(f);
  REQUIRE_FALSE(f.s.ok());
  CHECK_THAT(f.s.status().error().message, Catch::StartsWith(fmt::format("faults_test.cpp:{}: ", line)));
}
#define NAMES_LINE(...) \
  names_line(           \
      *engine, [&]([[maybe_unused]] Faulty& f) { __VA_ARGS__; }, __LINE__)

TEST_CASE("a fault of a layer names the line that called it") {
  const auto engine = engine_of(1);
  NAMES_LINE(dense(f.s, f.v, f.words, 4, "d"));
  NAMES_LINE(dense(f.s, f.v, f.rows, 4, "d"));  // in its product
  NAMES_LINE(dense(f.s.device("/cpu:0").named("n"), f.v, f.rows, 4, "d"));
  NAMES_LINE(dense(f.s, f.v, f.x, 4, "d", {.kernel = [](auto& s, auto&, int64_t) { return s.op("None", {}); }}));
  NAMES_LINE(embedding(f.s, f.v, f.words, 4, 2, "e"));
  NAMES_LINE(conv2d(f.s, f.v, f.image, 4, 3, "c"));
  NAMES_LINE(max_pool(f.s, f.image, 9));
  NAMES_LINE(avg_pool(f.s, f.image, 9));
  NAMES_LINE(batch_norm(f.s, f.v, f.image, "b", true));
  NAMES_LINE(batch_norm(f.s, f.v, f.rows, "b", false));
  NAMES_LINE(dropout(f.s, f.v, f.words, .5f, true));
  NAMES_LINE(dropout(f.s, f.v, f.x, 2.f, true));
  NAMES_LINE(lstm(f.s, f.v, f.rows, 4, "l"));
  NAMES_LINE(lstm_stack({f.s, f.s}, f.v, f.rows, 4, "l"));
  NAMES_LINE(LstmStackResult({.chunks = {f.x, f.words}}).outputs(f.s));
  NAMES_LINE(flatten(f.s, f.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}})));
  NAMES_LINE(relu(f.s, f.words));
  NAMES_LINE(sigmoid(f.s, f.words));
  NAMES_LINE(nn::tanh(f.s, f.words));
  NAMES_LINE(softmax(f.s, f.words));
  NAMES_LINE(pixels_to_float(f.s, f.words));
  NAMES_LINE(sparse_softmax_cross_entropy(f.s, f.x, f.words));
  NAMES_LINE(softmax_cross_entropy(f.s, f.x, f.words));
  NAMES_LINE(sigmoid_cross_entropy(f.s, f.x, f.words));
  NAMES_LINE(mean_squared_error(f.s, f.x, f.words));
  NAMES_LINE(accuracy(f.s, f.words, f.words));
  NAMES_LINE(sum_all(f.s, f.words));
  NAMES_LINE(mean_all(f.s, f.words));
}

TEST_CASE("a fault of a variable or an update names the line that called") {
  const auto engine = engine_of(1);
  NAMES_LINE(f.v.read(f.s, "v", {-2}, zeros()));
  NAMES_LINE(f.v.handle(f.s, "v", {-2}, zeros()));
  NAMES_LINE(f.v.read(f.s, "v", {2}, zeros()); f.v.read(f.s, "v", {3}, zeros()));
  NAMES_LINE(apply_gradients(f.s, f.v, sgd(constant_rate(.1f)), {f.x}));
  NAMES_LINE(minimize(f.s, f.v, sgd(constant_rate(.1f)), f.words));
  NAMES_LINE(dense(f.s, f.v, f.x, 2, "d"); apply_gradients(f.s, f.v, sgd(constant_rate(.1f)), {f.words, {}}));
}

TEST_CASE("a fault of a collective or a layer over several devices names the line that called") {
  const auto engine = engine_of(1);
  NAMES_LINE(all_reduce(f.s, {}, {}));
  NAMES_LINE(all_reduce(f.s, f.devices, {f.x, f.rows}));
  NAMES_LINE(reduce_scatter(f.s, f.devices, {f.words, f.words}));
  NAMES_LINE(all_gather(f.s, f.devices, {f.x, f.rows}));
  NAMES_LINE(broadcast(f.s, f.devices, f.x, 7));
  NAMES_LINE(copy_to(f.s, f.x, {}));
  NAMES_LINE(split_to(f.s, f.x, {}));
  NAMES_LINE(gather(f.s, {f.devices, {f.x, f.words}}));
  NAMES_LINE(reduce(f.s, {f.devices, {f.x, f.words}}));
  NAMES_LINE(nn::all_reduce(f.s, Spread{f.devices, {f.x, f.words}}));
  NAMES_LINE(dense_by_columns(f.s, f.v, f.rows, 4, "d", f.devices));
  NAMES_LINE(dense_by_rows(f.s, f.v, {f.devices, {f.rows, f.rows}}, 4, "d"));
  NAMES_LINE(dense_by_rows_to_all(f.s, f.v, {f.devices, {f.rows, f.rows}}, 4, "d"));
  NAMES_LINE(embedding_by_rows(f.s, f.v, f.x, 4, 4, "e", f.devices));
  NAMES_LINE(embedding_by_columns(f.s, f.v, f.x, 4, 4, "e", f.devices));
  NAMES_LINE(sparse_softmax_cross_entropy(f.s, Spread{f.devices, {f.x, f.x}}, f.words));
}

TEST_CASE("a fault of a branch or loop names the line that called, one of a body its own") {
  const auto engine = engine_of(1);
  const BranchFn give_x = [](const Scope& s) { return Outputs{s.constant(1.f)}; };
  const BranchFn fail = [](const Scope& s) { return Outputs{s.op("MatMul", {s.constant(1.f)})}; };
  const int in_branch = __LINE__ - 1;
  const BranchFn fail_in_layer = [](const Scope& s) { return Outputs{relu(s, s.constant(true))}; };
  const int in_layer = __LINE__ - 1;
  NAMES_LINE(cond(f.s, f.x, give_x, give_x));
  names_line(
      *engine, [&](Faulty& f) { cond(f.s, f.s.constant(true), give_x, fail); }, in_branch);
  names_line(
      *engine, [&](Faulty& f) { cond(f.s, f.s.constant(true), fail_in_layer, give_x); }, in_layer);
  const LoopPredicate forever = [](const Scope& s, const Outputs&) { return s.constant(true); };
  const LoopPredicate wrong = [](const Scope& s, const Outputs& v) { return s.op("Less", {v[0]}); };
  const int in_predicate = __LINE__ - 1;
  const LoopBody same = [](const Scope&, const Outputs& v) { return v; };
  const LoopBody bad = [](const Scope& s, const Outputs& v) { return Outputs{s.op("AddV2", {v[0]})}; };
  const int in_body = __LINE__ - 1;
  NAMES_LINE(while_loop(f.s, {f.x}, forever, [](const Scope&, const Outputs&) { return Outputs{}; }));
  names_line(
      *engine, [&](Faulty& f) { while_loop(f.s, {f.x}, wrong, same); }, in_predicate);
  names_line(
      *engine, [&](Faulty& f) { while_loop(f.s, {f.x}, forever, bad); }, in_body);
  NAMES_LINE(scan(f.s, {f.s.constant(1.f)}, {f.x}, [](const Scope&, const Outputs& v, const Outputs&) { return v; }));
  const ScanBody bad_scan = [](const Scope& s, const Outputs&, const Outputs&) { return Outputs{s.op("Neg", {})}; };
  const int in_scan = __LINE__ - 1;
  names_line(
      *engine, [&](Faulty& f) { scan(f.s, {f.x}, {f.s.constant(0.f)}, bad_scan); }, in_scan);
  const auto bad_part = [](const Scope& s, Output part) { return s.op("AddV2", {part}); };
  const int in_part = __LINE__ - 1;
  names_line(
      *engine,
      [&](Faulty& f) {
        each(f.s, {f.devices, {f.x, f.x}}, bad_part);
      },
      in_part);
}

TEST_CASE("a fault of a trainer's or a pipeline's own nodes names the line that made it, one of the model its own") {
  Fixture f(2);
  const auto line_of = [](const auto& made) { return made.ok() ? std::string() : made.error().message; };
  const auto no_loss = [](const Scope&, Variables&, const Outputs&, bool) { return ModelOutputs{}; };
  const auto words = [](const Scope& s, Variables&, const Outputs&, bool) {
    return ModelOutputs{s.constant(Tensor::scalar(std::string("none")))};
  };
  const auto bad = [](const Scope& s, Variables& v, const Outputs& b, bool) {
    return ModelOutputs{sum_all(s, dense(s, v, s.op("Shape", {b[0]}), 4, "d"))};
  };
  const int in_model = __LINE__ - 2;
  const TrainerOptions o = settings(*f.engine, ReplicaMode::kSync);
  const auto in_file = [](int line) { return Catch::StartsWith(fmt::format("faults_test.cpp:{}: ", line)); };
  CHECK_THAT(line_of(Trainer::create(*f.engine, no_loss, circle(64, 32), o)), in_file(__LINE__));
  CHECK_THAT(line_of(Trainer::create(*f.engine, words, circle(64, 32), o)), in_file(__LINE__));
  CHECK_THAT(line_of(Trainer::create(*f.engine, bad, circle(64, 32), o)), in_file(in_model));
  const PipelineOptions p = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
  CHECK_THAT(line_of(Pipeline::create(*f.engine, ModelFn(bad), points(1), p)), in_file(in_model));
  const StageFn bad_stage = [](const Scope& s, Variables&, const Outputs& in, const Outputs&, bool) {
    return Outputs{s.op("MatMul", {in[0]})};
  };
  const int in_stage = __LINE__ - 2;
  CHECK_THAT(line_of(Pipeline::create(*f.engine, {bad_stage, StageFn(last)}, points(1), p)), in_file(in_stage));
}

}  // namespace
}  // namespace troupe::nn
