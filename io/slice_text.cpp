// SPDX-License-Identifier: Apache-2.0
// The ordered code: a text with its bytes 0 and 255 marked and an end; a number of 0 or more behind its length; a
// signed number whose first bits tell how many bytes it has.
#include "io/slice_text.h"

#include <algorithm>
#include <bit>

#include "base/printable.h"

namespace troupe {
namespace {

void put_ordered(std::string& out, std::string_view text) {
  for (const char c : text) {
    out += c;
    if (c == '\0') out += '\xff';
    if (c == '\xff') out += '\0';
  }
  out += std::string_view("\0\1", 2);
}

void put_ordered_count(std::string& out, uint64_t count) {
  const int bytes = (std::bit_width(count) + 7) / 8;
  out += static_cast<char>(bytes);
  for (int i = bytes; i-- > 0;) out += static_cast<char>(count >> (8 * i));
}

/// n bytes hold 7n bits: of these the first is the sign's, before which come n - 1 bits that repeat the opposite.
void put_ordered_signed(std::string& out, int64_t value) {
  const int bytes = std::bit_width(static_cast<uint64_t>(value < 0 ? ~value : value)) / 7 + 1;
  std::string text;
  for (int i = bytes; i-- > 0;) text += static_cast<char>(i >= 8 ? (value < 0 ? -1 : 0) : value >> (8 * i));
  // The first `bytes` bits are inverted.
  for (int bit = 0; bit < bytes; ++bit)
    text[static_cast<size_t>(bit / 8)] = static_cast<char>(text[static_cast<size_t>(bit / 8)] ^ (0x80 >> (bit % 8)));
  out += text;
}

Error wrong_box(const Shape& whole) {
  return make_error(Code::kDataLoss, "a part that is not within the shape {}", whole.str());
}

}  // namespace

Result<Shape> read_shape(const proto::SavedShape& shape) {
  std::vector<int64_t> sizes;
  if (shape.unknown_rank()) return make_error(Code::kDataLoss, "a shape of unknown rank");
  if (shape.dim_size() > kMaxRank)
    return make_error(Code::kUnimplemented, "a shape of {} dimensions, more than {}", shape.dim_size(), kMaxRank);
  for (const auto& dim : shape.dim()) sizes.push_back(dim.size());
  auto out = Shape::make(sizes);
  if (!out.ok()) return make_error(Code::kDataLoss, "{}", out.error().message);
  return out;
}

Result<TensorSlice> read_box(const proto::SavedBox& box, const Shape& whole) {
  if (box.extent_size() != whole.rank()) return wrong_box(whole);
  TensorSlice out = TensorSlice::all(whole);
  for (int d = 0; d < whole.rank(); ++d) {
    const auto& extent = box.extent(d);
    if (extent.has_length_case() == proto::SavedBox::Extent::HAS_LENGTH_NOT_SET) {
      if (extent.start() != 0) return wrong_box(whole);
      continue;
    }
    if (extent.start() < 0 || extent.start() > whole[d] || extent.length() < 0 ||
        extent.length() > whole[d] - extent.start())
      return wrong_box(whole);
    out.begin[static_cast<size_t>(d)] = extent.start();
    out.part.set(d, extent.length());
  }
  return out;
}

void write_shape(const Shape& shape, proto::SavedShape& out) {
  for (const int64_t size : shape.dims()) out.add_dim()->set_size(size);
}

void write_box(const TensorSlice& slice, proto::SavedBox& out) {
  for (int d = 0; d < slice.whole.rank(); ++d) {
    auto& extent = *out.add_extent();
    const int64_t begin = slice.begin[static_cast<size_t>(d)];
    if (begin == 0 && slice.part[d] == slice.whole[d]) continue;
    extent.set_start(begin);
    extent.set_length(slice.part[d]);
  }
}

std::string key_of_part(std::string_view name, const proto::SavedBox& box) {
  std::string key;
  put_ordered_count(key, 0);
  put_ordered(key, name);
  put_ordered_count(key, static_cast<uint64_t>(box.extent_size()));
  for (const auto& extent : box.extent()) {
    const bool all = extent.has_length_case() == proto::SavedBox::Extent::HAS_LENGTH_NOT_SET;
    put_ordered_signed(key, extent.start());
    put_ordered_signed(key, all ? -1 : extent.length());
  }
  return key;
}

std::string described_key(std::string_view key) {
  std::string name;
  for (size_t i = 1; key.starts_with('\0') && i + 1 < key.size(); ++i) {
    if (key[i] == '\0' && key[i + 1] == '\1') return "a part of tensor " + in_quotes(name);
    name += key[i];
    if (key[i] == '\0' || key[i] == '\xff') ++i;
  }
  return "tensor " + in_quotes(key);
}

}  // namespace troupe
