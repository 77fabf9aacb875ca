// SPDX-License-Identifier: Apache-2.0
// Activations and their gradients give on GPUs what they give on CPUs, bit for bit.
#include <cmath>
#include <limits>

#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("Activations on GPUs agree with those of CPUs") {
  Parity parity;
  check_unary(parity, {"Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu", "Sigmoid", "Tanh",
                       "_GeluApproximate", "_GeluExact"});
}

TEST_CASE("Gradients of activations on GPUs agree with those of CPUs") {
  Parity parity;
  check_same_shape(parity,
                   {"ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad", "LeakyReluGrad",
                    "SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"});
}

TEST_CASE("Gradients of GELU on GPUs agree with those of CPUs") {
  Parity parity;
  for (const char* op : {"_GeluApproximateGrad", "_GeluExactGrad"})
    for (DType dtype : gpu_types(parity, op)) {
      // Where their terms cancel, an error of the curve is large beside the result.
      const double tolerance = dtype == DType::kFloat32 ? 1e-5 : 0;
      for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{6, 171}})
        parity.check({op, {random_values(dtype, shape, 5, true), random_values(dtype, shape, 6, true)}, {}, tolerance});
      parity.check({op, {random_values(dtype, Shape{3}, 5), random_values(dtype, Shape{1}, 6)}});  // an error
    }
}

TEMPLATE_TEST_CASE("Where GELU is flat its gradient is 0 or dy", "", float, double) {
  constexpr TestType kInfinity = std::numeric_limits<TestType>::infinity();
  const auto huge = std::numeric_limits<TestType>::max();
  Parity parity;
  for (const char* op : {"_GeluApproximateGrad", "_GeluExactGrad"})
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      const Tensor x = Tensor::of<TestType>({kInfinity, huge, TestType(1e9), -kInfinity, -huge, TestType(-1e9), NAN}),
                   dy = Tensor::of<TestType>({2, 2, 2, 2, 2, 2, 2});
      const auto dx = parity.run(kind, {op, {dy, x}});
      REQUIRE(dx.ok());
      for (int64_t i = 0; i < 6; ++i) CHECK((*dx)[0].template data<TestType>()[i] == TestType(i < 3 ? 2 : 0));
      CHECK(std::isnan((*dx)[0].template data<TestType>()[6]));
    }
}

TEST_CASE("Kernels of GPUs take the slope of leaky activations from their node") {
  Parity parity;
  for (DType dtype : FloatTypes::dtypes()) {
    const Tensor x = random_values(dtype, Shape{77}, 9, true);
    parity.check({"LeakyRelu", {x}, {{"alpha", 0.37f}}});
    parity.check({"LeakyReluGrad", {random_values(dtype, Shape{77}, 10, true), x}, {{"alpha", 0.37f}}});
  }
}

}  // namespace
}  // namespace troupe::testing
