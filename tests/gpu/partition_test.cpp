// SPDX-License-Identifier: Apache-2.0
// Rows dealt out and put together again on GPUs, by indices that are read at the host, as on CPUs.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

Tensor ints(std::initializer_list<int32_t> values) { return Tensor::of<int32_t>(values); }

TEST_CASE("DynamicPartition on GPUs agrees with that of CPUs, in values and errors") {
  Parity parity;
  for (const DType dtype : gpu_types(parity, "DynamicPartition")) {
    const auto check = [&](Shape x, const Tensor& partitions, int64_t parts) {
      parity.check({"DynamicPartition", {random_values(dtype, x, 1), partitions}, {{"num_partitions", parts}}});
    };
    check({5, 3}, ints({2, 0, 2, 1, 0}), 3);
    check({5}, ints({3, 3, 3, 3, 3}), 5);  // most get nothing
    check({4, 2, 3}, Tensor::of<int32_t>({0, 1, 1, 0, 1, 0, 1, 1}, Shape{4, 2}), 2);
    check({0, 7}, *Tensor::zeros(DType::kInt32, {0}), 2);
    check({3, 0}, ints({0, 1, 0}), 2);
    check({}, Tensor::scalar<int32_t>(1), 2);
    check({3}, ints({0, 2, 1}), 2);  // errors
    check({3}, ints({0, -1, 1}), 2);
    check({3}, ints({0, 1}), 2);
  }
  std::vector<int32_t> many;
  for (int i = 0; i < 3000; ++i) many.push_back(i * 7919 % 11);
  parity.check({"DynamicPartition",
                {random_values(DType::kFloat32, {3000, 5}, 2), Tensor::of<int32_t>(std::span<const int32_t>(many))},
                {{"num_partitions", int64_t{11}}}});
}

TEST_CASE("DynamicStitch on GPUs agrees with that of CPUs, where the last one of several rows counts") {
  Parity parity;
  for (const char* const op : {"DynamicStitch", "ParallelDynamicStitch"})
    for (const DType dtype : gpu_types(parity, op)) {
      const auto check = [&](std::vector<Tensor> in) {
        const auto n = static_cast<int64_t>(in.size() / 2);
        parity.check({op, std::move(in), {{"N", n}}});
      };
      const auto values = [&](Shape shape, uint64_t seed) { return random_values(dtype, shape, seed); };
      check({ints({1, 4, 0}), ints({2}), values({3, 2}, 1), values({1, 2}, 2)});  // nobody gives row 3
      check({ints({1, 1, 0}), ints({1, 1}), values({3, 2}, 3), values({2, 2}, 4)});
      check({Tensor::scalar<int32_t>(1), *Tensor::zeros(DType::kInt32, {0}), values({5}, 5), values({0, 5}, 6)});
      check({*Tensor::zeros(DType::kInt32, {0}), values({0, 2}, 7)});
      check({ints({1, 0}), values({2, 0}, 7)});
      check({ints({1, -1}), values({2, 3}, 7)});  // errors
      check({ints({0}), ints({1}), values({1, 2}, 1), values({1, 3}, 2)});
    }
}

}  // namespace
}  // namespace troupe::testing
