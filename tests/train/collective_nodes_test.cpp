// SPDX-License-Identifier: Apache-2.0
// Collectives as nodes of graphs: their gradients, in loops and branches, in files of graphs, with passes and without,
// fetched in part, fed, and placed.
#include "tests/nn/fixture.h"
#include "troupe/collectives.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"
#include "troupe/graph_def.h"
#include "troupe/placement.h"

namespace troupe::nn {
namespace {

using Catch::Contains;

/// Three CPU devices, and a row of floats on each.
struct Three : Fixture {
  Three() : Fixture(3), names(engine->devices()) {
    for (size_t i = 0; i < 3; ++i) xs.push_back(on(i).constant(row(i)));
  }
  Scope on(size_t device) const { return s.device(names[device]); }
  static Tensor row(size_t i) {
    const auto n = static_cast<float>(i);
    return Tensor::of<float>({n, 10 * n, 100 * n, 1000 * n});
  }
  /// Something else of each output's elements, summed; outputs that `skip` names do not count.
  std::vector<Output> losses(const std::vector<Output>& ys, std::optional<size_t> skip = {}) {
    std::vector<Output> out;
    for (size_t i = 0; i < ys.size(); ++i)
      if (i != skip)
        out.push_back(on(i).op("Mul", {on(i).op("Square", {ys[i]}), on(i).constant(static_cast<double>(i + 1))}));
    return out;
  }
  /// d losses / d xs by the graph, and by finite differences of what is fed.
  void check_gradients(const std::vector<Output>& fed, const std::vector<Output>& ys, std::vector<Tensor> values,
                       std::optional<size_t> skip = {}) {
    const std::vector<Output> losses_of = losses(ys, skip);
    auto found = gradients(s, losses_of, fed);
    INFO((found.ok() ? std::string() : found.error().str()));
    REQUIRE(found.ok());
    std::vector<Output> totals;
    for (const Output& loss : losses_of)
      totals.push_back(s.op("Sum", {s.op("Reshape", {loss, s.constant(Tensor::of<int32_t>({-1}))}), s.constant(0)}));
    const Output total = s.op("AddN", totals);
    const auto feeds = [&] {
      std::vector<Feed> out;
      for (size_t i = 0; i < fed.size(); ++i) out.push_back({fed[i], values[i]});
      return out;
    };
    auto got = session->run(feeds(), *found);
    INFO((got.ok() ? std::string() : got.error().str()));
    REQUIRE(got.ok());
    for (size_t i = 0; i < fed.size(); ++i) {
      REQUIRE((*got)[i].shape() == values[i].shape());
      for (int64_t k = 0; k < values[i].elements(); ++k) {
        const Tensor before = values[i];
        double at[2];
        for (const int side : {0, 1}) {
          Tensor moved = *before.clone();
          moved.mutable_data<double>()[k] += side ? 1e-4 : -1e-4;
          values[i] = moved;
          auto result = session->run(feeds(), {total});
          REQUIRE(result.ok());
          at[side] = (*result)[0].data<double>()[0];
        }
        values[i] = before;
        CHECK((*got)[i].data<double>()[k] == Approx((at[1] - at[0]) / 2e-4).epsilon(1e-5).margin(1e-5));
      }
    }
  }

  std::vector<std::string> names;
  std::vector<Output> xs;
};

/// The same of doubles that are fed.
struct Fed : Three {
  std::vector<Output> place(bool known, const std::vector<Shape>& shapes) {
    std::vector<Output> out;
    for (size_t i = 0; i < shapes.size(); ++i)
      out.push_back(on(i).op("Placeholder", {},
                             {{"dtype", DType::kFloat64},
                              {"shape", known ? PartialShape(shapes[i]) : PartialShape::of_rank(shapes[i].rank())}}));
    for (const Shape& shape : shapes) {
      Tensor value = *Tensor::zeros(DType::kFloat64, shape);
      for (int64_t k = 0; k < value.elements(); ++k)
        value.mutable_data<double>()[k] = std::sin(static_cast<double>(7 * k + 3 * values.size()));
      values.push_back(std::move(value));
    }
    return out;
  }
  std::vector<Tensor> values;
};

}  // namespace

TEST_CASE("collectives agree with their gradients, whatever is known and whichever outputs count") {
  const bool known = GENERATE(true, false);
  const auto skip = GENERATE(std::optional<size_t>(), std::optional<size_t>(1));
  const Reduction reduction = GENERATE(Reduction::kSum, Reduction::kMean);
  Fed d;
  const auto same = d.place(known, {{3, 2}, {3, 2}, {3, 2}});
  SECTION("all-reduce") { d.check_gradients(same, all_reduce(d.s, d.names, same, reduction), d.values, skip); }
  SECTION("reduce-scatter") {
    d.check_gradients(same, reduce_scatter(d.s, d.names, same, reduction, 0), d.values, skip);
  }
  SECTION("broadcast") { d.check_gradients({same[1]}, broadcast(d.s, d.names, same[1], 1), {d.values[1]}, skip); }
  SECTION("all-gather") {
    Fed uneven;
    const auto pieces = uneven.place(known, {{2, 1}, {2, 3}, {2, 0}});
    uneven.check_gradients(pieces, all_gather(uneven.s, uneven.names, pieces, 1), uneven.values, skip);
  }
}

TEST_CASE("a collective runs in every iteration of a loop, and dies with a branch") {
  Three d;
  const auto pass = [&](const std::vector<Output>& v, const Scope& scope) {
    std::vector<Output> out;
    for (size_t i = 0; i < v.size(); ++i) out.push_back(scope.device(d.names[i]).op("Identity", {v[i]}));
    return out;
  };
  std::vector<Output> init = d.xs;
  init.push_back(d.s.constant(0.f));
  const auto loop = while_loop(
      d.s, init,
      [](const Scope& scope, const std::vector<Output>& v) {
        return scope.op("Less", {v[3], scope.constant(5.f)});
      },
      [&](const Scope& scope, const std::vector<Output>& v) {
        auto out = all_reduce(scope, d.names, {v[0], v[1], v[2]}, Reduction::kMean);
        out = broadcast(scope, d.names, reduce_scatter(scope, d.names, out)[0], 0);
        out = all_gather(scope, d.names, out);  // of three times two elements
        for (Output& x : out)
          x = scope.op("Slice",
                       {x, scope.constant(Tensor::of<int32_t>({0})), scope.constant(Tensor::of<int32_t>({4}))});
        out = pass(out, scope);
        out.push_back(scope.op("Add", {v[3], scope.constant(1.f)}));
        return out;
      });
  REQUIRE(d.s.ok());
  for (const Tensor& t : d.run({loop[0], loop[1], loop[2]}))
    CHECK(t.data<float>()[3] == Approx(30 * 81));  // reduce-scatter sums what the others have made equal
  const Output yes = d.s.op("Placeholder", {}, {{"dtype", DType::kBool}, {"shape", PartialShape{}}});
  const auto branch = cond(
      d.s, yes,
      [&](const Scope& scope) {
        const auto sums = all_reduce(scope, d.names, d.xs);
        return std::vector{sums[0], sums[2]};
      },
      [&](const Scope&) {
        return std::vector{d.xs[1], d.xs[2]};
      });
  for (const bool taken : {true, false, true}) {
    auto result = d.session->run({{yes, Tensor::scalar(taken)}}, branch);
    INFO((result.ok() ? std::string() : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].data<float>()[1] == (taken ? 30 : 10));
  }
}

TEST_CASE("a collective may be fetched in part, waited for, run without passes and with its numbers looked at") {
  Three d;
  const auto sums = all_reduce(d.s, d.names, d.xs);
  const Output after = d.s.after(std::vector<Output>{sums[1]}).op("Identity", {d.xs[0]});
  REQUIRE(d.s.ok());
  for (const bool check : {false, true}) {
    auto result = d.session->run({}, {sums[2], after}, {}, {.check_numerics = check});
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(Tensor::of<float>({3, 30, 300, 3000})));
  }
  Session as_written(*d.engine, d.graph, {.passes = GraphPasses::none()});
  auto result = as_written.run({}, {sums[0]}, {sums[1].node});
  REQUIRE(result.ok());
  CHECK((*result)[0].identical(Tensor::of<float>({3, 30, 300, 3000})));
}

TEST_CASE("what reads a collective may be fed, its own outputs not") {
  Three d;
  const auto sums = all_reduce(d.s, d.names, d.xs);
  const Output more = d.s.op("AddN", {sums[0], sums[1]});
  REQUIRE(d.s.ok());
  auto fed = d.session->run({{sums[0], Three::row(1)}}, {more});
  REQUIRE(fed.ok());
  CHECK((*fed)[0].identical(Tensor::of<float>({4, 40, 400, 4000})));
  const Output inside = sums[0].node->inputs()[0];
  CHECK(inside.node->op().name() == "_AllReduce");
  const auto refused = d.session->run({{inside, Three::row(1)}}, {more});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kInvalidArgument);
  CHECK(refused.error().node == inside.node->name());
}

TEST_CASE("graphs with collectives are written and read, and bad ones are refused") {
  Three d;
  const auto parts = reduce_scatter(d.s, d.names, d.xs, Reduction::kMean);
  const auto whole = all_gather(d.s, d.names, parts);
  REQUIRE(d.s.ok());
  Graph again(d.engine->ops());
  REQUIRE(from_graph_def(to_graph_def(d.graph), again).ok());
  Session session(*d.engine, again);
  auto result = session.run({}, {again.output(whole[2].name()).value()});
  REQUIRE(result.ok());
  CHECK((*result)[0].identical(Tensor::of<float>({1, 10, 100, 1000})));

  const auto refused = [&](const std::string& op, std::vector<Output> inputs, Attrs attrs, const std::string& text) {
    const Scope s(d.graph);
    s.op(op, std::move(inputs), std::move(attrs));
    REQUIRE_FALSE(s.ok());
    INFO(s.status().error().str());
    CHECK(s.status().error().code == Code::kInvalidArgument);
    CHECK_THAT(s.status().error().message, Contains(text));
  };
  const std::vector<std::string> two(2, "/cpu:0");
  const std::vector<Output> same = {d.xs[0], d.xs[0]};
  refused("_AllReduce", same, {{"devices", d.names}}, "as many as tensors, 2, got 3");
  refused("_AllReduce", std::vector<Output>(1025, d.xs[0]), {{"devices", std::vector<std::string>(1025, "/cpu:0")}},
          "at most 1024");
  refused("_Broadcast", {d.xs[0]}, {{"devices", two}, {"N", int64_t{2}}, {"root", int64_t{2}}}, "device 2 of 2");
  refused("_ReduceScatter", same, {{"devices", two}, {"axis", INT64_MAX}}, "axis");
  refused("_ReduceScatter", same, {{"devices", two}, {"sizes", std::vector<int64_t>{1, 2}}}, "must be 4, got 3");
  refused("_ReduceScatter", same, {{"devices", two}, {"sizes", std::vector<int64_t>{5, -1}}}, "at least 0");
  refused("_ReduceScatter", same, {{"devices", two}, {"sizes", std::vector<int64_t>{4}}}, "as many as tensors");
  refused("_AllGather", same, {{"devices", two}, {"axis", int64_t{1}}}, "axis 1");
  const Output ints = d.s.constant(Tensor::of<int32_t>({1}));
  refused("_AllReduce", {ints, ints}, {{"devices", two}, {"reduction", std::string("MEAN")}}, "int32");
  // A device that is not there is known when the step is planned.
  Three other;
  const Output x = other.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{4}}});
  const Output nowhere = other.s.op("_AllReduce", {x, x}, {{"devices", std::vector<std::string>{"/cpu:0", "/cpu:77"}}});
  REQUIRE(other.s.ok());
  const auto planned = other.session->run({{x, Three::row(0)}}, {nowhere});
  REQUIRE_FALSE(planned.ok());
  CHECK_THAT(planned.error().message, Contains("/cpu:77"));
}

TEST_CASE("the nodes of a collective are placed on its devices") {
  Three d;
  const auto sums = all_reduce(d.s, d.names, d.xs);
  REQUIRE(d.s.ok());
  PlacementOptions options;
  for (const std::string& name : d.names) options.devices.push_back({name, {}});
  const auto placed = place(d.graph, {}, sums, {}, options);
  INFO((placed.ok() ? std::string() : placed.error().str()));
  REQUIRE(placed.ok());
  std::map<std::string, std::set<uint32_t>> at;
  for (const NodePlacement& node : placed->nodes) at[node.node->op().name()].insert(node.device);
  CHECK(at["AddN"].size() == 3);
  CHECK(at["EnsureShape"].size() == 3);
  CHECK_FALSE(at.contains("_AllReduce"));
}

}  // namespace troupe::nn
