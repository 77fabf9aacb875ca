// SPDX-License-Identifier: Apache-2.0
// Lookup tables: HashTableV2, MutableHashTableV2, MutableHashTableOfTensorsV2, MutableDenseHashTableV2 make handles;
// LookupTable...V2, InitializeTableV2 and InitializeTableFromTextFileV2 run at the table's host.
#include "containers/table.h"
#include "io/whole_file.h"
#include "ops/all.h"
#include "ops/resource_kernel.h"
#include "ops/string_numbers.h"
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
  handle.factory = [options] { return Table::make(options); };
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

Result<std::unique_ptr<Kernel>> make_table(const KernelInit& init) {
  TROUPE_ASSIGN(const TableOptions options, read_options(init));
  return std::unique_ptr<Kernel>(std::make_unique<HandleKernel>(table_handle(init, options)));
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

Result<std::unique_ptr<Kernel>> make_dense_table(const KernelInit& init) {
  TROUPE_ASSIGN(TableOptions options, read_options(init));
  options.dense = true;
  options.buckets = init.attr<int64_t>("initial_num_buckets");
  options.most_full = init.attr<float>("max_load_factor");
  return std::unique_ptr<Kernel>(std::make_unique<DenseTable>(std::move(options), init));
}

// -- requests ---------------------------------------------------------------------------------------------------------

/// A kernel around a function Table&, ResourceRequest& -> Result<std::vector<Tensor>>.
class TableKernel final : public ResourceKernel {
 public:
  using Run = Result<std::vector<Tensor>> (*)(Table&, ResourceRequest&);
  TableKernel(Run run, std::vector<DType> outputs) : run_(run), outputs_(std::move(outputs)) {}
  void execute(Resource& resource, ResourceRequest request) override {
    Table* table = core_as<Table>(resource, request, "table");
    if (!table) return;
    auto outputs = run_(*table, request);
    for (size_t i = 0; outputs.ok() && i < outputs->size(); ++i)
      if ((*outputs)[i].dtype() != outputs_[i])
        return request.reply(invalid_argument("table '{}' has {}, the node expects {} of it", table->options().name,
                                              to_string((*outputs)[i].dtype()), to_string(outputs_[i])));
    request.reply(std::move(outputs));
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

/// Sets element `at` of `t` to what `text` says.
Status set_from_text(Tensor& t, int64_t at, std::string_view text) {
  const auto number = [&]<class T>(T* out) -> Status {
    if (read_number<T>(text, out[at])) return {};
    return invalid_argument("\"{}\" is no {}", text, to_string(t.dtype()));
  };
  switch (t.dtype()) {
    case DType::kString: t.mutable_data<std::string>()[at] = text; return {};
    case DType::kInt64: return number(t.mutable_data<int64_t>());
    case DType::kInt32: return number(t.mutable_data<int32_t>());
    case DType::kFloat32: return number(t.mutable_data<float>());
    case DType::kFloat64: return number(t.mutable_data<double>());
    default: return invalid_argument("{} cannot be read from a file", to_string(t.dtype()));
  }
}

class FillFromFile final : public ResourceKernel {
 public:
  explicit FillFromFile(const KernelInit& init)
      : columns_{init.attr<int64_t>("key_index"), init.attr<int64_t>("value_index")},
        most_(init.attr<int64_t>("vocab_size")), offset_(init.attr<int64_t>("offset")),
        delimiter_(init.attr<std::string>("delimiter")) {}

  void execute(Resource& resource, ResourceRequest request) override {
    if (Table* table = core_as<Table>(resource, request, "table"))
      request.reply(no_output(fill(*table, request.inputs[1])));
  }

 private:
  static constexpr int64_t kLineNumber = -1, kWholeLine = -2;

  Status fill(Table& table, const Tensor& file) const {
    if (file.dtype() != DType::kString || file.elements() != 1)
      return invalid_argument("filename must be one string, got {}", file.str());
    const std::string& path = file.data<std::string>()[0];
    TROUPE_ASSIGN(const std::string bytes, read_file(path));
    std::vector<std::string_view> lines;
    for (std::string_view rest = bytes; !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      lines.push_back(line);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (offset_ < 0 || most_ < -1) return invalid_argument("offset {} and vocab_size {}", offset_, most_);
    lines.erase(lines.begin(), lines.begin() + std::min<int64_t>(offset_, static_cast<int64_t>(lines.size())));
    if (most_ >= 0 && static_cast<int64_t>(lines.size()) < most_)
      return invalid_argument("{} has {} lines, fewer than vocab_size {}", path, lines.size(), most_);
    if (most_ >= 0) lines.resize(static_cast<size_t>(most_));
    const Shape rows{static_cast<int64_t>(lines.size())};
    Tensor columns[2];
    for (int side = 0; side < 2; ++side) {
      TROUPE_ASSIGN(columns[side], Tensor::make(side ? table.options().value_dtype : table.options().key_dtype, rows));
      for (size_t i = 0; i < lines.size(); ++i)
        if (Status status = set(columns[side], columns_[side], static_cast<int64_t>(i), lines[i]); !status.ok()) {
          status.error().message = fmt::format("{}, line {}: {}", path, i + 1, status.error().message);
          return status;
        }
    }
    return table.fill(columns[0], columns[1]);
  }

  Status set(Tensor& column, int64_t index, int64_t row, std::string_view line) const {
    if (index == kLineNumber) return set_from_text(column, row, std::to_string(row));
    if (index == kWholeLine) return set_from_text(column, row, line);
    for (int64_t skipped = 0; skipped < index; ++skipped) {
      const size_t end = line.find(delimiter_);
      if (end == std::string_view::npos) return invalid_argument("there is no column {}", index);
      line.remove_prefix(end + delimiter_.size());
    }
    return set_from_text(column, row, line.substr(0, line.find(delimiter_)));
  }

  const int64_t columns_[2];  // of keys and of values
  const int64_t most_, offset_;
  const std::string delimiter_;
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
    kernels.add(op, cpu, {}, [run](const KernelInit& init) -> Result<std::unique_ptr<Kernel>> {
      return std::unique_ptr<Kernel>(std::make_unique<TableKernel>(run, init.output_dtypes));
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
