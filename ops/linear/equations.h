// SPDX-License-Identifier: Apache-2.0
// What ops that solve linear equations share: operands and shapes. Implemented in ops/linear/equations.cpp.
#pragma once
#include "ops/linear/matrices.h"

namespace troupe {

/// The matrices and right-hand sides of equations.
struct Equations {
  Matrices a, b;
  Shape batch, x;               // of the solutions
  std::vector<int64_t> as, bs;  // by solution, the matrix and the right-hand side; empty where x is

  /// Errors: sizes that do not fit, batches that differ (or do not broadcast where `broadcasts`).
  static Result<Equations> of(KernelContext& c, bool square, bool broadcasts);
  /// About how many multiplications one takes.
  double work() const {
    const double rows = static_cast<double>(a.rows), columns = static_cast<double>(a.columns);
    return rows * columns * (std::min(rows, columns) + static_cast<double>(b.columns));
  }
};

/// The shape of the solutions of matrices, input 0, and right-hand sides, input 1.
Status solve_shape(ShapeContext& c, bool square, bool broadcasts);

}  // namespace troupe
