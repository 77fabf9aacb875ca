// SPDX-License-Identifier: Apache-2.0
// Making: marks the calling thread as at work on one thing (a resource, a plan), so that a user's function which is
// called for it and asks for that very thing gets an error, rather than be called again without end.
#pragma once
#include <string_view>

namespace troupe {

class Making {
 public:
  /// As long as this lives, the thread makes `key` for `owner`; the key's text outlives this.
  Making(const void* owner, std::string_view key);
  ~Making();
  Making(const Making&) = delete;
  /// Whether the calling thread is making it.
  static bool has(const void* owner, std::string_view key);

 private:
  static const Making*& innermost();
  const Making* const before_;
  const void* const owner_;
  const std::string_view key_;
};

}  // namespace troupe
