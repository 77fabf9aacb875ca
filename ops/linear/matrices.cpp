// SPDX-License-Identifier: Apache-2.0
// Batches of matrices: checks, loops, shapes, and pieces of gradients.
#include "ops/linear/matrices.h"

#include <mutex>
#include <numeric>

#include "devices/parallel.h"
#include "ops/parts/gradient_math.h"

namespace troupe {

Result<Matrices> Matrices::of(const Tensor& x, const char* what, bool square) {
  if (x.rank() < 2) return invalid_argument("{} must be matrices, but its shape is {}", what, x.shape().str());
  Matrices m{x.dim(-2), x.dim(-1), 1, Shape(x.shape().dims().first(static_cast<size_t>(x.rank() - 2)))};
  if (square && m.rows != m.columns)
    return invalid_argument("{} must be square matrices, but its shape is {}", what, x.shape().str());
  m.count = m.batch.elements();
  return m;
}

Result<Shape> Matrices::like(int64_t other_rows, int64_t other_columns) const {
  std::vector<int64_t> dims(batch.begin(), batch.end());
  dims.insert(dims.end(), {other_rows, other_columns});
  return Shape::make(dims);
}

Result<Shape> Matrices::like(int64_t size) const {
  std::vector<int64_t> dims(batch.begin(), batch.end());
  dims.push_back(size);
  return Shape::make(dims);
}

Status each_matrix(int threads, int64_t count, double work, const std::function<Status(int64_t)>& f) {
  constexpr double kLeast = 1 << 14;  // multiplications that are worth a thread
  std::mutex mutex;
  int64_t first = count;
  Status status;
  parallel_for(threads, count, 1 + static_cast<int64_t>(kLeast / std::max(work, 1.0)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Status s = f(i);
      if (s.ok()) continue;
      const std::lock_guard lock(mutex);
      if (i >= first) break;
      first = i;
      status = count == 1 ? std::move(s) : Status(invalid_argument("matrix {}: {}", i, s.error().message));
      break;
    }
  });
  return status;
}

Error not_invertible(const char* what, int64_t n, std::string_view why) {
  return invalid_argument("{} is not invertible. It is [{},{}]{}", what, n, n, why);
}

Result<PartialMatrices> PartialMatrices::of(ShapeContext& c, int i, bool square) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(i, 2));
  if (!x.has_rank()) return PartialMatrices();
  PartialMatrices m;
  TROUPE_ASSIGN(m.batch, PartialShape::make(x.dims().first(static_cast<size_t>(x.rank() - 2))));
  m.rows = x.dim(-2);
  m.columns = x.dim(-1);
  if (square && m.rows >= 0 && m.columns >= 0 && m.rows != m.columns)
    return invalid_argument("input {} must be square matrices, but its shape is {}", i, x.str());
  if (square) m.rows = m.columns = std::max(m.rows, m.columns);
  return m;
}

Result<PartialShape> PartialMatrices::like(int64_t other_rows, int64_t other_columns) const {
  if (!batch.has_rank()) return PartialShape();
  std::vector<int64_t> dims(batch.dims().begin(), batch.dims().end());
  dims.insert(dims.end(), {other_rows, other_columns});
  return PartialShape::make(dims);
}

Result<PartialShape> PartialMatrices::like(int64_t size) const {
  if (!batch.has_rank()) return PartialShape();
  std::vector<int64_t> dims(batch.dims().begin(), batch.dims().end());
  dims.push_back(size);
  return PartialShape::make(dims);
}

Status square_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices m, PartialMatrices::of(c, 0, true));
  TROUPE_ASSIGN(PartialShape out, m.like(m.rows, m.columns));
  c.set_output(0, std::move(out));
  return {};
}

Status eigen_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices m, PartialMatrices::of(c, 0, true));
  TROUPE_ASSIGN(PartialShape e, m.like(m.rows));
  c.set_output(0, std::move(e));
  PartialShape v{0};
  if (c.attr<bool>("compute_v")) {
    TROUPE_ASSIGN(v, m.like(m.rows, m.columns));
  }
  c.set_output(1, std::move(v));
  return {};
}

Output matrix_product(GradientContext& c, Output a, Output b, bool adjoint_a, bool adjoint_b) {
  return c.op("BatchMatMulV2", {a, b}, {{"adj_x", adjoint_a}, {"adj_y", adjoint_b}});
}

Output adjoint(GradientContext& c, Output x) {
  if (!x || !x.shape().has_rank()) return {};
  std::vector<int64_t> order(static_cast<size_t>(x.shape().rank()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::swap(order[order.size() - 2], order.back());
  return c.op("ConjugateTranspose", {x, int_vector(c, order)});
}

Output triangle(GradientContext& c, Output x, bool lower) {
  const Output all = c.constant(Tensor::scalar<int64_t>(-1)), none = c.constant(Tensor::scalar<int64_t>(0));
  return c.op("MatrixBandPart", {x, lower ? all : none, lower ? none : all});
}

Output scaled_diagonal(GradientContext& c, Output x, double factor) {
  const Output diagonal = c.op("MatrixDiagPart", {x});
  return c.op("MatrixSetDiag", {x, c.op("Mul", {diagonal, scalar_like(c, diagonal.dtype(), factor)})});
}

Output safe_reciprocal(GradientContext& c, Output x) {
  const double least = x.dtype() == DType::kFloat16 ? 1e-7 : 1e-20;
  return c.op("RealDiv", {x, c.op("AddV2", {c.op("Square", {x}), scalar_like(c, x.dtype(), least)})});
}

Output reciprocal_differences(GradientContext& c, Output x) {
  const Output row = c.op("ExpandDims", {x, c.constant(Tensor::scalar<int32_t>(-2))});
  const Output column = c.op("ExpandDims", {x, c.constant(Tensor::scalar<int32_t>(-1))});
  const Output f = safe_reciprocal(c, c.op("Sub", {row, column}));
  return c.op("MatrixSetDiag", {f, c.op("ZerosLike", {x})});  // whose own derivative would be huge
}

Output columns_of(GradientContext& c, Output x, int64_t begin, int64_t end) {
  const int64_t b[] = {0, begin}, e[] = {0, end}, s[] = {1, 1};
  return c.op("StridedSlice", {x, int_vector(c, b), int_vector(c, e), int_vector(c, s)},
              {{"ellipsis_mask", int64_t{1}}, {"end_mask", int64_t{end < 0 ? 2 : 0}}});
}

Status needs_rank(Output x) {
  if (x.shape().has_rank()) return {};
  return invalid_argument("the gradient needs a known rank");
}

}  // namespace troupe
