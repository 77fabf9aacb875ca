// SPDX-License-Identifier: Apache-2.0
// TROUPE_API: what a shared library of Troupe exports; all else is hidden in it. Implemented in base/.
#pragma once

/// On a namespace: what this block of it declares is part of the public API.
#define TROUPE_API [[gnu::visibility("default")]]
