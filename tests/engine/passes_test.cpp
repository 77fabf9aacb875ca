// SPDX-License-Identifier: Apache-2.0
// Passes over steps, through sessions: what they save, what they leave as it was.
#include <catch2/catch.hpp>

#include <cmath>

#include "tests/engine/fixtures.h"

namespace troupe {
namespace {

/// Nodes fired by one run of `fetches` in a session of its own.
int64_t nodes_of(TestEngine& t, const GraphPasses& passes, const std::vector<Feed>& feeds,
                 const std::vector<Output>& fetches, const std::vector<const Node*>& targets = {}) {
  Session session(*t.engine, t.graph, {.passes = passes});
  const int64_t before = t.engine->device_stats()[0].nodes;
  auto r = session.run(feeds, fetches, targets);
  INFO((r.ok() ? "" : r.error().str()));
  REQUIRE(r.ok());
  int64_t after = before;  // counted a moment after the step has answered
  while (after == before) after = t.engine->device_stats()[0].nodes;
  return after - before;
}

TEST_CASE("a value that two nodes compute is computed once, unless one is fed") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output a = t.scope.op("Exp", {x}), b = t.scope.op("Exp", {x});
  const Output sum = t.scope.op("AddV2", {a, b});
  const std::vector<Feed> feeds = {{x, Tensor::scalar(0.f)}};
  CHECK(nodes_of(t, {}, feeds, {sum}) == 2);
  CHECK(nodes_of(t, GraphPasses::none(), feeds, {sum}) == 3);
  auto r = t.session->run(feeds, {a, b, sum});
  REQUIRE(r.ok());
  CHECK((*r)[1].identical(Tensor::scalar(1.f)));
  CHECK((*r)[2].identical(Tensor::scalar(2.f)));
  r = t.session->run({{x, Tensor::scalar(0.f)}, {b, Tensor::scalar(5.f)}}, {sum});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(6.f)));
}

TEST_CASE("random ops of one seed stay apart and keep their sequences beside other plans") {
  TestEngine t;
  const Attrs seed = {{"seed", int64_t{7}}, {"seed2", int64_t{8}}, {"dtype", DType::kFloat32}};
  const Output shape = t.scope.constant(Tensor::of<int32_t>({2}));
  const Output a = t.scope.op("RandomUniform", {shape}, seed), b = t.scope.op("RandomUniform", {shape}, seed);
  const Output difference = t.scope.op("Sub", {a, b});
  // Both draw the same sequence; a step that needs only one of them moves that one on.
  auto r = t.session->run({}, std::vector<Output>{difference});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::of<float>({0, 0})));
  REQUIRE(t.session->run({}, std::vector<Output>{a}).ok());
  r = t.session->run({}, std::vector<Output>{difference});
  REQUIRE(r.ok());
  CHECK_FALSE((*r)[0].identical(Tensor::of<float>({0, 0})));
}

TEST_CASE("a network of constants infers what it does as it was written, for every batch and with two threads") {
  TestEngine t({2});
  const auto filled = [&](const Shape& shape, float scale) {
    Tensor values = *Tensor::make(DType::kFloat32, shape);
    for (int64_t i = 0; i < values.elements(); ++i)
      values.mutable_data<float>()[i] = scale * static_cast<float>(i * 7919 % 1013 - 500) / 500;
    return values;
  };
  const auto conv = [&](Output x, const Shape& filter, int64_t stride, const std::string& op = "Conv2D") {
    x = t.scope.op(op, {x, t.scope.constant(filled(filter, 0.2f))},
                   {{"strides", std::vector<int64_t>{1, stride, stride, 1}}, {"padding", std::string("SAME")}});
    const Shape channels{filter[3] * (op == "Conv2D" ? 1 : filter[2])};
    std::vector<Output> inputs = {x};
    for (const float scale : {2.f, 1.f, 0.5f}) inputs.push_back(t.scope.constant(filled(channels, scale)));
    inputs.push_back(t.scope.op("Square", {inputs[1]}));
    return t.scope.op("FusedBatchNormV3", inputs, {{"is_training", false}, {"epsilon", 0.5f}});
  };
  const Output x = t.placeholder(DType::kFloat32, {-1, 32, 32, 3});
  Output h = t.scope.op("Relu", {conv(x, {3, 3, 3, 32}, 2)});
  h = t.scope.op("MaxPool", {h},
                 {{"ksize", std::vector<int64_t>{1, 3, 3, 1}},
                  {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                  {"padding", std::string("SAME")}});
  for (int block = 0; block < 3; ++block) {
    Output y = t.scope.op("Relu6", {conv(h, {1, 1, 32, 96}, 1)});
    y = t.scope.op("Relu6", {conv(y, {3, 3, 96, 1}, 1, "DepthwiseConv2dNative")});
    h = t.scope.op("Relu", {t.scope.op("AddV2", {conv(y, {1, 1, 96, 32}, 1), h})});
  }
  h = conv(conv(h, {3, 3, 32, 24}, 1), {1, 1, 24, 48}, 2);
  const Output y = t.scope.op("Mean", {h, t.scope.constant(Tensor::of<int32_t>({1, 2}))});
  REQUIRE(t.scope.ok());
  Session as_written(*t.engine, t.graph, {.passes = GraphPasses::none()});
  for (const int64_t batch : {1, 3, 1, 0}) {
    const std::vector<Feed> feeds = {{x, filled({batch, 32, 32, 3}, 1)}};
    const auto got = t.session->run(feeds, {y}), expected = as_written.run(feeds, {y});
    INFO((got.ok() ? "" : got.error().str()) << (expected.ok() ? "" : expected.error().str()));
    REQUIRE((got.ok() && expected.ok()));
    const Tensor &a = (*got)[0], &b = (*expected)[0];
    REQUIRE(a.shape() == b.shape());
    float largest = 0, worst = 0;
    for (int64_t i = 0; i < b.elements(); ++i) {
      largest = std::max(largest, std::fabs(b.data<float>()[i]));
      worst = std::max(worst, std::fabs(a.data<float>()[i] - b.data<float>()[i]));
    }
    CHECK(worst <= 1e-5f * largest);
  }
  const std::vector<Feed> feeds = {{x, filled({1, 32, 32, 3}, 1)}};
  CHECK(nodes_of(t, {}, feeds, {y}) * 2 < nodes_of(t, GraphPasses::none(), feeds, {y}));
}

TEST_CASE("convolutions take paddings and dilations, and infer what they do as they were written") {
  TestEngine t;
  const auto filled = [&](const Shape& shape, float scale) {
    Tensor values = *Tensor::make(DType::kFloat32, shape);
    for (int64_t i = 0; i < values.elements(); ++i)
      values.mutable_data<float>()[i] = scale * static_cast<float>(i * 7919 % 1013 - 500) / 500;
    return values;
  };
  const auto pairs = [&](std::initializer_list<int32_t> v) {
    return t.scope.constant(Tensor::of<int32_t>(v, {static_cast<int64_t>(v.size()) / 2, 2}));
  };
  const auto conv = [&](Output x, const Shape& filter, int64_t stride = 1, const std::string& op = "Conv2D") {
    return t.scope.op(op, {x, t.scope.constant(filled(filter, 0.2f))},
                      {{"strides", std::vector<int64_t>{1, stride, stride, 1}}, {"padding", std::string("VALID")}});
  };
  const Output x = t.placeholder(DType::kFloat32, {-1, 24, 8}), one = t.scope.constant(Tensor::scalar<int32_t>(1));
  Output h = x;
  for (const int32_t by : {1, 2, 4}) {
    Output y = t.scope.op("Pad", {h, pairs({0, 0, 2 * by, 0, 0, 0})});
    const Output block = t.scope.constant(Tensor::of<int32_t>({by}));
    const int32_t more = (by - 2 * by % by) % by;
    if (by > 1) y = t.scope.op("SpaceToBatchND", {y, block, pairs({0, more})});
    y = t.scope.op("Squeeze", {conv(t.scope.op("ExpandDims", {y, one}), {1, 3, 8, 8})},
                   {{"squeeze_dims", std::vector<int64_t>{1}}});
    if (by > 1) y = t.scope.op("BatchToSpaceND", {y, block, pairs({0, more})});
    y = t.scope.op("BiasAdd", {y, t.scope.constant(filled({8}, 1))});
    h = t.scope.op("AddV2", {t.scope.op("Tanh", {y}), h});
  }
  Output images = t.scope.op("Reshape", {h, t.scope.constant(Tensor::of<int32_t>({-1, 12, 16, 1}))});
  images = conv(t.scope.op("Pad", {images, pairs({0, 0, 1, 0, 2, 1, 0, 0})}), {3, 3, 1, 6}, 2);
  images = conv(t.scope.op("Pad", {images, pairs({0, 0, 1, 1, 1, 1, 0, 0})}), {3, 3, 6, 1}, 1, "DepthwiseConv2dNative");
  const Output both = t.scope.constant(Tensor::of<int32_t>({2, 4}));
  const Output forth = t.scope.op("SpaceToBatchND", {images, both, pairs({2, 2, 4, 3})});
  const Output y = t.scope.op("BatchToSpaceND", {conv(forth, {3, 3, 6, 5}), both, pairs({1, 0, 0, 2})});
  REQUIRE(t.scope.ok());
  Session as_written(*t.engine, t.graph, {.passes = GraphPasses::none()});
  for (const int64_t batch : {1, 3}) {
    const std::vector<Feed> feeds = {{x, filled({batch, 24, 8}, 1)}};
    const auto got = t.session->run(feeds, {h, y}), expected = as_written.run(feeds, {h, y});
    INFO((got.ok() ? "" : got.error().str()) << (expected.ok() ? "" : expected.error().str()));
    REQUIRE((got.ok() && expected.ok()));
    for (const size_t i : {0, 1}) {
      const Tensor &a = (*got)[i], &b = (*expected)[i];
      REQUIRE(a.shape() == b.shape());
      for (int64_t k = 0; k < b.elements(); ++k)
        REQUIRE(std::fabs(a.data<float>()[k] - b.data<float>()[k]) <= 1e-5f * (1 + std::fabs(b.data<float>()[k])));
    }
  }
  const std::vector<Feed> feeds = {{x, filled({1, 24, 8}, 1)}};
  CHECK(nodes_of(t, {}, feeds, {y}) + 12 <= nodes_of(t, GraphPasses::none(), feeds, {y}));
}

TEST_CASE("a run that checks numerics names the node of the graph") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  t.scope.named("first").op("Log", {x});
  const Output second = t.scope.named("second").op("Log", {x});
  const Output sum = t.scope.op("AddV2", {*t.graph.output("first"), second});
  REQUIRE(t.session->run({{x, Tensor::scalar(-1.f)}}, {sum}).ok());
  for (int i = 0; i < 2; ++i) {
    auto r = t.session->run({{x, Tensor::scalar(-1.f)}}, {second}, {}, {.check_numerics = true});
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().node == "second");
  }
  CHECK(t.session->run({{x, Tensor::scalar(1.f)}}, {second}, {}, {.check_numerics = true}).ok());
}

}  // namespace
}  // namespace troupe
