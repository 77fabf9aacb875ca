// SPDX-License-Identifier: Apache-2.0
// Ragged tensors as ops take them: splits of rows of rows, the outermost first, then the values.
#pragma once
#include <vector>

#include "ops/parts/index_tensors.h"
#include "troupe/kernel.h"

namespace troupe {

/// The inputs of a node that are a ragged tensor.
struct RaggedInput {
  std::vector<std::vector<int64_t>> splits;  // row i of a level is [splits[i], splits[i + 1]) of the next level
  const Tensor* values = nullptr;            // at least a vector

  int64_t rows() const { return splits.empty() ? values->dim(0) : std::ssize(splits[0]) - 1; }

  /// Inputs `first` to `first` + `rank` - 1 are splits, and input `values` has the values. Errors: a scalar for values;
  /// splits that are no vectors, do not begin with 0, fall, or end elsewhere than the next level.
  static Result<RaggedInput> read(const KernelContext& c, int first, int rank, int values) {
    RaggedInput out{{}, &c.input(values)};
    if (out.values->rank() == 0) return invalid_argument("the values of a ragged tensor must not be a scalar");
    for (int i = first; i < first + rank; ++i) {
      if (c.input(i).rank() != 1) return invalid_argument("splits must be vectors, not {}", c.input(i).shape().str());
      TROUPE_ASSIGN(out.splits.emplace_back(), int_values(c.input(i), "splits"));
      const std::vector<int64_t>& level = out.splits.back();
      if (level.empty() || level[0] != 0)
        return invalid_argument("splits must be numbers from 0 on, got {}", c.input(i).str());
      for (size_t row = 0; row + 1 < level.size(); ++row)
        if (level[row + 1] < level[row])
          return invalid_argument("splits must not fall, got {} at position {}", level[row + 1], row + 1);
      const int64_t next = i + 1 < first + rank ? c.input(i + 1).elements() - 1 : out.values->dim(0);
      if (level.back() != next)
        return invalid_argument("splits end at {}, where there are {} rows or values", level.back(), next);
    }
    return out;
  }
};

}  // namespace troupe
