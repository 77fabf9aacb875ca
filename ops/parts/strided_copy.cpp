// SPDX-License-Identifier: Apache-2.0
// Strided copies: neighbouring dimensions merged, then one of four loops: runs, tiles of a transpose, repeats, or
// single steps.
#include "ops/parts/strided_copy.h"

#include "devices/parallel.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
StridedCopy merged(const StridedCopy& box) {
  StridedCopy out;
  for (int d = 0; d < box.rank; ++d) {
    if (box.size[d] == 1) continue;
    const int last = out.rank - 1;
    if (last >= 0 && out.from[last] == box.from[d] * box.size[d] && out.to[last] == box.to[d] * box.size[d]) {
      out.size[last] *= box.size[d];
      out.from[last] = box.from[d];
      out.to[last] = box.to[d];
    } else {
      out.push(box.size[d], box.from[d], box.to[d]);
    }
  }
  if (out.rank == 0) out.push(1, 1, 1);
  return out;
}

namespace {

constexpr int64_t kTile = 16;  // rows and columns of a transposed tile

/// Calls f(offset in from, offset in to) for each index in [begin, end) of all dimensions but the last `skip`.
template <class F> void for_each_outer(const StridedCopy& box, int skip, int64_t begin, int64_t end, F&& f) {
  const int rank = box.rank - skip;
  std::array<int64_t, 2 * kMaxRank> at{};
  int64_t from = 0, to = 0, rest = begin;
  for (int d = rank - 1; d >= 0; --d) {
    at[d] = rest % box.size[d];
    rest /= box.size[d];
    from += at[d] * box.from[d];
    to += at[d] * box.to[d];
  }
  for (int64_t i = begin; i < end; ++i) {
    f(from, to);
    for (int d = rank - 1; d >= 0; --d) {
      from += box.from[d];
      to += box.to[d];
      if (++at[d] < box.size[d]) break;
      from -= box.from[d] * box.size[d];
      to -= box.to[d] * box.size[d];
      at[d] = 0;
    }
  }
}

/// Changes the order of the box.
template <class S> void copy(S* to, const S* from, StridedCopy& box, int threads) {
  const int last = box.rank - 1;
  int64_t outer = 1;
  for (int d = 0; d < last; ++d) outer *= box.size[d];
  const int64_t n = box.size[last], step_from = box.from[last], step_to = box.to[last];

  // A transpose: the output is dense along the last dimension, the input along another one. Tiles of both.
  int dense = last - 1;
  while (dense >= 0 && box.from[dense] != 1) --dense;
  if (step_to == 1 && step_from != 1 && step_from != 0 && dense >= 0 && box.size[dense] > 1 && n > 1) {
    for (int d = dense; d + 1 < last; ++d) {
      std::swap(box.size[d], box.size[d + 1]);
      std::swap(box.from[d], box.from[d + 1]);
      std::swap(box.to[d], box.to[d + 1]);
    }
    const int64_t m = box.size[last - 1], row = box.to[last - 1];
    const int64_t stripes = (m + kTile - 1) / kTile, planes = outer / m;
    parallel_for(threads, planes * stripes, std::max<int64_t>(kCheapGrain / (n * kTile), 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t u = begin; u < end;) {
                     const int64_t plane = u / stripes, stop = std::min(end, (plane + 1) * stripes);
                     for_each_outer(box, 2, plane, plane + 1, [&](int64_t f, int64_t t) {
                       for (; u < stop; ++u) {
                         const int64_t i0 = u % stripes * kTile, i1 = std::min(m, i0 + kTile);
                         for (int64_t j0 = 0; j0 < n; j0 += kTile) {
                           const int64_t j1 = std::min(n, j0 + kTile);
                           for (int64_t i = i0; i < i1; ++i) {
                             const S* source = from + f + i;
                             S* target = to + t + i * row;
                             for (int64_t j = j0; j < j1; ++j) target[j] = source[j * step_from];
                           }
                         }
                       }
                     });
                   }
                 });
    return;
  }
  const int64_t grain = std::max<int64_t>(kCheapGrain / std::max<int64_t>(n, 1), 1);
  if (step_from == 1 && step_to == 1) {
    if (outer == 1)
      return parallel_for(threads, n, kCheapGrain,
                          [&](int64_t begin, int64_t end) { std::copy_n(from + begin, end - begin, to + begin); });
    parallel_for(threads, outer, grain, [&](int64_t begin, int64_t end) {
      for_each_outer(box, 1, begin, end, [&](int64_t f, int64_t t) { std::copy_n(from + f, n, to + t); });
    });
    return;
  }
  if (step_from == 0 && step_to == 1) {
    if (outer == 1)
      return parallel_for(threads, n, kCheapGrain,
                          [&](int64_t begin, int64_t end) { std::fill_n(to + begin, end - begin, *from); });
    parallel_for(threads, outer, grain, [&](int64_t begin, int64_t end) {
      for_each_outer(box, 1, begin, end, [&](int64_t f, int64_t t) { std::fill_n(to + t, n, from[f]); });
    });
    return;
  }
  parallel_for(threads, outer, grain, [&](int64_t begin, int64_t end) {
    for_each_outer(box, 1, begin, end, [&](int64_t f, int64_t t) {
      for (int64_t i = 0; i < n; ++i) to[t + i * step_to] = from[f + i * step_from];
    });
  });
}

}  // namespace

void strided_copy(DType dtype, void* to, const void* from, const StridedCopy& box, int threads) {
  for (int d = 0; d < box.rank; ++d)
    if (box.size[d] == 0) return;
  StridedCopy flat = merged(box);
  with_storage(dtype, [&]<class S>() { copy(static_cast<S*>(to), static_cast<const S*>(from), flat, threads); });
}

std::array<int64_t, kMaxRank> strides_of(const Shape& shape) {
  std::array<int64_t, kMaxRank> out{};
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    out[i] = stride;
    stride *= shape[i];
  }
  return out;
}

Result<Tensor> broadcast_to(const Tensor& x, const Shape& shape, const std::shared_ptr<Allocator>& allocator,
                            int threads) {
  if (x.shape() == shape) return x;
  const int before = shape.rank() - x.rank();
  bool fits = before >= 0;
  for (int i = 0; i < x.rank() && fits; ++i) fits = x.shape()[i] == 1 || x.shape()[i] == shape[before + i];
  if (!fits) return invalid_argument("{} does not broadcast to {}", x.shape().str(), shape.str());
  TROUPE_ASSIGN(Tensor y, Tensor::make(x.dtype(), shape, allocator));
  const auto from = strides_of(x.shape()), to = strides_of(shape);
  StridedCopy box;
  for (int i = 0; i < shape.rank(); ++i)
    box.push(shape[i], i < before || x.shape()[i - before] == 1 ? 0 : from[i - before], to[i]);
  strided_copy(x.dtype(), y.mutable_raw(), x.raw(), box, threads);
  return y;
}

Result<Tensor> writable_input(const KernelContext& c, int i, const Tensor& other) {
  const Tensor& x = c.input(i);
  const bool apart = !x.shares_buffer(other);
  TROUPE_ASSIGN(Tensor y, apart ? c.forward_or_allocate(i, x.dtype(), x.shape()) : c.allocate(x.dtype(), x.shape()));
  if (!y.shares_buffer(x))
    with_storage(x.dtype(), [&]<class S>() {
      std::copy_n(static_cast<const S*>(x.raw()), x.elements(), static_cast<S*>(y.mutable_raw()));
    });
  return y;
}

}  // namespace troupe
