// SPDX-License-Identifier: Apache-2.0
// EngineThread: marks the calling thread as at work for an engine, so that a call that would wait for that engine (and
// so perhaps for itself) can be refused. Threads where kernels and datasets may wait have no mark. A thread that is
// lent has other duties, for which others wait: what may take long is done elsewhere.
#pragma once
#include <utility>

namespace troupe {

class EngineThread {
 public:
  /// As long as this lives. The marks of several engines nest: an actor's work for one may be called from another's.
  explicit EngineThread(const void* engine, bool lent = false)
      : before_(std::exchange(innermost(), this)), engine_(engine), lent_(lent || (before_ && before_->lent_)) {}
  ~EngineThread() { innermost() = before_; }
  EngineThread(const EngineThread&) = delete;

  /// Whether the calling thread is at work for that engine.
  static bool is_of(const void* engine) {
    for (const EngineThread* at = innermost(); at; at = at->before_)
      if (at->engine_ == engine) return true;
    return false;
  }
  /// Whether it is at work for any.
  static bool is_any() { return innermost() != nullptr; }
  /// Whether it is lent.
  static bool is_lent() { return is_any() && innermost()->lent_; }

 private:
  static EngineThread*& innermost();
  EngineThread* const before_;
  const void* const engine_;
  const bool lent_;
};

}  // namespace troupe
