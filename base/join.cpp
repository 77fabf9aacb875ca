// SPDX-License-Identifier: Apache-2.0
#include "base/join.h"

#include <spdlog/fmt/fmt.h>

namespace troupe {

std::string join(std::span<const int64_t> values, std::string_view between) {
  return fmt::format("{}", fmt::join(values, between));
}
std::string join(std::span<const float> values, std::string_view between) {
  return fmt::format("{}", fmt::join(values, between));
}
std::string join(std::span<const std::string> values, std::string_view between) {
  return fmt::format("{}", fmt::join(values, between));
}
std::string join(std::span<const std::string_view> values, std::string_view between) {
  return fmt::format("{}", fmt::join(values, between));
}

}  // namespace troupe
