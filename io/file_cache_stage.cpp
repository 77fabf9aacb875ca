// SPDX-License-Identifier: Apache-2.0
// Elements kept in a file for later passes and later programs: a bundle (tensor_bundle.h) as TensorFlow writes it, with
// a tensor for each component of each element.
//
// A pass that finds no bundle writes one: pieces of some elements, PREFIX.part0 and on, which become PREFIX when the
// pass has come to its end. It has the lock PREFIX.lock meanwhile. One that ends before takes its pieces away.
#include "io/graph_stages.h"
#include "io/tensor_bundle.h"
#include "io/writing_flow.h"
#include "troupe/allocator.h"

namespace troupe {
namespace {

/// Elements come together in a piece until they have so many bytes.
constexpr size_t kPieceBytes = size_t{32} << 20;
constexpr int kElementDigits = 7;  // which TensorFlow's names of tensors have
constexpr int64_t kMostElements = 10'000'000;

/// The name of a component; in the order of names come elements, and in these components.
std::string name_of(int64_t element, int64_t component, int64_t components) {
  const size_t digits = fmt::formatted_size("{}", components - 1);
  return fmt::format("{:>{}}_{:>{}}", element, kElementDigits, component, digits);
}

/// The elements of a bundle.
class ReadFlow final : public Flow<Element> {
 public:
  ReadFlow(std::unique_ptr<PartSource> source, ComponentTypes dtypes, ComponentShapes shapes)
      : source_(std::move(source)), dtypes_(std::move(dtypes)), shapes_(std::move(shapes)) {}

  Result<std::optional<Element>> next() override {
    const std::vector<SavedPart>& parts = source_->parts();
    if (dtypes_.empty() || at_ * dtypes_.size() >= parts.size()) return std::optional<Element>();
    Element out;
    for (size_t k = 0; k < dtypes_.size(); ++k) {
      const size_t place = at_ * dtypes_.size() + k;
      const std::string name = name_of(static_cast<int64_t>(at_), static_cast<int64_t>(k), std::ssize(dtypes_));
      if (place >= parts.size() || parts[place].name != name || parts[place].slice)
        return make_error(Code::kDataLoss, "'{}' is not a cache of elements of {} components: there is no tensor '{}'",
                          source_->path(), dtypes_.size(), name);
      TROUPE_ASSIGN(Tensor value, source_->read(place, system_allocator()));
      out.push_back(std::move(value));
    }
    ++at_;
    TROUPE_RETURN_IF_ERROR(check_components(out, dtypes_, shapes_, "the cache in a file"));
    return std::optional<Element>(std::move(out));
  }

 private:
  const std::unique_ptr<PartSource> source_;
  const ComponentTypes dtypes_;
  const ComponentShapes shapes_;
  size_t at_ = 0;
};

/// Writes what its input gives, and holds the lock.
class WriteFlow final : public WritingFlow {
 public:
  WriteFlow(FlowPtr<Element> from, FileAccess access, std::string prefix, std::unique_ptr<FileLock> lock)
      : WritingFlow(std::move(from)), access_(std::move(access)), prefix_(std::move(prefix)), lock_(std::move(lock)) {}
  ~WriteFlow() override { end(); }
  WriteFlow(const WriteFlow&) = delete;
  WriteFlow& operator=(const WriteFlow&) = delete;

 private:
  std::string piece(int64_t number) const { return fmt::format("{}.part{}", prefix_, number); }

  Status keep(const Element& element) override {
    if (elements_ == kMostElements)
      return make_error(Code::kResourceExhausted, "'{}': a cache in a file has at most {} elements", prefix_,
                        kMostElements);
    for (size_t k = 0; k < element.size(); ++k) {
      const Tensor& t = element[k];
      t.freeze();
      bytes_ += t.bytes();
      if (t.dtype() == DType::kString)
        for (const std::string& text : t.values<std::string>()) bytes_ += text.size();
      tensors_.push_back({.name = name_of(elements_, static_cast<int64_t>(k), std::ssize(element)),
                          .dtype = t.dtype(),
                          .whole = t.shape(),
                          .slice = {},
                          .value = [t]() -> Result<Tensor> { return t; }});
    }
    ++elements_;
    return bytes_ < kPieceBytes ? Status() : write();
  }

  Status write() {
    take_away(pieces_);  // what a program that was killed may have left
    ++pieces_;           // what an error leaves of it goes with the others
    TROUPE_RETURN_IF_ERROR(write_bundle(access_, piece(pieces_ - 1), tensors_));
    tensors_.clear();
    bytes_ = 0;
    return {};
  }

  /// Removes what there is of a piece; after the merge nothing.
  void take_away(int64_t number) {
    (void)access_.files->remove(bundle_index(piece(number)));
    (void)access_.files->remove(bundle_data(piece(number), 0, 1));
  }

  Status finish() override {
    if (!tensors_.empty() || pieces_ == 0) TROUPE_RETURN_IF_ERROR(write());
    std::vector<std::string> pieces;
    for (int64_t i = 0; i < pieces_; ++i) pieces.push_back(piece(i));
    TROUPE_RETURN_IF_ERROR(merge_bundles(access_, pieces, prefix_, false));
    give_up();
    return {};
  }

  /// Takes away what this has written and not made the cache, and then the lock.
  void give_up() override {
    tensors_.clear();
    for (int64_t i = 0; i < pieces_; ++i) take_away(i);
    (void)access_.files->remove(prefix_ + ".lock");
    lock_ = nullptr;
  }

  const FileAccess access_;
  const std::string prefix_;
  std::unique_ptr<FileLock> lock_;
  std::vector<TensorToSave> tensors_;
  size_t bytes_ = 0;
  int64_t elements_ = 0, pieces_ = 0;
};

/// Looks for the cache when the first element is asked for, which may take time.
class FileCacheFlow final : public Flow<Element> {
 public:
  using Open = std::function<Result<FlowPtr<Element>>()>;
  explicit FileCacheFlow(Open open) : open_(std::move(open)) {}
  Result<std::optional<Element>> next() override {
    if (!flow_) {
      TROUPE_ASSIGN(flow_, open_());
    }
    return flow_->next();
  }

 private:
  const Open open_;
  FlowPtr<Element> flow_;
};

class FileCacheStage final : public PassingStage {
 public:
  FileCacheStage(StagePtr input, std::string prefix, FileAccess access)
      : PassingStage(std::move(input)), prefix_(std::move(prefix)), access_(std::move(access)) {}

  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    const auto open = [input = input_, prefix = prefix_, access = access_, pass]() -> Result<FlowPtr<Element>> {
      const auto find = [&] { return open_bundle(access, prefix); };
      const auto read = [&](std::unique_ptr<PartSource> bundle) {
        return FlowPtr<Element>(new ReadFlow(std::move(bundle), input->dtypes(), input->shapes()));
      };
      auto bundle = find();
      if (bundle.ok()) return read(std::move(*bundle));
      if (bundle.error().code != Code::kNotFound) return std::move(bundle.error());
      TROUPE_RETURN_IF_ERROR(may_touch(access.folders, prefix));
      TROUPE_ASSIGN(std::unique_ptr<FileLock> lock, access.files->lock(prefix + ".lock"));
      if (bundle = find(); bundle.ok()) {  // another pass came to its end before the lock was this one's
        (void)access.files->remove(prefix + ".lock");
        return read(std::move(*bundle));
      }
      TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input)(pass));
      return FlowPtr<Element>(new WriteFlow(std::move(from), access, prefix, std::move(lock)));
    };
    return FlowPtr<Element>(new FileCacheFlow(open));
  }

 private:
  const std::string prefix_;
  const FileAccess access_;
};

}  // namespace

StagePtr make_file_cache_stage(StagePtr input, std::string prefix, FileAccess access) {
  return std::make_shared<FileCacheStage>(std::move(input), std::move(prefix), std::move(access));
}

}  // namespace troupe
