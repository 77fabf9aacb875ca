// SPDX-License-Identifier: Apache-2.0
// Whole files and their names: ReadFile, WriteFile, MatchingFiles, ShardedFilename, ShardedFilespec.
#include <algorithm>
#include <filesystem>

#include "io/data_folders.h"
#include "io/file_pattern.h"
#include "io/file_system.h"
#include "io/whole_file.h"
#include "ops/input/register.h"
#include "ops/text/string_map.h"
#include "troupe/blocking_kernel.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

class ReadFile final : public BlockingKernel {
 public:
  explicit ReadFile(const KernelInit& init) : folders_(init.data_folders) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    TROUPE_ASSIGN(const std::string path, one_string(request.inputs[0], "filename"));
    TROUPE_RETURN_IF_ERROR(may_touch(folders_, path));
    TROUPE_ASSIGN(std::string contents, read_file(path));
    return std::vector<Tensor>{Tensor::scalar(std::move(contents))};
  }

 private:
  const std::shared_ptr<const DataFolders> folders_;
};

class WriteFile final : public BlockingKernel {
 public:
  explicit WriteFile(const KernelInit& init) : folders_(init.data_folders) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    TROUPE_ASSIGN(const std::string path, one_string(request.inputs[0], "filename"));
    TROUPE_ASSIGN(const std::string contents, one_string(request.inputs[1], "contents"));
    TROUPE_RETURN_IF_ERROR(may_touch(folders_, path));
    const std::string directory = std::filesystem::path(path).parent_path().string();
    if (!directory.empty()) TROUPE_RETURN_IF_ERROR(make_posix_file_system()->make_directories(directory));
    TROUPE_RETURN_IF_ERROR(write_file(path, contents));
    return std::vector<Tensor>();
  }

 private:
  const std::shared_ptr<const DataFolders> folders_;
};

/// Files whose paths match one of the patterns, sorted.
class MatchingFiles final : public BlockingKernel {
 public:
  explicit MatchingFiles(const KernelInit& init) : folders_(init.data_folders) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    std::vector<std::string> found;
    for (const std::string& pattern : request.inputs[0].values<std::string>()) {
      TROUPE_RETURN_IF_ERROR(may_touch(folders_, pattern));
      TROUPE_ASSIGN(const auto files, matching_files(pattern));
      found.insert(found.end(), files.begin(), files.end());
    }
    std::ranges::sort(found);
    return std::vector<Tensor>{Tensor::of<std::string>(std::span<const std::string>(found))};
  }

 private:
  const std::shared_ptr<const DataFolders> folders_;
};

/// "name-00001-of-00010", or with question marks in place of the shard for all of them.
template <bool kAll> class ShardName final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::string base, one_string(c.input(0), "basename"));
    for (int i = 1; i < c.num_inputs(); ++i)
      if (c.input(i).elements() != 1) return invalid_argument("input {} must be a scalar, not {}", i, c.input(i).str());
    const int32_t shards = c.input(kAll ? 1 : 2).data<int32_t>()[0];
    const std::string shard = kAll ? std::string(5, '?') : fmt::format("{:05}", c.input(1).data<int32_t>()[0]);
    c.set_output(0, Tensor::scalar(fmt::format("{}-{}-of-{:05}", base, shard, shards)));
    return {};
  }
};

}  // namespace

void register_file_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const char* reason = "files and their names are not numbers";
  ops.add(OpDef("ReadFile")
              .input("filename: string")
              .output("contents: string")
              .shape(scalar_shape)
              .stateful()
              .doc("All of a file."),
          not_differentiable(reason));
  kernels.add<ReadFile>("ReadFile", cpu, {});
  ops.add(
      OpDef("WriteFile")
          .input("filename: string")
          .input("contents: string")
          .shape(no_outputs)
          .stateful()
          .doc(
              "Writes a file, and makes the directories above it. A file that could not be written wholly is removed."),
      not_differentiable(reason));
  kernels.add<WriteFile>("WriteFile", cpu, {});
  ops.add(
      OpDef("MatchingFiles")
          .input("pattern: string")
          .output("filenames: string")
          .shape([](ShapeContext& c) -> Status {
            c.set_output(0, {-1});
            return {};
          })
          .stateful()
          .doc(
              "The paths of files that match one of the patterns, sorted. The last part of a pattern may hold *, ? and "
              "[...]."),
      not_differentiable(reason));
  kernels.add<MatchingFiles>("MatchingFiles", cpu, {});
  ops.add(OpDef("ShardedFilename")
              .input("basename: string")
              .input("shard: int32")
              .input("num_shards: int32")
              .output("filename: string")
              .shape(scalar_shape)
              .doc("basename-SSSSS-of-NNNNN."),
          not_differentiable(reason));
  kernels.add<ShardName<false>>("ShardedFilename", cpu, {});
  ops.add(OpDef("ShardedFilespec")
              .input("basename: string")
              .input("num_shards: int32")
              .output("filename: string")
              .shape(scalar_shape)
              .doc("The pattern of all shards: as ShardedFilename, but with question marks for the shard."),
          not_differentiable(reason));
  kernels.add<ShardName<true>>("ShardedFilespec", cpu, {});
}

}  // namespace troupe
