// SPDX-License-Identifier: Apache-2.0
// Cooley and Tukey's transform for small prime factors, Bluestein's for others.
#include "ops/signal/fourier.h"

#include <algorithm>
#include <bit>
#include <numbers>

namespace troupe {
namespace {

constexpr int64_t kLargestFactor = 31;

Fourier::Number root(int64_t k, int64_t n) {
  const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

/// Products of numbers that are finite: without the branches for infinities of std::complex.
Fourier::Number times(Fourier::Number a, Fourier::Number b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

}  // namespace

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
void Fourier::recurse(Number* out, const Number* in, int64_t stride, size_t factor) {
  const int64_t p = factors_[factor], m = n_ / stride / p;
  for (int64_t q = 0; q < p; ++q) {
    if (m == 1) out[q] = in[q * stride];
    else recurse(out + q * m, in + q * stride, stride * p, factor + 1);
  }
  Number part[kLargestFactor];
  for (int64_t u = 0; u < m; ++u) {
    for (int64_t q = 0; q < p; ++q) part[q] = q == 0 ? out[u] : times(out[u + q * m], roots_[stride * u * q]);
    if (p == 2) {
      out[u] = part[0] + part[1];
      out[u + m] = part[0] - part[1];
    } else if (p == 4) {
      const Number even = part[0] + part[2], odd = part[0] - part[2], sum = part[1] + part[3];
      const Number turned{(part[1] - part[3]).imag(), -(part[1] - part[3]).real()};  // times -i
      out[u] = even + sum;
      out[u + m] = odd + turned;
      out[u + 2 * m] = even - sum;
      out[u + 3 * m] = odd - turned;
    } else {
      for (int64_t k = 0; k < p; ++k) {
        Number sum = part[0];
        for (int64_t q = 1; q < p; ++q) sum += times(part[q], roots_[k * q % p * (n_ / p)]);
        out[u + k * m] = sum;
      }
    }
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
