// SPDX-License-Identifier: Apache-2.0
// Sums of gradients, in place.
#pragma once
#include "troupe/tensor.h"

namespace troupe {

/// Calls f with a value of the floating type that `dtype` names.
template <class F> void with_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(float());
    case DType::kFloat64: return f(double());
    case DType::kFloat16: return f(float16());
    default: return f(bfloat16());
  }
}

/// to += from; both of `dtype`, floating, and of one size.
inline void add_gradient(DType dtype, Tensor& to, const Tensor& from) {
  with_float(dtype, [&]<class T>(T) {
    T* a = to.mutable_data<T>();
    const T* b = from.data<T>();
    for (int64_t i = 0, n = to.elements(); i < n; ++i) {
      if constexpr (std::is_floating_point_v<T>) a[i] += b[i];
      else a[i] = T(static_cast<float>(a[i]) + static_cast<float>(b[i]));
    }
  });
}

/// t /= by.
inline void divide_gradient(DType dtype, Tensor& t, int64_t by) {
  with_float(dtype, [&]<class T>(T) {
    T* a = t.mutable_data<T>();
    for (int64_t i = 0, n = t.elements(); i < n; ++i) {
      if constexpr (std::is_floating_point_v<T>) a[i] /= static_cast<T>(by);
      else a[i] = T(static_cast<float>(a[i]) / static_cast<float>(by));
    }
  });
}

}  // namespace troupe
