// SPDX-License-Identifier: Apache-2.0
// Choices and sums of many tensors give on GPUs what they give on CPUs, bit for bit.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Choices on GPUs agree with those of CPUs") {
  Parity parity;
  std::vector<DType> types = gpu_types(parity, "Equal");
  types.push_back(DType::kUInt8);
  types.push_back(DType::kComplex64);
  types.push_back(DType::kComplex128);
  for (DType dtype : types) {
    const auto select = [&](const char* op, const Shape& condition, const Shape& then, const Shape& other) {
      const auto values = [&](const Shape& shape, uint64_t seed) {
        if (!is_complex(dtype)) return random_values(dtype, shape, seed, true);
        Tensor x = *Tensor::make(dtype, shape);
        with_type(dtype, ComplexTypes{}, [&]<class T>() {
          for (int64_t i = 0; i < x.elements(); ++i) x.mutable_data<T>()[i] = {Real<T>(i), Real<T>(seed)};
        });
        return x;
      };
      parity.check({op, {random_values(DType::kBool, condition, 1), values(then, 2), values(other, 3)}});
    };
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{1027}}) select("SelectV2", shape, shape, shape);
    select("SelectV2", Shape{4, 1}, Shape{3}, Shape{});
    select("SelectV2", Shape{}, Shape{5, 3}, Shape{5, 3});
    select("SelectV2", Shape{5, 3}, Shape{}, Shape{});
    select("SelectV2", Shape{3}, Shape{2}, Shape{});  // an error
    select("Select", Shape{5}, Shape{5, 3}, Shape{5, 3});
    select("Select", Shape{}, Shape{5, 3}, Shape{5, 3});
    select("Select", Shape{5, 3}, Shape{5, 3}, Shape{5, 3});
    select("Select", Shape{3}, Shape{5, 3}, Shape{5, 3});  // errors
    select("Select", Shape{5}, Shape{5, 3}, Shape{5});
  }
}

TEST_CASE("Sums of many tensors on GPUs agree with those of CPUs") {
  Parity parity;
  for (const char* op : {"AddN", "AccumulateNV2"})
    for (DType dtype : gpu_types(parity, op))
      for (int n : {1, 2, 5, 128, 129, 300}) {
        // Integers, since beyond 128 inputs sums of 16-bit floats are rounded on the way.
        std::vector<Tensor> inputs;
        for (int i = 0; i < n; ++i) {
          const Tensor x = random_values(DType::kInt32, Shape{3, 111}, 20 + i);
          inputs.push_back((*parity.run(DeviceKind::kCpu, {"Cast", {x}, {{"DstT", dtype}}}))[0]);
        }
        Attrs attrs;
        if (op[1] == 'c') attrs.set("shape", PartialShape{3, 111});
        parity.check({op, inputs, attrs});
      }
  parity.check({"AddN", {random_values(DType::kFloat32, Shape{3}, 1), random_values(DType::kFloat32, Shape{4}, 1)}});
}

}  // namespace
}  // namespace troupe::testing
