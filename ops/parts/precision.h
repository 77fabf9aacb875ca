// SPDX-License-Identifier: Apache-2.0
// Ops between real and complex numbers, whose two types must be of one precision.
#pragma once
#include "troupe/op.h"

namespace troupe {

/// Errors: type attribute `name` of the node is not `wanted`, which has the precision of `given`.
inline Status check_precision(ShapeContext& c, const char* name, DType given, DType wanted) {
  const DType type = c.attr<DType>(name);
  if (type == wanted) return {};
  return invalid_argument("{} must be {} beside {}, not {}", name, to_string(wanted), to_string(given),
                          to_string(type));
}

}  // namespace troupe
