// SPDX-License-Identifier: Apache-2.0
// Writes the typed builders.
#include "cli/builders.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/join.h"
#include "cli/op_text.h"

namespace troupe {
namespace {

constexpr size_t kColumns = 110;

/// An argument's name as C++ can have it.
std::string identifier(const std::string& name) {
  static const std::set<std::string, std::less<>> kTaken = {
      "alignas", "and",      "asm",      "auto",    "bool",     "break",    "case",     "catch",  "char",   "class",
      "const",   "continue", "default",  "delete",  "do",       "double",   "else",     "enum",   "export", "extern",
      "false",   "float",    "for",      "friend",  "goto",     "if",       "inline",   "int",    "long",   "namespace",
      "new",     "not",      "operator", "or",      "private",  "public",   "register", "return", "short",  "signed",
      "sizeof",  "static",   "struct",   "switch",  "template", "this",     "throw",    "true",   "try",    "typename",
      "union",   "unsigned", "using",    "virtual", "void",     "volatile", "while",    "xor",    "scope",  "attrs",
      "where",   "inputs",   "outputs",  "set"};
  return kTaken.contains(name) ? name + "_" : name;
}

std::string cpp_quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string cpp_type(const std::string& type) {
  static const std::map<std::string, const char*, std::less<>> kCppTypes = {
      {"int", "int64_t"}, {"float", "float"},        {"bool", "bool"},    {"string", "std::string"},
      {"type", "DType"},  {"shape", "PartialShape"}, {"tensor", "Tensor"}};
  if (!type.starts_with("list(")) return kCppTypes.at(type);
  return fmt::format("std::vector<{}>", kCppTypes.at(type.substr(5, type.size() - 6)));
}

std::string enumerator(DType dtype) {
  static const std::map<DType, const char*> kNames = {
      {DType::kFloat32, "Float32"},     {DType::kFloat64, "Float64"},       {DType::kInt32, "Int32"},
      {DType::kUInt8, "UInt8"},         {DType::kInt16, "Int16"},           {DType::kInt8, "Int8"},
      {DType::kString, "String"},       {DType::kInt64, "Int64"},           {DType::kBool, "Bool"},
      {DType::kComplex64, "Complex64"}, {DType::kComplex128, "Complex128"}, {DType::kUInt16, "UInt16"},
      {DType::kBFloat16, "BFloat16"},   {DType::kFloat16, "Float16"},       {DType::kUInt32, "UInt32"},
      {DType::kUInt64, "UInt64"},       {DType::kResource, "Resource"},     {DType::kVariant, "Variant"}};
  const auto at = kNames.find(dtype);
  return std::string("DType::k") + (at == kNames.end() ? "Invalid" : at->second);
}

std::string literal(int64_t v) { return v == INT64_MIN ? "INT64_MIN" : std::to_string(v); }
std::string literal(float v) {
  if (v != v) return "std::numeric_limits<float>::quiet_NaN()";
  if (v - v != 0) return fmt::format("{}std::numeric_limits<float>::infinity()", v < 0 ? "-" : "");
  const std::string text = fmt::format("{}", v);
  return text + (text.find_first_of(".e") == std::string::npos ? ".0F" : "F");
}
std::string literal(bool v) { return v ? "true" : "false"; }
std::string literal(const std::string& v) { return cpp_quoted(v); }
std::string literal(DType v) { return enumerator(v); }
std::string literal(const Tensor&) { return "{}"; }  // a schema cannot write a tensor
std::string literal(const PartialShape& v) {
  if (!v.has_rank()) return "PartialShape::unknown()";
  return v.rank() == 0 ? "PartialShape::scalar()" : fmt::format("PartialShape{{{}}}", join(v.dims(), ", "));
}
template <class T> std::string literal(const std::vector<T>& values) {
  std::string out = "{";
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = values[i];
    out += (i ? ", " : "") + literal(value);
  }
  return out + "}";
}

/// Whether the inputs tell this attribute.
bool told(const OpDef& op, const AttrDef& attr) {
  return std::ranges::any_of(op.inputs(), [&](const ArgDef& in) {
    return in.type_attr == attr.name || in.number_attr == attr.name || in.type_list_attr == attr.name;
  });
}

std::vector<const AttrDef*> attributes(const OpDef& op, bool with_default) {
  std::vector<const AttrDef*> out;
  for (const AttrDef& a : op.attrs())
    if (!told(op, a) && a.default_value.has_value() == with_default) out.push_back(&a);
  return out;
}

bool is_list(const ArgDef& arg) { return !arg.number_attr.empty() || !arg.type_list_attr.empty(); }

/// `text` in lines that begin with `prefix` and fit the columns.
std::string comment(const std::string& prefix, const std::string& text) {
  std::string out, line;
  const auto flush = [&] {
    if (!line.empty()) out += prefix + line + "\n";
    line.clear();
  };
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '\n') flush();
    if (text[at] == ' ' || text[at] == '\n') {
      ++at;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    if (!line.empty() && prefix.size() + line.size() + 1 + end - at > kColumns) flush();
    line += (line.empty() ? "" : " ") + text.substr(at, end - at);
    at = end;
  }
  flush();
  return out;
}

std::string result_type(const OpDef& op) {
  if (op.outputs().empty()) return "const Node*";
  if (op.outputs().size() > 1) return op.name() + "Outputs";
  return is_list(op.outputs()[0]) ? "std::vector<Output>" : "Output";
}

std::string declaration(const OpDef& op, bool defaults) {
  std::string out = fmt::format("{} {}(const Scope& scope", result_type(op), op.name());
  for (const ArgDef& in : op.inputs())
    out += fmt::format(", {} {}", is_list(in) ? "const std::vector<Output>&" : "Output", identifier(in.name));
  for (const AttrDef* a : attributes(op, false)) {
    const bool plain = a->type == "int" || a->type == "float" || a->type == "bool" || a->type == "type";
    out += fmt::format(", {}{}{} {}", plain ? "" : "const ", cpp_type(a->type), plain ? "" : "&", identifier(a->name));
  }
  if (!attributes(op, true).empty()) out += fmt::format(", const {}Attrs& attrs{}", op.name(), defaults ? " = {}" : "");
  return out + ", std::source_location where" + (defaults ? " = std::source_location::current())" : ")");
}

std::string body(const OpDef& op) {
  std::string out = "  std::vector<Output> inputs;\n  Attrs set;\n";
  std::set<std::string> counted;
  for (const ArgDef& in : op.inputs()) {
    const std::string name = identifier(in.name);
    if (!is_list(in)) {
      out += fmt::format("  inputs.push_back({});\n", name);
      continue;
    }
    out += fmt::format("  inputs.insert(inputs.end(), {0}.begin(), {0}.end());\n", name);
    if (const std::string& number = in.number_attr; !number.empty()) {
      if (counted.insert(number).second)
        out += fmt::format("  set.set({}, static_cast<int64_t>({}.size()));\n", cpp_quoted(number), name);
    } else if (counted.insert(in.type_list_attr).second) {
      out += fmt::format("  set.set({}, types_of({}));\n", cpp_quoted(in.type_list_attr), name);
    }
  }
  for (const AttrDef* a : attributes(op, false))
    out += fmt::format("  set.set({}, {});\n", cpp_quoted(a->name), identifier(a->name));
  for (const AttrDef* a : attributes(op, true))
    out += fmt::format("  set.set({}, attrs.{});\n", cpp_quoted(a->name), identifier(a->name));
  const std::string call =
      fmt::format("scope.node({}, std::move(inputs), std::move(set), where)", cpp_quoted(op.name()));
  if (op.outputs().empty()) return out + "  return " + call + ";\n";
  out += "  Outputs outputs(" + call + ");\n  return ";
  std::string values;
  for (const ArgDef& arg : op.outputs()) {
    const std::string& count = arg.number_attr.empty() ? arg.type_list_attr : arg.number_attr;
    values += values.empty() ? "" : ", ";
    values += is_list(arg) ? fmt::format("outputs.many({})", cpp_quoted(count)) : "outputs.one()";
  }
  return out + (op.outputs().size() > 1 ? "{" + values + "}" : values) + ";\n";
}

bool is_public(const OpDef& op) { return !op.name().starts_with('_'); }

}  // namespace

std::string builders_header(const OpRegistry& ops) {
  std::string out =
      "// SPDX-License-Identifier: Apache-2.0\n"
      "// Typed builders, one for each op, written from the op registry by write_builders: do not edit.\n"
      "#pragma once\n#include <cstdint>\n#include <limits>\n#include <source_location>\n#include <string>\n"
      "#include <vector>\n\n#include \"troupe/export.h\"\n#include \"troupe/scope.h\"\n\n"
      "/// Each function adds a node to the scope and returns its outputs, empty once the scope has an error.\n"
      "/// `where` is the line an error is reported for.\nnamespace TROUPE_API troupe {\nnamespace ops {\n";
  for (const auto& [name, op] : ops.all()) {
    if (!is_public(*op)) continue;
    out += "\n";
    if (const auto optional = attributes(*op, true); !optional.empty()) {
      out += fmt::format("/// Optional attributes of {}.\nstruct {}Attrs {{\n", name, name);
      for (const AttrDef* a : optional) {
        const std::string values = allowed_values(*a);
        out += fmt::format("  {} {} = {};{}\n", cpp_type(a->type), identifier(a->name),
                           std::visit([](const auto& v) { return literal(v); }, *a->default_value),
                           values.empty() ? "" : "  // " + values);
      }
      out += "};\n";
    }
    if (op->outputs().size() > 1) {
      out += fmt::format("/// Outputs of {}.\nstruct {}Outputs {{\n", name, name);
      for (const ArgDef& arg : op->outputs())
        out += fmt::format("  {} {};  // {}\n", is_list(arg) ? "std::vector<Output>" : "Output", identifier(arg.name),
                           text_of(arg));
      out += "};\n";
    }
    out += comment("/// ", op->doc());
    std::string types = "Inputs: " + text_of(op->inputs()) + ". Outputs: " + text_of(op->outputs()) + ".";
    for (const AttrDef& a : op->attrs())
      if (!a.default_value || told(*op, a)) types += fmt::format(" {}.", text_of(a));
    out += comment("/// ", types);
    if (!op->gradient().no_gradient_reason.empty())
      out += comment("/// ", "No gradient: " + op->gradient().no_gradient_reason + ".");
    out += declaration(*op, true) + ";\n";
  }
  return out + "\n}  // namespace ops\n}  // namespace troupe\n";
}

std::string builders_source(const OpRegistry& ops) {
  std::string out = R"(// SPDX-License-Identifier: Apache-2.0
// Bodies of the typed builders, written from the op registry by write_builders: do not edit.
#include "troupe/ops.h"

#include <utility>

namespace troupe::ops {
namespace {

[[maybe_unused]] std::vector<DType> types_of(const std::vector<Output>& outputs) {
  std::vector<DType> out;
  for (const Output& o : outputs) out.push_back(o ? o.dtype() : DType::kInvalid);
  return out;
}

/// Deals out the outputs of a node in the order of its schema; empty ones when there is no node.
class Outputs {
 public:
  explicit Outputs(const Node* node) : node_(node) {}
  Output one() { return node_ ? node_->out(next_++) : Output{}; }
  std::vector<Output> many(std::string_view count_attr) {
    int64_t count = 0;
    if (node_) {
      const auto* types = node_->attrs().get<std::vector<DType>>(count_attr);
      count = types ? static_cast<int64_t>(types->size()) : node_->attrs().get_or<int64_t>(count_attr, 0);
    }
    std::vector<Output> out;
    while (count-- > 0) out.push_back(one());
    return out;
  }

 private:
  const Node* node_;
  int next_ = 0;
};

}  // namespace
)";
  for (const auto& [name, op] : ops.all())
    if (is_public(*op)) out += "\n" + declaration(*op, false) + " {\n" + body(*op) + "}\n";
  return out + "\n}  // namespace troupe::ops\n";
}

}  // namespace troupe
