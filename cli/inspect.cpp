// SPDX-License-Identifier: Apache-2.0
// The subcommand inspect: what is in a graph or a saved model, without running it.
#include <algorithm>
#include <map>
#include <set>

#include "base/join.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/model_file.h"
#include "cli/read_graph.h"
#include "io/checkpoint_reader.h"
#include "io/whole_file.h"
#include "plan/op_costs.h"
#include "troupe/op_library.h"

namespace troupe {
namespace {

struct InspectArguments {
  std::string graph, dot;
  std::vector<std::string> tags;
  bool nodes = false;
};

std::string type_of(DType dtype, const PartialShape& shape) {
  return fmt::format("{} {}", to_string(dtype), shape.str());
}

/// 1234567 as 1,234,567.
std::string grouped(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

/// Rows of three columns below a title.
class Table {
 public:
  explicit Table(std::string title) : title_(std::move(title)) {}
  void add(const std::string& name, const std::string& what, const std::string& rest = "") {
    rows_.push_back({printable(name), printable(what), printable(rest)});
    width_ = std::max(width_, rows_.back().name.size());
    middle_ = std::max(middle_, rows_.back().what.size());
  }
  void print() const {
    fmt::print("\n{}{}\n", title_, rows_.empty() ? ": none" : "");
    for (const Row& r : rows_) {
      std::string line = fmt::format("  {:<{}}  {:<{}}  {}", r.name, width_, r.what, middle_, r.rest);
      line.erase(line.find_last_not_of(' ') + 1);
      fmt::print("{}\n", line);
    }
  }

 private:
  struct Row {
    std::string name, what, rest;
  };
  std::string title_;
  std::vector<Row> rows_;
  size_t width_ = 0, middle_ = 0;
};

bool is_input(const Node& n) { return n.op().name() == "Placeholder" || n.op().name() == "PlaceholderWithDefault"; }

/// Outputs nobody reads, and nodes without outputs that nobody waits for.
void print_ends(const Graph& graph) {
  std::set<std::pair<int, int>> read;
  std::set<int> awaited;
  for (int id = 0; id < graph.size(); ++id) {
    for (const Output& in : graph.node(id).inputs()) read.emplace(in.node->id(), in.port);
    for (const Node* c : graph.node(id).control_inputs()) awaited.insert(c->id());
  }
  Table inputs("inputs"), outputs("outputs"), targets("targets");
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (is_input(n)) inputs.add(n.out().name(), type_of(n.dtype(0), n.shape(0)));
    if (n.num_outputs() == 0 && !awaited.contains(id)) targets.add(n.name(), n.op().name());
    bool any = false;
    for (int p = 0; p < n.num_outputs(); ++p) any |= read.contains({id, p});
    for (int p = 0; p < n.num_outputs(); ++p)
      if (!any && !is_input(n) && n.dtype(p) != DType::kResource && !awaited.contains(id))
        outputs.add(n.out(p).name(), type_of(n.dtype(p), n.shape(p)), n.op().name());
  }
  inputs.print();
  outputs.print();
  targets.print();
}

/// What updates make of each variable: the trained one comes first in an optimizer's op, its slots after it.
std::map<const Node*, std::string> variable_roles(const Graph& graph) {
  std::map<const Node*, std::string> roles;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (!n.op().name().starts_with("ResourceApply") && !n.op().name().starts_with("ResourceSparseApply")) continue;
    for (size_t i = 0; i < n.inputs().size(); ++i)
      if (n.inputs()[i].dtype() == DType::kResource) roles[n.inputs()[i].node] = i == 0 ? "trained" : "slot";
  }
  return roles;
}

void print_variables(const Graph& graph) {
  const auto roles = variable_roles(graph);
  Table table("variables");
  double all = 0, trained = 0, slots = 0;
  int count = 0;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op().name() != "VarHandleOp") continue;
    const auto& shape = *n.attrs().get<PartialShape>("shape");
    const auto& shared = *n.attrs().get<std::string>("shared_name");
    const double elements = elements_of(shape);
    const auto role = roles.find(&n);
    ++count;
    all += elements;
    if (role != roles.end()) (role->second == "slot" ? slots : trained) += elements;
    table.add(shared.empty() ? n.name() : shared, type_of(*n.attrs().get<DType>("dtype"), shape),
              fmt::format("{} {}", grouped(elements), role == roles.end() ? "" : role->second));
  }
  table.print();
  if (count == 0) return;
  fmt::print("parameters: {} (variables: {})", grouped(all), count);
  if (trained > 0) fmt::print(", {} trained, {} in slots of optimizers", grouped(trained), grouped(slots));
  fmt::print("\n");
}

void print_ops(const Graph& graph) {
  std::map<std::string, std::pair<int, double>> by_op;
  double flops = 0;
  for (int id = 0; id < graph.size(); ++id) {
    auto& [count, sum] = by_op[graph.node(id).op().name()];
    const double more = cost_of(graph.node(id)).flops;
    ++count;
    sum += more;
    flops += more;
  }
  std::vector<std::pair<std::string, std::pair<int, double>>> sorted(by_op.begin(), by_op.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
  Table table("ops, their nodes and FLOPs (sizes that are not known count as 1)");
  for (const auto& [op, sums] : sorted) table.add(op, std::to_string(sums.first), grouped(sums.second));
  table.print();
  fmt::print("FLOPs: {}\n", grouped(flops));
}

void print_nodes(const Graph& graph) {
  Table table("nodes");
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    std::string rest;
    for (const Output& in : n.inputs()) rest += (rest.empty() ? "" : ", ") + in.name();
    for (const Node* c : n.control_inputs()) rest += (rest.empty() ? "^" : ", ^") + c->name();
    rest = "(" + rest + ")";
    for (int p = 0; p < n.num_outputs(); ++p)
      rest += fmt::format("{} {}", p ? "," : " ->", type_of(n.dtype(p), n.shape(p)));
    if (!n.device().empty()) rest += " on " + n.device();
    table.add(n.name(), n.op().name(), rest);
  }
  table.print();
}

void print_signatures(const MetaGraph& graph) {
  for (const auto& [name, signature] : graph.signatures) {
    Table table(fmt::format("signature {}{}", printable(name),
                            signature.method.empty() ? "" : " (" + printable(signature.method) + ")"));
    const auto add = [&](const char* what, const std::map<std::string, MetaGraph::Named>& tensors) {
      for (const auto& [key, t] : tensors)
        table.add(fmt::format("{} {}", what, printable(key)),
                  t.dtype == DType::kInvalid ? std::string("?") : type_of(t.dtype, t.shape),
                  t.tensor + (t.value ? " = " + t.value->str() : ""));
    };
    add("input", signature.inputs);
    add("output", signature.outputs);
    table.print();
  }
}

/// Sizes are of the files; of what is not there, or may not be read, why.
void print_assets(const ModelFiles& files, const MetaGraph& graph) {
  if (graph.assets.empty()) return;
  Table table("assets");
  for (const MetaGraph::Asset& asset : graph.assets) {
    std::string size;
    if (const auto path = find_asset(files, asset.file); !path.ok()) size = path.error().message;
    else if (const auto file = make_posix_file_system()->open(*path); !file.ok()) size = file.error().message;
    else size = grouped(static_cast<double>((*file)->size())) + " bytes";
    table.add(asset.file, size, asset.tensor);
  }
  table.print();
}

void print_checkpoint(const ModelFiles& files, bool sharded_v1) {
  const std::string path = checkpoint_to_restore(files, sharded_v1);
  if (path.empty()) {
    fmt::print("checkpoint: none\n");
    return;
  }
  const auto checkpoint = CheckpointReader::open({}, path, true);
  if (!checkpoint.ok()) {
    fmt::print("checkpoint: {}\n", checkpoint.error().str());
    return;
  }
  double bytes = 0;
  const auto entries = checkpoint->entries();
  for (const auto& e : entries) bytes += static_cast<double>(e.bytes.value_or(0));
  fmt::print("checkpoint: {} tensors, {} bytes ({})\n", entries.size(), grouped(bytes), printable(path));
}

/// What a model has beside its graph; which of its graphs is meant.
Result<size_t> print_model(const InspectArguments& o, const ModelFile& model) {
  const auto& graphs = model.graphs.graphs();
  TROUPE_ASSIGN(const size_t index, model.graphs.find(o.tags));
  const MetaGraph& chosen = graphs[index];
  fmt::print("{}: {}, {} bytes{}\n", printable(o.graph),
             model.files.saved_model ? "SavedModel" : "graph of a checkpoint",
             grouped(static_cast<double>(model.bytes)),
             chosen.tensorflow_version.empty() ? "" : ", of TensorFlow " + printable(chosen.tensorflow_version));
  for (const MetaGraph& graph : graphs) {
    std::vector<std::string> tags;
    for (const std::string& tag : graph.tags) tags.push_back(printable(tag));
    fmt::print("tags: {}{}\n", tags.empty() ? "none" : join(tags, ","),
               &graph == &chosen && graphs.size() > 1 ? " (shown below)" : "");
  }
  print_checkpoint(model.files, chosen.sharded_v1);
  print_signatures(chosen);
  if (model.files.saved_model) print_assets(model.files, chosen);
  fmt::print("\n");
  return index;
}

Status inspect(const InspectArguments& o) {
  const auto library = make_op_library();
  Graph graph(library->ops);
  if (names_model(o.graph)) {
    TROUPE_ASSIGN(ModelFile model, ModelFile::open(o.graph));
    TROUPE_ASSIGN(const size_t index, print_model(o, model));
    TROUPE_RETURN_IF_ERROR(model.graphs.add_to(index, graph, {}));
  } else {
    TROUPE_RETURN_IF_ERROR(read_graph(o.graph, {}, graph));
  }
  if (!o.dot.empty()) TROUPE_RETURN_IF_ERROR(write_file(o.dot, graph.dot()));
  fmt::print("{}: {} nodes\n", printable(o.graph), graph.size());
  if (o.nodes) print_nodes(graph);
  print_ends(graph);
  print_variables(graph);
  print_ops(graph);
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, Job& job) {
  const auto o = std::make_shared<InspectArguments>();
  CLI::App& inspect_app = *app.add_subcommand(
      "inspect", "Prints signatures, inputs, outputs, variables, parameters and FLOPs of a graph or a SavedModel");
  inspect_app.add_option("GRAPH", o->graph, "A GraphDef, binary or text; a SavedModel's folder; a .meta file")
      ->required();
  inspect_app.add_option("--tags", o->tags, "TAG,...: which graph of a SavedModel [the only one, or that of serve]")
      ->delimiter(',')
      ->allow_extra_args(false);
  inspect_app.add_flag("--nodes", o->nodes, "Print every node too, with inputs and shapes");
  inspect_app.add_option("--dot", o->dot, "A file for the graph in Graphviz's format");
  inspect_app.callback([o, &job] { job = [o] { return inspect(*o); }; });
}

}  // namespace troupe
