// SPDX-License-Identifier: Apache-2.0
// Broadcasting of up to three inputs by NumPy's rules: sizes and strides with neighbouring dimensions merged,
// so that loops see as few dimensions as there are.
#pragma once
#include <array>

#include "devices/parallel.h"
#include "troupe/shape.h"

namespace troupe {

/// How inputs are read while the elements of the result are written in order. Stride 0 repeats an element;
/// the innermost stride is 0 or 1.
struct Broadcast {
  Shape shape;   // of the result
  int rank = 0;  // of size and stride, at least 1
  std::array<int64_t, kMaxRank> size{};
  std::array<std::array<int64_t, kMaxRank>, 3> stride{};

  int64_t run() const { return size[rank - 1]; }  // length of the innermost loop
  int64_t runs() const {                          // how many of them
    int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= size[i];
    return n;
  }
};

/// Errors: kInvalidArgument that prints the shapes which do not fit.
Result<Broadcast> plan_broadcast(const Shape& a, const Shape& b);
Result<Broadcast> plan_broadcast(const Shape& a, const Shape& b, const Shape& c);

/// Calls f(out, in, n) for pieces of innermost runs: elements [out, out + n) of the result from in[k] onwards
/// of input k. Pieces go to `threads` threads when there are at least `grain` elements for each.
template <class F> void for_each_run(const Broadcast& b, int threads, int64_t grain, F&& f) {
  const int64_t run = b.run(), runs = b.runs();
  if (runs == 1) {
    parallel_for(threads, run, grain, [&](int64_t begin, int64_t end) {
      std::array<int64_t, 3> in;
      for (int k = 0; k < 3; ++k) in[k] = begin * b.stride[k][b.rank - 1];
      f(begin, in, end - begin);
    });
    return;
  }
  parallel_for(threads, runs, std::max<int64_t>(grain / std::max<int64_t>(run, 1), 1), [&](int64_t begin, int64_t end) {
    std::array<int64_t, kMaxRank> at{};
    std::array<int64_t, 3> in{};
    int64_t rest = begin;
    for (int d = b.rank - 2; d >= 0; --d) {
      at[d] = rest % b.size[d];
      rest /= b.size[d];
      for (int k = 0; k < 3; ++k) in[k] += at[d] * b.stride[k][d];
    }
    for (int64_t r = begin; r < end; ++r) {
      f(r * run, in, run);
      for (int d = b.rank - 2; d >= 0; --d) {
        for (int k = 0; k < 3; ++k) in[k] += b.stride[k][d];
        if (++at[d] < b.size[d]) break;
        for (int k = 0; k < 3; ++k) in[k] -= b.stride[k][d] * b.size[d];
        at[d] = 0;
      }
    }
  });
}

}  // namespace troupe
