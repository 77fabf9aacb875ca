// SPDX-License-Identifier: Apache-2.0
// Framing of TFRecord files.
#include "io/tfrecord.h"

#include <zlib.h>

#include <algorithm>

#include "io/crc32c.h"
#include "io/snappy.h"

namespace troupe {
namespace {

constexpr size_t kRecordsPiece = 1 << 16;  // also a block of Snappy, of which TensorFlow reads 256 KiB at most
constexpr uint32_t kMostBlock = 64 << 20;

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

/// A stream of gzip's format.
class RecordWriter::Gzip {
 public:
  Gzip() {
    const int window = 15 + 16;  // gzip's header
    ready_ = deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) == Z_OK;
  }
  ~Gzip() {
    if (ready_) deflateEnd(&stream_);
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  /// What the stream gives for `bytes`, or at its end. Error: no memory.
  Result<std::string> pack(std::string_view bytes, bool last) {
    if (!ready_) return make_error(Code::kResourceExhausted, "no memory to pack records");
    std::string out;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());  // at most one record and a piece
    do {
      char piece[1 << 14];
      stream_.next_out = reinterpret_cast<Bytef*>(piece);
      stream_.avail_out = sizeof piece;
      (void)deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
      out.append(piece, sizeof piece - stream_.avail_out);
    } while (stream_.avail_out == 0);
    return out;
  }

 private:
  z_stream stream_{};
  bool ready_ = false;
};

RecordWriter::RecordWriter(std::unique_ptr<WritableFile> file, RecordPacking packing)
    : file_(std::move(file)), packing_(packing),
      gzip_(packing == RecordPacking::kGzip ? std::make_shared<Gzip>() : nullptr) {}

Result<RecordWriter> RecordWriter::create(FileSystem& files, const std::string& path, RecordPacking packing) {
  TROUPE_ASSIGN(auto file, files.create(path));
  return RecordWriter(std::move(file), packing);
}

Status RecordWriter::write(std::string_view data) {
  TROUPE_RETURN_IF_ERROR(lost_);
  pending_ += encode_record(data);
  return pending_.size() < kRecordsPiece ? Status() : flush();
}

Status RecordWriter::append(std::string_view bytes) {
  if (!bytes.empty()) lost_ = file_->append(bytes.data(), bytes.size());
  return lost_;
}

Status RecordWriter::flush() {
  TROUPE_RETURN_IF_ERROR(lost_);
  const std::string piece = std::exchange(pending_, {});
  if (packing_ == RecordPacking::kNone) return append(piece);
  for (std::string_view rest = piece; !rest.empty(); rest.remove_prefix(std::min(rest.size(), kRecordsPiece))) {
    const std::string_view part = rest.substr(0, kRecordsPiece);
    std::string packed;
    if (gzip_) {
      auto out = gzip_->pack(part, false);
      if (!out.ok()) return lost_ = std::move(out.error());
      packed = std::move(*out);
    } else {
      const std::string block = literal_snappy(part);
      for (int shift = 24; shift >= 0; shift -= 8) packed += static_cast<char>(block.size() >> shift);
      packed += block;
    }
    TROUPE_RETURN_IF_ERROR(append(packed));
  }
  return {};
}

Status RecordWriter::finish() {
  TROUPE_RETURN_IF_ERROR(flush());
  if (const auto gzip = std::exchange(gzip_, nullptr)) {
    auto out = gzip->pack({}, true);
    if (!out.ok()) return lost_ = std::move(out.error());
    return append(*out);
  }
  return {};
}

Status RecordWriter::sync() {
  TROUPE_RETURN_IF_ERROR(finish());
  return file_->sync();
}

Status RecordWriter::close() {
  TROUPE_RETURN_IF_ERROR(finish());
  return file_->close();
}

Result<RecordReader> RecordReader::open(const std::string& path, bool snappy) {
  TROUPE_ASSIGN(ByteReader bytes, ByteReader::open(path, ByteReader::Kinds::kStreamsToo));
  return RecordReader(std::move(bytes), snappy);
}

Result<size_t> RecordReader::read(char* out, size_t bytes) {
  if (!snappy_) return bytes_.read(out, bytes);
  size_t done = 0;
  while (done < bytes) {
    if (at_ == block_.size()) {
      const auto damaged = [this](const char* what) {
        return make_error(Code::kDataLoss, "'{}': the block that holds offset {} is {}", bytes_.path(), offset_, what);
      };
      unsigned char length[4];
      TROUPE_ASSIGN(const size_t got, bytes_.read(length, 4));
      if (got == 0) return done;
      if (got < 4) return damaged("truncated");
      uint32_t size = 0;
      for (const unsigned char byte : length) size = size << 8 | byte;
      if (size > kMostBlock || size > bytes_.most_bytes()) return damaged("longer than blocks or the file are");
      std::string packed(size, '\0');
      TROUPE_ASSIGN(const size_t whole, bytes_.read(packed.data(), size));
      if (whole < size) return damaged("truncated");
      auto block = unpack_snappy(packed);
      if (!block) return damaged("damaged");
      block_ = std::move(*block);
      at_ = 0;
    }
    const size_t piece = std::min(bytes - done, block_.size() - at_);
    std::copy_n(block_.data() + at_, piece, out + done);
    at_ += piece;
    done += piece;
  }
  return done;
}

Result<std::optional<std::string>> RecordReader::next() {
  auto damaged = [this](const char* what) {
    return make_error(Code::kDataLoss, "'{}': the record at offset {} is damaged: {}", bytes_.path(), offset_, what);
  };
  char header[12];
  TROUPE_ASSIGN(const size_t got, read(header, sizeof header));
  if (got == 0) return std::optional<std::string>();
  if (got < sizeof header) return damaged("truncated");
  const auto length = get<uint64_t>(header);
  if (get<uint32_t>(header + 8) != mask_crc(crc32c(header, 8))) return damaged("wrong check sum of its length");
  // The length is not trusted with memory: read as far as there are data, in pieces that grow with them.
  if (length / (snappy_ ? 64u : 1u) > bytes_.most_bytes()) return damaged("truncated");
  std::string data;
  while (data.size() < length) {
    const size_t old = data.size();
    const auto piece = static_cast<size_t>(std::min<uint64_t>(length - old, std::clamp<size_t>(old, 1 << 16, 1 << 24)));
    data.resize(old + piece);
    TROUPE_ASSIGN(const size_t more, read(data.data() + old, piece));
    if (more < piece) return damaged("truncated");
  }
  TROUPE_ASSIGN(const size_t tail, read(header, 4));
  if (tail < 4) return damaged("truncated");
  if (get<uint32_t>(header) != mask_crc(crc32c(data.data(), data.size())))
    return damaged("wrong check sum of its data");
  offset_ += length + 16;
  return std::optional<std::string>(std::move(data));
}

}  // namespace troupe
