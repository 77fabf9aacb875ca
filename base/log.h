// SPDX-License-Identifier: Apache-2.0
// Messages for whoever runs the program: one line each, on spdlog's default logger, which the program may replace.
#pragma once
#include <spdlog/spdlog.h>

#include <utility>

namespace troupe {

/// What a user wants to know in a normal run: where a checkpoint went, from which one training resumes.
template <class... Args> void log_info(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::info(fmt::format(format, std::forward<Args>(args)...));
}

/// What went wrong but was put right or may be borne: a checkpoint passed over, a setting ignored.
template <class... Args> void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::warn(fmt::format(format, std::forward<Args>(args)...));
}

/// What went wrong where no Result can be returned.
template <class... Args> void log_error(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace troupe
