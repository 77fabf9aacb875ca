// SPDX-License-Identifier: Apache-2.0
// What works on images in blocks against what it stands for; bad shapes.
#include "tests/ops/fused/blocked_fixture.h"

using namespace troupe;
using troupe::testing::BlockedFixture;

namespace {

struct Case {
  int64_t batch, size, in, out, filter, stride;
  bool depthwise;
};

}  // namespace

TEST_CASE("images come back from blocks as they went in, and what fills blocks is 0") {
  for (const int64_t channels : {1, 15, 16, 17, 24, 64})
    for (const int64_t batch : {0, 1, 3}) {
      BlockedFixture f;
      const Output x = f.values({batch, 5, 3, channels}), y = f.blocked(x), back = f.unblocked(y, channels);
      const auto r = f.run({x, y, back});
      CHECK(r[2].identical(r[0]));
      REQUIRE(r[1].shape() == Shape{batch, (channels + 15) / 16, 5, 3, 16});
      for (int64_t n = 0; n < batch; ++n)
        for (int64_t c = 0; c < r[1].dim(1) * 16; ++c)
          for (int64_t p = 0; p < 15; ++p)
            REQUIRE(r[1].data<float>()[((n * r[1].dim(1) + c / 16) * 15 + p) * 16 + c % 16] ==
                    (c < channels ? r[0].data<float>()[(n * 15 + p) * channels + c] : 0));
    }
}

TEST_CASE("means and scales of images in blocks are those of the images") {
  for (const int64_t channels : {1, 16, 20, 64})
    for (const int64_t batch : {0, 1, 3}) {
      BlockedFixture f;
      const Output x = f.values({batch, 5, 3, channels}), y = f.blocked(x);
      const Output over = f.s.constant(Tensor::of<int32_t>({1, 2}));
      std::vector<Output> fetches;
      for (const bool keep : {false, true}) {
        fetches.push_back(f.s.op("Mean", {x, over}, {{"keep_dims", keep}}));
        fetches.push_back(f.s.op("_MeanOfBlockedImages", {y}, {{"channels", channels}, {"keep_dims", keep}}));
      }
      for (const int64_t of : {int64_t{1}, batch}) {  // one for all, one for each
        const Output scales = f.values({of, 1, 1, channels});
        fetches.push_back(f.s.op("Mul", {x, scales}));
        fetches.push_back(f.unblocked(f.s.op("_ScaleBlockedImages", {y, scales}), channels));
      }
      const auto r = f.run(fetches);
      for (size_t i = 0; i < r.size(); i += 2) f.same(r[i + 1], r[i]);
    }
}

TEST_CASE("convolutions on blocks give what those on images give") {
  const std::vector<std::vector<std::string>> epilogues = {
      {}, {"BiasAdd"}, {"BiasAdd", "Relu6"}, {"BiasAdd", "Sigmoid"}, {"Add"}, {"BiasAdd", "Add", "Relu"}};
  for (const Case& c : {Case{2, 14, 16, 32, 1, 1, false},
                        {1, 9, 24, 40, 1, 2, false},
                        {1, 14, 64, 64, 3, 1, false},
                        {2, 28, 32, 32, 3, 1, false},
                        {1, 9, 48, 48, 3, 1, true},
                        {2, 12, 32, 32, 5, 2, true},
                        {2, 17, 3, 24, 3, 2, false},
                        {1, 8, 2, 16, 7, 1, false},
                        {2, 12, 1, 6, 5, 1, false},
                        {0, 8, 16, 16, 3, 1, false}})
    for (const bool constant : {true, false})
      for (const auto& ops : epilogues) {
        BlockedFixture f;
        INFO(fmt::format("{} -> {} of {}, {}: {}", c.in, c.out, c.size, constant, fmt::join(ops, " ")));
        const bool first = c.in < 16;
        const Output x = f.values({c.batch, c.size, c.size, c.in});
        const Output w = f.values({c.filter, c.filter, c.in, c.depthwise ? 1 : c.out}, constant);
        const int64_t size = (c.size + c.stride - 1) / c.stride;
        const Output image = f.values({c.batch, size, size, c.out});
        Attrs attrs{{"strides", std::vector<int64_t>{1, c.stride, c.stride, 1}}, {"padding", std::string("SAME")}};
        Output plain = f.s.op(c.depthwise ? "DepthwiseConv2dNative" : "Conv2D", {x, w}, attrs);
        std::vector<Output> inputs = {first ? x : f.blocked(x), w};
        for (const std::string& op : ops) {
          if (op == "BiasAdd") {
            inputs.push_back(f.values({c.out}));
            plain = f.s.op(op, {plain, inputs.back()});
          } else if (op == "Add") {
            inputs.push_back(f.blocked(image));
            plain = f.s.op(op, {plain, image});
          } else {
            plain = f.s.op(op, {plain});
          }
        }
        attrs.set("num_args", static_cast<int64_t>(inputs.size()) - 2);
        attrs.set("fused_ops", ops);
        attrs.set("depthwise", c.depthwise);
        attrs.set("blocked", !first);
        attrs.set("channels", c.in);
        const Output y = f.s.op("_BlockedConv2D", inputs, attrs);
        CHECK(y.shape().str() == fmt::format("[{},{},{},{},16]", c.batch, (c.out + 15) / 16, size, size));
        for (int round = 0; round < 2; ++round) {
          const auto r = f.run({f.unblocked(y, c.out), plain, y, f.blocked(f.unblocked(y, c.out))});
          f.same(r[0], r[1]);
          CHECK(r[2].identical(r[3]));  // 0 beyond the channels
        }
      }
}

TEST_CASE("blocks that are not of so many channels, and what does not fit them, are errors") {
  BlockedFixture f;
  const auto fault = [&](const std::string& op, const std::vector<Output>& inputs, Attrs attrs = {}) {
    const Output y = f.s.op(op, inputs, std::move(attrs));
    REQUIRE(f.s.ok());
    auto r = f.evaluator.run({y}, f.feeds);
    REQUIRE_FALSE(r.ok());
    return r.error().message;
  };
  // Of shapes that inference does not know.
  const auto hidden = [&](const Shape& shape) {
    const Output fed = f.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
    f.feeds.emplace_back(fed, BlockedFixture::numbers(shape));
    return fed;
  };
  const Output two = hidden({2, 2, 3, 3, 16});
  CHECK(fault("_MeanOfBlockedImages", {two}, {{"channels", int64_t{16}}}) ==
        "[2,2,3,3,16] are not 16 channels in blocks of 16");
  CHECK(fault("_ScaleBlockedImages", {two, hidden({2, 20})}) == "scales must have rank 4, but have [2,20]");
  CHECK(fault("_ScaleBlockedImages", {two, hidden({2, 1, 1, 40})}) ==
        "[2,2,3,3,16] are not 40 channels in blocks of 16");
  CHECK(fault("_ScaleBlockedImages", {two, hidden({3, 1, 1, 20})}) == "scales [3,1,1,20] do not fit images [2,3,3,20]");
  CHECK(fault("_ScaleBlockedImages", {two, hidden({2, 3, 1, 20})}) == "scales [2,3,1,20] do not fit images [2,3,3,20]");
  CHECK(fault("_BlockImages", {hidden({2, 3, 16})}) == "images must have rank 4, but their shape is [2,3,16]");
  CHECK(fault("_UnblockImages", {hidden({2, 2, 3, 3, 16})}, {{"channels", int64_t{16}}}) ==
        "[2,2,3,3,16] are not 16 channels in blocks of 16");
  CHECK(fault("_UnblockImages", {hidden({2, 1, 3, 3, 8})}, {{"channels", int64_t{8}}}) ==
        "[2,1,3,3,8] are not 8 channels in blocks of 16");
  Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}},
              {"padding", std::string("SAME")},
              {"num_args", int64_t{1}},
              {"fused_ops", std::vector<std::string>{"Add"}},
              {"channels", int64_t{16}}};
  const Output w = f.values({1, 1, 16, 16});
  CHECK(fault("_BlockedConv2D", {hidden({1, 1, 3, 3, 16}), w, hidden({1, 1, 3, 1, 16})}, attrs) ==
        "cannot add [1,1,3,1,16] to [1,1,3,3,16]");
  CHECK(fault("_BlockedConv2D", {hidden({1, 3, 3, 16}), w, hidden({1, 1, 3, 3, 16})}, attrs) ==
        "[1,3,3,16] are not 16 channels in blocks of 16");
  attrs.set("fused_ops", std::vector<std::string>{"BiasAdd"});
  CHECK(fault("_BlockedConv2D", {hidden({1, 1, 3, 3, 16}), w, hidden({5})}, attrs) == "bias [5] for 16 channels");
}
