// SPDX-License-Identifier: Apache-2.0
#include "cli/feed_files.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <span>

#include "base/join.h"
#include "base/printable.h"
#include "io/byte_reader.h"
#include "io/crc32c.h"
#include "io/example.pb.h"
#include "io/file_kind.h"
#include "io/tfrecord.h"

namespace troupe {
namespace {

/// How many names an error lists.
constexpr size_t kMostNames = 20;

template <class Names> std::string listed(const Names& names) {
  std::vector<std::string> quoted;
  for (const auto& name : names)
    if (quoted.size() < kMostNames) quoted.push_back(in_quotes(name));
  return join(quoted, ", ") + (quoted.size() < names.size() ? ", ..." : "");
}

Error in_feed(const FeedColumns& feed, Error error) {
  error.message = fmt::format("feed {}: {}", in_quotes(feed.slot.name), error.message);
  return error;
}

/// The rows of one open file.
class FeedRows {
 public:
  virtual ~FeedRows() = default;
  virtual Result<std::optional<Element>> next() = 0;
};
using OpenRows = Result<std::unique_ptr<FeedRows>> (*)(const std::string& path, std::span<const FeedColumns> feeds);

/// File after file, to the first error.
class FeedRowsIterator final : public DatasetIterator {
 public:
  FeedRowsIterator(std::vector<std::string> files, std::vector<FeedColumns> feeds, OpenRows open)
      : files_(std::move(files)), feeds_(std::move(feeds)), open_(open) {}
  Result<std::optional<Element>> next() override {
    for (; at_ < files_.size(); ++at_) {
      if (!rows_) {
        TROUPE_ASSIGN(rows_, open_(files_[at_], feeds_));
      }
      TROUPE_ASSIGN(std::optional<Element> row, rows_->next());
      if (row) {
        TROUPE_RETURN_IF_ERROR(check_shapes(*row));
        return row;
      }
      rows_.reset();
    }
    return std::optional<Element>();
  }

 private:
  /// Rows of a batch must be alike.
  Status check_shapes(const Element& row) {
    for (size_t f = 0; f < feeds_.size(); ++f) {
      if (first_.size() == f) first_.push_back(row[f].shape());
      if (feeds_[f].slot.batched && !(first_[f] == row[f].shape()))
        return in_feed(feeds_[f], invalid_argument("a row of {} has shape {}, rows before it {}",
                                                   in_quotes(files_[at_]), row[f].shape().str(), first_[f].str()));
    }
    return {};
  }

  const std::vector<std::string> files_;
  const std::vector<FeedColumns> feeds_;
  const OpenRows open_;
  std::vector<Shape> first_;
  size_t at_ = 0;
  std::unique_ptr<FeedRows> rows_;
};

class FeedRowsStage final : public Dataset::Stage {
 public:
  FeedRowsStage(std::vector<std::string> files, std::vector<FeedColumns> feeds, OpenRows open)
      : files_(std::move(files)), feeds_(std::move(feeds)), open_(open) {}
  Result<std::unique_ptr<DatasetIterator>> iterate() const override {
    return std::unique_ptr<DatasetIterator>(new FeedRowsIterator(files_, feeds_, open_));
  }
  std::vector<DType> dtypes() const override {
    std::vector<DType> out;
    for (const FeedColumns& feed : feeds_) out.push_back(feed.slot.dtype);
    return out;
  }
  std::vector<PartialShape> shapes() const override { return std::vector<PartialShape>(feeds_.size()); }

 private:
  const std::vector<std::string> files_;
  const std::vector<FeedColumns> feeds_;
  const OpenRows open_;
};

// -- Text -------------------------------------------------------------------------------------------------------------

using Fields = std::vector<std::string>;

/// What stands between the fields of a file, by its first line: tabs where its name ends in .tsv, else a comma rather
/// than a tab, and that rather than a semicolon. What is in quotes does not count.
char delimiter_of(std::string_view path, std::string_view line) {
  if (path.ends_with(".tsv") || path.ends_with(".tsv.gz")) return '\t';
  char out = ';', before = ',';
  bool quoted = false, any = false;
  for (const char c : line) {
    const bool parts = c == ',' || c == '\t' || c == ';';
    // Quotes begin where a field does; a second one at their end is one that they hold.
    if (c == '"' && (quoted || before != 0)) {
      quoted = !quoted;
      before = quoted ? 0 : c;
      continue;
    }
    before = parts ? c : 0;
    if (quoted || !parts) continue;
    any = true;
    if (c == ',') return c;
    if (c == '\t') out = c;
  }
  return any ? out : ',';
}

Result<Fields> split_fields(std::string_view line, char delimiter) {
  Fields out;
  for (size_t at = 0;; ++at) {
    std::string field;
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size()) return invalid_argument("the quotes of field {} do not end in this line", out.size());
        if (line[at] == '"' && (at + 1 >= line.size() || line[at + 1] != '"')) break;
        if (line[at] == '"') ++at;
        field += line[at];
      }
      ++at;
      if (at < line.size() && line[at] != delimiter)
        return invalid_argument("{} after the quotes of field {}", in_quotes(line.substr(at, 1)), out.size());
    } else {
      const size_t end = std::min(line.find(delimiter, at), line.size());
      field = line.substr(at, end - at);
      at = end;
    }
    out.push_back(std::move(field));
    if (at >= line.size()) return out;
  }
}

/// "3": a number of a column.
std::optional<size_t> column_number(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// Columns of one file by their numbers, or by their names where some are chosen by a name. Only then a number may be a
/// name, since else what the first line has may be values.
class ColumnNames {
 public:
  /// `fields` are those of the first line; whether they are names is another question.
  ColumnNames(std::string path, Fields fields) : path_(std::move(path)), fields_(std::move(fields)) {}

  size_t size() const { return fields_.size(); }
  const std::string& name(size_t column) const { return fields_[column]; }
  /// "a,b..d", each a column or a range of them.
  Result<std::vector<size_t>> find(const std::string& columns, bool by_name) const {
    std::vector<size_t> out;
    if (columns.empty())
      for (size_t i = 0; i < size(); ++i) out.push_back(i);
    for (size_t begin = 0; begin < columns.size();) {
      const size_t end = std::min(columns.find(',', begin), columns.size());
      const std::string part = columns.substr(begin, end - begin);
      const size_t dots = find_one(part, by_name).ok() ? part.npos : part.find("..");
      TROUPE_ASSIGN(const size_t first, find_one(part.substr(0, dots), by_name));
      size_t last = first;
      if (dots != part.npos) {
        TROUPE_ASSIGN(last, find_one(part.substr(dots + 2), by_name));
      }
      if (last < first) return invalid_argument("{} ends before it begins", in_quotes(part));
      for (size_t i = first; i <= last; ++i) out.push_back(i);
      begin = end + 1;
    }
    return out;
  }
  /// Whether some column is chosen by its name.
  static bool has_names(const std::string& columns) {
    for (size_t begin = 0; begin < columns.size();) {
      const size_t end = std::min(columns.find(',', begin), columns.size());
      const std::string_view part = std::string_view(columns).substr(begin, end - begin);
      const size_t dots = part.find("..");
      if (!column_number(part.substr(0, dots))) return true;
      if (dots != part.npos && !column_number(part.substr(dots + 2))) return true;
      begin = end + 1;
    }
    return false;
  }

 private:
  Result<size_t> find_one(const std::string& name, bool by_name) const {
    if (const auto at = std::ranges::find(fields_, name); by_name && at != fields_.end() && !name.empty())
      return static_cast<size_t>(at - fields_.begin());
    const auto number = column_number(name);
    if (number && *number < size()) return *number;
    return invalid_argument("{} has no column {}; it has {}: {}", in_quotes(path_), in_quotes(name), size(),
                            listed(fields_));
  }
  const std::string path_;
  const Fields fields_;
};

class TextRows final : public FeedRows {
 public:
  static Result<std::unique_ptr<FeedRows>> open(const std::string& path, std::span<const FeedColumns> feeds) {
    TROUPE_ASSIGN(const Dataset lines, Dataset::from_text_lines({path}));
    auto out = std::make_unique<TextRows>();
    out->path_ = path;
    out->feeds_ = feeds;
    TROUPE_ASSIGN(out->lines_, lines.iterate());
    TROUPE_RETURN_IF_ERROR(out->read_first_line());
    return std::unique_ptr<FeedRows>(std::move(out));
  }

  Result<std::optional<Element>> next() override {
    if (!has_line_) return std::optional<Element>();
    Element out;
    for (size_t f = 0; f < feeds_.size(); ++f) {
      TROUPE_ASSIGN(Tensor value, value_of(f));
      out.push_back(std::move(value));
    }
    TROUPE_RETURN_IF_ERROR(read_line());
    return std::optional<Element>(std::move(out));
  }

 private:
  Error in_line(Error error) const {
    error.message = fmt::format("{}:{}: {}", printable(path_), line_, error.message);
    return error;
  }

  /// The next line that is not empty.
  Status read_line() {
    for (;;) {
      TROUPE_ASSIGN(const std::optional<Element> line, lines_->next());
      has_line_ = line.has_value();
      if (!line) return {};
      ++line_;
      std::string_view text = (*line)[0].data<std::string>()[0];
      if (line_ == 1 && text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
      if (text.empty()) continue;
      if (delimiter_ == 0) delimiter_ = delimiter_of(path_, text);
      auto fields = split_fields(text, delimiter_);
      if (fields.ok() && names_ && fields->size() != names_->size())
        fields = invalid_argument("{} fields where the first line has {}", fields->size(), names_->size());
      if (!fields.ok()) return in_line(std::move(fields.error()));
      fields_ = std::move(*fields);
      return {};
    }
  }

  Status read_first_line() {
    TROUPE_RETURN_IF_ERROR(read_line());
    if (!has_line_) return {};
    names_.emplace(path_, fields_);
    const bool by_name =
        std::ranges::any_of(feeds_, [](const FeedColumns& feed) { return ColumnNames::has_names(feed.columns); });
    bool any_numbers = false, any_wanted = false;
    for (const FeedColumns& feed : feeds_) {
      auto columns = names_->find(feed.columns, by_name);
      if (!columns.ok()) return in_feed(feed, std::move(columns.error()));
      auto shape = shape_of_row(feed.slot, std::ssize(*columns));
      if (!shape.ok()) return in_feed(feed, std::move(shape.error()));
      any_wanted |= feed.slot.dtype != DType::kString;
      for (const size_t column : *columns)
        any_numbers |= feed.slot.dtype != DType::kString && is_number(feed.slot, fields_[column]);
      columns_.push_back(std::move(*columns));
      shapes_.push_back(*shape);
    }
    has_names_ = by_name || (any_wanted && !any_numbers);
    return has_names_ ? read_line() : Status();
  }

  Result<Tensor> value_of(size_t f) const {
    TROUPE_ASSIGN(Tensor out, Tensor::make(feeds_[f].slot.dtype, shapes_[f]));
    int64_t at = 0;
    for (const size_t column : columns_[f])
      if (Status read = read_element(feeds_[f].slot, fields_[column], out, at++); !read.ok()) {
        Error error = std::move(read.error());
        error.message = fmt::format(
            "column {}: {}", has_names_ ? in_quotes(names_->name(column)) : std::to_string(column), error.message);
        return in_line(in_feed(feeds_[f], std::move(error)));
      }
    return out;
  }

  std::string path_;
  std::span<const FeedColumns> feeds_;
  std::unique_ptr<DatasetIterator> lines_;
  char delimiter_ = 0;
  std::optional<ColumnNames> names_;
  bool has_names_ = false;
  std::vector<std::vector<size_t>> columns_;  // of each feed
  std::vector<Shape> shapes_;
  Fields fields_;  // of the line that comes next
  bool has_line_ = false;
  int64_t line_ = 0;
};

// -- Records ----------------------------------------------------------------------------------------------------------

class ExampleRows final : public FeedRows {
 public:
  ExampleRows(RecordReader reader, std::string path, std::span<const FeedColumns> feeds)
      : reader_(std::move(reader)), path_(std::move(path)), feeds_(feeds),
        parses_(std::ranges::any_of(feeds, [](const FeedColumns& f) { return !f.columns.empty(); })) {}
  static Result<std::unique_ptr<FeedRows>> open(const std::string& path, std::span<const FeedColumns> feeds) {
    TROUPE_ASSIGN(RecordReader reader, RecordReader::open(path));
    return std::unique_ptr<FeedRows>(new ExampleRows(std::move(reader), path, feeds));
  }

  Result<std::optional<Element>> next() override {
    offset_ = reader_.offset();
    TROUPE_ASSIGN(const std::optional<std::string> record, reader_.next());
    if (!record) return std::optional<Element>();
    if (parses_ && !example_.ParseFromString(*record))
      return in_record(make_error(Code::kDataLoss, "the record is not a tf.train.Example"));
    Element out;
    for (const FeedColumns& feed : feeds_) {
      auto value = feed.columns.empty() ? whole(feed, *record) : feature(feed);
      if (!value.ok()) return in_record(in_feed(feed, std::move(value.error())));
      out.push_back(std::move(*value));
    }
    return std::optional<Element>(std::move(out));
  }

 private:
  Error in_record(Error error) const {
    error.message = fmt::format("{}, record at {}: {}", printable(path_), offset_, error.message);
    return error;
  }

  static Result<Tensor> whole(const FeedColumns& feed, const std::string& record) {
    if (feed.slot.dtype != DType::kString)
      return invalid_argument("a record is a string, and {} is wanted: name a feature, FEED=FILE:FEATURE",
                              to_string(feed.slot.dtype));
    TROUPE_ASSIGN(const Shape shape, shape_of_row(feed.slot, 1));
    return Tensor::scalar(record).reshape(shape);
  }

  Result<Tensor> feature(const FeedColumns& feed) const {
    const proto::Feature* found = nullptr;
    std::vector<std::string> names;
    for (const auto& entry : example_.features().feature()) {
      names.push_back(entry.key());
      if (entry.key() == feed.columns) found = &entry.value();
    }
    if (!found)
      return invalid_argument("no feature {}; the record has: {}", in_quotes(feed.columns),
                              names.empty() ? "none" : listed(names));
    auto value = values_of(feed.slot, *found);
    if (!value.ok()) {
      value.error().message = fmt::format("feature {}: {}", in_quotes(feed.columns), value.error().message);
      return value;
    }
    return value;
  }

  static Result<Tensor> values_of(const FeedSlot& slot, const proto::Feature& feature) {
    Tensor all;
    if (feature.has_float_list()) {
      const auto& list = feature.float_list().value();
      TROUPE_ASSIGN(all, Tensor::make(DType::kFloat32, {list.size()}));
      std::ranges::copy(list, all.mutable_data<float>());
    } else if (feature.has_int64_list()) {
      const auto& list = feature.int64_list().value();
      TROUPE_ASSIGN(all, Tensor::make(DType::kInt64, {list.size()}));
      std::ranges::copy(list, all.mutable_data<int64_t>());
    } else if (feature.has_bytes_list() && slot.dtype != DType::kString) {
      TROUPE_ASSIGN(all, raw_elements(slot, feature.bytes_list()));
    } else if (feature.has_bytes_list()) {
      const auto& list = feature.bytes_list().value();
      TROUPE_ASSIGN(all, Tensor::make(DType::kString, {list.size()}));
      std::ranges::copy(list, all.mutable_data<std::string>());
    } else {
      return invalid_argument("it has no values");
    }
    TROUPE_ASSIGN(const Tensor out, converted(slot, all));
    TROUPE_ASSIGN(const Shape shape, shape_of_row(slot, out.elements()));
    return out.reshape(shape);
  }

  /// Bytes as numbers.
  static Result<Tensor> raw_elements(const FeedSlot& slot, const proto::BytesList& list) {
    std::string bytes;
    for (const std::string& piece : list.value()) bytes += piece;
    const auto count = static_cast<int64_t>(bytes.size());
    DType dtype = slot.dtype;
    if (is_object(dtype)) return invalid_argument("bytes cannot be fed for {}", to_string(dtype));
    if (elements_of_row(slot) == count) dtype = DType::kUInt8;
    if (count % static_cast<int64_t>(size_of(dtype)) != 0)
      return invalid_argument("{} bytes are not a whole number of {}", count, to_string(dtype));
    TROUPE_ASSIGN(Tensor out, Tensor::make(dtype, {count / static_cast<int64_t>(size_of(dtype))}));
    if (dtype == DType::kBool) std::ranges::transform(bytes, out.mutable_data<bool>(), [](char b) { return b != 0; });
    else std::memcpy(out.mutable_raw(), bytes.data(), bytes.size());
    return out;
  }

  RecordReader reader_;
  const std::string path_;
  const std::span<const FeedColumns> feeds_;
  const bool parses_;
  uint64_t offset_ = 0;  // of the record
  proto::Example example_;
};

uint32_t word_of(const char* at) {
  uint32_t out = 0;
  for (int i = 3; i >= 0; --i) out = out << 8 | static_cast<unsigned char>(at[i]);
  return out;
}

}  // namespace

Result<FeedFileKind> kind_of_feed_file(const std::string& path) {
  TROUPE_ASSIGN(ByteReader reader, ByteReader::open(path));
  std::string head(1 << 12, '\0');
  TROUPE_ASSIGN(const size_t size, reader.read(head.data(), head.size()));
  head.resize(size);
  if (head.starts_with("\x93NUMPY")) return FeedFileKind::kNpy;
  if (head.starts_with("PK\3\4") || head.starts_with("PK\5\6")) return FeedFileKind::kNpz;
  if (size >= 12 && word_of(&head[8]) == mask_crc(crc32c(head.data(), 8))) return FeedFileKind::kRecords;
  constexpr std::string_view kIdxTypes = "\x08\x09\x0b\x0c\x0d\x0e";
  if (size >= 4 && head[0] == 0 && head[1] == 0 && kIdxTypes.find(head[2]) != kIdxTypes.npos && head[3] != 0)
    return FeedFileKind::kIdx;
  if (size == 0) return FeedFileKind::kEmpty;
  if (path.find(".tfrecord") != path.npos) return FeedFileKind::kRecords;  // and damaged
  if (head.find('\0') == head.npos) return FeedFileKind::kText;
  TROUPE_ASSIGN(const auto file, make_posix_file_system()->open(path));
  return invalid_argument("{} is {}, not .npy, .npz, idx, TFRecord or comma-separated text", in_quotes(path),
                          kind_of_file(*file));
}

Result<Dataset> text_rows(std::vector<std::string> files, std::vector<FeedColumns> feeds) {
  return Dataset(std::make_shared<FeedRowsStage>(std::move(files), std::move(feeds), TextRows::open));
}

Result<Dataset> record_rows(std::vector<std::string> files, std::vector<FeedColumns> feeds) {
  return Dataset(std::make_shared<FeedRowsStage>(std::move(files), std::move(feeds), ExampleRows::open));
}

}  // namespace troupe
