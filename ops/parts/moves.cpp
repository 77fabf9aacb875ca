// SPDX-License-Identifier: Apache-2.0
// Moves of CPUs, by strided copies.
#include "ops/parts/moves.h"

#include <algorithm>

#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

Status host_copy(const KernelContext& c, Tensor& y, int64_t to, const Tensor& x, int64_t from, const StridedCopy& box) {
  if (x.elements() == 0 || y.elements() == 0) return {};
  strided_copy(x.dtype(), advance(y.mutable_raw(), to, x.dtype()), advance(x.raw(), from, x.dtype()), box, c.threads());
  return {};
}

/// Rows of `width` elements, so far apart.
StridedCopy columns(int64_t rows, int64_t width, int64_t step_from, int64_t step_to) {
  StridedCopy box;
  box.push(rows, step_from, step_to);
  box.push(width, 1, 1);
  return box;
}

Status host_join(const KernelContext& c, Tensor& y, int64_t rows, std::span<const Tensor* const> parts) {
  if (y.elements() == 0) return {};
  const int64_t whole = y.elements() / rows;
  int64_t at = 0;
  for (const Tensor* part : parts) {
    const int64_t width = part->elements() / rows;
    TROUPE_RETURN_IF_ERROR(host_copy(c, y, at, *part, 0, columns(rows, width, width, whole)));
    at += width;
  }
  return {};
}

Status host_split(const KernelContext& c, std::span<Tensor> parts, const Tensor& x, int64_t rows) {
  if (x.elements() == 0) return {};
  const int64_t whole = x.elements() / rows;
  int64_t at = 0;
  for (Tensor& part : parts) {
    const int64_t width = part.elements() / rows;
    TROUPE_RETURN_IF_ERROR(host_copy(c, part, 0, x, at, columns(rows, width, whole, width)));
    at += width;
  }
  return {};
}

Status host_pad(const KernelContext& c, Tensor& y, const Tensor& x, std::span<const int64_t> before,
                const Tensor* value) {
  with_storage(y.dtype(), [&]<class S>() {
    std::fill_n(static_cast<S*>(y.mutable_raw()), y.elements(), value ? *static_cast<const S*>(value->raw()) : S());
  });
  const auto from = strides_of(x.shape()), to = strides_of(y.shape());
  StridedCopy box;
  int64_t start = 0;
  for (int d = 0; d < x.rank(); ++d) {
    start += before[static_cast<size_t>(d)] * to[d];
    box.push(x.dim(d), from[d], to[d]);
  }
  return host_copy(c, y, start, x, 0, box);
}

/// The boxes of a tensor with mirrors around it, each of which has a part of every dimension: before, inside or after.
class MirrorBoxes {
 public:
  MirrorBoxes(const KernelContext& c, Tensor& y, const Tensor& x, std::span<const int64_t> before, int64_t edge)
      : c_(c), y_(y), x_(x), before_(before), edge_(edge), from_(strides_of(x.shape())), to_(strides_of(y.shape())) {}

  /// Copies those that have the parts of `box` of the dimensions before d.
  Status copy(int d = 0, int64_t to = 0, int64_t from = 0, const StridedCopy& box = {}) {
    if (d == x_.rank()) return host_copy(c_, y_, to, x_, from, box);
    const int64_t n = x_.dim(d), first = before_[static_cast<size_t>(d)], after = y_.dim(d) - n - first;
    const struct {
      int64_t size, to, from, step;
    } parts[] = {{first, 0, first - 1 + edge_, -1}, {n, first, 0, 1}, {after, first + n, n - 1 - edge_, -1}};
    for (const auto& part : parts) {
      if (part.size == 0) continue;
      StridedCopy with = box;
      with.push(part.size, part.step * from_[d], to_[d]);
      TROUPE_RETURN_IF_ERROR(copy(d + 1, to + part.to * to_[d], from + part.from * from_[d], with));
    }
    return {};
  }

 private:
  const KernelContext& c_;
  Tensor& y_;
  const Tensor& x_;
  const std::span<const int64_t> before_;
  const int64_t edge_;
  const std::array<int64_t, kMaxRank> from_, to_;
};

Status host_mirror(const KernelContext& c, Tensor& y, const Tensor& x, std::span<const int64_t> before, int64_t edge) {
  return MirrorBoxes(c, y, x, before, edge).copy();
}

Status host_conjugate(const KernelContext&, Tensor& y) {
  with_type(y.dtype(), ComplexTypes{}, [&]<class T>() {
    for (T& element : std::span(y.mutable_data<T>(), static_cast<size_t>(y.elements()))) element = std::conj(element);
  });
  return {};
}

Result<Tensor> host_zeros(const KernelContext& c, DType dtype, const Shape& shape) {
  return Tensor::zeros(dtype, shape, c.device().allocator);
}

}  // namespace

const Moves& host_moves() {
  static const Moves moves = {.kind = DeviceKind::kCpu,
                              .dtypes = {},
                              .copy = host_copy,
                              .join = host_join,
                              .split = host_split,
                              .pad = host_pad,
                              .mirror = host_mirror,
                              .conjugate = host_conjugate,
                              .zeros = host_zeros};
  return moves;
}

}  // namespace troupe
