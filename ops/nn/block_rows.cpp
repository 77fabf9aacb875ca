// SPDX-License-Identifier: Apache-2.0
// A vector is a place's 16 channels. The sums of as many places as there are registers stay in them: of a 1x1
// convolution, which reads a weight once for all of them, at 0.85 to 0.9 of what the processor can add and multiply.
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

struct ClampVector {
  __m512 least, most;
  TROUPE_AVX512 explicit ClampVector(const BlockActivation& a)
      : least(_mm512_set1_ps(a.least)), most(_mm512_set1_ps(a.most)) {}
  TROUPE_AVX512 __m512 operator()(__m512 x) const { return _mm512_min_ps(most, _mm512_max_ps(least, x)); }
};

/// x / (1 + 2^n e^r) with -x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial for e^r that is within 2e-7.
struct SwishVector {
  TROUPE_AVX512 explicit SwishVector(const BlockActivation&) {}
  TROUPE_AVX512 __m512 operator()(__m512 x) const {
    const __m512 one = _mm512_set1_ps(1);
    // e^87 is finite, and its reciprocal a normal number; less than -87 gives 0, nearly.
    x = _mm512_max_ps(_mm512_set1_ps(-87), x);
    const __m512 y = _mm512_min_ps(_mm512_set1_ps(87), x);
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(y, _mm512_set1_ps(-1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    const __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.69314718056f), _mm512_sub_ps(_mm512_setzero_ps(), y));
    __m512 p = _mm512_set1_ps(8.3742114e-3f);
    for (const float c : {4.1667494e-2f, 1.6666580e-1f, 4.9999985e-1f, 1.0f, 1.0f})
      p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    const __m512 d = _mm512_add_ps(_mm512_scalef_ps(p, n), one);
    const __m512 q = _mm512_rcp14_ps(d);
    return _mm512_mul_ps(x, _mm512_mul_ps(q, _mm512_fnmadd_ps(d, q, _mm512_set1_ps(2))));
  }
};

/// Without the pragmas GCC keeps the sums in memory.
template <class Activation, int kPlaces>
TROUPE_AVX512 void pointwise_tile(const BlockActivation& a, const float* x, int64_t block, int64_t channels,
                                  const float* weights, const float* bias, float* const* to) {
  __m512 sums[kPlaces];
#pragma GCC unroll 28
  for (int p = 0; p < kPlaces; ++p) sums[p] = _mm512_loadu_ps(bias);
  for (int64_t first = 0; first < channels; first += kImageBlock, x += block) {
    const int64_t n = std::min(kImageBlock, channels - first);
    for (int64_t i = 0; i < n; ++i, weights += kImageBlock) {
      const __m512 w = _mm512_loadu_ps(weights);
#pragma GCC unroll 28
      for (int p = 0; p < kPlaces; ++p) sums[p] = _mm512_fmadd_ps(_mm512_set1_ps(x[p * kImageBlock + i]), w, sums[p]);
    }
  }
  const Activation activation(a);
#pragma GCC unroll 28
  for (int p = 0; p < kPlaces; ++p) _mm512_storeu_ps(to[p], activation(sums[p]));
}

template <class Activation, int kStride, int kPlaces>
TROUPE_AVX512 void depthwise_tile(const BlockActivation& a, const float* const* rows, int64_t first, int64_t height,
                                  int64_t width, const float* weights, const float* bias, float* y) {
  __m512 sums[kPlaces];
#pragma GCC unroll 14
  for (int p = 0; p < kPlaces; ++p) sums[p] = _mm512_loadu_ps(bias);
  for (int64_t j = 0; j < height; ++j) {
    const float* x = rows[j] + first;
    for (int64_t i = 0; i < width; ++i, x += kImageBlock, weights += kImageBlock) {
      const __m512 w = _mm512_loadu_ps(weights);
#pragma GCC unroll 14
      for (int p = 0; p < kPlaces; ++p)
        sums[p] = _mm512_fmadd_ps(_mm512_loadu_ps(x + p * kStride * kImageBlock), w, sums[p]);
    }
  }
  const Activation activation(a);
#pragma GCC unroll 14
  for (int p = 0; p < kPlaces; ++p) _mm512_storeu_ps(y + p * kImageBlock, activation(sums[p]));
}

template <class Activation, size_t... kAt>
void pointwise_of(std::index_sequence<kAt...>, const BlockActivation& a, int64_t n, const float* x, int64_t block,
                  int64_t channels, const float* weights, const float* bias, float* const* to) {
  using Tile =
      void (*)(const BlockActivation&, const float*, int64_t, int64_t, const float*, const float*, float* const*);
  static constexpr Tile kTiles[] = {pointwise_tile<Activation, static_cast<int>(kAt) + 1>...};
  kTiles[n - 1](a, x, block, channels, weights, bias, to);
}

template <class Activation>
void pointwise(const BlockActivation& a, int64_t n, const float* x, int64_t block, int64_t channels,
               const float* weights, const float* bias, float* const* to) {
  pointwise_of<Activation>(std::make_index_sequence<kMostPlaces>(), a, n, x, block, channels, weights, bias, to);
}

constexpr int64_t kMostOfRow = 14;  // places of a row: its loads are as many as its sums, so more gain nothing

template <class Activation, int kStride, size_t... kAt>
void depthwise_of(std::index_sequence<kAt...>, const BlockActivation& a, int64_t n, const float* const* rows,
                  int64_t height, int64_t width, const float* weights, const float* bias, float* y) {
  using Tile = void (*)(const BlockActivation&, const float* const*, int64_t, int64_t, int64_t, const float*,
                        const float*, float*);
  static constexpr Tile kTiles[] = {depthwise_tile<Activation, kStride, static_cast<int>(kAt) + 1>...};
  const int64_t groups = (n + kMostOfRow - 1) / kMostOfRow;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t from = n * g / groups, end = n * (g + 1) / groups;
    kTiles[end - from - 1](a, rows, from * kStride * kImageBlock, height, width, weights, bias, y + from * kImageBlock);
  }
}

template <class Activation, int kStride>
void depthwise(const BlockActivation& a, int64_t n, const float* const* rows, int64_t height, int64_t width,
               const float* weights, const float* bias, float* y) {
  depthwise_of<Activation, kStride>(std::make_index_sequence<kMostOfRow>(), a, n, rows, height, width, weights, bias,
                                    y);
}

}  // namespace

BlockRows::BlockRows(const BlockActivation& activation)
    : activation_(activation),
      pointwise_(activation.swish ? troupe::pointwise<SwishVector> : troupe::pointwise<ClampVector>),
      depthwise_(activation.swish ? troupe::depthwise<SwishVector, 1> : troupe::depthwise<ClampVector, 1>),
      depthwise_by_2_(activation.swish ? troupe::depthwise<SwishVector, 2> : troupe::depthwise<ClampVector, 2>) {}

bool BlockRows::available() { return has_avx512(); }
#else
BlockRows::BlockRows(const BlockActivation& activation) : activation_(activation) {}
bool BlockRows::available() { return false; }
#endif

}  // namespace troupe
