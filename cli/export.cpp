// SPDX-License-Identifier: Apache-2.0
// The subcommand export: a graph with its weights as a SavedModel.
#include <algorithm>
#include <optional>

#include "base/printable.h"
#include "cli/checkpoint_files.h"
#include "cli/commands.h"
#include "cli/read_graph.h"
#include "graph/prune.h"
#include "io/model_files.h"
#include "programs/program.h"
#include "troupe/saved_model.h"

namespace troupe {
namespace {

struct ExportArguments {
  std::string graph, out, signature, checkpoint, on_load;
  std::vector<std::string> inputs, outputs, init, tags;
};

/// "NAME=TENSOR", or "TENSOR", which is then called as its node.
Status add_tensor(const Graph& graph, const char* option, const std::string& text,
                  std::map<std::string, SignatureTensor>& out) {
  const size_t equals = text.find('=');
  auto output = graph.output(equals == text.npos ? text : text.substr(equals + 1));
  if (output.ok() && output->port >= output->node->num_outputs())
    output = invalid_argument("{} has no such output", in_quotes(output->node->name()));
  if (!output.ok()) {
    output.error().message = fmt::format("{} {}: {}", option, printable(text), output.error().message);
    return std::move(output).failure();
  }
  const std::string name = equals == text.npos ? output->node->name() : text.substr(0, equals);
  if (!out.emplace(name, SignatureTensor{*output, output->dtype(), output->shape()}).second)
    return invalid_argument("{}: {} is given twice", option, in_quotes(name));
  return {};
}

/// What a model has beside its graph.
struct Source {
  std::optional<SavedModel> model;
  std::optional<Graph> own_graph;
  std::optional<Session> own_session;
  ExportOptions options;

  const Graph& graph() const { return model ? model->graph() : *own_graph; }
  Session& session() { return model ? model->session() : *own_session; }
};

Status load(Engine& engine, const ExportArguments& o, Source& out) {
  if (!names_model(o.graph)) {
    if (!o.tags.empty()) return invalid_argument("--tags is of models, and '{}' is a graph", o.graph);
    out.own_graph.emplace(engine.ops());
    TROUPE_RETURN_IF_ERROR(read_graph(o.graph, {}, *out.own_graph));
    out.own_session.emplace(engine, *out.own_graph, SessionOptions{.soft_placement = true});
    return {};
  }
  TROUPE_ASSIGN(out.model, load_saved_model(engine, o.graph, {.tags = o.tags}));
  TROUPE_ASSIGN(out.options, out.model->export_options());
  return {};
}

Result<std::map<std::string, ModelSignature>> signatures(const ExportArguments& o, const Source& source) {
  std::map<std::string, ModelSignature> out;
  if (!o.outputs.empty()) {
    ModelSignature& signature = out[o.signature.empty() ? "serving_default" : o.signature];
    for (const std::string& text : o.inputs)
      TROUPE_RETURN_IF_ERROR(add_tensor(source.graph(), "--inputs", text, signature.inputs));
    for (const std::string& text : o.outputs)
      TROUPE_RETURN_IF_ERROR(add_tensor(source.graph(), "--outputs", text, signature.outputs));
    return out;
  }
  if (!o.inputs.empty()) return invalid_argument("--inputs needs --outputs");
  if (!source.model || (source.model->signatures().empty() && o.signature.empty()))
    return invalid_argument("'{}' has no signatures: give --inputs and --outputs", o.graph);
  if (o.signature.empty()) return source.model->signatures();
  TROUPE_ASSIGN(const ModelSignature* signature, source.model->signature(o.signature));
  out.emplace(o.signature, *signature);
  return out;
}

/// Initialises the variables, and sets them from the checkpoint; their values.
Result<Snapshot> read_weights(Engine& engine, const ExportArguments& o, Source& source,
                              const std::map<std::string, ModelSignature>& kept) {
  std::vector<const Node*> init;
  for (const std::string& name : o.init) {
    auto output = source.graph().output(name);
    if (!output.ok()) {
      output.error().message = fmt::format("init {}: {}", in_quotes(name), output.error().message);
      return std::move(output).failure();
    }
    init.push_back(output->node);
  }
  if (!init.empty()) TROUPE_RETURN_IF_ERROR(source.session().run(NodeList(init)).status());
  std::vector<Output> inputs, outputs;
  for (const auto& [name, signature] : kept) {
    for (const auto& [key, tensor] : signature.inputs) inputs.push_back(tensor.output);
    for (const auto& [key, tensor] : signature.outputs) outputs.push_back(tensor.output);
  }
  const auto nodes = needed_nodes(source.graph(), inputs, outputs, {});
  GraphVariables variables =
      GraphVariables::of(source.graph(), nodes, names_model(o.graph) && !o.graph.ends_with(".meta"));
  if (!o.checkpoint.empty()) {
    std::vector<std::string> notes;
    variables.name_objects(o.graph);
    TROUPE_RETURN_IF_ERROR(restore_variables(engine, variables, o.checkpoint, notes));
    for (const std::string& note : notes) fmt::print(stderr, "troupe: {}\n", note);
  }
  Snapshot out;
  for (const auto& [container, named] : variables.containers) {
    TROUPE_ASSIGN(Snapshot some, engine.snapshot(container).get());
    out.variables.merge(some.variables);
  }
  return out;
}

void print_tensors(const char* what, const std::map<std::string, SignatureTensor>& tensors) {
  for (const auto& [key, tensor] : tensors)
    programs::print("  {} {} {} {}\n", what, printable(key), to_string(tensor.dtype), tensor.shape.str());
}

Status export_model(const ExportArguments& o) {
  TROUPE_ASSIGN(const auto engine, Engine::create());
  Source source;
  TROUPE_RETURN_IF_ERROR(load(*engine, o, source));
  if (!o.on_load.empty()) {
    auto node = source.graph().output(o.on_load);
    if (!node.ok()) {
      node.error().message = fmt::format("--on-load {}: {}", printable(o.on_load), node.error().message);
      return std::move(node).failure();
    }
    source.options.initializer = node->node;
  }
  TROUPE_ASSIGN(const auto kept, signatures(o, source));
  TROUPE_ASSIGN(const Snapshot weights, read_weights(*engine, o, source, kept));
  TROUPE_RETURN_IF_ERROR(export_saved_model(o.out, source.graph(), kept, weights, source.options));
  programs::print("{}: a SavedModel\n", printable(o.out));
  for (const auto& [name, signature] : kept) {
    programs::print("signature {}\n", printable(name));
    print_tensors("input", signature.inputs);
    print_tensors("output", signature.outputs);
  }
  return {};
}

}  // namespace

void add_export(CLI::App& app, Job& job) {
  const auto o = std::make_shared<ExportArguments>();
  CLI::App& export_app = *app.add_subcommand(
      "export",
      "Writes what signatures need of a graph, with its weights, as a SavedModel, which TensorFlow loads too");
  export_app.add_option("GRAPH", o->graph, "A GraphDef; a SavedModel's folder; a .meta file beside its checkpoint")
      ->required();
  export_app.add_option("OUT", o->out, "The SavedModel's folder, which is new")->required();
  const auto list = [&](const char* name, std::vector<std::string>& to, const char* text) {
    export_app.add_option(name, to, text)->delimiter(',')->allow_extra_args(false);
  };
  list("--inputs", o->inputs, "NAME=TENSOR,...: what callers give; of x:0 alone the name is x");
  list("--outputs", o->outputs, "NAME=TENSOR,...: what they get [the signatures of the model]");
  export_app.add_option("--signature", o->signature,
                        "NAME: how --inputs and --outputs are called together [serving_default]; without these, the "
                        "only one of the model's to keep");
  list("--init", o->init, "NODE,...: run once, before the checkpoint is read");
  export_app.add_option("--checkpoint", o->checkpoint,
                        "The weights, as of troupe run [those of the model, or what --init sets]");
  export_app.add_option("--on-load", o->on_load,
                        "NODE: run by whoever loads the model, such as what fills tables [the model's own]");
  list("--tags", o->tags, "TAG,...: which graph of a SavedModel [the only one, or that of serve]");
  export_app.callback([o, &job] { job = [o] { return export_model(*o); }; });
}

}  // namespace troupe
