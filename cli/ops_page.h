// SPDX-License-Identifier: Apache-2.0
// docs/ops.md, the table of ops, written from an op registry.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "troupe/op.h"

namespace troupe {

/// What the table says of an op beside its schema.
using OpText = std::function<std::string(std::string_view op)>;
/// One row for each op. `devices` tells where an op has kernels and for which types, `judge` which golden case compares
/// it with TensorFlow, "" if none does.
std::string ops_page(const OpRegistry& ops, const OpText& devices, const OpText& judge);

}  // namespace troupe
