// SPDX-License-Identifier: Apache-2.0
// What ops that a GraphDef may have and the registry does not become when it is read (functions.h, renamed_ops.h,
// named_resources.h, reference_variables.h).
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "troupe/op.h"

namespace troupe {

/// What `op` becomes when a graph with it is read, as text that names ops: "AssignVariableOp, ReadVariableOp". Empty
/// where it stays as it is, known or not.
std::string imported_form(const std::string& op, const OpRegistry& ops);

/// The ops of a binary GraphDef as it was written, also those of its functions; none where it is malformed.
std::set<std::string> ops_in_file(std::string_view bytes);

/// All ops that become others, and what.
std::map<std::string, std::string> imported_forms(const OpRegistry& ops);

/// What to do without an op that there is not, as the end of a sentence about it; empty of most.
std::string_view instead_of(std::string_view op);

}  // namespace troupe
