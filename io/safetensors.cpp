// SPDX-License-Identifier: Apache-2.0
// Writing and reading safetensors. A header from a file is trusted in nothing: depth, keys, types, ranges and
// sums are checked before memory is asked for.
#include "io/safetensors.h"

#include <spdlog/fmt/fmt.h>
#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "io/crc32c.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // as in the reference implementation
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kCrc = "crc32c";  // of __metadata__

constexpr std::pair<DType, const char*> kTypeNames[] = {
    {DType::kFloat64, "F64"},   {DType::kFloat32, "F32"}, {DType::kFloat16, "F16"}, {DType::kBFloat16, "BF16"},
    {DType::kInt64, "I64"},     {DType::kInt32, "I32"},   {DType::kInt16, "I16"},   {DType::kInt8, "I8"},
    {DType::kUInt64, "U64"},    {DType::kUInt32, "U32"},  {DType::kUInt16, "U16"},  {DType::kUInt8, "U8"},
    {DType::kComplex64, "C64"}, {DType::kBool, "BOOL"}};

const char* name_of(DType dtype) {
  for (const auto& [d, name] : kTypeNames)
    if (d == dtype) return name;
  return nullptr;
}

template <class... Args>
Error damaged(const std::string& path, uint64_t offset, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(Code::kDataLoss, "'{}' is damaged at offset {}: {}", path, offset,
                    fmt::format(format, std::forward<Args>(args)...));
}

/// One tensor as the header describes it.
struct TensorEntry {
  DType dtype = DType::kFloat32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  bool has_metadata = false;
};

/// Takes a header's JSON as it comes: {NAME: {dtype, shape: [..], data_offsets: [..]}, __metadata__: {KEY: "text"}}.
/// What is wrong first ends the parsing.
class HeaderReader final : public json::json_sax_t {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader& out) : path_(path), out_(out) {}
  Error fault() && { return fault_ ? std::move(*fault_) : not_an_object(); }

  bool start_object(size_t) override {
    if (depth_ >= 2) return too_deep();
    if (++depth_ == 2 && in_metadata_) out_.has_metadata = true;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !in_metadata_ && told_ != (kDtype | kShape | kOffsets)) return bad_entry();
    if (depth_ == 1 && !in_metadata_ && offsets_ != 2) return bad_entry();
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ >= 3) return too_deep();
    if (depth_ != 2 || in_metadata_ || (field_ != kShape && field_ != kOffsets)) return bad_value();
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& key) override { return depth_ == 1 ? top_key(key) : in_metadata_ ? note_key(key) : field(key); }
  bool string(std::string& value) override {
    if (depth_ != 2) return bad_value();
    if (in_metadata_) {
      note_->second = std::move(value);
      return true;
    }
    if (field_ != kDtype) return bad_entry();
    const auto known = std::ranges::find_if(kTypeNames, [&value](const auto& e) { return value == e.second; });
    if (known == std::end(kTypeNames))
      return fail(make_error(Code::kUnimplemented, "'{}': tensor '{}' has dtype '{}', which is not supported", path_,
                             entry_->first, value));
    entry_->second.dtype = known->first;
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (depth_ != 3) return bad_value();
    TensorEntry& entry = entry_->second;
    if (field_ == kShape) entry.shape.push_back(value);
    else if (++offsets_ == 1) entry.begin = value;
    else entry.end = value;
    return offsets_ <= 2 || bad_entry();
  }
  bool null() override { return bad_value(); }
  bool boolean(bool) override { return bad_value(); }
  bool number_integer(int64_t) override { return bad_value(); }
  bool number_float(double, const std::string&) override { return bad_value(); }
  bool binary(json::binary_t&) override { return bad_value(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  enum Field : int { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4 };

  bool top_key(const std::string& name) {
    in_metadata_ = name == kMetadata;
    if (in_metadata_) return !out_.has_metadata || twice(name);
    bool fresh = false;
    std::tie(entry_, fresh) = out_.tensors.try_emplace(name);
    told_ = offsets_ = 0;
    field_ = kNone;
    return fresh || twice(name);
  }
  bool note_key(const std::string& name) {
    bool fresh = false;
    std::tie(note_, fresh) = out_.metadata.try_emplace(name);
    return fresh || twice(name);
  }
  bool field(const std::string& name) {
    field_ = name == "dtype" ? kDtype : name == "shape" ? kShape : name == "data_offsets" ? kOffsets : kNone;
    if (field_ == kNone || (told_ & field_)) return bad_entry();
    told_ |= field_;
    return true;
  }

  bool fail(Error error) {
    fault_ = std::move(error);
    return false;
  }
  Error not_an_object() const { return damaged(path_, 8, "the header is not a JSON object"); }
  bool twice(const std::string& name) { return fail(damaged(path_, 8, "name '{}' comes twice", name)); }
  bool too_deep() { return fail(damaged(path_, 8, "the header nests too deep")); }
  bool bad_entry() {
    return fail(damaged(path_, 8, "the entry of tensor '{}' is not {{dtype, shape, data_offsets}}", entry_->first));
  }
  /// A value that cannot stand where it does.
  bool bad_value() {
    if (depth_ == 0) return fail(not_an_object());
    if (in_metadata_ && depth_ == 1) return fail(damaged(path_, 8, "__metadata__ is not an object"));
    if (in_metadata_) return fail(damaged(path_, 8, "__metadata__ '{}' is not a string", note_->first));
    return bad_entry();
  }

  const std::string& path_;
  SafetensorsHeader& out_;
  std::optional<Error> fault_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::map<std::string, TensorEntry>::iterator entry_;  // of the tensor that is being read
  std::map<std::string, std::string>::iterator note_;   // of __metadata__
  int field_ = kNone, told_ = 0, offsets_ = 0;  // of the entry: field, those there were, numbers in data_offsets
};

Result<SafetensorsHeader> parse_header(const std::string& text, const std::string& path) {
  SafetensorsHeader header;
  HeaderReader reader(path, header);
  if (!json::sax_parse(text, &reader)) return std::move(reader).fault();
  return header;
}

/// Checks an entry in itself; its shape.
Result<Shape> check_entry(const std::string& name, const TensorEntry& e, uint64_t data_size, const std::string& path) {
  std::vector<int64_t> dims;
  for (const uint64_t size : e.shape) {
    if (size > INT64_MAX) return damaged(path, 8, "tensor '{}' has size {}", name, size);
    dims.push_back(static_cast<int64_t>(size));
  }
  auto shape = Shape::make(dims);
  if (!shape.ok()) return damaged(path, 8, "tensor '{}': {}", name, shape.error().message);
  if (e.begin > e.end || e.end > data_size)
    return damaged(path, 8, "tensor '{}' claims bytes [{}, {}) of {} bytes of data", name, e.begin, e.end, data_size);
  const uint64_t need = static_cast<uint64_t>(shape->elements()) * size_of(e.dtype);
  if (e.end - e.begin != need)
    return damaged(path, 8, "tensor '{}' is {}{} of {} bytes, but claims bytes [{}, {})", name, name_of(e.dtype),
                   shape->str(), need, e.begin, e.end);
  return shape;
}

Result<int64_t> step_in(const SafetensorsHeader& header, const std::string& path) {
  int64_t step = -1;
  if (const auto at = header.metadata.find("step"); at != header.metadata.end()) {
    const std::string& s = at->second;
    const auto [end, code] = std::from_chars(s.data(), s.data() + s.size(), step);
    if (code != std::errc() || end != s.data() + s.size()) return damaged(path, 8, "step '{}' is not a number", s);
  }
  return step;
}

/// The canonical text: keys sorted, no spaces. Throws json's exception for what is not UTF-8.
std::string header_text(const SafetensorsHeader& header, bool with_crc) {
  std::string out = "{";
  const auto comma = [&out] {
    if (out.back() != '{') out += ',';
  };
  const auto put_metadata = [&] {
    comma();
    fmt::format_to(std::back_inserter(out), "\"{}\":{{", kMetadata);
    for (const auto& [key, value] : header.metadata) {
      if (key == kCrc && !with_crc) continue;
      comma();
      out += json(key).dump() + ':' + json(value).dump();
    }
    out += '}';
  };
  bool metadata_left = header.has_metadata;
  for (const auto& [name, e] : header.tensors) {
    if (metadata_left && name > kMetadata) {
      put_metadata();
      metadata_left = false;
    }
    comma();
    fmt::format_to(std::back_inserter(out), R"({}:{{"data_offsets":[{},{}],"dtype":"{}","shape":[{}]}})",
                   json(name).dump(), e.begin, e.end, name_of(e.dtype), fmt::join(e.shape, ","));
  }
  if (metadata_left) put_metadata();
  return out + '}';
}

uint32_t header_crc(const SafetensorsHeader& header) {
  const std::string text = header_text(header, false);
  return crc32c(text.data(), text.size());
}

}  // namespace

Result<EncodedTensors> encode_safetensors(const TensorMap& tensors, int64_t step,
                                          const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header{.tensors = {}, .metadata = metadata, .has_metadata = true};
  for (const char* taken : {"format", "step", kCrc})
    if (metadata.contains(taken)) return invalid_argument("metadata cannot be named '{}'", taken);
  std::vector<std::pair<const Tensor*, TensorEntry*>> order;
  for (const auto& [name, tensor] : tensors) {
    if (name == kMetadata) return invalid_argument("a tensor cannot be named '{}'", name);
    if (!tensor.defined()) return invalid_argument("tensor '{}' is undefined", name);
    if (!name_of(tensor.dtype()))
      return invalid_argument("tensor '{}' is {}{}: safetensors files cannot hold that dtype", name,
                              to_string(tensor.dtype()), tensor.shape().str());
    const auto dims = tensor.shape().dims();
    const auto at = header.tensors.emplace_hint(
        header.tensors.end(), name, TensorEntry{tensor.dtype(), std::vector<uint64_t>(dims.begin(), dims.end())});
    order.emplace_back(&tensor, &at->second);
  }
  // Widest elements first keeps every tensor aligned to its elements.
  std::ranges::stable_sort(order, std::greater(), [](const auto& e) { return size_of(e.first->dtype()); });

  EncodedTensors out;
  uint64_t offset = 0;
  for (const auto& [tensor, entry] : order) {
    entry->begin = offset;
    offset = entry->end = offset + tensor->bytes();
    if (tensor->bytes() > 0) out.data.emplace_back(tensor->raw(), tensor->bytes());
  }
  header.metadata["format"] = "troupe";
  if (step >= 0) header.metadata["step"] = std::to_string(step);
  try {
    uint32_t crc = header_crc(header);
    for (const auto& [data, bytes] : out.data) crc = crc32c(data, bytes, crc);
    header.metadata[kCrc] = fmt::format("{:08x}", crc);
    out.header = header_text(header, true);
  } catch (const json::exception& e) {
    return invalid_argument("the name of a tensor, or metadata, is not UTF-8: {}", e.what());
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
  TROUPE_ASSIGN(SafetensorsHeader header, parse_header(text, path));
  const uint64_t start = 8 + length;
  const uint64_t data_size = file.size() - start;

  TensorFile out;
  TROUPE_ASSIGN(out.step, step_in(header, path));
  struct Part {
    const std::string* name;
    const TensorEntry* entry;
    Shape shape;
  };
  std::vector<Part> parts;
  parts.reserve(header.tensors.size());
  for (const auto& [name, entry] : header.tensors) {
    TROUPE_ASSIGN(Shape shape, check_entry(name, entry, data_size, path));
    parts.push_back({&name, &entry, std::move(shape)});
  }
  std::ranges::sort(parts, {}, [](const Part& p) { return std::pair(p.entry->begin, p.entry->end); });
  uint64_t covered = 0;
  for (const auto& [name, entry, shape] : parts) {
    const uint64_t begin = entry->begin;
    if (begin != covered)
      return damaged(path, start + std::min(covered, begin), "tensor '{}' begins at byte {} of the data, {} byte {}",
                     *name, begin, begin < covered ? "overlapping one that ends at" : "leaving a gap from", covered);
    covered = entry->end;
  }
  if (covered != data_size)
    return damaged(path, start + covered, "{} bytes of data, but the tensors end at byte {}", data_size, covered);

  const auto sum = header.metadata.find(kCrc);
  out.checked = sum != header.metadata.end();
  if (!out.checked && must_be_checked) return damaged(path, 8, "the header has no check sum");
  uint32_t crc = out.checked ? header_crc(header) : 0;
  for (const auto& [name, entry, shape] : parts) {
    TROUPE_ASSIGN(Tensor tensor, Tensor::make(entry->dtype, shape));
    TROUPE_RETURN_IF_ERROR(file.read(start + entry->begin, tensor.mutable_raw(), tensor.bytes()));
    if (out.checked) crc = crc32c(tensor.raw(), tensor.bytes(), crc);
    if (entry->dtype == DType::kBool) {
      const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
      const auto* bad = std::find_if(bytes, bytes + tensor.bytes(), [](uint8_t b) { return b > 1; });
      if (bad != bytes + tensor.bytes())
        return damaged(path, start + entry->begin + static_cast<uint64_t>(bad - bytes), "tensor '{}': {} is not a bool",
                       *name, int{*bad});
    }
    out.tensors[*name] = std::move(tensor);
  }
  if (out.checked && fmt::format("{:08x}", crc) != sum->second)
    return damaged(path, start, "the check sum of header and data is {:08x}, not {}", crc, sum->second);
  out.metadata = std::move(header.metadata);
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
