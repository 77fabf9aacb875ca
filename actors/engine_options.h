// SPDX-License-Identifier: Apache-2.0
// What the options of an engine may be, and the threads that an engine of them takes.
#pragma once
#include "troupe/engine.h"

namespace troupe {

/// One device with all cores where the options name none.
void choose_devices(EngineOptions& options);
/// Errors: kInvalidArgument for what is out of range, with the range.
Status check_options(const EngineOptions& options);
/// Workers of the scheduler of an engine with these options, which are checked and name devices.
int count_workers(const EngineOptions& options);
/// Whether the system gives as many threads as such an engine has: what it is made of cannot report that there are too
/// few. Error: kResourceExhausted.
Status check_threads(const EngineOptions& options);

}  // namespace troupe
