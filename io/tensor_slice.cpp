// SPDX-License-Identifier: Apache-2.0
// The text of shapes and slices, and copies of the boxes it names.
#include "io/tensor_slice.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace troupe {
namespace {

std::vector<std::string_view> words_of(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == text.npos) return out;
    text.remove_prefix(at + 1);
  }
}

/// A number of 0 or more, and nothing else.
std::optional<int64_t> number_from(std::string_view text) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < 0) return {};
  return out;
}

/// Copies a box of `size` elements from where it begins in one tensor to where it begins in another.
void copy_box(DType dtype, const Shape& size, const void* from, const Shape& from_shape,
              const std::vector<int64_t>& from_begin, void* to, const Shape& to_shape,
              const std::vector<int64_t>& to_begin) {
  if (size.elements() == 0) return;
  // Dimensions from `inner` on are copied as one run.
  int inner = size.rank();
  int64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= size[inner];
    if (size[inner] != from_shape[inner] || size[inner] != to_shape[inner]) break;
  }
  std::vector<int64_t> at(static_cast<size_t>(inner), 0);
  const auto first = [&](const Shape& shape, const std::vector<int64_t>& begin) {
    int64_t offset = 0;
    for (int d = 0; d < shape.rank(); ++d) {
      const auto i = static_cast<size_t>(d);
      offset = offset * shape[d] + begin[i] + (d < inner ? at[i] : 0);
    }
    return static_cast<size_t>(offset) * size_of(dtype);
  };
  for (;;) {
    copy_elements(dtype, static_cast<const char*>(from) + first(from_shape, from_begin),
                  static_cast<char*>(to) + first(to_shape, to_begin), run);
    int d = inner - 1;
    for (; d >= 0 && ++at[static_cast<size_t>(d)] == size[d]; --d) at[static_cast<size_t>(d)] = 0;
    if (d < 0) return;
  }
}

}  // namespace

Result<TensorSlice> TensorSlice::parse(const std::string& text) {
  auto words = words_of(text, ' ');
  const auto ranges = words_of(words.back(), ':');
  words.pop_back();
  const auto wrong = [&] {
    return invalid_argument("\"{}\" is not a shape and a slice of it, like \"4 6 0,2:-\"", text);
  };
  if (words.empty() || ranges.size() != words.size()) return wrong();
  std::vector<int64_t> sizes, parts;
  TensorSlice out;
  for (size_t d = 0; d < words.size(); ++d) {
    const auto size = number_from(words[d]);
    if (!size) return wrong();
    int64_t begin = 0, part = *size;
    if (ranges[d] != "-") {
      const auto numbers = words_of(ranges[d], ',');
      const auto from = number_from(numbers[0]), count = number_from(numbers.back());
      if (numbers.size() != 2 || !from || !count || *from > *size || *count > *size - *from) return wrong();
      begin = *from;
      part = *count;
    }
    sizes.push_back(*size);
    out.begin.push_back(begin);
    parts.push_back(part);
  }
  TROUPE_ASSIGN(out.whole, Shape::make(sizes));
  TROUPE_ASSIGN(out.part, Shape::make(parts));
  return out;
}

TensorSlice TensorSlice::all(const Shape& shape) {
  return {shape, shape, std::vector<int64_t>(static_cast<size_t>(shape.rank()), 0)};
}

std::string TensorSlice::str() const {
  std::string out;
  for (const int64_t size : whole.dims()) out += std::to_string(size) + ' ';
  for (int d = 0; d < whole.rank(); ++d) {
    if (d > 0) out += ':';
    const int64_t from = begin[static_cast<size_t>(d)];
    out += from == 0 && part[d] == whole[d] ? "-" : std::to_string(from) + ',' + std::to_string(part[d]);
  }
  return out;
}

bool TensorSlice::overlaps(const TensorSlice& other) const {
  for (int d = 0; d < whole.rank(); ++d) {
    const int64_t a = begin[static_cast<size_t>(d)], b = other.begin[static_cast<size_t>(d)];
    if (a + part[d] <= b || b + other.part[d] <= a) return false;
  }
  return part.elements() > 0 && other.part.elements() > 0;
}

TensorSlice TensorSlice::intersection(const TensorSlice& other) const {
  TensorSlice out{whole, part, begin};
  for (int d = 0; d < whole.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    out.begin[i] = std::max(begin[i], other.begin[i]);
    out.part.set(d, std::max<int64_t>(0, std::min(begin[i] + part[d], other.begin[i] + other.part[d]) - out.begin[i]));
  }
  return out;
}

void TensorSlice::copy(const TensorSlice& common, const Tensor& from, const TensorSlice& slice, Tensor& to) const {
  std::vector<int64_t> here = common.begin, there = common.begin;
  for (size_t d = 0; d < here.size(); ++d) here[d] -= begin[d], there[d] -= slice.begin[d];
  copy_box(from.dtype(), common.part, from.raw(), part, here, to.mutable_raw(), slice.part, there);
}

Result<Tensor> TensorSlice::read(const Tensor& x, const std::shared_ptr<Allocator>& allocator) const {
  if (x.shape() != whole)
    return invalid_argument("a slice of {} of a tensor of shape {}", whole.str(), x.shape().str());
  TROUPE_ASSIGN(Tensor y, Tensor::make(x.dtype(), part, allocator));
  all(whole).copy(*this, x, *this, y);
  return y;
}

Status TensorSlice::write(Tensor& x, const Tensor& value) const {
  if (value.shape() != part)
    return invalid_argument("a slice of shape {} is given a tensor of shape {}", part.str(), value.shape().str());
  copy(*this, value, all(whole), x);
  return {};
}

}  // namespace troupe
