// SPDX-License-Identifier: Apache-2.0
// A 1x1 convolution and the depthwise one behind it as one node, against the two; bad shapes.
#include "ops/nn/block_rows.h"
#include "tests/ops/fused/blocked_fixture.h"

using namespace troupe;
using troupe::testing::BlockedFixture;

namespace {

struct Pair {
  int64_t batch = 1, height = 7, width = 7, channels = 16, middle = 32;
  int64_t filter[2] = {3, 3}, strides[2] = {1, 1};
  std::string padding = "SAME";
  std::vector<int64_t> explicit_paddings = {};
  std::vector<std::string> first = {"BiasAdd", "Relu6"}, second = {"BiasAdd", "Swish"};
  bool constant = true;
  bool blocked = true;
};

/// The activation by ops of its own.
Output activated(BlockedFixture& f, Output x, const std::string& op) {
  return op == "Swish" ? f.s.op("Mul", {x, f.s.op("Sigmoid", {x})}) : f.s.op(op, {x});
}

/// The fused node, on images in blocks or not, and the nodes that it stands for, whose results are as plain images.
std::pair<Output, Output> both(BlockedFixture& f, const Pair& p) {
  const Output x = f.values({p.batch, p.height, p.width, p.channels});
  std::vector<Output> inputs = {p.blocked ? f.blocked(x) : x, f.values({1, 1, p.channels, p.middle}, p.constant),
                                f.values({p.filter[0], p.filter[1], p.middle, 1}, p.constant)};
  Attrs attrs{{"strides", std::vector<int64_t>{1, p.strides[0], p.strides[1], 1}},
              {"padding", p.padding},
              {"explicit_paddings", p.explicit_paddings}};
  Output plain = x;
  for (const bool depthwise : {false, true}) {
    const Attrs of_first{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("VALID")}};
    plain = depthwise ? f.s.op("DepthwiseConv2dNative", {plain, inputs[2]}, attrs)
                      : f.s.op("Conv2D", {plain, inputs[1]}, of_first);
    for (const std::string& op : depthwise ? p.second : p.first) {
      if (op == "BiasAdd") {
        inputs.push_back(f.values({p.middle}, p.constant));
        plain = f.s.op(op, {plain, inputs.back()});
      } else {
        plain = activated(f, plain, op);
      }
    }
  }
  attrs.set("blocked", p.blocked);
  attrs.set("channels", p.channels);
  attrs.set("middle", p.middle);
  attrs.set("num_args", static_cast<int64_t>(inputs.size()) - 3);
  attrs.set("pointwise_ops", p.first);
  attrs.set("depthwise_ops", p.second);
  return {f.s.op("_PointwiseDepthwise", inputs, attrs), plain};
}

void check_one(const Pair& p, int threads) {
  INFO(fmt::format("[{},{},{},{}]{} to {}, {}x{} by {},{} {}, {} | {}, {} threads", p.batch, p.height, p.width,
                   p.channels, p.blocked ? " in blocks" : "", p.middle, p.filter[0], p.filter[1], p.strides[0],
                   p.strides[1], p.padding, fmt::join(p.first, " "), fmt::join(p.second, " "), threads));
  BlockedFixture f(threads);
  const auto [fused, plain] = both(f, p);
  const Output images = p.blocked ? f.unblocked(fused, p.middle) : fused;
  for (int round = 0; round < 2; ++round) {
    const auto r = f.run({images, plain, fused, p.blocked ? f.blocked(images) : images});
    f.same(r[0], r[1]);
    CHECK(r[2].identical(r[3]));  // 0 beyond the channels
    CHECK(fused.shape().str() == r[2].shape().str());
  }
}

/// In blocks and not.
void check(Pair p, int threads = 1) {
  for (const bool blocked : {true, false}) {
    p.blocked = blocked;
    check_one(p, threads);
  }
}

}  // namespace

TEST_CASE("a 1x1 convolution and a depthwise one in one node give what the two give, whatever the sizes") {
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {2, 1}, {1, 30}, {7, 7}, {14, 14}, {15, 13}, {40, 3}, {5, 61}, {56, 56}})
    for (const int64_t size : {1, 3, 5, 7})
      for (const int64_t stride : {1, 2})
        check({.height = height, .width = width, .filter = {size, size}, .strides = {stride, stride}});
}

TEST_CASE("pairs of any numbers of channels and images, on several threads") {
  for (const int64_t channels : {1, 15, 16, 24, 40})
    for (const int64_t middle : {3, 16, 24, 96})
      for (const int64_t batch : {0, 1, 3})
        for (const int threads : {1, 2, 5})
          check({.batch = batch, .height = 9, .width = 10, .channels = channels, .middle = middle}, threads);
}

TEST_CASE("rows that do not fit the cache are made in bands, each with the rows that its windows cover") {
  // 800 KiB and 2.4 MiB of images come in.
  check({.height = 112, .width = 112, .channels = 16, .middle = 16, .filter = {5, 5}}, 1);
  check({.height = 112, .width = 112, .channels = 16, .middle = 48, .filter = {3, 3}, .strides = {2, 2}}, 3);
  check({.batch = 2, .height = 50, .width = 190, .channels = 64, .middle = 32, .filter = {3, 3}}, 2);
}

TEST_CASE("windows of any form: not square, valid, padded by hand, with wide strides") {
  check({.height = 12, .width = 11, .filter = {1, 5}});
  check({.height = 12, .width = 11, .filter = {5, 1}, .padding = "VALID"});
  check({.height = 12, .width = 11, .filter = {3, 3}, .strides = {2, 2}, .padding = "VALID"});
  check({.height = 12, .width = 12, .filter = {1, 1}, .strides = {2, 2}, .padding = "VALID"});
  check({.height = 12, .width = 12, .filter = {3, 3}, .strides = {3, 3}});  // by the kernels of the two
  for (const auto& pads :
       std::vector<std::vector<int64_t>>{{0, 0, 0, 1, 2, 0, 0, 0}, {0, 0, 4, 4, 0, 5, 0, 0}, {0, 0, 9, 0, 9, 0, 0, 0}})
    for (const int64_t stride : {1, 2})
      check({.height = 6,
             .width = 8,
             .filter = {3, 3},
             .strides = {stride, stride},
             .padding = "EXPLICIT",
             .explicit_paddings = pads});
}

TEST_CASE("each of a pair has a bias and an activation or not, constant or not") {
  const std::vector<std::vector<std::string>> ops = {
      {}, {"BiasAdd"}, {"Relu"}, {"BiasAdd", "Relu"}, {"BiasAdd", "Relu6"}, {"BiasAdd", "Swish"}, {"BiasAdd", "Tanh"}};
  for (const auto& first : ops)
    for (const auto& second : ops)
      for (const bool constant : {true, false})
        check({.channels = 24, .middle = 20, .first = first, .second = second, .constant = constant});
}

TEST_CASE("a filter that is fed in place of a constant is taken, and the constant again after it") {
  BlockedFixture f;
  const auto [fused, plain] = both(f, {});
  const Output filter = fused.node->inputs()[2];
  const auto run = [&](bool fed) {
    auto feeds = f.feeds;
    if (fed) feeds.emplace_back(filter, *Tensor::zeros(DType::kFloat32, {3, 3, 32, 1}));
    auto r = f.evaluator.run({f.unblocked(fused, 32), plain}, feeds);
    REQUIRE(r.ok());
    f.same((*r)[0], (*r)[1]);
    return (*r)[0];
  };
  const Tensor before = run(false), other = run(true);
  CHECK_FALSE(before.identical(other));
  CHECK(run(false).identical(before));
}

TEST_CASE("what is not finite comes out as the functions have it") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool blocked : {true, false}) {
    if (!BlockRows::available(blocked)) continue;
    for (const std::string name : {"", "Relu", "Relu6", "Swish"}) {
      INFO(name << (blocked ? " in blocks" : ""));
      const BlockRows rows(*BlockActivation::of(name), blocked);
      const std::vector<float> x = {nan, inf, -inf, 0, 1, -1, 200, -200, 88, -88, 1e-30f, 3e38f, -3e38f, 7, -7, 20};
      // Of one channel whose weights are 1 the result is the function of it.
      const std::vector<float> ones(16, 1), zeros(16, 0);
      for (const float v : x) {
        std::vector<float> image(16, v), made(16);
        float* to[] = {made.data()};
        rows.pointwise(1, image.data(), 16, 16, 1, ones.data(), zeros.data(), to);
        const double d = v;
        const double wanted = name.empty()      ? d
                              : name == "Relu"  ? (d < 0 ? 0 : d)
                              : name == "Relu6" ? (d < 0   ? 0
                                                   : d > 6 ? 6
                                                           : d)
                                                : d / (1 + std::exp(-d));
        INFO(v << ": " << made[3] << ", not " << wanted);
        if (std::isnan(v)) CHECK(std::isnan(made[3]));
        else if (v == -inf && name == "Swish") CHECK(std::abs(made[3]) < 1e-30f);
        else if (std::isinf(wanted)) CHECK(made[3] == static_cast<float>(wanted));
        else CHECK(std::abs(made[3] - wanted) <= 1e-6 * std::max(1.0, std::abs(wanted)));
      }
    }
  }
}

TEST_CASE("Swish is within 1e-6 over all that it does not cut off") {
  for (const bool blocked : {true, false}) {
    if (!BlockRows::available(blocked)) continue;
    const BlockRows rows(*BlockActivation::of("Swish"), blocked);
    const std::vector<float> ones(16, 1), zeros(16, 0);
    double worst = 0;
    for (float v = -90; v < 90; v += 0.013f) {
      std::vector<float> image(16, v), made(16);
      float* to[] = {made.data()};
      rows.pointwise(1, image.data(), 16, 16, 1, ones.data(), zeros.data(), to);
      const double wanted = static_cast<double>(v) / (1 + std::exp(-static_cast<double>(v)));
      worst = std::max(worst, std::abs(made[15] - wanted) / std::max(1.0, std::abs(wanted)));
    }
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("a pair that does not fit its filters or biases is an error with the shapes") {
  BlockedFixture f;
  const auto hidden = [&](const Shape& shape) {
    const Output fed = f.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
    f.feeds.emplace_back(fed, BlockedFixture::numbers(shape));
    return fed;
  };
  const auto fault = [&](const Shape& x, const Shape& first, const Shape& second, const Shape& bias) {
    const Output y = f.s.op("_PointwiseDepthwise", {hidden(x), hidden(first), hidden(second), hidden(bias)},
                            {{"strides", std::vector<int64_t>{1, 1, 1, 1}},
                             {"padding", std::string("SAME")},
                             {"blocked", x.rank() == 5},
                             {"channels", int64_t{16}},
                             {"middle", int64_t{32}},
                             {"num_args", int64_t{1}},
                             {"pointwise_ops", std::vector<std::string>()},
                             {"depthwise_ops", std::vector<std::string>{"BiasAdd"}}});
    REQUIRE(f.s.ok());
    auto r = f.evaluator.run({y}, f.feeds);
    return r.ok() ? "" : r.error().message;
  };
  const Shape x{1, 1, 3, 3, 16}, first{1, 1, 16, 32}, second{3, 3, 32, 1}, bias{32};
  CHECK(fault(x, first, second, bias) == "");
  CHECK(fault({1, 2, 3, 3, 16}, first, second, bias) == "[1,2,3,3,16] are not 16 channels in blocks of 16");
  CHECK(fault(x, {1, 1, 8, 32}, second, bias) == "pointwise filter [1,1,8,32] is not [1,1,16,32]");
  CHECK(fault(x, first, {3, 3, 16, 1}, bias).find("[3,3,16,1]") != std::string::npos);
  CHECK(fault(x, first, second, {16}) == "bias [16] for 32 channels");
  const Shape plain{1, 3, 3, 16};
  CHECK(fault(plain, first, second, bias) == "");
  CHECK(fault({1, 3, 3, 8}, first, second, bias).find("[1,1,16,32]") != std::string::npos);
  CHECK(fault(plain, {1, 1, 8, 32}, second, bias).find("[1,1,8,32]") != std::string::npos);
  CHECK(fault(plain, first, second, {16}) == "bias [16] for 32 channels");
}
