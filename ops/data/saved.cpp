// SPDX-License-Identifier: Apache-2.0
// Datasets in files: saved, loaded, snapshots, records.
#include "io/element_files.h"
#include "ops/data/dataset_op.h"
#include "ops/data/each_element.h"
#include "ops/data/register.h"
#include "ops/parts/tensor_bytes.h"
#include "ops/text/string_map.h"

namespace troupe {
namespace {

/// What the attribute `compression` says; `automatic` is what "AUTO" stands for.
Result<RecordPacking> packing_of(std::string_view name, RecordPacking automatic = RecordPacking::kNone) {
  if (name.empty() || name == "NONE") return RecordPacking::kNone;
  if (name == "AUTO") return automatic;
  if (name == "GZIP") return RecordPacking::kGzip;
  if (name == "SNAPPY") return RecordPacking::kSnappy;
  return make_error(Code::kUnimplemented, "compression '{}'; there are '', 'NONE', 'AUTO', 'GZIP' and 'SNAPPY'", name);
}

ElementFiles files_of(std::string folder, RecordPacking packing, std::shared_ptr<const DataFolders> folders) {
  ElementFiles files;
  files.access.folders = std::move(folders);
  files.folder = std::move(folder);
  files.packing = packing;
  files.coding = {tensor_bytes, tensor_of_bytes};
  return files;
}

/// The number that the function gives of an element.
ShardFn shard_by(PassFn fn) {
  return [fn = std::move(fn)](const Pass& pass, Element element) -> Result<int64_t> {
    TROUPE_ASSIGN(const Element out, fn(pass, std::move(element)));
    if (out.size() != 1 || out[0].dtype() != DType::kInt64 || out[0].elements() != 1)
      return invalid_argument("shard_func must give one int64 scalar, not {}",
                              out.size() == 1 ? out[0].str() : fmt::format("{} values", out.size()));
    const int64_t shard = out[0].data<int64_t>()[0];
    if (shard < 0) return invalid_argument("shard_func must give at least 0, got {}", shard);
    return shard;
  };
}

/// Where a node with an input_dataset, a path and what shard_func captured writes, and by which shards.
class Saving {
 public:
  static Result<Saving> make(const KernelInit& init) {
    TROUPE_ASSIGN(const RecordPacking packing, packing_of(init.attr<std::string>("compression")));
    return Saving(init, packing);
  }
  Result<StagePtr> stage(StagePtr from, const Tensor& path, Element captured) const {
    TROUPE_ASSIGN(std::string folder, one_string(path, "path"));
    ElementFiles files = files_of(std::move(folder), packing_, folders_);
    files.dtypes = from->dtypes();
    files.shapes = from->shapes();
    ShardFn shard = shard_ ? shard_by(CarriedFunction::bind(shard_, std::move(captured))) : nullptr;
    return make_saving_stage(std::move(from), std::move(files), std::move(shard));
  }

 private:
  Saving(const KernelInit& init, RecordPacking packing) : packing_(packing), folders_(init.data_folders) {
    if (init.attr<bool>("use_shard_func")) shard_ = std::make_shared<CarriedFunction>(init, "shard_func");
  }
  RecordPacking packing_;
  std::shared_ptr<const DataFolders> folders_;
  std::shared_ptr<CarriedFunction> shard_;
};

class SaveDatasetKernel final : public BlockingKernel {
 public:
  explicit SaveDatasetKernel(const KernelInit& init) : saving_(Saving::make(init)) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    if (!saving_.ok()) return saving_.error();
    TROUPE_ASSIGN(GraphDataset dataset, dataset_of(request.inputs[0]));
    TROUPE_ASSIGN(StagePtr stage, saving_->stage(stage_within(std::move(dataset)), request.inputs[1],
                                                 Element(request.inputs.begin() + 2, request.inputs.end())));
    TROUPE_RETURN_IF_ERROR(
        for_each_element(request, GraphDataset{std::move(stage)}, [](const Element&) -> Result<bool> { return true; }));
    return std::vector<Tensor>();
  }

 private:
  const Result<Saving> saving_;
};

/// What reader_func gives of the dataset of the shards.
Result<StagePtr> read_shards(const std::vector<StagePtr>& shards, const StageOfElementFn& reader, const Pass& pass) {
  auto datasets = std::make_shared<std::vector<Element>>();
  for (const StagePtr& shard : shards) datasets->push_back({dataset_tensor({shard})});
  StagePtr all = make_list_stage(std::move(datasets), {DType::kVariant}, {PartialShape::scalar()});
  return reader(pass, {dataset_tensor({std::move(all)})});
}

Result<MakeDataset> load(const KernelInit& init) {
  TROUPE_ASSIGN(const RecordPacking packing, packing_of(init.attr<std::string>("compression")));
  auto reader = std::make_shared<CarriedFunction>(init, "reader_func");
  return MakeDataset([packing, reader, folders = init.data_folders](const DatasetInputs& in) -> Result<GraphDataset> {
    TROUPE_ASSIGN(std::string path, in.string(0, "path"));
    ElementFiles files = files_of(std::move(path), packing, folders);
    files.dtypes = in.dtypes();
    files.shapes = in.shapes();
    const auto make =
        [files, read = CarriedFunction::bind_stage(reader, in.tensors(1))](const Pass& pass) -> Result<StagePtr> {
      TROUPE_ASSIGN(const auto shards, saved_shards(files));
      if (!shards) return make_error(Code::kNotFound, "'{}' holds no saved dataset", files.folder);
      return read_shards(*shards, read, pass);
    };
    return GraphDataset{make_late_stage(make, in.dtypes(), in.shapes())};
  });
}

Result<MakeDataset> snapshot(const KernelInit& init) {
  TROUPE_ASSIGN(const RecordPacking packing, packing_of(init.attr<std::string>("compression"), RecordPacking::kSnappy));
  for (const char* attr : {"reader_prefix", "writer_prefix"})
    if (const std::string prefix = init.attr<std::string>(attr); !prefix.empty())
      return make_error(Code::kUnimplemented, "{} '{}'; paths are used as they are", attr, prefix);
  if (!init.attr<bool>("hash_valid"))
    return invalid_argument("hash_valid must be true, and hash say by what the elements are made");
  const std::string hash = std::to_string(static_cast<uint64_t>(init.attr<int64_t>("hash")));
  auto reader = std::make_shared<CarriedFunction>(init, "reader_func");
  auto sharder = std::make_shared<CarriedFunction>(init, "shard_func");
  const int begin = 2, end = begin + static_cast<int>(init.attr<ComponentTypes>("Treader_func_args").size());
  return MakeDataset([=, folders = init.data_folders](const DatasetInputs& in) -> Result<GraphDataset> {
    TROUPE_ASSIGN(const StagePtr from, in.stage());
    TROUPE_ASSIGN(const std::string path, in.string(1, "path"));
    ElementFiles files = files_of(path + "/" + hash, packing, folders);
    files.dtypes = in.dtypes();
    files.shapes = in.shapes();
    files.hash = hash;
    const auto make =
        [=, read = CarriedFunction::bind_stage(reader, in.tensors(begin, end)),
         shard = shard_by(CarriedFunction::bind(sharder, in.tensors(end)))](const Pass& pass) -> Result<StagePtr> {
      TROUPE_ASSIGN(const auto shards, saved_shards(files));
      if (shards) return read_shards(*shards, read, pass);
      return make_saving_stage(from, files, shard);
    };
    return GraphDataset{make_late_stage(make, in.dtypes(), in.shapes(), from->size())};
  });
}

class ToRecordsKernel final : public BlockingKernel {
 public:
  explicit ToRecordsKernel(const KernelInit& init) : folders_(init.data_folders) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    TROUPE_ASSIGN(const GraphDataset dataset, dataset_of(request.inputs[0]));
    TROUPE_ASSIGN(const std::string path, one_string(request.inputs[1], "filename"));
    TROUPE_ASSIGN(const std::string name, one_string(request.inputs[2], "compression_type"));
    if (!name.empty() && name != "GZIP")
      return make_error(Code::kUnimplemented, "compression_type '{}'; there are '' and 'GZIP'", name);
    TROUPE_RETURN_IF_ERROR(may_touch(folders_, path));
    const auto files = make_posix_file_system();
    TROUPE_ASSIGN(RecordWriter out,
                  RecordWriter::create(*files, path, name.empty() ? RecordPacking::kNone : RecordPacking::kGzip));
    TROUPE_RETURN_IF_ERROR(for_each_element(request, dataset, [&](const Element& element) -> Result<bool> {
      if (element.size() != 1 || element[0].dtype() != DType::kString || element[0].elements() != 1)
        return invalid_argument("an element must be one string, not {}",
                                element.size() == 1 ? element[0].str() : fmt::format("{} values", element.size()));
      TROUPE_RETURN_IF_ERROR(out.write(element[0].data<std::string>()[0]));
      return true;
    }));
    TROUPE_RETURN_IF_ERROR(out.close());
    return std::vector<Tensor>();
  }

 private:
  const std::shared_ptr<const DataFolders> folders_;
};

OpDef saved(std::string_view name) {
  return OpDef(name)
      .input("input_dataset: variant")
      .input("path: string")
      .input("shard_func_other_args: Tshard_func_args")
      .attr("compression: string = ''")
      .attr("shard_func: string")
      .attr("use_shard_func: bool = true")
      .attr("Tshard_func_args: list(type) >= 0")
      .stateful();
}

}  // namespace

void register_data_saved_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const std::string into =
      "into the folder `path`, as TensorFlow's Dataset.save does: into the shard whose number, an int64 scalar, "
      "shard_func gives of an element, followed by shard_func_other_args, or into one where not use_shard_func. "
      "`compression` is '', 'NONE' and 'AUTO', which do nothing, 'GZIP' or 'SNAPPY', which makes nothing smaller. What "
      "was saved there before is replaced at the end. Errors: a shard below 0; elements with handles or variants.";
  ops.add(saved("SaveDataset").doc("Writes the elements " + into).shape(no_outputs).cost(no_cost),
          not_differentiable("it has no output"));
  kernels.add<SaveDatasetKernel>("SaveDataset", cpu, {});
  add_dataset_op(ops, kernels, saved("SaveDatasetV2").doc("The elements, which each pass writes " + into),
                 [](const KernelInit& init) -> Result<MakeDataset> {
                   TROUPE_ASSIGN(const Saving saving, Saving::make(init));
                   return MakeDataset([saving](const DatasetInputs& in) -> Result<GraphDataset> {
                     TROUPE_ASSIGN(const StagePtr from, in.stage());
                     TROUPE_ASSIGN(StagePtr stage, saving.stage(from, in.tensor(1), in.tensors(2)));
                     return GraphDataset{std::move(stage)};
                   });
                 },
                 {.metadata = false});
  add_dataset_op(ops, kernels,
                 OpDef("LoadDataset")
                     .input("path: string")
                     .input("reader_func_other_args: Treader_func_args")
                     .attr("compression: string = ''")
                     .attr("reader_func: string")
                     .attr("Treader_func_args: list(type) >= 0")
                     .stateful()
                     .doc("The elements that SaveDataset, or TensorFlow, wrote into the folder `path`: those of the "
                          "dataset that reader_func makes of a dataset of the shards, each a dataset, followed by "
                          "reader_func_other_args. `compression` is that of the writer. It is looked for when "
                          "elements are asked for. Errors: there is none; it has elements of other types."),
                 load, {.metadata = false});
  add_dataset_op(ops, kernels,
                 OpDef("SnapshotDatasetV2")
                     .input("input_dataset: variant")
                     .input("path: string")
                     .input("reader_func_other_args: Treader_func_args")
                     .input("shard_func_other_args: Tshard_func_args")
                     .attr("compression: string = ''")
                     .attr("reader_prefix: string = ''")
                     .attr("writer_prefix: string = ''")
                     .attr("hash_valid: bool = false")
                     .attr("hash: int = 0")
                     .attr("reader_func: string")
                     .attr("shard_func: string")
                     .attr("Treader_func_args: list(type) >= 0")
                     .attr("Tshard_func_args: list(type) >= 0")
                     .doc("The elements, which a whole pass writes into the folder `hash` of the folder `path` as "
                          "SaveDataset does, from where later passes and programs take them as LoadDataset does. A "
                          "graph that is read has in `hash` what its nodes before the dataset are; else it must be "
                          "given, with hash_valid. A `compression` of 'AUTO' is 'SNAPPY'. Errors: a prefix."),
                 snapshot);
  ops.add(OpDef("DatasetToTFRecord")
              .input("input_dataset: variant")
              .input("filename: string")
              .input("compression_type: string")
              .doc("Writes the elements, each one string, into a file of records, packed where compression_type is "
                   "'GZIP'. Errors: other elements; another compression_type.")
              .shape(no_outputs)
              .cost(no_cost)
              .stateful(),
          not_differentiable("it has no output"));
  kernels.add<ToRecordsKernel>("DatasetToTFRecord", cpu, {});
}

}  // namespace troupe
