// SPDX-License-Identifier: Apache-2.0
// Texts written from an op registry: the typed C++ builders and the table of ops.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "troupe/op.h"

namespace troupe {

/// The header troupe/ops.h: for each op (but those whose name begins with '_') a function of the op's own name in
/// troupe::ops. It takes the scope, the inputs, the attributes that have no default and that inputs do not tell,
/// and the other attributes as a struct; it returns Output, a struct of outputs, a list, or the node.
std::string builders_header(const OpRegistry& ops);
/// The bodies for that header.
std::string builders_source(const OpRegistry& ops);
/// docs/ops.md: one row for each op. `devices` tells where an op has kernels and for which types, `judge` which golden
/// case compares it with TensorFlow, "" if none does.
using OpText = std::function<std::string(std::string_view op)>;
std::string ops_page(const OpRegistry& ops, const OpText& devices, const OpText& judge);

}  // namespace troupe
