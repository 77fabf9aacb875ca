// SPDX-License-Identifier: Apache-2.0
// Reading bundles. Invariants: an entry's place is within its shard's file before memory is asked for, and no two
// entries have bytes in common, so that what is read is not larger than the files.
#include "io/tensor_bundle.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "io/bundle_index.h"
#include "io/crc32c.h"
#include "io/damage.h"
#include "io/slice_text.h"
#include "io/varint.h"

namespace troupe {
namespace {

/// Where the bytes of a part are.
struct BundlePlace {
  int32_t shard = 0;
  uint32_t sum = 0;
  uint64_t offset = 0, size = 0;
};

/// An entry with data, which a whole tensor is or a part of one.
struct BundleValue {
  int type = 0;
  Shape shape;
  BundlePlace place;
};

class BundleSource final : public PartSource {
 public:
  BundleSource(FileAccess access, std::string prefix) : access_(std::move(access)), prefix_(std::move(prefix)) {}
  CheckpointKind kind() const override { return CheckpointKind::kBundle; }
  const std::string& path() const override { return prefix_; }
  int shards() const override { return shards_; }
  Status check(size_t index) override { return check_size(index).status(); }
  Result<Tensor> read(size_t index, const std::shared_ptr<Allocator>& allocator) override;

  /// Reads the index, and opens the data where one file has them all. False where a save put another index there
  /// meanwhile: the data may be that one's.
  Result<bool> read_index();

 private:
  /// A tensor in parts, as the index has it.
  struct Divided {
    std::string name;
    int type = 0;
    Shape shape;
    proto::BundleEntry entry;
  };
  Status add_parts(const std::vector<Divided>& divided, std::unordered_map<std::string, BundleValue>& values);
  Status check_places() const;
  /// The file of a part, which it is large enough for.
  Result<const ReadableFile*> check_size(size_t index);
  Result<const ReadableFile*> data_of(int32_t shard);
  Status read_texts(const BundlePlace& place, const std::string& path, const ReadableFile& file, Tensor& out) const;

  const FileAccess access_;
  const std::string prefix_;
  int shards_ = 0;
  std::vector<BundlePlace> places_;  // of parts_
  int32_t opened_ = -1;              // the shard whose file is open
  std::string opened_path_;
  std::unique_ptr<ReadableFile> opened_file_;
};

Result<bool> BundleSource::read_index() {
  const std::string path = bundle_index(prefix_);
  std::vector<Divided> divided;
  std::unordered_map<std::string, BundleValue> values;  // that may be parts
  TROUPE_ASSIGN(const BundleIndex index, BundleIndex::open(access_, prefix_));
  shards_ = index.shards();
  TROUPE_RETURN_IF_ERROR(index.for_each([&](std::string_view key, const proto::BundleEntry& entry) -> Status {
    auto shape = read_shape(entry.shape());
    if (!shape.ok())
      return make_error(shape.error().code, "'{}': tensor '{}' has {}", path, key, shape.error().message);
    if (entry.slices_size() > 0) {
      divided.push_back({std::string(key), entry.dtype(), *shape, entry});
      return {};
    }
    if (entry.shard_id() < 0 || entry.shard_id() >= shards_ || entry.offset() < 0 || entry.size() < 0 ||
        entry.size() > INT64_MAX - entry.offset())
      return make_error(Code::kDataLoss, "'{}' is damaged: tensor '{}' has {} bytes at offset {} of shard {} of {}",
                        path, key, entry.size(), entry.offset(), entry.shard_id(), shards_);
    BundleValue value{
        entry.dtype(),
        *shape,
        {entry.shard_id(), entry.crc32c(), static_cast<uint64_t>(entry.offset()), static_cast<uint64_t>(entry.size())}};
    if (key.starts_with('\0')) {
      values.emplace(key, std::move(value));
      return {};
    }
    parts_.push_back({std::string(key), value.type, value.shape, {}, value.place.size});
    places_.push_back(value.place);
    return {};
  }));
  TROUPE_RETURN_IF_ERROR(add_parts(divided, values));
  // The rest are tensors whose names only look like a part's.
  for (auto& [key, value] : values) {
    parts_.push_back({key, value.type, value.shape, {}, value.place.size});
    places_.push_back(value.place);
  }
  TROUPE_RETURN_IF_ERROR(check_places());
  // What cannot be opened is told when it is read.
  const auto of_first = [&](const BundlePlace& place) { return place.shard == places_[0].shard; };
  if (!places_.empty() && std::ranges::all_of(places_, of_first)) (void)data_of(places_[0].shard).ok();
  return index.in_place();
}

Status BundleSource::add_parts(const std::vector<Divided>& divided,
                               std::unordered_map<std::string, BundleValue>& values) {
  for (const Divided& d : divided)
    for (const auto& box : d.entry.slices()) {
      const auto wrong = [&](const std::string& what) {
        return make_error(Code::kDataLoss, "'{}' is damaged: tensor '{}' has {}", bundle_index(prefix_), d.name, what);
      };
      auto slice = read_box(box, d.shape);
      if (!slice.ok()) return wrong(slice.error().message);
      const auto at = values.find(key_of_part(d.name, box));
      if (at == values.end()) return wrong("a part '" + slice->str() + "' without an entry, or given twice");
      if (at->second.type != d.type || at->second.shape != slice->part)
        return wrong(fmt::format("a part '{}' of {} that is {}{}", slice->str(), name_of_type(d.type),
                                 name_of_type(at->second.type), at->second.shape.str()));
      parts_.push_back({d.name, d.type, d.shape, std::move(*slice), at->second.place.size});
      places_.push_back(at->second.place);
      values.erase(at);
    }
  return {};
}

Status BundleSource::check_places() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < places_.size(); ++i)
    if (places_[i].size > 0) order.push_back(i);
  std::ranges::sort(order, {}, [&](size_t i) { return std::tuple(places_[i].shard, places_[i].offset); });
  for (size_t n = 1; n < order.size(); ++n) {
    const BundlePlace &a = places_[order[n - 1]], &b = places_[order[n]];
    if (a.shard == b.shard && a.offset + a.size > b.offset)
      return make_error(Code::kDataLoss, "'{}' is damaged: tensors '{}' and '{}' have bytes in common",
                        bundle_index(prefix_), parts_[order[n - 1]].name, parts_[order[n]].name);
  }
  return {};
}

Result<const ReadableFile*> BundleSource::data_of(int32_t shard) {
  if (shard != opened_) {
    opened_ = -1;
    opened_path_ = bundle_data(prefix_, shard, shards_);
    TROUPE_ASSIGN(opened_file_, access_.open(opened_path_));
    opened_ = shard;
  }
  return opened_file_.get();
}

Status BundleSource::read_texts(const BundlePlace& place, const std::string& path, const ReadableFile& file,
                                Tensor& out) const {
  std::string bytes;
  try {
    bytes.resize(place.size);
  } catch (const std::exception&) {
    return make_error(Code::kResourceExhausted, "no memory for {} bytes of '{}'", place.size, path);
  }
  TROUPE_RETURN_IF_ERROR(file.read(place.offset, bytes.data(), bytes.size()));
  std::string_view rest(bytes);
  const std::span texts(out.mutable_data<std::string>(), static_cast<size_t>(out.elements()));
  std::vector<uint64_t> lengths;
  lengths.reserve(texts.size());
  uint32_t sum = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto length = take_varint(rest);
    if (!length) return damaged_file(path, place.offset, "the lengths of texts do not end");
    lengths.push_back(*length);
    std::string word;
    put_word(word, static_cast<uint32_t>(*length));
    if (*length > UINT32_MAX) put_word(word, static_cast<uint32_t>(*length >> 32));
    sum = crc32c(word.data(), word.size(), sum);
  }
  if (rest.size() < 4 || word_at(rest) != mask_crc(sum))
    return damaged_file(path, place.offset, "the check sum of the lengths of texts is not that of the lengths");
  sum = crc32c(rest.data(), 4, sum);
  rest.remove_prefix(4);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (lengths[i] > rest.size())
      return damaged_file(path, place.offset, "a text of {} bytes ends beyond it", lengths[i]);
    texts[i] = rest.substr(0, lengths[i]);
    rest.remove_prefix(lengths[i]);
    sum = crc32c(texts[i].data(), texts[i].size(), sum);
  }
  if (!rest.empty()) return damaged_file(path, place.offset, "{} bytes are left over after the texts", rest.size());
  if (mask_crc(sum) != place.sum)
    return damaged_file(path, place.offset, "the check sum of texts is {:08x}, not {:08x}", mask_crc(sum), place.sum);
  return {};
}

Result<const ReadableFile*> BundleSource::check_size(size_t index) {
  const SavedPart& part = parts_[index];
  const BundlePlace& place = places_[index];
  const Shape& shape = part.slice ? part.slice->part : part.whole;
  TROUPE_ASSIGN(const DType dtype, dtype_of_number(part.type));
  TROUPE_ASSIGN(const ReadableFile* const file, data_of(place.shard));
  if (place.offset > file->size() || place.size > file->size() - place.offset)
    return damaged_file(opened_path_, file->size(), "it ends before the {} bytes at offset {} that '{}' tells of",
                        place.size, place.offset, bundle_index(prefix_));
  const auto elements = static_cast<uint64_t>(shape.elements());
  if (dtype == DType::kString ? elements > place.size
                              : elements > place.size / size_of(dtype) || elements * size_of(dtype) != place.size)
    return make_error(Code::kDataLoss, "'{}' is damaged: {}{} in {} bytes", bundle_index(prefix_), to_string(dtype),
                      shape.str(), place.size);
  return file;
}

Result<Tensor> BundleSource::read(size_t index, const std::shared_ptr<Allocator>& allocator) {
  const SavedPart& part = parts_[index];
  const BundlePlace& place = places_[index];
  TROUPE_ASSIGN(const ReadableFile* const file, check_size(index));
  TROUPE_ASSIGN(const DType dtype, dtype_of_number(part.type));
  const Shape& shape = part.slice ? part.slice->part : part.whole;
  TROUPE_ASSIGN(Tensor out, Tensor::make(dtype, shape, allocator));
  if (dtype == DType::kString) {
    TROUPE_RETURN_IF_ERROR(read_texts(place, opened_path_, *file, out));
    return out;
  }
  TROUPE_RETURN_IF_ERROR(file->read(place.offset, out.mutable_raw(), out.bytes()));
  const uint32_t sum = mask_crc(crc32c(out.raw(), out.bytes()));
  if (sum != place.sum)
    return damaged_file(opened_path_, place.offset, "the check sum of {} bytes is {:08x}, not {:08x}", place.size, sum,
                        place.sum);
  if (dtype == DType::kBool) {
    const std::span bytes(static_cast<const uint8_t*>(out.raw()), out.bytes());
    const auto bad = std::ranges::find_if(bytes, [](uint8_t b) { return b > 1; });
    if (bad != bytes.end())
      return damaged_file(opened_path_, place.offset + static_cast<uint64_t>(bad - bytes.begin()), "{} is not a bool",
                          int{*bad});
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<PartSource>> open_bundle(const FileAccess& access, const std::string& prefix) {
  constexpr int kMostLooks = 100;
  for (int looks = 1;; ++looks) {
    auto out = std::make_unique<BundleSource>(access, prefix);
    TROUPE_ASSIGN(const bool in_place, out->read_index());
    if (in_place || looks == kMostLooks) return std::unique_ptr<PartSource>(std::move(out));
  }
}

}  // namespace troupe
