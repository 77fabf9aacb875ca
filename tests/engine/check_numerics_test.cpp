// SPDX-License-Identifier: Apache-2.0
// What runs check of the outputs of nodes: finite numbers, whoever puts them out, and what the node declares.
#include "tests/engine/fixtures.h"
#include "troupe/dataset.h"

namespace troupe {
namespace {

const std::vector<Feed> kNoFeeds;

/// The run fails at `node`, which put out a NaN, and names it, its op and the step.
void finds_nan(TestEngine& t, const std::vector<Feed>& feeds, Output fetch, const Node* node) {
  const RunResult r = t.session->run(feeds, {fetch}, {}, {.check_numerics = true});
  refused(r, Code::kInvalidArgument, "output 0 is the first with a NaN or infinity");
  CHECK(r.error().node == node->name());
  CHECK(r.error().op == node->op().name());
  CHECK(r.error().step.has_value());
}

TEST_CASE("numeric checks see what variables, queues and iterators answer") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  const std::vector<Feed> nan = {{x, f(NAN)}}, one = {{x, f(1)}};
  SECTION("a variable") {
    const Output v = t.variable("v", DType::kFloat32, {});
    const Node* assign = t.scope.node("AssignVariableOp", {v, x});
    const Output read = t.scope.named("read").op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
    const Output after = t.scope.op("Neg", {read});
    REQUIRE(t.session->run(nan, Outputs{}, {assign}).ok());
    CHECK(t.session->run(kNoFeeds, {after}).ok());
    finds_nan(t, kNoFeeds, after, read.node);
    REQUIRE(t.session->run(one, Outputs{}, {assign}).ok());
    CHECK(number((*t.session->run(kNoFeeds, {after}, {}, {.check_numerics = true}))[0]) == -1);
  }
  SECTION("a queue") {
    const Output q = t.queue("q", DType::kFloat32);
    const Node* put = t.scope.node("QueueEnqueueV2", {q, x});
    const Output got = t.dequeue(q, DType::kFloat32);
    for (const auto& feeds : {one, nan, one}) REQUIRE(t.session->run(feeds, Outputs{}, {put}).ok());
    CHECK(t.session->run(kNoFeeds, {got}, {}, {.check_numerics = true}).ok());
    finds_nan(t, kNoFeeds, got, got.node);
    CHECK(t.session->run(kNoFeeds, {got}, {}, {.check_numerics = true}).ok());
  }
  SECTION("a dataset") {
    auto rows = Dataset::from_tensors({Tensor::of<float>({1, INFINITY})});
    REQUIRE(rows.ok());
    REQUIRE(t.engine->add_dataset("rows", *rows).ok());
    const Output handle = t.scope.op("IteratorV2", {},
                                     {{"shared_name", std::string("rows")},
                                      {"container", std::string()},
                                      {"output_types", std::vector<DType>{DType::kFloat32}},
                                      {"output_shapes", std::vector<PartialShape>{PartialShape::scalar()}}});
    const Output next =
        t.scope.named("next").op("IteratorGetNext", {handle},
                                 {{"output_types", std::vector<DType>{DType::kFloat32}},
                                  {"output_shapes", std::vector<PartialShape>{PartialShape::scalar()}}});
    CHECK(t.session->run(kNoFeeds, {next}, {}, {.check_numerics = true}).ok());
    finds_nan(t, kNoFeeds, next, next.node);
  }
}

/// Puts out what no node of its op declares: by the input another dtype, another shape, nothing.
class Breaks final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    const float how = c.input(0).data<float>()[0];
    if (how == 1) c.set_output(0, Tensor::of<int32_t>({1, 2}));
    if (how == 2) c.set_output(0, Tensor::of<float>({1, 2, 3}));
    if (how == 4) c.set_output(0, Tensor::of<float>({1, 2}));
    return {};
  }
};

TEST_CASE("a user's kernel that is folded is held to what its node declares, as one that runs") {
  auto engine = Engine::create({.register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
    ops.add(OpDef("Breaks").input("x: float32").output("y: float32").doc("A test's.").shape([](ShapeContext& c) {
      c.set_output(0, PartialShape{2});
      return Status();
    }),
            not_differentiable("a test's"));
    kernels.add<Breaks>("Breaks", DeviceKind::kCpu, {});
  }});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope s(graph);
  Session session(**engine, graph);
  const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
  const std::pair<float, const char*> wrongs[] = {{1, "output 0 is int32[2], declared as float32[2]"},
                                                  {2, "output 0 is float32[3], declared as float32[2]"},
                                                  {3, "its kernel did not set output 0"}};
  for (const auto& [how, words] : wrongs) {
    const Output folded = s.op("Breaks", {s.constant(how)}), fed = s.op("Breaks", {x});
    for (const Output& y : {folded, fed}) {
      const RunResult r = session.run({{x, f(how)}}, {s.op("Neg", {y})});
      refused(r, Code::kInternal, words);
      CHECK(r.error().node == y.node->name());
    }
  }
  CHECK((*session.run(kNoFeeds, {s.op("Breaks", {s.constant(4.f)})}))[0].identical(Tensor::of<float>({1, 2})));
}

}  // namespace
}  // namespace troupe
