// SPDX-License-Identifier: Apache-2.0
// Graphs to and from GraphDef.
#include "troupe/graph_def.h"
#include "base/join.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <queue>

#include "graph/flow_context.h"
#include "graph/graph_def/attr_proto.h"
#include "graph/graph_def/composed_ops.h"
#include "graph/graph_def/cpu_functions.h"
#include "graph/graph_def/function_body.h"
#include "graph/graph_def/functions.h"
#include "graph/graph_def/import_graph.h"
#include "graph/graph_def/imported_forms.h"
#include "graph/graph_def/large_constants.h"
#include "graph/graph_def/named_resources.h"
#include "graph/graph_def/node_def.h"
#include "graph/graph_def/reference_variables.h"
#include "graph/graph_def/renamed_ops.h"
#include "graph/graph_def/snapshot_hash.h"
#include "graph/loops.h"
#include "troupe/gradients.h"

namespace troupe {
namespace {

/// The version of TensorFlow's format that we write, and the oldest reader that understands it.
constexpr int kProducer = 134;
constexpr int kMinConsumer = 12;
/// Begins the name of an attribute of a node that tells which types of another were quantised, which to us are plain
/// integers: graphs are written with the types that they were read with.
constexpr std::string_view kQuantizedTypesOf = "_quantized_";
/// Depth of nested messages; real graphs have about ten.
constexpr int kMostNestedMessages = 64;
/// How many nodes of one unknown op, or of one cycle, an error names.
constexpr size_t kMostNodesNamed = 20;

/// Keeps the first error of a text, in place of printing it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text.empty()) text = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  void AddWarning(int, int, const std::string&) override {}
  std::string text;
};

/// One use of a node as an input.
struct Edge {
  int node = 0;   // index in the file
  int port = -1;  // -1: control
};

class Import {
 public:
  /// `prefix` ends in '/' or is empty.
  Import(const proto::GraphDef& def, Graph& graph, std::string prefix, std::string_view container,
         std::vector<Tensor> apart)
      : def_(def), graph_(graph), prefix_(std::move(prefix)), container_(container), reader_(std::move(apart)),
        edges_(def.node_size()) {}

  Status run() {
    TROUPE_RETURN_IF_ERROR(check_ops());
    TROUPE_RETURN_IF_ERROR(connect());
    TROUPE_ASSIGN(const std::vector<int> order, sort());
    added_.resize(def_.node_size());
    for (int i : order) TROUPE_RETURN_IF_ERROR(add(i));
    return close_loops();
  }

 private:
  Error at(int i, Error error) const {
    error.op = def_.node(i).op();
    error.node = def_.node(i).name();
    return error;
  }

  Status check_ops() const {
    std::map<std::string_view, std::vector<std::string_view>> unknown;
    for (const proto::NodeDef& n : def_.node())
      if (!graph_.ops().find(n.op()) && n.op() != kFunctionGradient) unknown[n.op()].push_back(n.name());
    if (unknown.empty()) return {};
    std::string list;
    for (auto& [op, nodes] : unknown) {
      const size_t all = nodes.size();
      nodes.resize(std::min(all, kMostNodesNamed));
      list += fmt::format("{}{} ({}{})", list.empty() ? "" : ", ", op, join(nodes, ", "),
                          all > kMostNodesNamed ? fmt::format(" and {} more", all - kMostNodesNamed) : "");
    }
    for (const auto& [op, nodes] : unknown)
      if (const std::string_view instead = instead_of(op); !instead.empty())
        list += fmt::format("; {} {}", op, instead);
    return make_error(Code::kNotFound, "ops that are not known, with their nodes: {}", list);
  }

  /// Looks up all inputs.
  Status connect() {
    std::unordered_map<std::string_view, int> index;
    index.reserve(def_.node_size());
    for (int i = 0; i < def_.node_size(); ++i)
      if (!index.try_emplace(def_.node(i).name(), i).second)
        return at(i, make_error(Code::kAlreadyExists, "the name is there twice"));
    for (int i = 0; i < def_.node_size(); ++i) {
      for (const std::string& text : def_.node(i).input()) {
        std::string_view name = text;
        Edge edge{0, 0};
        if (name.starts_with('^')) {
          edge.port = -1;
          name.remove_prefix(1);
        } else if (const size_t colon = name.rfind(':'); colon != std::string_view::npos) {
          const char* end = name.data() + name.size();
          const auto [stop, error] = std::from_chars(name.data() + colon + 1, end, edge.port);
          if (error != std::errc() || stop != end || edge.port < 0)
            return at(i, invalid_argument("input '{}' is not of the form name:port", text));
          name = name.substr(0, colon);
        }
        const auto found = index.find(name);
        if (found == index.end()) return at(i, invalid_argument("input '{}' is not in the graph", text));
        edge.node = found->second;
        edges_[i].push_back(edge);
      }
    }
    return {};
  }

  /// Whether input `e` of node i closes a loop.
  bool is_back_edge(int i, const Edge& e) const {
    const auto flow = [&](int node) {
      const OpDef* op = graph_.ops().find(def_.node(node).op());
      return op ? op->control_flow() : ControlFlow::kNone;
    };
    return e.port >= 0 && flow(e.node) == ControlFlow::kNextIteration && flow(i) == ControlFlow::kMerge;
  }

  /// Closes those loops whose ends are there.
  Status close_loops() {
    for (int i = 0; i < def_.node_size(); ++i) {
      if (!added_[i] || !added_[i]->open()) continue;
      const auto back = std::ranges::find_if(edges_[i], [&](const Edge& e) { return is_back_edge(i, e); });
      if (const Node* next = added_[back->node])
        TROUPE_RETURN_IF_ERROR(graph_.close_loop(*added_[i], {next, back->port}));
    }
    return {};
  }

  /// The nodes so that inputs come first (but those that close loops), else in the order of the file. Gradients come
  /// when nothing else can, since the loops they go through must be closed, and the last first: a function that calls
  /// another is put in before it.
  Result<std::vector<int>> sort() const {
    const int n = def_.node_size();
    std::vector<int> waits(n), order;
    std::vector<std::vector<int>> consumers(n);
    for (int i = 0; i < n; ++i) {
      for (const Edge& e : edges_[i]) {
        if (is_back_edge(i, e)) continue;
        ++waits[i];
        consumers[e.node].push_back(i);
      }
    }
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    std::priority_queue<int> gradients;
    const auto is_ready = [&](int i) {
      if (def_.node(i).op() == kFunctionGradient) gradients.push(i);
      else ready.push(i);
    };
    for (int i = 0; i < n; ++i)
      if (waits[i] == 0) is_ready(i);
    while (!ready.empty() || !gradients.empty()) {
      const int i = ready.empty() ? gradients.top() : ready.top();
      if (ready.empty()) gradients.pop();
      else ready.pop();
      order.push_back(i);
      for (int c : consumers[i])
        if (--waits[c] == 0) is_ready(c);
    }
    if (static_cast<int>(order.size()) < n) return cycle(waits);
    return order;
  }

  /// Every node that still waits has an input that does: following those inputs must come round.
  Error cycle(const std::vector<int>& waits) const {
    int i = static_cast<int>(std::ranges::find_if(waits, [](int w) { return w > 0; }) - waits.begin());
    std::vector<int> path;
    std::vector<int> position(waits.size(), -1);
    while (position[i] < 0) {
      position[i] = static_cast<int>(path.size());
      path.push_back(i);
      i = std::ranges::find_if(edges_[i], [&](const Edge& e) {
            return waits[e.node] > 0 && !is_back_edge(i, e);
          })->node;
    }
    path.erase(path.begin(), path.begin() + position[i]);
    std::ranges::reverse(path);
    std::vector<std::string> names;
    for (int p : path)
      if (names.size() < kMostNodesNamed) names.push_back(def_.node(p).name());
    return invalid_argument("the graph has a cycle of {} nodes: {} -> {}", path.size(), join(names, " -> "),
                            path.size() > kMostNodesNamed ? "..." : names[0]);
  }

  /// Whether an attribute that our schema lacks may be passed over: it asks for nothing.
  static bool says_nothing(const proto::AttrValue& v) {
    switch (v.value_case()) {
      case proto::AttrValue::kB: return !v.b();
      case proto::AttrValue::kI: return v.i() == 0;
      case proto::AttrValue::kF: return v.f() == 0;
      case proto::AttrValue::kS: return v.s().empty();
      case proto::AttrValue::kList: return v.list().ByteSizeLong() == 0;
      default: return false;
    }
  }

  /// The gradients that a kFunctionGradient stands for, and an IdentityN of them under its name.
  Status add_gradients(int i) {
    const proto::NodeDef& def = def_.node(i);
    TROUPE_RETURN_IF_ERROR(close_loops());
    NodeSpec spec;
    spec.op = "IdentityN";
    spec.name = prefix_ + def.name();
    spec.device = def.device();
    std::vector<Output> inputs;
    for (const Edge& e : edges_[i]) {
      if (e.port < 0) spec.control_inputs.push_back(added_[e.node]);
      else if (e.port >= added_[e.node]->num_outputs())
        return at(i, invalid_argument("'{}' has no output {}", added_[e.node]->name(), e.port));
      else inputs.push_back({added_[e.node], e.port});
    }
    const proto::AttrValue *n = find_attr(def, "values"), *m = find_attr(def, "arguments");
    const auto values = static_cast<size_t>(n ? n->i() : 0), arguments = static_cast<size_t>(m ? m->i() : 0);
    if (values == 0 || arguments == 0 || values > inputs.size() / 2 || arguments != inputs.size() - 2 * values)
      return at(i, invalid_argument("a gradient of {} values by {} arguments does not have {} inputs", values,
                                    arguments, inputs.size()));
    const auto part = [&](size_t begin, size_t count) {
      const auto at = inputs.begin() + static_cast<std::ptrdiff_t>(begin);
      return std::vector<Output>(at, at + static_cast<std::ptrdiff_t>(count));
    };
    const std::vector<Output> ys = part(0, values), xs = part(values, arguments);
    auto loops = Loops::find(graph_, ys);
    if (!loops.ok()) return at(i, std::move(loops.error()));
    Scope scope = Scope(graph_).scope(spec.name);
    if (loops->frame_of(ys[0]) != 0)  // within a loop what has no inputs waits for the first argument
      scope = scope.within(std::make_shared<FlowContext>(nullptr, xs[0].node, [](Output there) { return there; }));
    auto dxs = gradients(scope, ys, xs, part(values + arguments, values));
    if (!dxs.ok()) return at(i, std::move(dxs.error()));
    for (size_t k = 0; k < arguments; ++k)
      spec.inputs.push_back((*dxs)[k] ? (*dxs)[k] : scope.op("ZerosLike", {xs[k]}));
    if (!scope.ok()) return at(i, scope.status().error());
    std::vector<DType> dtypes;
    for (const Output& dx : spec.inputs) dtypes.push_back(dx.dtype());
    spec.attrs.set("T", std::move(dtypes));
    TROUPE_ASSIGN(added_[i], graph_.add(std::move(spec)));
    return {};
  }

  Status add(int i) {
    const proto::NodeDef& def = def_.node(i);
    if (def.op() == kFunctionGradient) return add_gradients(i);
    NodeSpec spec;
    spec.op = def.op();
    spec.name = prefix_ + def.name();
    spec.device = def.device();
    const OpDef* op = graph_.ops().find(spec.op);
    for (const proto::AttrEntry& entry : def.attr()) {
      const AttrDef* attr = op->find_attr(entry.key());
      if (!attr && says_nothing(entry.value())) continue;
      auto value = reader_.attr(entry.value(), attr ? attr->type : "");
      if (!value.ok() && !attr && entry.key().starts_with('_')) continue;  // another program's note
      if (!value.ok()) {
        value.error().message = fmt::format("attribute {}: {}", entry.key(), value.error().message);
        return at(i, std::move(value.error()));
      }
      spec.attrs.set(entry.key(), std::move(value).value());
      if (auto types = quantized_types(entry.value()); !types.empty())
        spec.attrs.set(fmt::format("{}{}", kQuantizedTypesOf, entry.key()), std::move(types));
    }
    if (const auto* places = spec.attrs.get<std::vector<std::string>>("_class"); places && !prefix_.empty()) {
      std::vector<std::string> prefixed = *places;
      for (std::string& place : prefixed)
        if (place.starts_with("loc:@")) place.insert(5, prefix_);
      spec.attrs.set("_class", std::move(prefixed));
    }
    if (!container_.empty() && op->find_attr("container"))
      if (const auto* named = spec.attrs.get<std::string>("container"); !named || named->empty())
        spec.attrs.set("container", container_);
    if (!container_.empty() && find_attr(def, kContainerOfFunctions)) spec.attrs.set(kContainerOfFunctions, container_);
    for (const Edge& e : edges_[i]) {
      if (e.port < 0) spec.control_inputs.push_back(added_[e.node]);
      else if (is_back_edge(i, e)) spec.inputs.emplace_back();
      else spec.inputs.push_back({added_[e.node], e.port});
    }
    TROUPE_ASSIGN(added_[i], graph_.add(std::move(spec)));
    return {};
  }

  const proto::GraphDef& def_;
  Graph& graph_;
  const std::string prefix_, container_;
  ProtoReader reader_;
  std::vector<std::vector<Edge>> edges_;  // by node of the file
  std::vector<const Node*> added_;
};

Status check_size(int64_t bytes, std::string_view what) {
  if (bytes <= 0) return make_error(Code::kDataLoss, "no {}: it is empty", what);
  if (bytes > INT32_MAX) return make_error(Code::kDataLoss, "no {}: {} bytes are over 2 GiB", what, bytes);
  return {};
}

bool has_a_field(const google::protobuf::Message& message) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return !fields.empty();
}

/// Parses what is not a message's wire bytes as its text.
Status parse_text(std::string_view bytes, std::string_view what, google::protobuf::Message& out) {
  FirstError error;
  google::protobuf::TextFormat::Parser text;
  text.RecordErrorsTo(&error);
  text.AllowUnknownField(true);
  text.SetRecursionLimit(kMostNestedMessages);
  out.Clear();
  if (!text.ParseFromString(std::string(bytes), &out))
    return make_error(Code::kDataLoss, "no {}: as binary it ends early or is malformed ({} bytes), and as text: {}",
                      what, bytes.size(), error.text);
  if (!has_a_field(out))
    return make_error(Code::kDataLoss, "no {}: its {} bytes have no field of one", what, bytes.size());
  return {};
}

}  // namespace

void to_proto(const Graph& graph, proto::GraphDef& out) {
  const std::lock_guard growth(graph.mutex());
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    proto::NodeDef& def = *out.add_node();
    def.set_name(n.name());
    def.set_op(n.op().name());
    def.set_device(n.device());
    for (const Output& in : n.inputs()) def.add_input(in.port == 0 ? in.node->name() : in.name());
    for (const Node* c : n.control_inputs()) def.add_input("^" + c->name());
    for (const auto& [name, value] : n.attrs()) {
      if (name.starts_with(kQuantizedTypesOf)) continue;
      proto::AttrEntry& entry = *def.add_attr();
      entry.set_key(name);
      to_proto(value, *entry.mutable_value());
    }
    for (const auto& [name, value] : n.attrs())
      if (const auto* types = std::get_if<std::vector<int64_t>>(&value); types && name.starts_with(kQuantizedTypesOf))
        set_types(*types, set_attr(def, std::string_view(name).substr(kQuantizedTypesOf.size())));
  }
  out.mutable_versions()->set_producer(kProducer);
  out.mutable_versions()->set_min_consumer(kMinConsumer);
}

std::string to_graph_def(const Graph& graph) {
  google::protobuf::Arena arena;
  auto* def = google::protobuf::Arena::CreateMessage<proto::GraphDef>(&arena);
  to_proto(graph, *def);
  return def->SerializeAsString();
}

std::string to_graph_def_text(const Graph& graph) {
  google::protobuf::Arena arena;
  auto* def = google::protobuf::Arena::CreateMessage<proto::GraphDef>(&arena);
  to_proto(graph, *def);
  std::string out;
  google::protobuf::TextFormat::PrintToString(*def, &out);
  return out;
}

bool parse_wire(std::string_view bytes, google::protobuf::Message& out) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  input.SetRecursionLimit(kMostNestedMessages);
  return out.ParseFromCodedStream(&input) && input.ConsumedEntireMessage() && has_a_field(out);
}

Status parse_binary_or_text(std::string_view bytes, std::string_view what, google::protobuf::Message& out) {
  TROUPE_RETURN_IF_ERROR(check_size(static_cast<int64_t>(bytes.size()), what));
  return parse_wire(bytes, out) ? Status() : parse_text(bytes, what, out);
}

Status import_graph(proto::GraphDef& def, Graph& graph, std::string_view prefix, std::string_view container,
                    std::vector<Tensor> apart) {
  std::string scope(prefix);
  if (!scope.empty() && scope.back() != '/') scope += '/';
  call_cpu_functions(def);
  TROUPE_RETURN_IF_ERROR(put_in_functions(def, graph.ops()));
  hash_snapshots(def, apart);
  take_apart(def, graph.ops());
  rename_old_ops(def, graph.ops());
  give_handles(def, graph.ops());
  TROUPE_RETURN_IF_ERROR(rewrite_reference_variables(def, graph.ops(), scope));
  return Import(def, graph, std::move(scope), container, std::move(apart)).run();
}

Status import_function(std::string_view bytes, Graph& graph, std::string_view container) {
  google::protobuf::Arena arena;
  auto* def = google::protobuf::Arena::CreateMessage<proto::GraphDef>(&arena);
  TROUPE_RETURN_IF_ERROR(parse_binary_or_text(bytes, "GraphDef of a function", *def));
  return import_graph(*def, graph, {}, container);
}

Status from_graph_def(std::string_view bytes, Graph& graph, std::string_view prefix) {
  const auto read = [bytes](int64_t offset, void* to, size_t count) {
    std::memcpy(to, bytes.data() + offset, count);
    return Status();
  };
  return from_graph_def({static_cast<int64_t>(bytes.size()), read}, graph, prefix);
}

Status from_graph_def(const ByteSource& source, Graph& graph, std::string_view prefix) {
  TROUPE_RETURN_IF_ERROR(check_size(source.size, "GraphDef"));
  google::protobuf::Arena arena;
  auto* def = google::protobuf::Arena::CreateMessage<proto::GraphDef>(&arena);
  std::vector<Tensor> apart;
  TROUPE_ASSIGN(const bool binary, parse_apart(source, *def, apart));
  if (!binary) {
    std::string text(static_cast<size_t>(source.size), '\0');
    TROUPE_RETURN_IF_ERROR(source.read(0, text.data(), text.size()));
    apart.clear();
    TROUPE_RETURN_IF_ERROR(parse_text(text, "GraphDef", *def));
  }
  return import_graph(*def, graph, prefix, {}, std::move(apart));
}

}  // namespace troupe
