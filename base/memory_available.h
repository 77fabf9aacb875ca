// SPDX-License-Identifier: Apache-2.0
// Whether the system lets this process have more memory.
#pragma once
#include <cstddef>

namespace troupe {

/// Asks for so many bytes of address space and gives them back. For libraries that cannot report that they got none;
/// another thread may still take them in between.
bool memory_available(size_t bytes);

/// Has the C library find what it needs to let exceptions through its own functions, for which it takes memory the
/// first time, and aborts without.
void prepare_for_exceptions();

}  // namespace troupe
