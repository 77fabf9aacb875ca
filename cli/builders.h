// SPDX-License-Identifier: Apache-2.0
// The typed C++ builders, written from an op registry.
#pragma once
#include <string>

#include "troupe/op.h"

namespace troupe {

/// The header troupe/ops.h: for each op (but those whose name begins with '_') a function of the op's own name in
/// troupe::ops. It takes the scope, the inputs, the attributes that have no default and that inputs do not tell,
/// and the other attributes as a struct; it returns Output, a struct of outputs, a list, or the node.
std::string builders_header(const OpRegistry& ops);
/// The bodies for that header.
std::string builders_source(const OpRegistry& ops);

}  // namespace troupe
