// SPDX-License-Identifier: Apache-2.0
// Writing and reading safetensors. A header from a file is trusted in nothing: depth, keys, types, ranges and
// sums are checked before memory is asked for.
#include "io/safetensors.h"

#include <spdlog/fmt/fmt.h>
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "io/crc32c.h"
#include "io/damage.h"
#include "io/replacing_file.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // as in the reference implementation
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kCrc = "crc32c";  // of __metadata__

constexpr std::pair<DType, const char*> kTypeNames[] = {
    {DType::kFloat64, "F64"},   {DType::kFloat32, "F32"},     {DType::kFloat16, "F16"}, {DType::kBFloat16, "BF16"},
    {DType::kInt64, "I64"},     {DType::kInt32, "I32"},       {DType::kInt16, "I16"},   {DType::kInt8, "I8"},
    {DType::kUInt64, "U64"},    {DType::kUInt32, "U32"},      {DType::kUInt16, "U16"},  {DType::kUInt8, "U8"},
    {DType::kComplex64, "C64"}, {DType::kComplex128, "C128"}, {DType::kBool, "BOOL"}};

const char* name_of(DType dtype) {
  for (const auto& [d, name] : kTypeNames)
    if (d == dtype) return name;
  return nullptr;
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
  Error not_an_object() const { return damaged_file(path_, 8, "the header is not a JSON object"); }
  bool twice(const std::string& name) { return fail(damaged_file(path_, 8, "name '{}' comes twice", name)); }
  bool too_deep() { return fail(damaged_file(path_, 8, "the header nests too deep")); }
  bool bad_entry() {
    return fail(
        damaged_file(path_, 8, "the entry of tensor '{}' is not {{dtype, shape, data_offsets}}", entry_->first));
  }
  /// A value that cannot stand where it does.
  bool bad_value() {
    if (depth_ == 0) return fail(not_an_object());
    if (in_metadata_ && depth_ == 1) return fail(damaged_file(path_, 8, "__metadata__ is not an object"));
    if (in_metadata_) return fail(damaged_file(path_, 8, "__metadata__ '{}' is not a string", note_->first));
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
    if (size > INT64_MAX) return damaged_file(path, 8, "tensor '{}' has size {}", name, size);
    dims.push_back(static_cast<int64_t>(size));
  }
  auto shape = Shape::make(dims);
  if (!shape.ok()) return damaged_file(path, 8, "tensor '{}': {}", name, shape.error().message);
  if (e.begin > e.end || e.end > data_size)
    return damaged_file(path, 8, "tensor '{}' claims bytes [{}, {}) of {} bytes of data", name, e.begin, e.end,
                        data_size);
  const uint64_t need = static_cast<uint64_t>(shape->elements()) * size_of(e.dtype);
  if (e.end - e.begin != need)
    return damaged_file(path, 8, "tensor '{}' is {}{} of {} bytes, but claims bytes [{}, {})", name, name_of(e.dtype),
                        shape->str(), need, e.begin, e.end);
  return shape;
}

Result<int64_t> step_in(const SafetensorsHeader& header, const std::string& path) {
  int64_t step = -1;
  if (const auto at = header.metadata.find("step"); at != header.metadata.end()) {
    const std::string& s = at->second;
    const auto [end, code] = std::from_chars(s.data(), s.data() + s.size(), step);
    if (code != std::errc() || end != s.data() + s.size()) return damaged_file(path, 8, "step '{}' is not a number", s);
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

/// A tensor that a header is to tell of.
struct Announced {
  const std::string* name;
  DType dtype;
  const Shape* shape;
};

/// A header without its check sum, and the order of the data: that of `announced`, widest elements first, which keeps
/// every tensor aligned to its elements.
struct PlannedFile {
  SafetensorsHeader header;
  std::vector<size_t> order;
};

Result<PlannedFile> plan_file(std::span<const Announced> announced, int64_t step,
                              const std::map<std::string, std::string>& metadata) {
  PlannedFile out{.header = {.tensors = {}, .metadata = metadata, .has_metadata = true}, .order = {}};
  for (const char* taken : {"format", "step", kCrc})
    if (metadata.contains(taken)) return invalid_argument("metadata cannot be named '{}'", taken);
  std::vector<TensorEntry*> entries;
  for (const auto& [name, dtype, shape] : announced) {
    if (*name == kMetadata) return invalid_argument("a tensor cannot be named '{}'", *name);
    if (dtype == DType::kInvalid) return invalid_argument("tensor '{}' is undefined", *name);
    if (!name_of(dtype))
      return invalid_argument("tensor '{}' is {}{}: safetensors files cannot hold that dtype", *name, to_string(dtype),
                              shape->str());
    const auto dims = shape->dims();
    const auto [at, fresh] =
        out.header.tensors.emplace(*name, TensorEntry{dtype, std::vector<uint64_t>(dims.begin(), dims.end())});
    if (!fresh) return invalid_argument("tensor name '{}' is given twice", *name);
    out.order.push_back(entries.size());
    entries.push_back(&at->second);
  }
  std::ranges::stable_sort(out.order, std::greater(), [&](size_t i) { return size_of(announced[i].dtype); });
  uint64_t offset = 0;
  for (const size_t i : out.order) {
    entries[i]->begin = offset;
    offset += static_cast<uint64_t>(announced[i].shape->elements()) * size_of(announced[i].dtype);
    entries[i]->end = offset;
  }
  out.header.metadata["format"] = "troupe";
  if (step >= 0) out.header.metadata["step"] = std::to_string(step);
  return out;
}

/// The bytes before the data. `data_crc` goes on from the header's check sum over the data.
Result<std::string> header_bytes(SafetensorsHeader& header,
                                 const std::function<Result<uint32_t>(uint32_t header_crc)>& data_crc) {
  std::string out;
  try {
    TROUPE_ASSIGN(const uint32_t crc, data_crc(header_crc(header)));
    header.metadata[kCrc] = fmt::format("{:08x}", crc);
    out = header_text(header, true);
  } catch (const json::exception& e) {
    return invalid_argument("the name of a tensor, or metadata, is not UTF-8: {}", e.what());
  }
  out.resize((out.size() + 7) / 8 * 8, ' ');
  if (out.size() > kMaxHeader)
    return invalid_argument("the header of {} tensors has {} bytes, more than the format's {}", header.tensors.size(),
                            out.size(), kMaxHeader);
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(out.size() >> (8 * i));
  out.insert(0, length);
  return out;
}

/// What a file says, checked but for the data.
struct SafetensorsLayout {
  struct Part {
    const std::string* name;
    const TensorEntry* entry;
    Shape shape;
  };
  SafetensorsHeader header;
  std::vector<Part> parts;  // in the order of the data, without gaps
  uint64_t start = 0;       // of the data
  int64_t step = -1;
  bool checked = false;
  std::string sum;

  uint32_t crc() const { return checked ? header_crc(header) : 0; }
  Status compare(uint32_t crc, const std::string& path) const {
    if (!checked || fmt::format("{:08x}", crc) == sum) return {};
    return damaged_file(path, start, "the check sum of header and data is {:08x}, not {}", crc, sum);
  }
};

Result<SafetensorsLayout> read_layout(const ReadableFile& file, const std::string& path, bool must_be_checked) {
  if (file.size() < 8) return damaged_file(path, file.size(), "the file ends within the length of its header");
  unsigned char raw[8];
  TROUPE_RETURN_IF_ERROR(file.read(0, raw, 8));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[i];
  if (length > kMaxHeader || length > file.size() - 8)
    return damaged_file(path, 0, "a header of {} bytes in a file of {}", length, file.size());
  std::string text(length, '\0');
  TROUPE_RETURN_IF_ERROR(file.read(8, text.data(), length));
  SafetensorsLayout out;
  TROUPE_ASSIGN(out.header, parse_header(text, path));
  out.start = 8 + length;
  const uint64_t data_size = file.size() - out.start;
  TROUPE_ASSIGN(out.step, step_in(out.header, path));
  out.parts.reserve(out.header.tensors.size());
  for (const auto& [name, entry] : out.header.tensors) {
    TROUPE_ASSIGN(Shape shape, check_entry(name, entry, data_size, path));
    out.parts.push_back({&name, &entry, std::move(shape)});
  }
  std::ranges::sort(out.parts, {}, [](const auto& p) { return std::pair(p.entry->begin, p.entry->end); });
  uint64_t covered = 0;
  for (const auto& [name, entry, shape] : out.parts) {
    const uint64_t begin = entry->begin;
    if (begin != covered)
      return damaged_file(path, out.start + std::min(covered, begin),
                          "tensor '{}' begins at byte {} of the data, {} byte {}", *name, begin,
                          begin < covered ? "overlapping one that ends at" : "leaving a gap from", covered);
    covered = entry->end;
  }
  if (covered != data_size)
    return damaged_file(path, out.start + covered, "{} bytes of data, but the tensors end at byte {}", data_size,
                        covered);
  const auto sum = out.header.metadata.find(kCrc);
  out.checked = sum != out.header.metadata.end();
  if (out.checked) out.sum = sum->second;
  if (!out.checked && must_be_checked) return damaged_file(path, 8, "the header has no check sum");
  return out;
}

Result<Tensor> read_entry(const ReadableFile& file, const std::string& path, uint64_t start,
                          const SafetensorsLayout::Part& part, const std::shared_ptr<Allocator>& allocator) {
  const auto& [name, entry, shape] = part;
  TROUPE_ASSIGN(Tensor tensor, Tensor::make(entry->dtype, shape, allocator));
  TROUPE_RETURN_IF_ERROR(file.read(start + entry->begin, tensor.mutable_raw(), tensor.bytes()));
  if (entry->dtype == DType::kBool) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
    const auto* bad = std::find_if(bytes, bytes + tensor.bytes(), [](uint8_t b) { return b > 1; });
    if (bad != bytes + tensor.bytes())
      return damaged_file(path, start + entry->begin + static_cast<uint64_t>(bad - bytes),
                          "tensor '{}': {} is not a bool", *name, int{*bad});
  }
  return tensor;
}

class SafetensorsSource final : public PartSource {
 public:
  SafetensorsSource(std::unique_ptr<ReadableFile> file, std::string path, SafetensorsLayout layout)
      : file_(std::move(file)), path_(std::move(path)), layout_(std::move(layout)) {
    for (const auto& [name, entry, shape] : layout_.parts)
      parts_.push_back({*name, static_cast<int>(entry->dtype), shape, {}, entry->end - entry->begin});
  }
  CheckpointKind kind() const override { return CheckpointKind::kSafetensors; }
  const std::string& path() const override { return path_; }
  Status check(size_t) override { return {}; }
  Result<Tensor> read(size_t index, const std::shared_ptr<Allocator>& allocator) override {
    if (!compared_) TROUPE_RETURN_IF_ERROR(check_all());
    compared_ = true;
    return read_entry(*file_, path_, layout_.start, layout_.parts[index], allocator);
  }

 private:
  /// Compares the check sum of all.
  Status check_all() const {
    if (!layout_.checked) return {};
    uint32_t crc = layout_.crc();
    std::string piece;
    for (uint64_t at = layout_.start; at < file_->size(); at += piece.size()) {
      piece.resize(std::min<uint64_t>(1 << 20, file_->size() - at));
      TROUPE_RETURN_IF_ERROR(file_->read(at, piece.data(), piece.size()));
      crc = crc32c(piece.data(), piece.size(), crc);
    }
    return layout_.compare(crc, path_);
  }

  const std::unique_ptr<ReadableFile> file_;
  const std::string path_;
  const SafetensorsLayout layout_;
  bool compared_ = false;  // whether the check sum was
};

}  // namespace

Result<EncodedTensors> encode_safetensors(const TensorMap& tensors, int64_t step,
                                          const std::map<std::string, std::string>& metadata) {
  std::vector<Announced> announced;
  std::vector<const Tensor*> values;
  for (const auto& [name, tensor] : tensors) {
    announced.push_back({&name, tensor.dtype(), &tensor.shape()});
    values.push_back(&tensor);
  }
  TROUPE_ASSIGN(PlannedFile plan, plan_file(announced, step, metadata));
  EncodedTensors out;
  for (const size_t i : plan.order)
    if (values[i]->bytes() > 0) out.data.emplace_back(values[i]->raw(), values[i]->bytes());
  TROUPE_ASSIGN(out.header, header_bytes(plan.header, [&out](uint32_t crc) -> Result<uint32_t> {
                  for (const auto& [data, bytes] : out.data) crc = crc32c(data, bytes, crc);
                  return crc;
                }));
  return out;
}

Result<TensorFile> decode_safetensors(const ReadableFile& file, const std::string& path, bool must_be_checked) {
  TROUPE_ASSIGN(SafetensorsLayout layout, read_layout(file, path, must_be_checked));
  TensorFile out;
  out.step = layout.step;
  out.checked = layout.checked;
  uint32_t crc = layout.crc();
  for (const auto& part : layout.parts) {
    TROUPE_ASSIGN(Tensor tensor, read_entry(file, path, layout.start, part, system_allocator()));
    if (out.checked) crc = crc32c(tensor.raw(), tensor.bytes(), crc);
    out.tensors[*part.name] = std::move(tensor);
  }
  TROUPE_RETURN_IF_ERROR(layout.compare(crc, path));
  out.metadata = std::move(layout.header.metadata);
  return out;
}

bool safetensors_hold(DType dtype) { return name_of(dtype) != nullptr; }

bool may_be_safetensors(const ReadableFile& file) {
  unsigned char raw[9];
  if (file.size() < 10 || !file.read(0, raw, sizeof raw).ok() || raw[8] != '{') return false;
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[i];
  return length <= file.size() - 8;
}

Result<std::unique_ptr<PartSource>> open_safetensors(std::unique_ptr<ReadableFile> file, const std::string& path) {
  TROUPE_ASSIGN(SafetensorsLayout layout, read_layout(*file, path, false));
  return std::unique_ptr<PartSource>(new SafetensorsSource(std::move(file), path, std::move(layout)));
}

Status write_safetensors_file(const FileAccess& access, const std::string& path,
                              std::span<const TensorToSave> tensors) {
  TROUPE_RETURN_IF_ERROR(may_touch(access.folders, path));
  std::vector<Announced> announced;
  for (const TensorToSave& t : tensors) {
    if (t.slice) return invalid_argument("tensor '{}': a safetensors file holds no parts of tensors", t.name);
    announced.push_back({&t.name, t.dtype, &t.whole});
  }
  TROUPE_ASSIGN(PlannedFile plan, plan_file(announced, -1, {}));
  TROUPE_ASSIGN(const std::string header, header_bytes(plan.header, [&](uint32_t crc) -> Result<uint32_t> {
                  for (const size_t i : plan.order) {
                    TROUPE_ASSIGN(const Tensor value, value_of(tensors[i]));
                    crc = crc32c(value.raw(), value.bytes(), crc);
                  }
                  return crc;
                }));
  return replace_file(*access.files, path, [&](WritableFile& file) -> Status {
    GatheringFile out(file);
    TROUPE_RETURN_IF_ERROR(out.append(header.data(), header.size()));
    for (const size_t i : plan.order) {
      TROUPE_ASSIGN(const Tensor value, value_of(tensors[i]));
      TROUPE_RETURN_IF_ERROR(out.append(value.raw(), value.bytes()));
    }
    return out.flush();
  });
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
