// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include "base/printable.h"

namespace troupe {

void write_log(spdlog::level::level_enum level, const std::string& message) {
  const std::string text = printable(message);
  spdlog::logger* const chosen = spdlog::default_logger_raw();
  if (chosen && !chosen->name().empty()) return chosen->log(level, text);
  if (chosen && !chosen->should_log(level)) return;
  // spdlog's own default logger, which has no name, writes to stdout, where results of programs go.
  spdlog::logger to_stderr("", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  to_stderr.set_level(level);
  to_stderr.log(level, text);
  to_stderr.flush();
}

}  // namespace troupe
