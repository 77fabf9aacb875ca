// SPDX-License-Identifier: Apache-2.0
// How much stack the calling thread has left.
#pragma once
#include <cstddef>

namespace troupe {

/// Whether at least so many bytes are left of the stack that the system gave the calling thread. False on another one,
/// such as a fiber's, whose size nobody can tell.
bool has_stack(size_t bytes);

}  // namespace troupe
