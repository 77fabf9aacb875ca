// SPDX-License-Identifier: Apache-2.0
// Bessel functions and integrals without a closed form, of real numbers in float64. At the ends of where they are
// defined, and beyond, they give what TensorFlow gives: NaN but where said.
#pragma once

namespace troupe::special {

/// Modified Bessel functions of the first kind, and the same times exp(-|x|).
double bessel_i0(double x);
double bessel_i0e(double x);
double bessel_i1(double x);
double bessel_i1e(double x);
/// Modified Bessel functions of the second kind, and the same times exp(x). Infinite for x <= 0.
double bessel_k0(double x);
double bessel_k0e(double x);
double bessel_k1(double x);
double bessel_k1e(double x);
/// Bessel functions of the first and of the second kind; these are minus infinity for x <= 0.
double bessel_j0(double x);
double bessel_j1(double x);
double bessel_y0(double x);
double bessel_y1(double x);
/// exp(-x^2) times the integral of exp(t^2) from 0 to x.
double dawsn(double x);
/// The integral of exp(t) / t up to x > 0; minus infinity at 0.
double expint(double x);
/// The integrals of cos and sin of pi t^2 / 2 from 0 to x.
double fresnel_cos(double x);
double fresnel_sin(double x);
/// The integral of log t / (1 - t) from 1 to x >= 0.
double spence(double x);

}  // namespace troupe::special
