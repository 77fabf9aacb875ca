// SPDX-License-Identifier: Apache-2.0
// Inference and checks of attributes against an op's schema.
#include "graph/resolve.h"

#include <algorithm>
#include <utility>

#include "base/join.h"

namespace troupe {
namespace {

/// More than any real node has; a file may claim 2^60. Plans count inputs in 16 bits and outputs in 15.
constexpr int64_t kMostInputs = UINT16_MAX, kMostOutputs = INT16_MAX;

/// The attribute that says how many tensors an argument is; empty for a single one.
const std::string& count_attr(const ArgDef& arg) {
  return arg.number_attr.empty() ? arg.type_list_attr : arg.number_attr;
}

/// How many tensors an argument is by the attributes set so far, -1 when they do not tell.
int64_t tensors_of(const ArgDef& arg, const Attrs& attrs) {
  if (!arg.number_attr.empty()) return attrs.get_or<int64_t>(arg.number_attr, -1);
  if (arg.type_list_attr.empty()) return 1;
  const auto* types = attrs.get<std::vector<DType>>(arg.type_list_attr);
  return types ? static_cast<int64_t>(types->size()) : -1;
}

std::string names_of(const std::vector<DType>& types) {
  std::string out;
  for (DType t : types) out += (out.empty() ? "" : ", ") + std::string(to_string(t));
  return out;
}

std::string signature(const OpDef& op) {
  std::string out;
  for (const ArgDef& arg : op.inputs()) {
    out += out.empty() ? arg.name : ", " + arg.name;
    if (!count_attr(arg).empty()) out += "...";
  }
  return "(" + out + ")";
}

Status check_types(const AttrDef& def, std::span<const DType> types) {
  for (DType t : types) {
    if (!is_known(t)) return invalid_argument("attribute {} = {} is not a type", def.name, static_cast<int>(t));
    if (!def.allowed_types.empty() && std::ranges::find(def.allowed_types, t) == def.allowed_types.end())
      return invalid_argument("{} = {} is not allowed; types there are: {}", def.name, to_string(t),
                              names_of(def.allowed_types));
  }
  return {};
}

Status check_strings(const AttrDef& def, std::span<const std::string> values) {
  if (def.allowed_values.empty()) return {};
  for (const std::string& v : values)
    if (std::ranges::find(def.allowed_values, v) == def.allowed_values.end())
      return invalid_argument("{} = \"{}\" is not allowed; values there are: {}", def.name, v,
                              join(def.allowed_values, ", "));
  return {};
}

/// Type, allowed values and minimum of one attribute.
Status check_attr(const AttrDef& def, const AttrValue& value) {
  if (attr_type_name(value) != def.type)
    return invalid_argument("attribute {} = {} must be {}, not {}", def.name, to_string(value), def.type,
                            attr_type_name(value));
  if (const auto* t = std::get_if<DType>(&value)) return check_types(def, {t, 1});
  if (const auto* s = std::get_if<std::string>(&value)) return check_strings(def, {s, 1});
  int64_t measured = 0;
  if (const auto* i = std::get_if<int64_t>(&value)) measured = *i;
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (requires { v.empty(); }) measured = static_cast<int64_t>(v.size());
      },
      value);
  if (def.minimum && measured < *def.minimum)
    return invalid_argument("attribute {} = {} must {} at least {}", def.name, to_string(value),
                            def.type == "int" ? "be" : "have a length of", *def.minimum);
  if (const auto* types = std::get_if<std::vector<DType>>(&value)) return check_types(def, *types);
  if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) return check_strings(def, *strings);
  return {};
}

/// Finds the one length that the attributes leave open, from the count of inputs.
Result<std::vector<int64_t>> count_inputs(const OpDef& op, std::span<const Output> inputs, const Attrs& attrs) {
  const auto total = static_cast<int64_t>(inputs.size());
  const std::string* open = nullptr;  // the attribute not told
  int64_t sharing = 0;                // arguments of that length
  int64_t fixed = 0;
  for (const ArgDef& arg : op.inputs()) {
    const int64_t count = tensors_of(arg, attrs);
    if (count >= 0) {
      if (count > total - fixed)
        return invalid_argument("takes {} or more inputs {}, got {}", fixed + std::min(count, INT64_MAX - fixed),
                                signature(op), total);
      fixed += count;
    } else if (!open || *open == count_attr(arg)) {
      open = &count_attr(arg);
      ++sharing;
    } else {
      return invalid_argument("attributes {} and {} cannot both be told from {} inputs: give one", *open,
                              count_attr(arg), total);
    }
  }
  if (open ? (total - fixed) % sharing != 0 : total != fixed)
    return invalid_argument("takes {} inputs {}, got {}", open ? "other" : std::to_string(fixed), signature(op), total);
  std::vector<int64_t> counts;
  for (const ArgDef& arg : op.inputs()) {
    const int64_t count = tensors_of(arg, attrs);
    counts.push_back(count >= 0 ? count : (total - fixed) / sharing);
  }
  return counts;
}

/// Sets attribute `name` to what the inputs tell, or checks that it says the same.
template <class T> Status tell(Attrs& attrs, const std::string& name, const T& told, std::string_view by) {
  if (const AttrValue* given = attrs.find(name)) {
    if (!same(*given, told))
      return invalid_argument("{} is {}, but {} tells {}", name, to_string(*given), by, to_string(AttrValue(told)));
  } else {
    attrs.set(name, told);
  }
  return {};
}

Status match_inputs(const OpDef& op, std::span<const Output> inputs, Attrs& attrs) {
  TROUPE_ASSIGN(const std::vector<int64_t> counts, count_inputs(op, inputs, attrs));
  size_t next = 0;
  for (size_t a = 0; a < counts.size(); ++a) {
    const ArgDef& arg = op.inputs()[a];
    const std::span<const Output> tensors = inputs.subspan(next, counts[a]);
    if (!arg.number_attr.empty())
      TROUPE_RETURN_IF_ERROR(tell(attrs, arg.number_attr, counts[a], "the count of inputs"));
    if (!arg.type_list_attr.empty() && !attrs.has(arg.type_list_attr)) {
      std::vector<DType> types;
      for (const Output& t : tensors) types.push_back(t.dtype());
      attrs.set(arg.type_list_attr, std::move(types));
    }
    for (size_t i = 0; i < tensors.size(); ++i, ++next) {
      const Output& t = tensors[i];
      DType expected = arg.dtype;
      if (!arg.type_list_attr.empty()) expected = (*attrs.get<std::vector<DType>>(arg.type_list_attr))[i];
      if (!arg.type_attr.empty()) {
        if (const AttrDef* def = op.find_attr(arg.type_attr); !attrs.has(arg.type_attr)) {
          if (Status allowed = check_attr(*def, t.dtype()); !allowed)
            return invalid_argument("input {} '{}' ({}): {}", next, arg.name, t.name(), allowed.error().message);
          attrs.set(arg.type_attr, t.dtype());
        }
        expected = *attrs.get<DType>(arg.type_attr);
      }
      if (t.dtype() != expected)
        return invalid_argument("input {} '{}' must be {}{}, but {} is {}", next, arg.name, to_string(expected),
                                arg.type_attr.empty() ? "" : " (" + arg.type_attr + ")", t.name(),
                                to_string(t.dtype()));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<DType>> resolve(const OpDef& op, std::span<const Output> inputs, Attrs& attrs) {
  for (const auto& [name, value] : attrs) {
    if (name.starts_with('_')) continue;
    const AttrDef* def = op.find_attr(name);
    if (!def) {
      std::vector<std::string> names;
      for (const AttrDef& a : op.attrs()) names.push_back(a.name);
      return invalid_argument("has no attribute {} (= {}); there are: {}", name, to_string(value),
                              names.empty() ? "none" : join(names, ", "));
    }
    TROUPE_RETURN_IF_ERROR(check_attr(*def, value));
  }
  if (std::cmp_greater(inputs.size(), kMostInputs))
    return invalid_argument("has {} inputs; {} are most", inputs.size(), kMostInputs);
  TROUPE_RETURN_IF_ERROR(match_inputs(op, inputs, attrs));
  for (const AttrDef& def : op.attrs()) {
    const AttrValue* value = attrs.find(def.name);
    if (!value && !def.default_value) return invalid_argument("attribute {} ({}) is missing", def.name, def.type);
    if (!value) attrs.set(def.name, *def.default_value);
    else TROUPE_RETURN_IF_ERROR(check_attr(def, *value));
  }
  std::vector<DType> outputs;
  for (const ArgDef& arg : op.outputs()) {
    if (!arg.type_list_attr.empty()) {
      const auto& types = *attrs.get<std::vector<DType>>(arg.type_list_attr);
      outputs.insert(outputs.end(), types.begin(), types.end());
      continue;
    }
    const int64_t count = tensors_of(arg, attrs);
    if (count < 0 || count > kMostOutputs)
      return invalid_argument("{} = {} is not a count of outputs", arg.number_attr, count);
    outputs.insert(outputs.end(), count, arg.type_attr.empty() ? arg.dtype : *attrs.get<DType>(arg.type_attr));
  }
  if (std::cmp_greater(outputs.size(), kMostOutputs))
    return invalid_argument("has {} outputs; {} are most", outputs.size(), kMostOutputs);
  return outputs;
}

}  // namespace troupe
