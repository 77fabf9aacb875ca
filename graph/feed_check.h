// SPDX-License-Identifier: Apache-2.0
// Whether a value fits the output that it is fed for.
#pragma once
#include "troupe/graph.h"

namespace troupe {

inline Status check_feed(const Output& o, const Tensor& value) {
  if (!value.defined()) return invalid_argument("feed of '{}': the tensor is empty", o.name());
  if (value.dtype() != o.dtype())
    return invalid_argument("feed of '{}': {} expected, {} given", o.name(), to_string(o.dtype()),
                            to_string(value.dtype()));
  if (!o.shape().compatible(value.shape()))
    return invalid_argument("feed of '{}': shape {} expected, {} given", o.name(), o.shape().str(),
                            value.shape().str());
  return {};
}

}  // namespace troupe
