// SPDX-License-Identifier: Apache-2.0
// Special functions by their textbook series and continued fractions. Source: Abramowitz and Stegun, "Handbook of
// Mathematical Functions", 1964; equation numbers are theirs.
#include "ops/math/special_math.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>

namespace troupe::special {
namespace {

constexpr double kTiny = 1e-300;

/// B_2k / (2k)! for k = 1, 2, ...: the coefficients of Euler's and Maclaurin's sum.
constexpr double kBernoulliOverFactorial[] = {1.0 / 12,
                                              -1.0 / 720,
                                              1.0 / 30240,
                                              -1.0 / 1209600,
                                              1.0 / 47900160,
                                              -691.0 / 1307674368000,
                                              1.0 / 74724249600,
                                              -3617.0 / 10670622842880000,
                                              43867.0 / 5109094217170944000};

/// A number with its derivative by one variable.
struct Dual {
  double value, slope;
  Dual(double v, double s = 0) : value(v), slope(s) {}
  friend Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
  friend Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
  friend Dual operator/(Dual a, Dual b) {
    const double q = a.value / b.value;
    return {q, (a.slope - q * b.slope) / b.value};
  }
};
double magnitude(double x) { return std::fabs(x); }
double magnitude(Dual x) { return std::fabs(x.value) + std::fabs(x.slope); }

/// Terms that suffice where x and a are about `scale`: convergence slows as the square root there.
int term_limit(double scale) { return static_cast<int>(std::min(1000 + 30 * std::sqrt(scale), 2e6)); }

/// P(a, x) * gamma(a + 1) * exp(x) / x^a: the sum of x^n / ((a + 1) ... (a + n)) (6.5.29).
template <class S> S lower_series(S a, double x) {
  S term = 1, sum = 1, n = a;
  for (int k = 0; k < term_limit(x); ++k) {
    n = n + S(1);
    term = term * (S(x) / n);
    sum = sum + term;
    if (magnitude(term) < kEpsilon / 4 * magnitude(sum)) break;
  }
  return sum;
}

/// Q(a, x) * gamma(a) * exp(x) / x^a: a continued fraction (6.5.31) by Lentz's method.
template <class S> S upper_fraction(S a, double x) {
  S b = S(x + 1) - a, c = S(1 / kTiny), d = S(1) / b, h = d;
  for (int i = 1; i < term_limit(x); ++i) {
    const S an = S(-i) * (S(i) - a);
    b = b + S(2);
    d = an * d + b;
    if (magnitude(d) < kTiny) d = S(kTiny);
    c = b + an / c;
    if (magnitude(c) < kTiny) c = S(kTiny);
    d = S(1) / d;
    const S step = d * c;
    h = h * step;
    if (magnitude(step - S(1)) < kEpsilon) break;
  }
  return h;
}

/// exp(-x) x^a / gamma(a).
double gamma_density(double a, double x) { return std::exp(a * std::log(x) - x - lgamma(a)); }

/// Whether a and x are where P is defined and neither is an end of it.
bool inside(double a, double x) { return a > 0 && x > 0 && std::isfinite(a) && std::isfinite(x); }

double lower(double a, double x) { return gamma_density(a, x) / a * lower_series(a, x); }
double upper(double a, double x) { return gamma_density(a, x) * upper_fraction(a, x); }

/// Whether the series is to be preferred over the fraction, which would cancel for small a.
bool prefers_series(double a, double x) { return x < 1 || x < a; }

/// P at the ends, where a or x is 0, infinite or out of range, as TensorFlow has it.
double igamma_at_end(double a, double x) {
  if (x == 0) return 0;
  if (!(a > 0) || !(x > 0)) return kNaN;
  return std::isinf(a) ? 0 : 1;
}

/// The continued fraction of the incomplete beta function (26.5.8) by Lentz's method.
double beta_fraction(double a, double b, double x) {
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  if (std::fabs(d) < kTiny) d = kTiny;
  d = 1 / d;
  double h = d;
  for (int m = 1; m < term_limit(a + b); ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double step = 1;
    for (const double t : {even, odd}) {
      d = 1 + t * d;
      if (std::fabs(d) < kTiny) d = kTiny;
      c = 1 + t / c;
      if (std::fabs(c) < kTiny) c = kTiny;
      d = 1 / d;
      step = c * d;
      h *= step;
    }
    if (std::fabs(step - 1) < kEpsilon) break;
  }
  return h;
}

/// A first guess of the quantile of p <= 1/2 (26.2.23), 5e-4 off.
double rough_quantile(double p) {
  const double t = std::sqrt(-2 * std::log(p));
  return (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
}

}  // namespace

double lgamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}

double digamma(double x) {
  double result = 0;
  if (x <= 0) {
    const double part = x - std::round(x);  // by reflection (6.3.7); exact, also next to a whole number
    if (part == 0 || std::isinf(x)) return kNaN;
    if (std::abs(part) != 0.5) result = -std::numbers::pi / std::tan(std::numbers::pi * part);
    x = 1 - x;
  }
  for (; x < 10; x += 1) result -= 1 / x;
  if (std::isinf(x)) return x;
  const double z = 1 / (x * x);  // the asymptotic series (6.3.18)
  const double tail =
      z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * 691.0 / 32760)))));
  return result + std::log(x) - 0.5 / x - tail;
}

double polygamma(double n, double x) {
  if (!(n >= 0) || n != std::floor(n)) return kNaN;
  if (n == 0) return digamma(x);
  const double sign = std::fmod(n, 2) == 0 ? -1 : 1;
  return sign * std::exp(lgamma(n + 1)) * zeta(n + 1, x);
}

double zeta(double x, double q) {
  if (x == 1) return kInfinity;
  if (!(x > 1) || std::isnan(q)) return kNaN;
  const bool whole = x == std::floor(x);
  if (q <= 0) {
    if (q == std::floor(q)) return std::isinf(x) || std::fmod(x, 2) == 0 ? kInfinity : kNaN;
    if (!whole) return kNaN;
  }
  if (std::isinf(x)) return q > 1 ? 0 : q == 1 ? 1 : kInfinity;
  if (std::isinf(q)) return 0;
  // The first terms, then Euler's and Maclaurin's formula for the rest (23.2.9).
  double sum = 0, a = q;
  for (int k = 0; k < 10 || a <= 10; ++k, a += 1) {
    const double term = std::pow(a, -x);
    sum += term;
    if (a > 0 && std::fabs(term) < kEpsilon / 4 * std::fabs(sum)) return sum;
  }
  const double last = std::pow(a, -x);
  sum += last * a / (x - 1) + last / 2;
  double factor = x * last / a;  // x (x + 1) ... (x + 2k - 2) a^(-x - 2k + 1)
  for (int k = 0; k < 9; ++k) {
    const double term = kBernoulliOverFactorial[k] * factor;
    sum += term;
    if (std::fabs(term) < kEpsilon / 4 * std::fabs(sum)) break;
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2) / (a * a);
  }
  return sum;
}

double ndtri(double p) {
  if (!(p >= 0 && p <= 1)) return kNaN;
  if (p == 0) return -kInfinity;
  if (p == 1) return kInfinity;
  if (p > 0.5) return -ndtri(1 - p);
  if (p == 0.5) return 0;
  double x = rough_quantile(p);
  for (int i = 0; i < 3; ++i) {  // Halley's method
    const double excess = 0.5 * std::erfc(-x / std::numbers::sqrt2) - p;
    const double e = excess * std::sqrt(2 * std::numbers::pi) * std::exp(x * x / 2);
    x -= e / (1 + x * e / 2);
  }
  return x;
}

double erfinv(double x) {
  if (!(x >= -1 && x <= 1)) return kNaN;
  if (std::fabs(x) > 0.5) return std::copysign(ndtri((1 - std::fabs(x)) / 2), x) / std::numbers::sqrt2;
  double y = x * (1 + x * x * std::numbers::pi / 12) / (2 * std::numbers::inv_sqrtpi);
  for (int i = 0; i < 4; ++i) {  // Halley's method
    const double e = (std::erf(y) - x) / (2 * std::numbers::inv_sqrtpi * std::exp(-y * y));
    y -= e / (1 + y * e);
  }
  return y;
}

double igamma(double a, double x) {
  if (!inside(a, x)) return igamma_at_end(a, x);
  return prefers_series(a, x) ? lower(a, x) : 1 - upper(a, x);
}

double igammac(double a, double x) {
  if (!(a > 0)) return kNaN;
  if (!inside(a, x)) return std::isinf(x) ? 0 : 1 - igamma_at_end(a, x);
  return prefers_series(a, x) ? 1 - lower(a, x) : upper(a, x);
}

double igamma_grad_a(double a, double x) {
  if (!inside(a, x)) return igamma_at_end(a, x) * 0;
  if (prefers_series(a, x)) {
    const Dual sum = lower_series(Dual(a, 1), x);
    return gamma_density(a, x) / a * (sum.value * (std::log(x) - digamma(a + 1)) + sum.slope);
  }
  const Dual h = upper_fraction(Dual(a, 1), x);
  return -gamma_density(a, x) * (h.value * (std::log(x) - digamma(a)) + h.slope);
}

double random_gamma_grad(double alpha, double x) {
  if (!inside(alpha, x)) return igamma_at_end(alpha, x) * 0;
  if (prefers_series(alpha, x)) {
    const Dual sum = lower_series(Dual(alpha, 1), x);
    return -x / alpha * (sum.value * (std::log(x) - digamma(alpha + 1)) + sum.slope);
  }
  const Dual h = upper_fraction(Dual(alpha, 1), x);
  return x * (h.value * (std::log(x) - digamma(alpha)) + h.slope);
}

double betainc(double a, double b, double x) {
  if (a <= 0 || b <= 0 || !(x >= 0 && x <= 1)) return kNaN;
  if (x == 0 || x == 1) return x;
  if (std::isnan(a) || std::isnan(b)) return kNaN;
  const double front = std::exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front / a * beta_fraction(a, b, x);
  return 1 - front / b * beta_fraction(b, a, 1 - x);
}

}  // namespace troupe::special
