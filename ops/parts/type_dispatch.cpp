// SPDX-License-Identifier: Apache-2.0
#include "ops/parts/type_dispatch.h"

namespace troupe {

std::string type_attr(std::string_view name, std::span<const DType> types, std::string_view fallback) {
  std::string out = fmt::format("{}: {{", name);
  for (size_t i = 0; i < types.size(); ++i) out += fmt::format("{}{}", i > 0 ? ", " : "", to_string(types[i]));
  return out + "}" + (fallback.empty() ? "" : fmt::format(" = {}", fallback));
}

}  // namespace troupe
