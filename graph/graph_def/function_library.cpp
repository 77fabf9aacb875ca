// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/function_library.h"

#include <unordered_set>

#include "graph/graph_def/functions.h"
#include "graph/graph_def/node_def.h"

namespace troupe {

using proto::FunctionDef;
using proto::NodeDef;

FunctionLibrary::FunctionLibrary(const proto::GraphDef& def, const OpRegistry& ops) : ops_(ops) {
  for (const FunctionDef& f : def.library().function()) functions_[f.signature().name()] = &f;
  for (const proto::GradientDef& g : def.library().gradient())
    if (!g.gradient_func().empty()) gradients_[g.function_name()] = &g.gradient_func();
}

Result<const FunctionDef*> FunctionLibrary::get(const std::string& name) const {
  if (const FunctionDef* f = find(name)) return f;
  return make_error(Code::kNotFound, "function '{}' is not in the library", name);
}

bool FunctionLibrary::is_call(const NodeDef& node) const {
  return (!form_of_call(node.op()).empty() || find(node.op())) && !ops_.find(node.op());
}

bool FunctionLibrary::has_state(const NodeDef& node) const {
  const std::string& op = node.op();
  if (is_call(node)) return op != "PartitionedCall" && !op.starts_with("Stateless");
  const OpDef* def = ops_.find(op);
  return def && def->is_stateful();
}

std::vector<const FunctionDef*> FunctionLibrary::called_by(const NodeDef& node) const {
  std::vector<const FunctionDef*> out;
  const auto add = [&](const std::string& name) {
    if (const FunctionDef* f = find(name)) out.push_back(f);
  };
  if (!is_call(node)) return out;
  if (const std::string* gradient = own_gradient(node)) {
    add(*gradient);
    return out;
  }
  add(node.op());
  for (const proto::AttrEntry& attr : node.attr()) {
    if (attr.value().value_case() == proto::AttrValue::kFunc) add(attr.value().func().name());
    for (const proto::NameAttrList& f : attr.value().list().func()) add(f.name());
  }
  return out;
}

const std::string* FunctionLibrary::own_gradient(const NodeDef& node) const {
  const proto::AttrValue* f = node.op() == "SymbolicGradient" ? find_attr(node, "f") : nullptr;
  return f ? gradient_of(f->func().name()) : nullptr;
}

const FunctionDef* FunctionLibrary::calls_with_own_gradient(const FunctionDef& f) const {
  if (gradients_.empty()) return nullptr;
  std::unordered_set<const FunctionDef*> known{&f};
  std::vector<const FunctionDef*> waiting{&f};
  while (!waiting.empty()) {
    const FunctionDef& caller = *waiting.back();
    waiting.pop_back();
    for (const NodeDef& node : caller.node_def())
      for (const FunctionDef* called : called_by(node)) {
        if (gradient_of(called->signature().name())) return called;
        if (known.insert(called).second) waiting.push_back(called);
      }
  }
  return nullptr;
}

Error error_of(const NodeDef& node, Error error) {
  if (!error.node.empty()) return error;
  error.op = node.op();
  error.node = node.name();
  return error;
}

}  // namespace troupe
