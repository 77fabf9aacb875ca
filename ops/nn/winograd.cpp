// SPDX-License-Identifier: Apache-2.0
// Each thread takes some tiles through all three parts, so that what one part makes is in the cache for the next:
// places of images are transformed, each of their kinds is multiplied by its own matrix of the filter in panels
// (ops/parts/panel_product.h), and the sums are transformed to results, which the epilogue finishes.
#include "ops/nn/winograd.h"

#include <algorithm>
#include <atomic>

#include "devices/parallel.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/panel_product.h"

namespace troupe {
namespace {

constexpr int64_t kFloatsAtOnce = 8;
constexpr int64_t kLeastChannels = 32;
/// So many more tiles would take as long as reading the transformed filter from memory does, and transforming it.
constexpr int64_t kTilesOfReading = 10, kTilesOfTransforming = 20;
// Tiles that a thread takes at a time: so many that the filter is not read too often, unless what they are transformed
// to leaves the cache.
constexpr int64_t kLeastTiles = 16, kMostTiles = 64, kPlacesBytes = 3 << 19, kFewTiles = 8;
constexpr int64_t kRun = 8;         // tiles whose results are finished together
constexpr int64_t kGapFloats = 16;  // between matrices, lest all of them meet in one set of the cache

typedef float Floats __attribute__((vector_size(kFloatsAtOnce * sizeof(float)), aligned(alignof(float)), may_alias));
#define TROUPE_INLINE [[gnu::always_inline]] inline

/// Places along an edge of what a tile of so many results is made of.
template <int kTile> constexpr int kEdge = kTile + 2;

// Where polynomials are interpolated for tiles of 4x4, beside 0 and the highest power: here and at the same below 0.
// Sums are off by 3e-6 of the largest, direct ones by 1.6e-6; at the usual 1 and 2 they are by 1e-5. For 2x2 it is at 1
// and -1.
constexpr float kNear = 0.75f, kFar = 1.5f, kNear2 = kNear * kNear, kFar2 = kFar * kFar;

/// Columns of the filter's 3, transformed to those of an edge.
template <int kTile> TROUPE_INLINE void transform_filter(const Floats* g, Floats* out) {
  if constexpr (kTile == 2) {
    const Floats half = (g[0] + g[2]) * 0.5f, middle = g[1] * 0.5f;
    out[0] = g[0], out[1] = half + middle, out[2] = half - middle, out[3] = g[2];
  } else {
    constexpr float kOfNear = 1 / (2 * kNear2 * (kNear2 - kFar2)), kOfFar = 1 / (2 * kFar2 * (kFar2 - kNear2));
    const Floats near = (g[0] + kNear2 * g[2]) * kOfNear, near_odd = g[1] * (kNear * kOfNear);
    const Floats far = (g[0] + kFar2 * g[2]) * kOfFar, far_odd = g[1] * (kFar * kOfFar);
    out[0] = g[0] * (1 / (kNear2 * kFar2));
    out[1] = near + near_odd, out[2] = near - near_odd;
    out[3] = far + far_odd, out[4] = far - far_odd;
    out[5] = g[2];
  }
}

template <int kTile> TROUPE_INLINE void transform_places(const Floats* d, Floats* out) {
  if constexpr (kTile == 2) {
    out[0] = d[0] - d[2], out[1] = d[1] + d[2], out[2] = d[2] - d[1], out[3] = d[1] - d[3];
  } else {
    const Floats near = d[4] - kFar2 * d[2], near_odd = kNear * (d[3] - kFar2 * d[1]);
    const Floats far = d[4] - kNear2 * d[2], far_odd = kFar * (d[3] - kNear2 * d[1]);
    out[0] = kNear2 * kFar2 * d[0] - (kNear2 + kFar2) * d[2] + d[4];
    out[1] = near + near_odd, out[2] = near - near_odd;
    out[3] = far + far_odd, out[4] = far - far_odd;
    out[5] = kNear2 * kFar2 * d[1] - (kNear2 + kFar2) * d[3] + d[5];
  }
}

template <int kTile> TROUPE_INLINE void transform_sums(const Floats* m, Floats* out) {
  if constexpr (kTile == 2) {
    out[0] = m[0] + m[1] + m[2], out[1] = m[1] - m[2] - m[3];
  } else {
    const Floats near = m[1] + m[2], near_odd = kNear * (m[1] - m[2]);
    const Floats far = m[3] + m[4], far_odd = kFar * (m[3] - m[4]);
    out[0] = m[0] + near + far, out[1] = near_odd + far_odd;
    out[2] = kNear2 * near + kFar2 * far, out[3] = kNear2 * near_odd + kFar2 * far_odd + m[5];
  }
}

/// What a filter has from `channel` of the images to so many of the results, from `first` on, to `to` of each kind;
/// kinds lie `kind` apart. The filter is [3, 3, in, out], or with kBack, turned round, [3, 3, out, in].
template <int kTile, bool kBack>
TROUPE_INLINE void filter_of_channel(const float* filter, int64_t in, int64_t out, int64_t channel, int64_t first,
                                     int64_t columns, float* to, int64_t kind) {
  constexpr int kSize = kEdge<kTile>;
  for (int64_t o = 0; o < columns; o += kFloatsAtOnce) {
    Floats rows[kSize][3];
    for (int x = 0; x < 3; ++x) {
      Floats g[3], made[kSize];
      for (int y = 0; y < 3; ++y) {
        if constexpr (kBack) {
          const float* const from = filter + ((8 - y * 3 - x) * out + first + o) * in + channel;
          float column[kFloatsAtOnce];
          for (int64_t i = 0; i < kFloatsAtOnce; ++i) column[i] = from[i * in];
          g[y] = *reinterpret_cast<const Floats*>(column);
        } else {
          g[y] = *reinterpret_cast<const Floats*>(filter + ((y * 3 + x) * in + channel) * out + first + o);
        }
      }
      transform_filter<kTile>(g, made);
      for (int y = 0; y < kSize; ++y) rows[y][x] = made[y];
    }
    for (int y = 0; y < kSize; ++y) {
      Floats made[kSize];
      transform_filter<kTile>(rows[y], made);
      for (int x = 0; x < kSize; ++x) *reinterpret_cast<Floats*>(to + (y * kSize + x) * kind + o) = made[x];
    }
  }
}

/// The places of a tile, at[edge * edge], each of so many channels, to `to` of each kind.
template <int kTile>
TROUPE_INLINE void places_of_tile(const float* const* at, int64_t channels, float* to, int64_t kind) {
  constexpr int kSize = kEdge<kTile>;
  for (int64_t c = 0; c < channels; c += kFloatsAtOnce) {
    Floats rows[kSize][kSize];
#pragma GCC unroll 6
    for (int x = 0; x < kSize; ++x) {
      Floats d[kSize], made[kSize];
#pragma GCC unroll 6
      for (int y = 0; y < kSize; ++y) d[y] = *reinterpret_cast<const Floats*>(at[y * kSize + x] + c);
      transform_places<kTile>(d, made);
#pragma GCC unroll 6
      for (int y = 0; y < kSize; ++y) rows[y][x] = made[y];
    }
#pragma GCC unroll 6
    for (int y = 0; y < kSize; ++y) {
      Floats made[kSize];
      transform_places<kTile>(rows[y], made);
#pragma GCC unroll 6
      for (int x = 0; x < kSize; ++x) *reinterpret_cast<Floats*>(to + (y * kSize + x) * kind + c) = made[x];
    }
  }
}

/// The sums of a tile, of each kind at `sums`, to results [tile, .., width] with `row` between rows.
template <int kTile>
TROUPE_INLINE void results_of_tile(const float* sums, int64_t kind, int64_t columns, float* out, int64_t row,
                                   int64_t width) {
  constexpr int kSize = kEdge<kTile>;
  for (int64_t o = 0; o < columns; o += kFloatsAtOnce) {
    Floats rows[kTile][kSize];
#pragma GCC unroll 6
    for (int x = 0; x < kSize; ++x) {
      Floats m[kSize], made[kTile];
#pragma GCC unroll 6
      for (int y = 0; y < kSize; ++y) m[y] = *reinterpret_cast<const Floats*>(sums + (y * kSize + x) * kind + o);
      transform_sums<kTile>(m, made);
#pragma GCC unroll 6
      for (int y = 0; y < kTile; ++y) rows[y][x] = made[y];
    }
#pragma GCC unroll 6
    for (int y = 0; y < kTile; ++y) {
      Floats made[kTile];
      transform_sums<kTile>(rows[y], made);
#pragma GCC unroll 6
      for (int x = 0; x < kTile; ++x) *reinterpret_cast<Floats*>(out + y * row + x * width + o) = made[x];
    }
  }
}

// The same as code of these processors.
template <int kTile, bool kBack>
TROUPE_AVX2_AND_FMA void filter_row(const float* filter, int64_t in, int64_t out, int64_t channel, int64_t first,
                                    int64_t columns, float* to, int64_t kind) {
  filter_of_channel<kTile, kBack>(filter, in, out, channel, first, columns, to, kind);
}
template <int kTile>
TROUPE_AVX2_AND_FMA void places(const float* const* at, int64_t channels, float* to, int64_t kind) {
  places_of_tile<kTile>(at, channels, to, kind);
}
template <int kTile>
TROUPE_AVX2_AND_FMA void results(const float* sums, int64_t kind, int64_t columns, float* out, int64_t row,
                                 int64_t width) {
  results_of_tile<kTile>(sums, kind, columns, out, row, width);
}

/// Tiles that so many results lie in.
int64_t tiles_of(int64_t results, int64_t tile) { return (results + tile - 1) / tile; }

bool fits(int64_t channels) { return channels >= kLeastChannels && channels % kFloatsAtOnce == 0; }

#undef TROUPE_INLINE

}  // namespace

ConvShape back_of(const ConvShape& s) {
  ConvShape out = s;
  std::swap(out.in_channels, out.out_channels);
  out.group_in = out.in_channels;
  for (WindowAxis* axis : {&out.y, &out.x}) {
    std::swap(axis->in, axis->out);
    axis->lo = 2 - axis->lo;
    axis->hi = 2 - axis->hi;
  }
  return out;
}

std::unique_ptr<Winograd> Winograd::make(const WindowAttrs& attrs, Filter direction, Tensor constant) {
  const auto ones = [](const int64_t(&n)[2]) { return n[0] == 1 && n[1] == 1; };
  if (!has_avx2_and_fma() || attrs.layout.channels_first || !ones(attrs.strides) || !ones(attrs.dilations))
    return nullptr;
  return std::unique_ptr<Winograd>(new Winograd(direction, std::move(constant)));
}

int64_t Winograd::cost(const ConvShape& s, int64_t tile, bool constant) const {
  return (tile + 2) * (tile + 2) *
         (s.batch * tiles_of(s.y.out, tile) * tiles_of(s.x.out, tile) + kTilesOfReading +
          (constant ? 0 : kTilesOfTransforming));
}

bool Winograd::pays(const ConvShape& s, const Tensor& filter) const {
  if (s.groups != 1 || s.y.size != 3 || s.x.size != 3 || !fits(s.in_channels) || !fits(s.out_channels)) return false;
  const bool constant = is_constant(filter);
  const int64_t direct = 9 * (s.batch * s.y.out * s.x.out + kTilesOfReading);
  return 10 * std::min(cost(s, 2, constant), cost(s, 4, constant)) <= 8 * direct;
}

template <int kTile> Result<Tensor> Winograd::transform(const KernelContext& c, const Tensor& filter) const {
  constexpr int64_t kKinds = kEdge<kTile> * kEdge<kTile>;
  const bool back = direction_ == Filter::kBack;
  const int64_t in = filter.dim(back ? 3 : 2), out = filter.dim(back ? 2 : 3);
  const int64_t width = panel_columns(), count = (out + width - 1) / width;
  TROUPE_ASSIGN(Tensor made, c.allocate(DType::kFloat32, {count, kKinds, in, width}));
  const float* const from = filter.data<float>();
  float* const to = made.mutable_data<float>();
  parallel_for(c.threads(), count * in, kFloatsAtOnce, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i / in, channel = i % in, first = panel * width, columns = std::min(width, out - first);
      float* const at = to + (panel * kKinds * in + channel) * width;
      if (back) filter_row<kTile, true>(from, in, out, channel, first, columns, at, in * width);
      else filter_row<kTile, false>(from, in, out, channel, first, columns, at, in * width);
      for (int64_t kind = 0; kind < kKinds; ++kind)
        std::fill_n(at + kind * in * width + columns, width - columns, 0.0f);
    }
  });
  return made;
}

template <int kTile> Result<Tensor> Winograd::transformed(const KernelContext& c, const Tensor& filter) {
  if (!is_constant(filter)) return transform<kTile>(c, filter);
  const std::lock_guard lock(mutex_);
  Tensor& kept = kept_[kTile / 4];
  if (!kept.defined()) {
    TROUPE_ASSIGN(kept, transform<kTile>(c, filter));
  }
  return kept;
}

template <int kTile>
Result<Tensor> Winograd::compute_in_tiles(KernelContext& c, const Tensor& images, const Tensor& filter,
                                          const ConvShape& s, const Epilogue& epilogue) {
  constexpr int64_t kSize = kEdge<kTile>, kKinds = kSize * kSize;
  const int64_t in = s.in_channels, out = s.out_channels, height = s.y.out, across = s.x.out;
  const int64_t row_of_tiles = tiles_of(across, kTile), of_image = tiles_of(height, kTile) * row_of_tiles;
  const int64_t all = s.batch * of_image;
  TROUPE_ASSIGN(const Tensor matrices, transformed<kTile>(c, filter));
  TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, {s.batch, height, across, out}));
  const int64_t width = panel_columns(), panels = matrices.dim(0);

  const int64_t most =
      std::clamp(kPlacesBytes / (kKinds * in * static_cast<int64_t>(sizeof(float))), kLeastTiles, kMostTiles);
  int64_t pieces = (all + most - 1) / most;
  if (const int64_t even = (pieces + c.threads() - 1) / c.threads() * c.threads(); all / even >= kFewTiles)
    pieces = even;
  const int64_t at_once = (all + pieces - 1) / pieces;
  const int64_t kind = at_once * in + kGapFloats, kind_of_sums = at_once * width + kGapFloats;
  const int64_t of_run = kTile * kTile * kRun * width, of_thread = kKinds * (kind + kind_of_sums) + of_run;
  TROUPE_ASSIGN(Tensor room, c.allocate(DType::kFloat32, {in + c.threads() * of_thread}));
  float *const zeros = room.mutable_data<float>(), *const rooms = zeros + in;
  std::fill_n(zeros, in, 0.0f);
  std::atomic<int64_t> taken = 0;  // of the rooms
  const float *const x = images.data<float>(), *const u = matrices.data<float>();
  float* const made = y.mutable_data<float>();

  parallel_for(c.threads(), pieces, 1, [&](int64_t begin, int64_t end) {
    float* const v = rooms + taken++ * of_thread;
    float *const sums = v + kKinds * kind, *const run = sums + kKinds * kind_of_sums;
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = all * piece / pieces, last = all * (piece + 1) / pieces;
      for (int64_t t = first; t < last; ++t) {
        const int64_t image = t / of_image, top = t % of_image / row_of_tiles * kTile - s.y.lo,
                      left = t % row_of_tiles * kTile - s.x.lo;
        const float* at[kKinds];
        for (int64_t i = 0; i < kKinds; ++i) {
          const int64_t row = top + i / kSize, column = left + i % kSize;
          const bool inside = row >= 0 && row < s.y.in && column >= 0 && column < s.x.in;
          at[i] = inside ? x + ((image * s.y.in + row) * s.x.in + column) * in : zeros;
        }
        places<kTile>(at, in, v + (t - first) * in, kind);
      }
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t channel = panel * width, columns = std::min(width, out - channel);
        for (int64_t k = 0; k < kKinds; ++k)
          multiply_panel(v + k * kind, last - first, in, u + (panel * kKinds + k) * in * width, columns, false,
                         sums + k * kind_of_sums);
        for (int64_t t = first; t < last;) {
          const int64_t column = t % row_of_tiles;  // runs are of tiles side by side
          const int64_t count = std::min({kRun, last - t, row_of_tiles - column}), row = count * kTile * width;
          for (int64_t i = 0; i < count; ++i)
            results<kTile>(sums + (t - first + i) * width, kind_of_sums, columns, run + i * kTile * width, row, width);
          const int64_t image = t / of_image, top = t % of_image / row_of_tiles * kTile;
          const int64_t side_by_side = std::min(count * kTile, across - column * kTile);
          for (int64_t i = 0; i < std::min<int64_t>(kTile, height - top); ++i)
            epilogue.apply_part(c,
                                {.sums = run + i * row,
                                 .row_of_sums = width,
                                 .rows = side_by_side,
                                 .columns = columns,
                                 .at = ((image * height + top + i) * across + column * kTile) * out + channel,
                                 .n = out},
                                made);
          t += count;
        }
      }
    }
  });
  return y;
}

Result<Tensor> Winograd::compute(KernelContext& c, const Tensor& images, const Tensor& filter, const ConvShape& s,
                                 const Epilogue& epilogue) {
  const bool constant = is_constant(filter);
  return cost(s, 4, constant) <= cost(s, 2, constant) ? compute_in_tiles<4>(c, images, filter, s, epilogue)
                                                      : compute_in_tiles<2>(c, images, filter, s, epilogue);
}

}  // namespace troupe
