// SPDX-License-Identifier: Apache-2.0
// The choice of a layout: what runs on NHWC images, where transpositions are left, and what is left alone.
#include "graph/passes/choose_layout.h"

#include "graph/frames.h"
#include "tests/graph/passes/pass_fixture.h"
#include "troupe/control_flow.h"

using namespace troupe;

namespace {

struct LayoutFixture : test::PassFixture {
  const GraphPasses layout = only(&GraphPasses::choose_layout);
  const Output x = placeholder("x", {-1, 16, 8, 8}), w = placeholder("w", {3, 3, 16, 16}), b = placeholder("b", {16});

  static Attrs format() { return {{"data_format", std::string("NCHW")}}; }
  static Attrs windows(std::vector<int64_t> strides, std::string padding = "SAME") {
    return {{"strides", std::move(strides)}, {"padding", std::move(padding)}, {"data_format", std::string("NCHW")}};
  }
  static Attrs pools() {
    Attrs attrs = windows({1, 1, 2, 3});
    attrs.set("ksize", std::vector<int64_t>{1, 1, 2, 3});
    return attrs;
  }
  Output conv(Output in, Output filter) { return s.op("Conv2D", {in, filter}, windows({1, 1, 1, 1})); }
  Output pool(Output in, const char* op = "MaxPool") { return s.op(op, {in}, pools()); }
  Output ints(std::initializer_list<int32_t> values) { return s.constant(Tensor::of<int32_t>(values)); }
  Output transposed(Output in, std::initializer_list<int32_t> order) { return s.op("Transpose", {in, ints(order)}); }

  std::string chosen(Output fetch, Outputs fed = {}) {
    return after(layout, fetch, std::move(fed), [](auto&&...) { return std::nullopt; });
  }
  /// The nodes that are left, by op.
  std::map<std::string, int> left(const Outputs& fetches, std::vector<const Node*> targets = {}) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, {}, fetches, targets);
    run_passes(step, layout, {});
    REQUIRE(find_frames(step).ok());
    std::map<std::string, int> ops_left;
    for (const Node* n : step.nodes()) {
      ++ops_left[n->op().name()];
      if (n->attrs().get_or<std::string>("data_format", "") == "NCHW") ++ops_left["NCHW"];
    }
    return ops_left;
  }
};

const std::string kLast = "int32[4] [0, 2, 3, 1]", kFirst = "int32[4] [0, 3, 1, 2]";

}  // namespace

TEST_CASE("a chain on NCHW images becomes one on NHWC images between two transpositions") {
  LayoutFixture f;
  const Output h = f.s.op("Relu", {f.s.op("BiasAdd", {f.conv(f.x, f.w), f.b}, LayoutFixture::format())});
  const Output y = f.pool(h);
  CHECK(f.chosen(y) == "Transpose(MaxPool(Relu(BiasAdd(Conv2D(Transpose(x, " + kLast + "), w), b))), " + kFirst + ")");
  StepGraph step(f.graph, {}, {&y, 1}, {});
  run_passes(step, f.layout, {});
  const Node& pool = *step.now(y).node->inputs()[0].node;
  CHECK(*pool.attrs().get<std::vector<int64_t>>("ksize") == std::vector<int64_t>{1, 2, 3, 1});
  CHECK(*pool.attrs().get<std::vector<int64_t>>("strides") == std::vector<int64_t>{1, 2, 3, 1});
  CHECK(*pool.attrs().get<std::string>("data_format") == "NHWC");
  CHECK(pool.name() == y.node->name());
  CHECK(step.shape(y) == y.shape());
}

TEST_CASE("where the channels are one, or the places, a reshape is enough") {
  LayoutFixture f;
  const Output one = f.placeholder("one", {-1, 1, 8, 8}), w = f.placeholder("v", {3, 3, 1, 4});
  Attrs whole = LayoutFixture::windows({1, 1, 1, 1}, "VALID");
  whole.set("ksize", std::vector<int64_t>{1, 1, 8, 4});
  const Output y = f.s.op("MaxPool", {f.s.op("Conv2D", {one, w}, LayoutFixture::windows({1, 1, 1, 2}))}, whole);
  REQUIRE(y.shape() == PartialShape{-1, 4, 1, 1});
  CHECK(f.chosen(y) == "Reshape(MaxPool(Conv2D(Reshape(one, int32[4] [-1, 8, 8, 1]), v)), int32[4] [-1, 4, 1, 1])");
  CHECK(f.chosen(f.s.op("Reshape", {y, f.ints({-1, 4})})) ==
        "Reshape(MaxPool(Conv2D(Reshape(one, int32[4] [-1, 8, 8, 1]), v)), int32[2] [-1, 4])");
  CHECK(f.chosen(f.s.op("Squeeze", {y}, {{"squeeze_dims", std::vector<int64_t>{-1, 2}}})) ==
        "Squeeze(MaxPool(Conv2D(Reshape(one, int32[4] [-1, 8, 8, 1]), v)))");
}

TEST_CASE("axes, paddings, sizes and constants follow the images") {
  LayoutFixture f;
  const Output p = f.pool(f.x);
  const std::string head = "MaxPool(Transpose(x, " + kLast + "))";
  const auto back = [&](const std::string& text) { return "Transpose(" + text + ", " + kFirst + ")"; };
  CHECK(f.chosen(f.s.op("Mean", {p, f.ints({2, -1})})) == "Mean(" + head + ", int32[2] [1, 2])");
  CHECK(f.chosen(f.s.op("Mean", {p, f.ints({1})})) == "Mean(" + head + ", int32[1] [3])");
  CHECK(f.chosen(f.s.op("Mean", {p, f.ints({2})})) == "Mean(" + back(head) + ", int32[1] [2])");
  CHECK(f.chosen(f.s.op("Max", {p, f.ints({2})}, {{"keep_dims", true}})) == back("Max(" + head + ", int32[1] [1])"));
  CHECK(f.chosen(f.s.op("ArgMax", {p, f.s.constant(1)})) == "ArgMax(" + head + ", int32[] 3)");
  const auto mean = [&](Output image) { return f.s.op("Mean", {image, f.ints({2, 3})}); };
  CHECK(f.chosen(mean(f.s.op("ConcatV2", {p, p, f.s.constant(-3)}))) ==
        "Mean(ConcatV2(" + head + ", " + head + ", int32[] 3), int32[2] [1, 2])");
  CHECK(f.chosen(mean(f.s.op("Pad", {p, f.s.constant(Tensor::of<int32_t>({0, 0, 1, 2, 3, 4, 5, 6}, {4, 2}))}))) ==
        "Mean(Pad(" + head + ", int32[4,2] [[0, 0], [3, 4], ...]), int32[2] [1, 2])");
  CHECK(f.chosen(f.s.op("Slice", {p, f.ints({0, 1, 2, 0}), f.ints({-1, 2, 1, 3})})) ==
        back("Slice(" + head + ", int32[4] [0, 2, 0, 1], int32[4] [-1, 1, 3, 2])"));
  CHECK(f.chosen(f.s.op("Mul", {f.s.constant(2.f), p})) == back("Mul(float32[] 2, " + head + ")"));
  const Output places = f.s.constant(Tensor::of<float>({1, 2, 3}));
  CHECK(f.chosen(f.s.op("Mul", {places, p})) == back("Mul(float32[1,1,3,1] [[[[1], [2], [3]]]], " + head + ")"));
  const Output scale = f.placeholder("scale", {16, 1, 1});
  CHECK(f.chosen(f.s.op("Mul", {p, scale})) ==
        back("Mul(" + head + ", Reshape(Reshape(scale, int32[4] [1, 16, 1, 1]), int32[4] [1, 1, 1, 16]))"));
  CHECK(f.chosen(f.s.op("Shape", {p})) == "GatherV2(Shape(" + head + "), " + kFirst + ", int32[] 0)");
  CHECK(f.chosen(f.s.node("Split", {f.s.constant(1), p}, {{"num_split", int64_t{2}}})->out(1)) ==
        back("Split(int32[] 3, " + head + "):1"));
}

TEST_CASE("gradients of windows take the sizes of images in the new order") {
  LayoutFixture f;
  const Output g = f.placeholder("g", {-1, 16, 4, 3}), sizes = f.s.op("Shape", {f.x});
  CHECK(f.chosen(f.s.op("AvgPoolGrad", {sizes, f.s.op("Relu", {g})}, LayoutFixture::pools())) ==
        "Transpose(AvgPoolGrad(GatherV2(Shape(x), " + kLast + ", int32[] 0), Transpose(Relu(g), " + kLast + ")), " +
            kFirst + ")");
  CHECK(f.chosen(f.s.op("AvgPoolGrad", {f.ints({2, 16, 8, 9}), g}, LayoutFixture::pools())) ==
        "Transpose(AvgPoolGrad(int32[4] [2, 8, 9, 16], Transpose(g, " + kLast + ")), " + kFirst + ")");
  // The sizes of what was changed are there in the order that is wanted.
  const Output inner = f.pool(f.x);
  const Output dy = f.placeholder("dy", {-1, 16, 2, 1});
  const std::string head = "MaxPool(Transpose(x, " + kLast + "))";
  CHECK(
      f.chosen(f.s.op("Mul", {inner, f.s.op("AvgPoolGrad", {f.s.op("Shape", {inner}), dy}, LayoutFixture::pools())})) ==
      "Transpose(Mul(" + head + ", AvgPoolGrad(Shape(" + head + "), Transpose(dy, " + kLast + "))), " + kFirst + ")");
}

TEST_CASE("windows that are inputs are changed") {
  LayoutFixture f;
  const Output y = f.s.op("MaxPoolV2", {f.pool(f.x), f.ints({1, 1, 2, 3}), f.ints({1, 1, 3, 4})},
                          {{"padding", std::string("SAME")}, {"data_format", std::string("NCHW")}});
  CHECK(f.chosen(y) == "Transpose(MaxPoolV2(MaxPool(Transpose(x, " + kLast +
                           ")), int32[4] [1, 2, 3, 1], int32[4] [1, 3, 4, 1]), " + kFirst + ")");
}

TEST_CASE("explicit paddings are changed") {
  LayoutFixture f;
  Attrs attrs = LayoutFixture::windows({1, 1, 1, 1}, "EXPLICIT");
  attrs.set("explicit_paddings", std::vector<int64_t>{0, 0, 0, 0, 1, 2, 3, 4});
  const Output y = f.pool(f.s.op("Conv2D", {f.x, f.w}, attrs));
  StepGraph step(f.graph, {}, {&y, 1}, {});
  run_passes(step, f.layout, {});
  const Node& conv = *step.now(y).node->inputs()[0].node->inputs()[0].node;
  CHECK(*conv.attrs().get<std::vector<int64_t>>("explicit_paddings") == std::vector<int64_t>{0, 0, 1, 2, 3, 4, 0, 0});
}

TEST_CASE("transpositions of the graph itself cancel") {
  LayoutFixture f;
  const Output last = f.placeholder("last", {-1, 8, 8, 16});
  const Output y = f.transposed(f.pool(f.conv(f.transposed(last, {0, 3, 1, 2}), f.w)), {0, 2, 3, 1});
  CHECK(f.chosen(y) == "MaxPool(Conv2D(last, w))");
}

TEST_CASE("a residual sum and a batch norm change with their convolutions") {
  LayoutFixture f;
  const Output h = f.pool(f.x);
  const Node* norm = f.s.node("FusedBatchNormV3", {f.conv(h, f.w), f.b, f.b, f.b, f.b},
                              {{"is_training", true}, {"data_format", std::string("NCHW")}});
  const Output same = f.s.op("MaxPool", {h}, [] {
    Attrs attrs = LayoutFixture::windows({1, 1, 1, 1});
    attrs.set("ksize", std::vector<int64_t>{1, 1, 1, 1});
    return attrs;
  }());
  const Output y = f.s.op("Relu", {f.s.op("AddV2", {norm->out(), same})});
  const auto left = f.left({y, norm->out(1)});
  CHECK(left.at("Transpose") == 2);
  CHECK_FALSE(left.contains("NCHW"));
}

TEST_CASE("what gains less than its transpositions cost stays") {
  LayoutFixture f;
  const Output alone = f.conv(f.x, f.w);
  CHECK(f.chosen(alone) == "Conv2D(x, w)");
  CHECK(f.chosen(f.s.op("BiasAdd", {f.x, f.b}, LayoutFixture::format())) == "BiasAdd(x, b)");
  CHECK(f.chosen(f.s.op("Relu", {f.x})) == "Relu(x)");
  // A pool that makes the image smaller pays.
  CHECK(f.left({f.pool(f.x)}).at("Transpose") == 2);
}

TEST_CASE("images of unknown rank, NHWC ones and what is fed stay") {
  LayoutFixture f;
  const Output unknown = f.placeholder("unknown", PartialShape()), last = f.placeholder("last", {2, 8, 8, 16});
  CHECK(f.chosen(f.pool(unknown)) == "MaxPool(unknown)");
  Attrs attrs{{"ksize", std::vector<int64_t>{1, 2, 2, 1}}, {"strides", std::vector<int64_t>{1, 2, 2, 1}}};
  attrs.set("padding", std::string("VALID"));
  CHECK(f.chosen(f.s.op("MaxPool", {last}, attrs)) == "MaxPool(last)");
  const Output h = f.s.named("h").op("Relu", {f.pool(f.x)});
  CHECK(f.chosen(f.s.op("Neg", {h}), {h}) == "Neg(h)");
  CHECK(f.chosen(f.pool(h), {h}) == "Transpose(MaxPool(Transpose(h, " + kLast + ")), " + kFirst + ")");
  const Output axes = f.ints({2, 3}), mean = f.s.op("Mean", {f.pool(f.x), axes});
  CHECK(f.chosen(mean, {axes}) == "Mean(MaxPool(x), " + axes.node->name() + ")");
}

TEST_CASE("control inputs stay with the node, and who waits for one waits for what stands for it") {
  LayoutFixture f;
  const Output first = f.pool(f.x), late = f.s.after({f.b}).op("Relu", {first});
  const Output y = f.s.after({first}).op("Neg", {f.b});
  const Outputs wanted = {late, y};
  StepGraph step(f.graph, {}, wanted, {});
  run_passes(step, f.layout, {});
  const Node& relu = *step.now(late).node->inputs()[0].node;
  REQUIRE(relu.op().name() == "Relu");
  REQUIRE(relu.control_inputs().size() == 1);
  CHECK(relu.control_inputs()[0] == f.b.node);
  int waits = 0;
  step.for_each_control(*y.node, [&](Output before) { waits += before.node == step.now(first).node; });
  CHECK(waits == 1);
}

TEST_CASE("images pass through the sides of a branch in the new layout; loops are left alone") {
  LayoutFixture f;
  const Output p = f.placeholder("p", {}, DType::kBool), h = f.pool(f.x);
  const Output y = cond(
      f.s, p, [&](const Scope& s) { return Outputs{s.op("Relu", {h})}; },
      [&](const Scope& s) { return Outputs{s.op("Neg", {h})}; })[0];
  const auto left = f.left({f.pool(y)});
  CHECK(left.at("Transpose") == 2);
  CHECK(left.at("Merge") == 1);
  CHECK_FALSE(left.contains("NCHW"));
  const Output looped = while_loop(
      f.s, {f.s.constant(0), f.x},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], s.constant(3)});
      },
      [&](const Scope& s, const Outputs& v) {
        Attrs attrs = LayoutFixture::windows({1, 1, 1, 1});
        attrs.set("ksize", std::vector<int64_t>{1, 1, 2, 2});
        return Outputs{s.op("AddV2", {v[0], s.constant(1)}), s.op("MaxPool", {v[1]}, attrs)};
      })[1];
  const auto of_loop = f.left({f.pool(looped)});
  CHECK(of_loop.at("MaxPool") == 2);
  CHECK(of_loop.at("NCHW") == 1);
  CHECK(of_loop.at("Transpose") == 2);
}
