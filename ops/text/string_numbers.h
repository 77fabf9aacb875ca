// SPDX-License-Identifier: Apache-2.0
// Reading numbers from text.
#pragma once
#include <string_view>

namespace troupe {

/// Sets `out` to the number that all of `s` is, but for white space around it. False: it is none, or an integer that
/// does not fit. T is float, double, int32_t, int64_t, uint32_t or uint64_t.
template <class T> bool read_number(std::string_view s, T& out);

}  // namespace troupe
