// SPDX-License-Identifier: Apache-2.0
// The update rules that go by the signs of gradient and its mean, with TensorFlow's formulas. What a rule is says
// ops/training/rules.h.
#pragma once
#include "ops/training/rules.h"

namespace troupe {

/// -1, 0 or 1.
template <class A> TROUPE_RULE A sign_of(A x) { return static_cast<A>(x > A(0)) - static_cast<A>(x < A(0)); }

struct AddSignRule {
  static constexpr int kVariables = 2, kScalars = 4, kGradient = 4;
  static constexpr std::string_view kFlag = "";
  /// m = beta * m + (1 - beta) * grad; var -= lr * (alpha + sign_decay * sign(grad) * sign(m)) * grad
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *mean = v[1];
    const A lr = s[0], alpha = s[1], decay = s[2], beta = s[3], by = A(1) - beta;
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), m = widen(mean[i]) * beta + grad * by;
      mean[i] = narrow<T>(m);
      var[i] = narrow<T>(widen(var[i]) - lr * (alpha + decay * (sign_of(grad) * sign_of(m))) * grad);
    }
  }
};

struct PowerSignRule {
  static constexpr int kVariables = 2, kScalars = 4, kGradient = 4;
  static constexpr std::string_view kFlag = "";
  /// m = beta * m + (1 - beta) * grad; var -= lr * exp(logbase * sign_decay * sign(grad) * sign(m)) * grad
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *mean = v[1];
    const A lr = s[0], power = s[1] * s[2], beta = s[3], by = A(1) - beta;
    const A scales[3] = {std::exp(-power), A(1), std::exp(power)};
    for (int64_t i = 0; i < n; ++i) {
      const A grad = widen(g[i]), m = widen(mean[i]) * beta + grad * by;
      mean[i] = narrow<T>(m);
      var[i] = narrow<T>(widen(var[i]) - lr * scales[static_cast<int>(sign_of(grad) * sign_of(m)) + 1] * grad);
    }
  }
};

}  // namespace troupe
