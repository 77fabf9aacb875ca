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

TEST_CASE("Ranges and what is counted at the host on GPUs agree with those of CPUs") {
  Parity parity;
  const auto range = [&]<class T>(T start, T limit, T delta) {
    parity.check({"Range", {Tensor::scalar(start), Tensor::scalar(limit), Tensor::scalar(delta)}});
  };
  for (int64_t n : {0, 1, 1000}) {
    range(float(1), float(n), 0.25F);
    range(double(n), 0.0, -0.1);
    range(float16(1.0F), float16(float(n + 1)), float16(2.0F));
    range(bfloat16(1.0F), bfloat16(float(n + 1)), bfloat16(2.0F));
    range(int64_t{3}, int64_t{3} + n * 7, int64_t{7});
    range(0, static_cast<int32_t>(n), 3);
  }
  range(float(1), float(0), 1.0F);  // errors
  range(int64_t{1}, int64_t{2}, int64_t{0});
  parity.check({"LinSpace", {Tensor::scalar(1.0F), Tensor::scalar(2.0F), Tensor::scalar<int32_t>(7)}});
  parity.check({"UnravelIndex", {Tensor::of<int32_t>({5, 3}), Tensor::of<int32_t>({2, 3})}});
  parity.check({"BroadcastArgs", {Tensor::of<int32_t>({5, 1}), Tensor::of<int32_t>({3})}});
  parity.check({"BroadcastGradientArgs", {Tensor::of<int32_t>({5, 1}), Tensor::of<int32_t>({3})}});
  parity.check({"InvertPermutation", {Tensor::of<int64_t>({2, 0, 1})}});
  parity.check({"InvertPermutation", {Tensor::of<int64_t>({2, 0, 2})}});
}

}  // namespace
}  // namespace troupe::testing
