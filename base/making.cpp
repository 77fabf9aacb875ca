// SPDX-License-Identifier: Apache-2.0
#include "base/making.h"

#include <utility>

namespace troupe {

const Making*& Making::innermost() {
  static thread_local const Making* at = nullptr;
  return at;
}

Making::Making(const void* owner, std::string_view key)
    : before_(std::exchange(innermost(), this)), owner_(owner), key_(key) {}

Making::~Making() { innermost() = before_; }

bool Making::has(const void* owner, std::string_view key) {
  for (const Making* at = innermost(); at; at = at->before_)
    if (at->owner_ == owner && at->key_ == key) return true;
  return false;
}

}  // namespace troupe
