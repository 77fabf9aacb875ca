// SPDX-License-Identifier: Apache-2.0
// Cases of element-wise ops that several tests of kernels of GPUs run.
#pragma once
#include "graph/passes/keep_at_host.h"
#include "tests/gpu/parity.h"

namespace troupe::testing {

/// Around the sizes of packs, warps, blocks and grids.
inline const std::vector<Shape>& parity_shapes() {
  static const std::vector<Shape> shapes = {Shape{},   Shape{0},       Shape{1},     Shape{3},    Shape{4},
                                            Shape{33}, Shape{5, 0, 2}, Shape{7, 19}, Shape{1025}, Shape{33 * 1024 + 3}};
  return shapes;
}

/// The types that the GPU has a kernel of this op for; at least one.
inline std::vector<DType> gpu_types(Parity& parity, const char* op) {
  std::vector<DType> out;
  for (const auto& [kind, types] : parity.gpu_kernels().kernels(op)) {
    if (types.contains(kAtHostAttr)) continue;  // computes with the CPU's
    for (DType dtype : types.at("T")) out.push_back(dtype);
  }
  INFO(op);
  REQUIRE_FALSE(out.empty());
  return out;
}

/// Every type of a function of one tensor.
inline void check_unary(Parity& parity, std::initializer_list<const char*> ops) {
  for (const char* op : ops)
    for (DType dtype : gpu_types(parity, op))
      for (const Shape& shape : parity_shapes()) parity.check({op, {random_values(dtype, shape, 7, true)}});
}

/// Every type of a function of two tensors that broadcast.
inline void check_binary(Parity& parity, std::initializer_list<const char*> ops) {
  const std::pair<Shape, Shape> pairs[] = {
      {Shape{}, Shape{}},
      {Shape{5}, Shape{}},
      {Shape{}, Shape{5}},
      {Shape{1}, Shape{1, 1}},
      {Shape{0}, Shape{1}},
      {Shape{2049}, Shape{2049}},
      {Shape{7, 5}, Shape{5}},
      {Shape{7, 1}, Shape{1, 9}},
      {Shape{2, 1, 3, 1}, Shape{4, 1, 5}},
      {Shape{3, 4, 5}, Shape{3, 1, 5}},
      {Shape{1}, Shape{3, 4, 5}},
      {Shape{257, 33}, Shape{257, 1}},
      {Shape{2, 3}, Shape{4, 3}},  // an error
  };
  for (const char* op : ops)
    for (DType dtype : gpu_types(parity, op))
      for (const auto& [a, b] : pairs)
        parity.check({op, {random_values(dtype, a, 3, true), random_values(dtype, b, 4, true)}});
}

/// Every type of a function of two tensors of one shape.
inline void check_same_shape(Parity& parity, std::initializer_list<const char*> ops) {
  for (const char* op : ops)
    for (DType dtype : gpu_types(parity, op)) {
      for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{6, 171}})
        parity.check({op, {random_values(dtype, shape, 5, true), random_values(dtype, shape, 6, true)}});
      parity.check({op, {random_values(dtype, Shape{3}, 5), random_values(dtype, Shape{1}, 6)}});  // an error
    }
}

}  // namespace troupe::testing
