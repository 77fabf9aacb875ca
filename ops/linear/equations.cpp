// SPDX-License-Identifier: Apache-2.0
// Operands and shapes of linear equations.
#include "ops/linear/equations.h"

#include "ops/linear/matrix_batch.h"

namespace troupe {

Result<Equations> Equations::of(KernelContext& c, bool square, bool broadcasts) {
  Equations e;
  TROUPE_ASSIGN(e.a, Matrices::of(c.input(0), "matrix", square));
  TROUPE_ASSIGN(e.b, Matrices::of(c.input(1), "rhs"));
  if (e.a.rows != e.b.rows || (!broadcasts && e.a.batch != e.b.batch))
    return invalid_argument("matrix {} and rhs {} do not fit", c.input(0).shape().str(), c.input(1).shape().str());
  TROUPE_ASSIGN(e.batch, broadcast(e.a.batch, e.b.batch));
  std::vector<int64_t> dims(e.batch.begin(), e.batch.end());
  dims.insert(dims.end(), {e.a.columns, e.b.columns});
  TROUPE_ASSIGN(e.x, Shape::make(dims));
  if (e.x.elements() == 0) return e;  // nothing to solve, for however many matrices
  e.as = matrix_indices(e.batch, e.a.batch.dims());
  e.bs = matrix_indices(e.batch, e.b.batch.dims());
  return e;
}

Status solve_shape(ShapeContext& c, bool square, bool broadcasts) {
  TROUPE_ASSIGN(const PartialMatrices a, PartialMatrices::of(c, 0, square));
  TROUPE_ASSIGN(const PartialMatrices b, PartialMatrices::of(c, 1));
  if (c.num_inputs() > 2) TROUPE_RETURN_IF_ERROR(c.with_rank(2, 0).status());
  if (a.rows >= 0 && b.rows >= 0 && a.rows != b.rows)
    return invalid_argument("matrix {} and rhs {} do not fit", c.input(0).str(), c.input(1).str());
  const int64_t n = square ? std::max(a.rows, b.rows) : a.columns;
  PartialMatrices x;
  if (broadcasts) {
    TROUPE_ASSIGN(x.batch, broadcast(a.batch, b.batch));
  } else {
    TROUPE_ASSIGN(x.batch, PartialShape::merge(a.batch, b.batch));
  }
  TROUPE_ASSIGN(PartialShape out, x.like(n, b.columns));
  c.set_output(0, std::move(out));
  return {};
}

}  // namespace troupe
