// SPDX-License-Identifier: Apache-2.0
// Rows of ragged tensors, given by where each begins and the last one ends.
#pragma once
#include "ops/parts/index_tensors.h"

namespace troupe {

/// The numbers of `t`, a vector of splits of `values` values into rows; where there are no values it may be empty.
/// Errors name `what`: they must begin with 0, never fall, and end with `values`.
inline Result<std::vector<int64_t>> splits_from(const Tensor& t, int64_t values, const char* what) {
  if (t.rank() != 1) return invalid_argument("{} must be a vector, but has shape {}", what, t.shape().str());
  TROUPE_ASSIGN(std::vector<int64_t> splits, int_values(t, what));
  if (splits.empty() && values == 0) return splits;
  if (splits.empty()) return invalid_argument("{} must not be empty for {} values", what, values);
  if (splits.front() != 0) return invalid_argument("{} must begin with 0, got {}", what, splits.front());
  for (size_t i = 1; i < splits.size(); ++i)
    if (splits[i] < splits[i - 1])
      return invalid_argument("{} must not fall, but {} follows {} at position {}", what, splits[i], splits[i - 1], i);
  if (splits.back() != values)
    return invalid_argument("{} must end with the number of values, {}, got {}", what, values, splits.back());
  return splits;
}

}  // namespace troupe
