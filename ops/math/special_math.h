// SPDX-License-Identifier: Apache-2.0
// Special functions of real numbers in float64, NaN where they are not defined. All are thread-safe.
#pragma once
#include <limits>

namespace troupe::special {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

/// log |gamma(x)|.
double lgamma(double x);
/// The derivative of lgamma; NaN at 0, -1, -2, ...
double digamma(double x);
/// The derivative of digamma of order n, a whole number >= 0; NaN for other n.
double polygamma(double n, double x);
/// Hurwitz' zeta: the sum of (q + k)^-x over k >= 0.
double zeta(double x, double q);
/// The inverse of the error function.
double erfinv(double x);
/// The quantile of the standard normal distribution.
double ndtri(double p);
/// The lower and the upper regularised incomplete gamma function P(a, x) and Q(a, x) = 1 - P.
double igamma(double a, double x);
double igammac(double a, double x);
/// The derivative of P(a, x) by a.
double igamma_grad_a(double a, double x);
/// The derivative by alpha of a sample x of the gamma distribution of shape alpha, at a fixed quantile.
double random_gamma_grad(double alpha, double x);
/// The regularised incomplete beta function I_x(a, b).
double betainc(double a, double b, double x);

}  // namespace troupe::special
