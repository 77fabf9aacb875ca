// SPDX-License-Identifier: Apache-2.0
#include "ops/parts/type_dispatch.h"

namespace troupe {

std::string type_attr(std::string_view name, std::span<const DType> types, std::string_view fallback) {
  std::string out(name);
  out += ": {";
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) out += ", ";
    out += to_string(types[i]);
  }
  out += '}';
  if (!fallback.empty()) out.append(" = ").append(fallback);
  return out;
}

}  // namespace troupe
