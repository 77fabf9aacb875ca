// SPDX-License-Identifier: Apache-2.0
// Whether the system lets this process have more threads.
#pragma once
#include "troupe/error.h"

namespace troupe {

/// Starts `count` threads at once and ends them. For code that starts threads but cannot report that it may not;
/// another may still take them in between. Error: kResourceExhausted with what the system said and how many there were.
Status check_threads_available(int count);

}  // namespace troupe
