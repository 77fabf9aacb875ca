// SPDX-License-Identifier: Apache-2.0
// Schemas as people read them.
#pragma once
#include <string>
#include <vector>

#include "troupe/op.h"

namespace troupe {

/// "T", "N * T", "float32".
std::string type_text(const ArgDef& arg);
/// "a: T", "xs: N * T".
std::string text_of(const ArgDef& arg);
/// All of them with commas between, or "none".
std::string text_of(const std::vector<ArgDef>& args);
/// "padding: string {SAME, VALID}", "N: int {>= 1}", "transpose_a: bool = false".
std::string text_of(const AttrDef& attr);
/// What an attribute may be, as it stands between the braces; empty: anything of its type.
std::string allowed_values(const AttrDef& attr);

}  // namespace troupe
