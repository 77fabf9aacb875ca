// SPDX-License-Identifier: Apache-2.0
// Calls a function with the C++ type of a numeric dtype.
#pragma once
#include <type_traits>

#include "troupe/tensor.h"

namespace troupe {

/// f(std::type_identity<T>()) for a real number type T; false, and no call, for any other dtype.
template <class F> bool visit_real(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: f(std::type_identity<float>()); return true;
    case DType::kFloat64: f(std::type_identity<double>()); return true;
    case DType::kFloat16: f(std::type_identity<float16>()); return true;
    case DType::kBFloat16: f(std::type_identity<bfloat16>()); return true;
    case DType::kInt8: f(std::type_identity<int8_t>()); return true;
    case DType::kInt16: f(std::type_identity<int16_t>()); return true;
    case DType::kInt32: f(std::type_identity<int32_t>()); return true;
    case DType::kInt64: f(std::type_identity<int64_t>()); return true;
    case DType::kUInt8: f(std::type_identity<uint8_t>()); return true;
    case DType::kUInt16: f(std::type_identity<uint16_t>()); return true;
    case DType::kUInt32: f(std::type_identity<uint32_t>()); return true;
    case DType::kUInt64: f(std::type_identity<uint64_t>()); return true;
    case DType::kBool: f(std::type_identity<bool>()); return true;
    default: return false;
  }
}

/// The elements as doubles; empty for what are no real numbers.
inline std::vector<double> as_doubles(const Tensor& t) {
  std::vector<double> out;
  visit_real(t.dtype(), [&]<class T>(std::type_identity<T>) {
    out.reserve(static_cast<size_t>(t.elements()));
    for (const T& v : t.values<T>()) {
      if constexpr (std::is_arithmetic_v<T>) out.push_back(static_cast<double>(v));
      else out.push_back(static_cast<double>(static_cast<float>(v)));
    }
  });
  return out;
}

}  // namespace troupe
