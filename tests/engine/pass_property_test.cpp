// SPDX-License-Identifier: Apache-2.0
// Random graphs, with branches and loops: each pass leaves results as they are, to rounding, and gradients are the same
// with values computed again.
#include <cmath>
#include <random>

#include "graph/passes/passes.h"
#include "tests/engine/fixtures.h"
#include "tests/engine/random_graph.h"
#include "tests/repeats.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

void check_close(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  for (int64_t i = 0; i < a.elements(); ++i) {
    const float x = a.data<float>()[i], y = b.data<float>()[i];
    if (std::isnan(x) || std::isinf(x)) CHECK((std::isnan(x) ? std::isnan(y) : x == y));
    else if (x == 0 && y == 0) CHECK(std::signbit(x) == std::signbit(y));
    else CHECK(std::fabs(x - y) <= 1e-5f * std::max(1.f, std::fabs(x)));
  }
}

/// The same to rounding, by the largest value.
void check_near(const Tensor& expected, const Tensor& result) {
  REQUIRE((expected.shape() == result.shape() && expected.dtype() == result.dtype()));
  if (expected.dtype() == DType::kInt32) {
    CHECK(std::ranges::equal(expected.values<int32_t>(), result.values<int32_t>()));
    return;
  }
  const auto a = expected.values<float>(), b = result.values<float>();
  float largest = 1, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(a[i]));
    worst = std::max(worst, std::fabs(a[i] - b[i]));
  }
  CHECK(worst <= 1e-4f * largest);
}

/// Each of `passes` changes no fetch beyond rounding.
void check_passes(TestEngine& t, const std::vector<GraphPasses>& passes, const std::vector<Feed>& feeds,
                  const Outputs& fetches) {
  Session plain(*t.engine, t.graph, {.passes = GraphPasses::none()});
  const auto expected = plain.run(feeds, fetches);
  INFO((expected.ok() ? "" : expected.error().str()));
  REQUIRE(expected.ok());
  for (size_t pass = 0; pass < passes.size(); ++pass) {
    INFO("pass " << pass);
    Session session(*t.engine, t.graph, {.passes = passes[pass]});
    const auto result = session.run(feeds, fetches);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    for (size_t i = 0; i < fetches.size(); ++i) check_near((*expected)[i], (*result)[i]);
  }
}

std::vector<GraphPasses> each_alone_and_all() {
  std::vector<GraphPasses> out;
  for (const GraphPass& pass : kGraphPasses) out.push_back(*GraphPasses::parse(pass.name));
  out.push_back(GraphPasses::all());
  return out;
}

}  // namespace

TEST_CASE("passes leave the results of random graphs as they are") {
  const std::vector<GraphPasses> each = each_alone_and_all();
  for (uint32_t seed = 0; seed < repeats(60); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    RandomGraph random(t, seed);
    const Outputs fetches = random.build();
    INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
    REQUIRE(t.scope.ok());
    Session plain(*t.engine, t.graph, {.passes = GraphPasses::none()});
    for (const std::vector<Feed>& feeds : {random.feeds(), random.odd_feeds()}) {
      const auto expected = plain.run(feeds, fetches);
      INFO((expected.ok() ? "" : expected.error().str()));
      REQUIRE(expected.ok());
      for (size_t pass = 0; pass < each.size(); ++pass) {
        INFO("pass " << pass);
        Session session(*t.engine, t.graph, {.passes = each[pass]});
        const auto result = session.run(feeds, fetches);
        INFO((result.ok() ? "" : result.error().str()));
        REQUIRE(result.ok());
        for (size_t i = 0; i < fetches.size(); ++i) check_close((*expected)[i], (*result)[i]);
      }
    }
  }
}

TEST_CASE("gradients of random graphs are the same when scopes are computed again") {
  int64_t copies = 0;
  for (uint32_t seed = 0; seed < repeats(40); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    RandomGraph random(t, seed);
    const Outputs ys = random.build(true, 4);
    INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
    REQUIRE(t.scope.ok());
    Outputs xs;
    for (const Feed& feed : random.feeds()) xs.push_back(feed.output);
    const auto kept = gradients(t.scope, ys, xs);
    INFO((kept.ok() ? "" : kept.error().str()));
    REQUIRE(kept.ok());
    Outputs dxs, agains;
    for (const std::vector<std::string>& scopes :
         std::vector<std::vector<std::string>>{{"part", "part_1", "part_2", "part_3"}, {"part_1"}}) {
      const int before = t.graph.size();
      const auto again = gradients(t.scope, ys, xs, {}, {}, {.recompute = scopes});
      // The last values may need nothing of a scope.
      if (!again.ok() && again.error().code == Code::kNotFound) continue;
      INFO((again.ok() ? "" : again.error().str()));
      REQUIRE(again.ok());
      for (int i = before; i < t.graph.size(); ++i) copies += t.graph.node(i).attrs().has("_recomputes");
      for (size_t i = 0; i < xs.size(); ++i) {
        REQUIRE(static_cast<bool>((*kept)[i]) == static_cast<bool>((*again)[i]));
        if (!(*kept)[i]) continue;
        dxs.push_back((*kept)[i]);
        agains.push_back((*again)[i]);
      }
    }
    for (const GraphPasses& passes : {GraphPasses::none(), GraphPasses(), GraphPasses::all()}) {
      Session session(*t.engine, t.graph, {.passes = passes});
      const auto expected = session.run(random.feeds(), dxs), result = session.run(random.feeds(), agains);
      INFO((result.ok() ? "" : result.error().str()));
      REQUIRE((expected.ok() && result.ok()));
      for (size_t i = 0; i < dxs.size(); ++i) check_close((*expected)[i], (*result)[i]);
    }
  }
  CHECK(copies > repeats(300));
}

TEST_CASE("passes leave the results of random networks as they are") {
  const std::vector<GraphPasses> each = each_alone_and_all();
  for (uint32_t seed = 0; seed < repeats(40); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    const auto filled = [&](Shape shape, float least = -1) {
      Tensor values = *Tensor::make(DType::kFloat32, shape);
      std::uniform_real_distribution<float> uniform(least, 1);
      for (int64_t i = 0; i < values.elements(); ++i) values.mutable_data<float>()[i] = uniform(random);
      return values;
    };
    const Scope& s = t.scope;
    const auto weight = [&](Shape shape, float least = -1) { return s.constant(filled(shape, least)); };
    const char* activations[] = {"Relu", "Relu6", "Elu", "Tanh", "Sigmoid", "Softplus"};
    const Output image = t.placeholder(DType::kFloat32, {-1, 8, 8, 4});
    Outputs fetches;
    Output x = image;
    for (int layer = 0; layer < 3; ++layer) {
      const bool depthwise = pick(3) == 0;
      const int64_t in = x.shape()[3], out = depthwise ? in : 4 << pick(3);
      x = s.op(depthwise ? "DepthwiseConv2dNative" : "Conv2D", {x, weight({3, 3, in, depthwise ? 1 : out})},
               {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}});
      if (pick(6) == 0) fetches.push_back(x);
      if (pick(2)) x = s.op("BiasAdd", {x, weight({out})});
      if (pick(2))
        x = s.op("FusedBatchNormV3", {x, weight({out}), weight({out}), weight({out}), weight({out}, 0.5f)},
                 {{"is_training", false}});
      if (pick(6) == 0) fetches.push_back(x);
      if (pick(4)) x = s.op(activations[pick(6)], {x});
    }
    const int64_t size = 64 * x.shape()[3];
    x = s.op("Reshape", {x, s.constant(Tensor::of<int32_t>({-1, static_cast<int32_t>(size)}))});
    x = s.op("BiasAdd", {s.op("MatMul", {x, weight({size, 5})}), weight({5})});
    fetches.push_back(s.op(activations[pick(6)], {x}));
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    const std::vector<Feed> feeds = {{image, filled({2, 8, 8, 4})}};
    check_passes(t, each, feeds, fetches);
  }
}

namespace {

/// A random network on images [batch, 4, 8, 8], with nodes that have formats and others between them.
class RandomImages {
 public:
  RandomImages(TestEngine& t, uint32_t seed) : t_(t), s_(t.scope), random_(seed) {}

  /// Results of the network and gradients by its weights.
  Outputs build(Output image) {
    Output x = pick(4) ? pool(s_, image) : image;
    for (int layer = 0; layer < 5; ++layer) {
      images_.push_back(x);
      x = pick(5) == 0 ? branch(x) : next(s_, x);
      if (pick(5) == 0) fetches_.push_back(x);
    }
    fetches_.push_back(s_.op("Shape", {x}));
    if (pick(2)) x = s_.op("Mean", {x, ints({2, 3})}, {{"keep_dims", pick(2) == 0}});
    x = s_.op("Reshape", {x, ints({2, -1})});
    fetches_.push_back(x);
    const Output loss = s_.op("Sum", {s_.op("Square", {x}), ints({0, 1})});
    const auto dxs = gradients(s_, {loss}, weights_);
    if (!dxs.ok()) return {};
    for (const Output& dx : *dxs)
      if (dx) fetches_.push_back(dx);
    return fetches_;
  }
  Tensor filled(Shape shape, float least = -1) {
    Tensor values = *Tensor::make(DType::kFloat32, shape);
    std::uniform_real_distribution<float> uniform(least, 1);
    for (int64_t i = 0; i < values.elements(); ++i) values.mutable_data<float>()[i] = uniform(random_);
    return values;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  Output ints(std::initializer_list<int32_t> values) { return s_.constant(Tensor::of<int32_t>(values)); }
  Output weight(Shape shape, float least = -1) {
    const Output w = t_.scope.constant(filled(shape, least));
    weights_.push_back(w);
    return w;
  }
  Attrs format() { return {{"data_format", std::string("NCHW")}}; }
  Attrs window(int64_t y, int64_t x) {
    Attrs attrs{{"strides", std::vector<int64_t>{1, 1, y, x}}, {"data_format", std::string("NCHW")}};
    attrs.set("padding", std::string(pick(2) ? "SAME" : "VALID"));
    return attrs;
  }
  Output conv(const Scope& s, Output x) {
    const int64_t in = x.shape()[1], side = x.shape()[2] >= 3 && x.shape()[3] >= 3 && pick(2) ? 3 : 1;
    const int kind = pick(3);
    Attrs attrs = window(1, kind == 1 ? 1 : 1 + pick(2));
    if (kind == 1) return s.op("DepthwiseConv2dNative", {x, weight({side, side, in, 1})}, attrs);
    if (kind == 2 && pick(2)) {
      attrs.set("padding", std::string("EXPLICIT"));
      attrs.set("explicit_paddings", std::vector<int64_t>{0, 0, 0, 0, 1, 0, 2, 1});
    }
    return s.op("Conv2D", {x, weight({side, side, in, 4})}, attrs);
  }
  Output pool(const Scope& s, Output x) {
    const int64_t y = x.shape()[2] >= 2 ? 2 : 1, wide = x.shape()[3] >= 3 ? 1 + pick(3) : 1;
    Attrs attrs = window(y, wide);
    attrs.set("ksize", std::vector<int64_t>{1, 1, y, wide});
    return s.op(pick(2) ? "MaxPool" : "AvgPool", {x}, attrs);
  }
  Output norm(const Scope& s, Output x) {
    const int64_t c = x.shape()[1];
    Attrs attrs = format();
    attrs.set("is_training", pick(2) == 0);
    return s.op("FusedBatchNormV3", {x, weight({c}), weight({c}), weight({c}), weight({c}, 0.5f)}, attrs);
  }
  /// An earlier image of the same shape but for the batch, or x itself.
  Output alike(Output x) {
    for (const Output& image : images_)
      if (image.shape() == x.shape() && pick(2)) return image;
    return x;
  }
  Output next(const Scope& s, Output x) {
    const int64_t c = x.shape()[1];
    const char* activations[] = {"Relu", "Relu6", "Elu", "Tanh", "Sigmoid", "Softplus"};
    switch (pick(14)) {
      case 0:
      case 1: return conv(s, x);
      case 2:
      case 3: return pool(s, x);
      case 4: return norm(s, x);
      case 5: return s.op("BiasAdd", {x, weight({c})}, format());
      case 6: return s.op(activations[pick(6)], {conv(s, x)});
      case 7: return s.op("AddV2", {x, s.op("Tanh", {alike(x)})});
      case 8: return s.op("ConcatV2", {x, alike(x), s.constant(pick(2) ? 1 : -2)});
      case 9: return s.op("Pad", {x, s.constant(Tensor::of<int32_t>({0, 0, 0, pick(2), 1, 0, 0, 2}, {4, 2}))});
      case 10: return s.op("Mul", {x, pick(2) ? weight({c, 1, 1}) : weight({1, c, 1, 1})});
      case 11: return s.op("Slice", {x, ints({0, 1, 0, 0}), ints({-1, static_cast<int32_t>(c) - 1, -1, -1})});
      case 12: {
        const Node* parts = s.node("SplitV", {x, ints({1, -1}), s.constant(1)}, {{"num_split", int64_t{2}}});
        return parts ? s.op("AddV2", {parts->out(1), parts->out(0)}) : Output();
      }
      default: return s.op("Sub", {x, s.op("Mean", {x, ints({1, 3})}, {{"keep_dims", true}})});
    }
  }
  Output branch(Output x) {
    const Output sum = s_.op("Sum", {x, ints({0, 1, 2, 3})});
    const char* ops[] = {"Relu", "Tanh", "Neg", "Identity"};
    const auto side = [&](const Scope& in) { return Outputs{in.op(ops[pick(4)], {in.op(ops[pick(4)], {x})})}; };
    return cond(s_, s_.op("Less", {sum, s_.constant(0.f)}), side, side)[0];
  }

  TestEngine& t_;
  const Scope& s_;
  std::mt19937 random_;
  Outputs images_, weights_, fetches_;
};

}  // namespace

TEST_CASE("passes leave the results and gradients of random networks on NCHW images as they are") {
  const std::vector<GraphPasses> each = each_alone_and_all();
  int changed = 0;  // networks that got another layout
  for (uint32_t seed = 0; seed < repeats(60); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    RandomImages random(t, seed);
    const Output image = t.placeholder(DType::kFloat32, {seed % 2 ? -1 : 2, 4, 8, 8});
    const Outputs fetches = random.build(image);
    INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
    REQUIRE((t.scope.ok() && !fetches.empty()));
    const std::vector<Feed> feeds = {{image, random.filled({2, 4, 8, 8})}};
    check_passes(t, each, feeds, fetches);
    StepGraph step(t.graph, {&image, 1}, fetches, {});
    run_passes(step, *GraphPasses::parse("choose_layout"), {});
    changed += !step.made()->empty();
  }
  CHECK(changed > repeats(15));
}

TEST_CASE("passes leave the gradients of an unrolled recurrent network as they are") {
  TestEngine t;
  const Scope& s = t.scope;
  const auto filled = [](Shape shape, float scale) {
    Tensor values = *Tensor::make(DType::kFloat32, shape);
    for (int64_t i = 0; i < values.elements(); ++i)
      values.mutable_data<float>()[i] = scale * static_cast<float>(i * 37 % 101 - 50);
    return values;
  };
  const Output x = t.placeholder(DType::kFloat32, {3, 2, 160});
  const Output input = s.constant(filled({160, 200}, 1e-3f)), back = s.constant(filled({200, 200}, 1e-3f));
  const Node* at = s.node("Unpack", {x}, {{"num", int64_t{3}}});
  REQUIRE(at);
  Output state = s.constant(filled({2, 200}, 1e-2f));
  for (int step = 0; step < 3; ++step)
    state = s.op("Tanh", {s.op("AddV2", {s.op("MatMul", {at->out(step), input}), s.op("MatMul", {state, back})})});
  const auto dxs = gradients(s, {state}, {input, back});
  INFO((dxs.ok() ? "" : dxs.error().str()));
  REQUIRE(dxs.ok());
  const std::vector<Feed> feeds = {{x, filled({3, 2, 160}, 1e-2f)}};
  Session plain(*t.engine, t.graph, {.passes = GraphPasses::none()});
  const auto expected = plain.run(feeds, *dxs);
  Session session(*t.engine, t.graph, {.passes = *GraphPasses::parse("sum_products")});
  const auto result = session.run(feeds, *dxs);
  REQUIRE((expected.ok() && result.ok()));
  for (size_t i = 0; i < 2; ++i) check_close((*expected)[i], (*result)[i]);
}

TEST_CASE("passes leave rows that are reduced and spread, and their gradients, as they are") {
  const std::vector<GraphPasses> each = {*GraphPasses::parse("fuse_elementwise"), GraphPasses(), GraphPasses::all()};
  for (uint32_t seed = 0; seed < repeats(60); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return random() % n; };
    const int64_t n = std::array<int64_t, 4>{64, 70, 128, 300}[pick(4)];
    const Shape all = pick(2) ? Shape{5, n} : Shape{2, 3, n};
    Shape rows = all;
    rows.set(all.rank() - 1, 1);
    std::vector<Feed> feeds;
    Outputs values, xs;
    for (const Shape& shape : {all, all, Shape{n}, rows}) {
      xs.push_back(t.scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(shape)}}));
      Tensor value = *Tensor::make(DType::kFloat32, shape);
      float* to = value.mutable_data<float>();
      for (int64_t i = 0; i < value.elements(); ++i) to[i] = static_cast<float>(pick(2001)) * 1e-3f - 1;
      feeds.push_back({xs.back(), value});
    }
    values = xs;
    const Output last = t.scope.constant(-1);
    const Output sizes = t.scope.constant(Tensor::of<int64_t>(all.dims()));
    const auto any = [&] { return values[values.size() - 1 - pick(std::min<size_t>(values.size(), 6))]; };
    for (size_t i = 0, count = 4 + pick(12); i < count; ++i) {
      const Output a = any(), b = any();
      switch (pick(6)) {
        case 0: values.push_back(t.scope.op(pick(2) ? "Tanh" : "Sigmoid", {a})); break;
        case 1: values.push_back(t.scope.op(pick(2) ? "Mean" : "Sum", {a, last}, {{"keep_dims", true}})); break;
        case 2: values.push_back(t.scope.op("BroadcastTo", {a, sizes})); break;
        case 3: values.push_back(t.scope.op("Mul", {a, b})); break;
        case 4: values.push_back(t.scope.op(pick(2) ? "AddV2" : "Sub", {a, b})); break;
        case 5: values.push_back(t.scope.op("Tanh", {t.scope.op("Mul", {a, t.scope.constant(0.1f)})})); break;
      }
      if (pick(4) == 0) values.push_back(t.scope.op("Tanh", {values.back()}));
    }
    Outputs fetches = {values.back(), values[values.size() - 2]};
    INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
    REQUIRE(t.scope.ok());
    const auto dxs = gradients(t.scope, {values.back()}, xs);
    INFO((dxs.ok() ? "" : dxs.error().str()));
    REQUIRE(dxs.ok());
    for (const Output& dx : *dxs)
      if (dx) fetches.push_back(dx);
    check_passes(t, each, feeds, fetches);
  }
}

TEST_CASE("passes leave batch norms in training, what is computed of them, and their gradients as they are") {
  const std::vector<GraphPasses> each = {*GraphPasses::parse("fuse_training"), GraphPasses(), GraphPasses::all()};
  for (uint32_t seed = 0; seed < repeats(60); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return random() % n; };
    const int64_t n = std::array<int64_t, 6>{1, 3, 16, 40, 96, 300}[pick(6)];
    const Shape images{static_cast<int64_t>(1 + pick(4)), 3, static_cast<int64_t>(1 + pick(9)), n};
    std::vector<Feed> feeds;
    Outputs xs, fetches;
    const auto placeholder = [&](const Shape& shape) {
      xs.push_back(t.scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(shape)}}));
      Tensor value = *Tensor::make(DType::kFloat32, shape);
      for (int64_t i = 0; i < value.elements(); ++i)
        value.mutable_data<float>()[i] = static_cast<float>(pick(2001)) * 1e-3f - 1;
      feeds.push_back({xs.back(), value});
      return xs.back();
    };
    Outputs values = {placeholder(images), placeholder(images)};
    const Output scale = placeholder({n}), offset = placeholder({n});
    const auto any = [&] { return values[values.size() - 1 - pick(std::min<size_t>(values.size(), 4))]; };
    const auto norm = [&](Output x) {
      const bool blends = pick(3) == 0;
      const Output none = t.scope.constant(Tensor::zeros(DType::kFloat32, Shape{blends ? n : 0}).value());
      const Node* made = t.scope.node("FusedBatchNormV3", {x, scale, offset, none, none},
                                      {{"epsilon", 0.1f}, {"exponential_avg_factor", blends ? 0.3f : 1.0f}});
      REQUIRE(made);
      for (int port = 1; port < 3; ++port)
        if (pick(2)) fetches.push_back({made, port});
      return made->out();
    };
    values.push_back(norm(values[0]));
    for (size_t i = 0, count = 3 + pick(9); i < count; ++i) {
      const Output a = any(), b = any();
      switch (pick(5)) {
        case 0: values.push_back(norm(t.scope.op("AddV2", {a, b}))); break;
        case 1: values.push_back(t.scope.op("Mul", {a, t.scope.op("Sigmoid", {a})})); break;
        case 2: values.push_back(t.scope.op(pick(2) ? "Relu" : "Softplus", {a})); break;
        case 3: values.push_back(t.scope.op(pick(2) ? "AddV2" : "Sub", {a, b})); break;
        case 4: values.push_back(t.scope.op("AddN", {a, b, any()})); break;
      }
    }
    INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
    REQUIRE(t.scope.ok());
    fetches.push_back(values.back());
    if (pick(3) == 0) fetches.push_back(values[2]);
    const auto dxs = gradients(t.scope, {t.scope.op("Square", {values.back()})}, xs);
    INFO((dxs.ok() ? "" : dxs.error().str()));
    REQUIRE(dxs.ok());
    for (const Output& dx : *dxs)
      if (dx) fetches.push_back(dx);
    check_passes(t, each, feeds, fetches);
  }
}
