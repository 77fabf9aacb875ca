// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropies against their definitions, gradients of first and second order, and bad labels.
#include <cmath>

#include "tests/ops/check_op.h"

namespace troupe::testing {
namespace {

std::vector<double> log_softmax(const std::vector<double>& x, int64_t n) {
  std::vector<double> out(x.size());
  for (size_t r = 0; r < x.size(); r += n) {
    const double most = *std::max_element(x.begin() + r, x.begin() + r + n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x[r + i] - most);
    for (int64_t i = 0; i < n; ++i) out[r + i] = x[r + i] - most - std::log(sum);
  }
  return out;
}

TEST_CASE("Softmax and LogSoftmax agree with their definitions") {
  for (const Shape& s : {Shape{64, 10}, Shape{3, 4, 1001}, Shape{7}, Shape{5, 1}, Shape{0, 3}, Shape{700, 21},
                         Shape{2, 5000}, Shape{3, 0}})
    for (int threads : {1, 2}) {
      const Tensor x = random_tensor<float>(s, 1);
      const std::vector<double> want = log_softmax(doubles(x), s.dim(-1));
      std::vector<double> exp(want.size());
      for (size_t i = 0; i < want.size(); ++i) exp[i] = std::exp(want[i]);
      check_close(doubles(*apply("LogSoftmax", {x}, {}, 0, threads)), want, 1e-5);
      check_close(doubles(*apply("Softmax", {x}, {}, 0, threads)), exp, 1e-6);
    }
}

TEST_CASE("Softmax of large logits is finite") {
  const Tensor x = Tensor::of<float>({1000, 999, -1000}, {1, 3});
  check_close(doubles(*apply("Softmax", {x})), {0.731058579, 0.268941421, 0}, 1e-6);
  check_close(doubles(*apply("LogSoftmax", {x})), {-0.313261688, -1.313261688, -2000.313261688}, 1e-6);
}

TEST_CASE("Cross-entropies agree with their definitions and with each other") {
  const Tensor x = random_tensor<float>({64, 10}, 1), labels = *apply("Softmax", {random_tensor<float>({64, 10}, 2)});
  const std::vector<double> logs = log_softmax(doubles(x), 10), p = doubles(labels);
  std::vector<double> loss(64), back(640);
  for (int i = 0; i < 640; ++i) {
    loss[i / 10] -= p[i] * logs[i];
    back[i] = std::exp(logs[i]) - p[i];
  }
  check_close(doubles(*apply("SoftmaxCrossEntropyWithLogits", {x, labels})), loss, 1e-5);
  check_close(doubles(*apply("SoftmaxCrossEntropyWithLogits", {x, labels}, {}, 1)), back, 1e-5);
  Tensor classes = *Tensor::zeros(DType::kInt64, {64}), hot = *Tensor::zeros(DType::kFloat32, {64, 10});
  for (int i = 0; i < 64; ++i) {
    classes.mutable_data<int64_t>()[i] = i % 10;
    hot.mutable_data<float>()[i * 10 + i % 10] = 1;
  }
  for (int port : {0, 1})
    check_close(doubles(*apply("SparseSoftmaxCrossEntropyWithLogits", {x, classes}, {}, port, 2)),
                doubles(*apply("SoftmaxCrossEntropyWithLogits", {x, hot}, {}, port, 2)), 1e-6);
  const auto one = apply("SoftmaxCrossEntropyWithLogits", {x, *labels.slice(0, 1)});
  REQUIRE(one.ok());
  CHECK(one->shape() == Shape{64});
}

TEST_CASE("Gradients of softmax and cross-entropies agree with finite differences") {
  const Tensor x = random_tensor<double>({3, 5}, 1), labels = *apply("Softmax", {random_tensor<double>({3, 5}, 2)});
  check_gradients("Softmax", {x});
  check_gradients("LogSoftmax", {x});
  const Tensor classes = Tensor::of<int32_t>({4, 0, 2});
  for (int port : {0, 1}) {
    check_gradients("SoftmaxCrossEntropyWithLogits", {x, labels}, {}, {0, 1}, port);
    check_gradients("SparseSoftmaxCrossEntropyWithLogits", {x, classes}, {}, {0}, port);
  }
}

TEST_CASE("A label out of range, or shapes that do not fit, are errors") {
  const Tensor x = random_tensor<float>({3, 5}, 1);
  for (int64_t bad : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
    const auto r = apply("SparseSoftmaxCrossEntropyWithLogits", {x, Tensor::of<int64_t>({0, bad, 1})});
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().str(), Catch::Contains(fmt::format("label {} of row 1 is not in [0, 5)", bad)));
  }
  const Tensor two = Tensor::of<int32_t>({0, 1}), scalar = Tensor::scalar<float>(1);
  CHECK_FALSE(apply("SparseSoftmaxCrossEntropyWithLogits", {x, two}).ok());
  CHECK_FALSE(apply_unshaped("SparseSoftmaxCrossEntropyWithLogits", {x, two}).ok());
  CHECK_FALSE(apply_unshaped("SoftmaxCrossEntropyWithLogits", {x, random_tensor<float>({2, 5}, 1)}).ok());
  CHECK_FALSE(apply("Softmax", {scalar}).ok());
  CHECK_FALSE(apply_unshaped("LogSoftmax", {scalar}).ok());
}

}  // namespace
}  // namespace troupe::testing
