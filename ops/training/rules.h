// SPDX-License-Identifier: Apache-2.0
// The update rules of the optimizers, element by element, with TensorFlow's formulas.
//
// A rule says how many variables it changes (the trained one first, then its slots), how many scalars it takes, and
// which of the inputs after the handles is the gradient. run(v, g, s, flag, n) applies it to n elements: v[0] is the
// trained variable, v[1...] the slots, g the gradient, s the scalars in the order of the op's inputs, flag the
// attribute kFlag. The arrays do not overlap. 16-bit floats are computed in float32. kComplex is there where
// TensorFlow has the rule for complex numbers.
#pragma once
#include <cmath>
#include <cstdint>
#include <string_view>

#include "ops/parts/type_dispatch.h"

#ifdef __CUDACC__
#define TROUPE_RULE __host__ __device__ static inline
#define TROUPE_EACH(i, n) for (int64_t i = 0; i < (n); ++i)
#else
#define TROUPE_RULE [[gnu::always_inline]] static inline
// The arrays of one update never overlap: the loop may go several elements at a time.
#define TROUPE_EACH(i, n) _Pragma("GCC ivdep") for (int64_t i = 0; i < (n); ++i)
#endif

namespace troupe {

struct GradientDescentRule {
  static constexpr int kVariables = 1, kScalars = 1, kGradient = 1;
  static constexpr std::string_view kFlag = "";
  static constexpr bool kComplex = true;
  /// var -= alpha * delta
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T* var = v[0];
    const A alpha = s[0];
    TROUPE_EACH(i, n) var[i] = narrow<T>(widen(var[i]) - alpha * widen(g[i]));
  }
};

struct MomentumRule {
  static constexpr int kVariables = 2, kScalars = 2, kGradient = 1;
  static constexpr std::string_view kFlag = "use_nesterov";
  static constexpr bool kComplex = true;
  /// accum = accum * momentum + grad; var -= lr * accum, or with Nesterov lr * grad + lr * momentum * accum
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool nesterov, int64_t n) {
    T *var = v[0], *accum = v[1];
    const A lr = s[0], momentum = s[1];
    TROUPE_EACH(i, n) {
      const A a = widen(accum[i]) * momentum + widen(g[i]);
      accum[i] = narrow<T>(a);
      var[i] = narrow<T>(widen(var[i]) - (nesterov ? widen(g[i]) * lr + a * momentum * lr : a * lr));
    }
  }
};

struct KerasMomentumRule {
  static constexpr int kVariables = 2, kScalars = 2, kGradient = 1;
  static constexpr std::string_view kFlag = "use_nesterov";
  static constexpr bool kComplex = true;
  /// accum = accum * momentum - lr * grad; var += accum, or with Nesterov accum * momentum - lr * grad
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool nesterov, int64_t n) {
    T *var = v[0], *accum = v[1];
    const A lr = s[0], momentum = s[1];
    TROUPE_EACH(i, n) {
      const A a = widen(accum[i]) * momentum - widen(g[i]) * lr;
      accum[i] = narrow<T>(a);
      var[i] = narrow<T>(widen(var[i]) + (nesterov ? a * momentum - widen(g[i]) * lr : a));
    }
  }
};

struct AdamRule {
  static constexpr int kVariables = 3, kScalars = 6, kGradient = 6;
  static constexpr std::string_view kFlag = "use_nesterov";
  static constexpr bool kComplex = true;
  /// m += (grad - m) * (1 - beta1); v += (grad^2 - v) * (1 - beta2);
  /// var -= alpha * m / (sqrt(v) + epsilon), alpha = lr * sqrt(1 - beta2_power) / (1 - beta1_power);
  /// with Nesterov beta1 * m + (1 - beta1) * grad in place of m
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool nesterov, int64_t n) {
    T *var = v[0], *first = v[1], *second = v[2];
    const A beta1 = s[3], beta2 = s[4], epsilon = s[5], one = A(1);
    const A alpha = s[2] * std::sqrt(one - s[1]) / (one - s[0]);
    const A by1 = one - beta1, by2 = one - beta2;
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), m0 = widen(first[i]), v0 = widen(second[i]);
      const A m = m0 + (grad - m0) * by1;
      const A u = v0 + (grad * grad - v0) * by2;
      first[i] = narrow<T>(m);
      second[i] = narrow<T>(u);
      const A step = nesterov ? grad * by1 + beta1 * m : m;
      var[i] = narrow<T>(widen(var[i]) - (step * alpha) / (std::sqrt(u) + epsilon));
    }
  }
};

struct AdaMaxRule {
  static constexpr int kVariables = 3, kScalars = 5, kGradient = 5;
  static constexpr std::string_view kFlag = "";
  /// m += (grad - m) * (1 - beta1); v = max(beta2 * v, |grad|); var -= lr / (1 - beta1_power) * m / (v + epsilon)
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *first = v[1], *norm = v[2];
    const A alpha = s[1] / (A(1) - s[0]), by = A(1) - s[2], beta2 = s[3], epsilon = s[4];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), m0 = widen(first[i]), v0 = beta2 * widen(norm[i]);
      const A m = m0 + (grad - m0) * by;
      const A u = std::abs(grad) < v0 ? v0 : std::abs(grad);
      first[i] = narrow<T>(m);
      norm[i] = narrow<T>(u);
      var[i] = narrow<T>(widen(var[i]) - alpha * (m / (u + epsilon)));
    }
  }
};

struct AmsGradRule {
  static constexpr int kVariables = 4, kScalars = 6, kGradient = 6;
  static constexpr std::string_view kFlag = "";
  /// As Adam, with vhat = max(vhat, v) in place of v in the step
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *first = v[1], *second = v[2], *largest = v[3];
    const A alpha = s[2] * std::sqrt(A(1) - s[1]) / (A(1) - s[0]), by1 = A(1) - s[3], by2 = A(1) - s[4];
    const A epsilon = s[5];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), m0 = widen(first[i]), v0 = widen(second[i]), l0 = widen(largest[i]);
      const A m = m0 + (grad - m0) * by1;
      const A u = v0 + (grad * grad - v0) * by2;
      const A l = l0 < u ? u : l0;
      first[i] = narrow<T>(m);
      second[i] = narrow<T>(u);
      largest[i] = narrow<T>(l);
      var[i] = narrow<T>(widen(var[i]) - (m * alpha) / (std::sqrt(l) + epsilon));
    }
  }
};

struct AdagradRule {
  static constexpr int kVariables = 2, kScalars = 1, kGradient = 1;
  static constexpr std::string_view kFlag = "update_slots";
  static constexpr bool kComplex = true;
  /// accum += grad^2; var -= lr * grad / sqrt(accum)
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool update_slots, int64_t n) {
    T *var = v[0], *accum = v[1];
    const A lr = s[0];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]);
      const A a = widen(accum[i]) + (update_slots ? grad * grad : A(0));
      accum[i] = narrow<T>(a);
      var[i] = narrow<T>(widen(var[i]) - grad * lr / std::sqrt(a));
    }
  }
};

struct AdagradV2Rule {
  static constexpr int kVariables = 2, kScalars = 2, kGradient = 2;
  static constexpr std::string_view kFlag = "update_slots";
  static constexpr bool kComplex = true;
  /// accum += grad^2; var -= lr * grad / (sqrt(accum) + epsilon)
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool update_slots, int64_t n) {
    T *var = v[0], *accum = v[1];
    const A lr = s[0], epsilon = s[1];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]);
      const A a = widen(accum[i]) + (update_slots ? grad * grad : A(0));
      accum[i] = narrow<T>(a);
      var[i] = narrow<T>(widen(var[i]) - grad * lr / (std::sqrt(a) + epsilon));
    }
  }
};

struct RmsPropRule {
  static constexpr int kVariables = 3, kScalars = 4, kGradient = 4;
  static constexpr std::string_view kFlag = "";
  static constexpr bool kComplex = true;
  /// ms += (grad^2 - ms) * (1 - rho); mom = mom * momentum + lr * grad / sqrt(ms + epsilon); var -= mom
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *mean_square = v[1], *mom = v[2];
    const A lr = s[0], by = A(1) - s[1], momentum = s[2], epsilon = s[3];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), ms0 = widen(mean_square[i]);
      const A ms = ms0 + (grad * grad - ms0) * by;
      const A step = widen(mom[i]) * momentum + (grad * lr) / std::sqrt(ms + epsilon);
      mean_square[i] = narrow<T>(ms);
      mom[i] = narrow<T>(step);
      var[i] = narrow<T>(widen(var[i]) - step);
    }
  }
};

struct CenteredRmsPropRule {
  static constexpr int kVariables = 4, kScalars = 4, kGradient = 4;
  static constexpr std::string_view kFlag = "";
  static constexpr bool kComplex = true;
  /// As RMSProp, with mg += (grad - mg) * (1 - rho) and sqrt(ms - mg^2 + epsilon)
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *mean = v[1], *mean_square = v[2], *mom = v[3];
    const A lr = s[0], by = A(1) - s[1], momentum = s[2], epsilon = s[3];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), ms0 = widen(mean_square[i]), mg0 = widen(mean[i]);
      const A ms = ms0 + (grad * grad - ms0) * by;
      const A mg = mg0 + (grad - mg0) * by;
      const A step = widen(mom[i]) * momentum + (grad * lr) / std::sqrt((ms - mg * mg) + epsilon);
      mean_square[i] = narrow<T>(ms);
      mean[i] = narrow<T>(mg);
      mom[i] = narrow<T>(step);
      var[i] = narrow<T>(widen(var[i]) - step);
    }
  }
};

/// RMSProp of rows, where TensorFlow has ms = ms * rho + grad^2 * (1 - rho) and mom = mom * momentum + 1 / sqrt(ms +
/// epsilon) * lr * grad: as RMSProp, but for large numbers the parts overflow elsewhere.
struct RmsPropRowsRule : RmsPropRule {
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *mean_square = v[1], *mom = v[2];
    const A lr = s[0], rho = s[1], by = A(1) - rho, momentum = s[2], epsilon = s[3];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]);
      const A ms = widen(mean_square[i]) * rho + grad * grad * by;
      const A step = widen(mom[i]) * momentum + A(1) / std::sqrt(ms + epsilon) * lr * grad;
      mean_square[i] = narrow<T>(ms);
      mom[i] = narrow<T>(step);
      var[i] = narrow<T>(widen(var[i]) - step);
    }
  }
};

/// The same of CenteredRMSProp, with mg = mg * rho + grad * (1 - rho) and ms + epsilon - mg^2.
struct CenteredRmsPropRowsRule : CenteredRmsPropRule {
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *mean = v[1], *mean_square = v[2], *mom = v[3];
    const A lr = s[0], rho = s[1], by = A(1) - rho, momentum = s[2], epsilon = s[3];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]);
      const A ms = widen(mean_square[i]) * rho + grad * grad * by;
      const A mg = widen(mean[i]) * rho + grad * by;
      const A step = widen(mom[i]) * momentum + A(1) / std::sqrt((ms + epsilon) - mg * mg) * lr * grad;
      mean_square[i] = narrow<T>(ms);
      mean[i] = narrow<T>(mg);
      mom[i] = narrow<T>(step);
      var[i] = narrow<T>(widen(var[i]) - step);
    }
  }
};

struct AdadeltaRule {
  static constexpr int kVariables = 3, kScalars = 3, kGradient = 3;
  static constexpr std::string_view kFlag = "";
  static constexpr bool kComplex = true;
  /// accum = accum * rho + grad^2 * (1 - rho); update = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * grad;
  /// var -= lr * update; accum_update = accum_update * rho + update^2 * (1 - rho)
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *accum = v[1], *accum_update = v[2];
    const A lr = s[0], rho = s[1], epsilon = s[2], by = A(1) - rho;
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), u0 = widen(accum_update[i]);
      const A a = widen(accum[i]) * rho + grad * grad * by;
      const A update = std::sqrt(u0 + epsilon) / std::sqrt(a + epsilon) * grad;
      accum[i] = narrow<T>(a);
      accum_update[i] = narrow<T>(u0 * rho + update * update * by);
      var[i] = narrow<T>(widen(var[i]) - update * lr);
    }
  }
};

}  // namespace troupe
