// SPDX-License-Identifier: Apache-2.0
// Cooley and Tukey's transform for small prime factors, Bailey's of a matrix for long lines, Bluestein's for lengths
// with a large prime factor.
#include "ops/signal/fourier.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "devices/parallel.h"
#include "ops/parts/instruction_sets.h"

namespace troupe {
namespace {

constexpr int64_t kLargestFactor = 31;
/// From this length on the lanes of a processor take the columns and rows of one sequence.
constexpr int64_t kLong = 2048;

#define INLINE [[gnu::always_inline]] inline
template <class R, int L> INLINE Lanes<R, L> times(const Lanes<R, L>& a, const Lanes<R, 1>& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class R, int L> INLINE Lanes<R, L> operator+(const Lanes<R, L>& a, const Lanes<R, L>& b) {
  return {a.re + b.re, a.im + b.im};
}
template <class R, int L> INLINE Lanes<R, L> operator-(const Lanes<R, L>& a, const Lanes<R, L>& b) {
  return {a.re - b.re, a.im - b.im};
}
/// Times -i.
template <class R, int L> INLINE Lanes<R, L> turn(const Lanes<R, L>& a) { return {a.im, -a.re}; }

}  // namespace

/// The inner loops, for each type and number of lanes.
struct FourierSteps {
  /// out = the transform of every `stride`th number of in, of as many as the factors from `factor` on make.
  template <class R, class N>
  INLINE static void recurse_body(const Fourier<R>& f, N* out, const N* in, int64_t stride, size_t factor) {
    const int64_t p = f.factors_[factor], m = f.n_ / stride / p;
    const auto four = [](N* to, int64_t apart, N a, N b, N c, N d) [[gnu::always_inline]] {
      const N even = a + c, odd = a - c, sum = b + d, turned = turn(b - d);
      to[0] = even + sum;
      to[apart] = odd + turned;
      to[2 * apart] = even - sum;
      to[3 * apart] = odd - turned;
    };
    if (m == 4 && f.factors_[factor + 1] == 4) {  // without a call for every four numbers
      for (int64_t q = 0; q < p; ++q) {
        const N *const a = in + q * stride, *const b = a + stride * p, *const c = b + stride * p,
                       *const d = c + stride * p;
        four(out + q * 4, 1, *a, *b, *c, *d);
      }
    } else {
      for (int64_t q = 0; q < p; ++q) {
        if (m == 1) out[q] = in[q * stride];
        else recurse(f, out + q * m, in + q * stride, stride * p, factor + 1);
      }
    }
    const auto* roots = f.roots_.data();
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
    } else if (p == 3) {
      odd<3>(f, out, m, stride, p);
    } else if (p == 5) {
      odd<5>(f, out, m, stride, p);
    } else {
      odd<0>(f, out, m, stride, p);
    }
  }
  /// Joins the transforms of p parts, P or, if that is 0, any odd number: numbers k and p - k at once, by sums and
  /// differences of parts q and p - q.
  template <int P, class R, class N>
  INLINE static void odd(const Fourier<R>& f, N* out, int64_t m, int64_t stride, int64_t any) {
    const int64_t p = P > 0 ? P : any, half = p / 2, step = f.n_ / p;
    const auto* roots = f.roots_.data();
    N sum[kLargestFactor / 2 + 1], difference[kLargestFactor / 2 + 1];
    for (int64_t u = 0; u < m; ++u) {
      const N first = out[u];
      N all = first;
      for (int64_t q = 1; q <= half; ++q) {
        const N a = times(out[u + q * m], roots[stride * u * q]),
                b = times(out[u + (p - q) * m], roots[stride * u * (p - q)]);
        sum[q] = a + b;
        difference[q] = a - b;
        all = all + sum[q];
      }
      out[u] = all;
      for (int64_t k = 1; k <= half; ++k) {
        N even = first, turned = {};
        for (int64_t q = 1, at = k; q <= half; ++q, at = at + k < p ? at + k : at + k - p) {
          const auto& root = roots[at * step];
          even = {even.re + sum[q].re * root.re, even.im + sum[q].im * root.re};
          turned = {turned.re - difference[q].im * root.im, turned.im + difference[q].re * root.im};
        }
        out[u + k * m] = even + turned;
        out[u + (p - k) * m] = even - turned;
      }
    }
  }
  /// Numbers k and half - k at once, by what both are.
  template <class R, class N> INLINE static void part_body(N* line, const Lanes<R, 1>* turns, int64_t half) {
    line[half] = line[0];
    for (int64_t k = 0; k <= half - k; ++k) {
      const N a = line[k], b = line[half - k];
      const Lanes<R, 1> w{turns[k].re / 2, turns[k].im / 2};
      const N even{(a.re + b.re) / 2, (a.im - b.im) / 2}, odd = times(N{a.im + b.im, b.re - a.re}, w);
      line[k] = even + odd;
      line[half - k] = {even.re - odd.re, odd.im - even.im};
    }
  }
  template <class R, class N> INLINE static void join_body(N* line, const Lanes<R, 1>* turns, int64_t half) {
    for (int64_t k = 0; k <= half - k; ++k) {
      const N a = line[k], b = line[half - k];
      const N even{a.re + b.re, a.im - b.im}, odd = times(N{a.re - b.re, a.im + b.im}, turns[k]);
      line[k] = even + turn(odd);
      line[half - k] = {even.re - odd.im, -even.im - odd.re};
    }
  }
#define OF_LINES(R, L)                                                                                                 \
  TROUPE_SIMD_CLONES static void recurse(const Fourier<R>& f, Lanes<R, L>* out, const Lanes<R, L>* in, int64_t stride, \
                                         size_t factor) {                                                              \
    recurse_body(f, out, in, stride, factor);                                                                          \
  }                                                                                                                    \
  TROUPE_SIMD_CLONES static void part(Lanes<R, L>* line, const Lanes<R, 1>* turns, int64_t half) {                     \
    part_body(line, turns, half);                                                                                      \
  }                                                                                                                    \
  TROUPE_SIMD_CLONES static void join(Lanes<R, L>* line, const Lanes<R, 1>* turns, int64_t half) {                     \
    join_body(line, turns, half);                                                                                      \
  }
  OF_LINES(float, 1)
  OF_LINES(float, 8)
  OF_LINES(double, 1)
  OF_LINES(double, 4)
#undef OF_LINES

  /// Columns [begin, end) of the matrix `in`, each transformed and turned, into those of `out`.
  template <class R>
  INLINE static void columns_body(const Fourier<R>& f, const Lanes<R, 1>* in, Lanes<R, 1>* out, int64_t begin,
                                  int64_t end, typename Fourier<R>::Numbers* lanes) {
    constexpr int kLanes = Fourier<R>::kLanes;
    const int64_t a = f.columns_->size(), b = f.rows_->size();
    const auto transform = [&](int64_t j, auto used) [[gnu::always_inline]] {
      for (int64_t k = 0; k < a; ++k)
        for (int l = 0; l < kLanes; ++l) {
          lanes[a + k].re[l] = in[k * b + j + l % used].re;
          lanes[a + k].im[l] = in[k * b + j + l % used].im;
        }
      recurse(*f.columns_, lanes, lanes + a, 1, 0);
      for (int64_t k = 0; k < a; ++k)
        for (int l = 0; l < used; ++l)
          out[k * b + j + l] = times(Lanes<R, 1>{lanes[k].re[l], lanes[k].im[l]}, f.turns_[k * b + j + l]);
    };
    int64_t j = begin;
    for (; j + kLanes <= end; j += kLanes) transform(j, std::integral_constant<int, kLanes>());
    if (j < end) transform(j, static_cast<int>(end - j));
  }
  /// Rows [begin, end) of the matrix `in`, each transformed, into columns of `out`.
  template <class R>
  INLINE static void rows_body(const Fourier<R>& f, const Lanes<R, 1>* in, Lanes<R, 1>* out, int64_t begin, int64_t end,
                               typename Fourier<R>::Numbers* lanes) {
    constexpr int kLanes = Fourier<R>::kLanes;
    const int64_t a = f.columns_->size(), b = f.rows_->size();
    const auto transform = [&](int64_t k, auto used) [[gnu::always_inline]] {
      for (int l = 0; l < kLanes; ++l) {
        const Lanes<R, 1>* row = in + (k + l % used) * b;
        for (int64_t j = 0; j < b; ++j) {
          lanes[b + j].re[l] = row[j].re;
          lanes[b + j].im[l] = row[j].im;
        }
      }
      recurse(*f.rows_, lanes, lanes + b, 1, 0);
      for (int64_t j = 0; j < b; ++j)
        for (int l = 0; l < used; ++l) out[j * a + k + l] = {lanes[j].re[l], lanes[j].im[l]};
    };
    int64_t k = begin;
    for (; k + kLanes <= end; k += kLanes) transform(k, std::integral_constant<int, kLanes>());
    if (k < end) transform(k, static_cast<int>(end - k));
  }
#define OF_MATRIX(R)                                                                                                  \
  TROUPE_SIMD_CLONES static void columns(const Fourier<R>& f, const Lanes<R, 1>* in, Lanes<R, 1>* out, int64_t begin, \
                                         int64_t end, Fourier<R>::Numbers* lanes) {                                   \
    columns_body(f, in, out, begin, end, lanes);                                                                      \
  }                                                                                                                   \
  TROUPE_SIMD_CLONES static void rows(const Fourier<R>& f, const Lanes<R, 1>* in, Lanes<R, 1>* out, int64_t begin,    \
                                      int64_t end, Fourier<R>::Numbers* lanes) {                                      \
    rows_body(f, in, out, begin, end, lanes);                                                                         \
  }
  OF_MATRIX(float)
  OF_MATRIX(double)
#undef OF_MATRIX
};

template <class R> typename Fourier<R>::Number Fourier<R>::root(int64_t k, int64_t n) {
  const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {static_cast<R>(std::cos(angle)), static_cast<R>(std::sin(angle))};
}

template <class R> Fourier<R>::~Fourier() = default;

template <class R> Fourier<R>::Fourier(int64_t n, bool may_be_long) : n_(n) {
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
    transform_.assign(static_cast<size_t>(m), {});
    for (int64_t k = 0, square = 0; k < n; square = (square + 2 * k + 1) % (2 * n), ++k) {
      chirp_[k] = root(square, 2 * n);
      transform_[k] = transform_[(m - k) % m] = {chirp_[k].re, -chirp_[k].im};
    }
    std::vector<Number> work(static_cast<size_t>(convolution_->work_size()));
    convolution_->run(transform_.data(), work.data());
    return;
  }
  if (may_be_long && n >= kLong) {
    auto a = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
    while (n % a != 0) --a;
    const int64_t b = n / a;
    rows_.reset(new Fourier(b, false));
    columns_.reset(new Fourier(a, false));
    turns_.resize(static_cast<size_t>(n));
    for (int64_t k = 0; k < a; ++k)
      for (int64_t j = 0; j < b; ++j) turns_[k * b + j] = root(j * k, n);
    return;
  }
  roots_.resize(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) roots_[k] = root(k, n);
}

template <class R> void Fourier<R>::run(Number* line, Number* work, int threads) const {
  if (n_ <= 1) return;
  if (convolution_) return convolve(line, work, threads);
  if (!rows_) {
    std::copy_n(line, n_, work);
    FourierSteps::recurse(*this, line, work, 1, 0);
    return;
  }
  const int64_t a = columns_->size(), b = rows_->size();
  const auto groups = [](int64_t count) { return (count + kLanes - 1) / kLanes; };
  parallel_for(threads, groups(b), 8, [&](int64_t begin, int64_t end) {
    std::vector<Numbers> lanes(static_cast<size_t>(2 * a));
    FourierSteps::columns(*this, line, work, begin * kLanes, std::min(end * kLanes, b), lanes.data());
  });
  parallel_for(threads, groups(a), 8, [&](int64_t begin, int64_t end) {
    std::vector<Numbers> lanes(static_cast<size_t>(2 * b));
    FourierSteps::rows(*this, work, line, begin * kLanes, std::min(end * kLanes, a), lanes.data());
  });
}

template <class R> void Fourier<R>::run(Numbers* lines, Numbers* work) const {
  if (n_ <= 1) return;
  if (convolution_) return convolve(lines, work, 1);
  std::copy_n(lines, n_, work);
  FourierSteps::recurse(*this, lines, work, 1, 0);
}

/// j k = (j^2 + k^2 - (k - j)^2) / 2, so that the transform is a convolution with the chirp.
template <class R> template <class N> void Fourier<R>::convolve(N* data, N* work, int threads) const {
  const int64_t m = convolution_->size();
  N *const line = work, *const rest = work + m;
  const auto run = [&] {
    if constexpr (std::is_same_v<N, Number>) convolution_->run(line, rest, threads);
    else convolution_->run(line, rest);
  };
  for (int64_t k = 0; k < n_; ++k) line[k] = times(data[k], chirp_[k]);
  std::fill(line + n_, line + m, N{});
  run();
  for (int64_t k = 0; k < m; ++k) {
    line[k] = times(line[k], transform_[k]);
    line[k].im = -line[k].im;  // and back by the conjugates
  }
  run();
  const R scale = 1 / static_cast<R>(m);
  for (int64_t k = 0; k < n_; ++k) data[k] = times(N{line[k].re * scale, line[k].im * -scale}, chirp_[k]);
}

template <class R>
RealFourier<R>::RealFourier(int64_t n, bool real)
    : half_(real && n % 2 == 0 ? n / 2 : 0), fourier_(half_ > 0 ? half_ : n) {
  for (int64_t k = 0; halved() && k <= half_; ++k) turns_.push_back(Fourier<R>::root(k, n));
}

template <class R> void RealFourier<R>::part(Number* line) const { FourierSteps::part(line, turns_.data(), half_); }
template <class R> void RealFourier<R>::part(Numbers* line) const { FourierSteps::part(line, turns_.data(), half_); }
template <class R> void RealFourier<R>::join(Number* line) const { FourierSteps::join(line, turns_.data(), half_); }
template <class R> void RealFourier<R>::join(Numbers* line) const { FourierSteps::join(line, turns_.data(), half_); }

template class Fourier<float>;
template class Fourier<double>;
template class RealFourier<float>;
template class RealFourier<double>;

}  // namespace troupe

#undef INLINE
