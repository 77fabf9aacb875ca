// SPDX-License-Identifier: Apache-2.0
// The list of kernels of GPUs as a whole.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Ops with kernels on GPUs have such on CPUs, for the same types") {
  Parity parity;
  int served = 0;
  for (const auto& [name, def] : op_library()->ops.all()) {
    for (const auto& [kind, types] : parity.gpu_kernels().kernels(name)) {
      CHECK(kind == DeviceKind::kCuda);
      INFO(name);
      CHECK(op_library()->kernels.has(name, DeviceKind::kCpu));
      ++served;
    }
  }
  CHECK(served > 100);
}

}  // namespace
}  // namespace troupe::testing
