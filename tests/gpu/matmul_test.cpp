// SPDX-License-Identifier: Apache-2.0
// Matrix products of GPUs, on the fake's library, agree with those of CPUs.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

double product_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1e-5;
    case DType::kFloat64: return 1e-13;
    case DType::kFloat16: return 2e-3;
    default: return 1.6e-2;
  }
}

TEST_CASE("MatMul on GPUs agrees with that of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "MatMul"))
    for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{Shape{1, 1}, Shape{1, 1}},
                                                                   {Shape{3, 4}, Shape{4, 5}},
                                                                   {Shape{33, 65}, Shape{65, 17}},
                                                                   {Shape{0, 4}, Shape{4, 5}},
                                                                   {Shape{3, 0}, Shape{0, 5}},
                                                                   {Shape{3, 4}, Shape{5, 4}},  // errors
                                                                   {Shape{3, 4}, Shape{4}}})
      for (bool ta : {false, true})
        for (bool tb : {false, true}) {
          const auto transposed = [](const Shape& s, bool t) { return t && s.rank() == 2 ? Shape{s[1], s[0]} : s; };
          parity.check({"MatMul",
                        {random_values(dtype, transposed(a, ta), 1), random_values(dtype, transposed(b, tb), 2)},
                        {{"transpose_a", ta}, {"transpose_b", tb}},
                        product_tolerance(dtype)});
        }
}

TEST_CASE("Products of many matrices on GPUs agree with those of CPUs, broadcasting") {
  Parity parity;
  for (const char* op : {"BatchMatMul", "BatchMatMulV2"})
    for (DType dtype : gpu_types(parity, op))
      for (const auto& [x, y] : std::vector<std::pair<Shape, Shape>>{{Shape{}, Shape{}},
                                                                     {Shape{3}, Shape{3}},
                                                                     {Shape{2, 3}, Shape{2, 3}},
                                                                     {Shape{0}, Shape{0}},
                                                                     {Shape{3}, Shape{}},
                                                                     {Shape{}, Shape{3}},
                                                                     {Shape{3}, Shape{1}},
                                                                     {Shape{2, 1}, Shape{3}},
                                                                     {Shape{2, 3, 1}, Shape{3, 2}},
                                                                     {Shape{2}, Shape{3}}})  // an error
        for (bool adj_x : {false, true})
          for (bool adj_y : {false, true}) {
            const auto of = [](Shape batch, int64_t rows, int64_t columns, bool t) {
              batch.push_back(t ? columns : rows);
              batch.push_back(t ? rows : columns);
              return batch;
            };
            parity.check({op,
                          {random_values(dtype, of(x, 4, 3, adj_x), 3), random_values(dtype, of(y, 3, 5, adj_y), 4)},
                          {{"adj_x", adj_x}, {"adj_y", adj_y}},
                          product_tolerance(dtype)});
          }
  for (DType dtype : FloatTypes::dtypes())
    parity.check({"BatchMatMulV3",
                  {random_values(dtype, Shape{2, 3, 4}, 5), random_values(dtype, Shape{4, 2}, 6)},
                  {{"Tout", dtype}},
                  product_tolerance(dtype)});
}

}  // namespace
}  // namespace troupe::testing
