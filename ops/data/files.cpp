// SPDX-License-Identifier: Apache-2.0
// Datasets of files: lines, records, records of one length.
#include "io/data_folders.h"
#include "io/record_source.h"
#include "ops/data/dataset_op.h"
#include "ops/data/register.h"

namespace troupe {
namespace {

/// The records of files, one after the other. A file that cannot be read further is one error, then the next follows.
class SourceFlow final : public Flow<Element> {
 public:
  SourceFlow(std::vector<std::string> files, OpenSource open, std::shared_ptr<const DataFolders> folders)
      : files_(std::move(files)), open_(std::move(open)), folders_(std::move(folders)) {}
  Result<std::optional<Element>> next() override {
    while (source_ || at_ < files_.size()) {
      if (!source_) {
        const std::string& file = files_[at_++];
        TROUPE_RETURN_IF_ERROR(may_touch(folders_, file));
        TROUPE_ASSIGN(source_, open_(file));
      }
      Result<std::optional<Record>> record = source_->next();
      if (record.ok() && *record)
        return std::optional<Element>({Tensor::scalar<std::string>(std::move((*record)->value))});
      source_.reset();
      if (!record.ok()) return std::move(record.error());
    }
    return std::optional<Element>();
  }

 private:
  const std::vector<std::string> files_;
  const OpenSource open_;
  const std::shared_ptr<const DataFolders> folders_;
  size_t at_ = 0;
  std::unique_ptr<RecordSource> source_;
};

class SourceStage final : public FlowStage {
 public:
  SourceStage(std::vector<std::string> files, OpenSource open, std::shared_ptr<const DataFolders> folders)
      : files_(std::move(files)), open_(std::move(open)), folders_(std::move(folders)) {}
  Result<FlowPtr<Element>> flow(const Pass&) const override {
    return FlowPtr<Element>(new SourceFlow(files_, open_, folders_));
  }
  ComponentTypes dtypes() const override { return {DType::kString}; }
  ComponentShapes shapes() const override { return {PartialShape::scalar()}; }
  int64_t size() const override { return files_.empty() ? 0 : -1; }

 private:
  const std::vector<std::string> files_;
  const OpenSource open_;
  const std::shared_ptr<const DataFolders> folders_;
};

/// Makes what opens the files of a node.
using ChooseSource = std::function<Result<OpenSource>(const DatasetInputs& in, bool gzip)>;

/// `compression`: the input that says what files are packed with; -1: none does.
PlanDataset files(ChooseSource choose, int compression) {
  return [choose = std::move(choose), compression](const KernelInit& init) -> Result<MakeDataset> {
    return MakeDataset(
        [choose, compression, folders = init.data_folders](const DatasetInputs& in) -> Result<GraphDataset> {
          std::string packed;
          if (compression >= 0) {
            TROUPE_ASSIGN(packed, in.string(compression, "compression_type"));
          }
          if (!packed.empty() && packed != "GZIP")
            return make_error(Code::kUnimplemented, "compression_type \"{}\"; files are read plain or as GZIP", packed);
          TROUPE_ASSIGN(OpenSource open, choose(in, !packed.empty()));
          const auto names = in.tensor(0).values<std::string>();
          return GraphDataset{std::make_shared<SourceStage>(std::vector<std::string>(names.begin(), names.end()),
                                                            std::move(open), folders)};
        });
  };
}

OpDef of_files(std::string_view name) { return OpDef(name).input("filenames: string").stateful(); }

}  // namespace

void register_data_file_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto lines = [](const DatasetInputs&, bool) -> Result<OpenSource> { return line_source(0); };
  const auto records = [](const DatasetInputs&, bool) -> Result<OpenSource> { return tfrecord_source(); };
  const auto fixed = [](const DatasetInputs& in, bool gzip) -> Result<OpenSource> {
    FixedLength lengths;
    TROUPE_ASSIGN(lengths.header, in.integer(1, "header_bytes", 0));
    TROUPE_ASSIGN(lengths.record, in.integer(2, "record_bytes", 1));
    TROUPE_ASSIGN(lengths.footer, in.integer(3, "footer_bytes", 0));
    lengths.gzip = gzip;
    return fixed_length_source(lengths);
  };
  const DatasetSchema of_strings{.types = nullptr};
  const std::string each =
      "of the files one after the other, each a scalar string, plain or GZIP. buffer_size makes no "
      "difference. Errors: a file that cannot be read, which costs what is left of it.";
  add_dataset_op(ops, kernels,
                 of_files("TextLineDataset")
                     .input("compression_type: string")
                     .input("buffer_size: int64")
                     .doc("The lines " + each),
                 files(lines, 1), of_strings);
  add_dataset_op(ops, kernels,
                 of_files("TFRecordDataset")
                     .input("compression_type: string")
                     .input("buffer_size: int64")
                     .doc("The records " + each),
                 files(records, 1), of_strings);
  add_dataset_op(ops, kernels,
                 of_files("TFRecordDatasetV2")
                     .input("compression_type: string")
                     .input("buffer_size: int64")
                     .input("byte_offsets: int64")
                     .doc("The records " + each + " byte_offsets must be empty: files are read from their beginning."),
                 files(
                     [records](const DatasetInputs& in, bool gzip) -> Result<OpenSource> {
                       for (const int64_t offset : in.tensor(3).values<int64_t>())
                         if (offset != 0)
                           return make_error(Code::kUnimplemented,
                                             "byte_offsets has {}; files are read from their beginning", offset);
                       return records(in, gzip);
                     },
                     1),
                 of_strings);
  const auto of_length = [&](std::string_view name) {
    return of_files(name)
        .input("header_bytes: int64")
        .input("record_bytes: int64")
        .input("footer_bytes: int64")
        .input("buffer_size: int64");
  };
  const std::string length = "The pieces of record_bytes between header_bytes and footer_bytes " + each;
  add_dataset_op(ops, kernels, of_length("FixedLengthRecordDataset").doc(length), files(fixed, -1), of_strings);
  add_dataset_op(ops, kernels, of_length("FixedLengthRecordDatasetV2").input("compression_type: string").doc(length),
                 files(fixed, 5), of_strings);
}

}  // namespace troupe
