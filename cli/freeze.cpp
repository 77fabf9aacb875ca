// SPDX-License-Identifier: Apache-2.0
// The subcommand freeze: a saved model as one graph, its variables being constants.
#include <set>

#include "base/printable.h"
#include "cli/commands.h"
#include "io/whole_file.h"
#include "programs/program.h"
#include "troupe/graph_def.h"
#include "troupe/saved_model.h"

namespace troupe {
namespace {

struct FreezeArguments {
  std::string model, out, signature = "serving_default";
  std::vector<std::string> tags, outputs;
};

/// Tables have what an initialiser of the model puts into them, which is not among what outputs need.
Status check_tables(const std::vector<Output>& outputs) {
  std::vector<const Node*> nodes;
  std::set<const Node*> seen;
  const auto add = [&](const Node* node) {
    if (seen.insert(node).second) nodes.push_back(node);
  };
  for (const Output& output : outputs) add(output.node);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = *nodes[i];
    if (node.op().name().find("HashTable") != std::string::npos)
      return Error(Code::kInvalidArgument,
                   "a graph of constants cannot fill this table; run the model as it is, or name --outputs that do not "
                   "look things up",
                   node.op().name(), node.name());
    for (const Output& input : node.inputs()) add(input.node);
    for (const Node* before : node.control_inputs()) add(before);
  }
  return {};
}

Status freeze(const FreezeArguments& o) {
  TROUPE_ASSIGN(const auto engine, Engine::create());
  TROUPE_ASSIGN(const SavedModel model, load_saved_model(*engine, o.model, {.tags = o.tags}));
  std::vector<Output> outputs;
  for (const std::string& name : o.outputs) {
    TROUPE_ASSIGN(const Output output, model.graph().output(name));
    outputs.push_back(output);
  }
  if (outputs.empty()) {
    TROUPE_ASSIGN(const ModelSignature* signature, model.signature(o.signature));
    for (const auto& [name, tensor] : signature->outputs) outputs.push_back(tensor.output);
  }
  TROUPE_RETURN_IF_ERROR(check_tables(outputs));
  TROUPE_ASSIGN(const Snapshot variables, engine->snapshot(model.container()).get());
  TROUPE_ASSIGN(const std::string bytes, freeze_graph(model.graph(), outputs, variables.variables));
  TROUPE_RETURN_IF_ERROR(write_file(o.out, bytes));
  programs::print("{}: {} bytes\n", printable(o.out), bytes.size());
  for (const Output& output : outputs)
    programs::print("output {} {} {}\n", printable(output.name()), to_string(output.dtype()), output.shape().str());
  return {};
}

}  // namespace

void add_freeze(CLI::App& app, Job& job) {
  const auto o = std::make_shared<FreezeArguments>();
  CLI::App& freeze_app =
      *app.add_subcommand("freeze", "Writes what a model's outputs need as one graph, its variables as constants");
  freeze_app.add_option("MODEL", o->model, "A SavedModel's folder, or a .meta file beside its checkpoint")->required();
  freeze_app.add_option("OUT", o->out, "A file for the graph (GraphDef)")->required();
  freeze_app.add_option("--signature", o->signature, "NAME: whose outputs are kept")->capture_default_str();
  freeze_app.add_option("--outputs", o->outputs, "NAME:PORT,...: tensors to keep in place of a signature's outputs")
      ->delimiter(',')
      ->allow_extra_args(false);
  freeze_app.add_option("--tags", o->tags, "TAG,...: which graph of a SavedModel [the only one, or that of serve]")
      ->delimiter(',')
      ->allow_extra_args(false);
  freeze_app.callback([o, &job] { job = [o] { return freeze(*o); }; });
}

}  // namespace troupe
