// SPDX-License-Identifier: Apache-2.0
// Rows taken by number, scaled and added to rows taken by number: the loop of sparse segments and sparse products.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "devices/parallel.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {

/// out[to[i]] += in[from[i]] * factor(i), rows of `inner` elements; `out` is zeros. Threads take columns.
template <class T, class Factor>
void add_rows(const T* in, std::span<const int64_t> from, T* out, std::span<const int64_t> to, int64_t rows,
              int64_t inner, int threads, Factor&& factor) {
  using A = Arithmetic<T>;
  const auto n = static_cast<int64_t>(from.size());
  parallel_for(threads, inner, std::max<int64_t>(kCheapGrain / std::max<int64_t>(n, 1), 16),
               [&](int64_t begin, int64_t end) {
                 const int64_t width = end - begin;
                 std::vector<A> wide(is_half<T> ? static_cast<size_t>(rows * width) : 0);
                 for (int64_t i = 0; i < n; ++i) {
                   const T* x = in + from[i] * inner + begin;
                   const A f = factor(i);
                   A* y;
                   if constexpr (is_half<T>) y = wide.data() + to[i] * width;
                   else y = out + to[i] * inner + begin;
                   for (int64_t k = 0; k < width; ++k) y[k] = wrapping_add(y[k], wrapping_multiply(A(widen(x[k])), f));
                 }
                 if constexpr (is_half<T>)
                   for (int64_t r = 0; r < rows; ++r)
                     for (int64_t k = 0; k < width; ++k) out[r * inner + begin + k] = narrow<T>(wide[r * width + k]);
               });
}

}  // namespace troupe
