// SPDX-License-Identifier: Apache-2.0
#include "net/tensor_bytes.h"

#include <algorithm>

#include "net/frame_layout.h"

namespace troupe::net {

Status check_travels(const Tensor& tensor) {
  if (is_object(tensor.dtype()) && tensor.dtype() != DType::kString)
    return invalid_argument("a {}, which no other process can use", to_string(tensor.dtype()));
  return {};
}

void put_entry(const Tensor& tensor, uint64_t bytes, std::string& out) {
  const int rank = tensor.defined() ? tensor.rank() : 0;
  char entry[kEntryBytes + kMaxRank * 8] = {static_cast<char>(tensor.dtype()), static_cast<char>(rank)};
  put_number(entry + 4, bytes);
  for (int d = 0; d < rank; ++d) put_number(entry + kEntryBytes + 8 * d, tensor.dim(d));
  out.append(entry, kEntryBytes + 8 * static_cast<size_t>(rank));
}

Result<TableEntry> take_entry(std::string_view& table) {
  const auto bad = [](const std::string& why) { return make_error(Code::kDataLoss, "{}", why); };
  if (table.size() < kEntryBytes) return bad("the table ends before it");
  TableEntry out;
  out.dtype = static_cast<DType>(table[0]);
  const auto rank = static_cast<uint8_t>(table[1]);
  if (out.dtype != DType::kInvalid && !is_known(out.dtype))
    return bad(fmt::format("unknown dtype {}", static_cast<uint8_t>(table[0])));
  if (is_object(out.dtype) && out.dtype != DType::kString)
    return bad(fmt::format("a {} cannot come from another process", to_string(out.dtype)));
  if (rank > kMaxRank) return bad(fmt::format("rank {}, at most {}", rank, kMaxRank));
  if (table[2] || table[3]) return bad("bytes that must be 0");
  out.bytes = load_number<uint64_t>(table.data() + 4);
  table.remove_prefix(kEntryBytes);
  if (table.size() < size_t{rank} * 8) return bad("the table ends within its sizes");
  int64_t sizes[kMaxRank];
  for (int d = 0; d < rank; ++d) sizes[d] = load_number<int64_t>(table.data() + 8 * d);
  table.remove_prefix(size_t{rank} * 8);
  auto shape = Shape::make(std::span<const int64_t>(sizes, rank));
  if (!shape.ok()) return bad(shape.error().message);
  out.shape = *shape;
  const auto elements = static_cast<uint64_t>(out.shape.elements());
  const auto disagrees = [&] {
    return bad(fmt::format("{} bytes for {}{}", out.bytes, to_string(out.dtype), out.shape.str()));
  };
  if (out.dtype == DType::kInvalid) {
    if (out.bytes > 0 || rank > 0) return bad(fmt::format("{} bytes of rank {} for no tensor", out.bytes, rank));
  } else if (out.dtype == DType::kString) {
    if (elements > out.bytes / 8 || (elements == 0 && out.bytes > 0)) return disagrees();
  } else {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements, uint64_t{size_of(out.dtype)}, &bytes) || bytes != out.bytes)
      return disagrees();
  }
  return out;
}

std::string string_blob(const Tensor& tensor) {
  const auto values = tensor.values<std::string>();
  size_t bytes = 8 * values.size();
  for (const std::string& value : values) bytes += value.size();
  std::string out;
  out.reserve(bytes);
  for (const std::string& value : values) {
    char length[8];
    put_number<uint64_t>(length, value.size());
    out.append(length, sizeof length);
  }
  for (const std::string& value : values) out += value;
  return out;
}

Status check_lengths(std::string_view lengths, uint64_t bytes) {
  const size_t n = lengths.size() / 8;
  for (size_t i = 0; i < n; ++i) {
    const auto length = load_number<uint64_t>(lengths.data() + 8 * i);
    if (length > bytes) return make_error(Code::kDataLoss, "string {} has {} bytes and {} are left", i, length, bytes);
    bytes -= length;
  }
  if (bytes == 0) return {};
  return make_error(Code::kDataLoss, "{} bytes are left behind {} strings", bytes, n);
}

Status take_strings(std::string_view blob, Tensor& tensor) {
  const auto n = static_cast<size_t>(tensor.elements());
  std::string_view rest = blob.substr(8 * n);
  TROUPE_RETURN_IF_ERROR(check_lengths(blob.substr(0, 8 * n), rest.size()));
  auto* const out = tensor.mutable_data<std::string>();
  for (size_t i = 0; i < n; ++i) {
    const auto length = load_number<uint64_t>(blob.data() + 8 * i);
    out[i] = rest.substr(0, length);
    rest.remove_prefix(length);
  }
  return {};
}

Status check_bools(const Tensor& tensor) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
  uint8_t all = 0;
  for (size_t i = 0; i < tensor.bytes(); ++i) all |= bytes[i];
  if (all <= 1) return {};
  const size_t at = std::find_if(bytes, bytes + tensor.bytes(), [](uint8_t b) { return b > 1; }) - bytes;
  return make_error(Code::kDataLoss, "element {} of a bool is {}", at, bytes[at]);
}

}  // namespace troupe::net
