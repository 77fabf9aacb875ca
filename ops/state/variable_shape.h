// SPDX-License-Identifier: Apache-2.0
// Shape inference through variable handles.
#pragma once
#include "graph/constant_value.h"
#include "troupe/graph.h"

namespace troupe {

/// The shape of the variable whose handle is input i, as far as the node that makes the handle tells.
/// Error: kInvalidArgument when that node tells another dtype than `dtype` (kInvalid: any will do).
inline Result<PartialShape> variable_shape(const ShapeContext& c, int i, DType dtype = DType::kInvalid) {
  const Node* node = c.source(i) ? passed_on(c.source(i)).node : nullptr;
  if (!node || node->op().name() != "VarHandleOp") return PartialShape::unknown();
  const DType held = *node->attrs().get<DType>("dtype");
  if (dtype != DType::kInvalid && dtype != held)
    return invalid_argument("the variable of input {} holds {}, the op is for {}", i, to_string(held),
                            to_string(dtype));
  return *node->attrs().get<PartialShape>("shape");
}

}  // namespace troupe
