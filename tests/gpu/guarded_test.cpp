// SPDX-License-Identifier: Apache-2.0
// Functions with rules of their own at zero give on GPUs what they give on CPUs, bit for bit.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Guarded kernels of GPUs agree with those of CPUs") {
  Parity parity;
  check_binary(parity, {"Xlogy", "Xlog1py", "Xdivy", "MulNoNan", "DivNoNan", "Atan2", "NextAfter"});
}

}  // namespace
}  // namespace troupe::testing
