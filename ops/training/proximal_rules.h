// SPDX-License-Identifier: Apache-2.0
// The update rules with L1 and L2 terms: Ftrl, AdagradDA and the proximal ones, with TensorFlow's formulas. What a rule
// is says ops/training/rules.h.
#pragma once
#include "ops/training/rules.h"

namespace troupe {

/// accum and linear of Ftrl for one element, and what the variable becomes. With `by_rate` linear is kept multiplied by
/// the learning rate.
template <class A> struct FtrlStep {
  A lr, l1, l2, power;
  bool by_rate;
  TROUPE_HOST_DEVICE A raise(A x) const { return power == A(0.5) ? std::sqrt(x) : std::pow(x, power); }
  /// `step` is the gradient with its shrinkage.
  [[gnu::always_inline]] TROUPE_HOST_DEVICE A operator()(A var, A& accum, A& linear, A grad, A step) const {
    const A now = accum + grad * grad, raised = raise(now), grown = raised - raise(accum);
    linear += by_rate ? step * lr - grown * var : step - grown / lr * var;
    accum = now;
    const A bound = by_rate ? l1 * lr : l1;
    const A shrunk = std::copysign(bound, linear) - linear;
    return std::abs(linear) > bound ? shrunk / (by_rate ? raised + A(2) * l2 * lr : raised / lr + A(2) * l2) : A(0);
  }
};

struct FtrlRule {
  static constexpr int kVariables = 3, kScalars = 4, kGradient = 0;
  static constexpr std::string_view kFlag = "multiply_linear_by_lr";
  /// new = accum + grad^2; linear += grad - (new^-p - accum^-p) / lr * var; accum = new;
  /// var = |linear| > l1 ? (l1 * sign(linear) - linear) / (new^-p / lr + 2 * l2) : 0, where p is lr_power
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool by_rate, int64_t n) {
    T *var = v[0], *accum = v[1], *linear = v[2];
    const FtrlStep<A> step{s[0], s[1], s[2], -s[3], by_rate};
    TROUPE_EACH(i, n) {
      A a = widen(accum[i]), l = widen(linear[i]);
      const A grad = widen(g[i]);
      var[i] = narrow<T>(step(widen(var[i]), a, l, grad, grad));
      accum[i] = narrow<T>(a);
      linear[i] = narrow<T>(l);
    }
  }
};

struct FtrlV2Rule {
  static constexpr int kVariables = 3, kScalars = 5, kGradient = 0;
  static constexpr std::string_view kFlag = "multiply_linear_by_lr";
  /// As Ftrl, with grad + 2 * l2_shrinkage * var added to linear in place of grad
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool by_rate, int64_t n) {
    T *var = v[0], *accum = v[1], *linear = v[2];
    const A shrinkage = A(2) * s[3];
    const FtrlStep<A> step{s[0], s[1], s[2], -s[4], by_rate};
    TROUPE_EACH(i, n) {
      A a = widen(accum[i]), l = widen(linear[i]);
      const A grad = widen(g[i]), w = widen(var[i]);
      var[i] = narrow<T>(step(w, a, l, grad, grad + shrinkage * w));
      accum[i] = narrow<T>(a);
      linear[i] = narrow<T>(l);
    }
  }
};

/// sign(x) * max(|x| - by, 0)
template <class A> TROUPE_RULE A shrink(A x, A by) { return std::abs(x) <= by ? A(0) : x - std::copysign(by, x); }

struct AdagradDaRule {
  static constexpr int kVariables = 3, kScalars = 4, kGradient = 0;
  static constexpr int kStep = 3;  // the scalar that is an int64
  static constexpr std::string_view kFlag = "";
  /// sum += grad; squares += grad^2;
  /// var = -lr * sign(sum) * max(|sum| - step * l1, 0) / (l2 * step * lr + sqrt(squares))
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *sum = v[1], *squares = v[2];
    const A lr = s[0], l1 = s[1], l2 = s[2], steps = s[3];
    const A bound = steps * l1, drag = l2 * (steps * lr);
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), sum1 = widen(sum[i]) + grad, squares1 = widen(squares[i]) + grad * grad;
      sum[i] = narrow<T>(sum1);
      squares[i] = narrow<T>(squares1);
      var[i] = narrow<T>(-lr * shrink(sum1, bound) / (drag + std::sqrt(squares1)));
    }
  }
};

struct ProximalGradientDescentRule {
  static constexpr int kVariables = 1, kScalars = 3, kGradient = 3;
  static constexpr std::string_view kFlag = "";
  /// x = var - alpha * delta; var = sign(x) * max(|x| - alpha * l1, 0) / (1 + l2 * alpha)
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T* var = v[0];
    const A alpha = s[0], bound = s[0] * s[1], by = A(1) + s[2] * s[0];
    TROUPE_EACH(i, n) var[i] = narrow<T>(shrink(widen(var[i]) - widen(g[i]) * alpha, bound) / by);
  }
};

struct ProximalAdagradRule {
  static constexpr int kVariables = 2, kScalars = 3, kGradient = 3;
  static constexpr std::string_view kFlag = "";
  /// accum += grad^2; r = lr / sqrt(accum); x = var - r * grad; var = sign(x) * max(|x| - r * l1, 0) / (1 + l2 * r)
  template <class T, class A = Arithmetic<T>>
  TROUPE_RULE void run(T* const* v, const T* g, const A* s, bool, int64_t n) {
    T *var = v[0], *accum = v[1];
    const A lr = s[0], l1 = s[1], l2 = s[2];
    TROUPE_EACH(i, n) {
      const A grad = widen(g[i]), a = widen(accum[i]) + grad * grad, r = lr / std::sqrt(a);
      accum[i] = narrow<T>(a);
      var[i] = narrow<T>(shrink(widen(var[i]) - grad * r, r * l1) / (A(1) + l2 * r));
    }
  }
};

}  // namespace troupe
