// SPDX-License-Identifier: Apache-2.0
// Matrices that are zero but for a few diagonals, given as those: TridiagonalSolve, TridiagonalMatMul,
// BandedTriangularSolve.
#include "ops/linear/matrices.h"
#include "ops/linear/matrix_batch.h"
#include "ops/linear/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

template <class T> using RealOf = typename Eigen::NumTraits<T>::Real;

// -- TridiagonalSolve -------------------------------------------------------------------------------------------------

/// Upper triangular rows, of which each has three elements from the diagonal on, and right-hand sides.
template <class T> struct Eliminated {
  Matrix<T> u;
  MatrixView<T> x;

  /// Rows of `a` are the diagonals above, on and below the main one; with `pivoting` neighbours are exchanged where the
  /// lower one's element is larger.
  Eliminated(const ConstMatrixView<T>& a, bool pivoting, MatrixView<T> rhs) : u(a.cols(), 3), x(rhs) {
    const int64_t n = a.cols();
    const auto above = [&](int64_t i) { return i + 1 < n ? a(0, i) : T(0); };
    u.row(0) << a(1, 0), above(0), T(0);
    for (int64_t i = 0; i + 1 < n; ++i) {
      u.row(i + 1) << a(2, i + 1), a(1, i + 1), above(i + 1);  // from column i on
      if (pivoting && std::abs(u(i + 1, 0)) > std::abs(u(i, 0))) {
        u.row(i).swap(u.row(i + 1));
        x.row(i).swap(x.row(i + 1));
      }
      const T factor = u(i + 1, 0) == T(0) ? T(0) : u(i + 1, 0) / u(i, 0);
      u.row(i + 1) << u(i + 1, 1) - factor * u(i, 1), u(i + 1, 2) - factor * u(i, 2), T(0);
      if (factor != T(0)) x.row(i + 1) -= factor * x.row(i);
    }
  }
  /// Solves from the last row up, where `pivot(i, row)` gives what row i is divided by.
  template <class F> void substitute(const F& pivot) {
    const int64_t n = u.rows();
    for (int64_t i = n - 1; i >= 0; --i) {
      if (i + 1 < n) x.row(i) -= u(i, 1) * x.row(i + 1);
      if (i + 2 < n) x.row(i) -= u(i, 2) * x.row(i + 2);
      const T p = pivot(i, x.row(i));
      x.row(i) /= p;
    }
  }
};

/// A pivot by which the row can be divided without overflow: one too small grows by `by`, twice as much each time, or
/// is scaled with its row. Source: LAPACK's xLAGTS.
template <class T, class R> T large_enough(T pivot, R&& row, RealOf<T> by) {
  using Real = RealOf<T>;
  constexpr Real kLeast = std::numeric_limits<Real>::min(), kMost = 1 / kLeast;
  const Real largest = row.cwiseAbs().maxCoeff();
  for (by = std::copysign(std::max(by, kLeast), std::real(pivot)); std::abs(pivot) < 1;) {
    const Real size = std::abs(pivot);
    const bool tiny = size < kLeast;
    if (tiny ? size == 0 || largest * kLeast > size : largest > size * kMost) {
      pivot += by;
      by *= 2;
      continue;
    }
    if (tiny) {
      pivot *= kMost;
      row *= kMost;
    }
    break;
  }
  return pivot;
}

template <class T> class TridiagonalSolve final : public ComputeKernel {
 public:
  explicit TridiagonalSolve(const KernelInit& init)
      : pivoting_(init.attr<bool>("partial_pivoting")), perturb_(init.attr<bool>("perturb_singular")) {}
  Status compute(KernelContext& c) override {
    const Tensor &diagonals = c.input(0), &rhs = c.input(1);
    if (perturb_ && !pivoting_) return invalid_argument("perturb_singular needs partial_pivoting");
    TROUPE_ASSIGN(const Matrices a, Matrices::of(diagonals, "diagonals"));
    TROUPE_ASSIGN(const Matrices b, Matrices::of(rhs, "rhs"));
    if (a.rows != 3 || a.columns != b.rows || a.batch != b.batch)
      return invalid_argument("diagonals {} and rhs {} do not fit: [...,3,m] and [...,m,k]", diagonals.shape().str(),
                              rhs.shape().str());
    TROUPE_ASSIGN(Tensor y, c.allocate(rhs.dtype(), rhs.shape()));
    const int64_t count = y.elements() > 0 ? a.count : 0;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), count, 5 * b.rows * b.columns, [&](int64_t i) -> Status {
      auto x = result_matrix<T>(y, i);
      x = b.at<T>(rhs, i);
      Eliminated<T> rows(a.at<T>(diagonals, i), pivoting_, x);
      if (perturb_) {
        const RealOf<T> by = rows.u.cwiseAbs().maxCoeff() * std::numeric_limits<RealOf<T>>::epsilon();
        rows.substitute([&](int64_t k, auto&& row) { return large_enough<T>(rows.u(k, 0), row, by); });
      } else if ((rows.u.col(0).array() == T(0)).any()) {
        x.setConstant(T(std::numeric_limits<RealOf<T>>::quiet_NaN()));
      } else {
        rows.substitute([&](int64_t k, auto&&) { return rows.u(k, 0); });
      }
      return {};
    }));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool pivoting_, perturb_;
};

Status tridiagonal_solve_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices a, PartialMatrices::of(c, 0));
  TROUPE_ASSIGN(const PartialMatrices b, PartialMatrices::of(c, 1));
  if ((a.rows >= 0 && a.rows != 3) || (a.columns >= 0 && b.rows >= 0 && a.columns != b.rows))
    return invalid_argument("diagonals {} and rhs {} do not fit: [...,3,m] and [...,m,k]", c.input(0).str(),
                            c.input(1).str());
  PartialMatrices x;
  TROUPE_ASSIGN(x.batch, PartialShape::merge(a.batch, b.batch));
  TROUPE_ASSIGN(PartialShape out, x.like(std::max(a.columns, b.rows), b.columns));
  c.set_output(0, std::move(out));
  return {};
}

// -- TridiagonalMatMul ------------------------------------------------------------------------------------------------

template <class T> class TridiagonalProduct final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& rhs = c.input(3);
    TROUPE_ASSIGN(const Matrices b, Matrices::of(rhs, "rhs"));
    TROUPE_ASSIGN(const Shape diagonal, b.like(1, b.rows));
    for (int i = 0; i < 3; ++i)
      if (c.input(i).shape() != diagonal)
        return invalid_argument("diagonal {} must have shape {} for rhs {}, not {}", i, diagonal.str(),
                                rhs.shape().str(), c.input(i).shape().str());
    TROUPE_ASSIGN(Tensor y, c.allocate(rhs.dtype(), rhs.shape()));
    const int64_t count = y.elements() > 0 ? b.count : 0, n = b.rows;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), count, 3 * n * b.columns, [&](int64_t i) -> Status {
      const T *above = c.input(0).data<T>() + i * n, *on = c.input(1).data<T>() + i * n,
              *below = c.input(2).data<T>() + i * n;
      const auto x = b.at<T>(rhs, i);
      auto out = result_matrix<T>(y, i);
      for (int64_t k = 0; k < n; ++k) {
        out.row(k) = on[k] * x.row(k);
        if (k + 1 < n) out.row(k) += above[k] * x.row(k + 1);
        if (k > 0) out.row(k) += below[k] * x.row(k - 1);
      }
      return {};
    }));
    c.set_output(0, std::move(y));
    return {};
  }
};

Status tridiagonal_product_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialMatrices x, PartialMatrices::of(c, 3));
  for (int i = 0; i < 3; ++i) {
    TROUPE_ASSIGN(const PartialMatrices d, PartialMatrices::of(c, i));
    if ((d.rows >= 0 && d.rows != 1) || (d.columns >= 0 && x.rows >= 0 && d.columns != x.rows))
      return invalid_argument("diagonal {} of shape {} does not fit rhs {}", i, c.input(i).str(), c.input(3).str());
    TROUPE_ASSIGN(x.batch, PartialShape::merge(x.batch, d.batch));
    x.rows = std::max(x.rows, d.columns);
  }
  TROUPE_ASSIGN(PartialShape out, x.like(x.rows, x.columns));
  c.set_output(0, std::move(out));
  return {};
}

// -- BandedTriangularSolve --------------------------------------------------------------------------------------------

/// A triangular matrix of which `bands` has the diagonals: from the main one down, each from its second element on
/// where it is lower; else from the highest down to the main one, each up to its last but one.
template <class T> struct Bands {
  ConstMatrixView<T> bands;
  bool lower;
  int64_t width() const { return bands.rows(); }
  T at(int64_t i, int64_t j) const { return lower ? bands(i - j, i) : bands(width() - 1 - (j - i), i); }
};

template <class T> void solve_banded(const Bands<T>& a, bool adjoint, MatrixView<T> x) {
  const int64_t n = x.rows();
  const bool forward = a.lower != adjoint;
  const auto element = [&](int64_t i, int64_t j) { return adjoint ? Eigen::numext::conj(a.at(j, i)) : a.at(i, j); };
  for (int64_t s = 0; s < n; ++s) {
    const int64_t i = forward ? s : n - 1 - s;
    for (int64_t t = std::max<int64_t>(0, s - a.width() + 1); t < s; ++t) {
      const int64_t j = forward ? t : n - 1 - t;
      x.row(i) -= element(i, j) * x.row(j);
    }
    x.row(i) /= element(i, i);
  }
}

template <class T> class BandedSolve final : public ComputeKernel {
 public:
  explicit BandedSolve(const KernelInit& init)
      : lower_(init.attr<bool>("lower")), adjoint_(init.attr<bool>("adjoint")) {}
  Status compute(KernelContext& c) override {
    const Tensor &bands = c.input(0), &rhs = c.input(1);
    TROUPE_ASSIGN(const Matrices a, Matrices::of(bands, "matrix"));
    TROUPE_ASSIGN(const Matrices b, Matrices::of(rhs, "rhs"));
    if (a.columns != b.rows)
      return invalid_argument("matrix {} and rhs {} do not fit", bands.shape().str(), rhs.shape().str());
    if (a.rows == 0) return invalid_argument("matrix {} has no bands", bands.shape().str());
    TROUPE_ASSIGN(const Shape batch, broadcast(a.batch, b.batch));
    std::vector<int64_t> sizes(batch.begin(), batch.end());
    sizes.insert(sizes.end(), {b.rows, b.columns});
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, c.allocate(rhs.dtype(), shape));
    if (y.elements() > 0) {
      const auto as = matrix_indices(batch, a.batch.dims()), bs = matrix_indices(batch, b.batch.dims());
      const double work = static_cast<double>(a.rows) * static_cast<double>(b.rows * b.columns);
      TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), batch.elements(), work, [&](int64_t i) -> Status {
        const Bands<T> matrix{a.at<T>(bands, as[i]), lower_};
        for (int64_t k = 0; k < b.rows; ++k)
          if (matrix.at(k, k) == T(0))
            return not_invertible("Input matrix", b.rows, fmt::format(": 0 at [{},{}]", k, k));
        auto x = result_matrix<T>(y, i);
        x = b.at<T>(rhs, bs[i]);
        solve_banded(matrix, adjoint_, x);
        return {};
      }));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool lower_, adjoint_;
};

Status banded_solve_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices a, PartialMatrices::of(c, 0));
  TROUPE_ASSIGN(const PartialMatrices b, PartialMatrices::of(c, 1));
  if (a.rows == 0 || (a.columns >= 0 && b.rows >= 0 && a.columns != b.rows))
    return invalid_argument("matrix {} and rhs {} do not fit", c.input(0).str(), c.input(1).str());
  PartialMatrices x;
  TROUPE_ASSIGN(x.batch, broadcast(a.batch, b.batch));
  TROUPE_ASSIGN(PartialShape out, x.like(std::max(a.columns, b.rows), b.columns));
  c.set_output(0, std::move(out));
  return {};
}

// -- gradients --------------------------------------------------------------------------------------------------------

/// Rows [begin, end) of matrices; up to the last where end is 0, from the end where it is negative.
Output rows_of(GradientContext& c, Output x, int64_t begin, int64_t end) {
  const int64_t b[] = {0, begin, 0}, e[] = {0, end, 0}, s[] = {1, 1, 1};
  return c.op("StridedSlice", {x, int_vector(c, b), int_vector(c, e), int_vector(c, s)},
              {{"ellipsis_mask", int64_t{1}}, {"begin_mask", int64_t{4}}, {"end_mask", int64_t{end == 0 ? 6 : 4}}});
}
Output joined_rows(GradientContext& c, std::vector<Output> parts) {
  parts.push_back(c.constant(Tensor::scalar<int32_t>(-2)));
  return c.op("ConcatV2", parts);
}
/// Row i is row i + 1, and the last one zero.
Output moved_up(GradientContext& c, Output x) {
  return joined_rows(c, {rows_of(c, x, 1, 0), c.op("ZerosLike", {rows_of(c, x, 0, 1)})});
}
Output moved_down(GradientContext& c, Output x) {
  return joined_rows(c, {c.op("ZerosLike", {rows_of(c, x, 0, 1)}), rows_of(c, x, 0, -1)});
}
/// Matrices [m,k] summed along rows, as matrices [1,m].
Output row_sums(GradientContext& c, Output x) {
  const Output last = c.constant(Tensor::scalar<int32_t>(-1));
  return c.op("ExpandDims", {c.op("Sum", {x, last}), c.constant(Tensor::scalar<int32_t>(-2))});
}
/// Matrices [1,m] as matrices [m,1].
Output column(GradientContext& c, Output x) {
  const Output flat = c.op("Squeeze", {x}, {{"squeeze_dims", std::vector<int64_t>{-2}}});
  return c.op("ExpandDims", {flat, c.constant(Tensor::scalar<int32_t>(-1))});
}
Output product(GradientContext& c, Output a, Output b) { return c.op("Mul", {a, b}); }
Output sum(GradientContext& c, Output a, Output b) { return c.op("AddV2", {a, b}); }

Status tridiagonal_product_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output g = c.dy(0), x = conj(c, c.input(3));
  c.set_dx(0, row_sums(c, product(c, moved_up(c, x), g)));
  c.set_dx(1, row_sums(c, product(c, x, g)));
  c.set_dx(2, row_sums(c, product(c, moved_down(c, x), g)));
  const auto times = [&](int i) { return product(c, column(c, conj(c, c.input(i))), g); };
  c.set_dx(3, sum(c, sum(c, moved_down(c, times(0)), times(1)), moved_up(c, times(2))));
  return {};
}

Status tridiagonal_solve_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const auto& attrs = c.node().attrs();
  const auto columns_moved = [&](Output row, bool left) {  // of [1,m], by one, a zero in the free place
    const Output moved = left ? moved_up(c, column(c, row)) : moved_down(c, column(c, row));
    const Output flat = c.op("Squeeze", {moved}, {{"squeeze_dims", std::vector<int64_t>{-1}}});
    return c.op("ExpandDims", {flat, c.constant(Tensor::scalar<int32_t>(-2))});
  };
  const Output a = conj(c, c.input(0)), x = conj(c, c.output(0));
  const Output adjoint = joined_rows(
      c, {columns_moved(rows_of(c, a, 2, 0), true), rows_of(c, a, 1, 2), columns_moved(rows_of(c, a, 0, 1), false)});
  const Output db = c.op("TridiagonalSolve", {adjoint, c.dy(0)},
                         {{"partial_pivoting", attrs.get_or("partial_pivoting", true)},
                          {"perturb_singular", attrs.get_or("perturb_singular", false)}});
  const auto diagonal = [&](Output moved) { return row_sums(c, product(c, db, moved)); };
  c.set_dx(0, c.op("Neg", {joined_rows(c, {diagonal(moved_up(c, x)), diagonal(x), diagonal(moved_down(c, x))})}));
  c.set_dx(1, db);
  return {};
}

Status banded_solve_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const bool adjoint = c.node().attrs().get_or("adjoint", false), lower = c.node().attrs().get_or("lower", true);
  const Output a = c.input(0), b = c.input(1), x = c.output(0);
  const Output db = c.op("BandedTriangularSolve", {a, c.dy(0)}, {{"lower", lower}, {"adjoint", !adjoint}});
  const Output da = adjoint ? matrix_product(c, x, db, false, true) : matrix_product(c, db, x, false, true);
  const int64_t from[] = {-2}, to[] = {-1}, one[] = {1}, none[] = {0};
  const Output bands =
      c.op("StridedSlice", {c.op("Shape", {a}), int_vector(c, from), int_vector(c, to), int_vector(c, one)});
  const Output furthest = lower ? c.op("Sub", {int_vector(c, one), bands}) : c.op("Sub", {bands, int_vector(c, one)});
  const Output main = int_vector(c, none), axis = c.constant(Tensor::scalar<int32_t>(0));
  const Output range = lower ? c.op("ConcatV2", {furthest, main, axis}) : c.op("ConcatV2", {main, furthest, axis});
  const Output parts = c.op("MatrixDiagPartV3", {c.op("Neg", {da}), range, scalar_like(c, a.dtype(), 0)},
                            {{"align", std::string("LEFT_RIGHT")}});
  c.set_dx(0, sum_batches(c, parts, a, b));
  c.set_dx(1, sum_batches(c, db, b, a));
  return {};
}

}  // namespace

void register_banded_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("TridiagonalSolve")
              .input("diagonals: T")
              .input("rhs: T")
              .output("output: T")
              .attr("partial_pivoting: bool = true")
              .attr("perturb_singular: bool = false")
              .attr(type_attr("T", TypeList<double, float, complex64, complex128>{}))
              .shape(tridiagonal_solve_shape)
              .doc("The x of matrix * x = rhs for matrices given by `diagonals` [...,3,m]: above the main one, whose "
                   "last element is not looked at, the main one, and below it, whose first is not. Without "
                   "partial_pivoting rows stay in their order. A matrix without an inverse gives NaN; with "
                   "perturb_singular pivots near 0 are changed a little."),
          gradient(tridiagonal_solve_gradient));
  ops.add(OpDef("TridiagonalMatMul")
              .input("superdiag: T")
              .input("maindiag: T")
              .input("subdiag: T")
              .input("rhs: T")
              .output("output: T")
              .attr(type_attr("T", TypeList<double, float, complex64, complex128>{}))
              .shape(tridiagonal_product_shape)
              .doc("The product of a matrix with rhs [...,m,k], given by its diagonals [...,1,m]: above the main one, "
                   "whose last element is not looked at, the main one, and below it, whose first is not."),
          gradient(tridiagonal_product_gradient));
  ops.add(OpDef("BandedTriangularSolve")
              .input("matrix: T")
              .input("rhs: T")
              .output("output: T")
              .attr("lower: bool = true")
              .attr("adjoint: bool = false")
              .attr(type_attr("T", LinearOrHalfTypes{}))
              .shape(banded_solve_shape)
              .doc("MatrixTriangularSolve for matrices given by their diagonals [...,bands,m]: of lower ones from the "
                   "main one down, each at the end of its row, else from the highest down to the main one, each at "
                   "the start. Error for a 0 on the main one."),
          gradient(banded_solve_gradient));
  add_cpu_kernels<TridiagonalSolve>(kernels, "TridiagonalSolve", LinearTypes{});
  add_cpu_kernels<TridiagonalProduct>(kernels, "TridiagonalMatMul", LinearTypes{});
  add_cpu_kernels<BandedSolve>(kernels, "BandedTriangularSolve", LinearTypes{});
  add_half_kernels<BandedSolve<float>>(kernels, "BandedTriangularSolve");
}

}  // namespace troupe
