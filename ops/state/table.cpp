// SPDX-License-Identifier: Apache-2.0
// Lookup tables: HashTableV2, MutableHashTableV2, MutableHashTableOfTensorsV2, MutableDenseHashTableV2 make handles;
// LookupTable...V2, InitializeTableV2 and InitializeTableFromTextFileV2 run at the table's host.
#include "ops/parts/resource_kernel.h"
#include "ops/state/register.h"
#include "ops/state/table_resource.h"
#include "ops/state/vocabulary_file.h"
#include "ops/text/string_map.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

// -- handles ----------------------------------------------------------------------------------------------------------

Result<Shape> known_shape(const KernelInit& init) {
  const auto* shape = init.attrs->get<PartialShape>("value_shape");
  if (!shape) return Shape();
  if (!shape->fully_known()) return invalid_argument("value_shape {} must be known", shape->str());
  return shape->shape();
}

ResourceHandle table_handle(const KernelInit& init, const TableOptions& options) {
  ResourceHandle handle = make_handle(init, "table");
  handle.signature = fmt::format("{} {}{} to {}{}", init.op, to_string(options.key_dtype), options.key_shape.str(),
                                 to_string(options.value_dtype), options.value_shape.str());
  for (const Tensor& key : options.reserved_keys) handle.signature += " not " + key.str();
  handle.factory = [options] { return TableResource::make(options); };
  return handle;
}

Result<TableOptions> read_options(const KernelInit& init) {
  TROUPE_ASSIGN(const Shape shape, known_shape(init));
  const auto& shared = init.attr<std::string>("shared_name");
  TableOptions options{shared.empty() ? std::string(init.node) : shared,
                       init.attr<DType>("key_dtype"),
                       init.attr<DType>("value_dtype"),
                       Shape(),
                       shape,
                       init.op == "HashTableV2"};
  TROUPE_RETURN_IF_ERROR(Table::make(options).status());  // wrong options show at the node
  return options;
}

Result<std::unique_ptr<ComputeKernel>> make_table(const KernelInit& init) {
  TROUPE_ASSIGN(const TableOptions options, read_options(init));
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(table_handle(init, options)));
}

/// A dense table learns from its inputs the keys that it may not have, and the shape of all.
class DenseTable final : public ComputeKernel {
 public:
  DenseTable(TableOptions options, const KernelInit& init)
      : options_(std::move(options)), op_(init.op), node_(init.node), attrs_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    TableOptions options = options_;
    options.key_shape = c.input(0).shape();
    options.reserved_keys = {c.input(0), c.input(1)};
    if (!(c.input(1).shape() == options.key_shape) || c.input(0).identical(c.input(1)))
      return invalid_argument("empty_key {} and deleted_key {} must differ and have one shape", c.input(0).str(),
                              c.input(1).str());
    TROUPE_RETURN_IF_ERROR(Table::make(options).status());
    KernelInit init;
    init.op = op_;
    init.node = node_;
    init.attrs = &attrs_;
    c.set_output(0, Tensor::scalar<ResourceRef>(std::make_shared<const ResourceHandle>(table_handle(init, options))));
    return {};
  }

 private:
  const TableOptions options_;
  const std::string op_, node_;
  const Attrs attrs_;
};

Result<std::unique_ptr<ComputeKernel>> make_dense_table(const KernelInit& init) {
  TROUPE_ASSIGN(TableOptions options, read_options(init));
  options.dense = true;
  options.buckets = init.attr<int64_t>("initial_num_buckets");
  options.most_full = init.attr<float>("max_load_factor");
  return std::unique_ptr<ComputeKernel>(std::make_unique<DenseTable>(std::move(options), init));
}

// -- requests ---------------------------------------------------------------------------------------------------------

/// A kernel around a function Table&, ResourceRequest& -> Result<std::vector<Tensor>>.
class TableKernel final : public AnsweringKernel {
 public:
  using Run = Result<std::vector<Tensor>> (*)(Table&, ResourceRequest&);
  TableKernel(Run run, std::vector<DType> outputs) : run_(run), outputs_(std::move(outputs)) {}
  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    TROUPE_ASSIGN(TableResource* const host, core_of<TableResource>(resource, request, "table"));
    Table& table = host->table();
    TROUPE_ASSIGN(std::vector<Tensor> outputs, run_(table, request));
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].dtype() != outputs_[i])
        return invalid_argument("table '{}' has {}, the node expects {} of it", table.options().name,
                                to_string(outputs[i].dtype()), to_string(outputs_[i]));
    return outputs;
  }

 private:
  const Run run_;
  const std::vector<DType> outputs_;
};

Result<std::vector<Tensor>> find(Table& t, ResourceRequest& r) {
  return one_output(t.find(r.inputs[1], r.inputs[2], r.allocator));
}
Result<std::vector<Tensor>> insert(Table& t, ResourceRequest& r) {
  return no_output(t.insert(r.inputs[1], r.inputs[2]));
}
Result<std::vector<Tensor>> remove(Table& t, ResourceRequest& r) { return no_output(t.remove(r.inputs[1])); }
Result<std::vector<Tensor>> fill(Table& t, ResourceRequest& r) { return no_output(t.fill(r.inputs[1], r.inputs[2])); }
Result<std::vector<Tensor>> size(Table& t, ResourceRequest&) { return one_output(Tensor::scalar(t.size())); }
Result<std::vector<Tensor>> entries(Table& t, ResourceRequest& r) { return t.entries(r.allocator); }

// -- files ------------------------------------------------------------------------------------------------------------

/// Has the file read where that may wait.
class FillFromFile final : public ResourceKernel {
 public:
  explicit FillFromFile(const KernelInit& init) : file_(std::make_shared<const VocabularyFile>(init)) {}
  void execute(Resource& resource, ResourceRequest request) override {
    auto* host = core_as<TableResource>(resource, request, "table");
    if (!host) return;
    auto path = one_string(request.inputs[1], "filename");
    if (!path.ok()) return request.reply(std::move(path.error()));
    const TableOptions& options = host->table().options();
    host->fill_from([file = file_, path = std::move(*path), key = options.key_dtype,
                     value = options.value_dtype] { return file->read(path, key, value); },
                    std::move(request.reply));
  }

 private:
  const std::shared_ptr<const VocabularyFile> file_;
};

// -- shapes -----------------------------------------------------------------------------------------------------------

/// That of the keys, of which the table may say that their last dimensions are one key, and then that of a value.
Status find_shape(ShapeContext& c) {
  const Node* table = c.source(0).node;
  const std::string op = table ? table->op().name() : "";
  const bool known = op.ends_with("HashTableV2") || op == "MutableHashTableOfTensorsV2";
  if (!known || !c.input(1).has_rank()) return {};
  PartialShape shape = c.input(1), value = PartialShape::scalar();
  if (op == "MutableDenseHashTableV2") {
    const PartialShape& key = table->inputs()[0].shape();
    if (!key.has_rank() || key.rank() > shape.rank()) return {};
    PartialShape rest = PartialShape::scalar();
    for (int d = 0; d < shape.rank() - key.rank(); ++d) rest.push_back(shape[d]);
    shape = rest;
  }
  if (const auto* of = table->attrs().get<PartialShape>("value_shape")) value = *of;
  if (!value.has_rank() || shape.rank() + value.rank() > kMaxRank) return {};
  for (const int64_t d : value.dims()) shape.push_back(d);
  c.set_output(0, shape);
  return {};
}

}  // namespace

void register_table_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto cpu = DeviceKind::kCpu;
  const auto add_table = [&](OpDef op, const std::string& doc) {
    ops.add(op.output("table_handle: resource")
                .attr("container: string = ''")
                .attr("shared_name: string = ''")
                .attr("use_node_name_sharing: bool = false")
                .attr("key_dtype: type")
                .attr("value_dtype: type")
                .doc(doc + " Nodes of the same `shared_name` (the node's name when empty) and `container` share one.")
                .shape(scalar_shape)
                .stateful(),
            not_differentiable("a handle is not a number"));
  };
  add_table(OpDef("HashTableV2"), "A handle to a table from keys to values that is filled once and then only read.");
  kernels.add("HashTableV2", cpu, {}, make_table);
  add_table(OpDef("MutableHashTableV2"), "A handle to a table from keys to values that may change.");
  kernels.add("MutableHashTableV2", cpu, {}, make_table);
  add_table(OpDef("MutableHashTableOfTensorsV2").attr("value_shape: shape = []"),
            "A handle to a table from keys to tensors of `value_shape` that may change.");
  kernels.add("MutableHashTableOfTensorsV2", cpu, {}, make_table);
  add_table(
      OpDef("MutableDenseHashTableV2")
          .input("empty_key: key_dtype")
          .input("deleted_key: key_dtype")
          .attr("value_shape: shape = []")
          .attr("initial_num_buckets: int = 131072")
          .attr("max_load_factor: float = 0.8"),
      "A handle to a table from keys of the shape of `empty_key`, which may not be it nor `deleted_key`, to tensors "
      "of `value_shape`. Keys and values are scalars or vectors. The table has `initial_num_buckets`, a power of two "
      "of "
      "at least 4, and doubles them where more than `max_load_factor` of them would be taken; its export shows all of "
      "them as rows, empty ones too, and its import takes such rows.");
  kernels.add("MutableDenseHashTableV2", cpu, {}, make_dense_table);

  const auto serve = [&](const char* op, TableKernel::Run run) {
    kernels.add(op, cpu, {}, [run](const KernelInit& init) -> Result<std::unique_ptr<ResourceKernel>> {
      return std::unique_ptr<ResourceKernel>(std::make_unique<TableKernel>(run, init.output_dtypes));
    });
  };
  const char* no_value = "it has no output";
  const char* looked_up = "what is looked up does not depend on the keys smoothly";
  const auto add = [&](OpDef op, const char* reason) { ops.add(op.stateful(), not_differentiable(reason)); };
  const auto table = [](const char* name) {
    OpDef op(name);
    return op.input("table_handle: resource");
  };
  add(table("LookupTableFindV2")
          .input("keys: Tin")
          .input("default_value: Tout")
          .output("values: Tout")
          .attr("Tin: type")
          .attr("Tout: type")
          .shape(find_shape)
          .doc("The values of the keys, `default_value` for those that are not there. Fails for a constant table that "
               "is "
               "not filled yet."),
      looked_up);
  serve("LookupTableFindV2", find);
  add(table("LookupTableInsertV2")
          .input("keys: Tin")
          .input("values: Tout")
          .attr("Tin: type")
          .attr("Tout: type")
          .shape(no_outputs)
          .doc("Adds entries, or replaces the values of those there are. Fails for a constant table."),
      no_value);
  serve("LookupTableInsertV2", insert);
  add(table("LookupTableRemoveV2")
          .input("keys: Tin")
          .attr("Tin: type")
          .shape(no_outputs)
          .doc("Removes entries; keys that are not there are none. Fails for a constant table."),
      no_value);
  serve("LookupTableRemoveV2", remove);
  add(table("LookupTableSizeV2").output("size: int64").shape(scalar_shape).doc("How many entries there are."),
      "a count does not depend on values");
  serve("LookupTableSizeV2", size);
  add(table("LookupTableExportV2")
          .output("keys: Tkeys")
          .output("values: Tvalues")
          .attr("Tkeys: type")
          .attr("Tvalues: type")
          .shape(unknown_shape)
          .doc("All keys and all values."),
      "entries come from the table");
  serve("LookupTableExportV2", entries);
  add(table("LookupTableImportV2")
          .input("keys: Tin")
          .input("values: Tout")
          .attr("Tin: type")
          .attr("Tout: type")
          .shape(no_outputs)
          .doc("Replaces all entries; fills a constant table, which fails when it holds others already."),
      no_value);
  serve("LookupTableImportV2", fill);
  add(table("InitializeTableV2")
          .input("keys: Tkey")
          .input("values: Tval")
          .attr("Tkey: type")
          .attr("Tval: type")
          .shape(no_outputs)
          .doc("Fills a constant table. Fails when it holds other entries already, and for one key with two values."),
      no_value);
  serve("InitializeTableV2", fill);
  add(table("InitializeTableFromTextFileV2")
          .input("filename: string")
          .attr("key_index: int >= -2")
          .attr("value_index: int >= -2")
          .attr("vocab_size: int >= -1 = -1")
          .attr("delimiter: string = '\t'")
          .attr("offset: int = 0")
          .shape(no_outputs)
          .doc("Fills a constant table from the lines of a file after the first `offset`, the first `vocab_size` of "
               "them "
               "(-1: all). An index is a column between `delimiter`s, -1 the number of the line, -2 the whole line."),
      no_value);
  kernels.add<FillFromFile>("InitializeTableFromTextFileV2", cpu, {});
}

}  // namespace troupe
