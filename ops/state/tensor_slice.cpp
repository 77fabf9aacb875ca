// SPDX-License-Identifier: Apache-2.0
// The text of shapes and slices, and copies of the boxes it names.
#include "ops/state/tensor_slice.h"

#include <charconv>

#include "ops/parts/strided_copy.h"

namespace troupe {
namespace {

std::vector<std::string_view> parted(std::string_view text, char separator) {
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

/// The box of elements of the part, in the whole and dense.
StridedCopy box_of(const TensorSlice& s, bool from_whole) {
  const auto whole = strides_of(s.whole), part = strides_of(s.part);
  StridedCopy box;
  for (int d = 0; d < s.part.rank(); ++d)
    box.push(s.part[d], from_whole ? whole[d] : part[d], from_whole ? part[d] : whole[d]);
  return box;
}

int64_t first_element(const TensorSlice& s) {
  const auto strides = strides_of(s.whole);
  int64_t at = 0;
  for (int d = 0; d < s.whole.rank(); ++d) at += s.begin[static_cast<size_t>(d)] * strides[d];
  return at;
}

}  // namespace

Result<TensorSlice> TensorSlice::parse(const std::string& text) {
  auto words = parted(text, ' ');
  const auto ranges = parted(words.back(), ':');
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
      const auto numbers = parted(ranges[d], ',');
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

bool TensorSlice::overlaps(const TensorSlice& other) const {
  for (int d = 0; d < whole.rank(); ++d) {
    const int64_t a = begin[static_cast<size_t>(d)], b = other.begin[static_cast<size_t>(d)];
    if (a + part[d] <= b || b + other.part[d] <= a) return false;
  }
  return part.elements() > 0 && other.part.elements() > 0;
}

Result<Tensor> TensorSlice::read(const Tensor& x, const std::shared_ptr<Allocator>& allocator) const {
  if (x.shape() != whole)
    return invalid_argument("a slice of {} of a tensor of shape {}", whole.str(), x.shape().str());
  TROUPE_ASSIGN(Tensor y, Tensor::make(x.dtype(), part, allocator));
  if (part.elements() > 0)
    strided_copy(x.dtype(), y.mutable_raw(), advance(x.raw(), first_element(*this), x.dtype()), box_of(*this, true), 1);
  return y;
}

Status TensorSlice::write(Tensor& x, const Tensor& value) const {
  if (value.shape() != part)
    return invalid_argument("a slice of shape {} is given a tensor of shape {}", part.str(), value.shape().str());
  if (part.elements() > 0)
    strided_copy(x.dtype(), advance(x.mutable_raw(), first_element(*this), x.dtype()), value.raw(),
                 box_of(*this, false), 1);
  return {};
}

}  // namespace troupe
