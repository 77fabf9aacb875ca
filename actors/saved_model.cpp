// SPDX-License-Identifier: Apache-2.0
#include "troupe/saved_model.h"

#include <algorithm>
#include <set>

#include "actors/engine_impl.h"
#include "base/join.h"
#include "base/printable.h"
#include "graph/feed_check.h"
#include "graph/graph_def/meta_graph.h"
#include "io/model_files.h"
#include "io/whole_file.h"
#include "troupe/graph_def.h"

namespace troupe {
namespace {

template <class Map> std::string keys_of(const Map& map) {
  std::vector<std::string> quoted;
  for (const auto& [key, value] : map) quoted.push_back(in_quotes(key));
  return quoted.empty() ? "none" : join(quoted, ", ");
}

Error in_model(std::string_view what, std::string_view name, Error error) {
  error.message = fmt::format("{} {}: {}", what, in_quotes(name), error.message);
  return error;
}

Error at_path(const std::string& path, Error error) {
  error.message = fmt::format("{}: {}", in_quotes(path), error.message);
  return error;
}

/// A tensor of a signature, looked up.
Result<SignatureTensor> find_tensor(const Graph& graph, const MetaGraph::Named& named) {
  TROUPE_ASSIGN(const Output output, graph.output(named.tensor));
  if (output.port >= output.node->num_outputs())
    return invalid_argument("{} has {} outputs", in_quotes(named.tensor), output.node->num_outputs());
  if (named.dtype != DType::kInvalid && named.dtype != output.dtype())
    return invalid_argument("the signature says {}, and {} is {}", to_string(named.dtype), in_quotes(named.tensor),
                            to_string(output.dtype()));
  return SignatureTensor{output, output.dtype(), named.shape, named.value};
}

Status find_tensors(const Graph& graph, std::string_view what, const std::map<std::string, MetaGraph::Named>& names,
                    std::map<std::string, SignatureTensor>& out) {
  for (const auto& [key, named] : names) {
    auto tensor = find_tensor(graph, named);
    if (!tensor.ok()) return in_model(what, key, std::move(tensor.error()));
    out.emplace(key, std::move(*tensor));
  }
  return {};
}

Result<QueueRunner> find_queue_runner(const Graph& graph, const MetaGraph::QueueRunner& names) {
  QueueRunner out;
  const auto find = [&](const std::string& name, const Node*& node) -> Status {
    TROUPE_ASSIGN(const Output output, graph.output(name));
    node = output.node;
    return {};
  };
  TROUPE_RETURN_IF_ERROR(find(names.queue, out.queue));
  for (const std::string& name : names.enqueue) TROUPE_RETURN_IF_ERROR(find(name, out.enqueue.emplace_back()));
  if (!names.close.empty()) TROUPE_RETURN_IF_ERROR(find(names.close, out.close));
  if (!names.cancel.empty()) TROUPE_RETURN_IF_ERROR(find(names.cancel, out.cancel));
  return out;
}

/// What a variable's node names it; empty for other nodes.
std::string variable_name(const Node& node) {
  if (node.op().name() != "VarHandleOp") return "";
  const auto* shared = node.attrs().get<std::string>("shared_name");
  return shared && !shared->empty() ? *shared : node.name();
}

}  // namespace

class SavedModel::Impl {
 public:
  Impl(Engine& engine, SavedModelOptions options)
      : engine_(engine), e_(engine.shared_impl()), own_container_(options.container.empty()),
        options_(std::move(options)), graph_(engine.ops()), frozen_graph_(engine.ops()) {}
  ~Impl() {
    if (frozen_session_) frozen_session_->close();
    if (!session_) return;
    session_->close();
    if (own_container_ && e_->usable()) engine_.reset_container(options_.container);
  }

  Status load(const std::string& path) {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("load_saved_model"));
    TROUPE_ASSIGN(files_, find_model(path));
    TROUPE_ASSIGN(const std::string bytes, read_file(files_.graph));
    auto read = files_.saved_model ? MetaGraphs::of_saved_model(bytes) : MetaGraphs::of_meta_graph(bytes);
    if (!read.ok())
      return with_kind_of_file(files_.graph, files_.saved_model ? "a SavedModel" : "a .meta file",
                               std::move(read.error()));
    if (own_container_)
      options_.container = fmt::format("{} {}", path, e_->next_step.fetch_add(1, std::memory_order_relaxed));
    Status status = read_graph(*read);
    if (!status.ok()) return at_path(files_.graph, std::move(status.error()));
    session_ = std::make_unique<Session>(engine_, graph_, options_.session);
    if (options_.initialize) status = initialize();
    if (status.ok() && options_.freeze) status = freeze();
    if (!status.ok()) return at_path(path, std::move(status.error()));
    return {};
  }

  Result<const ModelSignature*> signature(const std::string& name) const {
    const auto at = signatures_.find(name);
    if (at != signatures_.end()) return &at->second;
    return make_error(Code::kNotFound, "the model has no signature {}; it has: {}", in_quotes(name),
                      keys_of(signatures_));
  }

  Result<std::map<std::string, Tensor>> run(const std::string& name, const std::map<std::string, Tensor>& inputs,
                                            const RunOptions& run_options) const {
    TROUPE_ASSIGN(const ModelSignature* signature, this->signature(name));
    const bool frozen = frozen_.contains(name);
    FeedList feeds;
    for (const auto& [key, tensor] : signature->inputs) {
      const auto given = inputs.find(key);
      if (given == inputs.end() && !tensor.value)
        return invalid_argument("signature {} needs input {}; given: {}", in_quotes(name), in_quotes(key),
                                keys_of(inputs));
      const Tensor& value = given == inputs.end() ? *tensor.value : given->second;
      if (Status fits = check_feed(tensor.output, value); !fits.ok())
        return in_model("input", key, std::move(fits.error()));
      if (!tensor.shape.compatible(PartialShape(value.shape())))
        return invalid_argument("input {}: shape {} must be {}", in_quotes(key), value.shape().str(),
                                tensor.shape.str());
      const Output input = frozen ? in_frozen(tensor.output) : tensor.output;
      if (!input) continue;  // no output needs it
      feeds.outputs.push_back(input);
      feeds.values.push_back(value);
    }
    for (const auto& [key, value] : inputs)
      if (!signature->inputs.contains(key))
        return invalid_argument("{} is not an input of signature {}; these are: {}", in_quotes(key), in_quotes(name),
                                keys_of(signature->inputs));
    OutputList fetches;
    for (const auto& [key, tensor] : signature->outputs)
      fetches.outputs.push_back(frozen ? in_frozen(tensor.output) : tensor.output);
    Session& session = frozen ? *frozen_session_ : *session_;
    TROUPE_ASSIGN(std::vector<Tensor> values, session.run(feeds, fetches, {}, run_options));
    std::map<std::string, Tensor> out;
    size_t i = 0;
    for (const auto& [key, tensor] : signature->outputs) out.emplace(key, std::move(values[i++]));
    return out;
  }

  Result<ExportOptions> export_options() const {
    ExportOptions out;
    if (!files_.saved_model) return out;
    out.tags = meta_.tags;
    if (!meta_.init_op.empty()) {
      auto init = graph_.output(meta_.init_op);
      if (!init.ok()) return in_model("initialiser", meta_.init_op, std::move(init.error()));
      out.initializer = init->node;
    }
    for (const MetaGraph::Asset& asset : meta_.assets) {
      auto tensor = graph_.output(asset.tensor);
      if (!tensor.ok()) return in_model("asset", asset.file, std::move(tensor.error()));
      TROUPE_ASSIGN(std::string path, find_asset(files_, asset.file));
      out.assets.emplace_back(*tensor, std::move(path));
    }
    return out;
  }

  const std::map<std::string, ModelSignature>& signatures() const { return signatures_; }
  const std::vector<QueueRunner>& queue_runners() const { return queue_runners_; }
  const std::vector<std::string>& tags() const { return meta_.tags; }
  const std::string& container() const { return options_.container; }
  Graph& graph() { return graph_; }
  Session& session() { return *session_; }

 private:
  Status read_graph(MetaGraphs& file) {
    TROUPE_ASSIGN(const size_t index, file.find(options_.tags));
    meta_ = file.graphs()[index];
    TROUPE_RETURN_IF_ERROR(file.add_to(index, graph_, options_.container));
    for (const auto& [name, names] : meta_.signatures) {
      ModelSignature& signature = signatures_[name];
      signature.method = names.method;
      Status status = find_tensors(graph_, "input", names.inputs, signature.inputs);
      if (status.ok()) status = find_tensors(graph_, "output", names.outputs, signature.outputs);
      if (!status.ok()) return in_model("signature", name, std::move(status.error()));
    }
    for (const MetaGraph::QueueRunner& names : meta_.queue_runners) {
      auto runner = find_queue_runner(graph_, names);
      if (!runner.ok()) return in_model("queue runner", names.queue, std::move(runner.error()));
      queue_runners_.push_back(std::move(*runner));
    }
    return {};
  }

  int variables() const {
    int out = 0;
    for (int id = 0; id < graph_.size(); ++id) out += graph_.node(id).op().name() == "VarHandleOp";
    return out;
  }

  /// Runs one of the model's own ops with the assets.
  Status run_op(std::string_view what, const std::string& name, FeedList feeds) {
    auto found = graph_.output(name);
    if (!found.ok()) return in_model(what, name, std::move(found.error()));
    auto result = session_->run(feeds, {}, found->node);
    if (!result.ok()) return in_model(what, name, std::move(result.error()));
    return {};
  }

  Status add_feed(FeedList& feeds, const std::string& name, const std::string& value) const {
    TROUPE_ASSIGN(const Output output, graph_.output(name));
    feeds.outputs.push_back(output);
    feeds.values.push_back(Tensor::scalar<std::string>(value));
    return check_feed(output, feeds.values.back());
  }

  /// Sets variables that the restore left out from those that begin as their copies. tf.saved_model.save writes each of
  /// Keras 3's variables twice: functions read one, and the checkpoint has the other, which is initialised with it.
  Status set_from_copies() {
    std::map<std::string, std::string> copies;  // by the names of the originals
    for (int id = 0; id < graph_.size(); ++id) {
      const Node& assign = graph_.node(id);
      if (assign.op().name() != "AssignVariableOp") continue;
      const Node& read = *assign.inputs()[1].node;
      if (read.op().name() != "ReadVariableOp") continue;
      const std::string original = variable_name(*read.inputs()[0].node),
                        copy = variable_name(*assign.inputs()[0].node);
      if (!original.empty() && !copy.empty()) copies.emplace(original, copy);
    }
    if (copies.empty()) return {};
    TROUPE_ASSIGN(const Snapshot restored, engine_.snapshot(options_.container).get());
    Snapshot out;
    for (const auto& [original, copy] : copies)
      if (const auto at = restored.variables.find(copy);
          at != restored.variables.end() && !restored.variables.contains(original))
        out.variables.emplace(original, at->second);
    return out.variables.empty() ? Status() : engine_.restore(out, options_.container);
  }

  Status initialize() {
    // A .meta file has them too where a SavedModel was written before, but not the folder.
    if (!files_.saved_model) meta_.assets.clear(), meta_.init_op.clear();
    FeedList assets;
    for (const MetaGraph::Asset& asset : meta_.assets) {
      TROUPE_ASSIGN(const std::string path, find_asset(files_, asset.file));
      if (Status fits = add_feed(assets, asset.tensor, path); !fits.ok())
        return in_model("asset", asset.file, std::move(fits.error()));
    }
    const std::string checkpoint = checkpoint_to_restore(files_, meta_.sharded_v1);
    if (!meta_.restore_op.empty() && !checkpoint.empty()) {
      FeedList feeds = assets;
      if (Status fits = add_feed(feeds, meta_.filename_tensor, checkpoint); !fits.ok())
        return in_model("the checkpoint's name", meta_.filename_tensor, std::move(fits.error()));
      TROUPE_RETURN_IF_ERROR(run_op("restore op", meta_.restore_op, std::move(feeds)));
      TROUPE_RETURN_IF_ERROR(set_from_copies());
    } else if (!meta_.restore_op.empty() && files_.saved_model && variables() > 0) {
      return make_error(Code::kNotFound, "the model has {} variables, and its checkpoint is not there: {}", variables(),
                        in_quotes(files_.checkpoint + ".index"));
    }
    return meta_.init_op.empty() ? Status() : run_op("initialiser", meta_.init_op, std::move(assets));
  }

  /// Where the frozen graph has an output of the graph; empty: nowhere.
  Output in_frozen(const Output& output) const {
    const Node* node = frozen_graph_.find(output.node->name());
    return node ? node->out(output.port) : Output{};
  }

  /// Makes the frozen graph of the signatures that only read variables, if there are such.
  Status freeze() {
    TROUPE_ASSIGN(const Snapshot values, engine_.snapshot(options_.container).get());
    std::vector<Output> outputs;
    for (const auto& [name, signature] : signatures_) {
      std::vector<Output> own;
      for (const auto& [key, tensor] : signature.outputs) own.push_back(tensor.output);
      if (!freeze_graph(graph_, own, values.variables).ok()) continue;
      frozen_.insert(name);
      outputs.insert(outputs.end(), own.begin(), own.end());
    }
    if (outputs.empty()) return {};
    const auto bytes = freeze_graph(graph_, outputs, values.variables);
    // Each for itself may be small enough, and all together too large.
    if (!bytes.ok()) return frozen_.clear(), Status();
    TROUPE_RETURN_IF_ERROR(from_graph_def(*bytes, frozen_graph_));
    frozen_session_ = std::make_unique<Session>(engine_, frozen_graph_, options_.session);
    return {};
  }

  Engine& engine_;
  const std::shared_ptr<Engine::Impl> e_;
  const bool own_container_;
  SavedModelOptions options_;
  ModelFiles files_;
  MetaGraph meta_;
  Graph graph_;
  std::map<std::string, ModelSignature> signatures_;
  std::vector<QueueRunner> queue_runners_;
  std::unique_ptr<Session> session_;
  Graph frozen_graph_;
  std::set<std::string> frozen_;  // signatures
  std::unique_ptr<Session> frozen_session_;
};

SavedModel::SavedModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SavedModel::SavedModel(SavedModel&&) noexcept = default;
SavedModel& SavedModel::operator=(SavedModel&&) noexcept = default;
SavedModel::~SavedModel() = default;

const std::map<std::string, ModelSignature>& SavedModel::signatures() const { return impl_->signatures(); }
Result<const ModelSignature*> SavedModel::signature(const std::string& name) const { return impl_->signature(name); }
Result<std::map<std::string, Tensor>> SavedModel::run(const std::string& signature,
                                                      const std::map<std::string, Tensor>& inputs,
                                                      const RunOptions& options) const {
  return impl_->run(signature, inputs, options);
}
const std::vector<QueueRunner>& SavedModel::queue_runners() const { return impl_->queue_runners(); }
const std::vector<std::string>& SavedModel::tags() const { return impl_->tags(); }
Result<ExportOptions> SavedModel::export_options() const { return impl_->export_options(); }
const std::string& SavedModel::container() const { return impl_->container(); }
Graph& SavedModel::graph() const { return impl_->graph(); }
Session& SavedModel::session() const { return impl_->session(); }

Result<SavedModel> load_saved_model(Engine& engine, const std::string& path, SavedModelOptions options) {
  auto impl = std::make_unique<SavedModel::Impl>(engine, std::move(options));
  TROUPE_RETURN_IF_ERROR(impl->load(path));
  return SavedModel(std::move(impl));
}

}  // namespace troupe
