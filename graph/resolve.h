// SPDX-License-Identifier: Apache-2.0
// Attributes and types of a node about to be added: what its inputs tell, what the schema gives, what does not fit.
#pragma once
#include <span>
#include <vector>

#include "troupe/graph.h"

namespace troupe {

/// Completes `attrs`: numbers, types and type lists that the inputs tell, then defaults. Checks every attribute against
/// its schema (attributes whose names begin with '_' are anyone's and pass) and every input against its type. Returns
/// the types of the outputs, in order. The inputs must be outputs that exist. Errors: kInvalidArgument that names
/// attribute or input and the values; op and node are the caller's to add.
Result<std::vector<DType>> resolve(const OpDef& op, std::span<const Output> inputs, Attrs& attrs);

}  // namespace troupe
