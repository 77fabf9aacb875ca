// SPDX-License-Identifier: Apache-2.0
// Householder's reflections, by which matrices are made triangular.
#pragma once
#include <limits>
#include <vector>

#include "ops/linear/matrices.h"

namespace troupe {

/// Householder's reflections of a matrix, one below the other: r is upper triangular, q * r the matrix.
template <class T> class Reflections {
 public:
  explicit Reflections(Matrix<T> x) : a_(std::move(x)), scales_(static_cast<size_t>(std::min(a_.rows(), a_.cols()))) {
    for (int64_t k = 0; k < count(); ++k) {
      eliminate(k);
      reflect(k, scales_[k], a_, k + 1);
    }
  }
  /// The first rows of r.
  void r(MatrixView<T> out) const {
    out.setZero();
    for (int64_t i = 0; i < std::min<int64_t>(count(), out.rows()); ++i)
      for (int64_t j = i; j < out.cols(); ++j) out(i, j) = a_(i, j);
  }
  /// The first columns of q.
  void q(MatrixView<T> out) const {
    out.setIdentity();
    multiply(out);
  }
  /// q * x in place of x, which has as many rows as the matrix.
  void multiply(MatrixView<T> x) const {
    for (int64_t k = count() - 1; k >= 0; --k) reflect(k, conjugate(scales_[k]), x, 0);
  }

 private:
  using Real = typename Eigen::NumTraits<T>::Real;
  int64_t count() const { return static_cast<int64_t>(scales_.size()); }
  static T conjugate(T x) {
    if constexpr (Eigen::NumTraits<T>::IsComplex) return std::conj(x);
    else return x;
  }

  /// Column k becomes a real number at row k; below it the vector v of the reflection I - scale * v v^H stays, whose
  /// first number is 1.
  void eliminate(int64_t k) {
    Real tail = 0;
    for (int64_t i = k + 1; i < a_.rows(); ++i) tail += std::norm(a_(i, k));
    const T head = a_(k, k);
    const Real imaginary = std::imag(head), least = std::numeric_limits<Real>::min();
    if (tail <= least && imaginary * imaginary <= least) {
      a_(k, k) = std::real(head);
      for (int64_t i = k + 1; i < a_.rows(); ++i) a_(i, k) = 0;
      scales_[k] = 0;
      return;
    }
    const Real size = std::sqrt(std::norm(head) + tail), to = std::real(head) >= 0 ? -size : size;
    for (int64_t i = k + 1; i < a_.rows(); ++i) a_(i, k) /= head - to;
    scales_[k] = conjugate((to - head) / to);
    a_(k, k) = to;
  }

  /// Reflection k of the columns of m from `first` on.
  template <class M> void reflect(int64_t k, T scale, M& m, int64_t first) const {
    const int64_t n = m.cols();
    if (scale == T(0) || first >= n) return;
    std::vector<T> sums(m.row(k).data(), m.row(k).data() + n);
    for (int64_t i = k + 1; i < m.rows(); ++i)
      for (int64_t j = first; j < n; ++j) sums[j] += conjugate(a_(i, k)) * m(i, j);
    for (int64_t j = first; j < n; ++j) m(k, j) -= scale * sums[j];
    for (int64_t i = k + 1; i < m.rows(); ++i)
      for (int64_t j = first; j < n; ++j) m(i, j) -= scale * a_(i, k) * sums[j];
  }

  Matrix<T> a_;
  std::vector<T> scales_;
};

}  // namespace troupe
