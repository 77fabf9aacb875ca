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

}  // namespace
}  // namespace troupe::testing
