// SPDX-License-Identifier: Apache-2.0
// forks(): how often fork() led to this process, so that what has threads can tell that they stayed with the parent.
#pragma once
#include <cstdint>

namespace troupe {

/// Counted from the first call in a process or its ancestors on. Any thread; cheap.
uint64_t forks();

/// Whether the calling thread is that of the parent's which called fork(): it has what that knew of threads which are
/// not here.
bool came_through_fork();

}  // namespace troupe
