// SPDX-License-Identifier: Apache-2.0
// Running totals on GPUs agree with those of CPUs; long ones of floats are added in another order.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

double scan_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1e-4;
    case DType::kFloat64: return 1e-12;
    case DType::kFloat16: return 2e-3;
    case DType::kBFloat16: return 1e-2;
    default: return 0;
  }
}

TEST_CASE("Running totals on GPUs agree with those of CPUs") {
  Parity parity;
  const std::pair<Shape, int32_t> cases[] = {
      {Shape{1}, 0},        {Shape{33}, 0},      {Shape{2500}, 0},     {Shape{5, 40}, 1},   {Shape{5, 40}, 0},
      {Shape{3, 1100}, -1}, {Shape{1100, 3}, 0}, {Shape{4, 50, 9}, 1}, {Shape{40, 600}, 0}, {Shape{2, 20, 3}, -2},
      {Shape{0, 3}, 0},     {Shape{3, 0}, 0},    {Shape{3, 4}, 2},  // errors
      {Shape{}, 0}};
  for (const char* op : {"Cumsum", "Cumprod"})
    for (DType dtype : gpu_types(parity, op))
      for (const auto& [shape, axis] : cases)
        for (bool exclusive : {false, true})
          for (bool reverse : {false, true}) {
            // Products of many are 0 or infinite.
            if (op == std::string("Cumprod") && shape.elements() > 1000 && is_floating(dtype)) continue;
            parity.check({op,
                          {random_values(dtype, shape, 2), Tensor::scalar(axis)},
                          {{"exclusive", exclusive}, {"reverse", reverse}},
                          scan_tolerance(dtype)});
          }
}

}  // namespace
}  // namespace troupe::testing
