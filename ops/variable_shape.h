// SPDX-License-Identifier: Apache-2.0
// Shape inference through variable handles.
#pragma once
#include "troupe/op.h"

namespace troupe {

/// The shape of the variable whose handle is input i, as far as the node that makes the handle tells.
/// Error: kInvalidArgument when that node tells another dtype than `dtype` (kInvalid: any will do).
inline Result<PartialShape> variable_shape(const ShapeContext& c, int i, DType dtype = DType::kInvalid) {
  const Attrs* attrs = c.input_attrs(i);
  const PartialShape* shape = attrs ? attrs->get<PartialShape>("shape") : nullptr;
  const DType* held = attrs ? attrs->get<DType>("dtype") : nullptr;
  if (!shape || !held || *held == DType::kResource) return PartialShape::unknown();
  if (dtype != DType::kInvalid && dtype != *held)
    return invalid_argument("the variable of input {} holds {}, the op is for {}", i, to_string(*held),
                            to_string(dtype));
  return *shape;
}

}  // namespace troupe
