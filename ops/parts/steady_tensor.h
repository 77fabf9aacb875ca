// SPDX-License-Identifier: Apache-2.0
// Which inputs of a kernel stay the same from call to call, so that what is made of them can be kept.
#pragma once
#include <algorithm>
#include <cstdint>
#include <mutex>

#include "troupe/tensor.h"

namespace troupe {

/// Tells a tensor that stays the same from call to call, as a variable's when nobody trains it. It is held then: who
/// would change a tensor that others hold makes a copy, so the same memory is the same tensor. Thread-safe.
class SteadyTensor {
 public:
  struct Seen {
    int64_t version = 0;  // of the tensor that is held; 0: this is another
    bool let_go = false;  // one that was held before is not any more
  };
  /// `constant`: it is to be expected, and held at once.
  explicit SteadyTensor(bool constant) : patience_(constant ? 0 : 4) {}
  Seen see(const Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    Seen out;
    if (held_.defined() && held_.raw() != tensor.raw()) {
      held_ = {};
      out.let_go = true;
      patience_ = std::max<int64_t>(1, 8 * patience_);
      calls_ = 0;
    }
    if (!held_.defined()) {
      calls_ = tensor.raw() == last_ ? calls_ + 1 : 0;
      last_ = tensor.raw();
      if (calls_ < patience_) return out;
      held_ = tensor;
      ++version_;
    }
    out.version = version_;
    return out;
  }

 private:
  std::mutex mutex_;
  Tensor held_;
  const void* last_ = nullptr;
  int64_t calls_ = 0, version_ = 0;
  // Calls with the same memory before it is held. In training it is the same and yet changes: once held, the update
  // makes a copy, and more patience is needed.
  int64_t patience_;
};

}  // namespace troupe
