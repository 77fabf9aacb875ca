// SPDX-License-Identifier: Apache-2.0
// The table of what the inputs of ops must be like, in the language that op_rules.cpp tells.
#pragma once
#include <string>
#include <string_view>

#include "tests/fuzz/op_values.h"

namespace troupe::fuzz {

/// Lines of rules.
extern const std::string_view kOpRules;

/// A serialized tf.Example, or tf.SequenceExample, with integers "n", reals "f" and texts "s".
std::string example_record(Rng& rng);
std::string sequence_record(Rng& rng);

/// A picture as a BMP file.
std::string bitmap(Rng& rng);

}  // namespace troupe::fuzz
