// SPDX-License-Identifier: Apache-2.0
// A vector, or with AVX2 two, are a place's 16 channels. The sums of as many places as there are registers stay in
// them: of a 1x1 convolution, which reads a weight once for all of them, at 0.85 to 0.9 of what the processor can add
// and multiply.
#include "ops/nn/block_rows.h"

#include <algorithm>
#include <utility>

#include "ops/parts/image_blocks.h"
#include "ops/parts/instruction_sets.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe {

std::optional<BlockActivation> BlockActivation::of(std::string_view name) {
  BlockActivation out;
  if (name.empty()) return out;
  if (name == "Swish") {
    out.swish = true;
    return out;
  }
  if (name != "Relu" && name != "Relu6") return {};
  out.least = 0;
  if (name == "Relu6") out.most = 6;
  return out;
}

#if defined(__x86_64__)
namespace {

// e^-x is 2^n 2^r with |r| <= 1/2, and this polynomial for 2^r, which is within 2e-7.
constexpr float kPerLog2 = 1.44269504f;
constexpr float kExp2First = 1.3381293e-3f, kExp2Next[] = {9.618353e-3f, 5.5503272e-2f, 2.402265e-1f, 6.9314718e-1f, 1};
// e^87 is finite; less than -87 gives 0, nearly.
constexpr float kSwishEnd = 87;

/// Without the pragmas GCC keeps the sums in memory.
struct Avx512Loops {
  static constexpr int kPlaces = kMostPlaces;
  static constexpr int kPlacesOfRow = 14;  // its loads are as many as its sums, so more gain nothing

  struct Clamp {
    __m512 least, most;
    TROUPE_AVX512 explicit Clamp(const BlockActivation& a)
        : least(_mm512_set1_ps(a.least)), most(_mm512_set1_ps(a.most)) {}
    TROUPE_AVX512 __m512 operator()(__m512 x) const { return _mm512_min_ps(most, _mm512_max_ps(least, x)); }
  };

  /// x / (1 + e^-x).
  struct Swish {
    TROUPE_AVX512 explicit Swish(const BlockActivation&) {}
    TROUPE_AVX512 __m512 operator()(__m512 x) const {
      x = _mm512_max_ps(_mm512_set1_ps(-kSwishEnd), x);
      const __m512 y = _mm512_min_ps(_mm512_set1_ps(kSwishEnd), x);
      const __m512 t = _mm512_mul_ps(y, _mm512_set1_ps(-kPerLog2));
      const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT);
      const __m512 r = _mm512_sub_ps(t, n);
      __m512 p = _mm512_set1_ps(kExp2First);
      for (const float c : kExp2Next) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
      const __m512 d = _mm512_add_ps(_mm512_scalef_ps(p, n), _mm512_set1_ps(1));
      const __m512 q = _mm512_rcp14_ps(d);
      return _mm512_mul_ps(x, _mm512_mul_ps(q, _mm512_fnmadd_ps(d, q, _mm512_set1_ps(2))));
    }
  };

  /// Of images in blocks.
  template <class Activation, int kCount>
  TROUPE_AVX512 static void pointwise(const BlockActivation& a, const float* x, int64_t, int64_t block,
                                      int64_t channels, const float* weights, const float* bias, float* const* to) {
    __m512 sums[kCount];
#pragma GCC unroll 28
    for (int p = 0; p < kCount; ++p) sums[p] = _mm512_loadu_ps(bias);
    for (int64_t first = 0; first < channels; first += kImageBlock, x += block) {
      const int64_t n = std::min(kImageBlock, channels - first);
      for (int64_t i = 0; i < n; ++i, weights += kImageBlock) {
        const __m512 w = _mm512_loadu_ps(weights);
#pragma GCC unroll 28
        for (int p = 0; p < kCount; ++p) sums[p] = _mm512_fmadd_ps(_mm512_set1_ps(x[p * kImageBlock + i]), w, sums[p]);
      }
    }
    const Activation activation(a);
#pragma GCC unroll 28
    for (int p = 0; p < kCount; ++p) _mm512_storeu_ps(to[p], activation(sums[p]));
  }

  template <class Activation, int kStride, int kCount>
  TROUPE_AVX512 static void depthwise(const BlockActivation& a, const float* const* rows, int64_t first, int64_t height,
                                      int64_t width, const float* weights, const float* bias, float* y, int64_t place) {
    __m512 sums[kCount];
#pragma GCC unroll 14
    for (int p = 0; p < kCount; ++p) sums[p] = _mm512_loadu_ps(bias);
    for (int64_t j = 0; j < height; ++j) {
      const float* x = rows[j] + first;
      for (int64_t i = 0; i < width; ++i, x += kImageBlock, weights += kImageBlock) {
        const __m512 w = _mm512_loadu_ps(weights);
#pragma GCC unroll 14
        for (int p = 0; p < kCount; ++p)
          sums[p] = _mm512_fmadd_ps(_mm512_loadu_ps(x + p * kStride * kImageBlock), w, sums[p]);
      }
    }
    const Activation activation(a);
#pragma GCC unroll 14
    for (int p = 0; p < kCount; ++p) _mm512_storeu_ps(y + p * place, activation(sums[p]));
  }
};

struct Avx2Loops {
  static constexpr int kPlaces = 6;  // of two sums each
  static constexpr int kPlacesOfRow = 6;

  struct Clamp {
    __m256 least, most;
    TROUPE_AVX2_AND_FMA explicit Clamp(const BlockActivation& a)
        : least(_mm256_set1_ps(a.least)), most(_mm256_set1_ps(a.most)) {}
    TROUPE_AVX2_AND_FMA __m256 operator()(__m256 x) const { return _mm256_min_ps(most, _mm256_max_ps(least, x)); }
  };

  /// x / (1 + e^-x).
  struct Swish {
    TROUPE_AVX2_AND_FMA explicit Swish(const BlockActivation&) {}
    TROUPE_AVX2_AND_FMA __m256 operator()(__m256 x) const {
      x = _mm256_max_ps(_mm256_set1_ps(-kSwishEnd), x);
      const __m256 y = _mm256_min_ps(_mm256_set1_ps(kSwishEnd), x);
      const __m256 t = _mm256_mul_ps(y, _mm256_set1_ps(-kPerLog2));
      const __m256 n = _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      const __m256 r = _mm256_sub_ps(t, n);
      __m256 p = _mm256_set1_ps(kExp2First);
      for (const float c : kExp2Next) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
      // Times 2^n, whose exponent is added; of a NaN nothing is, for its integer's bits are shifted out.
      const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
      const __m256 e = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
      return _mm256_div_ps(x, _mm256_add_ps(e, _mm256_set1_ps(1)));
    }
  };

  template <class Activation, int kCount>
  TROUPE_AVX2_AND_FMA static void pointwise(const BlockActivation& a, const float* x, int64_t place, int64_t block,
                                            int64_t channels, const float* weights, const float* bias,
                                            float* const* to) {
    __m256 low[kCount], high[kCount];
    const float* at[kCount];
#pragma GCC unroll 6
    for (int p = 0; p < kCount; ++p) {
      low[p] = _mm256_loadu_ps(bias);
      high[p] = _mm256_loadu_ps(bias + 8);
      at[p] = x + p * place;
    }
    for (int64_t first = 0; first < channels; first += kImageBlock) {
      const int64_t n = std::min(kImageBlock, channels - first);
      for (int64_t i = 0; i < n; ++i, weights += kImageBlock) {
        const __m256 w = _mm256_loadu_ps(weights), more = _mm256_loadu_ps(weights + 8);
#pragma GCC unroll 6
        for (int p = 0; p < kCount; ++p) {
          const __m256 v = _mm256_broadcast_ss(at[p] + i);
          low[p] = _mm256_fmadd_ps(v, w, low[p]);
          high[p] = _mm256_fmadd_ps(v, more, high[p]);
        }
      }
#pragma GCC unroll 6
      for (int p = 0; p < kCount; ++p) at[p] += block;
    }
    const Activation activation(a);
#pragma GCC unroll 6
    for (int p = 0; p < kCount; ++p) {
      _mm256_storeu_ps(to[p], activation(low[p]));
      _mm256_storeu_ps(to[p] + 8, activation(high[p]));
    }
  }

  template <class Activation, int kStride, int kCount>
  TROUPE_AVX2_AND_FMA static void depthwise(const BlockActivation& a, const float* const* rows, int64_t first,
                                            int64_t height, int64_t width, const float* weights, const float* bias,
                                            float* y, int64_t place) {
    __m256 low[kCount], high[kCount];
#pragma GCC unroll 6
    for (int p = 0; p < kCount; ++p) {
      low[p] = _mm256_loadu_ps(bias);
      high[p] = _mm256_loadu_ps(bias + 8);
    }
    for (int64_t j = 0; j < height; ++j) {
      const float* x = rows[j] + first;
      for (int64_t i = 0; i < width; ++i, x += kImageBlock, weights += kImageBlock) {
        const __m256 w = _mm256_loadu_ps(weights), more = _mm256_loadu_ps(weights + 8);
#pragma GCC unroll 6
        for (int p = 0; p < kCount; ++p) {
          low[p] = _mm256_fmadd_ps(_mm256_loadu_ps(x + p * kStride * kImageBlock), w, low[p]);
          high[p] = _mm256_fmadd_ps(_mm256_loadu_ps(x + p * kStride * kImageBlock + 8), more, high[p]);
        }
      }
    }
    const Activation activation(a);
#pragma GCC unroll 6
    for (int p = 0; p < kCount; ++p) {
      _mm256_storeu_ps(y + p * place, activation(low[p]));
      _mm256_storeu_ps(y + p * place + 8, activation(high[p]));
    }
  }
};

/// Loops of any number of places, by those of numbers that are known.
template <class Loops, class Activation> struct RowLoops {
  template <size_t... kAt>
  static void pointwise_of(std::index_sequence<kAt...>, const BlockActivation& a, int64_t n, const float* x,
                           int64_t place, int64_t block, int64_t channels, const float* weights, const float* bias,
                           float* const* to) {
    using Tile = void (*)(const BlockActivation&, const float*, int64_t, int64_t, int64_t, const float*, const float*,
                          float* const*);
    static constexpr Tile kTiles[] = {Loops::template pointwise<Activation, static_cast<int>(kAt) + 1>...};
    kTiles[n - 1](a, x, place, block, channels, weights, bias, to);
  }

  static void pointwise(const BlockActivation& a, int64_t n, const float* x, int64_t place, int64_t block,
                        int64_t channels, const float* weights, const float* bias, float* const* to) {
    pointwise_of(std::make_index_sequence<Loops::kPlaces>(), a, n, x, place, block, channels, weights, bias, to);
  }

  template <int kStride, size_t... kAt>
  static void depthwise_of(std::index_sequence<kAt...>, const BlockActivation& a, int64_t n, const float* const* rows,
                           int64_t height, int64_t width, const float* weights, const float* bias, float* y,
                           int64_t place) {
    using Tile = void (*)(const BlockActivation&, const float* const*, int64_t, int64_t, int64_t, const float*,
                          const float*, float*, int64_t);
    static constexpr Tile kTiles[] = {Loops::template depthwise<Activation, kStride, static_cast<int>(kAt) + 1>...};
    const int64_t groups = (n + Loops::kPlacesOfRow - 1) / Loops::kPlacesOfRow;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t from = n * g / groups, end = n * (g + 1) / groups;
      kTiles[end - from - 1](a, rows, from * kStride * kImageBlock, height, width, weights, bias, y + from * place,
                             place);
    }
  }

  template <int kStride>
  static void depthwise(const BlockActivation& a, int64_t n, const float* const* rows, int64_t height, int64_t width,
                        const float* weights, const float* bias, float* y, int64_t place) {
    depthwise_of<kStride>(std::make_index_sequence<Loops::kPlacesOfRow>(), a, n, rows, height, width, weights, bias, y,
                          place);
  }
};

}  // namespace

template <class Loops> void BlockRows::take() {
  using Clamped = RowLoops<Loops, typename Loops::Clamp>;
  using Swished = RowLoops<Loops, typename Loops::Swish>;
  const bool swish = activation_.swish;
  most_places_ = Loops::kPlaces;
  pointwise_ = swish ? Swished::pointwise : Clamped::pointwise;
  depthwise_ = swish ? Swished::template depthwise<1> : Clamped::template depthwise<1>;
  depthwise_by_2_ = swish ? Swished::template depthwise<2> : Clamped::template depthwise<2>;
}

BlockRows::BlockRows(const BlockActivation& activation, bool blocked) : activation_(activation) {
  if (blocked && has_avx512()) take<Avx512Loops>();
  else take<Avx2Loops>();
}

bool BlockRows::available(bool blocked) { return has_avx2_and_fma() || (blocked && has_avx512()); }
#else
BlockRows::BlockRows(const BlockActivation& activation, bool) : activation_(activation) {}
bool BlockRows::available(bool) { return false; }
#endif

}  // namespace troupe
