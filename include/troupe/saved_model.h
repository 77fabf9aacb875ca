// SPDX-License-Identifier: Apache-2.0
// TensorFlow's SavedModels, and .meta files beside their checkpoints, loaded ready to run; graphs written as
// SavedModels. Implemented in actors/saved_model.cpp and actors/export_saved_model.cpp.
//
//   auto model = load_saved_model(*engine, "models/half_plus_two").value();
//   auto out = model.run("serving_default", {{"x", Tensor::of<float>({1, 2})}}).value();
//   out.at("y");
//
// A model is a program: its graph may read and write whatever files the process may.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "troupe/export.h"
#include "troupe/session.h"

namespace TROUPE_API troupe {

/// A tensor that a signature takes or gives.
struct SignatureTensor {
  Output output;
  DType dtype = DType::kInvalid;
  PartialShape shape = {};           // as the model says
  std::optional<Tensor> value = {};  // of an input that need not be given
};

/// A way to call a model: its inputs and outputs by the names that callers know. A sparse tensor "x" is three:
/// "x.values", "x.indices", "x.dense_shape"; the parts of other composite tensors are "x.0", "x.1", ...
struct ModelSignature {
  std::map<std::string, SignatureTensor> inputs = {}, outputs = {};
  std::string method = {};  // "tensorflow/serving/predict"
};

/// What fills a queue while steps run, as the input pipelines of TensorFlow 1 want it.
struct QueueRunner {
  const Node* queue = nullptr;
  std::vector<const Node*> enqueue;  // each to be run again and again, until it fails
  const Node* close = nullptr;       // to be run when the last of them has come to the end of its input; may be null
  const Node* cancel = nullptr;      // to be run when they are to stop before; may be null
};

struct SavedModelOptions {
  /// Which of a SavedModel's graphs: the one with just these tags. None: the only one, or that of {"serve"}.
  std::vector<std::string> tags = {};
  /// Restores the variables and runs the model's own initialiser. Without, steps of session() must do it.
  bool initialize = true;
  /// Takes the variables of signatures that only read them as constants, once they are initialised: batch norms fold
  /// into convolutions, weights are laid out once, and answers come faster (docs/figures/networks.md). Such a signature
  /// does not see what session() writes to its variables later, and its weights take memory twice. Others run as
  /// without.
  bool freeze = false;
  /// The container of its variables, tables and queues that name none. Empty: one of its own, which goes with the
  /// model; so that several models, or one several times, do not share variables by their names.
  std::string container = {};
  /// Nodes that ask for devices which are not here go to others.
  SessionOptions session = {.soft_placement = true};
};

struct ExportOptions;

/// A model on an engine, which must outlive it. Thread-safe but for moving and destroying it, and for adding nodes to
/// the graph.
class SavedModel {
 public:
  SavedModel(SavedModel&&) noexcept;
  SavedModel& operator=(SavedModel&&) noexcept;
  /// Closes the session; drops the container if it is its own.
  ~SavedModel();

  const std::map<std::string, ModelSignature>& signatures() const;
  /// Error: kNotFound that lists the signatures there are.
  Result<const ModelSignature*> signature(const std::string& name) const;

  /// Runs a signature once: its outputs by name. Blocks; see Session::run for its errors. kNotFound for another name
  /// than that of a signature; kInvalidArgument for an input that is missing or is not one of its inputs, which are
  /// listed, and for a tensor of another type or shape, with the input's name.
  Result<std::map<std::string, Tensor>> run(const std::string& signature, const std::map<std::string, Tensor>& inputs,
                                            const RunOptions& options = {}) const;

  /// The collection "queue_runners" of a .meta file or a SavedModel.
  const std::vector<QueueRunner>& queue_runners() const;
  /// Tags of the graph.
  const std::vector<std::string>& tags() const;
  /// What a SavedModel has beside signatures and variables, to be exported again: tags, its initialiser, its assets,
  /// which are files of its folder. Of a .meta file nothing. Errors: those of load_saved_model() for assets.
  Result<ExportOptions> export_options() const;
  /// The container of its variables, as Engine::snapshot() takes it.
  const std::string& container() const;
  /// For nodes beyond signatures: model.session().run({{"x:0", x}}, "loss:0").
  Graph& graph() const;
  Session& session() const;

 private:
  friend Result<SavedModel> load_saved_model(Engine& engine, const std::string& path, SavedModelOptions options);
  class Impl;
  explicit SavedModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Loads a model: reads its graph, restores its variables and runs its initialiser with its assets. `path`: a
/// SavedModel's folder (saved_model.pb or saved_model.pbtxt), or PREFIX.meta: its variables are restored from the
/// checkpoint PREFIX, if that is there, and nothing else is run. Blocks, as Session::run does. Errors name the file:
/// kNotFound for one that is not there (a SavedModel with variables must have a checkpoint), for tags that no graph has
/// and for ops that are not known; kDataLoss for damaged files; kInvalidArgument for what is not a model (it is named
/// for what it is), for signatures whose tensors are not in the graph or of another type, and for assets whose names or
/// links lead out of the model's folder; those of the steps that initialise it.
Result<SavedModel> load_saved_model(Engine& engine, const std::string& path, SavedModelOptions options = {});

struct ExportOptions {
  std::vector<std::string> tags = {"serve"};
  /// Runs when the model is loaded, after its variables were restored, such as what fills tables. Null: nothing.
  const Node* initializer = nullptr;
  /// Files that the initialiser reads, which are copied into the model: the string that its loaders feed with the path,
  /// and the file.
  std::vector<std::pair<Output, std::string>> assets = {};
};

/// Writes a SavedModel, which TensorFlow and load_saved_model() load: a folder with the part of `graph` that the
/// signatures, the initialiser and the assets need, and the values of its variables, which `variables` must have
/// (Engine::snapshot()), as a checkpoint. Of a signature's tensors dtypes and shapes may be left out: they are those of
/// the outputs. Nodes lose the devices that they ask for, and the containers.
///
///   auto snapshot = engine->snapshot().get().value();
///   Status done = export_saved_model("out", graph, {{"serving_default", {{{"x", {x}}}, {{"y", {y}}}}}}, snapshot);
///
/// `folder` must not be there, or be an empty folder; it appears when it is whole and on the disk. Takes the graph's
/// mutex; any thread. Errors: kAlreadyExists for a folder that holds something; kInvalidArgument for no signatures, a
/// signature without outputs or with outputs that need a placeholder which is not an input, tensors and nodes of
/// another graph, variables of one name in two containers, two assets of one name, values of other types or shapes than
/// their variables', and tables (HashTableV2) that nothing of the model fills; kUnimplemented for ops that TensorFlow
/// has not, such as collectives; kNotFound for variables without a value, with all their names, and for assets that are
/// not there; those of the system. Then there is nothing new.
Status export_saved_model(const std::string& folder, const Graph& graph,
                          const std::map<std::string, ModelSignature>& signatures, const Snapshot& variables,
                          const ExportOptions& options = {});

}  // namespace troupe
