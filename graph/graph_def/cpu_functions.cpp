// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/cpu_functions.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <vector>

#include "graph/graph_def/node_def.h"

namespace troupe {
namespace {

using proto::FunctionDef;
using proto::NodeDef;

/// A text attribute of a function, empty where there is none.
std::string_view text_of(const FunctionDef& f, std::string_view name) {
  for (const proto::AttrEntry& e : f.attr())
    if (e.key() == name) return e.value().s();
  return {};
}

/// The two of a gradient say the name of the other.
enum class FunctionKind { kAlone, kForward, kBackward };

FunctionKind kind_of(const FunctionDef& f) {
  if (!text_of(f, "backward_function_name").empty()) return FunctionKind::kForward;
  return text_of(f, "forward_function_name").empty() ? FunctionKind::kAlone : FunctionKind::kBackward;
}

template <class Args> bool same_types(const Args& a, const Args& b) {
  return std::ranges::equal(a, b, {}, &proto::OpArg::type, &proto::OpArg::type);
}

bool may_stand_for(const FunctionDef& f, const FunctionDef& called) {
  const FunctionKind kind = kind_of(called);
  const auto &is = f.signature(), &was = called.signature();
  return kind_of(f) == kind && (kind == FunctionKind::kBackward || same_types(is.input_arg(), was.input_arg())) &&
         (kind == FunctionKind::kForward || same_types(is.output_arg(), was.output_arg()));
}

/// Gives the call `node` of a backward function `inputs` of them: its last ones are outputs of the forward call, one
/// after the other. False, and nothing is changed, where they are not.
bool set_inputs(NodeDef& node, int inputs) {
  std::vector<std::string> values, controls;
  for (const std::string& in : node.input()) (is_control(in) ? controls : values).push_back(in);
  const auto had = static_cast<int>(values.size());
  if (had == 0 || inputs == 0) return had == inputs;
  if (had < inputs) {
    const std::string last = values.back();
    const size_t colon = last.rfind(':');
    int port = 0;
    if (colon == std::string::npos) return false;
    if (const auto [end, error] = std::from_chars(last.data() + colon + 1, last.data() + last.size(), port);
        error != std::errc() || end != last.data() + last.size() || port < 0 || port > 1'000'000)
      return false;
    for (int i = 1; i <= inputs - had; ++i) values.push_back(last.substr(0, colon + 1) + std::to_string(port + i));
  }
  values.resize(static_cast<size_t>(inputs));
  node.clear_input();
  for (const auto* list : {&values, &controls})
    for (const std::string& in : *list) node.add_input(in);
  return true;
}

class CpuFunctions {
 public:
  explicit CpuFunctions(proto::GraphDef& def) {
    for (const FunctionDef& f : def.library().function()) {
      const std::string_view what = text_of(f, "api_implements");
      if (what.empty()) continue;
      named_.emplace(f.signature().name(), &f);
      if (text_of(f, "api_preferred_device") == "CPU") for_cpus_[what].push_back(&f);
    }
  }
  bool empty() const { return for_cpus_.empty(); }

  void visit(NodeDef& node) const {
    if (node.device().find("GPU") != std::string::npos) return;
    for (proto::AttrEntry& attr : *node.mutable_attr()) {
      if (attr.value().value_case() != proto::AttrValue::kFunc) continue;
      const FunctionDef* f = instead_of(attr.value().func().name(), node);
      if (f) attr.mutable_value()->mutable_func()->set_name(f->signature().name());
    }
    if (const FunctionDef* f = instead_of(node.op(), node)) node.set_op(f->signature().name());
  }

 private:
  /// What `node` is to call in place of the function of that name, whose inputs it has then; nullptr: the same.
  const FunctionDef* instead_of(std::string_view name, NodeDef& node) const {
    const auto called = named_.find(name);
    if (called == named_.end()) return nullptr;
    const auto at = for_cpus_.find(text_of(*called->second, "api_implements"));
    if (at == for_cpus_.end() || std::ranges::find(at->second, called->second) != at->second.end()) return nullptr;
    const auto f =
        std::ranges::find_if(at->second, [&](const FunctionDef* f) { return may_stand_for(*f, *called->second); });
    if (f == at->second.end()) return nullptr;
    if (kind_of(**f) == FunctionKind::kBackward && !set_inputs(node, (*f)->signature().input_arg_size()))
      return nullptr;
    return *f;
  }

  std::unordered_map<std::string_view, const FunctionDef*> named_;                  // those that implement something
  std::unordered_map<std::string_view, std::vector<const FunctionDef*>> for_cpus_;  // by what they implement
};

}  // namespace

void call_cpu_functions(proto::GraphDef& def) {
  const CpuFunctions functions(def);
  if (functions.empty()) return;
  for (NodeDef& node : *def.mutable_node()) functions.visit(node);
  for (FunctionDef& f : *def.mutable_library()->mutable_function())
    for (NodeDef& node : *f.mutable_node_def()) functions.visit(node);
}

}  // namespace troupe
