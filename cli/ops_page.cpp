// SPDX-License-Identifier: Apache-2.0
// Writes the table of ops.
#include "cli/ops_page.h"

#include "cli/op_text.h"
#include "graph/graph_def/imported_forms.h"

namespace troupe {
namespace {

std::string cell(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string ops_page(const OpRegistry& ops, const OpText& devices, const OpText& judge) {
  std::string out =
      "# Ops\n\nWritten from the op registry: do not edit; adding_an_op.md says how. Names, attributes and meanings "
      "are\n"
      "TensorFlow's. `N * T` is a list of N tensors of type T. The last column is the smallest golden case\n"
      "(tests/golden) with the op, whose results are TensorFlow's; gradients show there as ops of their own.\n\n"
      "| op | what it does | inputs | outputs | attributes | devices | gradient | judged by |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const auto& [name, op] : ops.all()) {
    std::string attrs;
    for (const AttrDef& a : op->attrs()) attrs += (attrs.empty() ? "`" : "<br>`") + text_of(a) + "`";
    const Gradient& g = op->gradient();
    out += fmt::format("| `{}` | {}{} | {} | {} | {} | {} | {} | {} |\n", name, cell(op->doc()),
                       op->is_stateful() ? " Stateful." : "", cell(text_of(op->inputs())), cell(text_of(op->outputs())),
                       cell(attrs), cell(devices(name)),
                       g.no_gradient_reason.empty() ? "yes" : "none: " + cell(g.no_gradient_reason), judge(name));
  }
  out +=
      "\n## Ops that become others\n\n"
      "These are read from graphs too, as what stands beside them.\n\n"
      "| op | what it becomes | judged by |\n|---|---|---|\n";
  for (const auto& [name, form] : imported_forms(ops))
    out += fmt::format("| `{}` | {} | {} |\n", name, form, judge(name));
  return out;
}

}  // namespace troupe
