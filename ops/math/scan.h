// SPDX-License-Identifier: Apache-2.0
// What running totals are, for CPUs and GPUs. Implemented in ops/math/scan.cpp.
#pragma once
#include "ops/parts/wrapping.h"
#include "troupe/attr.h"

namespace troupe {

struct ScanSum {
  template <class A> TROUPE_HOST_DEVICE static A nothing() { return A(0); }
  template <class A> TROUPE_HOST_DEVICE static A join(A a, A b) { return wrapping_add(a, b); }
};
struct ScanProduct {
  template <class A> TROUPE_HOST_DEVICE static A nothing() { return A(1); }
  template <class A> TROUPE_HOST_DEVICE static A join(A a, A b) { return wrapping_multiply(a, b); }
};
/// Totals along the middle one of three dimensions.
struct ScanBox {
  int64_t outer = 1, n = 1, inner = 1;
  bool exclusive = false, reverse = false;
};
/// `axis` is in the host's memory. Errors: an axis that is not there.
Result<ScanBox> plan_scan(const Shape& x, const Tensor& axis, const Attrs& attrs);

}  // namespace troupe
