// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/meta_graph.h"

#include <algorithm>
#include <functional>

#include "base/join.h"
#include "base/printable.h"
#include "graph/graph_def/attr_proto.h"
#include "graph/graph_def/import_graph.h"
#include "graph/graph_def/saved_model.pb.h"

namespace troupe {
namespace {

/// The signature, and the key of its output, that names the op to run first.
constexpr std::string_view kInitKey = "__saved_model_init_op";
/// Signatures that are for loaders alone begin so.
constexpr std::string_view kLoadersOwn = "__saved_model_";
/// Tensors within tensors; real signatures have one or two levels.
constexpr int kMostNestedTensors = 8;

std::string in_all_quotes(const std::vector<std::string>& tags) {
  std::vector<std::string> quoted;
  for (const std::string& tag : tags) quoted.push_back(in_quotes(tag));
  return join(quoted, ", ");
}

/// kInvalid where there is none, or it is not ours.
DType type_of(const proto::TensorInfo& info, ProtoReader& reader) {
  proto::AttrValue type;
  type.set_type(info.dtype());
  const auto dtype = reader.attr(type, "type");
  return dtype.ok() ? std::get<DType>(*dtype) : DType::kInvalid;
}

/// Adds a tensor of a signature under `key`; one of several parts under keys of its own, "key.values".
Status add_tensor(const std::string& key, const proto::TensorInfo& info, ProtoReader& reader, int depth,
                  std::map<std::string, MetaGraph::Named>& out) {
  if (depth > kMostNestedTensors)
    return invalid_argument("{} is a tensor of tensors, more than {} deep", in_quotes(key), kMostNestedTensors);
  if (info.encoding_case() == proto::TensorInfo::kCooSparse) {
    const auto& sparse = info.coo_sparse();
    MetaGraph::Named values{sparse.values_tensor_name()}, indices{sparse.indices_tensor_name(), DType::kInt64},
        shape{sparse.dense_shape_tensor_name(), DType::kInt64};
    values.dtype = type_of(info, reader);
    out[key + ".values"] = std::move(values);
    out[key + ".indices"] = std::move(indices);
    out[key + ".dense_shape"] = std::move(shape);
    return {};
  }
  if (info.encoding_case() == proto::TensorInfo::kCompositeTensor) {
    int part = 0;
    for (const proto::TensorInfo& component : info.composite_tensor().components())
      TROUPE_RETURN_IF_ERROR(add_tensor(fmt::format("{}.{}", key, part++), component, reader, depth + 1, out));
    return {};
  }
  MetaGraph::Named named{info.name()};
  proto::AttrValue shape;
  *shape.mutable_shape() = info.tensor_shape();
  auto read = reader.attr(shape, "shape");
  if (!read.ok()) {
    read.error().message = fmt::format("the shape of {}: {}", in_quotes(key), read.error().message);
    return std::move(read).failure();
  }
  named.shape = std::get<PartialShape>(*read);
  named.dtype = type_of(info, reader);
  out[key] = std::move(named);
  return {};
}

Result<MetaGraph::Signature> read_signature(const proto::SignatureDef& def, ProtoReader& reader) {
  MetaGraph::Signature out;
  out.method = def.method_name();
  for (const auto& e : def.inputs()) TROUPE_RETURN_IF_ERROR(add_tensor(e.key(), e.value(), reader, 0, out.inputs));
  for (const auto& e : def.outputs()) TROUPE_RETURN_IF_ERROR(add_tensor(e.key(), e.value(), reader, 0, out.outputs));
  for (const auto& e : def.defaults()) {
    const auto at = out.inputs.find(e.key());
    if (at == out.inputs.end())
      return invalid_argument("there is a default for {}, which is not an input", in_quotes(e.key()));
    TROUPE_ASSIGN(at->second.value, reader.tensor(e.value()));
  }
  return out;
}

/// The first of a collection of nodes; empty where there is none.
std::string first_node(const proto::MetaGraphDef& def, std::string_view collection) {
  for (const auto& e : def.collection_def())
    if (e.key() == collection && e.value().node_list().value_size() > 0) return e.value().node_list().value(0);
  return "";
}

void add_asset(const proto::AssetFileDef& def, std::vector<MetaGraph::Asset>& out) {
  const std::string& tensor = def.tensor_info().name();
  const auto same = [&](const MetaGraph::Asset& a) { return a.tensor == tensor && a.file == def.filename(); };
  if (std::ranges::none_of(out, same)) out.push_back({tensor, def.filename()});
}

Status read_queue_runners(const proto::CollectionDef& collection, std::vector<MetaGraph::QueueRunner>& out) {
  for (const std::string& bytes : collection.bytes_list().value()) {
    proto::QueueRunnerDef def;
    if (!def.ParseFromString(bytes)) return invalid_argument("collection 'queue_runners' is malformed");
    out.push_back({def.queue_name(),
                   {def.enqueue_op_name().begin(), def.enqueue_op_name().end()},
                   def.close_op_name(),
                   def.cancel_op_name()});
  }
  return {};
}

Result<MetaGraph> read_graph(const proto::MetaGraphDef& def) {
  MetaGraph out;
  ProtoReader reader;
  const auto& tags = def.meta_info_def().tags();
  out.tags.assign(tags.begin(), tags.end());
  out.tensorflow_version = def.meta_info_def().tensorflow_version();
  for (const auto& e : def.signature_def()) {
    if (e.key() == kInitKey) {
      for (const auto& output : e.value().outputs())
        if (output.key() == kInitKey) out.init_op = output.value().name();
    }
    if (e.key().starts_with(kLoadersOwn)) continue;
    auto signature = read_signature(e.value(), reader);
    if (!signature.ok()) {
      signature.error().message = fmt::format("signature {}: {}", in_quotes(e.key()), signature.error().message);
      return std::move(signature).failure();
    }
    out.signatures[e.key()] = std::move(*signature);
  }
  for (const char* collection : {"saved_model_main_op", "legacy_init_op"})
    if (out.init_op.empty()) out.init_op = first_node(def, collection);
  for (const proto::AssetFileDef& asset : def.asset_file_def()) add_asset(asset, out.assets);
  for (const auto& e : def.collection_def()) {
    if (e.key() == "queue_runners") TROUPE_RETURN_IF_ERROR(read_queue_runners(e.value(), out.queue_runners));
    if (e.key() != "saved_model_assets") continue;
    for (const auto& any : e.value().any_list().value()) {
      proto::AssetFileDef asset;
      if (!asset.ParseFromString(any.value())) return invalid_argument("collection 'saved_model_assets' is malformed");
      add_asset(asset, out.assets);
    }
  }
  const proto::SaverDef& saver = def.saver_def();
  if (!saver.restore_op_name().empty() && saver.filename_tensor_name().empty())
    return invalid_argument("op {} restores the variables, but no tensor takes the checkpoint's name",
                            in_quotes(saver.restore_op_name()));
  out.restore_op = saver.restore_op_name();
  out.filename_tensor = saver.filename_tensor_name();
  out.sharded_v1 = saver.sharded() && saver.version() < 2;
  return out;
}

}  // namespace

/// The file as it was parsed; what was added to a graph is taken out.
struct MetaGraphs::File {
  proto::SavedModel model;
};

MetaGraphs::MetaGraphs(std::unique_ptr<File> file) : file_(std::move(file)) {}
MetaGraphs::MetaGraphs(MetaGraphs&& other) noexcept = default;
MetaGraphs& MetaGraphs::operator=(MetaGraphs&& other) noexcept = default;
MetaGraphs::~MetaGraphs() = default;

Result<MetaGraphs> MetaGraphs::of_saved_model(std::string_view bytes) {
  MetaGraphs out(std::make_unique<File>());
  TROUPE_RETURN_IF_ERROR(parse_binary_or_text(bytes, "SavedModel", out.file_->model));
  if (out.file_->model.saved_model_schema_version() != 1)
    return make_error(Code::kUnimplemented, "a SavedModel of version {}; 1 is supported",
                      out.file_->model.saved_model_schema_version());
  if (out.file_->model.meta_graphs_size() == 0) return make_error(Code::kDataLoss, "the SavedModel has no graph");
  TROUPE_RETURN_IF_ERROR(out.read());
  return out;
}

Result<MetaGraphs> MetaGraphs::of_meta_graph(std::string_view bytes) {
  MetaGraphs out(std::make_unique<File>());
  proto::MetaGraphDef& def = *out.file_->model.add_meta_graphs();
  TROUPE_RETURN_IF_ERROR(parse_binary_or_text(bytes, "MetaGraphDef", def));
  if (!def.has_graph_def()) return make_error(Code::kDataLoss, "the MetaGraphDef has no graph");
  TROUPE_RETURN_IF_ERROR(out.read());
  return out;
}

Status MetaGraphs::read() {
  for (const proto::MetaGraphDef& def : file_->model.meta_graphs()) {
    TROUPE_ASSIGN(MetaGraph graph, read_graph(def));
    graphs_.push_back(std::move(graph));
  }
  return {};
}

Result<size_t> MetaGraphs::find(const std::vector<std::string>& tags) const {
  if (tags.empty() && graphs_.size() == 1) return size_t{0};
  const std::vector<std::string> wanted = tags.empty() ? std::vector<std::string>{"serve"} : tags;
  const auto same = [&](const MetaGraph& graph) { return std::ranges::is_permutation(graph.tags, wanted); };
  if (const auto at = std::ranges::find_if(graphs_, same); at != graphs_.end())
    return static_cast<size_t>(at - graphs_.begin());
  std::vector<std::string> there;
  for (const MetaGraph& graph : graphs_) there.push_back("{" + in_all_quotes(graph.tags) + "}");
  return make_error(Code::kNotFound, "no graph of the model has the tags {{{}}}; there are: {}", in_all_quotes(wanted),
                    join(there, ", "));
}

Status MetaGraphs::add_to(size_t index, Graph& graph, std::string_view container) {
  return import_graph(*file_->model.mutable_meta_graphs(static_cast<int>(index))->mutable_graph_def(), graph, {},
                      container);
}

}  // namespace troupe
