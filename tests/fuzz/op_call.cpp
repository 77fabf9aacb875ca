// SPDX-License-Identifier: Apache-2.0
// Writes the GraphDef of a call.
#include "tests/fuzz/op_call.h"

#include <fmt/core.h>

#include "graph/graph_def/graph.pb.h"
#include "troupe/graph_def.h"

namespace troupe::fuzz {
namespace {

proto::AttrValue& attribute(proto::NodeDef& node, const char* name) {
  proto::AttrEntry* entry = node.add_attr();
  entry->set_key(name);
  return *entry->mutable_value();
}

/// Where output `port` of a node is, as functions write it.
std::string place_of(const Node& node, int port) {
  for (const ArgDef& arg : node.op().outputs()) {
    int n = 1;
    if (!arg.number_attr.empty()) n = static_cast<int>(*node.attrs().get<int64_t>(arg.number_attr));
    if (!arg.type_list_attr.empty())
      n = static_cast<int>(node.attrs().get<std::vector<DType>>(arg.type_list_attr)->size());
    if (port < n) return fmt::format("node:{}:{}", arg.name, port);
    port -= n;
  }
  return {};
}

proto::DataType type_of(DType dtype) { return static_cast<proto::DataType>(dtype); }

void placeholder(proto::GraphDef& def, const std::string& name, DType dtype) {
  proto::NodeDef* node = def.add_node();
  node->set_name(name);
  node->set_op("Placeholder");
  attribute(*node, "dtype").set_type(type_of(dtype));
}

}  // namespace

std::string call_of(const Graph& graph, const Node& node, int64_t turn) {
  proto::GraphDef alone, def;
  alone.ParseFromString(to_graph_def(graph));
  proto::FunctionDef* function = def.mutable_library()->add_function();
  function->mutable_signature()->set_name("work");
  for (const proto::NodeDef& n : alone.node())
    if (n.name() == node.name()) *function->add_node_def() = n;
  proto::NodeDef& inner = *function->mutable_node_def(0);
  inner.set_name("node");
  inner.clear_input();

  const bool choice = turn % 3 != 0;
  const char* const ops[] = {"PartitionedCall", "If", "Case"};
  proto::NodeDef call;
  call.set_name("call");
  call.set_op(ops[turn % 3]);
  if (choice) {
    placeholder(def, "p", turn % 3 == 1 ? DType::kBool : DType::kInt32);
    call.add_input("p");
    if (turn % 3 == 1) attribute(call, "Tcond").set_type(proto::DT_BOOL);
  }
  auto& in_types = *attribute(call, "Tin").mutable_list();
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const DType dtype = node.inputs()[i].dtype();
    placeholder(def, fmt::format("x{}", i), dtype);
    call.add_input(fmt::format("x{}", i));
    in_types.add_type(type_of(dtype));
    proto::OpArg* arg = function->mutable_signature()->add_input_arg();
    arg->set_name(fmt::format("in{}", i));
    arg->set_type(type_of(dtype));
    inner.add_input(arg->name());
  }
  auto& out_types = *attribute(call, "Tout").mutable_list();
  for (int i = 0; i < node.num_outputs(); ++i) {
    proto::OpArg* arg = function->mutable_signature()->add_output_arg();
    arg->set_name(fmt::format("out{}", i));
    arg->set_type(type_of(node.dtype(i)));
    out_types.add_type(type_of(node.dtype(i)));
    proto::NameEntry* ret = function->add_ret();
    ret->set_key(arg->name());
    ret->set_value(place_of(node, i));
  }
  if (turn % 3 == 0) attribute(call, "f").mutable_func()->set_name("work");
  if (turn % 3 == 1)
    for (const char* branch : {"then_branch", "else_branch"}) attribute(call, branch).mutable_func()->set_name("work");
  if (turn % 3 == 2) {
    auto& branches = *attribute(call, "branches").mutable_list();
    for (int i = 0; i < 3; ++i) branches.add_func()->set_name("work");
  }
  *def.add_node() = call;
  return def.SerializeAsString();
}

}  // namespace troupe::fuzz
