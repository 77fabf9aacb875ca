// SPDX-License-Identifier: Apache-2.0
// The subcommand ops: what the engine knows of each op.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/kernel_lines.h"
#include "cli/op_text.h"
#include "cli/ops_page.h"
#include "graph/graph_def/imported_forms.h"
#include "troupe/graph_def.h"
#include "troupe/npy.h"
#include "troupe/op_library.h"

namespace troupe {
namespace {

/// `text` in lines of a page's width, all indented.
void print_wrapped(const std::string& text) {
  constexpr size_t kColumns = 100;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.size();
    if (end - begin > kColumns) {
      end = text.rfind(' ', begin + kColumns);
      if (end == std::string::npos || end <= begin) end = std::min(text.find(' ', begin), text.size());
    }
    fmt::print("    {}\n", text.substr(begin, end - begin));
    begin = end + 1;
  }
}

void print_rows(const char* title, const std::vector<std::string>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) fmt::print("  {:<11} {}\n", i ? "" : title, rows[i]);
  if (rows.empty()) fmt::print("  {:<11} none\n", title);
}

void print_op(const OpDef& op, const KernelRegistry& kernels) {
  fmt::print("{}{}\n", op.name(), op.is_stateful() ? " (stateful)" : "");
  print_wrapped(op.doc());
  std::vector<std::string> attrs;
  for (const AttrDef& a : op.attrs()) attrs.push_back(text_of(a));
  print_rows("inputs", {text_of(op.inputs())});
  print_rows("outputs", {text_of(op.outputs())});
  print_rows("attributes", attrs);
  print_rows("devices", kernel_lines(kernels, op.name()));
  print_rows("gradient",
             {op.gradient().no_gradient_reason.empty() ? "yes" : "none: " + op.gradient().no_gradient_reason});
}

/// The ops of the graph of a golden case: as TensorFlow wrote them, and as they are once it is read.
Result<std::set<std::string>> ops_of_case(const std::string& path, const OpRegistry& ops) {
  TROUPE_ASSIGN(const auto arrays, read_npz(path));
  const auto bytes = arrays.find("graph");
  if (bytes == arrays.end()) return invalid_argument("'{}' has no graph", path);
  Graph graph(ops);
  const std::string_view text(static_cast<const char*>(bytes->second.raw()), bytes->second.bytes());
  TROUPE_RETURN_IF_ERROR(from_graph_def(text, graph));
  std::set<std::string> out = ops_in_file(text);
  for (int i = 0; i < graph.size(); ++i) out.insert(graph.node(i).op().name());
  return out;
}

/// By op the case of a folder that has it, the one with the fewest ops.
Result<std::map<std::string, std::string, std::less<>>> read_judges(const std::string& folder, const OpRegistry& ops) {
  std::error_code fault;
  std::set<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, fault))
    if (entry.path().extension() == ".npz") paths.insert(entry.path());
  if (fault) return make_error(Code::kNotFound, "cannot read the folder '{}': {}", folder, fault.message());
  std::map<std::string, std::string, std::less<>> out;
  std::map<std::string, size_t, std::less<>> sizes;
  for (const auto& path : paths) {
    TROUPE_ASSIGN(const std::set<std::string> found, ops_of_case(path.string(), ops));
    for (const std::string& op : found)
      if (const auto [size, fresh] = sizes.try_emplace(op, found.size()); fresh || found.size() < size->second) {
        size->second = found.size();
        out[op] = path.stem().string();
      }
  }
  return out;
}

Status print_page(const OpRegistry& ops, const KernelRegistry& kernels, const std::string& golden) {
  TROUPE_ASSIGN(const auto judges, read_judges(golden, ops));
  const auto devices = [&](std::string_view op) {
    const std::vector<std::string> lines = kernel_lines(kernels, op);
    return lines.empty() ? std::string("none") : fmt::format("{}", fmt::join(lines, "<br>"));
  };
  const auto judge = [&](std::string_view op) {
    const auto at = judges.find(op);
    return at == judges.end() ? std::string() : at->second;
  };
  fmt::print("{}", ops_page(ops, devices, judge));
  return {};
}

nlohmann::json json_of(const std::vector<ArgDef>& args) {
  auto out = nlohmann::json::array();
  for (const ArgDef& a : args) out.push_back({{"name", a.name}, {"type", type_text(a)}});
  return out;
}

struct AttrJson {
  nlohmann::json operator()(DType v) const { return to_string(v); }
  nlohmann::json operator()(const Tensor& v) const { return v.str(); }
  nlohmann::json operator()(const PartialShape& v) const {
    if (!v.has_rank()) return nullptr;
    return std::vector<int64_t>(v.dims().begin(), v.dims().end());
  }
  template <class T> nlohmann::json operator()(const std::vector<T>& values) const {
    auto out = nlohmann::json::array();
    for (auto&& v : values) out.push_back((*this)(T(v)));
    return out;
  }
  template <class T> nlohmann::json operator()(const T& v) const { return v; }
};
nlohmann::json json_of(const AttrValue& value) { return std::visit(AttrJson(), value); }

nlohmann::json json_of(const AttrDef& attr) {
  nlohmann::json out = {{"name", attr.name}, {"type", attr.type}};
  if (attr.default_value) out["default"] = json_of(*attr.default_value);
  if (attr.minimum) out["minimum"] = *attr.minimum;
  for (const DType t : attr.allowed_types) out["allowed"].push_back(to_string(t));
  for (const std::string& v : attr.allowed_values) out["allowed"].push_back(v);
  return out;
}

/// {"ops": [{name, stateful, inputs, outputs, attrs}], "imported": {name: what it becomes}}.
void print_json(const OpRegistry& ops) {
  nlohmann::json all = {{"ops", nlohmann::json::array()}, {"imported", imported_forms(ops)}};
  for (const auto& [name, op] : ops.all()) {
    auto attrs = nlohmann::json::array();
    for (const AttrDef& a : op->attrs()) attrs.push_back(json_of(a));
    all["ops"].push_back({{"name", name},
                          {"stateful", op->is_stateful()},
                          {"inputs", json_of(op->inputs())},
                          {"outputs", json_of(op->outputs())},
                          {"attrs", std::move(attrs)}});
  }
  fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

Status list_ops(const std::string& name, const std::string& golden, bool json) {
  const auto library = make_op_library();
  const auto& [ops, kernels] = *library;
  if (json) return print_json(ops), Status();
  if (!golden.empty()) return print_page(ops, kernels, golden);
  if (!name.empty()) {
    if (const OpDef* op = ops.find(name)) return print_op(*op, kernels), Status();
    if (const std::string form = imported_form(name, ops); !form.empty())
      return fmt::print("{}\n    Read from graphs as {}.\n", name, form), Status();
    const std::vector<std::string> near = ops.near(name);
    return make_error(Code::kNotFound, "no op '{}'{}{}", name,
                      near.empty() ? "" : "; near it: ", fmt::join(near, ", "));
  }
  bool first = true;
  for (const auto& [op_name, op] : ops.all()) {
    if (!std::exchange(first, false)) fmt::print("\n");
    print_op(*op, kernels);
  }
  for (const auto& [op_name, form] : imported_forms(ops))
    fmt::print("\n{}\n    Read from graphs as {}.\n", op_name, form);
  return {};
}

}  // namespace

void add_ops(CLI::App& app, Job& job) {
  const auto name = std::make_shared<std::string>(), golden = std::make_shared<std::string>();
  CLI::App& ops_app = *app.add_subcommand("ops", "Lists ops: inputs, outputs, attributes, types, devices, gradients");
  auto* one = ops_app.add_option("NAME", *name, "One op [all]");
  ops_app.add_option("--page", *golden, "Print docs/ops.md, the table of all; needs the folder of golden cases")
      ->type_name("FOLDER")
      ->excludes(one);
  const auto json = std::make_shared<bool>(false);
  ops_app.add_flag("--json", *json, "Print the schemas of all as JSON")->excludes(one);
  ops_app.callback([=, &job] { job = [=] { return list_ops(*name, *golden, *json); }; });
}

}  // namespace troupe
