// SPDX-License-Identifier: Apache-2.0
// Tensors as the text that TensorFlow prints: by Assert and Print, and by tf.print.
#pragma once
#include <string>

#include "troupe/tensor.h"

namespace troupe {

/// A number in the fewest digits that give it back: "0.1", "1e+30", "nan".
std::string number_text(double value);
std::string number_text(float value);

/// The first `most` elements (all when negative), rows in brackets: "[1 2][3...]...". Source: Assert, Print.
std::string text_of_first(const Tensor& t, int64_t most);

/// The `ends` first and last of each dimension (all when negative), nested in brackets over several lines, strings in
/// quotes. Source: tf.print, StringFormat.
std::string text_of_ends(const Tensor& t, int64_t ends);

}  // namespace troupe
