// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropies on GPUs give what they give on CPUs; sums are added in another order.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1e-5;
    case DType::kFloat64: return 1e-13;
    case DType::kFloat16: return 2e-3;
    default: return 1e-2;
  }
}

TEST_CASE("Softmax on GPUs agrees with that of CPUs") {
  Parity parity;
  for (const char* op : {"Softmax", "LogSoftmax"})
    for (DType dtype : gpu_types(parity, op))
      for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{3, 0}, Shape{0, 3}, Shape{40, 10}, Shape{3, 33},
                                 Shape{2, 3, 1030}, Shape{1, 5000}}) {
        parity.check({op, {random_values(dtype, shape, 1)}, {}, tolerance_of(dtype)});
        parity.check({op, {random_values(dtype, shape, 2, true)}, {}, tolerance_of(dtype)});
      }
}

TEST_CASE("Cross-entropies on GPUs agree with those of CPUs, broadcasting") {
  Parity parity;
  const char* op = "SoftmaxCrossEntropyWithLogits";
  for (DType dtype : gpu_types(parity, op))
    for (const auto& [x, labels] : std::vector<std::pair<Shape, Shape>>{{Shape{5, 10}, Shape{5, 10}},
                                                                        {Shape{1, 10}, Shape{5, 10}},
                                                                        {Shape{5, 10}, Shape{1, 10}},
                                                                        {Shape{5, 1}, Shape{5, 10}},
                                                                        {Shape{5, 10}, Shape{5, 1}},
                                                                        {Shape{3, 1100}, Shape{3, 1100}},
                                                                        {Shape{0, 3}, Shape{0, 3}},
                                                                        {Shape{3, 0}, Shape{3, 0}},
                                                                        {Shape{5, 10}, Shape{4, 10}},  // errors
                                                                        {Shape{5}, Shape{5}}}) {
      // Losses add up a row of labels.
      const double tolerance = tolerance_of(dtype) * (x.rank() > 1 && x[1] > 1000 ? 20 : 2);
      parity.check({op, {random_values(dtype, x, 3), random_values(dtype, labels, 4)}, {}, tolerance});
    }
}

TEST_CASE("Sparse cross-entropies on GPUs agree with those of CPUs") {
  Parity parity;
  const char* op = "SparseSoftmaxCrossEntropyWithLogits";
  for (DType dtype : FloatTypes::dtypes())
    for (DType label_type : IndexTypes::dtypes())
      for (const Shape& shape : {Shape{5, 10}, Shape{1, 1}, Shape{70, 33}, Shape{3, 1100}, Shape{0, 3}}) {
        Tensor labels = *Tensor::make(label_type, Shape{shape[0]});
        with_type(label_type, IndexTypes{}, [&]<class I>() {
          for (int64_t i = 0; i < shape[0]; ++i)
            labels.mutable_data<I>()[i] = static_cast<I>((i * 7 + shape[1] - 1) % shape[1]);
        });
        parity.check({op, {random_values(dtype, shape, 5), labels}, {}, tolerance_of(dtype)});
      }
  parity.check({op, {random_values(DType::kFloat32, Shape{5, 3}, 5), Tensor::of<int32_t>({1, 2})}});
}

TEST_CASE("Labels that are not columns make losses and gradients of GPUs NaN") {
  Parity parity;
  const Tensor x = random_values(DType::kFloat32, Shape{4, 3}, 6);
  const Tensor labels = Tensor::of<int32_t>({0, 3, -1, 2});
  for (auto layout : {Parity::Layout::kOwn, Parity::Layout::kShared}) {
    const auto out = parity.run(DeviceKind::kCuda, {"SparseSoftmaxCrossEntropyWithLogits", {x, labels}}, layout);
    REQUIRE(out.ok());
    for (int r = 0; r < 4; ++r) {
      const bool known = r == 0 || r == 3;
      CHECK(std::isfinite((*out)[0].data<float>()[r]) == known);
      for (int i = 0; i < 3; ++i) CHECK(std::isfinite((*out)[1].data<float>()[r * 3 + i]) == known);
    }
  }
}

}  // namespace
}  // namespace troupe::testing
