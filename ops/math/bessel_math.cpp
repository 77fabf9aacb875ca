// SPDX-License-Identifier: Apache-2.0
// Bessel functions by the standard library near 0 and by Hankel's expansions elsewhere; integrals by series and
// continued fractions. Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964; equation numbers are
// theirs.
#include "ops/math/bessel_math.h"

#include <cmath>
#include <complex>
#include <numbers>

#include "ops/math/special_math.h"

namespace troupe::special {
namespace {

/// From here on Hankel's expansions give all digits.
constexpr double kLarge = 30;

/// The sum of a_k (sign / x)^k, a_k as in (9.7.1) for order n.
double hankel(int n, double x, double sign) {
  double term = 1, sum = 1;
  for (int k = 1; k < 60; ++k) {
    term *= sign * (4.0 * n * n - (2 * k - 1) * (2 * k - 1)) / (8 * k * x);
    sum += term;
    if (std::fabs(term) < kEpsilon / 4) break;
  }
  return sum;
}

/// exp(-|x|) I_n(x) (9.7.1).
double scaled_i(int n, double x) {
  const double a = std::fabs(x), sign = n % 2 && x < 0 ? -1 : 1;
  if (std::isnan(x)) return x;
  if (a > kLarge) return sign * hankel(n, a, -1) / std::sqrt(2 * std::numbers::pi * a);
  return sign * std::cyl_bessel_i(n, a) * std::exp(-a);
}

/// exp(x) K_n(x) (9.7.2).
double scaled_k(int n, double x) {
  if (std::isnan(x)) return x;
  if (x <= 0) return kInfinity;
  if (x > kLarge) return hankel(n, x, 1) * std::sqrt(std::numbers::pi / (2 * x));
  return std::cyl_bessel_k(n, x) * std::exp(x);
}

/// C(x) + i S(x): a power series (7.3.11, 13), or a continued fraction of the error function of (1 - i) x (7.1.14).
std::complex<double> fresnel(double x) {
  using Complex = std::complex<double>;
  const double a = std::fabs(x);
  if (std::isnan(x)) return {x, x};
  Complex out;
  if (a > 1e8) {
    out = {0.5, 0.5};
  } else if (a < 1.6) {
    const Complex step(0, std::numbers::pi / 2 * a * a);
    Complex power(a, 0);
    for (int k = 0; k < 60; ++k) {
      const Complex term = power / static_cast<double>(2 * k + 1);
      out += term;
      if (std::abs(term) < kEpsilon / 4 * std::abs(out)) break;
      power *= step / static_cast<double>(k + 1);
    }
  } else {
    const double square = std::numbers::pi * a * a;
    Complex b(1, -square), c(1e300, 0), d = 1.0 / b, h = d;
    for (int k = 2, n = -1; k < 1000; ++k) {
      n += 2;
      const double numerator = -n * (n + 1);
      b += 4.0;
      d = 1.0 / (numerator * d + b);
      c = b + numerator / c;
      const Complex change = c * d;
      h *= change;
      if (std::abs(change.real() - 1) + std::abs(change.imag()) < kEpsilon) break;
    }
    h *= Complex(a, -a);
    out = Complex(0.5, 0.5) * (1.0 - Complex(std::cos(square / 2), std::sin(square / 2)) * h);
  }
  return x < 0 ? -out : out;
}

/// The dilogarithm of z in [-1, 1/2] by Bernoulli's numbers, with u = -log(1 - z).
double dilogarithm(double z) {
  constexpr double kTerms[] = {1.0 / 36,                   // B_2 / 3!
                               -1.0 / 3600,                // B_4 / 5!
                               1.0 / 211680,               // B_6 / 7!
                               -1.0 / 10886400,            // B_8 / 9!
                               1.0 / 526901760,            // B_10 / 11!
                               -691.0 / 16999766784000.0,  // B_12 / 13!
                               1.0 / 1120863744000.0,      // B_14 / 15!
                               -3617.0 / 181400588328960000.0};
  const double u = -std::log1p(-z), square = u * u;
  double sum = 0, power = u * square;
  for (double term : kTerms) {
    sum += term * power;
    power *= square;
  }
  return u - square / 4 + sum;
}

}  // namespace

double bessel_i0e(double x) { return scaled_i(0, x); }
double bessel_i1e(double x) { return scaled_i(1, x); }
double bessel_i0(double x) { return scaled_i(0, x) * std::exp(std::fabs(x)); }
double bessel_i1(double x) { return scaled_i(1, x) * std::exp(std::fabs(x)); }
double bessel_k0e(double x) { return scaled_k(0, x); }
double bessel_k1e(double x) { return scaled_k(1, x); }
double bessel_k0(double x) { return scaled_k(0, x) * std::exp(-x); }
double bessel_k1(double x) { return scaled_k(1, x) * std::exp(-x); }
double bessel_j0(double x) { return std::isinf(x) ? kNaN : ::j0(x); }
double bessel_j1(double x) { return std::isinf(x) ? kNaN : ::j1(x); }
double bessel_y0(double x) { return x <= 0 ? -kInfinity : std::isinf(x) ? kNaN : ::y0(x); }
double bessel_y1(double x) { return x <= 0 ? -kInfinity : std::isinf(x) ? kNaN : ::y1(x); }

// Rybicki's sum ("Dawson's integral and the sampling theorem", 1989): its error falls as exp(-(pi / 2h)^2).
double dawsn(double x) {
  const double a = std::fabs(x);
  if (std::isnan(x)) return x;
  if (a > 1e8) return 0.5 / x;
  if (a < 0.2) {
    double term = x, sum = x;
    for (int k = 1; k < 20; ++k) {
      term *= -2 * x * x / (2 * k + 1);
      sum += term;
    }
    return sum;
  }
  constexpr double h = 0.2;
  const double even = 2 * std::nearbyint(0.5 * a / h), rest = a - even * h;
  double sum = 0;
  for (int n = -33; n <= 33; n += 2) sum += std::exp(-(rest - n * h) * (rest - n * h)) / (even + n);
  return std::copysign(sum * std::numbers::inv_sqrtpi, x);
}

double expint(double x) {
  if (!(x >= 0)) return kNaN;
  if (x == 0) return -kInfinity;
  return std::isinf(x) ? kNaN : std::expint(x);
}

double fresnel_cos(double x) { return fresnel(x).real(); }
double fresnel_sin(double x) { return fresnel(x).imag(); }

double spence(double x) {
  constexpr double kLimit = std::numbers::pi * std::numbers::pi / 6;
  if (!(x >= 0)) return kNaN;
  if (std::isinf(x)) return kNaN;
  if (x == 0) return kLimit;
  const double z = 1 - x;
  if (x < 0.5) return kLimit - std::log(x) * std::log1p(-x) - dilogarithm(x);
  if (x <= 2) return dilogarithm(z);
  const double log = std::log(-z);
  return -kLimit - log * log / 2 - dilogarithm(1 / z);
}

}  // namespace troupe::special
