// SPDX-License-Identifier: Apache-2.0
// Which nodes of an inference work on images in blocks of channels, and which do not.
#include "graph/passes/block_images.h"

#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

struct BlockFixture : test::PassFixture {
  std::string blocked(Output fetch, std::vector<Output> fed = {}, const PassDevices& devices = {}) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, fed, {&fetch, 1}, {});
    ImageBlocks pass(step, devices);
    step.sweep([&](const Node& node) { pass.visit(node); });
    step.drop_unneeded();
    return text(step, fetch);
  }
  Output filter(int64_t size, int64_t in, int64_t out) {
    return s.constant(*Tensor::zeros(DType::kFloat32, {size, size, in, out}));
  }
  Output conv(Output x, Output filter, const std::string& op = "Conv2D", int64_t stride = 1,
              const std::string& format = "NHWC") {
    return s.op(op, {x, filter},
                {{"strides", std::vector<int64_t>{1, stride, stride, 1}},
                 {"padding", std::string("SAME")},
                 {"data_format", format}});
  }
  Output conv(Output x, int64_t in, int64_t out, int64_t size = 1, int64_t stride = 1) {
    return conv(x, filter(size, in, out), "Conv2D", stride);
  }
  Output pool(Output x) {
    return s.op("MaxPool", {x},
                {{"ksize", std::vector<int64_t>{1, 2, 2, 1}},
                 {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                 {"padding", std::string("VALID")}});
  }
  /// Small beside what goes on in blocks.
  Output summed(Output x) { return s.op("Sum", {x, s.constant(Tensor::of<int32_t>({1, 2}))}); }
};

/// The names of ops alone.
std::string without_constants(std::string text) {
  for (size_t at; (at = text.find(", float32[")) != std::string::npos;) {
    size_t end = text.find("]", at) + 2;  // its shape; then its values
    for (int open = 0; end < text.size();) {
      open += (text[end] == '[') - (text[end] == ']');
      ++end;
      if (open == 0) break;
    }
    text.erase(at, end - at);
  }
  return text;
}

}  // namespace

TEST_CASE("convolutions hand images on in blocks, with the sums and pools between them") {
  BlockFixture f;
  const Output x = f.placeholder("x", {-1, 32, 32, 3});
  Output h = f.conv(x, 3, 64, 3, 2);
  h = f.pool(f.s.op("Relu", {h}));
  const Output narrow = f.conv(h, 64, 32), deep = f.conv(narrow, f.filter(3, 32, 1), "DepthwiseConv2dNative");
  h = f.s.op("AddV2", {f.conv(deep, 32, 64), h});
  h = f.conv(h, 64, 24, 1, 4);
  const std::string text = without_constants(f.blocked(f.s.op("Sum", {h, f.s.constant(Tensor::of<int32_t>({1, 2}))})));
  CHECK(text.find("Conv2D(") == text.find("_BlockedConv2D(") + 8);
  const std::string first = "Relu(_BlockedConv2D(x))";
  const std::string pooled =
      "Reshape(MaxPool(Reshape(" + first + ", int64[4] [-1, 16, 16, 16])), int64[5] [-1, 4, 8, 8, ...])";
  CHECK(text == "Sum(_UnblockImages(_BlockedConv2D(AddV2(_BlockedConv2D(_BlockedConv2D(_BlockedConv2D(" + pooled +
                    "))), " + pooled + "))), int32[2] [1, 2])");
}

TEST_CASE("squeeze and excitation stay in blocks: the mean comes out, the scales come in") {
  for (const bool scales_first : {false, true}) {
    BlockFixture f;
    const Output x = f.placeholder("x", {-1, 32, 32, 3});
    const Output image = f.conv(f.conv(x, 3, 64, 3, 2), 64, 64, 3);
    const Output mean = f.s.op("Mean", {image, f.s.constant(Tensor::of<int32_t>({2, -3}))}, {{"keep_dims", true}});
    const Output gate = f.s.op("Sigmoid", {f.conv(mean, 64, 64)});
    const Output scaled = scales_first ? f.s.op("Mul", {gate, image}) : f.s.op("Mul", {image, gate});
    const std::string text = without_constants(f.blocked(f.summed(f.conv(scaled, 64, 64, 3, 4))));
    const std::string blocked = "_BlockedConv2D(_BlockedConv2D(x))";
    CHECK(text == "Sum(_UnblockImages(_BlockedConv2D(_ScaleBlockedImages(" + blocked +
                      ", Sigmoid(Conv2D(_MeanOfBlockedImages(" + blocked + ")))))), int32[2] [1, 2])");
  }
}

TEST_CASE("a product that is not of channels, and a mean over other dimensions, are of plain images") {
  BlockFixture f;
  const Output x = f.placeholder("x", {1, 32, 32, 3}), image = f.conv(f.conv(x, 3, 64, 3), 64, 64, 3);
  const auto plain = [&](Output y) {
    const std::string text = f.blocked(f.summed(y));
    return text.find("_UnblockImages") != std::string::npos && text.find("_ScaleBlocked") == std::string::npos &&
           text.find("_MeanOfBlocked") == std::string::npos;
  };
  CHECK(plain(f.s.op("Mul", {image, f.placeholder("rows", {1, 32, 1, 64})})));
  CHECK(plain(f.s.op("Mul", {image, f.placeholder("one", {1, 1, 1, 1})})));
  CHECK(plain(f.s.op("Mul", {image, f.placeholder("vector", {64})})));
  CHECK(plain(f.s.op("Mul", {image, image})));
  CHECK(plain(f.s.op("Mean", {image, f.s.constant(Tensor::of<int32_t>({1, 3}))}, {{"keep_dims", true}})));
  CHECK(plain(f.s.op("Mean", {image, f.s.constant(Tensor::of<int32_t>({1}))}, {{"keep_dims", true}})));
}

TEST_CASE("borders that cost more than blocks gain stay, and what is not made for blocks") {
  BlockFixture f;
  const Output x = f.placeholder("x", {-1, 8, 8, 32}), first = f.placeholder("first", {-1, 16, 16, 3});
  const auto stays = [&](Output fetch, std::vector<Output> fed = {}, const PassDevices& devices = {}) {
    return f.blocked(f.summed(fetch), std::move(fed), devices).find("Block") == std::string::npos;
  };
  CHECK(stays(f.conv(x, 32, 32)));  // one alone
  const auto chain = [&](Output in, int64_t channels, auto... how) {
    return f.conv(f.conv(f.conv(f.conv(in, 3, channels, 3), channels, channels, 3), channels, channels, 3), channels,
                  16, 1, 8, how...);
  };
  REQUIRE_FALSE(stays(chain(first, 32)));
  CHECK(stays(chain(first, 20)));  // half of the second block would be empty
  CHECK(stays(chain(first, 8)));
  CHECK(stays(chain(f.placeholder("y", {-1, -1, 16, 3}), 32)));
  CHECK(stays(chain(first, 32), {}, {.on_gpu = [](const Node&) { return true; }}));
  const Output grey = f.placeholder("grey", {-1, 16, 16, 1});
  REQUIRE_FALSE(stays(f.pool(f.conv(grey, 1, 6, 5))));
  CHECK(stays(f.pool(f.conv(grey, 1, 5, 5))));
  CHECK(stays(f.conv(grey, 1, 6, 5)));  // as much comes out of blocks
  const Output v = f.placeholder("v", {3, 3, 32, 32});
  CHECK(stays(f.conv(f.conv(first, 3, 32, 3), v)));
  const Output a = f.conv(first, 3, 32, 3), b = f.conv(a, 32, 32, 3);
  CHECK(stays(f.conv(b, 32, 16, 1, 8), {b}));
  const Output nchw = f.s.op("Transpose", {first, f.s.constant(Tensor::of<int32_t>({0, 3, 1, 2}))});
  const Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}},
                    {"padding", std::string("SAME")},
                    {"data_format", std::string("NCHW")}};
  const Output turned = f.s.op("Conv2D", {nchw, f.filter(3, 3, 32)}, attrs);
  CHECK(stays(f.s.op("Conv2D", {turned, f.filter(3, 32, 32)}, attrs)));
}

TEST_CASE("an image that several read comes into blocks once, and one that is fetched comes out") {
  BlockFixture f;
  const Output x = f.placeholder("x", {1, 4, 4, 16});
  const auto wide = [&](Output in, int64_t from) { return f.conv(f.conv(in, from, 512, 3), 512, 512, 3); };
  const Output sum = f.s.op("AddV2", {wide(x, 16), wide(x, 16)}), end = f.conv(sum, 512, 16);
  const std::string text = without_constants(f.blocked(end));
  const std::string one = "_BlockedConv2D(_BlockedConv2D(_BlockImages(x)))";
  CHECK(text == "_UnblockImages(_BlockedConv2D(AddV2(" + one + ", " + one + ")))");
  StepGraph step(f.graph, {}, {&end, 1}, {});
  ImageBlocks pass(step);
  step.sweep([&](const Node& node) { pass.visit(node); });
  step.drop_unneeded();
  CHECK(std::ranges::count_if(step.nodes(), [](const Node* n) { return n->op().name() == "_BlockImages"; }) == 1);
  CHECK(step.shape(step.now(end)).str() == "[1,4,4,16]");
}
