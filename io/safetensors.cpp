// SPDX-License-Identifier: Apache-2.0
// Writing and reading safetensors. A header from a file is trusted in nothing: depth, keys, types, ranges and
// sums are checked before memory is asked for.
#include "io/safetensors.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "io/crc32c.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // as in the reference implementation
constexpr const char* kMetadata = "__metadata__";

constexpr std::pair<DType, const char*> kNames[] = {
    {DType::kFloat64, "F64"},   {DType::kFloat32, "F32"}, {DType::kFloat16, "F16"}, {DType::kBFloat16, "BF16"},
    {DType::kInt64, "I64"},     {DType::kInt32, "I32"},   {DType::kInt16, "I16"},   {DType::kInt8, "I8"},
    {DType::kUInt64, "U64"},    {DType::kUInt32, "U32"},  {DType::kUInt16, "U16"},  {DType::kUInt8, "U8"},
    {DType::kComplex64, "C64"}, {DType::kBool, "BOOL"}};

const char* name_of(DType dtype) {
  for (const auto& [d, name] : kNames)
    if (d == dtype) return name;
  return nullptr;
}

template <class... Args>
Error damaged(const std::string& path, uint64_t offset, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(Code::kDataLoss, "'{}' is damaged at offset {}: {}", path, offset,
                    fmt::format(format, std::forward<Args>(args)...));
}

/// One tensor as the header describes it, checked in itself.
struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t begin, end;
};

/// Parses the header; refuses duplicate keys and anything deeper than {tensor: {shape: [..]}}.
Result<json> parse_header(const std::string& text, const std::string& path) {
  std::set<std::string> names;
  std::string wrong;
  auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second)
      wrong = fmt::format("name '{}' comes twice", value.get<std::string>());
    if ((event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) && depth > 2)
      wrong = "the header nests too deep";
    return wrong.empty();
  };
  json header = json::parse(text, watch, false);
  if (!wrong.empty()) return damaged(path, 8, "{}", wrong);
  if (header.is_discarded() || !header.is_object()) return damaged(path, 8, "the header is not a JSON object");
  return header;
}

Result<Entry> parse_entry(const std::string& name, const json& value, uint64_t data_size, const std::string& path) {
  auto unsigned_list = [](const json& list) {
    return list.is_array() && std::ranges::all_of(list, [](const json& v) { return v.is_number_unsigned(); });
  };
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value["dtype"].is_string() ||
      !value.contains("shape") || !unsigned_list(value["shape"]) || !value.contains("data_offsets") ||
      !unsigned_list(value["data_offsets"]) || value["data_offsets"].size() != 2)
    return damaged(path, 8, "the entry of tensor '{}' is not {{dtype, shape, data_offsets}}", name);
  const auto& type = value["dtype"].get_ref<const std::string&>();
  const auto known = std::ranges::find_if(kNames, [&type](const auto& e) { return type == e.second; });
  if (known == std::end(kNames))
    return make_error(Code::kUnimplemented, "'{}': tensor '{}' has dtype '{}', which is not supported", path, name,
                      type);
  std::vector<int64_t> dims;
  for (const json& v : value["shape"]) {
    const auto size = v.get<uint64_t>();
    if (size > INT64_MAX) return damaged(path, 8, "tensor '{}' has size {}", name, size);
    dims.push_back(static_cast<int64_t>(size));
  }
  auto shape = Shape::make(dims);
  if (!shape.ok()) return damaged(path, 8, "tensor '{}': {}", name, shape.error().message);
  Entry e{name, known->first, *shape, value["data_offsets"][0].get<uint64_t>(),
          value["data_offsets"][1].get<uint64_t>()};
  if (e.begin > e.end || e.end > data_size)
    return damaged(path, 8, "tensor '{}' claims bytes [{}, {}) of {} bytes of data", name, e.begin, e.end, data_size);
  const uint64_t need = static_cast<uint64_t>(e.shape.elements()) * size_of(e.dtype);
  if (e.end - e.begin != need)
    return damaged(path, 8, "tensor '{}' is {}{} of {} bytes, but claims bytes [{}, {})", name, type, e.shape.str(),
                   need, e.begin, e.end);
  return e;
}

Status read_metadata(const json& header, const std::string& path, TensorFile& out) {
  const auto at = header.find(kMetadata);
  if (at == header.end()) return {};
  if (!at->is_object()) return damaged(path, 8, "__metadata__ is not an object");
  for (const auto& [key, value] : at->items()) {
    if (!value.is_string()) return damaged(path, 8, "__metadata__ '{}' is not a string", key);
    out.metadata[key] = value.get<std::string>();
  }
  if (const auto step = out.metadata.find("step"); step != out.metadata.end()) {
    const std::string& s = step->second;
    const auto [end, code] = std::from_chars(s.data(), s.data() + s.size(), out.step);
    if (code != std::errc() || end != s.data() + s.size()) return damaged(path, 8, "step '{}' is not a number", s);
  }
  return {};
}

uint32_t header_crc(json header) {
  if (header.contains(kMetadata)) header[kMetadata].erase("crc32c");
  const std::string text = header.dump();
  return crc32c(text.data(), text.size());
}

}  // namespace

Result<EncodedTensors> encode_safetensors(const TensorMap& tensors, int64_t step) {
  std::vector<std::pair<const std::string*, const Tensor*>> order;
  for (const auto& [name, tensor] : tensors) {
    if (name == kMetadata) return invalid_argument("a tensor cannot be named '{}'", name);
    if (!tensor.defined()) return invalid_argument("tensor '{}' is undefined", name);
    if (!name_of(tensor.dtype()))
      return invalid_argument("tensor '{}' is {}{}: safetensors files cannot hold that dtype", name,
                              to_string(tensor.dtype()), tensor.shape().str());
    order.emplace_back(&name, &tensor);
  }
  // Widest elements first keeps every tensor aligned to its elements.
  std::ranges::stable_sort(order, std::greater(), [](const auto& e) { return size_of(e.second->dtype()); });

  json header = json::object();
  EncodedTensors out;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : order) {
    const uint64_t end = offset + tensor->bytes();
    const auto dims = tensor->shape().dims();
    header[*name] = {{"dtype", name_of(tensor->dtype())},
                     {"shape", std::vector<uint64_t>(dims.begin(), dims.end())},
                     {"data_offsets", {offset, end}}};
    if (end > offset) out.data.emplace_back(tensor->raw(), tensor->bytes());
    offset = end;
  }
  header[kMetadata] = {{"format", "troupe"}};
  if (step >= 0) header[kMetadata]["step"] = std::to_string(step);
  try {
    uint32_t crc = header_crc(header);
    for (const auto& [data, bytes] : out.data) crc = crc32c(data, bytes, crc);
    header[kMetadata]["crc32c"] = fmt::format("{:08x}", crc);
    out.header = header.dump();
  } catch (const json::exception& e) {
    return invalid_argument("the name of a tensor is not UTF-8: {}", e.what());
  }
  out.header.resize((out.header.size() + 7) / 8 * 8, ' ');
  if (out.header.size() > kMaxHeader)
    return invalid_argument("the header of {} tensors has {} bytes, more than the format's {}", tensors.size(),
                            out.header.size(), kMaxHeader);
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(out.header.size() >> (8 * i));
  out.header.insert(0, length);
  return out;
}

Result<TensorFile> decode_safetensors(const ReadableFile& file, const std::string& path, bool must_be_checked) {
  if (file.size() < 8) return damaged(path, file.size(), "the file ends within the length of its header");
  unsigned char raw[8];
  TROUPE_RETURN_IF_ERROR(file.read(0, raw, 8));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[i];
  if (length > kMaxHeader || length > file.size() - 8)
    return damaged(path, 0, "a header of {} bytes in a file of {}", length, file.size());
  std::string text(length, '\0');
  TROUPE_RETURN_IF_ERROR(file.read(8, text.data(), length));
  TROUPE_ASSIGN(json header, parse_header(text, path));
  const uint64_t start = 8 + length;
  const uint64_t data_size = file.size() - start;

  TensorFile out;
  TROUPE_RETURN_IF_ERROR(read_metadata(header, path, out));
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) continue;
    TROUPE_ASSIGN(Entry entry, parse_entry(name, value, data_size, path));
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  uint64_t covered = 0;
  for (const Entry& e : entries) {
    if (e.begin != covered)
      return damaged(path, start + std::min(covered, e.begin), "tensor '{}' begins at byte {} of the data, {} byte {}",
                     e.name, e.begin, e.begin < covered ? "overlapping one that ends at" : "leaving a gap from",
                     covered);
    covered = e.end;
  }
  if (covered != data_size)
    return damaged(path, start + covered, "{} bytes of data, but the tensors end at byte {}", data_size, covered);

  const auto sum = out.metadata.find("crc32c");
  out.checked = sum != out.metadata.end();
  if (!out.checked && must_be_checked) return damaged(path, 8, "the header has no check sum");
  uint32_t crc = out.checked ? header_crc(header) : 0;
  for (Entry& e : entries) {
    TROUPE_ASSIGN(Tensor tensor, Tensor::make(e.dtype, e.shape));
    TROUPE_RETURN_IF_ERROR(file.read(start + e.begin, tensor.mutable_raw(), tensor.bytes()));
    if (out.checked) crc = crc32c(tensor.raw(), tensor.bytes(), crc);
    if (e.dtype == DType::kBool) {
      const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
      const auto* bad = std::find_if(bytes, bytes + tensor.bytes(), [](uint8_t b) { return b > 1; });
      if (bad != bytes + tensor.bytes())
        return damaged(path, start + e.begin + static_cast<uint64_t>(bad - bytes), "tensor '{}': {} is not a bool",
                       e.name, int{*bad});
    }
    out.tensors[std::move(e.name)] = std::move(tensor);
  }
  if (out.checked && fmt::format("{:08x}", crc) != sum->second)
    return damaged(path, start, "the check sum of header and data is {:08x}, not {}", crc, sum->second);
  return out;
}

Status write_safetensors(const std::string& path, const TensorMap& tensors, int64_t step) {
  TROUPE_ASSIGN(const EncodedTensors encoded, encode_safetensors(tensors, step));
  TROUPE_ASSIGN(auto file, make_posix_file_system()->create(path));
  TROUPE_RETURN_IF_ERROR(file->append(encoded.header.data(), encoded.header.size()));
  for (const auto& [data, bytes] : encoded.data) TROUPE_RETURN_IF_ERROR(file->append(data, bytes));
  return file->close();
}

Result<TensorFile> read_safetensors(const std::string& path) {
  TROUPE_ASSIGN(const auto file, make_posix_file_system()->open(path));
  return decode_safetensors(*file, path, false);
}

}  // namespace troupe
