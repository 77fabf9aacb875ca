// SPDX-License-Identifier: Apache-2.0
// The version that the library was compiled as.
#include "troupe/version.h"

#define TROUPE_QUOTE_(x) #x
#define TROUPE_QUOTE(x) TROUPE_QUOTE_(x)

namespace troupe {

static_assert(__builtin_strcmp(TROUPE_VERSION, TROUPE_QUOTE(TROUPE_VERSION_MAJOR) "." TROUPE_QUOTE(
                                                   TROUPE_VERSION_MINOR) "." TROUPE_QUOTE(TROUPE_VERSION_PATCH)) == 0,
              "the numbers of troupe/version.h and its text differ");

const char* version() { return TROUPE_VERSION; }

}  // namespace troupe
