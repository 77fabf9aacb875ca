// SPDX-License-Identifier: Apache-2.0
// Whether the system lets this process have more threads, and on how many cores they run.
#pragma once
#include "troupe/error.h"

namespace troupe {

/// Starts `count` threads at once and ends them. For code that starts threads but cannot report that it may not;
/// another may still take them in between. Error: kResourceExhausted with what the system said and how many there were.
Status check_threads_available(int count);

/// The cores that the calling thread may run on, at least 1: those of the machine, or fewer where the process was bound
/// to some, as taskset, a container with a set of cores, or a batch system does. More threads than these that wait for
/// one another in turns take the cores from each other.
int count_cores_available();

}  // namespace troupe
