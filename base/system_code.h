// SPDX-License-Identifier: Apache-2.0
// The codes of errors that the operating system reports.
#pragma once
#include "troupe/error.h"

namespace troupe {

/// Of a failed system call, by its errno. kInternal where that says nothing of files, rights, room or addresses.
Code code_of_system_error(int number);

}  // namespace troupe
