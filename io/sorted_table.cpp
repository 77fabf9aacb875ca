// SPDX-License-Identifier: Apache-2.0
// Of a file nothing is believed: places, lengths, sums and the order of keys are checked before they are used.
#include "io/sorted_table.h"

#include <algorithm>

#include "base/printable.h"
#include "io/crc32c.h"
#include "io/damage.h"
#include "io/snappy.h"
#include "io/varint.h"

namespace troupe {
namespace {

constexpr size_t kBlockBytes = 256 << 10;  // as TensorFlow's
constexpr size_t kKeysBetweenWhole = 16;
constexpr size_t kTableEnd = 48, kPlaces = 40, kTrailer = 5;
constexpr uint64_t kTableMagic = 0xdb4775248b80fb57;

enum class Packing : uint8_t { kNone = 0, kSnappy = 1, kZstd = 2 };

/// In short, for messages.
std::string key_text(std::string_view key) { return in_quotes(key.size() > 200 ? key.substr(0, 200) : key); }

}  // namespace

void SortedTableWriter::BlockText::add(std::string_view key, std::string_view value, size_t interval) {
  size_t shared = 0;
  if (restarts.empty() || since == interval) {
    restarts.push_back(static_cast<uint32_t>(bytes.size()));
    since = 0;
  } else {
    const size_t most = std::min(last.size(), key.size());
    while (shared < most && last[shared] == key[shared]) ++shared;
  }
  ++since;
  put_varint(bytes, shared);
  put_varint(bytes, key.size() - shared);
  put_varint(bytes, value.size());
  bytes += key.substr(shared);
  bytes += value;
  last = key;
}

Result<std::string> SortedTableWriter::write(BlockText& block) {
  if (block.restarts.empty()) block.restarts.push_back(0);
  for (const uint32_t at : block.restarts) put_word(block.bytes, at);
  put_word(block.bytes, static_cast<uint32_t>(block.restarts.size()));
  std::string place;
  put_varint(place, offset_);
  put_varint(place, block.bytes.size());
  block.bytes += static_cast<char>(Packing::kNone);
  put_word(block.bytes, mask_crc(crc32c(block.bytes.data(), block.bytes.size())));
  TROUPE_RETURN_IF_ERROR(file_.append(block.bytes.data(), block.bytes.size()));
  offset_ += block.bytes.size();
  return place;
}

Status SortedTableWriter::write_entries() {
  TROUPE_ASSIGN(const std::string place, write(entries_));
  index_.add(entries_.last, place, 1);
  entries_ = BlockText();
  return {};
}

Status SortedTableWriter::add(std::string_view key, std::string_view value) {
  const std::string& before = entries_.restarts.empty() ? index_.last : entries_.last;
  if (any_ && key <= before) return make_error(Code::kInternal, "key {} of a table is out of order", key_text(key));
  any_ = true;
  entries_.add(key, value, kKeysBetweenWhole);
  return entries_.bytes.size() >= kBlockBytes ? write_entries() : Status();
}

Status SortedTableWriter::finish() {
  if (!entries_.restarts.empty()) TROUPE_RETURN_IF_ERROR(write_entries());
  BlockText nothing;
  TROUPE_ASSIGN(std::string end, write(nothing));
  TROUPE_ASSIGN(const std::string index, write(index_));
  end += index;
  end.resize(kPlaces, '\0');
  put_word(end, static_cast<uint32_t>(kTableMagic));
  put_word(end, static_cast<uint32_t>(kTableMagic >> 32));
  return file_.append(end.data(), end.size());
}

bool SortedTable::is_one(const ReadableFile& file) {
  char magic[8];
  if (file.size() < kTableEnd || !file.read(file.size() - 8, magic, 8).ok()) return false;
  return (word_at({magic, 4}) | uint64_t{word_at({magic + 4, 4})} << 32) == kTableMagic;
}

std::optional<SortedTable::Place> SortedTable::take_place(std::string_view& bytes) {
  const auto offset = take_varint(bytes), size = take_varint(bytes);
  if (!offset || !size) return {};
  return Place{*offset, *size};
}

Result<std::string> SortedTable::read_block(Place place) const {
  const uint64_t limit = file_->size() - kTableEnd;
  if (place.offset > limit || place.size > limit - place.offset || limit - place.offset - place.size < kTrailer)
    return damaged_file(path_, file_->size() - kTableEnd, "a block of {} bytes at offset {} in a file of {}",
                        place.size, place.offset, file_->size());
  std::string block(place.size + kTrailer, '\0');
  TROUPE_RETURN_IF_ERROR(file_->read(place.offset, block.data(), block.size()));
  const uint32_t sum = mask_crc(crc32c(block.data(), place.size + 1)),
                 told = word_at(std::string_view(block).substr(place.size + 1));
  if (sum != told)
    return damaged_file(path_, place.offset, "the check sum of a block of {} bytes is {:08x}, not {:08x}", place.size,
                        sum, told);
  const auto packing = static_cast<Packing>(block[place.size]);
  block.resize(place.size);
  if (packing == Packing::kZstd)
    return make_error(Code::kUnimplemented, "'{}' has blocks packed by Zstandard, which are not supported", path_);
  if (packing != Packing::kNone) {
    auto unpacked = packing == Packing::kSnappy ? unpack_snappy(block) : std::nullopt;
    if (!unpacked) return damaged_file(path_, place.offset, "a block of {} bytes cannot be unpacked", place.size);
    block = std::move(*unpacked);
  }
  // The places of whole keys are for jumping; entries are read in order here.
  const std::string_view all(block);
  const uint64_t restarts = all.size() < 4 ? 0 : word_at(all.substr(all.size() - 4));
  if (restarts == 0 || restarts > (all.size() - 4) / 4)
    return damaged_file(path_, place.offset, "a block of {} bytes has {} whole keys", all.size(), restarts);
  block.resize(all.size() - 4 - 4 * restarts);
  return block;
}

Result<bool> SortedTable::step(std::string_view block, Place place, Cursor& cursor) {
  std::string_view rest = block.substr(cursor.next);
  if (rest.empty()) return false;
  const auto shared = take_varint(rest), fresh = take_varint(rest), length = take_varint(rest);
  if (!shared || !fresh || !length || *shared > cursor.key.size() || *fresh > rest.size() ||
      *length > rest.size() - *fresh)
    return damaged_file(path_, place.offset, "an entry at byte {} of a block ends beyond it", cursor.next);
  const std::string_view more = rest.substr(0, *fresh);
  if (cursor.next > 0 && more <= std::string_view(cursor.key).substr(*shared))
    return damaged_file(path_, place.offset, "the keys of a block are not in order after {}", key_text(cursor.key));
  cursor.key.resize(*shared);
  cursor.key += more;
  cursor.value = rest.substr(*fresh, *length);
  cursor.next = block.size() - rest.size() + *fresh + *length;
  return true;
}

Result<SortedTable> SortedTable::open(std::unique_ptr<ReadableFile> file, std::string path) {
  if (!is_one(*file)) return damaged_file(path, file->size(), "it does not end as a table of a checkpoint does");
  SortedTable out(std::move(file), std::move(path));
  const uint64_t end_at = out.file_->size() - kTableEnd;
  std::string end(kPlaces, '\0');
  TROUPE_RETURN_IF_ERROR(out.file_->read(end_at, end.data(), end.size()));
  std::string_view places(end);
  const auto about = take_place(places), index = take_place(places);
  if (!about || !index) return damaged_file(out.path_, end_at, "it does not say where its blocks are");
  TROUPE_RETURN_IF_ERROR(out.read_block(*about).status());
  TROUPE_ASSIGN(const std::string block, out.read_block(*index));
  Cursor cursor;
  uint64_t key_bytes = 0, covered = 0;
  for (;;) {
    TROUPE_ASSIGN(const bool more, out.step(block, *index, cursor));
    if (!more) break;
    std::string_view value = cursor.value;
    const auto place = take_place(value);
    if (!place || place->offset < covered || place->size > end_at || place->offset > end_at)
      return damaged_file(out.path_, index->offset, "the place of a block, of keys up to {}, is wrong",
                          key_text(cursor.key));
    covered = place->offset + place->size;
    // Keys that share much are short in the file; those of writers share at most with 15 before them.
    key_bytes += cursor.key.size();
    if (key_bytes > 64 * out.file_->size())
      return damaged_file(out.path_, index->offset, "the keys of its blocks are too long");
    out.index_.emplace_back(cursor.key, *place);
  }
  return out;
}

Status SortedTable::load(size_t block) {
  if (block == loaded_) return {};
  loaded_ = SIZE_MAX;
  cursor_ = Cursor();
  TROUPE_ASSIGN(block_, read_block(index_[block].second));
  loaded_ = block;
  return {};
}

Status SortedTable::for_each(const std::function<Status(std::string_view key, std::string_view value)>& visit) {
  std::string before;
  uint64_t key_bytes = 0;
  bool first = true;
  for (size_t b = 0; b < index_.size(); ++b) {
    const auto& [last, place] = index_[b];
    TROUPE_RETURN_IF_ERROR(load(b));
    cursor_ = Cursor();
    bool begins = true;
    for (;; begins = false) {
      TROUPE_ASSIGN(const bool more, step(block_, place, cursor_));
      if (!more) break;
      key_bytes += cursor_.key.size();
      if (cursor_.key > last || (begins && !first && cursor_.key <= before) || key_bytes > 64 * file_->size())
        return damaged_file(path_, place.offset, "the key {} cannot stand in its block", key_text(cursor_.key));
      TROUPE_RETURN_IF_ERROR(visit(cursor_.key, cursor_.value));
    }
    before = last;
    first = false;
  }
  return {};
}

Result<std::optional<std::string_view>> SortedTable::find(std::string_view key) {
  const auto at = std::ranges::lower_bound(index_, key, {}, [](const auto& e) { return std::string_view(e.first); });
  if (at == index_.end()) return std::optional<std::string_view>();
  const auto b = static_cast<size_t>(at - index_.begin());
  TROUPE_RETURN_IF_ERROR(load(b));
  if (cursor_.next == 0 || cursor_.key > key) cursor_ = Cursor();
  while (cursor_.next == 0 || cursor_.key < key) {
    TROUPE_ASSIGN(const bool more, step(block_, at->second, cursor_));
    if (!more) return std::optional<std::string_view>();
  }
  return cursor_.key == key ? std::optional(cursor_.value) : std::nullopt;
}

}  // namespace troupe
