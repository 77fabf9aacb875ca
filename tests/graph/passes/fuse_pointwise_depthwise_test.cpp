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
    PointwiseDepthwiseFusion pass(step);
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
  PointwiseDepthwiseFusion pass(step);
  step.sweep([&](const Node& node) { pass.visit(node); });
  const Node& made = *step.now(y).node;
  CHECK(made.op().name() == "_BlockedPointwiseDepthwise");
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
