// SPDX-License-Identifier: Apache-2.0
// Files as records: lines, pieces of one length, TFRecords, whole files, names.
#include "io/record_source.h"

#include <algorithm>

#include "io/byte_reader.h"
#include "io/file_system.h"
#include "io/tfrecord.h"
#include "io/whole_file.h"

namespace troupe {
namespace {

constexpr size_t kPiece = 1 << 16;

/// A plain file from its start on; a gzip file as the bytes it is.
class PlainBytes {
 public:
  static Result<PlainBytes> open(const std::string& path) {
    TROUPE_ASSIGN(std::unique_ptr<ReadableFile> file, make_posix_file_system()->open(path));
    return PlainBytes(std::move(file));
  }
  Result<size_t> read(void* out, size_t bytes) {
    const size_t n = std::min<uint64_t>(bytes, file_->size() - offset_);
    TROUPE_RETURN_IF_ERROR(file_->read(offset_, out, n));
    offset_ += n;
    return n;
  }

 private:
  explicit PlainBytes(std::unique_ptr<ReadableFile> file) : file_(std::move(file)) {}
  std::unique_ptr<ReadableFile> file_;
  uint64_t offset_ = 0;
};

class Lines final : public RecordSource {
 public:
  Lines(std::string path, PlainBytes bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}
  Result<std::optional<Record>> next() override {
    Record record;
    for (bool any = false;;) {
      if (at_ == piece_.size()) {
        piece_.resize(kPiece);
        TROUPE_ASSIGN(const size_t n, bytes_.read(piece_.data(), kPiece));
        piece_.resize(n);
        at_ = 0;
        if (n == 0 && !any) return std::optional<Record>();
        if (n == 0) break;
      }
      any = true;
      const size_t end = std::min(piece_.find('\n', at_), piece_.size());
      record.value.append(piece_, at_, end - at_);
      at_ = end;
      if (at_ == piece_.size()) continue;
      ++at_;
      break;
    }
    if (record.value.ends_with('\r')) record.value.pop_back();
    record.key = fmt::format("{}:{}", path_, ++line_);
    return std::optional(std::move(record));
  }

 private:
  const std::string path_;
  PlainBytes bytes_;
  std::string piece_;
  size_t at_ = 0;  // of piece_, where the next line begins
  int64_t line_ = 0;
};

/// Keeps a window of a record and what must follow it, so that a file need not tell its length.
template <class Bytes> class Pieces final : public RecordSource {
 public:
  Pieces(std::string path, Bytes bytes, const FixedLength& lengths)
      : path_(std::move(path)), bytes_(std::move(bytes)), lengths_(lengths) {}
  /// Passes over n bytes. False: the file ends before.
  Result<bool> skip(int64_t n) {
    const auto kept = std::min<size_t>(static_cast<size_t>(n), window_.size());
    window_.erase(0, kept);
    std::string piece;
    for (auto left = static_cast<size_t>(n) - kept; left > 0;) {
      piece.resize(std::min(left, kPiece));
      TROUPE_ASSIGN(const size_t got, bytes_.read(piece.data(), piece.size()));
      if (got == 0) return false;
      left -= got;
    }
    return true;
  }
  Result<std::optional<Record>> next() override {
    if (number_ > 0) {
      TROUPE_ASSIGN(const bool there, skip(lengths_.hop ? lengths_.hop : lengths_.record));
      if (!there) return std::optional<Record>();
    }
    const auto needed = static_cast<size_t>(lengths_.record + lengths_.footer);
    while (window_.size() < needed) {  // piece by piece: memory grows only with what the file has
      const size_t had = window_.size(), more = std::min(needed - had, kPiece);
      window_.resize(had + more);
      TROUPE_ASSIGN(const size_t got, bytes_.read(window_.data() + had, more));
      window_.resize(had + got);
      if (got == 0) return std::optional<Record>();
    }
    return std::optional(
        Record{fmt::format("{}:{}", path_, number_++), window_.substr(0, static_cast<size_t>(lengths_.record))});
  }

 private:
  const std::string path_;
  Bytes bytes_;
  const FixedLength lengths_;
  std::string window_;
  int64_t number_ = 0;
};

template <class Bytes>
Result<std::unique_ptr<RecordSource>> open_pieces(const std::string& path, const FixedLength& lengths) {
  TROUPE_ASSIGN(Bytes bytes, Bytes::open(path));
  auto pieces = std::make_unique<Pieces<Bytes>>(path, std::move(bytes), lengths);
  TROUPE_ASSIGN(const bool there, pieces->skip(lengths.header));
  if (!there) return make_error(Code::kOutOfRange, "'{}' ends within its header of {} bytes", path, lengths.header);
  return std::unique_ptr<RecordSource>(std::move(pieces));
}

class TfRecords final : public RecordSource {
 public:
  TfRecords(std::string path, RecordReader reader) : path_(std::move(path)), reader_(std::move(reader)) {}
  Result<std::optional<Record>> next() override {
    const uint64_t offset = reader_.offset();
    TROUPE_ASSIGN(std::optional<std::string> value, reader_.next());
    if (!value) return std::optional<Record>();
    return std::optional(Record{fmt::format("{}:{}", path_, offset), std::move(*value)});
  }

 private:
  const std::string path_;
  RecordReader reader_;
};

class One final : public RecordSource {
 public:
  explicit One(Record record) : record_(std::move(record)) {}
  Result<std::optional<Record>> next() override { return std::exchange(record_, std::nullopt); }

 private:
  std::optional<Record> record_;
};

}  // namespace

OpenSource line_source(int64_t skip) {
  return [skip](const std::string& path) -> Result<std::unique_ptr<RecordSource>> {
    TROUPE_ASSIGN(PlainBytes bytes, PlainBytes::open(path));
    auto lines = std::make_unique<Lines>(path, std::move(bytes));
    for (int64_t i = 0; i < skip; ++i) {
      TROUPE_ASSIGN(const std::optional<Record> line, lines->next());
      if (!line) break;
    }
    return std::unique_ptr<RecordSource>(std::move(lines));
  };
}

Result<OpenSource> fixed_length_source(const FixedLength& lengths) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto fits = [](int64_t n, int64_t least) { return n >= least && n <= kMost; };
  if (!fits(lengths.header, 0) || !fits(lengths.record, 1) || !fits(lengths.footer, 0) || !fits(lengths.hop, 0))
    return invalid_argument("records of {} bytes, every {}, after {} and before {}: they must be at least 1, 0, 0, 0",
                            lengths.record, lengths.hop, lengths.header, lengths.footer);
  return OpenSource([lengths](const std::string& path) {
    return lengths.gzip ? open_pieces<ByteReader>(path, lengths) : open_pieces<PlainBytes>(path, lengths);
  });
}

OpenSource tfrecord_source() {
  return [](const std::string& path) -> Result<std::unique_ptr<RecordSource>> {
    TROUPE_ASSIGN(RecordReader reader, RecordReader::open(path));
    return std::unique_ptr<RecordSource>(std::make_unique<TfRecords>(path, std::move(reader)));
  };
}

OpenSource whole_file_source() {
  return [](const std::string& path) -> Result<std::unique_ptr<RecordSource>> {
    TROUPE_ASSIGN(std::string bytes, read_file(path));
    return std::unique_ptr<RecordSource>(std::make_unique<One>(Record{path, std::move(bytes)}));
  };
}

OpenSource name_source() {
  return [](const std::string& path) -> Result<std::unique_ptr<RecordSource>> {
    return std::unique_ptr<RecordSource>(std::make_unique<One>(Record{path, path}));
  };
}

}  // namespace troupe
