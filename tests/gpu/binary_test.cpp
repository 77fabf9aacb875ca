// SPDX-License-Identifier: Apache-2.0
// Binary kernels of GPUs give what those of CPUs give, bit for bit.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Binary kernels of GPUs agree with those of CPUs, broadcasting") {
  Parity parity;
  check_binary(parity, {"Add",          "AddV2",       "Sub",      "Mul",        "SquaredDifference", "Div",
                        "RealDiv",      "TruncateDiv", "FloorDiv", "Mod",        "TruncateMod",       "FloorMod",
                        "Pow",          "Maximum",     "Minimum",  "Less",       "LessEqual",         "Greater",
                        "GreaterEqual", "Equal",       "NotEqual", "LogicalAnd", "LogicalOr"});
}

TEST_CASE("Tensors whose shapes do not broadcast are not equal on GPUs either") {
  Parity parity;
  for (const char* op : {"Equal", "NotEqual"})
    for (const Shape& other : {Shape{4}, Shape{3}, Shape{2, 1}})
      parity.check({op,
                    {random_values(DType::kInt32, Shape{3}, 1), random_values(DType::kInt32, other, 1)},
                    {{"incompatible_shape_error", false}}});
}

TEST_CASE("Element-wise kernels write into inputs that nobody else wants, and say what they use") {
  if (on_real_gpu()) return;  // which does not tell what was said
  Parity parity;
  const auto uses = [&](Parity::Layout layout) {
    const Tensor x = random_values(DType::kFloat32, Shape{5}, 1);
    REQUIRE(parity.run(DeviceKind::kCuda, {"AddV2", {x, x}}, layout).ok());
    return parity.stream().accessed;
  };
  const auto own = uses(Parity::Layout::kOwn), shared = uses(Parity::Layout::kShared);
  REQUIRE(own.size() == 3);
  CHECK(own[2].writes);
  CHECK(own[2].bytes == 20);
  CHECK(own[2].at == own[0].at);
  CHECK(shared[2].at != shared[0].at);
  CHECK(shared[2].at != shared[1].at);
}

}  // namespace
}  // namespace troupe::testing
