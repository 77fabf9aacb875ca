// SPDX-License-Identifier: Apache-2.0
// Reading numbers from text.
#pragma once
#include <string_view>

#include "troupe/tensor.h"

namespace troupe {

/// Sets `out` to the number that all of `s` is, but for white space around it. False: it is none, or an integer that
/// does not fit. T is float, double, int32_t, int64_t, uint32_t or uint64_t.
template <class T> bool read_number(std::string_view s, T& out);

/// Sets element `at` of `t` to the number that `text` is, or to the text where `t` has strings. Errors: it is none;
/// `t` is of a type other than strings, int32, int64, float32 and float64.
Status set_from_text(Tensor& t, int64_t at, std::string_view text);

}  // namespace troupe
