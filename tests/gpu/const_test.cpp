// SPDX-License-Identifier: Apache-2.0
// Constant tensors, identities and views are the same on GPUs as on CPUs.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Constant tensors and views on GPUs agree with those of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "OnesLike")) {
    for (const Shape& shape : parity_shapes()) {
      const Tensor x = random_values(dtype, shape, 8, true);
      for (const char* op : {"ZerosLike", "OnesLike", "Identity", "StopGradient", "Shape", "Size", "Rank"})
        parity.check({op, {x}});
      parity.check({"EnsureShape", {x}, {{"shape", PartialShape{5}}}});
      parity.check({"ExpandDims", {x, Tensor::scalar<int32_t>(-1)}});
      parity.check({"Squeeze", {x}});
      parity.check({"Reshape", {x, Tensor::of<int64_t>({-1, 1})}});
      parity.check({"Reshape", {x, Tensor::of<int32_t>({2, 3})}});
    }
    for (std::initializer_list<int32_t> dims : {std::initializer_list<int32_t>{}, {0, 3}, {3, 5}, {1029}, {-1}})
      parity.check({"Fill", {Tensor::of<int32_t>(dims), random_values(dtype, Shape{}, 12)}});
    parity.check({"Fill", {Tensor::of<int32_t>({2}), random_values(dtype, Shape{2}, 12)}});
  }
}

}  // namespace
}  // namespace troupe::testing
