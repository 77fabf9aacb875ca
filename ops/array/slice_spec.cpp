// SPDX-License-Identifier: Apache-2.0
// The rules of StridedSlice.
#include "ops/array/slice_spec.h"

#include <algorithm>
#include <bit>

namespace troupe {
namespace {

bool bit(int64_t mask, size_t i) { return i < 64 && (mask >> i & 1) != 0; }

/// One entry of the slice for one dimension.
struct SliceEntry {
  int64_t begin = 0, end = 0, stride = 1;
  bool whole_begin = true, whole_end = true, shrink = false;
};

/// Resolves one dimension of `size` (-1: unknown): sets begin to the first element, returns the count.
Result<int64_t> resolve_entry(SliceEntry& e, int64_t size, int dimension) {
  if (e.stride == 0) return invalid_argument("stride of dimension {} is 0", dimension);
  if (e.shrink) {
    if (e.stride < 0) return invalid_argument("dimension {} takes an index, but its stride is {}", dimension, e.stride);
    if (size < 0) return int64_t{1};
    const int64_t at = e.begin < 0 ? e.begin + size : e.begin;
    if (at < 0 || at >= size)
      return make_error(Code::kInvalidArgument, "index {} of dimension {} is out of bounds: its size is {}", e.begin,
                        dimension, size);
    e.begin = at;
    e.stride = 1;
    return int64_t{1};
  }
  if (size < 0) return int64_t{-1};
  const bool forward = e.stride > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? size : size - 1;
  const auto place = [&](int64_t x, bool whole, bool is_end) {
    if (whole) return forward == is_end ? high : low;
    return std::clamp(x < 0 ? x + size : x, low, high);
  };
  e.begin = place(e.begin, e.whole_begin, false);
  const int64_t span = place(e.end, e.whole_end, true) - e.begin;
  if (span == 0 || (span < 0) != (e.stride < 0)) return int64_t{0};
  return span / e.stride + (span % e.stride != 0);
}

}  // namespace

SliceMasks::SliceMasks(const Attrs& attrs)
    : begin(attrs.get_or<int64_t>("begin_mask", 0)), end(attrs.get_or<int64_t>("end_mask", 0)),
      ellipsis(attrs.get_or<int64_t>("ellipsis_mask", 0)), new_axis(attrs.get_or<int64_t>("new_axis_mask", 0)),
      shrink_axis(attrs.get_or<int64_t>("shrink_axis_mask", 0)) {}

Result<SliceSpec> slice_spec(const PartialShape& x, std::span<const int64_t> begin, std::span<const int64_t> end,
                             std::span<const int64_t> strides, const SliceMasks& masks) {
  const size_t n = begin.size();
  if (end.size() != n || strides.size() != n)
    return invalid_argument("begin, end and strides have {}, {} and {} entries", n, end.size(), strides.size());
  if (std::popcount(static_cast<uint64_t>(masks.ellipsis)) > 1) return invalid_argument("more than one ellipsis");
  if (!x.has_rank()) return SliceSpec{};
  // How many dimensions the entries name besides the ellipsis; the ellipsis (at the end, if not given) is the rest.
  int named = 0;
  for (size_t i = 0; i < n; ++i) named += !bit(masks.ellipsis, i) && !bit(masks.new_axis, i);
  if (named > x.rank()) return invalid_argument("{} entries slice a tensor of shape {}", named, x.str());
  SliceSpec spec;
  IntList sizes;
  const auto take = [&](SliceEntry entry) -> Status {
    const auto d = static_cast<int>(spec.begin.size());
    TROUPE_ASSIGN(const int64_t count, resolve_entry(entry, x[d], d));
    spec.begin.push_back(entry.begin);
    spec.stride.push_back(count == 0 || count == 1 ? 1 : entry.stride);  // at most the size, then
    spec.count.push_back(count);
    if (!entry.shrink) sizes.push_back(count);
    return {};
  };
  const auto take_rest = [&]() -> Status {
    for (int k = named; k < x.rank(); ++k) TROUPE_RETURN_IF_ERROR(take({}));
    return {};
  };
  bool seen = false;
  for (size_t i = 0; i < n; ++i) {
    if (bit(masks.ellipsis, i)) {
      TROUPE_RETURN_IF_ERROR(take_rest());
      seen = true;
    } else if (bit(masks.new_axis, i)) {
      sizes.push_back(1);
    } else {
      TROUPE_RETURN_IF_ERROR(
          take({begin[i], end[i], strides[i], bit(masks.begin, i), bit(masks.end, i), bit(masks.shrink_axis, i)}));
    }
  }
  if (!seen) TROUPE_RETURN_IF_ERROR(take_rest());
  TROUPE_ASSIGN(spec.result, PartialShape::make(sizes));
  return spec;
}

SliceBox slice_box(const SliceSpec& spec, const Shape& whole) {
  const auto strides = strides_of(whole);
  SliceBox out;
  int64_t step = 1;
  for (const int64_t count : spec.count) step *= count;
  for (int d = 0; d < whole.rank() && step > 0; ++d) {
    const auto i = static_cast<size_t>(d);
    out.begin += spec.begin[i] * strides[i];
    step /= spec.count[i];
    out.copy.push(spec.count[i], step, strides[i] * spec.stride[i]);
  }
  return out;
}

void write_slice(const SliceSpec& spec, Tensor& whole, const Tensor& part, int threads) {
  if (part.elements() == 0) return;
  const SliceBox box = slice_box(spec, whole.shape());
  strided_copy(part.dtype(), advance(whole.mutable_raw(), box.begin, part.dtype()), part.raw(), box.copy, threads);
}

}  // namespace troupe
