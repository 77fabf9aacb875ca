// SPDX-License-Identifier: Apache-2.0
// TROUPE_CHECK: aborts on a bug of our own. No input of a user may reach one.
#pragma once

namespace troupe {
/// Prints file, line and condition on stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
}  // namespace troupe

#define TROUPE_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::troupe::check_failed(__FILE__, __LINE__, #condition))
