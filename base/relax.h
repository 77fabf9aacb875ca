// SPDX-License-Identifier: Apache-2.0
// What a thread does between two looks at a value that another one is about to change.
#pragma once

namespace troupe {

/// Tells the processor that the thread spins. Takes some 10 to 40 ns.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace troupe
