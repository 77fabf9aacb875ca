// SPDX-License-Identifier: Apache-2.0
// Unpacks blocks in the Snappy format (https://github.com/google/snappy/blob/main/format_description.txt), which the
// tables of TensorFlow's first checkpoints hold.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The bytes that `packed` stands for; nothing where it is damaged. Memory: at most 64 times the size of `packed`.
std::optional<std::string> unpack_snappy(std::string_view packed);

}  // namespace troupe
