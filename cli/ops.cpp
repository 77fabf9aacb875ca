// SPDX-License-Identifier: Apache-2.0
// The subcommand ops: what the engine knows of each op.
#include "cli/commands.h"
#include "cli/kernel_lines.h"
#include "graph/op_text.h"
#include "ops/all.h"

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
  print_rows("gradient", {op.gradient().function ? "yes" : "none: " + op.gradient().no_gradient_reason});
}

Status list_ops(const std::string& name) {
  OpRegistry ops;
  KernelRegistry kernels;
  register_all_ops(ops, kernels);
  if (!name.empty()) {
    if (const OpDef* op = ops.find(name)) return print_op(*op, kernels), Status();
    const std::vector<std::string> near = ops.near(name);
    return make_error(Code::kNotFound, "no op '{}'{}{}", name,
                      near.empty() ? "" : "; near it: ", fmt::join(near, ", "));
  }
  bool first = true;
  for (const auto& [op_name, op] : ops.all()) {
    if (!std::exchange(first, false)) fmt::print("\n");
    print_op(*op, kernels);
  }
  return {};
}

}  // namespace

void add_ops(CLI::App& app, Job& job) {
  const auto name = std::make_shared<std::string>();
  CLI::App& ops_app = *app.add_subcommand("ops", "Lists ops: inputs, outputs, attributes, types, devices, gradients");
  ops_app.add_option("NAME", *name, "One op [all]");
  ops_app.callback([name, &job] { job = [name] { return list_ops(*name); }; });
}

}  // namespace troupe
