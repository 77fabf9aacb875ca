// SPDX-License-Identifier: Apache-2.0
// Loops in versions for several instruction sets. TROUPE_SIMD_CLONES compiles a function for several of them, of which
// the loader picks the best the processor has; TROUPE_AVX2 and the like are for who picks one by has_avx2() and
// the like.
#pragma once

// The resolver runs before a sanitizer is set up, so builds with one take the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TROUPE_SIMD_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define TROUPE_SIMD_CLONES
#endif

#if defined(__x86_64__)
#define TROUPE_AVX2 __attribute__((target("avx2")))
#define TROUPE_AVX2_AND_FMA __attribute__((target("avx2,fma")))
#define TROUPE_AVX512 __attribute__((target("avx512f")))
#else
#define TROUPE_AVX2
#define TROUPE_AVX2_AND_FMA
#define TROUPE_AVX512
#endif

namespace troupe {

/// Whether this processor has AVX2.
inline bool has_avx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
#else
  return false;
#endif
}

/// Whether it multiplies and adds 8 floats at once.
inline bool has_avx2_and_fma() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
#else
  return false;
#endif
}

/// Whether it has the foundation of AVX-512.
inline bool has_avx512() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512f");
  return has;
#else
  return false;
#endif
}

}  // namespace troupe
