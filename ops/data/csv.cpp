// SPDX-License-Identifier: Apache-2.0
// Datasets of the records of files of text between commas: CSVDataset, CSVDatasetV2.
#include <algorithm>
#include <optional>
#include <string>

#include "io/byte_reader.h"
#include "io/data_folders.h"
#include "ops/data/dataset_op.h"
#include "ops/data/register.h"
#include "ops/text/string_numbers.h"

namespace troupe {
namespace {

constexpr size_t kCsvPiece = 1 << 16;

/// What the inputs of a node say of its files.
struct CsvFormat {
  bool header, quotes;
  char delimiter;
  std::string missing;                    // stands for a field without a value
  std::vector<int64_t> chosen, left_out;  // columns, ascending; none: all
  Element defaults;
  ComponentTypes dtypes;

  bool wants(int64_t column) const {
    if (!chosen.empty()) return std::ranges::binary_search(chosen, column);
    return !std::ranges::binary_search(left_out, column);
  }
};

/// An open file, record by record.
class CsvFile {
 public:
  CsvFile(ByteReader bytes, const CsvFormat& format) : bytes_(std::move(bytes)), format_(format) {}

  /// Passes over the names of columns.
  Status skip_header() {
    const auto ignored = [](int64_t, const std::string&) -> Status { return {}; };
    TROUPE_ASSIGN(const bool there, record(ignored));
    return there ? Status() : invalid_argument("{} has no header: it is empty", bytes_.path());
  }

  /// The next record; nothing at the end. After an error the next call goes on behind the record.
  Result<std::optional<Element>> next() {
    ++records_;
    Element out;
    auto there = record([&](int64_t column, const std::string& field) -> Status {
      return format_.wants(column) ? add(out, field) : Status();
    });
    if (there.ok() && !*there) return std::optional<Element>();
    if (there.ok() && out.size() != format_.dtypes.size())
      there = invalid_argument("{} fields where {} are expected", out.size(), format_.dtypes.size());
    if (!there.ok())
      return make_error(there.error().code, "{}, record {}: {}", bytes_.path(), records_, there.error().message);
    return std::optional<Element>(std::move(out));
  }

 private:
  static constexpr int kEnd = -1;

  Status add(Element& out, const std::string& field) const {
    const size_t i = out.size();
    if (i == format_.dtypes.size()) return invalid_argument("more than the {} fields that are expected", i);
    const Tensor& otherwise = format_.defaults[i];
    const bool none = field.empty() || field == format_.missing;
    if (none && otherwise.elements() != 1) return invalid_argument("field {} is required but missing", i);
    TROUPE_ASSIGN(Tensor value, none ? otherwise.reshape(Shape()) : Tensor::make(format_.dtypes[i], Shape()));
    if (!none)
      if (const Status status = set_from_text(value, 0, field); !status.ok())
        return invalid_argument("field {}: {}", i, status.error().message);
    out.push_back(std::move(value));
    return {};
  }

  /// Calls `take` with each field of the next record; false at the end. The first error of a field is that of the
  /// record, which is read to its end all the same.
  template <class Take> Result<bool> record(Take&& take) {
    TROUPE_ASSIGN(int byte, peek());
    if (byte == kEnd) return false;
    Status first;
    for (int64_t column = 0;; ++column) {
      std::string field;
      Status status;
      TROUPE_ASSIGN(byte, peek());
      TROUPE_ASSIGN(const bool more, format_.quotes&& byte == '"' ? quoted(field, status) : plain(field, status));
      if (status.ok()) status = take(column, field);
      if (first.ok()) first = std::move(status);
      if (more) continue;
      if (!first.ok()) return std::move(first.error());
      return true;
    }
  }

  /// Reads what is not in quotes, and what ends it. False: that ends the record too.
  Result<bool> plain(std::string& field, Status& status) {
    for (;;) {
      TROUPE_ASSIGN(const int byte, take());
      if (byte == format_.delimiter) return true;
      if (byte == kEnd || byte == '\n' || byte == '\r') return end_of_record(byte);
      if (format_.quotes && byte == '"') status = invalid_argument("\"{}\" is not in quotes but has some", field);
      field += static_cast<char>(byte);
    }
  }

  /// The same of a field in quotes, where a quote is there twice.
  Result<bool> quoted(std::string& field, Status& status) {
    (void)take();
    for (;;) {
      TROUPE_ASSIGN(int byte, take());
      if (byte == kEnd) return invalid_argument("the file ends within quotes");
      if (byte != '"') {
        field += static_cast<char>(byte);
        continue;
      }
      TROUPE_ASSIGN(byte, take());
      if (byte == format_.delimiter) return true;
      if (byte == kEnd || byte == '\n' || byte == '\r') return end_of_record(byte);
      if (byte != '"') status = invalid_argument("\"{}\" has a quote that is not there twice", field);
      field += static_cast<char>(byte);
    }
  }

  /// A line may end by \n, \r or both.
  Result<bool> end_of_record(int byte) {
    if (byte != '\r') return false;
    TROUPE_ASSIGN(const int next, peek());
    if (next == '\n') ++at_;
    return false;
  }

  Result<int> peek() {
    if (at_ == piece_.size() && !ended_) {
      piece_.resize(kCsvPiece);
      auto n = bytes_.read(piece_.data(), kCsvPiece);
      piece_.resize(n.ok() ? *n : 0);
      at_ = 0;
      ended_ = piece_.empty();  // after an error too
      if (!n.ok()) return std::move(n.error());
    }
    return at_ == piece_.size() ? kEnd : static_cast<unsigned char>(piece_[at_]);
  }
  Result<int> take() {
    TROUPE_ASSIGN(const int byte, peek());
    if (byte != kEnd) ++at_;
    return byte;
  }

  ByteReader bytes_;
  const CsvFormat& format_;
  std::string piece_;
  size_t at_ = 0;  // of piece_
  bool ended_ = false;
  int64_t records_ = 0;
};

/// The records of files, one after the other.
class CsvFlow final : public Flow<Element> {
 public:
  CsvFlow(std::vector<std::string> files, std::shared_ptr<const CsvFormat> format,
          std::shared_ptr<const DataFolders> folders)
      : files_(std::move(files)), format_(std::move(format)), folders_(std::move(folders)) {}
  Result<std::optional<Element>> next() override {
    while (file_ || at_ < files_.size()) {
      if (!file_) {
        const std::string& path = files_[at_++];
        TROUPE_RETURN_IF_ERROR(may_touch(folders_, path));
        TROUPE_ASSIGN(ByteReader bytes, ByteReader::open(path));
        CsvFile file(std::move(bytes), *format_);
        if (format_->header) TROUPE_RETURN_IF_ERROR(file.skip_header());
        file_.emplace(std::move(file));
      }
      TROUPE_ASSIGN(std::optional<Element> record, file_->next());
      if (record) return record;
      file_.reset();
    }
    return std::optional<Element>();
  }

 private:
  const std::vector<std::string> files_;
  const std::shared_ptr<const CsvFormat> format_;
  const std::shared_ptr<const DataFolders> folders_;
  size_t at_ = 0;
  std::optional<CsvFile> file_;
};

class CsvStage final : public TypedStage {
 public:
  CsvStage(std::vector<std::string> files, std::shared_ptr<const CsvFormat> format,
           std::shared_ptr<const DataFolders> folders)
      : TypedStage(format->dtypes, ComponentShapes(format->dtypes.size(), PartialShape::scalar())),
        files_(std::move(files)), format_(std::move(format)), folders_(std::move(folders)) {}
  Result<FlowPtr<Element>> flow(const Pass&) const override {
    return FlowPtr<Element>(new CsvFlow(files_, format_, folders_));
  }
  int64_t size() const override { return files_.empty() ? 0 : -1; }

 private:
  const std::vector<std::string> files_;
  const std::shared_ptr<const CsvFormat> format_;
  const std::shared_ptr<const DataFolders> folders_;
};

Result<std::vector<int64_t>> ascending_columns(const Tensor& t, const char* what) {
  const auto values = t.values<int64_t>();
  std::vector<int64_t> out(values.begin(), values.end());
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] < 0 || (i > 0 && out[i] <= out[i - 1]))
      return invalid_argument("{} must ascend from at least 0: number {} is {}", what, i, out[i]);
  return out;
}

Result<CsvFormat> read_format(const DatasetInputs& in, bool excludes) {
  CsvFormat out;
  TROUPE_ASSIGN(const std::string packed, in.string(1, "compression_type"));
  if (!packed.empty() && packed != "GZIP")
    return make_error(Code::kUnimplemented, "compression_type \"{}\"; files are read plain or as GZIP", packed);
  TROUPE_ASSIGN(out.header, in.boolean(3, "header"));
  TROUPE_ASSIGN(const std::string delimiter, in.string(4, "field_delim"));
  if (delimiter.size() != 1) return invalid_argument("field_delim must be one byte, not \"{}\"", delimiter);
  out.delimiter = delimiter[0];
  TROUPE_ASSIGN(out.quotes, in.boolean(5, "use_quote_delim"));
  TROUPE_ASSIGN(out.missing, in.string(6, "na_value"));
  TROUPE_ASSIGN(out.chosen, ascending_columns(in.tensor(7), "select_cols"));
  out.dtypes = in.dtypes();
  const int after = 8 + static_cast<int>(out.dtypes.size());
  out.defaults = in.tensors(8, after);
  for (size_t i = 0; i < out.defaults.size(); ++i)
    if (const Tensor& t = out.defaults[i]; t.rank() > 1 || t.elements() > 1)
      return invalid_argument("the default of field {} must be one value or none, not {}", i, t.str());
  if (!out.chosen.empty() && out.chosen.size() != out.dtypes.size())
    return invalid_argument("{} select_cols, but {} fields", out.chosen.size(), out.dtypes.size());
  if (!excludes) return out;
  TROUPE_ASSIGN(out.left_out, ascending_columns(in.tensor(after), "exclude_cols"));
  if (!out.chosen.empty() && !out.left_out.empty())
    return invalid_argument("select_cols and exclude_cols are both given");
  return out;
}

PlanDataset plan_csv(bool excludes) {
  return [excludes](const KernelInit& init) -> Result<MakeDataset> {
    return MakeDataset([excludes, folders = init.data_folders](const DatasetInputs& in) -> Result<GraphDataset> {
      TROUPE_ASSIGN(CsvFormat format, read_format(in, excludes));
      for (const Tensor& t : format.defaults) t.freeze();
      const auto names = in.tensor(0).values<std::string>();
      return GraphDataset{std::make_shared<CsvStage>(std::vector<std::string>(names.begin(), names.end()),
                                                     std::make_shared<const CsvFormat>(std::move(format)), folders)};
    });
  };
}

}  // namespace

void register_data_csv_ops(OpRegistry& ops, KernelRegistry& kernels) {
  for (const bool excludes : {false, true}) {
    OpDef op(excludes ? "CSVDatasetV2" : "CSVDataset");
    op.input("filenames: string")
        .input("compression_type: string")
        .input("buffer_size: int64")
        .input("header: bool")
        .input("field_delim: string")
        .input("use_quote_delim: bool")
        .input("na_value: string")
        .input("select_cols: int64")
        .input("record_defaults: output_types");
    if (excludes) op.input("exclude_cols: int64");
    // Its types are fewer than those of other datasets.
    op.attr("output_types: list({float32, float64, int32, int64, string}) >= 1")
        .stateful()
        .doc(
            std::string(
                "The records of text files, one file after the other, plain or GZIP: scalars, of the columns in "
                "select_cols, or all") +
            (excludes ? " but those in exclude_cols" : "") +
            ". Fields stand between field_delim; in quotes, unless use_quote_delim is false, they may have delimiters, "
            "ends "
            "of lines, and quotes twice. An empty field and na_value give the default, which is an error where that is "
            "empty. With header the first record of each file is passed over. buffer_size makes no difference. Errors "
            "name "
            "file and record, which they cost.");
    add_dataset_op(ops, kernels, std::move(op), plan_csv(excludes), {.types = "output_types", .metadata = false});
  }
}

}  // namespace troupe
