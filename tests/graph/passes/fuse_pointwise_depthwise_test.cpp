// SPDX-License-Identifier: Apache-2.0
// Which 1x1 convolutions become one node with the depthwise one behind them, and which stay.
#include "graph/passes/fuse_pointwise_depthwise.h"

#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

using FusedOps = std::vector<std::string>;

struct PairFixture : test::PassFixture {
  Output x = placeholder("x", {-1, 2, 14, 14, 16});

  Output constant(const Shape& shape) { return s.constant(*Tensor::zeros(DType::kFloat32, shape)); }
  /// A _BlockedConv2D with zeros for filter and arguments.
  Output conv(Output image, bool depthwise, const Shape& filter, FusedOps ops = {"BiasAdd", "Relu6"},
              std::vector<int64_t> strides = {1, 1, 1, 1}, Attrs more = {}) {
    std::vector<Output> inputs = {image, constant(filter)};
    const int64_t out = depthwise ? filter[2] : filter[3];
    for (const std::string& op : ops) {
      if (op == "BiasAdd") inputs.push_back(constant({out}));
      if (op == "Add") inputs.push_back(image);
    }
    Attrs attrs{{"depthwise", depthwise},
                {"channels", filter[2]},
                {"num_args", static_cast<int64_t>(inputs.size()) - 2},
                {"fused_ops", std::move(ops)},
                {"strides", std::move(strides)},
                {"padding", std::string("SAME")}};
    for (const auto& [name, value] : more) attrs.set(name, value);
    return s.op("_BlockedConv2D", inputs, attrs);
  }
  std::string fused(Output fetch, std::vector<Output> fed = {}) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, fed, {&fetch, 1}, {});
    PointwiseDepthwiseFusion pass(step, PointwiseDepthwiseFusion::Images::kBlocked);
    step.sweep([&](const Node& node) { pass.visit(node); });
    step.drop_unneeded();
    std::string out = text(step, fetch);
    out.erase(out.find_first_of(","));
    return out;
  }
};

}  // namespace

TEST_CASE("a depthwise convolution takes the 1x1 convolution before it along, with biases and activations") {
  PairFixture f;
  const Output middle = f.conv(f.x, false, {1, 1, 32, 96}, {"BiasAdd", "Swish"});
  const Output y = f.conv(middle, true, {5, 5, 96, 1}, {"Relu"}, {1, 2, 2, 1});
  StepGraph step(f.graph, {}, {&y, 1}, {});
  PointwiseDepthwiseFusion pass(step, PointwiseDepthwiseFusion::Images::kBlocked);
  step.sweep([&](const Node& node) { pass.visit(node); });
  const Node& made = *step.now(y).node;
  CHECK(made.op().name() == "_PointwiseDepthwise");
  CHECK(made.name() == y.node->name());
  REQUIRE(made.inputs().size() == 4);
  CHECK(made.inputs()[0] == f.x);
  CHECK(made.inputs()[1] == middle.node->inputs()[1]);
  CHECK(made.inputs()[2] == y.node->inputs()[1]);
  CHECK(made.inputs()[3] == middle.node->inputs()[2]);
  CHECK(made.attrs().at<FusedOps>("pointwise_ops") == FusedOps{"BiasAdd", "Swish"});
  CHECK(made.attrs().at<FusedOps>("depthwise_ops") == FusedOps{"Relu"});
  CHECK(made.attrs().at<int64_t>("middle") == 96);
  CHECK(made.attrs().at<std::vector<int64_t>>("strides") == std::vector<int64_t>{1, 2, 2, 1});
  CHECK(step.shape(step.now(y)).str() == y.shape().str());
}

TEST_CASE("pairs that another node sees into, or that the kernel does not know, stay two nodes") {
  PairFixture f;
  const Shape one{1, 1, 32, 96}, deep{3, 3, 96, 1};
  const auto stays = [&](Output fetch, std::vector<Output> fed = {}) {
    return f.fused(fetch, std::move(fed)).find("PointwiseDepthwise") == std::string::npos;
  };
  REQUIRE_FALSE(stays(f.conv(f.conv(f.x, false, one), true, deep)));
  const Output read = f.conv(f.x, false, one), twice = f.conv(read, true, deep);
  CHECK(stays(f.s.op("AddV2", {twice, read})));
  CHECK(stays(f.conv(read, true, deep), {read}));
  CHECK(stays(f.conv(f.conv(f.x, false, {3, 3, 32, 96}), true, deep)));
  CHECK(stays(f.conv(f.conv(f.x, false, one, {}, {1, 2, 2, 1}), true, deep)));
  CHECK(stays(f.conv(f.conv(f.x, false, {1, 1, 32, 32}, {"Add"}), true, {3, 3, 32, 1})));
  CHECK(stays(f.conv(f.conv(f.x, false, one, {"BiasAdd", "Tanh"}), true, deep)));
  CHECK(stays(f.conv(f.conv(f.x, false, one), true, deep, {"BiasAdd", "Elu"})));
  CHECK(stays(f.conv(f.conv(f.x, false, one), true, deep, {}, {1, 3, 3, 1})));
  CHECK(stays(f.conv(f.conv(f.x, false, one), true, deep, {}, {1, 1, 1, 1},
                     {{"dilations", std::vector<int64_t>{1, 2, 2, 1}}})));
  CHECK(stays(f.conv(f.conv(f.x, false, one), false, {3, 3, 96, 16})));
  const Output plain = f.placeholder("plain", {-1, 14, 14, 3});
  CHECK(stays(f.conv(f.conv(plain, false, {1, 1, 3, 96}, {}, {1, 1, 1, 1}, {{"blocked", false}}), true, deep)));
}

namespace {

struct PlainPairFixture : test::PassFixture {
  Output constant(const Shape& shape) { return s.constant(*Tensor::zeros(DType::kFloat32, shape)); }
  /// A convolution as the fusing of epilogues leaves it.
  Output conv(Output image, bool depthwise, Output filter, FusedOps ops, Attrs more = {}) {
    std::vector<Output> inputs = {image, filter};
    const PartialShape sizes = filter.shape();
    for (const std::string& op : ops)
      if (op == "BiasAdd") inputs.push_back(constant({depthwise ? sizes[2] : sizes[3]}));
    Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}};
    if (!ops.empty()) {
      attrs.set("num_args", static_cast<int64_t>(inputs.size()) - 2);
      attrs.set("fused_ops", ops);
    }
    for (const auto& [name, value] : more) attrs.set(name, value);
    const std::string plain = depthwise ? "DepthwiseConv2dNative" : "Conv2D";
    return s.op(ops.empty() ? plain : "_Fused" + plain, inputs, attrs);
  }
  /// The op that stands for `fetch`, with "(plain)" where its images are.
  std::string made(Output fetch, const PassDevices& devices = {}) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, {}, {&fetch, 1}, {});
    PointwiseDepthwiseFusion pass(step, PointwiseDepthwiseFusion::Images::kPlain, devices);
    step.sweep([&](const Node& node) { pass.visit(node); });
    const Node& node = *step.now(fetch).node;
    if (node.op().name() == "_PointwiseDepthwise") {
      CHECK_FALSE(node.attrs().at<bool>("blocked"));
      CHECK(step.shape(node.out()).str() == fetch.shape().str());
    }
    return node.op().name();
  }
};

}  // namespace

TEST_CASE("pairs of plain images become one node where there is a Swish or much between them") {
  PlainPairFixture f;
  const FusedOps swish = {"BiasAdd", "Swish"}, relu = {"BiasAdd", "Relu"};
  const auto pair = [&](Output x, const FusedOps& first, const FusedOps& second) {
    return f.conv(f.conv(x, false, f.constant({1, 1, 24, 96}), first), true, f.constant({3, 3, 96, 1}), second);
  };
  const Output small = f.placeholder("small", {1, 14, 14, 24}), any = f.placeholder("any", {-1, 14, 14, 24});
  const Output large = f.placeholder("large", {64, 28, 28, 24}), sizes = f.placeholder("sizes", {-1, -1, -1, 24});
  for (const Output x : {small, any, large, sizes}) {
    CHECK(f.made(pair(x, swish, relu)) == "_PointwiseDepthwise");
    CHECK(f.made(pair(x, {}, swish)) == "_PointwiseDepthwise");
  }
  CHECK(f.made(pair(large, relu, relu)) == "_PointwiseDepthwise");
  CHECK(f.made(pair(large, {}, {})) == "_PointwiseDepthwise");
  CHECK(f.made(pair(small, relu, relu)) == "_FusedDepthwiseConv2dNative");
  CHECK(f.made(pair(any, relu, relu)) == "_FusedDepthwiseConv2dNative");
  CHECK(f.made(pair(sizes, {}, {})) == "DepthwiseConv2dNative");
}

TEST_CASE("pairs of plain images stay two nodes where the loops do not know them") {
  PlainPairFixture f;
  const FusedOps swish = {"BiasAdd", "Swish"};
  const Output x = f.placeholder("x", {1, 14, 14, 24});
  const Output one = f.constant({1, 1, 24, 96}), deep = f.constant({3, 3, 96, 1});
  const auto stays = [&](Output fetch, const PassDevices& devices = {}) {
    return f.made(fetch, devices) == "_FusedDepthwiseConv2dNative";
  };
  const auto pair = [&](Output image, Output first, Output second, const Attrs& more = {}) {
    return f.conv(f.conv(image, false, first, swish, more), true, second, swish, more);
  };
  REQUIRE_FALSE(stays(pair(x, one, deep)));
  CHECK(stays(pair(x, one, deep), {.on_gpu = [](const Node&) { return true; }}));
  CHECK(stays(pair(x, f.placeholder("fed", {1, 1, 24, 96}), deep)));
  CHECK(stays(pair(x, one, f.placeholder("fed_too", {3, 3, 96, 1}))));
  CHECK(stays(pair(x, f.constant({1, 1, 24, 40}), f.constant({3, 3, 40, 1}))));  // not in sixteens
  CHECK(stays(pair(x, one, f.constant({3, 3, 96, 2}))));
  CHECK(stays(pair(f.placeholder("groups", {1, 14, 14, 48}), one, deep)));
  CHECK(stays(pair(f.placeholder("first", {1, 24, 14, 14}), one, deep, {{"data_format", std::string("NCHW")}})));
  CHECK(stays(f.conv(f.conv(x, false, one, {"BiasAdd", "Elu"}), true, deep, swish)));
}
