// SPDX-License-Identifier: Apache-2.0
// Blocks in the Snappy format (https://github.com/google/snappy/blob/main/format_description.txt), which the
// tables of TensorFlow's first checkpoints hold, and files of records may.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The bytes that `packed` stands for; nothing where it is damaged. Memory: at most 64 times the size of `packed`.
std::optional<std::string> unpack_snappy(std::string_view packed);

/// A block that stands for `bytes`, at most 64 KiB, and holds them as they are.
std::string literal_snappy(std::string_view bytes);

}  // namespace troupe
