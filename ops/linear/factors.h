// SPDX-License-Identifier: Apache-2.0
// Triangular factors of square matrices, and the equations that these solve. All loops go along rows.
#pragma once
#include <numeric>
#include <vector>

#include "ops/linear/matrices.h"

namespace troupe {

/// Solves triangle(a) x = b in place of b, or adjoint(triangle(a)) x = b. The diagonal has no zeros.
template <class T> void solve_triangular(const ConstMatrixView<T>& a, bool lower, bool adjoint, MatrixView<T> x) {
  const int64_t n = a.rows();
  const bool forward = lower != adjoint;
  const auto element = [&](int64_t i, int64_t j) { return adjoint ? Eigen::numext::conj(a(j, i)) : a(i, j); };
  for (int64_t s = 0; s < n; ++s) {
    const int64_t i = forward ? s : n - 1 - s;
    for (int64_t t = 0; t < s; ++t) {
      const int64_t j = forward ? t : n - 1 - t;
      x.row(i) -= element(i, j) * x.row(j);
    }
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
          subtract(i, k, k + 1, end);
        }
      }
      for (int64_t i = begin + 1; i < n; ++i)
        for (int64_t k = begin; k < std::min(i, end); ++k) subtract(i, k, end, n);
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
      for (int64_t k = 0; k < i; ++k) x.row(i) -= lu_(i, k) * x.row(k);
    }
    for (int64_t i = n - 1; i >= 0; --i) {
      for (int64_t k = i + 1; k < n; ++k) x.row(i) -= lu_(i, k) * x.row(k);
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
  /// Takes row k times the factor in column k from columns [from, to) of row i.
  void subtract(int64_t i, int64_t k, int64_t from, int64_t to) {
    lu_.row(i).segment(from, to - from) -= lu_(i, k) * lu_.row(k).segment(from, to - from);
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
