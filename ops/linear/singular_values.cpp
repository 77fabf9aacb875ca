// SPDX-License-Identifier: Apache-2.0
// Real ones by Eigen, as in TensorFlow, which gives u and v the same signs. Complex ones, for which it takes minutes to
// compile, by Jacobi's rotations. Source: Demmel and Veselic, "Jacobi's method is more accurate than QR", 1992.
#include "ops/linear/singular_values.h"

#include <Eigen/SVD>
#include <cmath>
#include <functional>
#include <numeric>

#include "ops/linear/reflections.h"

namespace troupe {
namespace {

template <class T> MatrixView<T> view(Matrix<T>& m) { return {m.data(), m.rows(), m.cols()}; }

/// Turns pairs of rows of m, and those of g with them, until all rows of m are orthogonal.
template <class T> void orthogonalize(Matrix<T>& m, Matrix<T>& g) {
  constexpr int kMostSweeps = 40;      // about six are needed
  constexpr double kNothing = 1e-290;  // of rows whose longest has a length near 1
  const int64_t n = m.rows();
  const double tolerance = std::numeric_limits<double>::epsilon() * std::sqrt(static_cast<double>(n));
  std::vector<double> squares(static_cast<size_t>(n));  // of the lengths of the rows
  bool turned = true;
  for (int sweep = 0; sweep < kMostSweeps && turned; ++sweep) {
    turned = false;
    for (int64_t i = 0; i < n; ++i) squares[i] = m.row(i).squaredNorm();
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) {
        const double p = squares[i], q = squares[j];
        const T product = m.row(j).dot(m.row(i));
        const double size = std::abs(product);
        if (size <= kNothing || size <= tolerance * std::sqrt(p) * std::sqrt(q)) continue;
        const double zeta = (q - p) / (2 * size);
        const double t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
        const double c = 1 / std::hypot(1.0, t);
        const Eigen::JacobiRotation<T> turn(T(c), Eigen::numext::conj(product / size) * (-c * t));
        m.applyOnTheLeft(i, j, turn);
        if (g.rows() > 0) g.applyOnTheLeft(i, j, turn);
        const auto follow = [&](int64_t row, double square) {  // where much is cancelled it is computed anew
          squares[row] = square > squares[row] / 8 ? square : m.row(row).squaredNorm();
        };
        follow(i, p - t * size);
        follow(j, q + t * size);
        turned = true;
      }
  }
}

/// False: Eigen's method did not come to an end.
bool by_eigen(const Matrix<double>& x, bool vectors, bool full, SingularValues<double>& out) {
  const unsigned options = !vectors ? 0U
                           : full   ? Eigen::ComputeFullU | Eigen::ComputeFullV
                                    : Eigen::ComputeThinU | Eigen::ComputeThinV;
  const Eigen::BDCSVD<Matrix<double>> found(x, options);
  if (found.info() != Eigen::Success || !found.singularValues().allFinite()) return false;
  out.s.assign(found.singularValues().begin(), found.singularValues().end());
  if (!vectors) return true;
  out.u = found.matrixU();
  out.v = found.matrixV();
  return out.u.allFinite() && out.v.allFinite();
}

}  // namespace

double power_of_two(double largest) {
  int exponent = 0;
  (void)std::frexp(largest, &exponent);
  return std::ldexp(1.0, std::clamp(exponent, -1000, 1000));
}

template <class T> SingularValues<T>::SingularValues(Matrix<T> x, bool vectors, bool full) {
  if constexpr (!is_complex_type<T>)
    if (by_eigen(x, vectors, full, *this)) return;
  s.clear();
  const bool wide = x.rows() < x.cols();  // then the adjoint is taken, which has u and v exchanged
  if (wide) x.adjointInPlace();
  const int64_t rows = x.rows(), n = x.cols();
  const double scale = power_of_two(x.cwiseAbs().maxCoeff());
  x /= T(scale);
  const Reflections<T> outer(std::move(x));
  Matrix<T> r(n, n), g;
  outer.r(view(r));
  if (vectors) g.setIdentity(n, n);
  orthogonalize(r, g);  // r is now g * r: its rows are s * adjoint(v)

  std::vector<double> lengths(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) lengths[k] = r.row(k).norm();
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](int64_t k) { return lengths[k]; });
  for (int64_t k : order) s.push_back(lengths[k] * scale);
  if (!vectors) return;

  // Reflections make columns of length 1 of rows of length 0 too, but may turn the sign.
  Matrix<T> columns(n, n);
  for (int64_t k = 0; k < n; ++k) columns.col(k) = r.row(order[k]).adjoint();
  const Reflections<T> inner(std::move(columns));
  v.resize(n, n);
  inner.q(view(v));
  inner.r(view(r));
  for (int64_t k = 0; k < n; ++k)
    if (std::real(r(k, k)) < 0) v.col(k) = -v.col(k);
  u.setIdentity(rows, full ? rows : n);
  for (int64_t k = 0; k < n; ++k) u.col(k).head(n) = g.row(order[k]).adjoint();
  outer.multiply(view(u));
  if (wide) std::swap(u, v);
}

template struct SingularValues<double>;
template struct SingularValues<std::complex<double>>;

}  // namespace troupe
