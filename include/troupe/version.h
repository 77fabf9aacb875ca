// SPDX-License-Identifier: Apache-2.0
// The version of Troupe. CMake reads it from here. Implemented in base/version.cpp.
#pragma once
#include "troupe/export.h"

/// The version of these headers: numbers, for #if, and text. Before 1.0 a new minor version may change the interface of
/// the library, a new patch may not; from 1.0 on the same holds of major and minor.
#define TROUPE_VERSION_MAJOR 0
#define TROUPE_VERSION_MINOR 1
#define TROUPE_VERSION_PATCH 0
#define TROUPE_VERSION "0.1.0"

namespace TROUPE_API troupe {

/// The version of the library that runs, as TROUPE_VERSION is written: a program may run with another shared library
/// than it was compiled with. Never null; lives as long as the program. From any thread.
const char* version();

}  // namespace troupe
