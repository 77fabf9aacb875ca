// SPDX-License-Identifier: Apache-2.0
// Messages for whoever runs the program: one line each, on spdlog's default logger where the program has set one, which
// must have a name, else on stderr, as far as spdlog's level lets them through.
#pragma once
#include <spdlog/spdlog.h>

#include <string>
#include <utility>

namespace troupe {

/// Control characters of the message are escaped, see printable().
void write_log(spdlog::level::level_enum level, const std::string& message);

/// What a user wants to know in a normal run: where a checkpoint went, from which one training resumes.
template <class... Args> void log_info(fmt::format_string<Args...> format, Args&&... args) {
  write_log(spdlog::level::info, fmt::format(format, std::forward<Args>(args)...));
}

/// What went wrong but was put right or may be borne: a checkpoint passed over, a setting ignored.
template <class... Args> void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  write_log(spdlog::level::warn, fmt::format(format, std::forward<Args>(args)...));
}

/// What went wrong where no Result can be returned.
template <class... Args> void log_error(fmt::format_string<Args...> format, Args&&... args) {
  write_log(spdlog::level::err, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace troupe
