// SPDX-License-Identifier: Apache-2.0
// Examples of ops on integers that stand for the numbers of a range, for the conformance test.
#pragma once
#include "tests/ops/op_case.h"

namespace troupe::testing {

inline std::vector<OpCase> quantized_cases() {
  const auto bytes = [](std::initializer_list<uint8_t> v, const Shape& s) { return Tensor::of<uint8_t>(v, s); };
  const auto signs = [](std::initializer_list<int8_t> v, const Shape& s) { return Tensor::of<int8_t>(v, s); };
  const auto number = [](float v) { return Tensor::scalar(v); };
  const Tensor zero = number(0), whole = number(255), one = number(1), minus = number(-1);
  const Tensor least = number(-2147483648.f), most = number(2147483648.f);  // where a step is 1
  const Tensor ends = I({INT32_MIN, 0, INT32_MAX}, {3}), half = I({1 << 30, -(1 << 30)}, {1, 1, 2, 1});
  const Attrs down{{"out_type", DType::kUInt8}}, wide{{"out_type", DType::kInt32}}, small{{"out_type", DType::kInt8}};
  const std::vector<int64_t> ones = {1, 1, 1, 1}, pairs = {1, 2, 2, 1};
  const Attrs pool{{"ksize", pairs}, {"strides", pairs}, {"padding", "VALID"}};
  const Tensor image = bytes({1, 2, 3, 5}, {1, 2, 2, 1});
  const Attrs uniform{{"Tout", DType::kInt8},
                      {"quantization_axis", int64_t{1}},
                      {"quantization_min_val", int64_t{-127}},
                      {"quantization_max_val", int64_t{127}}};
  const Attrs plain{
      {"Tout", DType::kFloat32}, {"quantization_min_val", int64_t{0}}, {"quantization_max_val", int64_t{9}}};
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  return {
      {"UniformQuantize",
       {F({0.25f, -1.5f, 0.75f, 2.5f, infinity, -infinity, nan, 1e9f}, {4, 2}), F({0.5f, 1}, {2}), I({3, -1})},
       uniform,
       {signs({4, -2, 5, 2, 127, -127, -127, 127}, {4, 2})}},
      {"UniformDequantize", {bytes({0, 9, 255}, {3}), number(0.5f), I(4)}, plain, {F({-2, 2.5f, 125.5f}, {3})}},
      {"QuantizedAdd", {bytes({0, 255}, {2}), bytes({7}, {}), minus, one, zero, one}, {}, {}},
      {"QuantizedMul",
       {bytes({2, 3}, {2, 1}), bytes({4, 5}, {2}), zero, whole, zero, whole},
       {},
       {I({8, 10, 12, 15}, {2, 2}), least, most}},
      {"QuantizedMul",  // 128 is zero
       {bytes({0, 255}, {2}), bytes({1, 1}, {2}), number(-128), number(127), zero, whole},
       {},
       {I({-128, 127}, {2}), least, most}},
      {"QuantizedMatMul",
       {bytes({1, 2, 3, 4}, {2, 2}), bytes({5, 6}, {1, 2}), zero, whole, zero, whole},
       {{"transpose_b", true}},
       {I({17, 39}, {2, 1}), least, most}},
      {"QuantizedBiasAdd", {signs({-128, 0, 1, 127}, {2, 2}), signs({1, -1}, {2}), minus, one, minus, one}, wide, {}},
      {"QuantizedBatchNormWithGlobalNormalization",  // 1 is 2048
       {bytes({0, 4}, {1, 1, 2, 1}), zero, whole, bytes({2}, {1}), zero, whole, bytes({4}, {1}), zero, whole,
        bytes({7}, {1}), zero, whole, bytes({3}, {1}), zero, whole},
       {{"out_type", DType::kInt32}, {"variance_epsilon", 0.f}, {"scale_after_normalization", true}},
       {I({4 * 2048, 10 * 2048}, {1, 1, 2, 1}), number(-1048576), number(1048576)}},
      {"QuantizedConv2D",
       {image, bytes({1, 10, 100, 2}, {2, 2, 1, 1}), zero, whole, zero, whole},
       {{"strides", ones}, {"padding", "SAME"}},
       {I({331, 502, 53, 5}, {1, 2, 2, 1}), least, most}},
      {"QuantizedMaxPool", {image, zero, one}, pool, {bytes({5}, {1, 1, 1, 1}), zero, one}},
      {"QuantizedAvgPool", {image, zero, one}, pool, {bytes({2}, {1, 1, 1, 1}), zero, one}},
      {"QuantizedAvgPool",
       {signs({-1, -2, -3, -5}, {1, 2, 2, 1}), zero, one},
       pool,
       {signs({-2}, {1, 1, 1, 1}), zero, one}},
      {"QuantizedInstanceNorm",
       {bytes({1, 1, 3, 3}, {1, 2, 2, 1}), zero, whole},
       {{"variance_epsilon", 0.f}},
       {bytes({0, 0, 255, 255}, {1, 2, 2, 1}), minus, one}},
      {"QuantizedResizeBilinear",
       {bytes({0, 100}, {1, 1, 2, 1}), I({1, 4}), zero, one},
       {},
       {bytes({0, 50, 100, 100}, {1, 1, 4, 1}), zero, one}},
      {"QuantizedReshape", {bytes({1, 2}, {2}), I({2, -1}), zero, one}, {}, {bytes({1, 2}, {2, 1}), zero, one}},
      {"QuantizedConcat",
       {I(0), bytes({0, 255}, {2}), bytes({0, 255}, {2}), zero, zero, one, number(2)},
       {},
       {bytes({0, 128, 0, 255}, {4}), zero, number(2)}},
      {"QuantizedConcat",
       {I(1), ends.reshape({3, 1}).value(), ends.reshape({3, 1}).value(), minus, minus, one, one},
       {},
       {I({INT32_MIN, INT32_MIN, 0, 0, INT32_MAX, INT32_MAX}, {3, 2}), minus, one}},
      {"QuantizedRelu",
       {bytes({0, 128, 255}, {3}), number(-128), number(127)},
       down,
       {bytes({128, 128, 255}, {3}), number(-128), number(127)}},
      {"QuantizedRelu6",
       {bytes({0, 128, 255}, {3}), number(-128), number(127)},
       down,
       {bytes({128, 128, 134}, {3}), number(-128), number(127)}},
      {"Requantize", {ends, minus, one, minus, one}, down, {bytes({0, 128, 255}, {3}), minus, one}},
      {"Requantize", {ends, minus, one, number(-2), number(2)}, small, {signs({-64, 0, 64}, {3})}},
      {"RequantizationRange", {ends, number(2), number(4)}, {}, {zero, number(4)}},
      {"QuantizeDownAndShrinkRange", {ends, minus, one}, down, {bytes({0, 128, 255}, {3}), minus, one}},
      {"RequantizationRangePerChannel",
       {half, Tensor::of<float>({-1}), Tensor::of<float>({3})},
       {{"clip_value_max", 9.f}},
       {number(-1.5), number(1.5)}},
      {"RequantizePerChannel",  // 63.5 becomes even
       {half, Tensor::of<float>({-1}), Tensor::of<float>({0.5}), minus, one},
       small,
       {signs({64, -64}, {1, 1, 2, 1}), minus, one}},
  };
}

}  // namespace troupe::testing
