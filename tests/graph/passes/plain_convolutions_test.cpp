// SPDX-License-Identifier: Apache-2.0
// Paddings, dilations and single dimensions that convolutions take: what is rewritten, and what is not.
#include "graph/passes/plain_convolutions.h"

#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

using Ints = std::vector<int64_t>;

struct ConvolutionFixture : test::PassFixture {
  std::string plain(Output fetch, std::vector<Output> fed = {}) {
    return after(only(&GraphPasses::plain_convolutions), fetch, std::move(fed), [](auto&&...) { return std::nullopt; });
  }
  Output conv(Output x, Output filter, const std::string& padding = "VALID", int64_t stride = 1,
              const std::string& op = "Conv2D") {
    return s.op(op, {x, filter}, {{"strides", Ints{1, stride, stride, 1}}, {"padding", padding}});
  }
  Output ints(std::initializer_list<int32_t> v) { return s.constant(Tensor::of<int32_t>(v)); }
  /// Pairs of numbers.
  Output pairs(std::initializer_list<int32_t> v) {
    return s.constant(Tensor::of<int32_t>(v, {static_cast<int64_t>(v.size()) / 2, 2}));
  }
  Output filter(Shape shape) { return s.constant(*Tensor::zeros(DType::kFloat32, shape)); }
  Output expanded(Output x) { return s.op("ExpandDims", {x, s.constant(Tensor::scalar<int32_t>(1))}); }
  Output squeezed(Output x, Ints axes = {1}) { return s.op("Squeeze", {x}, {{"squeeze_dims", std::move(axes)}}); }
  Output dilated(Output x, int32_t by, int32_t lo, int32_t hi, int32_t first, int32_t last) {
    const Output forth = s.op("SpaceToBatchND", {x, ints({by}), pairs({lo, hi})});
    const Output y = squeezed(conv(expanded(forth), filter({1, 3, 2, 4})));
    return s.op("BatchToSpaceND", {y, ints({by}), pairs({first, last})});
  }
  /// The attributes of the first convolution at or before what stands for `fetch`.
  Attrs made(Output fetch) {
    StepGraph step(graph, {}, {&fetch, 1}, {});
    run_passes(step, only(&GraphPasses::plain_convolutions), {});
    Output at = step.now(fetch);
    while (at.node->op().name().find("Conv") == std::string::npos) at = step.now(at.node->inputs()[0]);
    return at.node->attrs();
  }
};

}  // namespace

TEST_CASE("a convolution takes zeros around its images") {
  ConvolutionFixture f;
  const Output x = f.placeholder("x", {-1, 8, 8, 2}), w = f.placeholder("w", {3, 3, 2, 4});
  const Output zeros = f.pairs({0, 0, 0, 1, 2, 1, 0, 0});
  const Output pad = f.s.op("Pad", {x, zeros}), y = f.conv(pad, w, "VALID", 2);
  CHECK(f.plain(y) == "Conv2D(x, w)");
  CHECK(*f.made(y).get<std::string>("padding") == "EXPLICIT");
  CHECK(*f.made(y).get<Ints>("explicit_paddings") == Ints{0, 0, 0, 1, 2, 1, 0, 0});
  CHECK(*f.made(y).get<Ints>("strides") == Ints{1, 2, 2, 1});
  CHECK(f.plain(f.conv(f.s.op("Pad", {x, zeros}), f.placeholder("v", {3, 3, 2, 1}), "VALID", 1,
                       "DepthwiseConv2dNative")) == "DepthwiseConv2dNative(x, v)");
  const Output zero = f.s.constant(Tensor::scalar(0.f)), one = f.s.constant(Tensor::scalar(1.f));
  CHECK(f.plain(f.conv(f.s.op("PadV2", {x, zeros, zero}), w)) == "Conv2D(x, w)");
  CHECK(f.plain(f.conv(f.s.op("PadV2", {x, zeros, one}), w)).starts_with("Conv2D(PadV2("));
  // Another reads the padded images, or padding SAME would see other sizes.
  const Output read = f.s.op("Pad", {x, zeros});
  CHECK(f.plain(f.s.op("AddV2", {f.conv(read, w), f.conv(read, f.filter({3, 3, 2, 4}))})).find("Pad") !=
        std::string::npos);
  CHECK(f.plain(f.conv(f.s.op("Pad", {x, zeros}), w, "SAME")).starts_with("Conv2D(Pad("));
  // Along channels, of a whole window, or unknown.
  const auto padded = [&](Output by) { return f.plain(f.conv(f.s.op("Pad", {x, by}), f.filter({3, 3, 3, 4}))); };
  CHECK(padded(f.pairs({0, 0, 1, 1, 1, 1, 0, 1})).starts_with("Conv2D(Pad("));
  const auto around = [&](Output by) { return f.plain(f.conv(f.s.op("Pad", {x, by}), w)); };
  CHECK(around(f.pairs({0, 0, 3, 0, 0, 0, 0, 0})).starts_with("Conv2D(Pad("));
  CHECK(around(f.placeholder("by", {4, 2}, DType::kInt32)) == "Conv2D(Pad(x, by), w)");
  CHECK(f.plain(y, {pad}).starts_with("Conv2D(Pad"));
}

TEST_CASE("a dilation that is written with batches becomes the convolution's own") {
  ConvolutionFixture f;
  const Output x = f.placeholder("x", {-1, 10, 2});
  // As Keras writes a causal one: zeros before, then what makes the length whole.
  const Output padded = f.s.op("Pad", {x, f.pairs({0, 0, 8, 0, 0, 0})});
  const Output y = f.dilated(padded, 4, 0, 2, 0, 2);
  CHECK(f.plain(y).starts_with("Squeeze(Conv2D(ExpandDims(x, "));
  CHECK(*f.made(y).get<Ints>("dilations") == Ints{1, 1, 4, 1});
  CHECK(*f.made(y).get<Ints>("explicit_paddings") == Ints{0, 0, 0, 0, 8, 0, 0, 0});
  CHECK(*f.made(f.dilated(x, 2, 3, 5, 1, 2)).get<Ints>("explicit_paddings") == Ints{0, 0, 0, 0, 2, 3, 0, 0});
  const auto stays = [&](Output o) { return f.plain(o).find("BatchToSpaceND") != std::string::npos; };
  CHECK(stays(f.dilated(x, 2, 0, 2, 1, 0)));                                // crops more than is padded
  CHECK(stays(f.dilated(f.placeholder("u", {-1, -1, 2}), 2, 2, 2, 0, 0)));  // perhaps not whole
  // Images.
  const Output images = f.placeholder("i", {-1, 8, 8, 2});
  const Output forth = f.s.op("SpaceToBatchND", {images, f.ints({2, 4}), f.pairs({2, 2, 4, 4})});
  const Output strided = f.conv(forth, f.filter({3, 3, 2, 4}), "VALID", 2),
               plain = f.conv(forth, f.filter({3, 3, 2, 4}));
  const auto back = [&](Output o) { return f.s.op("BatchToSpaceND", {o, f.ints({2, 4}), f.pairs({0, 0, 0, 0})}); };
  CHECK(stays(back(strided)));
  CHECK(f.plain(back(plain)).starts_with("Conv2D(i, "));
  CHECK(*f.made(back(plain)).get<Ints>("dilations") == Ints{1, 2, 4, 1});
}

TEST_CASE("the Squeeze behind a convolution comes behind its bias and activation") {
  ConvolutionFixture f;
  const Output x = f.placeholder("x", {-1, 1, 8, 2}), w = f.placeholder("w", {1, 3, 2, 4}), b = f.placeholder("b", {4});
  const Output sum = f.s.op("BiasAdd", {f.squeezed(f.conv(x, w)), b}), y = f.s.op("Relu", {sum});
  CHECK(f.plain(y) == "Squeeze(Relu(BiasAdd(Conv2D(x, w), b)))");
  GraphPasses passes = GraphPasses::none();
  passes.plain_convolutions = passes.fuse_inference = true;
  CHECK(f.after(passes, y) == "Squeeze(_FusedConv2D(x, w, b))");
  const Output factor = f.s.constant(*Tensor::zeros(DType::kFloat32, {1, 1, 4}));
  CHECK(f.plain(f.s.op("Mul", {f.squeezed(f.conv(x, w)), factor})).starts_with("Squeeze(Mul(Conv2D(x, w), "));
  // One for each place, one that is not a constant, one that two read, one of another dimension.
  const Output place = f.s.constant(*Tensor::zeros(DType::kFloat32, {6, 4}));
  CHECK(f.plain(f.s.op("Mul", {f.squeezed(f.conv(x, w)), place})).starts_with("Mul(Squeeze("));
  CHECK(f.plain(f.s.op("Mul", {f.squeezed(f.conv(x, w)), b})) == "Mul(Squeeze(Conv2D(x, w)), b)");
  const Output both = f.squeezed(f.conv(x, w));
  CHECK(f.plain(f.s.op("AddV2", {f.s.op("Relu", {both}), both})).find("Relu(Squeeze(") != std::string::npos);
  const Output tall = f.placeholder("t", {-1, 8, 1, 2});
  CHECK(f.plain(f.s.op("Relu", {f.squeezed(f.conv(tall, f.filter({3, 1, 2, 4})), {2})})).starts_with("Relu(Squeeze("));
}
