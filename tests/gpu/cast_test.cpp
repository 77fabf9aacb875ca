// SPDX-License-Identifier: Apache-2.0
// Casts give on GPUs what they give on CPUs, bit for bit.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Casts on GPUs agree with those of CPUs") {
  Parity parity;
  const DType all[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32,
                       DType::kInt64,   DType::kUInt8,   DType::kInt8,    DType::kBool};
  for (DType from : all)
    for (DType to : all)
      for (bool truncate : {false, true})
        for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 347}})
          parity.check({"Cast", {random_values(from, shape, 11, true)}, {{"DstT", to}, {"Truncate", truncate}}});
}

}  // namespace
}  // namespace troupe::testing
