// SPDX-License-Identifier: Apache-2.0
// Local response normalisation and its gradient on GPUs agree with those of CPUs; sums are rounded otherwise.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

double lrn_tolerance(DType dtype) { return dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat16 ? 2e-3 : 1.6e-2; }

TEST_CASE("Local response normalisation on GPUs agrees with that of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "LRN"))
    for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 3, 4, 5}, Shape{3, 2, 1, 70}, Shape{0, 2, 2, 3},
                               Shape{2, 2, 2, 0}, Shape{7, 9, 11, 8}, Shape{3, 4}})  // the last: an error
      for (int64_t radius : {-1, 0, 2, 5, 1000})
        for (float beta : {0.5f, 0.75f, 0.0f}) {
          const Attrs attrs{{"depth_radius", radius}, {"bias", 1.5f}, {"alpha", 0.3f}, {"beta", beta}};
          const double tolerance = lrn_tolerance(dtype);
          const Tensor x = random_values(dtype, shape, 1);
          parity.check({"LRN", {x}, attrs, tolerance});
          parity.check({"LRN", {random_values(dtype, shape, 3, true)}, attrs, tolerance});
          const auto y = parity.run(DeviceKind::kCpu, {"LRN", {x}, attrs});
          const Tensor out = y.ok() ? (*y)[0] : x, g = random_values(dtype, shape, 2);
          parity.check({"LRNGrad", {g, x, out}, attrs, tolerance * 4});
          parity.check({"LRNGrad", {random_values(dtype, Shape{1, 2, 1, 1}, 2), x, out}, attrs});  // an error
        }
}

}  // namespace
}  // namespace troupe::testing
