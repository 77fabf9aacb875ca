// SPDX-License-Identifier: Apache-2.0
// TROUPE_SIMD_CLONES: compiles a function for several instruction sets, of which the loader picks the best
// the processor has.
#pragma once

// The resolver runs before a sanitizer is set up, so builds with one take the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TROUPE_SIMD_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define TROUPE_SIMD_CLONES
#endif
