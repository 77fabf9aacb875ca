// SPDX-License-Identifier: Apache-2.0
// Cases of complex64: the ops on parts of complex numbers, and the ops of other families on complex tensors.
#pragma once
#include <complex>

#include "tests/ops/op_case.h"

namespace troupe::testing {

inline Tensor Z(std::initializer_list<complex64> v) { return Tensor::of<complex64>(v); }
inline Tensor Z(std::initializer_list<complex64> v, const Shape& s) { return Tensor::of<complex64>(v, s); }

inline std::vector<OpCase> complex_cases() {
  using C = std::complex<double>;
  const Tensor x = Z({{0.5, 0.25}, {-0.75, 1.5}, {1.25, -0.5}, {-0.25, -1}}, {2, 2});
  const Tensor y = Z({{1.5, -0.75}, {0.5, 1}, {-1, 0.25}, {0.75, 0.5}}, {2, 2}), row = Z({{0.5, 1.5}, {-1.25, 0.5}});
  const Tensor real = F({1, -2}, {2, 1}), imag = F({0.5, 3}, {2});
  const Attrs adjoint = {{"adj_x", true}, {"adj_y", true}}, transposed = {{"transpose_a", true}, {"transpose_b", true}};
  std::vector<OpCase> out = {
      {"Complex", {real, imag}, {}, {Z({{1, 0.5}, {1, 3}, {-2, 0.5}, {-2, 3}}, {2, 2})}},
      {"Real", {Z({{1, 2}, {-3, 4}})}, {}, {F({1, -3}, {2})}},
      {"Imag", {Z({{1, 2}, {-3, 4}})}, {}, {F({2, 4}, {2})}},
      {"Conj", {Z({{1, 2}, {-3, 4}})}, {}, {Z({{1, -2}, {-3, -4}})}},
      {"Angle", {Z({{1, 1}, {-2, 0.5}})}, {}, {F({0.78539816f, 2.8966140f}, {2})}},
      {"Angle", {Z({{-1, 0}, {0, 0}})}, {}, {F({3.14159265f, 0}, {2})}, false},
      {"ComplexAbs", {Z({{3, 4}, {0, -2}})}, {}, {F({5, 2}, {2})}},
      {"ComplexAbs", {Z({{0, 0}})}, {}, {F({0}, {1})}, false},
      {"Real", {Z({}, {0, 2})}, {}, {F({}, {0, 2})}},
      {"Sum", {x, I(0)}, {}, {Z({{1.75, -0.25}, {-1, 0.5}})}},
      {"Mean", {x, I({0, 1})}, {}, {Tensor::scalar(complex64(0.1875f, 0.0625f))}},
      {"Prod", {x, I(1)}, {}, {Z({{-0.75, 0.5625}, {-0.8125, -1.125}})}},
      {"Prod", {Z({{0, 0}, {1, 2}, {0.5, 1}}), I(0)}, {}, {Tensor::scalar(complex64(0, 0))}},
      // Real functions, whose gradients TensorFlow takes as if they were analytic.
      {"SquaredDifference", {Z({{1, 2}, {3, 0}}), Z({{0, 4}, {3, 1}})}, {}, {Z({{5, 0}, {1, 0}})}, false},
      {"EuclideanNorm", {Z({{3, 0}, {0, 4}}), I(0)}, {}, {Tensor::scalar(complex64(5, 0))}, false},
      {"AddN", {x, y}},
      {"BroadcastTo", {row, I({2, 2})}},
      {"SelectV2", {B({true, false}), x, row}},
      {"Cast", {Z({{1.5, 2}})}, {{"DstT", DType::kFloat32}}, {F({1.5}, {1})}},
      {"Cast", {F({1.5}, {1})}, {{"DstT", DType::kComplex64}}, {Z({{1.5, 0}})}},
      {"GatherV2", {x, I({1, 1}), I(0)}},
      {"UnsortedSegmentSum", {x, I({0, 0}), I(2)}},
      {"MatMul", {x, y}},
      {"MatMul", {x, y}, transposed},
      {"BatchMatMulV2", {x, y}},
      {"BatchMatMulV2",
       {Z({{1, 2}, {0, 1}}, {2, 1}), Z({{2, 1}, {3, 0}}, {1, 2})},
       adjoint,
       {Tensor::of<complex64>({{0, -8}}, {1, 1})}},
  };
  const auto unary = [&](const char* op, C (*f)(C), const Tensor& at) {
    Tensor z = *Tensor::make(DType::kComplex64, at.shape());
    for (int64_t i = 0; i < z.elements(); ++i)
      z.mutable_data<complex64>()[i] = complex64(f(C(at.data<complex64>()[i])));
    out.push_back({op, {at}, {}, {z}});
  };
  unary(
      "Neg", [](C z) { return -z; }, x);
  unary(
      "Square", [](C z) { return z * z; }, x);
  unary(
      "Sqrt", [](C z) { return std::sqrt(z); }, x);
  unary(
      "Rsqrt", [](C z) { return 1.0 / std::sqrt(z); }, x);
  unary(
      "Reciprocal", [](C z) { return 1.0 / z; }, x);
  unary(
      "Inv", [](C z) { return 1.0 / z; }, x);
  unary(
      "Exp", [](C z) { return std::exp(z); }, x);
  unary(
      "Expm1", [](C z) { return std::exp(z) - 1.0; }, x);
  unary(
      "Log", [](C z) { return std::log(z); }, x);
  unary(
      "Log1p", [](C z) { return std::log(1.0 + z); }, x);
  unary(
      "Sin", [](C z) { return std::sin(z); }, x);
  unary(
      "Cos", [](C z) { return std::cos(z); }, x);
  unary(
      "Tan", [](C z) { return std::tan(z); }, x);
  unary(
      "Asin", [](C z) { return std::asin(z); }, x);
  unary(
      "Acos", [](C z) { return std::acos(z); }, x);
  unary(
      "Atan", [](C z) { return std::atan(z); }, x);
  unary(
      "Sinh", [](C z) { return std::sinh(z); }, x);
  unary(
      "Cosh", [](C z) { return std::cosh(z); }, x);
  unary(
      "Tanh", [](C z) { return std::tanh(z); }, x);
  unary(
      "Asinh", [](C z) { return std::asinh(z); }, x);
  unary(
      "Acosh", [](C z) { return std::acosh(z); }, y);
  unary(
      "Atanh", [](C z) { return std::atanh(z); }, x);
  unary(
      "Sigmoid", [](C z) { return 1.0 / (1.0 + std::exp(-z)); }, x);
  out.push_back({"Expm1", {Z({{1e-6f, 2e-6f}})}, {}, {Z({{1e-6f, 2e-6f}})}, false});
  out.push_back({"Sign", {Z({{3, 4}, {0, 0}})}, {}, {Z({{0.6f, 0.8f}, {0, 0}})}});
  for (const char* op : {"SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"})
    out.push_back({op, {x, y}});
  const auto binary = [&](const char* op, C (*f)(C, C)) {
    for (const Tensor& second : {y, row, Z({{0.25, -1}}, {})}) {
      Tensor z = *Tensor::make(DType::kComplex64, x.shape());
      for (int64_t i = 0; i < 4; ++i)
        z.mutable_data<complex64>()[i] =
            complex64(f(C(x.data<complex64>()[i]), C(second.data<complex64>()[i % second.elements()])));
      out.push_back({op, {x, second}, {}, {z}});
    }
  };
  binary("Add", [](C a, C b) { return a + b; });
  binary("AddV2", [](C a, C b) { return a + b; });
  binary("Sub", [](C a, C b) { return a - b; });
  binary("Mul", [](C a, C b) { return a * b; });
  binary("Div", [](C a, C b) { return a / b; });
  binary("RealDiv", [](C a, C b) { return a / b; });
  binary("Pow", [](C a, C b) { return std::pow(a, b); });
  return out;
}

}  // namespace troupe::testing
