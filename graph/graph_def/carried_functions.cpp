// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/carried_functions.h"

#include <unordered_set>

#include "graph/graph_def/call_sizes.h"
#include "graph/graph_def/functions.h"
#include "graph/graph_def/imported_forms.h"
#include "graph/graph_def/node_def.h"
#include "graph/graph_def/parsing_datasets.h"
#include "graph/graph_def/renamed_ops.h"

namespace troupe {
namespace {

using proto::FunctionDef;
using proto::NodeDef;

/// Gives `body` this function and all that it and these name. Error: an op that
/// there is not.
Status add_library(const FunctionDef& first, const FunctionLibrary& library, proto::GraphDef& body) {
  std::unordered_set<const FunctionDef*> known{&first};
  std::vector<const FunctionDef*> waiting{&first};
  const auto name = [&](const std::string& function) {
    const FunctionDef* f = library.find(function);
    if (f && known.insert(f).second) waiting.push_back(f);
  };
  while (!waiting.empty()) {
    const FunctionDef& f = *waiting.back();
    waiting.pop_back();
    *body.mutable_library()->add_function() = f;
    if (const std::string* own = library.gradient_of(f.signature().name())) {
      proto::GradientDef& gradient = *body.mutable_library()->add_gradient();
      gradient.set_function_name(f.signature().name());
      gradient.set_gradient_func(*own);
      name(*own);
    }
    for (const NodeDef& node : f.node_def()) {
      if (!library.ops().find(node.op())) {
        name(node.op());
        if (!library.find(node.op()) && imported_form(node.op(), library.ops()).empty()) {
          const std::string_view instead = instead_of(node.op());
          return make_error(Code::kNotFound, "in function '{}', {} '{}' is an op that is not known{}{}",
                            f.signature().name(), node.op(), node.name(), instead.empty() ? "" : "; it ", instead);
        }
      }
      for (const proto::AttrEntry& attr : node.attr()) {
        if (attr.value().value_case() == proto::AttrValue::kFunc) name(attr.value().func().name());
        for (const proto::NameAttrList& in : attr.value().list().func()) name(in.name());
      }
    }
  }
  return {};
}

Result<std::string> body_of(const proto::NameAttrList& called, const FunctionLibrary& library) {
  TROUPE_ASSIGN(const FunctionDef* f, library.get(called.name()));
  proto::GraphDef body;
  NodeDef call;
  call.set_name("call");
  call.set_op("StatefulPartitionedCall");
  set_attr(call, "f").mutable_func()->set_name(called.name());
  const auto add = [&](const std::string& name, const char* op, const char* attr, int type) -> NodeDef& {
    NodeDef& node = *body.add_node();
    node.set_name(name);
    node.set_op(op);
    set_attr(node, attr).set_type(static_cast<proto::DataType>(type));
    return node;
  };
  for (const proto::OpArg& arg : f->signature().input_arg()) {
    const std::string name = fmt::format("argument_{}", call.input_size());
    add(name, "Placeholder", "dtype", arg.type());
    call.add_input(name);
  }
  for (int i = 0; i < f->signature().output_arg_size(); ++i)
    add(fmt::format("result_{}", i), "Identity", "T", f->signature().output_arg(i).type())
        .add_input(fmt::format("call:{}", i));
  NodeDef& done = *body.add_node();
  done.set_name("done");
  done.set_op("NoOp");
  done.add_input("^call");
  *body.add_node() = std::move(call);
  TROUPE_RETURN_IF_ERROR(add_library(*f, library, body));
  if (body.ByteSizeLong() > kMostLoweredBytes)
    return make_error(Code::kResourceExhausted, "function '{}' has {} bytes with those that it calls; {} are most",
                      called.name(), body.ByteSizeLong(), kMostLoweredBytes);
  return body.SerializeAsString();
}

}  // namespace

Status carry_functions(NodeDef& node, const FunctionLibrary& library) {
  const OpDef* op = library.ops().find(node.op());
  if (!op && !form_of_parsing(node.op()).empty()) return parse_by_map(node);
  if (!op) op = library.ops().find(newer_form(node.op(), library.ops()));
  if (!op) return {};
  bool carries = false;
  for (proto::AttrEntry& attr : *node.mutable_attr()) {
    if (attr.value().value_case() != proto::AttrValue::kFunc) continue;
    const AttrDef* def = op->find_attr(attr.key());
    if (!def || def->type != "string") continue;
    TROUPE_ASSIGN(std::string body, body_of(attr.value().func(), library));
    attr.mutable_value()->set_s(std::move(body));
    carries = true;
  }
  if (carries) set_attr(node, kContainerOfFunctions).set_s("");
  return {};
}

}  // namespace troupe
