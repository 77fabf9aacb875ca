// SPDX-License-Identifier: Apache-2.0
// Deadline: how long a call may wait. Implemented in base/, that is here alone.
#pragma once
#include <chrono>
#include <concepts>
#include <type_traits>

#include "troupe/export.h"

namespace TROUPE_API troupe {

/// A length of time: any whole duration of std::chrono, such as std::chrono::milliseconds(20). A number alone has no
/// unit and does not compile.
class Deadline : public std::chrono::nanoseconds {
 public:
  constexpr Deadline() : duration(0) {}
  template <class Rep, class Period>
  requires(std::convertible_to<std::chrono::duration<Rep, Period>, std::chrono::nanoseconds>) constexpr Deadline(
      std::chrono::duration<Rep, Period> time)
      : duration(time) {}
  template <class T>
  requires(std::is_arithmetic_v<T>) Deadline(T) {
    static_assert(!sizeof(T), "a deadline has a unit: {.deadline = std::chrono::milliseconds(20)}");
  }
};

}  // namespace troupe
