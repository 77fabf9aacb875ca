// SPDX-License-Identifier: Apache-2.0
// Steps of a GRU and their gradients on GPUs agree with those of CPUs.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Steps of a GRU on GPUs agree with those on CPUs") {
  Parity parity;
  for (const auto& [batch, inputs, units] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {3, 5, 4}, {7, 2, 65}, {40, 16, 33}, {0, 3, 4}, {2, 0, 3}, {2, 3, 0}}) {
    std::vector<Tensor> in;
    for (const Shape& shape : {Shape{batch, inputs}, Shape{batch, units}, Shape{inputs + units, 2 * units},
                               Shape{inputs + units, units}, Shape{2 * units}, Shape{units}})
      in.push_back(random_values(DType::kFloat32, shape, in.size() + 1));
    parity.check({"GRUBlockCell", in, {}, 1e-4});
    const auto kept = parity.run(DeviceKind::kCpu, {"GRUBlockCell", in});
    REQUIRE(kept.ok());
    std::vector<Tensor> all = in;
    all.insert(all.end(), kept->begin(), kept->end() - 1);
    all.push_back(random_values(DType::kFloat32, Shape{batch, units}, 9));
    parity.check({"GRUBlockCellGrad", all, {}, 1e-3});
    all.back() = random_values(DType::kFloat32, Shape{3}, 9);  // errors
    parity.check({"GRUBlockCellGrad", all});
    in[3] = random_values(DType::kFloat32, Shape{1, 2, 3}, 9);
    parity.check({"GRUBlockCell", in});
  }
}

}  // namespace
}  // namespace troupe::testing
