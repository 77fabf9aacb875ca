// SPDX-License-Identifier: Apache-2.0
// Lists in messages. fmt::join costs each file that uses it two seconds of compiling.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// "1,2,3".
std::string join(std::span<const int64_t> values, std::string_view between = ",");
std::string join(std::span<const float> values, std::string_view between = ",");
std::string join(std::span<const std::string> values, std::string_view between);
std::string join(std::span<const std::string_view> values, std::string_view between);

}  // namespace troupe
