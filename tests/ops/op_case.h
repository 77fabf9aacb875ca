// SPDX-License-Identifier: Apache-2.0
// One example of an op: inputs, attributes, what it should give. The conformance test runs all of them.
#pragma once
#include <string>
#include <vector>

#include "troupe/attr.h"

namespace troupe::testing {

struct OpCase {
  std::string op;
  std::vector<Tensor> inputs;
  Attrs attrs = {};
  std::vector<Tensor> expected = {};  // of the first outputs; empty: not compared
  /// Whether the gradient is compared with finite differences; off where a sample lies on a kink.
  bool gradient = true;
  /// The output is random: only shapes are compared.
  bool random = false;
};

/// float64, int32, int64 and bool tensors of a case. D and friends without a shape are vectors.
inline Tensor D(std::initializer_list<double> v) { return Tensor::of<double>(v); }
inline Tensor D(std::initializer_list<double> v, const Shape& s) { return Tensor::of<double>(v, s); }
inline Tensor D(double v) { return Tensor::scalar<double>(v); }
inline Tensor I(std::initializer_list<int32_t> v) { return Tensor::of<int32_t>(v); }
inline Tensor I(std::initializer_list<int32_t> v, const Shape& s) { return Tensor::of<int32_t>(v, s); }
inline Tensor I(int32_t v) { return Tensor::scalar<int32_t>(v); }
inline Tensor L(std::initializer_list<int64_t> v) { return Tensor::of<int64_t>(v); }
inline Tensor L(std::initializer_list<int64_t> v, const Shape& s) { return Tensor::of<int64_t>(v, s); }
inline Tensor B(std::initializer_list<bool> v) { return Tensor::of<bool>(v); }
inline Tensor B(std::initializer_list<bool> v, const Shape& s) { return Tensor::of<bool>(v, s); }
inline Tensor L(int64_t v) { return Tensor::scalar<int64_t>(v); }
inline Tensor F(std::initializer_list<float> v, const Shape& s) { return Tensor::of<float>(v, s); }
/// A string.
inline Tensor text(const std::string& bytes) { return Tensor::scalar(bytes); }
/// 1 to 6 in rows.
inline const Tensor kMatrix = D({1, 2, 3, 4, 5, 6}, {2, 3}), kRows = D({1, 2, 3, 4, 5, 6}, {3, 2});
/// n values that differ, none near 0, signs mixed, in float64 or float32.
inline Tensor ramp(const Shape& s, double step = 0.37) {
  Tensor t = *Tensor::make(DType::kFloat64, s);
  for (int64_t i = 0; i < t.elements(); ++i) t.mutable_data<double>()[i] = (i % 2 ? -1 : 1) * (0.21 + step * i);
  return t;
}
inline Tensor ramp32(const Shape& s, double step = 0.37) {
  const Tensor d = ramp(s, step);
  Tensor t = *Tensor::make(DType::kFloat32, s);
  for (int64_t i = 0; i < t.elements(); ++i) t.mutable_data<float>()[i] = static_cast<float>(d.data<double>()[i]);
  return t;
}

}  // namespace troupe::testing
