// SPDX-License-Identifier: Apache-2.0
// Gradients that compute forward values again, run: their numbers, and the memory of a step.
#include <cmath>
#include <map>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/gradients.h"
#include "troupe/trace.h"

namespace troupe {
namespace {

constexpr int64_t kRows = repeats(2048), kSize = 64;
constexpr int64_t kBytes = kRows * kSize * 4;
constexpr int kBlocks = 12;

Tensor filled(const Shape& shape, float scale) {
  Tensor t = *Tensor::make(DType::kFloat32, shape);
  for (int64_t i = 0; i < t.elements(); ++i) t.mutable_data<float>()[i] = scale * static_cast<float>(i * 37 % 101 - 50);
  return t;
}

/// A chain of blocks with weights, and sums of the gradients by these. Sums by biases take long enough that a device
/// puts them off.
struct BlockChain {
  BlockChain(TestEngine& t, std::vector<std::string> recompute, int devices = 1) : t(t) {
    Output h = t.placeholder(DType::kFloat32, {-1, kSize});
    feeds.push_back({h, filled({kRows, kSize}, 1e-2f)});
    std::vector<Output> weights;
    for (int i = 0; i < kBlocks; ++i) {
      const Output w = t.placeholder(DType::kFloat32, {kSize, kSize}, "w"),
                   b = t.placeholder(DType::kFloat32, {kSize}, "b");
      feeds.push_back({w, filled({kSize, kSize}, 1e-2f)});
      feeds.push_back({b, filled({kSize}, 1e-3f)});
      weights.insert(weights.end(), {w, b});
      const Scope s = t.scope.scope("block").device(fmt::format("/cpu:{}", i % devices));
      for (int k = 0; k < 2; ++k)
        h = s.op("Sigmoid", {s.op("Softplus", {s.op("BiasAdd", {s.op("MatMul", {h, w}), b})})});
    }
    const auto dws = gradients(t.scope, {t.scope.op("Square", {h})}, weights, {}, {}, {.recompute = recompute});
    INFO((dws.ok() ? "" : dws.error().str()));
    REQUIRE(dws.ok());
    for (const Output& dw : *dws) {
      const Output flat = t.scope.op("Reshape", {dw, t.scope.constant(Tensor::of<int32_t>({-1}))});
      sums.push_back(t.scope.op("Sum", {flat, t.scope.constant(0)}));
    }
  }
  std::vector<Tensor> run(const RunOptions& options = {}) const {
    auto result = t.session->run(feeds, sums, {}, options);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return std::move(*result);
  }
  static std::string block(int i) { return i == 0 ? "block" : fmt::format("block_{}", i); }
  static std::vector<std::string> blocks() {
    std::vector<std::string> out;
    for (int i = 0; i < kBlocks; ++i) out.push_back(block(i));
    return out;
  }

  TestEngine& t;
  std::vector<Feed> feeds;
  std::vector<Output> sums;
};

TEST_CASE("a step that computes blocks again holds one of them at a time") {
  TestEngine stored, again;
  const BlockChain a(stored, {}), b(again, BlockChain::blocks());
  const auto peak = [](const TestEngine& t) { return t.engine->device_stats()[0].memory.peak; };
  for (const GraphPasses& passes : {GraphPasses::none(), GraphPasses(), GraphPasses::all()}) {
    for (TestEngine* t : {&stored, &again})
      t->session = std::make_unique<Session>(*t->engine, t->graph, SessionOptions{.passes = passes});
    for (int step = 0; step < 5; ++step) {  // costs of nodes are known by and by, and change the order of firing
      const auto expected = a.run(), got = b.run();
      for (size_t i = 0; i < expected.size(); ++i)
        CHECK(got[i].data<float>()[0] == Approx(expected[i].data<float>()[0]));
      if (!passes.merge_common) CHECK(got[0].identical(expected[0]));
    }
    // With: the end of each block, one block, and what is at work.
    CHECK(peak(again) < (kBlocks + 12) * kBytes);
  }
  // Without: what each Softplus reads and each Sigmoid gives.
  CHECK(peak(stored) > 4 * kBlocks * kBytes);
}

TEST_CASE("copies run after the last block, the last block's first") {
  TestEngine t;
  const BlockChain chain(t, BlockChain::blocks());
  const auto trace = std::make_shared<Trace>();
  chain.run({.trace = trace});
  std::map<std::string, int64_t> begins;  // by node
  for (const TraceEvent& e : trace->take()) begins[e.node->name()] = e.begin_ns;
  int64_t last = begins.at(BlockChain::block(kBlocks - 1) + "/Sigmoid_1");
  for (int i = kBlocks; i-- > 0;) {
    CHECK(begins.at("gradients/" + BlockChain::block(i) + "/MatMul") > last);
    last = begins.at("gradients/" + BlockChain::block(i) + "/MatMul_1");
  }
}

TEST_CASE("blocks on several devices are computed again where they are") {
  TestEngine stored({1, 1, 1}), again({1, 1, 1});
  const BlockChain a(stored, {}, 3), b(again, BlockChain::blocks(), 3);
  for (int i = 0; i < kBlocks; ++i)
    CHECK(again.graph.find("gradients/" + BlockChain::block(i) + "/MatMul")->device() == fmt::format("/cpu:{}", i % 3));
  for (int step = 0; step < 5; ++step) {
    const auto expected = a.run(), got = b.run();
    for (size_t i = 0; i < expected.size(); ++i) CHECK(got[i].data<float>()[0] == Approx(expected[i].data<float>()[0]));
  }
}

TEST_CASE("random numbers are drawn once, for the forward and the backward pass") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {-1, kSize});
  const Scope s = t.scope.scope("block");
  const Output draw = s.op("RandomUniform", {s.op("Shape", {x})}, {{"dtype", DType::kFloat32}});
  const Output mask = s.op("Cast", {s.op("GreaterEqual", {draw, s.constant(0.5f)})}, {{"DstT", DType::kFloat32}});
  const Output y = s.op("Mul", {s.op("Exp", {x}), mask});
  const auto dx = gradients(t.scope, {t.scope.op("Neg", {y})}, {x}, {}, {}, {.recompute = {"block"}});
  REQUIRE(dx.ok());
  for (int step = 0; step < 3; ++step) {
    auto r = t.session->run({{x, filled({kSize, kSize}, 1e-2f)}}, {y, (*dx)[0]});
    REQUIRE(r.ok());
    int64_t zeros = 0, different = 0;
    for (int64_t i = 0; i < (*r)[0].elements(); ++i) {
      zeros += (*r)[0].data<float>()[i] == 0;
      different += (*r)[0].data<float>()[i] != -(*r)[1].data<float>()[i];
    }
    CHECK(different == 0);
    CHECK(std::abs(zeros - kSize * kSize / 2) < 300);
  }
}

TEST_CASE("a variable that changes within the step counts as it was read") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {-1, kSize});
  const Output v = t.variable("v", DType::kFloat32, {kSize});
  const Node* init = t.scope.node("AssignVariableOp", {v, t.scope.constant(filled({kSize}, 0.1f))});
  REQUIRE(t.session->run({}, std::vector<Output>{}, {init}).ok());
  const Scope s = t.scope.scope("block");
  const Output read = s.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  const Output end = s.op("Tanh", {s.op("Mul", {s.op("Sigmoid", {s.op("Mul", {x, read})}), read})});
  // Assigned when the forward pass has ended, before anything is computed again.
  const Output zero = t.scope.after({end}).constant(filled({kSize}, 0));
  const Node* set = t.scope.node("AssignVariableOp", {v, zero});
  const Output y = t.scope.after(std::vector<const Node*>{set}).op("Square", {end});
  const auto kept = gradients(t.scope, {y}, {x, read}),
             again = gradients(t.scope, {y}, {x, read}, {}, {}, {.recompute = {"block"}});
  REQUIRE((kept.ok() && again.ok()));
  std::vector<std::vector<Tensor>> results;
  for (const auto& dxs : {*kept, *again}) {
    REQUIRE(t.session->run({}, std::vector<Output>{}, {init}).ok());
    auto r = t.session->run({{x, filled({kSize, kSize}, 1e-2f)}}, dxs, {set});
    REQUIRE(r.ok());
    results.push_back(std::move(*r));
  }
  for (size_t i = 0; i < 2; ++i) CHECK(results[0][i].identical(results[1][i]));
}

TEST_CASE("second gradients are the same with values computed again") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {-1});
  const Scope s = t.scope.scope("block");
  const Output u = s.op("Exp", {x});
  const Output y = t.scope.op("Square", {s.op("Sin", {s.op("Tanh", {u})})});
  const std::vector<Feed> feeds = {{x, Tensor::of<float>({0.5f, -1, 0.25f})}};
  std::vector<std::vector<Output>> seconds;
  for (const std::vector<std::string>& scopes : {std::vector<std::string>{}, {"block"}}) {
    const auto first = gradients(t.scope, {y}, {x}, {}, {}, {.recompute = scopes});
    REQUIRE(first.ok());
    for (const std::vector<std::string>& inner : {std::vector<std::string>{}, {"block"}}) {
      const auto second = gradients(t.scope, {(*first)[0]}, {x, u}, {}, {}, {.recompute = inner});
      INFO((second.ok() ? "" : second.error().str()));
      REQUIRE(second.ok());
      REQUIRE((*second)[1]);
      seconds.push_back(*second);
    }
  }
  const auto expected = t.session->run(feeds, seconds[0]);
  REQUIRE(expected.ok());
  for (const auto& second : seconds) {
    const auto got = t.session->run(feeds, second);
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    for (size_t i = 0; i < 2; ++i)
      for (int k = 0; k < 3; ++k)
        CHECK((*got)[i].data<float>()[k] == Approx((*expected)[i].data<float>()[k]).epsilon(1e-5));
  }
}

}  // namespace
}  // namespace troupe
