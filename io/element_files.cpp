// SPDX-License-Identifier: Apache-2.0
#include "io/element_files.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "io/replacing_file.h"
#include "io/saved_tensors.pb.h"
#include "io/writing_flow.h"

namespace troupe {
namespace {

constexpr int64_t kVersion = 2;  // of TensorFlow's snapshots: records
constexpr uint64_t kMostMetadata = 1 << 20;

std::string metadata_of(const ElementFiles& files) { return files.folder + "/snapshot.metadata"; }

/// The names in a folder that end so, in order.
Result<std::vector<std::string>> names_in(const FileAccess& access, const std::string& folder, std::string_view end) {
  TROUPE_RETURN_IF_ERROR(may_touch(access.folders, folder));
  TROUPE_ASSIGN(std::vector<std::string> names, access.files->list(folder));
  std::erase_if(names, [&](const std::string& name) { return !name.ends_with(end); });
  return names;
}

/// The elements of the files of a shard, one file after the other.
class ShardFlow final : public Flow<Element> {
 public:
  ShardFlow(ElementFiles files, std::vector<std::string> paths) : files_(std::move(files)), paths_(std::move(paths)) {}

  Result<std::optional<Element>> next() override {
    Result<std::optional<Element>> element = read();
    if (!element.ok()) at_ = paths_.size(), reader_.reset();  // what follows damage cannot be trusted
    return element;
  }

 private:
  Result<std::optional<Element>> read() {
    Element out;
    while (out.size() < files_.dtypes.size()) {
      if (!reader_) {
        if (at_ == paths_.size()) return std::optional<Element>();
        TROUPE_RETURN_IF_ERROR(may_touch(files_.access.folders, paths_[at_]));
        TROUPE_ASSIGN(reader_, RecordReader::open(paths_[at_], files_.packing == RecordPacking::kSnappy));
      }
      TROUPE_ASSIGN(const std::optional<std::string> record, reader_->next());
      if (record) {
        auto value = files_.coding.tensor(*record);
        if (!value.ok())
          return make_error(Code::kDataLoss, "'{}': the record before offset {}: {}", paths_[at_], reader_->offset(),
                            value.error().message);
        out.push_back(std::move(*value));
      } else if (!out.empty()) {
        return make_error(Code::kDataLoss, "'{}' ends with {} of {} components of an element", paths_[at_], out.size(),
                          files_.dtypes.size());
      } else {
        reader_.reset();
        ++at_;
      }
    }
    TROUPE_RETURN_IF_ERROR(check_components(out, files_.dtypes, files_.shapes, "the saved dataset"));
    return std::optional<Element>(std::move(out));
  }

  const ElementFiles files_;
  const std::vector<std::string> paths_;
  size_t at_ = 0;
  std::optional<RecordReader> reader_;
};

class ShardStage final : public TypedStage {
 public:
  ShardStage(ElementFiles files, std::vector<std::string> paths)
      : TypedStage(files.dtypes, files.shapes), files_(std::move(files)), paths_(std::move(paths)) {}
  Result<FlowPtr<Element>> flow(const Pass&) const override { return FlowPtr<Element>(new ShardFlow(files_, paths_)); }

 private:
  const ElementFiles files_;
  const std::vector<std::string> paths_;
};

/// Writes what its input gives into shards.
class SavingFlow final : public WritingFlow {
 public:
  SavingFlow(FlowPtr<Element> from, ElementFiles files, ShardFn shard, Pass pass)
      : WritingFlow(std::move(from)), files_(std::move(files)), shard_(std::move(shard)), pass_(std::move(pass)) {
    std::random_device device;
    run_ = std::to_string(uint64_t{device()} << 32 | device());
  }
  ~SavingFlow() override { end(); }
  SavingFlow(const SavingFlow&) = delete;
  SavingFlow& operator=(const SavingFlow&) = delete;

 private:
  Status keep(const Element& element) override {
    int64_t shard = 0;
    if (shard_) {
      TROUPE_ASSIGN(shard, shard_(pass_, element));
    }
    auto writer = writers_.find(shard);
    if (writer == writers_.end()) {
      const std::string folder = fmt::format("{}/{}/{:08}.shard", files_.folder, run_, shard);
      const std::string path = folder + "/00000000.snapshot";
      TROUPE_RETURN_IF_ERROR(make_folder(folder));
      TROUPE_RETURN_IF_ERROR(may_touch(files_.access.folders, path));
      TROUPE_ASSIGN(RecordWriter made, RecordWriter::create(*files_.access.files, path, files_.packing));
      paths_.push_back(path);
      writer = writers_.emplace(shard, std::move(made)).first;
    }
    for (const Tensor& t : element) {
      TROUPE_ASSIGN(const std::string bytes, files_.coding.bytes(t));
      TROUPE_RETURN_IF_ERROR(writer->second.write(bytes));
    }
    ++elements_;
    return {};
  }

  /// Also the folders above it, of which the first must be where files may be touched.
  Status make_folder(const std::string& folder) {
    TROUPE_RETURN_IF_ERROR(may_touch(files_.access.folders, files_.folder));
    return files_.access.files->make_directories(folder);
  }

  Status finish() override {
    TROUPE_RETURN_IF_ERROR(make_folder(files_.folder + "/" + run_));
    for (auto& [shard, writer] : writers_) {
      TROUPE_RETURN_IF_ERROR(writer.sync());
      TROUPE_RETURN_IF_ERROR(writer.close());
    }
    proto::SavedElements metadata;
    metadata.set_graph_hash(files_.hash);
    metadata.set_run_id(run_);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    metadata.set_creation_timestamp(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
    metadata.set_version(kVersion);
    for (const DType dtype : files_.dtypes) metadata.add_dtype(static_cast<int>(dtype));
    metadata.set_num_elements(elements_);
    metadata.set_finalized(true);
    const std::string bytes = metadata.SerializeAsString();
    TROUPE_RETURN_IF_ERROR(may_touch(files_.access.folders, metadata_of(files_)));
    TROUPE_RETURN_IF_ERROR(replace_file(*files_.access.files, metadata_of(files_),
                                        [&](WritableFile& file) { return file.append(bytes.data(), bytes.size()); }));
    writers_.clear();
    return {};
  }

  void give_up() override {
    writers_.clear();
    for (const std::string& path : paths_) (void)files_.access.files->remove(path);
  }

  const ElementFiles files_;
  const ShardFn shard_;
  const Pass pass_;
  std::string run_;
  std::map<int64_t, RecordWriter> writers_;
  std::vector<std::string> paths_;
  int64_t elements_ = 0;
};

class SavingStage final : public PassingStage {
 public:
  SavingStage(StagePtr input, ElementFiles files, ShardFn shard)
      : PassingStage(std::move(input)), files_(std::move(files)), shard_(std::move(shard)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    TROUPE_ASSIGN(FlowPtr<Element> from, elements_of(input_)(pass));
    return FlowPtr<Element>(new SavingFlow(std::move(from), files_, shard_, pass));
  }

 private:
  const ElementFiles files_;
  const ShardFn shard_;
};

}  // namespace

Result<std::optional<std::vector<StagePtr>>> saved_shards(const ElementFiles& files) {
  const std::string path = metadata_of(files);
  auto file = files.access.open(path);
  if (!file.ok() && file.error().code == Code::kNotFound) return std::optional<std::vector<StagePtr>>();
  if (!file.ok()) return std::move(file.error());
  if ((*file)->size() > kMostMetadata)
    return make_error(Code::kDataLoss, "'{}' has {} bytes, too many for metadata", path, (*file)->size());
  std::string bytes((*file)->size(), '\0');
  TROUPE_RETURN_IF_ERROR((*file)->read(0, bytes.data(), bytes.size()));
  proto::SavedElements metadata;
  if (!metadata.ParseFromString(bytes) || metadata.run_id().empty() ||
      metadata.run_id().find_first_not_of("0123456789") != std::string::npos)
    return make_error(Code::kDataLoss, "'{}' is damaged", path);
  if (metadata.version() != kVersion)
    return make_error(Code::kUnimplemented, "'{}': version {} of the format; {} is read", path, metadata.version(),
                      kVersion);
  if (!metadata.finalized()) return std::optional<std::vector<StagePtr>>();
  if (!std::ranges::equal(metadata.dtype(), files.dtypes, {}, {}, [](DType t) { return static_cast<int>(t); })) {
    const auto names = [](const auto& types, auto name) {
      std::string out;
      for (const auto type : types) out += (out.empty() ? "" : ", ") + std::string(name(type));
      return out;
    };
    return invalid_argument("'{}' has elements of {}, the node reads {}", path,
                            names(metadata.dtype(), [](int type) { return name_of_type(type); }),
                            names(files.dtypes, [](DType type) { return to_string(type); }));
  }
  const std::string run = files.folder + "/" + metadata.run_id();
  TROUPE_ASSIGN(const std::vector<std::string> shards, names_in(files.access, run, ".shard"));
  std::vector<StagePtr> out;
  for (const std::string& shard : shards) {
    const std::string folder = run + "/" + shard;
    TROUPE_ASSIGN(std::vector<std::string> paths, names_in(files.access, folder, ".snapshot"));
    for (std::string& name : paths) name = folder + "/" + name;
    out.push_back(std::make_shared<ShardStage>(files, std::move(paths)));
  }
  return std::optional<std::vector<StagePtr>>(std::move(out));
}

StagePtr make_saving_stage(StagePtr input, ElementFiles files, ShardFn shard) {
  return std::make_shared<SavingStage>(std::move(input), std::move(files), std::move(shard));
}

}  // namespace troupe
