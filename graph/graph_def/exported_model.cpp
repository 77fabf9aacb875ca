// SPDX-License-Identifier: Apache-2.0
// Writes a MetaGraphDef in the form of TensorFlow 1, which all versions load: the restore op is named by the SaverDef,
// variables by a collection, the initialiser by another.
#include "graph/graph_def/exported_model.h"

#include <set>

#include "base/join.h"
#include "base/printable.h"
#include "graph/graph_def/attr_proto.h"
#include "graph/graph_def/import_graph.h"
#include "graph/graph_def/node_def.h"
#include "graph/graph_def/saved_model.pb.h"
#include "graph/graph_def/written_node.h"
#include "graph/prune.h"

namespace troupe {
namespace {

proto::AttrValue attr_of(const AttrValue& value) {
  proto::AttrValue out;
  to_proto(value, out);
  return out;
}

class Exporting {
 public:
  Exporting(const Graph& graph, const MetaGraph& meta) : graph_(graph), meta_(meta) {}

  Status run(proto::MetaGraphDef& out) {
    if (meta_.signatures.empty()) return invalid_argument("a model without signatures cannot be called");
    TROUPE_RETURN_IF_ERROR(add_roots());
    for (const auto& [name, signature] : meta_.signatures) TROUPE_RETURN_IF_ERROR(check_fed(name, signature));
    gather();
    TROUPE_RETURN_IF_ERROR(check_tables());
    TROUPE_RETURN_IF_ERROR(add_nodes(*out.mutable_graph_def()));
    if (!variables_.empty()) add_saver(out);
    for (const std::string& tag : meta_.tags) out.mutable_meta_info_def()->add_tags(tag);
    for (const auto& [name, signature] : meta_.signatures) {
      proto::SignatureEntry& entry = *out.add_signature_def();
      entry.set_key(name);
      write(signature, *entry.mutable_value());
    }
    for (const MetaGraph::Asset& asset : meta_.assets) {
      proto::AssetFileDef& def = *out.add_asset_file_def();
      def.mutable_tensor_info()->set_name(asset.tensor);
      def.set_filename(asset.file);
    }
    if (!meta_.init_op.empty()) collection(out, "saved_model_main_op").mutable_node_list()->add_value(meta_.init_op);
    return {};
  }
  /// The nodes of variables by their names.
  const std::map<std::string, const Node*>& variables() const { return variables_; }

 private:
  Status add_root(const std::string& what, const std::string& tensor) {
    const std::lock_guard lock(graph_.mutex());
    auto output = graph_.output(tensor);
    if (!output.ok()) {
      output.error().message = fmt::format("{}: {}", what, output.error().message);
      return std::move(output).failure();
    }
    need(output->node);
    return {};
  }

  Status add_roots() {
    for (const auto& [name, signature] : meta_.signatures) {
      if (signature.outputs.empty()) return invalid_argument("signature {} has no outputs", in_quotes(name));
      for (const auto* tensors : {&signature.inputs, &signature.outputs})
        for (const auto& [key, named] : *tensors)
          TROUPE_RETURN_IF_ERROR(
              add_root(fmt::format("signature {}, {}", in_quotes(name), in_quotes(key)), named.tensor));
    }
    for (const MetaGraph::Asset& asset : meta_.assets)
      TROUPE_RETURN_IF_ERROR(add_root("asset " + in_quotes(asset.file), asset.tensor));
    return meta_.init_op.empty() ? Status() : add_root("the initialiser", meta_.init_op);
  }

  /// Whether the outputs can be computed from the inputs.
  Status check_fed(const std::string& name, const MetaGraph::Signature& signature) const {
    const std::lock_guard lock(graph_.mutex());
    std::vector<Output> fed, fetched;
    for (const auto& [key, named] : signature.inputs) fed.push_back(*graph_.output(named.tensor));
    for (const auto& [key, named] : signature.outputs) fetched.push_back(*graph_.output(named.tensor));
    std::vector<std::string> others;
    for (const Node* n : needed_nodes(graph_, fed, fetched, {}))
      if (n->op().name() == "Placeholder") others.push_back(in_quotes(n->name()));
    if (others.empty()) return {};
    return invalid_argument("signature {}: its outputs need {}, which {} not among its inputs", in_quotes(name),
                            join(others, ", "), others.size() == 1 ? "is" : "are");
  }

  void need(const Node* n) {
    if (needed_.insert(n->id()).second) waiting_.push_back(n);
  }

  void gather() {
    while (!waiting_.empty()) {
      const Node* n = waiting_.back();
      waiting_.pop_back();
      for (const Output& in : n->inputs()) need(in.node);
      for (const Node* c : n->control_inputs()) need(c);
    }
  }

  /// What an output is, without the identities on its way.
  static Output source(Output o) {
    while (o.node->op().name() == "Identity" || o.node->op().name() == "IdentityN")
      o = o.node->inputs()[static_cast<size_t>(o.port)];
    return o;
  }

  /// What a table's node names it, as others may too.
  static const std::string& table_of(const Node& n) {
    const auto* shared = n.attrs().get<std::string>("shared_name");
    return shared && !shared->empty() ? *shared : n.name();
  }

  /// Refuses tables that are filled from the model's own checkpoint: the one that is written has variables alone; and
  /// those that are only read once they are filled, which nothing of the model does.
  Status check_tables() const {
    const std::lock_guard lock(graph_.mutex());
    for (int id = 0; id < graph_.size(); ++id) {
      const Node& n = graph_.node(id);
      if (n.op().name() != "LookupTableImportV2" || source(n.inputs()[1]).node->op().name() != "RestoreV2") continue;
      const Node& table = *source(n.inputs()[0]).node;
      if (needed_.contains(table.id()))
        return make_error(Code::kUnimplemented,
                          "table {} has what the model's checkpoint put into it, and an export keeps variables alone",
                          in_quotes(table.name()));
    }
    std::set<std::string> filled;
    std::vector<const Node*> tables;
    for (const int id : needed_) {
      const Node& n = graph_.node(id);
      const std::string& op = n.op().name();
      if (op == "HashTableV2") tables.push_back(&n);
      if (op != "LookupTableImportV2" && op != "InitializeTableV2" && op != "InitializeTableFromTextFileV2") continue;
      const Node& table = *source(n.inputs()[0]).node;
      if (table.op().name().find("HashTable") == std::string::npos) return {};  // whichever a loop or a branch gives it
      filled.insert(table_of(table));
    }
    std::vector<std::string> empty;
    for (const Node* table : tables)
      if (!filled.contains(table_of(*table))) empty.push_back(in_quotes(table->name()));
    if (empty.empty()) return {};
    return invalid_argument("nothing fills {} {}: an initialiser that does must be given",
                            empty.size() == 1 ? "table" : "tables", join(empty, ", "));
  }

  Status add_nodes(proto::GraphDef& out) {
    proto::GraphDef whole;
    to_proto(graph_, whole);
    *out.mutable_versions() = whole.versions();
    std::map<std::string, std::string> containers;  // of variables
    const std::lock_guard lock(graph_.mutex());
    for (const int id : needed_) {
      const Node& n = graph_.node(id);
      proto::NodeDef& def = *whole.mutable_node(id);
      names_.insert(n.name());
      def.clear_device();
      if (n.op().name() == "VarHandleOp") {
        proto::AttrValue& shared = set_attr(def, "shared_name");
        if (shared.s().empty()) shared.set_s(n.name());
        const auto* container = n.attrs().get<std::string>("container");
        const auto [at, fresh] = containers.emplace(shared.s(), container ? *container : "");
        if (!fresh && at->second != (container ? *container : ""))
          return invalid_argument("variable {} is in two containers, {} and {}", in_quotes(shared.s()),
                                  in_quotes(at->second), in_quotes(*container));
        const auto* temporary = n.attrs().get<bool>("_temporary");
        if (!temporary || !*temporary) variables_.emplace(shared.s(), &n);
      }
      if (find_attr(def, "container")) set_attr(def, "container").set_s("");
      write_apart(n, def, out);
      if (def.op().starts_with('_') && def.op() != "_SwitchN")
        return make_error(Code::kUnimplemented, "node {} is {} here, an op that TensorFlow has not",
                          in_quotes(n.name()), def.op());
      *out.add_node() = std::move(def);
    }
    return {};
  }

  static proto::CollectionDef& collection(proto::MetaGraphDef& out, const char* key) {
    proto::CollectionEntry& entry = *out.add_collection_def();
    entry.set_key(key);
    return *entry.mutable_value();
  }

  static void write(const MetaGraph::Named& named, proto::TensorInfo& out) {
    out.set_name(named.tensor);
    out.set_dtype(static_cast<proto::DataType>(named.dtype));
    *out.mutable_tensor_shape() = attr_of(AttrValue(named.shape)).shape();
  }

  static void write(const MetaGraph::Signature& signature, proto::SignatureDef& out) {
    for (const auto& [key, named] : signature.inputs) {
      proto::TensorInfoEntry& entry = *out.add_inputs();
      entry.set_key(key);
      write(named, *entry.mutable_value());
      if (!named.value) continue;
      proto::DefaultEntry& otherwise = *out.add_defaults();
      otherwise.set_key(key);
      *otherwise.mutable_value() = attr_of(AttrValue(*named.value)).tensor();
    }
    for (const auto& [key, named] : signature.outputs) {
      proto::TensorInfoEntry& entry = *out.add_outputs();
      entry.set_key(key);
      write(named, *entry.mutable_value());
    }
    out.set_method_name(signature.method.empty() ? "tensorflow/serving/predict" : signature.method);
  }

  /// "save", or "save_1", ...: below it the graph has no names.
  std::string free_scope() const {
    for (int i = 0;; ++i) {
      const std::string scope = i == 0 ? "save" : fmt::format("save_{}", i);
      const auto at = names_.lower_bound(scope + "/");
      if (!names_.contains(scope) && (at == names_.end() || !at->starts_with(scope + "/"))) return scope + "/";
    }
  }

  /// The ops that save and restore the variables, and the collection of these.
  void add_saver(proto::MetaGraphDef& out) {
    proto::GraphDef& graph = *out.mutable_graph_def();
    const std::string scope = free_scope();
    const auto add = [&](const std::string& name, const char* op, const std::vector<std::string>& inputs) {
      proto::NodeDef& def = *graph.add_node();
      def.set_name(scope + name);
      def.set_op(op);
      for (const std::string& input : inputs) def.add_input(input);
      return &def;
    };
    const auto add_texts = [&](const char* name, const Tensor& value) {
      proto::NodeDef& def = *add(name, "Const", {});
      set_attr(def, "dtype").set_type(proto::DT_STRING);
      set_attr(def, "value") = attr_of(AttrValue(value));
    };
    std::vector<std::string> names, slices;
    std::vector<DType> dtypes;
    for (const auto& [name, node] : variables_) {
      names.push_back(name);
      slices.emplace_back();
      dtypes.push_back(*node->attrs().get<DType>("dtype"));
    }
    add_texts("filename", Tensor::scalar<std::string>("model"));
    proto::NodeDef& file = *add("Const", "PlaceholderWithDefault", {scope + "filename"});
    set_attr(file, "dtype").set_type(proto::DT_STRING);
    set_attr(file, "shape") = attr_of(AttrValue(PartialShape::scalar()));
    add_texts("names", Tensor::of<std::string>(std::span<const std::string>(names)));
    add_texts("slices", Tensor::of<std::string>(std::span<const std::string>(slices)));
    const std::vector<std::string> what = {scope + "Const", scope + "names", scope + "slices"};
    set_attr(*add("RestoreV2", "RestoreV2", what), "dtypes") = attr_of(AttrValue(dtypes));
    std::vector<std::string> assigned, saved = what;
    proto::CollectionDef::BytesList& variables = *collection(out, "variables").mutable_bytes_list();
    int i = 0;
    for (const auto& [name, node] : variables_) {
      const std::string handle = node->name(), set = fmt::format("AssignVariableOp_{}", i),
                        read = fmt::format("ReadVariableOp_{}", i);
      proto::NodeDef& assign = *add(set, "AssignVariableOp", {handle, fmt::format("{}RestoreV2:{}", scope, i)});
      set_attr(assign, "dtype").set_type(static_cast<proto::DataType>(dtypes[size_t(i)]));
      set_attr(*add(read, "ReadVariableOp", {handle}), "dtype")
          .set_type(static_cast<proto::DataType>(dtypes[size_t(i)]));
      assigned.push_back("^" + scope + set);
      saved.push_back(scope + read);
      proto::VariableDef variable;
      variable.set_variable_name(handle + ":0");
      variable.set_initializer_name(scope + set);
      variable.set_snapshot_name(scope + read + ":0");
      variable.set_is_resource(true);
      variables.add_value(variable.SerializeAsString());
      ++i;
    }
    add("restore_all", "NoOp", assigned);
    set_attr(*add("SaveV2", "SaveV2", saved), "dtypes") = attr_of(AttrValue(dtypes));
    set_attr(*add("saved", "Identity", {scope + "Const", "^" + scope + "SaveV2"}), "T").set_type(proto::DT_STRING);
    proto::SaverDef& saver = *out.mutable_saver_def();
    saver.set_filename_tensor_name(scope + "Const:0");
    saver.set_save_tensor_name(scope + "saved:0");
    saver.set_restore_op_name(scope + "restore_all");
    saver.set_version(2);
  }

  const Graph& graph_;
  const MetaGraph& meta_;
  std::set<int> needed_;
  std::vector<const Node*> waiting_;
  std::set<std::string> names_;
  std::map<std::string, const Node*> variables_;
};

}  // namespace

Result<std::string> to_saved_model(const Graph& graph, const MetaGraph& meta,
                                   std::vector<ExportedVariable>& variables) {
  proto::SavedModel model;
  model.set_saved_model_schema_version(1);
  Exporting exporting(graph, meta);
  TROUPE_RETURN_IF_ERROR(exporting.run(*model.add_meta_graphs()));
  for (const auto& [name, node] : exporting.variables()) {
    const auto* shape = node->attrs().get<PartialShape>("shape");
    variables.push_back({name, *node->attrs().get<DType>("dtype"), shape ? *shape : PartialShape()});
  }
  if (model.ByteSizeLong() > INT32_MAX)
    return make_error(Code::kResourceExhausted, "the graph has {} bytes, over 2 GiB", model.ByteSizeLong());
  return model.SerializeAsString();
}

}  // namespace troupe
