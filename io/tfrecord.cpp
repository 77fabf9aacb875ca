// SPDX-License-Identifier: Apache-2.0
// Framing of TFRecord files.
#include "io/tfrecord.h"

#include <algorithm>

#include "io/crc32c.h"

namespace troupe {
namespace {

template <class T> void put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

template <class T> T get(const char* at) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | static_cast<unsigned char>(at[i]));
  return value;
}

}  // namespace

std::string encode_record(std::string_view data) {
  std::string out;
  out.reserve(data.size() + 16);
  put<uint64_t>(out, data.size());
  put<uint32_t>(out, mask_crc(crc32c(out.data(), 8)));
  out += data;
  put<uint32_t>(out, mask_crc(crc32c(data.data(), data.size())));
  return out;
}

Result<RecordWriter> RecordWriter::create(FileSystem& files, const std::string& path) {
  TROUPE_ASSIGN(auto file, files.create(path));
  return RecordWriter(std::move(file));
}

Status RecordWriter::write(std::string_view data) {
  TROUPE_RETURN_IF_ERROR(lost_);
  pending_ += encode_record(data);
  return pending_.size() < (1 << 16) ? Status() : flush();
}

Status RecordWriter::flush() {
  TROUPE_RETURN_IF_ERROR(lost_);
  const std::string piece = std::exchange(pending_, {});
  lost_ = file_->append(piece.data(), piece.size());
  return lost_;
}

Status RecordWriter::close() {
  TROUPE_RETURN_IF_ERROR(flush());
  return file_->close();
}

Result<RecordReader> RecordReader::open(const std::string& path) {
  TROUPE_ASSIGN(ByteReader bytes, ByteReader::open(path, ByteReader::Kinds::kStreamsToo));
  return RecordReader(std::move(bytes));
}

Result<std::optional<std::string>> RecordReader::next() {
  auto damaged = [this](const char* what) {
    return make_error(Code::kDataLoss, "'{}': the record at offset {} is damaged: {}", bytes_.path(), offset_, what);
  };
  char header[12];
  TROUPE_ASSIGN(const size_t got, bytes_.read(header, sizeof header));
  if (got == 0) return std::optional<std::string>();
  if (got < sizeof header) return damaged("truncated");
  const auto length = get<uint64_t>(header);
  if (get<uint32_t>(header + 8) != mask_crc(crc32c(header, 8))) return damaged("wrong check sum of its length");
  // The length is not trusted with memory: read as far as there are data, in pieces that grow with them.
  if (length > bytes_.most_bytes()) return damaged("truncated");
  std::string data;
  while (data.size() < length) {
    const size_t old = data.size();
    const auto piece = static_cast<size_t>(std::min<uint64_t>(length - old, std::clamp<size_t>(old, 1 << 16, 1 << 24)));
    data.resize(old + piece);
    TROUPE_ASSIGN(const size_t more, bytes_.read(data.data() + old, piece));
    if (more < piece) return damaged("truncated");
  }
  TROUPE_ASSIGN(const size_t tail, bytes_.read(header, 4));
  if (tail < 4) return damaged("truncated");
  if (get<uint32_t>(header) != mask_crc(crc32c(data.data(), data.size())))
    return damaged("wrong check sum of its data");
  offset_ += length + 16;
  return std::optional<std::string>(std::move(data));
}

}  // namespace troupe
