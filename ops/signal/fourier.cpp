// SPDX-License-Identifier: Apache-2.0
// Cooley and Tukey's transform for small prime factors, Bluestein's for others.
#include "ops/signal/fourier.h"

#include <algorithm>
#include <bit>
#include <numbers>

#include "ops/parts/instruction_sets.h"

namespace troupe {
namespace {

constexpr int64_t kLargestFactor = 31;

/// Products of numbers that are finite: without the branches for infinities of std::complex.
Fourier::Number times(Fourier::Number a, Fourier::Number b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

using Lanes = Fourier::Lanes;
[[gnu::always_inline]] inline Lanes times(const Lanes& a, Fourier::Number b) {
  return {a.re * b.real() - a.im * b.imag(), a.re * b.imag() + a.im * b.real()};
}
[[gnu::always_inline]] inline Lanes operator+(const Lanes& a, const Lanes& b) { return {a.re + b.re, a.im + b.im}; }
[[gnu::always_inline]] inline Lanes operator-(const Lanes& a, const Lanes& b) { return {a.re - b.re, a.im - b.im}; }
/// Times -i.
[[gnu::always_inline]] inline Lanes turn(const Lanes& a) { return {a.im, -a.re}; }
Fourier::Number turn(Fourier::Number a) { return {a.imag(), -a.real()}; }

}  // namespace

Fourier::Number Fourier::root(int64_t k, int64_t n) {
  const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

Fourier::Fourier(int64_t n) : n_(n) {
  int64_t rest = n;
  for (int64_t p = 4; rest > 1 && p <= kLargestFactor;) {
    if (rest % p == 0) {
      factors_.push_back(p);
      rest /= p;
    } else {
      p = p == 4 ? 2 : p == 2 ? 3 : p + 2;
    }
  }
  if (rest > 1) {
    const auto m = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * n - 1)));
    convolution_ = std::make_unique<Fourier>(m);
    chirp_.resize(static_cast<size_t>(n));
    transform_.assign(static_cast<size_t>(m), 0);
    work_.resize(static_cast<size_t>(m));
    for (int64_t k = 0, square = 0; k < n; square = (square + 2 * k + 1) % (2 * n), ++k) {
      chirp_[k] = root(square, 2 * n);
      transform_[k] = transform_[(m - k) % m] = std::conj(chirp_[k]);
    }
    convolution_->run(transform_.data(), false);
    return;
  }
  work_.resize(static_cast<size_t>(n));
  roots_.resize(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) roots_[k] = root(k, n);
}

void Fourier::run(Number* data, bool inverse) {
  if (n_ <= 1) return;
  if (inverse)
    for (int64_t k = 0; k < n_; ++k) data[k] = std::conj(data[k]);
  if (convolution_) convolve(data);
  else forward(data);
  if (inverse)
    for (int64_t k = 0; k < n_; ++k) data[k] = std::conj(data[k]);
}

void Fourier::forward(Number* data) {
  std::copy_n(data, n_, work_.data());
  recurse(data, work_.data(), 1, 0);
}

/// out = the transform of every `stride`th number of in, of as many as the factors from `factor` on make.
template <class N>
[[gnu::always_inline]] inline void Fourier::recurse_body(N* out, const N* in, int64_t stride, size_t factor) const {
  const int64_t p = factors_[factor], m = n_ / stride / p;
  const auto four = [](N* to, int64_t apart, N a, N b, N c, N d) [[gnu::always_inline]] {
    const N even = a + c, odd = a - c, sum = b + d, turned = turn(b - d);
    to[0] = even + sum;
    to[apart] = odd + turned;
    to[2 * apart] = even - sum;
    to[3 * apart] = odd - turned;
  };
  if (m == 4 && factors_[factor + 1] == 4) {  // without a call for every four numbers
    for (int64_t q = 0; q < p; ++q) {
      const N *at = in + q * stride, *const a = at, *const b = at + stride * p, *const c = at + 2 * stride * p,
              *const d = at + 3 * stride * p;
      four(out + q * 4, 1, *a, *b, *c, *d);
    }
  } else {
    for (int64_t q = 0; q < p; ++q) {
      if (m == 1) out[q] = in[q * stride];
      else recurse(out + q * m, in + q * stride, stride * p, factor + 1);
    }
  }
  const Number* roots = roots_.data();
  if (p == 2) {
    for (int64_t u = 0; u < m; ++u) {
      const N a = out[u], b = times(out[u + m], roots[stride * u]);
      out[u] = a + b;
      out[u + m] = a - b;
    }
  } else if (p == 4) {
    for (int64_t u = 0; u < m; ++u) {
      four(out + u, m, out[u], times(out[u + m], roots[stride * u]), times(out[u + 2 * m], roots[stride * u * 2]),
           times(out[u + 3 * m], roots[stride * u * 3]));
    }
  } else {
    N part[kLargestFactor];
    for (int64_t u = 0; u < m; ++u) {
      for (int64_t q = 0; q < p; ++q) part[q] = q == 0 ? out[u] : times(out[u + q * m], roots[stride * u * q]);
      for (int64_t k = 0; k < p; ++k) {
        N sum = part[0];
        for (int64_t q = 1; q < p; ++q) sum = sum + times(part[q], roots[k * q % p * (n_ / p)]);
        out[u + k * m] = sum;
      }
    }
  }
}
void Fourier::recurse(Number* out, const Number* in, int64_t stride, size_t factor) const {
  recurse_body(out, in, stride, factor);
}
TROUPE_SIMD_CLONES void Fourier::recurse(Lanes* out, const Lanes* in, int64_t stride, size_t factor) const {
  recurse_body(out, in, stride, factor);
}

void Fourier::run(Lanes* data, Lanes* work) const {
  if (n_ <= 1) return;
  if (!convolution_) {
    std::copy_n(data, n_, work);
    recurse(data, work, 1, 0);
    return;
  }
  const int64_t m = convolution_->size();
  Lanes* const line = work + m;
  for (int64_t k = 0; k < n_; ++k) line[k] = times(data[k], chirp_[k]);
  std::fill(line + n_, line + m, Lanes{});
  convolution_->run(line, work);
  for (int64_t k = 0; k < m; ++k) {
    line[k] = times(line[k], transform_[k]);
    line[k].im = -line[k].im;  // and back by the conjugates
  }
  convolution_->run(line, work);
  for (int64_t k = 0; k < n_; ++k) {
    const Lanes x{line[k].re / static_cast<double>(m), -line[k].im / static_cast<double>(m)};
    data[k] = times(x, chirp_[k]);
  }
}

/// j k = (j^2 + k^2 - (k - j)^2) / 2, so that the transform is a convolution with the chirp.
void Fourier::convolve(Number* data) {
  const int64_t m = convolution_->size();
  for (int64_t k = 0; k < n_; ++k) work_[k] = times(data[k], chirp_[k]);
  std::fill(work_.begin() + n_, work_.end(), Number());
  convolution_->run(work_.data(), false);
  for (int64_t k = 0; k < m; ++k) work_[k] = times(work_[k], transform_[k]);
  convolution_->run(work_.data(), true);
  for (int64_t k = 0; k < n_; ++k) data[k] = times(work_[k], chirp_[k]) / static_cast<double>(m);
}

}  // namespace troupe
