// SPDX-License-Identifier: Apache-2.0
// Stages that read files one after another: lines of text, records.
#include <cstring>

#include "io/byte_reader.h"
#include "io/dataset_stages.h"
#include "io/tfrecord.h"

namespace troupe {
namespace {

constexpr size_t kMostLine = size_t{1} << 28;

/// Lines without their ends ("\n" or "\r\n"); the last one needs none.
class LineReader {
 public:
  static Result<LineReader> open(const std::string& path) {
    TROUPE_ASSIGN(ByteReader bytes, ByteReader::open(path, ByteReader::Kinds::kStreamsToo));
    return LineReader(std::move(bytes));
  }

  Result<std::optional<std::string>> next() {
    std::string line;
    for (;;) {
      if (at_ == buffer_.size()) {
        buffer_.resize(1 << 16);
        at_ = 0;
        auto got = bytes_.read(buffer_.data(), buffer_.size());
        buffer_.resize(got.ok() ? *got : 0);
        if (!got.ok()) return std::move(got.error());
        if (buffer_.empty()) return line.empty() ? std::nullopt : std::optional(finish(std::move(line)));
      }
      const char* begin = buffer_.data() + at_;
      const auto* end = static_cast<const char*>(std::memchr(begin, '\n', buffer_.size() - at_));
      const size_t count = end ? static_cast<size_t>(end - begin) : buffer_.size() - at_;
      line.append(begin, count);
      at_ += count + (end ? 1 : 0);
      if (line.size() > kMostLine)
        return make_error(Code::kDataLoss, "'{}': a line of more than {} bytes", bytes_.path(), kMostLine);
      if (end) return std::optional(finish(std::move(line)));
    }
  }

 private:
  explicit LineReader(ByteReader bytes) : bytes_(std::move(bytes)) {}
  static std::string finish(std::string line) {
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }
  ByteReader bytes_;
  std::string buffer_;
  size_t at_ = 0;
};

/// All strings of all files; a file that cannot be read further is one error, then the next file follows.
template <class Reader> class FilesFlow final : public Flow<Element> {
 public:
  explicit FilesFlow(std::vector<std::string> files) : files_(std::move(files)) {}
  Result<std::optional<Element>> next() override {
    for (; at_ < files_.size(); ++at_) {
      if (!reader_) {
        auto opened = Reader::open(files_[at_]);
        if (!opened.ok()) {
          ++at_;
          return std::move(opened.error());
        }
        reader_ = std::make_unique<Reader>(std::move(*opened));
      }
      Result<std::optional<std::string>> text = reader_->next();
      if (text.ok() && *text) return std::optional<Element>({Tensor::scalar<std::string>(std::move(**text))});
      reader_.reset();
      if (!text.ok()) {
        ++at_;
        return std::move(text.error());
      }
    }
    return std::optional<Element>();
  }

 private:
  std::vector<std::string> files_;
  size_t at_ = 0;
  std::unique_ptr<Reader> reader_;
};

template <class Reader> class FilesStage final : public FlowStage {
 public:
  explicit FilesStage(std::vector<std::string> files) : files_(std::move(files)) {}
  Result<FlowPtr<Element>> flow(const Pass&) const override { return FlowPtr<Element>(new FilesFlow<Reader>(files_)); }
  std::vector<DType> dtypes() const override { return {DType::kString}; }
  std::vector<PartialShape> shapes() const override { return {PartialShape::scalar()}; }
  int64_t size() const override { return files_.empty() ? 0 : -1; }

 private:
  std::vector<std::string> files_;
};

}  // namespace

StagePtr make_lines_stage(std::vector<std::string> files) {
  return std::make_shared<FilesStage<LineReader>>(std::move(files));
}

StagePtr make_records_stage(std::vector<std::string> files) {
  return std::make_shared<FilesStage<RecordReader>>(std::move(files));
}

}  // namespace troupe
