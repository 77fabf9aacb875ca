// SPDX-License-Identifier: Apache-2.0
// Sequences that GPUs reverse are those of CPUs; lengths that are out of range count as the nearest that are not.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Reversed sequences on GPUs agree with those of CPUs") {
  Parity parity;
  struct Case {
    Shape shape;
    int64_t sequence, batch;
    std::vector<int64_t> lengths;
  };
  const Case cases[] = {{Shape{4, 5}, 1, 0, {0, 1, 3, 5}},
                        {Shape{5, 4}, 0, 1, {0, 1, 3, 5}},
                        {Shape{3, 70, 16}, 1, 0, {70, 33, 2}},
                        {Shape{70, 3, 5}, 0, 1, {70, 33, 2}},
                        {Shape{2, 6, 3, 4, 5}, 3, 1, {4, 3, 0, 1, 2, 4}},
                        {Shape{2, 6, 3, 4, 5}, -4, -2, {4, 3, 0, 6}},
                        {Shape{2, 0}, 1, 0, {0, 0}},
                        {Shape{4, 5}, 1, 0, {0, 1, 3}},  // errors
                        {Shape{4, 5}, 1, 1, {0, 1, 3, 5, 2}},
                        {Shape{4, 5}, 2, 0, {0, 1, 3, 5}}};
  for (DType dtype : {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kBool})
    for (const Case& c : cases) {
      const Attrs attrs = {{"seq_dim", c.sequence}, {"batch_dim", c.batch}};
      const Tensor x = random_values(dtype, c.shape, 1);
      const std::vector<int32_t> narrow(c.lengths.begin(), c.lengths.end());
      parity.check({"ReverseSequence", {x, Tensor::of<int64_t>(std::span(c.lengths))}, attrs});
      parity.check({"ReverseSequence", {x, Tensor::of<int32_t>(std::span(narrow))}, attrs});
    }
  parity.check({"ReverseSequence",
                {random_values(DType::kFloat32, Shape{4, 5}, 1), Tensor::of<int64_t>({1, 2, 3, 4}, Shape{2, 2})},
                {{"seq_dim", int64_t{1}}}});
  const auto out = parity.run(
      DeviceKind::kCuda, {"ReverseSequence",
                          {Tensor::of<float>({1, 2, 3, 4}, Shape{2, 2}), Tensor::of<int64_t>({INT64_MAX, INT64_MIN})},
                          {{"seq_dim", int64_t{1}}}});
  REQUIRE(out.ok());
  CHECK((*out)[0].identical(Tensor::of<float>({2, 1, 3, 4}, Shape{2, 2})));
}

}  // namespace
}  // namespace troupe::testing
