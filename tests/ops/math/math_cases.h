// SPDX-License-Identifier: Apache-2.0
// Cases of the constant, unary, binary and reduction families.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/op_case.h"

namespace troupe::testing {

inline std::vector<OpCase> const_cases() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<OpCase> out = {
      {"Identity", {ramp({2, 3})}},
      {"EnsureShape", {ramp({2, 3})}, {{"shape", PartialShape{-1, 3}}}, {ramp({2, 3})}},
      {"GuaranteeConst", {ramp({2})}, {}, {ramp({2})}, false},
      {"IdentityN", {ramp({2}), ramp({3})}},
      {"StopGradient", {ramp({2})}, {}, {}, false},
      {"PreventGradient", {ramp({2})}, {}, {}, false},
      {"CheckNumerics", {ramp({3})}, {{"message", std::string("m")}}},
      {"PlaceholderWithDefault", {ramp({2})}, {{"shape", PartialShape{-1}}}},
      {"ZerosLike", {D({1, 2})}, {}, {D({0, 0})}},
      {"OnesLike", {D({3, 2})}, {}, {D({1, 1})}},
      {"OnesLike", {B({false})}, {}, {B({true})}},
      {"Shape", {ramp({2, 3})}, {}, {I({2, 3})}},
      {"Shape", {ramp({2, 3})}, {{"out_type", DType::kInt64}}, {L({2, 3})}},
      {"ShapeN", {ramp({2}), ramp({1, 3})}, {}, {I({2}), I({1, 3})}},
      {"Size", {ramp({2, 3})}, {}, {I(6)}},
      {"Rank", {ramp({2, 3})}, {}, {I(2)}},
      {"Rank", {D(1)}, {}, {I(0)}},
      {"Fill", {I({2, 2}), D(3)}, {}, {D({3, 3, 3, 3}, {2, 2})}},
      {"Fill", {L({0}), D(3)}, {}, {D({})}},
      {"Empty", {I({2, 1})}, {{"dtype", DType::kInt64}}, {L({0, 0}, {2, 1})}},
      {"Range", {I(1), I(8), I(3)}, {}, {I({1, 4, 7})}},
      {"Range", {D(1), D(0), D(-0.25)}, {}, {D({1, .75, .5, .25})}},
      {"Range", {I(3), I(3), I(1)}, {}, {I({})}},
      {"Range", {L(INT64_MIN), L(INT64_MAX), L(INT64_MAX)}, {}, {L({INT64_MIN, -1, INT64_MAX - 1})}},
      {"IsNan", {D({1, nan})}, {}, {B({false, true})}},
      {"IsInf", {D({1, -INFINITY})}, {}, {B({false, true})}},
      {"IsFinite", {D({1, nan, INFINITY})}, {}, {B({true, false, false})}},
      {"LogicalNot", {B({true, false})}, {}, {B({false, true})}},
  };
  return out;
}

inline std::vector<OpCase> unary_cases() {
  std::vector<OpCase> out;
  const auto add = [&](const char* op, std::initializer_list<double> x, double (*f)(double), bool gradient = true) {
    Tensor y = *Tensor::make(DType::kFloat64, Shape{static_cast<int64_t>(x.size())});
    int64_t i = 0;
    for (double v : x) y.mutable_data<double>()[i++] = f(v);
    out.push_back({op, {D(x)}, {}, {y}, gradient});
  };
  add("Neg", {1, -2.5, 0}, [](double x) { return -x; });
  add("Abs", {1, -2.5, 3}, [](double x) { return std::fabs(x); });
  add("Sign", {1, -2.5, 0}, [](double x) { return double((x > 0) - (x < 0)); });
  add("Square", {1, -2.5, 0}, [](double x) { return x * x; });
  add("Sqrt", {1, 2.5, 16}, [](double x) { return std::sqrt(x); });
  add("Rsqrt", {1, 2.5, 16}, [](double x) { return 1 / std::sqrt(x); });
  add("Reciprocal", {1, -2.5, 16}, [](double x) { return 1 / x; });
  add("Inv", {1, -2.5, 16}, [](double x) { return 1 / x; });
  add("Exp", {0, 1, -2.5, 4.25}, [](double x) { return std::exp(x); });
  add("Expm1", {0, 1, -2.5, 1e-3}, [](double x) { return std::expm1(x); });
  add("Log", {1, 0.25, 20}, [](double x) { return std::log(x); });
  add("Log1p", {1, -0.25, 20}, [](double x) { return std::log1p(x); });
  add("Sin", {0, 1, -2.5}, [](double x) { return std::sin(x); });
  add("Cos", {0.25, 1, -2.5}, [](double x) { return std::cos(x); });
  add("Tan", {0, 1, -0.5}, [](double x) { return std::tan(x); });
  add("Asin", {0, 0.5, -0.75}, [](double x) { return std::asin(x); });
  add("Acos", {0, 0.5, -0.75}, [](double x) { return std::acos(x); });
  add("Atan", {0, 0.5, -2.75}, [](double x) { return std::atan(x); });
  add("Sinh", {0, 0.5, -2.75}, [](double x) { return std::sinh(x); });
  add("Cosh", {0, 0.5, -2.75}, [](double x) { return std::cosh(x); });
  add("Asinh", {0, 0.5, -2.75}, [](double x) { return std::asinh(x); });
  add("Acosh", {1.25, 1.5, 4}, [](double x) { return std::acosh(x); });
  add("Atanh", {0, 0.5, -0.75}, [](double x) { return std::atanh(x); });
  add("Erf", {0, 0.5, -1.75}, [](double x) { return std::erf(x); });
  add("Erfc", {0, 0.5, -1.75}, [](double x) { return std::erfc(x); });
  add("Floor", {0.5, -1.5, 2}, [](double x) { return std::floor(x); });
  add("Ceil", {0.5, -1.5, 2}, [](double x) { return std::ceil(x); });
  add("Rint", {0.5, -1.5, 2.5, 1.75}, [](double x) { return std::nearbyint(x); });
  add("Round", {0.5, -1.5, 2.5, 1.75}, [](double x) { return std::nearbyint(x); });
  add("Sigmoid", {0, 1, -2.5, 8}, [](double x) { return 1 / (1 + std::exp(-x)); });
  add("Tanh", {0, 1, -2.5, 0.01, 8}, [](double x) { return std::tanh(x); });
  add("Relu", {0.5, -1.5, 20}, [](double x) { return std::max(x, 0.0); });
  add("Relu6", {0.5, -1.5, 20}, [](double x) { return std::clamp(x, 0.0, 6.0); });
  add("Elu", {0.5, -1.5, 20}, [](double x) { return x < 0 ? std::expm1(x) : x; });
  add("Selu", {0.5, -1.5, 20},
      [](double x) { return 1.0507009873554805 * (x < 0 ? 1.6732632423543772 * std::expm1(x) : x); });
  add("Softplus", {0.5, -1.5, 20, 0}, [](double x) { return std::log1p(std::exp(x)); });
  add("Softsign", {0.5, -1.5, 20}, [](double x) { return x / (1 + std::fabs(x)); });
  add("_GeluApproximate", {0.5, -1.5, 20, 0},
      [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); });
  add("_GeluExact", {0.5, -1.5, 20, 0}, [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); });
  out.push_back({"LeakyRelu", {D({0.5, -2})}, {{"alpha", 0.25f}}, {D({0.5, -0.5})}});
  const Tensor g = D({1.5, -2.5, 0.5}), x = D({0.75, -1.25, 2.5}), y = D({0.25, 0.5, 0.75});
  for (const char* op :
       {"ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad", "LeakyReluGrad"})
    out.push_back({op, {g, op[0] == 'E' ? D({0.75, -0.5, 2.5}) : x}});
  const auto slope = [&](const char* op, double (*f)(double)) {
    out.push_back({op, {g, x}, {}, {D({1.5 * f(0.75), -2.5 * f(-1.25), 0.5 * f(2.5)})}});
  };
  slope("_GeluApproximateGrad", [](double v) {
    const double root = std::sqrt(2 / M_PI), curve = std::tanh(root * (v + 0.044715 * v * v * v));
    return (1 + curve) / 2 + v / 2 * (1 - curve * curve) * root * (1 + 3 * 0.044715 * v * v);
  });
  slope("_GeluExactGrad", [](double v) {
    return (1 + std::erf(v / std::sqrt(2.0))) / 2 + v * std::exp(-v * v / 2) / std::sqrt(2 * M_PI);
  });
  for (const char* op : {"SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"})
    out.push_back({op, {y, g}});
  return out;
}

inline std::vector<OpCase> binary_cases() {
  std::vector<OpCase> out;
  const Tensor a = D({7.5, -3.25, 2.125, 6}, {2, 2}), b = D({2, -1.75, 3, -4}, {2, 2}), row = D({1.75, -2.5}),
               one = D(1.375);
  const auto add = [&](const char* op, double (*f)(double, double), bool positive = false) {
    const auto of = [&](const Tensor& x, const Tensor& y) {
      const auto at = [&](const Tensor& t, int64_t i) {
        return t.data<double>()[t.rank() == 0 ? 0 : t.rank() == 1 ? i % 2 : i];
      };
      const Tensor& big = x.rank() >= y.rank() ? x : y;
      Tensor z = *Tensor::make(DType::kFloat64, big.shape());
      for (int64_t i = 0; i < z.elements(); ++i) z.mutable_data<double>()[i] = f(at(x, i), at(y, i));
      out.push_back({op, {x, y}, {}, {z}});
    };
    if (positive) {
      const Tensor p = D({7.5, 3.25, 2.125, 6}, {2, 2});
      of(p, b), of(p, row), of(p, one), of(D(2.25), b);
    } else {
      of(a, b), of(a, row), of(row, a), of(a, one), of(one, b), of(one, D(-0.5));
    }
  };
  add("Add", [](double x, double y) { return x + y; });
  add("AddV2", [](double x, double y) { return x + y; });
  add("Sub", [](double x, double y) { return x - y; });
  add("Mul", [](double x, double y) { return x * y; });
  add("Div", [](double x, double y) { return x / y; });
  add("RealDiv", [](double x, double y) { return x / y; });
  add("FloorDiv", [](double x, double y) { return std::floor(x / y); });
  add("Mod", [](double x, double y) { return std::fmod(x, y); });
  add("FloorMod", [](double x, double y) { return x - y * std::floor(x / y); });
  add(
      "Pow", [](double x, double y) { return std::pow(x, y); }, true);
  add("Maximum", [](double x, double y) { return std::max(x, y); });
  add("Minimum", [](double x, double y) { return std::min(x, y); });
  add("SquaredDifference", [](double x, double y) { return (x - y) * (x - y); });
  const Tensor i = I({7, -7, 7, -7}), j = I({2, 2, -2, -2});
  out.push_back({"TruncateDiv", {i, j}, {}, {I({3, -3, -3, 3})}});
  out.push_back({"Div", {i, j}, {}, {I({3, -3, -3, 3})}});
  out.push_back({"FloorDiv", {i, j}, {}, {I({3, -4, -4, 3})}});
  out.push_back({"Mod", {i, j}, {}, {I({1, -1, 1, -1})}});
  out.push_back({"FloorMod", {i, j}, {}, {I({1, 1, -1, -1})}});
  out.push_back({"FloorDiv", {I({INT32_MIN}), I({-1})}, {}, {I({INT32_MIN})}});
  out.push_back({"Mod", {I({INT32_MIN}), I({-1})}, {}, {I({0})}});
  out.push_back({"Pow", {I({3, -2, 5}), I({4, 3, 0})}, {}, {I({81, -8, 1})}});
  for (const char* op : {"Div", "TruncateDiv", "FloorDiv"})
    out.push_back({op, {L({INT64_MIN}), L(-1)}, {}, {L({INT64_MIN})}});
  for (const char* op : {"Mod", "FloorMod"}) out.push_back({op, {L({INT64_MIN}), L(-1)}, {}, {L({0})}});
  // Integers wrap around.
  out.push_back({"Add", {I({INT32_MAX}), I(1)}, {}, {I({INT32_MIN})}});
  const auto words = [](std::initializer_list<std::string> s) { return Tensor::of<std::string>(s); };
  out.push_back({"Add", {words({"a", ""}), words({"bc"})}, {}, {words({"abc", "bc"})}});
  out.push_back({"AddV2", {L({INT64_MAX}), L({1})}, {}, {L({INT64_MIN})}});
  out.push_back({"Sub", {L({INT64_MIN}), L({1})}, {}, {L({INT64_MAX})}});
  out.push_back(
      {"Mul", {Tensor::of<uint16_t>({65535}), Tensor::of<uint16_t>({65535})}, {}, {Tensor::of<uint16_t>({1})}});
  out.push_back({"Mul", {L({INT64_MIN}), L({-1})}, {}, {L({INT64_MIN})}});
  out.push_back({"Neg", {I({INT32_MIN})}, {}, {I({INT32_MIN})}});
  out.push_back({"Abs", {L({INT64_MIN})}, {}, {L({INT64_MIN})}});
  out.push_back({"Square", {I({65536})}, {}, {I({0})}});
  out.push_back({"SquaredDifference", {I({INT32_MIN}), I({1})}, {}, {I({1})}});
  out.push_back({"Pow", {L({3}), L({41})}, {}, {L({-420491770248316829})}});
  out.push_back({"AddN", {L({INT64_MAX}), L({1}), L({1})}, {}, {L({INT64_MIN + 1})}});
  out.push_back({"AddN", {I({INT32_MIN}), I({-1})}, {}, {I({INT32_MAX})}});
  out.push_back({"Sum", {L({INT64_MAX, 1}), I(0)}, {}, {L(INT64_MIN)}});
  out.push_back({"Prod", {L({INT64_MIN, -1}), I(0)}, {}, {L(INT64_MIN)}});
  out.push_back({"MatMul", {L({INT64_MAX}, {1, 1}), L({2}, {1, 1})}, {}, {L({-2}, {1, 1})}});
  const Tensor p = D({1, 2, 3}), q = D({2, 2, 2});
  out.push_back({"Less", {p, q}, {}, {B({true, false, false})}});
  out.push_back({"LessEqual", {p, q}, {}, {B({true, true, false})}});
  out.push_back({"Greater", {p, q}, {}, {B({false, false, true})}});
  out.push_back({"GreaterEqual", {p, D(2)}, {}, {B({false, true, true})}});
  out.push_back({"Equal", {p, q}, {}, {B({false, true, false})}});
  out.push_back({"NotEqual", {p, q}, {}, {B({true, false, true})}});
  out.push_back(
      {"Equal", {Tensor::of<std::string>({"a", "b"}), Tensor::scalar<std::string>("b")}, {}, {B({false, true})}});
  out.push_back({"Equal", {p, D({1, 2})}, {{"incompatible_shape_error", false}}, {Tensor::scalar(false)}});
  out.push_back({"LogicalAnd", {B({true, true, false}), B({true, false, false})}, {}, {B({true, false, false})}});
  out.push_back({"LogicalOr", {B({true, true, false}), Tensor::scalar(false)}, {}, {B({true, true, false})}});
  out.push_back({"Select", {B({true, false}), a, b}, {}, {D({7.5, -3.25, 3, -4}, {2, 2})}});
  out.push_back({"Select", {Tensor::scalar(false), a, b}, {}, {b}});
  out.push_back({"SelectV2", {B({true, false}), a, D(0.5)}, {}, {D({7.5, 0.5, 2.125, 0.5}, {2, 2})}});
  out.push_back({"SelectV2", {B({true, false}, {2, 1}), row, b}, {}, {D({1.75, -2.5, 3, -4}, {2, 2})}});
  out.push_back({"AddN", {p, q, p}, {}, {D({4, 6, 8})}});
  out.push_back({"AddN", {p}, {}, {p}});
  out.push_back({"AccumulateNV2", {p, q, p}, {{"shape", PartialShape{3}}}, {D({4, 6, 8})}});
  out.push_back({"ClipByValue", {D({-2, 0.5, 3}), D(-1.5), D(2.5)}, {}, {D({-1.5, 0.5, 2.5})}});
  out.push_back(
      {"BroadcastTo", {D({1, 2}, {2, 1}), I({2, 2, 3})}, {}, {D({1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}, {2, 2, 3})}});
  out.push_back({"BroadcastGradientArgs", {I({2, 3, 1}), I({3, 4})}, {}, {I({2}), I({0})}});
  out.push_back({"BroadcastGradientArgs", {I({1, 4}), I({1, 1})}, {}, {I({0}), I({0, 1})}});
  out.push_back({"BroadcastGradientArgs", {I({1, 1}), I({1, 1})}, {}, {I({}), I({})}});
  return out;
}

inline std::vector<OpCase> reduction_cases() {
  const Tensor x = D({1, -2, 3, 4.5, 5, -6.25}, {2, 3});
  const Attrs keep = {{"keep_dims", true}};
  return {
      {"Sum", {x, I(0)}, {}, {D({5.5, 3, -3.25})}},
      {"Sum", {x, I({-1})}, {}, {D({2, 3.25})}},
      {"Sum", {x, L({0, 1})}, keep, {D({5.25}, {1, 1})}},
      {"Sum", {x, I({})}, {}, {x}},
      {"Sum", {ramp({2, 3, 4, 2}), I({0, 2})}},
      {"Sum", {ramp({2, 3, 4, 2}), I({1, 3})}, keep},
      {"Sum", {D({}, {0, 3}), I(0)}, {}, {D({0, 0, 0})}},
      {"Sum", {D(4), I({})}, {}, {D(4)}},
      {"Mean", {x, I(0)}, {}, {D({2.75, 1.5, -1.625})}},
      {"Mean", {x, I({0, 1})}, {}, {D(0.875)}},
      {"Mean", {I({1, 2, 4}), I(0)}, {}, {I(2)}},
      {"Prod", {x, I(1)}, {}, {D({-6, -140.625})}},
      {"Prod", {D({0, 2, 3, 4, 0, 0}, {2, 3}), I(1)}, {}, {D({0, 0})}},
      {"Max", {x, I(1)}, {}, {D({3, 5})}},
      {"Min", {x, I(0)}, keep, {D({1, -2, -6.25}, {1, 3})}},
      {"Max", {D({}, {2, 0}), I(1)}, {}, {D({-INFINITY, -INFINITY})}, false},
      {"EuclideanNorm", {D({3, 4, 5, 12}, {2, 2}), I(1)}, {}, {D({5, 13})}},
      {"L2Loss", {D({3, 4})}, {}, {D(12.5)}},
      {"All", {B({true, false, true, true}, {2, 2}), I(1)}, {}, {B({false, true})}},
      {"Any", {B({true, false, false, false}, {2, 2}), I(1)}, {}, {B({true, false})}},
      {"ArgMax", {x, I(1)}, {}, {L({2, 1})}},
      {"ArgMax",
       {B({false, true, true}), Tensor::scalar<int16_t>(0)},
       {{"output_type", DType::kInt16}},
       {Tensor::scalar<int16_t>(1)}},
      {"ArgMin", {B({true, false}), I(0)}, {}, {L(1)}},
      {"ArgMax", {D({1, 3, 3}), I(0)}, {{"output_type", DType::kInt32}}, {I(1)}},
      {"ArgMin", {x, I(-2)}, {}, {L({0, 0, 1})}},
      // NaN is neither the largest nor the smallest, wherever it is.
      {"ArgMax", {D({NAN, 1, 3, 1, NAN, 3, NAN, NAN, NAN, NAN, -INFINITY, -1}, {4, 3}), I(1)}, {}, {L({2, 2, 0, 2})}},
      {"ArgMin", {D({NAN, 1, 3, 3, NAN, 1, NAN, NAN, NAN, NAN, INFINITY, 1}, {4, 3}), I(1)}, {}, {L({1, 2, 0, 2})}},
  };
}

}  // namespace troupe::testing
