// SPDX-License-Identifier: Apache-2.0
// Biases and their gradients are on GPUs what they are on CPUs.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

const std::vector<Shape>& values() {
  static const std::vector<Shape> all = {Shape{1, 1},   Shape{4, 3},    Shape{0, 3},       Shape{3, 0},
                                         Shape{257, 5}, Shape{2, 3, 4}, Shape{2, 5, 7, 3}, Shape{2, 3, 0, 4},
                                         Shape{5},      Shape{700, 33}};
  return all;
}

TEST_CASE("Biases are added on GPUs as on CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "BiasAdd"))
    for (const char* format : {"NHWC", "NCHW"})
      for (const Shape& shape : values()) {
        const bool first = *format == 'N' && format[1] == 'C' && shape.rank() > 2;
        const int64_t channels = shape[first ? 1 : shape.rank() - 1];
        const Attrs attrs{{"data_format", std::string(format)}};
        for (int64_t n : {channels, channels + 1})  // the second is an error
          parity.check(
              {"BiasAdd", {random_values(dtype, shape, 1, true), random_values(dtype, Shape{n}, 2, true)}, attrs});
      }
}

TEST_CASE("Gradients of biases on GPUs agree with those of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "BiasAddGrad"))
    for (const char* format : {"NHWC", "NCHW"})
      for (const Shape& shape : values()) {
        const double tolerance = dtype == DType::kFloat32    ? 1e-4
                                 : dtype == DType::kFloat64  ? 1e-12
                                 : dtype == DType::kFloat16  ? 4e-3
                                 : dtype == DType::kBFloat16 ? 2e-2
                                                             : 0;
        parity.check(
            {"BiasAddGrad", {random_values(dtype, shape, 3)}, {{"data_format", std::string(format)}}, tolerance});
      }
}

}  // namespace
}  // namespace troupe::testing
