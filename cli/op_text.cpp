// SPDX-License-Identifier: Apache-2.0
// Schemas as text.
#include "cli/op_text.h"

namespace troupe {

std::string type_text(const ArgDef& arg) {
  std::string type = arg.dtype != DType::kInvalid ? to_string(arg.dtype) : arg.type_attr + arg.type_list_attr;
  if (!arg.number_attr.empty()) type = arg.number_attr + " * " + type;
  return type;
}

std::string text_of(const ArgDef& arg) { return arg.name + ": " + type_text(arg); }

std::string text_of(const std::vector<ArgDef>& args) {
  std::string out;
  for (const ArgDef& a : args) out += (out.empty() ? "" : ", ") + text_of(a);
  return out.empty() ? "none" : out;
}

std::string allowed_values(const AttrDef& attr) {
  std::string out;
  for (DType t : attr.allowed_types) out += (out.empty() ? "" : ", ") + std::string(to_string(t));
  for (const std::string& v : attr.allowed_values) out += (out.empty() ? "" : ", ") + v;
  if (attr.minimum) out += fmt::format("{}>= {}", out.empty() ? "" : ", ", *attr.minimum);
  return out;
}

std::string text_of(const AttrDef& attr) {
  std::string out = attr.name + ": " + attr.type;
  if (const std::string values = allowed_values(attr); !values.empty()) out += " {" + values + "}";
  if (attr.default_value) out += " = " + to_string(*attr.default_value);
  return out;
}

}  // namespace troupe
