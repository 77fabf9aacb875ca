// SPDX-License-Identifier: Apache-2.0
// Images as weighted sums of the places of others, along the rows and then along the columns. The sizes and shapes
// of such ops are in ops/image/resize.cpp.
#pragma once
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "devices/parallel.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"
#include "troupe/op.h"

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

/// row[k] += weight * x[at + k].
template <class In, class A> void add_weighted(A* row, const void* x, int64_t at, float weight, int64_t n) {
  const In* from = static_cast<const In*>(x) + at;
  const auto w = static_cast<A>(weight);
  for (int64_t k = 0; k < n; ++k) row[k] = wrapping_add(row[k], wrapping_multiply(w, static_cast<A>(widen(from[k]))));
}
/// y[at + k] = row[k].
template <class Out, class A> void write_row(const A* row, void* y, int64_t at, int64_t n) {
  Out* to = static_cast<Out*>(y) + at;
  for (int64_t k = 0; k < n; ++k) to[k] = narrow<Out>(static_cast<Arithmetic<Out>>(row[k]));
}

/// resample with loops over rows for the types of x and y.
template <class A>
void resample_rows(const Tensor& x, Tensor& y, const Taps& rows, const Taps& columns, int threads,
                   void (*add)(A*, const void*, int64_t, float, int64_t),
                   void (*write)(const A*, void*, int64_t, int64_t)) {
  const int64_t in_h = x.dim(1), h = y.dim(1), w = y.dim(2), channels = y.dim(3), line = x.dim(2) * channels;
  parallel_for(threads, y.dim(0) * h, 1 + kDearGrain / std::max<int64_t>(w * channels, 1),
               [&](int64_t begin, int64_t end) {
                 std::vector<A> row(static_cast<size_t>(line)), made(static_cast<size_t>(w * channels));
                 for (int64_t r = begin; r < end; ++r) {
                   std::fill(row.begin(), row.end(), A());
                   for (int64_t t = rows.start[r % h]; t < rows.start[r % h + 1]; ++t)
                     add(row.data(), x.raw(), (r / h * in_h + rows.index[t]) * line, rows.weight[t], line);
                   std::fill(made.begin(), made.end(), A());
                   for (int64_t i = 0; i < w; ++i) {
                     A* pixel = made.data() + i * channels;
                     for (int64_t t = columns.start[i]; t < columns.start[i + 1]; ++t) {
                       const A* from = row.data() + columns.index[t] * channels;
                       const auto weight = static_cast<A>(columns.weight[t]);
                       for (int64_t k = 0; k < channels; ++k)
                         pixel[k] = wrapping_add(pixel[k], wrapping_multiply(weight, from[k]));
                     }
                   }
                   write(made.data(), y.mutable_raw(), r * w * channels, w * channels);
                 }
               });
}

/// y [batch, taps of rows, taps of columns, channels] from x of type In; sums are made in A.
template <class In, class A, class Out>
void resample(const Tensor& x, Tensor& y, const Taps& rows, const Taps& columns, int threads) {
  resample_rows<A>(x, y, rows, columns, threads, add_weighted<In, A>, write_row<Out, A>);
}

/// Height and width from input `size`. Errors: not two numbers above 0.
Result<std::pair<int64_t, int64_t>> size_from(const Tensor& t);
/// Images [batch,height,width,channels] with other sizes.
Result<Shape> resized(const Tensor& x, int64_t height, int64_t width);
/// Output 0 is as images, input 0, of the size that input 1 holds.
Status set_resized_shape(ShapeContext& c);
/// Output 0 is as the images of input 1, of whose resized form input 0 is the gradient.
Status set_resized_grad_shape(ShapeContext& c);

}  // namespace troupe
