// SPDX-License-Identifier: Apache-2.0
// Images as weighted sums of the places of others, along the rows and then along the columns.
#pragma once
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "devices/parallel.h"
#include "ops/index_tensors.h"
#include "ops/type_dispatch.h"
#include "ops/wrapping.h"

namespace troupe {

using ImageTypes = TypeList<int8_t, uint8_t, int16_t, uint16_t, int32_t, int64_t, bfloat16, float16, float, double>;

/// An axis: for each place of the result the places it is made of and their weights. Taps [start[i], start[i + 1]) make
/// place i.
struct Taps {
  std::vector<int64_t> start = {0}, index;
  std::vector<float> weight;

  void add(int64_t at, float w) {
    index.push_back(at);
    weight.push_back(w);
  }
  void close() { start.push_back(static_cast<int64_t>(index.size())); }
  Taps transposed(int64_t places) const {
    Taps out;
    out.start.assign(static_cast<size_t>(places) + 1, 0);
    out.index.resize(index.size());
    out.weight.resize(index.size());
    for (int64_t at : index) ++out.start[at + 1];
    for (int64_t i = 0; i < places; ++i) out.start[i + 1] += out.start[i];
    std::vector<int64_t> next(out.start.begin(), out.start.end() - 1);
    for (size_t i = 0; i + 1 < start.size(); ++i)
      for (int64_t t = start[i]; t < start[i + 1]; ++t) {
        const int64_t to = next[index[t]]++;
        out.index[to] = static_cast<int64_t>(i);
        out.weight[to] = weight[t];
      }
    return out;
  }
};

/// y [batch, taps of rows, taps of columns, channels] from x of type In; sums are made in A.
template <class In, class A, class Out>
void resample(const Tensor& x, Tensor& y, const Taps& rows, const Taps& columns, int threads) {
  const int64_t in_h = x.dim(1), in_w = x.dim(2), h = y.dim(1), w = y.dim(2), channels = y.dim(3),
                line = in_w * channels;
  const In* in = x.data<In>();
  Out* out = y.mutable_data<Out>();
  parallel_for(threads, y.dim(0) * h, 1 + kDearGrain / std::max<int64_t>(w * channels, 1),
               [&](int64_t begin, int64_t end) {
                 std::vector<A> row(static_cast<size_t>(line)), pixel(static_cast<size_t>(channels));
                 for (int64_t r = begin; r < end; ++r) {
                   std::fill(row.begin(), row.end(), A());
                   for (int64_t t = rows.start[r % h]; t < rows.start[r % h + 1]; ++t) {
                     const In* from = in + (r / h * in_h + rows.index[t]) * line;
                     const auto weight = static_cast<A>(rows.weight[t]);
                     for (int64_t k = 0; k < line; ++k)
                       row[k] = wrapping_add(row[k], wrapping_multiply(weight, static_cast<A>(widen(from[k]))));
                   }
                   for (int64_t i = 0; i < w; ++i) {
                     std::fill(pixel.begin(), pixel.end(), A());
                     for (int64_t t = columns.start[i]; t < columns.start[i + 1]; ++t) {
                       const A* from = row.data() + columns.index[t] * channels;
                       const auto weight = static_cast<A>(columns.weight[t]);
                       for (int64_t k = 0; k < channels; ++k)
                         pixel[k] = wrapping_add(pixel[k], wrapping_multiply(weight, from[k]));
                     }
                     Out* to = out + (r * w + i) * channels;
                     for (int64_t k = 0; k < channels; ++k) to[k] = narrow<Out>(static_cast<Arithmetic<Out>>(pixel[k]));
                   }
                 }
               });
}

/// Height and width from input `size`. Errors: not two numbers above 0.
inline Result<std::pair<int64_t, int64_t>> size_from(const Tensor& t) {
  TROUPE_ASSIGN(const auto size, int_values(t, "size"));
  if (size.size() != 2 || size[0] <= 0 || size[1] <= 0)
    return invalid_argument("size must be two numbers above 0, not [{}]", fmt::join(size, ","));
  return std::pair(size[0], size[1]);
}

/// Images [batch,height,width,channels] with other sizes.
inline Result<Shape> resized(const Tensor& x, int64_t height, int64_t width) {
  if (x.rank() != 4) return invalid_argument("images must have rank 4, but their shape is {}", x.shape().str());
  if (x.dim(1) == 0 || x.dim(2) == 0) return invalid_argument("images {} have no pixels", x.shape().str());
  return Shape::make(std::array{x.dim(0), height, width, x.dim(3)});
}

}  // namespace troupe
