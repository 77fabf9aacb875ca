// SPDX-License-Identifier: Apache-2.0
// Triangular factors of square matrices, and the equations that these solve. All loops go along rows.
#pragma once
#include <numeric>
#include <vector>

#include "ops/linear/matrices.h"
#include "ops/linear/rows.h"

namespace troupe {

/// Solves triangle(a) x = b in place of b, or adjoint(triangle(a)) x = b. The diagonal has no zeros.
template <class T> void solve_triangular(const ConstMatrixView<T>& a, bool lower, bool adjoint, MatrixView<T> x) {
  const int64_t n = a.rows();
  const bool forward = lower != adjoint;
  const auto element = [&](int64_t i, int64_t j) { return adjoint ? Eigen::numext::conj(a(j, i)) : a(i, j); };
  std::vector<T> factors(static_cast<size_t>(n));
  for (int64_t s = 0; s < n; ++s) {
    const int64_t i = forward ? s : n - 1 - s, apart = forward ? x.cols() : -x.cols();
    for (int64_t t = 0; t < s; ++t) factors[t] = element(i, forward ? t : n - 1 - t);
    subtract_rows(x.row(i).data(), factors.data(), x.row(forward ? 0 : n - 1).data(), apart, s, x.cols());
    x.row(i) /= element(i, i);
  }
}

/// The l and u of l * u = x with some of its rows exchanged, where l has 1 on the diagonal.
template <class T> class LuFactors {
 public:
  /// Rows are exchanged so that each pivot is the largest of its column.
  explicit LuFactors(Matrix<T> x) : lu_(std::move(x)), rows_(static_cast<size_t>(lu_.rows())) {
    constexpr int64_t kBlock = 32;  // columns after which the rest of the matrix follows
    const int64_t n = lu_.rows();
    std::iota(rows_.begin(), rows_.end(), int64_t{0});
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, n);
      for (int64_t k = begin; k < end; ++k) {
        exchange(k);
        if (lu_(k, k) == T(0)) continue;
        for (int64_t i = k + 1; i < n; ++i) {
          lu_(i, k) /= lu_(k, k);
          subtract(i, k, k + 1, k + 1, end);
        }
      }
      for (int64_t i = begin + 1; i < n; ++i) subtract(i, begin, std::min(i, end), end, n);
    }
  }
  /// l below the diagonal and u from it on.
  const Matrix<T>& packed() const { return lu_; }
  /// By row of l * u, that of the matrix.
  const std::vector<int64_t>& rows() const { return rows_; }
  T pivot(int64_t i) const { return lu_(i, i); }
  /// Whether the number of exchanges is odd.
  bool odd() const { return odd_; }
  bool invertible() const {
    for (int64_t i = 0; i < lu_.rows(); ++i)
      if (!(std::abs(pivot(i)) > 0)) return false;
    return true;
  }
  /// The solution of matrix * x = b. There must be one.
  template <class B> void solve(const B& b, MatrixView<T> x) const {
    const int64_t n = lu_.rows();
    for (int64_t i = 0; i < n; ++i) {
      x.row(i) = b.row(rows_[i]);
      subtract_rows(x.row(i).data(), lu_.row(i).data(), x.data(), x.cols(), i, x.cols());
    }
    for (int64_t i = n - 1; i >= 0; --i) {
      if (i + 1 < n)
        subtract_rows(x.row(i).data(), lu_.row(i).data() + i + 1, x.row(i + 1).data(), x.cols(), n - 1 - i, x.cols());
      x.row(i) /= lu_(i, i);
    }
  }

 private:
  void exchange(int64_t k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < lu_.rows(); ++i)
      if (std::abs(lu_(i, k)) > std::abs(lu_(pivot, k))) pivot = i;
    if (pivot == k) return;
    lu_.row(k).swap(lu_.row(pivot));
    std::swap(rows_[k], rows_[pivot]);
    odd_ = !odd_;
  }
  /// Takes rows [first, last) times the factors in their columns from columns [from, to) of row i.
  void subtract(int64_t i, int64_t first, int64_t last, int64_t from, int64_t to) {
    T* const row = lu_.row(i).data();
    subtract_rows(row + from, row + first, lu_.row(first).data() + from, lu_.cols(), last - first, to - from);
  }

  Matrix<T> lu_;
  std::vector<int64_t> rows_;  // by row of lu, that of the matrix
  bool odd_ = false;
};

/// The lower triangular l with l * adjoint(l) = x, in place; only the lower triangle of x is looked at. False, with
/// something in place of x, where x is not positive definite.
template <class T> bool cholesky(MatrixView<T> x) {
  for (int64_t i = 0; i < x.rows(); ++i) {
    for (int64_t j = 0; j < i; ++j) x(i, j) = (x(i, j) - x.row(j).head(j).dot(x.row(i).head(j))) / x(j, j);
    const auto square = std::real(x(i, i)) - x.row(i).head(i).squaredNorm();
    if (!(square > 0)) return false;
    x(i, i) = std::sqrt(square);
    x.row(i).tail(x.cols() - i - 1).setZero();
  }
  return true;
}

}  // namespace troupe
