// SPDX-License-Identifier: Apache-2.0
// Freezing: handles of variables become their values wherever they go, also through loops and branches, so that a read
// is an identity.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/printable.h"
#include "graph/graph_def/attr_proto.h"
#include "graph/graph_def/functions.h"
#include "graph/graph_def/import_graph.h"
#include "graph/graph_def/node_def.h"
#include "graph/graph_def/written_node.h"
#include "troupe/graph_def.h"

namespace troupe {
namespace {

/// Ops that give on what they are given, output for input or all of the first.
bool passes_on(std::string_view op) {
  constexpr std::string_view kOps[] = {"Identity",      "IdentityN", "Enter",  "Exit",
                                       "NextIteration", "Merge",     "Switch", "_SwitchN"};
  return std::ranges::find(kOps, op) != std::end(kOps);
}

void erase_attr(proto::NodeDef& node, std::string_view name) {
  auto& attrs = *node.mutable_attr();
  attrs.erase(std::remove_if(attrs.begin(), attrs.end(), [&](const auto& e) { return e.key() == name; }), attrs.end());
}

/// The function that the graph of a function calls, as put_in_functions() makes such graphs; nullptr for another text.
const proto::NameAttrList* called_by(const proto::GraphDef& body) {
  for (const proto::NodeDef& node : body.node())
    if (node.name() == "call" && node.op() == "StatefulPartitionedCall")
      if (const proto::AttrValue* f = find_attr(node, "f"); f && f->value_case() == proto::AttrValue::kFunc)
        return &f->func();
  return nullptr;
}

/// Adds the library of `body`; nothing, and false, where a function has the name of another one.
bool add_functions(const proto::GraphDef& body, proto::GraphDef& out) {
  std::vector<const proto::FunctionDef*> missing;
  for (const proto::FunctionDef& f : body.library().function()) {
    const auto& there = out.library().function();
    const auto same = std::ranges::find_if(
        there, [&](const proto::FunctionDef& g) { return g.signature().name() == f.signature().name(); });
    if (same == there.end()) missing.push_back(&f);
    else if (same->SerializeAsString() != f.SerializeAsString()) return false;
  }
  for (const proto::FunctionDef* f : missing) {
    *out.mutable_library()->add_function() = *f;
    for (const proto::GradientDef& g : body.library().gradient())
      if (g.function_name() == f->signature().name()) *out.mutable_library()->add_gradient() = g;
  }
  return true;
}

class Freezing {
 public:
  Freezing(const Graph& graph, const std::map<std::string, Tensor>& variables) : graph_(graph), values_(variables) {}

  Status run(const std::vector<Output>& outputs, proto::GraphDef& out) {
    if (outputs.empty()) return invalid_argument("no outputs to freeze a graph for");
    for (const Output& o : outputs) {
      if (!graph_.owns(o.node)) return invalid_argument("an output to freeze is of another graph");
      need(o.node);
    }
    while (!waiting_.empty()) {
      const Node* n = waiting_.back();
      waiting_.pop_back();
      for (const Output& in : n->inputs()) need(in.node);
      for (const Node* c : n->control_inputs()) need(c);
    }
    proto::GraphDef whole;
    to_proto(graph_, whole);
    *out.mutable_versions() = whole.versions();
    for (const int id : needed_) {
      proto::NodeDef& def = *whole.mutable_node(id);
      TROUPE_RETURN_IF_ERROR(freeze(graph_.node(id), def, out));
      write_apart(graph_.node(id), def, out);
      *out.add_node() = std::move(def);
    }
    return {};
  }

 private:
  void need(const Node* n) {
    if (needed_.insert(n->id()).second) waiting_.push_back(n);
  }

  static Error at(const Node& n, Error error) {
    error.op = n.op().name();
    error.node = n.name();
    return error;
  }

  /// The variable whose handle an output is; nullptr for none. That of a loop's Merge is its first input's.
  const Node* variable(Output o) const {
    while (o.dtype() == DType::kResource) {
      if (o.node->op().name() == "VarHandleOp") return o.node;
      if (!passes_on(o.node->op().name())) return nullptr;
      const int input = o.node->op().name() == "IdentityN" ? o.port : 0;
      o = o.node->inputs()[static_cast<size_t>(input)];
    }
    return nullptr;
  }

  static DType dtype_of_variable(const Node& variable) { return *variable.attrs().get<DType>("dtype"); }

  Status freeze(const Node& n, proto::NodeDef& def, proto::GraphDef& out) const {
    if (n.op().name() == "VarHandleOp") return make_constant(n, def);
    const Node* first = nullptr;
    for (size_t i = 0; i < n.inputs().size(); ++i) {
      const Node* v = variable(n.inputs()[i]);
      if (!v) continue;
      if (!first) first = v;
      if (passes_on(n.op().name())) {
        proto::AttrValue& type = set_attr(def, "T");
        const auto number = static_cast<proto::DataType>(dtype_of_variable(*v));
        if (n.op().name() == "IdentityN") type.mutable_list()->set_type(static_cast<int>(i), number);
        else type.set_type(number);
      }
    }
    if (!first || passes_on(n.op().name())) return {};
    const auto type = static_cast<proto::DataType>(dtype_of_variable(*first));
    if (n.op().name() == "ReadVariableOp") {
      def.set_op("Identity");
      def.clear_attr();
      set_attr(def, "T").set_type(type);
      return {};
    }
    if (n.op().name() == "ResourceGather") return make_gather(n, type, def, out);
    return at(n, invalid_argument("does more to variable {} than read it, which a frozen graph cannot",
                                  in_quotes(name_of(*first))));
  }

  static const std::string& name_of(const Node& variable) {
    const auto* shared = variable.attrs().get<std::string>("shared_name");
    return shared && !shared->empty() ? *shared : variable.name();
  }

  Status make_constant(const Node& n, proto::NodeDef& def) const {
    const auto value = values_.find(name_of(n));
    if (value == values_.end())
      return at(n, make_error(Code::kNotFound, "variable {} has no value", in_quotes(name_of(n))));
    const auto* shape = n.attrs().get<PartialShape>("shape");
    if (value->second.dtype() != dtype_of_variable(n) ||
        (shape && !shape->compatible(PartialShape(value->second.shape()))))
      return at(n, invalid_argument("the value of variable {} is {} {}, and it must be {} {}", in_quotes(name_of(n)),
                                    to_string(value->second.dtype()), value->second.shape().str(),
                                    to_string(dtype_of_variable(n)), shape ? shape->str() : ""));
    def.set_op("Const");
    def.clear_attr();
    set_attr(def, "dtype").set_type(static_cast<proto::DataType>(value->second.dtype()));
    to_proto(AttrValue(value->second), set_attr(def, "value"));
    return {};
  }

  Status make_gather(const Node& n, proto::DataType type, proto::NodeDef& def, proto::GraphDef& out) const {
    if (const auto* dims = n.attrs().get<int64_t>("batch_dims"); dims && *dims != 0)
      return at(n, make_error(Code::kUnimplemented, "gathers with batch_dims {} cannot be frozen", *dims));
    const std::string axis = graph_.unique_name(n.name() + "/axis");
    proto::NodeDef& constant = *out.add_node();
    constant.set_name(axis);
    constant.set_op("Const");
    constant.set_device(n.device());
    constant.add_input("^" + n.inputs()[1].node->name());  // in a loop it must be in the loop too
    set_attr(constant, "dtype").set_type(proto::DT_INT32);
    to_proto(AttrValue(Tensor::scalar<int32_t>(0)), set_attr(constant, "value"));
    const auto indices = static_cast<proto::DataType>(n.inputs()[1].dtype());
    def.set_op("GatherV2");
    def.clear_attr();
    def.mutable_input()->Add(std::string(axis));
    std::rotate(def.mutable_input()->begin() + 2, def.mutable_input()->end() - 1, def.mutable_input()->end());
    set_attr(def, "Tparams").set_type(type);
    set_attr(def, "Tindices").set_type(indices);
    set_attr(def, "Taxis").set_type(proto::DT_INT32);
    return {};
  }

  const Graph& graph_;
  const std::map<std::string, Tensor>& values_;
  std::set<int> needed_;
  std::vector<const Node*> waiting_;
};

/// TensorFlow loads the first and the last of these ops from old graphs alone: their later forms say the same. The
/// other one has another name there.
void take_loadable_form(proto::NodeDef& node, proto::GraphDef& out) {
  if (node.op() == "RandomPoisson") {
    node.set_op("RandomPoissonV2");
    const auto* type = find_attr(node, "dtype");
    set_attr(node, "R").set_type(type ? type->type() : proto::DT_FLOAT);
  }
  if (node.op() == "_SetIteratorDataset") {  // give_handles() has turned the inputs
    node.set_op("MakeIterator");
    if (node.input_size() >= 2) node.mutable_input()->SwapElements(0, 1);
  }
  if (node.op() != "TopK") return;
  const auto* k = find_attr(node, "k");
  proto::NodeDef& most = *out.add_node();
  most.set_name(node.name() + "/TopK/k");
  most.set_op("Const");
  most.set_device(node.device());
  set_attr(most, "dtype").set_type(proto::DT_INT32);
  to_proto(AttrValue(Tensor::scalar(static_cast<int32_t>(k ? k->i() : 0))), set_attr(most, "value"));
  node.set_op("TopKV2");
  erase_attr(node, "k");
  auto& in = *node.mutable_input();
  const auto data = std::ranges::find_if(in, is_control) - in.begin();
  node.add_input(most.name());
  std::rotate(in.begin() + data, in.end() - 1, in.end());
}

/// The shape of what an output, sizes, tells: of the tensor that it was asked of, where it was.
PartialShape told_shape(Output sizes, const PartialShape& otherwise) {
  while (sizes.node->op().name() == "Identity") sizes = sizes.node->inputs()[0];
  const std::string_view op = sizes.node->op().name();
  if (otherwise.fully_known() || (op != "Shape" && op != "ShapeN")) return otherwise;
  return sizes.node->inputs()[static_cast<size_t>(sizes.port)].shape();
}

/// Whether a node is a convolution, or the gradient of one, whose filter has fewer channels than the input.
bool convolves_groups(const Node& n) {
  const std::string_view op = n.op().name();
  const bool by_input = op.starts_with("Conv2DBackpropInput") || op.starts_with("Conv3DBackpropInput");
  const bool by_filter = op.starts_with("Conv2DBackpropFilter") || op.starts_with("Conv3DBackpropFilter");
  if (op != "Conv2D" && op != "Conv3D" && !by_input && !by_filter) return false;
  const auto& in = n.inputs();
  const PartialShape input = by_input ? told_shape(in[0], n.shape(0)) : in[0].shape();
  const PartialShape filter = by_filter ? told_shape(in[1], n.shape(0)) : in[1].shape();
  if (!input.has_rank() || !filter.has_rank() || filter.rank() < 2 || input.rank() != filter.rank()) return false;
  const auto* format = n.attrs().get<std::string>("data_format");
  const int64_t channels = input[format && format->starts_with("NC") ? 1 : input.rank() - 1];
  return channels > 0 && filter[filter.rank() - 2] > 0 && channels != filter[filter.rank() - 2];
}

/// Makes a node the call of a function that has it alone and says, as jit_compile does, that XLA is to compile it.
void compile_apart(const Node& of, proto::NodeDef& node, proto::GraphDef& out) {
  proto::FunctionDef& f = *out.mutable_library()->add_function();
  f.mutable_signature()->set_name(fmt::format("{}OfGroups_{}", node.op(), of.id()));
  proto::NodeDef& inner = *f.add_node_def();
  inner.set_name("conv");
  inner.set_op(node.op());
  inner.mutable_attr()->Swap(node.mutable_attr());
  for (size_t i = 0; i < of.inputs().size(); ++i) {
    auto& argument = *f.mutable_signature()->add_input_arg();
    argument.set_name(fmt::format("x{}", i));
    argument.set_type(static_cast<proto::DataType>(of.inputs()[i].dtype()));
    inner.add_input(argument.name());
    set_attr(node, "Tin").mutable_list()->add_type(argument.type());
  }
  auto& result = *f.mutable_signature()->add_output_arg();
  result.set_name("y");
  result.set_type(static_cast<proto::DataType>(of.dtype(0)));
  auto& ret = *f.add_ret();
  ret.set_key("y");
  ret.set_value("conv:output:0");
  auto& compiled = *f.add_attr();
  compiled.set_key("_XlaMustCompile");
  compiled.mutable_value()->set_b(true);
  set_attr(node, "_XlaMustCompile").set_b(true);
  set_attr(node, "Tout").mutable_list()->add_type(result.type());
  set_attr(node, "f").mutable_func()->set_name(f.signature().name());
  node.set_op("PartitionedCall");
}

}  // namespace

void write_apart(const Node& of, proto::NodeDef& node, proto::GraphDef& out) {
  take_loadable_form(node, out);
  erase_attr(node, "_class");
  erase_attr(node, "_output_shapes");
  bool all_named = true;
  for (proto::AttrEntry& attr : *node.mutable_attr()) {
    if (attr.value().value_case() != proto::AttrValue::kS) continue;
    proto::GraphDef body;
    if (!parse_wire(attr.value().s(), body)) continue;
    const proto::NameAttrList* called = called_by(body);
    if (called && add_functions(body, out)) *attr.mutable_value()->mutable_func() = *called;
    else all_named &= body.node_size() == 0;
  }
  if (all_named) erase_attr(node, kContainerOfFunctions);
  else set_attr(node, kContainerOfFunctions).set_s("");
  if (convolves_groups(of)) compile_apart(of, node, out);
}

Result<std::string> freeze_graph(const Graph& graph, const std::vector<Output>& outputs,
                                 const std::map<std::string, Tensor>& variables) {
  proto::GraphDef def;
  TROUPE_RETURN_IF_ERROR(Freezing(graph, variables).run(outputs, def));
  if (def.ByteSizeLong() > INT32_MAX)
    return make_error(Code::kResourceExhausted, "the frozen graph has {} bytes, over 2 GiB", def.ByteSizeLong());
  return def.SerializeAsString();
}

}  // namespace troupe
