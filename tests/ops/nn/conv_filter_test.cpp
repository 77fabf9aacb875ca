// SPDX-License-Identifier: Apache-2.0
// What memory convolutions take for their filters. Winograd's filters, of processors with AVX-512, matter here: laying
// one out takes scratch memory of four times its size.
#include <malloc.h>

#include "tests/ops/check_op.h"
#include "tests/ops/op_graph.h"

namespace troupe::testing {
namespace {

const Attrs kSame = {{"strides", std::vector<int64_t>{1, 1, 1, 1}},
                     {"dilations", std::vector<int64_t>{1, 1, 1, 1}},
                     {"padding", std::string("SAME")},
                     {"data_format", std::string("NHWC")}};

#ifdef __GLIBC__
TEST_CASE("a convolution that has laid its filter out holds no memory but the device's") {
  const auto held = [] {
    const auto m = mallinfo2();
    return static_cast<int64_t>(m.uordblks + m.hblkhd);
  };
  OpGraph g;
  const Tensor in = random_tensor<float>({2, 7, 7, 256}, 1), filter = random_tensor<float>({3, 3, 256, 256}, 2);
  const Output y = g.op("Conv2D", {g.of(in), g.of(filter)}, kSame);
  const int64_t before = held();
  REQUIRE(g.evaluator.value(y).defined());
  CHECK(held() - before < static_cast<int64_t>(filter.bytes()));
}
#endif

TEST_CASE("a convolution lays its constant filter out once for all shapes that want it so") {
  OpGraph g;
  const Output x = g.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
  const Tensor filter = random_tensor<float>({1, 1, 256, 512}, 2);
  const Output y = g.op("Conv2D", {x, g.of(filter)}, kSame);
  const auto held_after = [&](int64_t batch) {
    const Tensor in = random_tensor<float>({batch, 7, 7, 256}, 1);
    const Tensor got = g.evaluator.value(y, {{x, in}});
    OpGraph other;
    CHECK(got.identical(other.run(other.op("Conv2D", {other.of(in), other.of(filter)}, kSame))));
    return g.evaluator.device().allocator->stats().in_use - static_cast<int64_t>(got.bytes());
  };
  const int64_t first = held_after(2);
  for (const int64_t batch : {3, 5, 8}) CHECK(held_after(batch) - first < static_cast<int64_t>(filter.bytes()) / 2);
  // Of so many shapes the oldest go, and with the last its layout.
  for (int64_t batch = 9; batch < 30; ++batch) held_after(batch);
  CHECK(held_after(2) - first < static_cast<int64_t>(filter.bytes()) / 2);
}

}  // namespace
}  // namespace troupe::testing
