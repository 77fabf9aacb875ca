// SPDX-License-Identifier: Apache-2.0
// Activation functions of an element and their gradients, for the loops of CPUs and the kernels of GPUs. GPUs have none
// of complex numbers.
#pragma once
#include <cmath>
#include <limits>

#include "ops/parts/fast_math.h"
#include "ops/parts/wrapping.h"

namespace troupe::activation_functors {

inline constexpr double kSeluScale = 1.0507009873554804934193349852946;
inline constexpr double kSeluScaleAlpha = 1.7580993408473768599402175208123;

// NaN passes through all of them.
struct Relu {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) { return x < T(0) ? T(0) : x; }
};
struct Relu6 {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) { return x < T(0) ? T(0) : x > T(6) ? T(6) : x; }
};
struct Elu {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) { return x < T(0) ? std::expm1(x) : x; }
};
struct Selu {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    return x < T(0) ? T(kSeluScaleAlpha) * std::expm1(x) : T(kSeluScale) * x;
  }
};
struct LeakyRelu {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x, const double* alpha) {
    return x > T(0) ? x : static_cast<T>(*alpha) * x;
  }
};
struct Softplus {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    // Beyond the threshold the sum 1 + exp(x) is one of its terms to the last bit.
    const T threshold = std::log(std::numeric_limits<T>::epsilon()) + T(2);
    if (x > -threshold) return x;
    return x < threshold ? std::exp(x) : std::log1p(std::exp(x));
  }
};
struct Softsign {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) { return x / (T(1) + std::fabs(x)); }
};
struct Sigmoid {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (std::is_same_v<T, float>) return fast_math::sigmoid(x);
    else return T(1) / (T(1) + std::exp(-x));
  }
};
/// x times its logistic function: Swish (Ramachandran et al., 2017), which others call SiLU.
struct Swish {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) { return x * Sigmoid::apply(x); }
};
struct Tanh {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (std::is_same_v<T, float>) return fast_math::tanh(x);
    else return std::tanh(x);
  }
};
/// GELU by tanh and by erf (gpu/blas.h and graph/passes/gelu.h have the formulas).
struct GeluApproximate {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    return T(0.5) * x * (T(1) + Tanh::apply(T(0.79788456080286535588) * (x + T(0.044715) * (x * x * x))));
  }
};
struct GeluExact {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    const T argument = x * T(0.70710678118654752440);
    if constexpr (std::is_same_v<T, float>) return T(0.5) * x * (T(1) + fast_math::erf(argument));
    else return T(0.5) * x * (T(1) + std::erf(argument));
  }
};

/// Their derivatives times dy. Where g or the bell has no slope left, x may be anything but NaN.
struct GeluApproximateGrad {
  using SameShape = void;
  template <class T> TROUPE_HOST_DEVICE static T apply(T dy, T x) {
    const T root = T(0.79788456080286535588), square = T(0.044715) * (x * x);
    const T g = Tanh::apply(root * (x + square * x)), slope = (T(1) - g) * (T(1) + g);
    const T rest = T(0.5) * x * slope * (root * (T(1) + T(3) * square));
    return dy * (T(0.5) * (T(1) + g) + (slope == T(0) ? T(0) : rest));
  }
};
struct GeluExactGrad {
  using SameShape = void;
  template <class T> TROUPE_HOST_DEVICE static T apply(T dy, T x) {
    const T argument = x * T(0.70710678118654752440);
    T g, bell;
    if constexpr (std::is_same_v<T, float>) {
      g = fast_math::erf(argument);
      bell = fast_math::exp(-(argument * argument));
    } else {
      g = std::erf(argument);
      bell = std::exp(-(argument * argument));
    }
    const T rest = T(0.39894228040143267794) * x * bell;
    return dy * (T(0.5) * (T(1) + g) + (bell == T(0) ? T(0) : rest));
  }
};

#define TROUPE_GRAD(name, a, b, expression)                                                               \
  struct name {                                                                                           \
    using SameShape = void;                                                                               \
    template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return static_cast<T>(expression); } \
  }
// Products, not choices: TensorFlow has NaN where an infinite gradient meets a feature that is off.
TROUPE_GRAD(ReluGrad, dy, x, dy* T(x > T(0)));
TROUPE_GRAD(Relu6Grad, dy, x, dy* T(x > T(0) && x < T(6)));
TROUPE_GRAD(EluGrad, dy, y, y < T(0) ? dy * (y + T(1)) : dy);
TROUPE_GRAD(SeluGrad, dy, y, y < T(0) ? dy * (y + T(kSeluScaleAlpha)) : dy * T(kSeluScale));
TROUPE_GRAD(SoftplusGrad, dy, x, dy / (std::exp(-x) + T(1)));
TROUPE_GRAD(SoftsignGrad, dy, x, dy / ((T(1) + std::fabs(x)) * (T(1) + std::fabs(x))));
TROUPE_GRAD(SigmoidGrad, y, dy, dy* y*(T(1) - y));
TROUPE_GRAD(TanhGrad, y, dy, dy*(T(1) - y * y));
// The gradients of Sigmoid and Tanh are given y conjugated; these take its conjugate. They are 0 where dy is, even at
// a pole.
TROUPE_GRAD(SqrtGrad, y, dy, dy == T(0) ? T(0) : dy * T(0.5) / conjugate(y));
TROUPE_GRAD(RsqrtGrad, y, dy, dy == T(0) ? T(0) : T(-0.5) * dy * conjugate(y * y * y));
TROUPE_GRAD(ReciprocalGrad, y, dy, dy == T(0) ? T(0) : -dy * conjugate(y * y));
#undef TROUPE_GRAD
struct LeakyReluGrad {
  using SameShape = void;
  template <class T> TROUPE_HOST_DEVICE static T apply(T dy, T x, const double* alpha) {
    return x > T(0) ? dy : static_cast<T>(*alpha) * dy;
  }
};

}  // namespace troupe::activation_functors
