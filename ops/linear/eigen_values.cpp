// SPDX-License-Identifier: Apache-2.0
// SelfAdjointEigV2: eigenvalues and eigenvectors of Hermitian matrices.
#include <Eigen/Jacobi>
#include <limits>
#include <numeric>

#include "ops/linear/register.h"
#include "ops/linear/singular_values.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

/// A Hermitian matrix, of which only the lower triangle is looked at, by Householder's reflections from both sides,
/// which make it tridiagonal, and QL steps. Source: Wilkinson and Reinsch, "Linear Algebra", 1971. T is double or
/// complex numbers of these.
template <class T> class Hermitian {
 public:
  std::vector<double> values;  // ascending
  Matrix<T> vectors;           // row i belongs to value order[i]; empty where they are not asked for
  std::vector<int64_t> order;

  /// `found` tells whether all goes well.
  Hermitian(Matrix<T> a, bool with_vectors, bool& found) {
    const int64_t n = a.rows();
    for (int64_t i = 0; i < n; ++i) {
      a(i, i) = std::real(a(i, i));
      for (int64_t j = 0; j < i; ++j) a(j, i) = Eigen::numext::conj(a(i, j));
    }
    const double scale = power_of_two(a.cwiseAbs().maxCoeff());
    a /= T(scale);
    std::vector<T> scales(static_cast<size_t>(n));
    for (int64_t k = 0; k + 1 < n; ++k) scales[k] = eliminate(a, k);
    std::vector<double> diagonal, beside;
    for (int64_t i = 0; i < n; ++i) {
      diagonal.push_back(std::real(a(i, i)));
      beside.push_back(i + 1 < n ? std::real(a(i, i + 1)) : 0);
    }
    if (with_vectors) start_vectors(a, scales);
    found = diagonalize(diagonal, beside);
    order.resize(diagonal.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, {}, [&](int64_t k) { return diagonal[k]; });
    for (int64_t k : order) values.push_back(diagonal[k] * scale);
  }

 private:
  using Row = Eigen::Matrix<T, 1, Eigen::Dynamic>;

  /// A reflection I - scale * v v^H of rows and columns behind k leaves of column k only the real number below the
  /// diagonal, which is put above it; v replaces the column, and scale is returned.
  static T eliminate(Matrix<T>& a, int64_t k) {
    const int64_t m = a.rows() - k - 1;
    const T head = a(k + 1, k);
    const double tail = a.col(k).tail(m - 1).squaredNorm();
    if (tail == 0 && std::imag(head) == 0) {
      a(k, k + 1) = head;
      return T(0);
    }
    const double size = std::sqrt(std::norm(head) + tail), to = std::real(head) >= 0 ? -size : size;
    a.col(k).tail(m - 1) /= head - to;
    a(k + 1, k) = 1;
    a(k, k + 1) = to;
    const T scale = Eigen::numext::conj((to - head) / to);
    const Row v = a.col(k).tail(m).transpose();
    Row w(m);
    for (int64_t i = 0; i < m; ++i) w(i) = a.row(k + 1 + i).tail(m).cwiseProduct(v).sum();
    w *= Eigen::numext::conj(scale);
    w -= T(std::real(scale * v.dot(w)) / 2) * v;
    const Row vh = v.conjugate(), wh = w.conjugate();
    for (int64_t i = 0; i < m; ++i) a.row(k + 1 + i).tail(m) -= v(i) * wh + w(i) * vh;
    return scale;
  }
  /// The transpose of the product of the reflections' adjoints.
  void start_vectors(const Matrix<T>& a, const std::vector<T>& scales) {
    const int64_t n = a.rows();
    vectors.setIdentity(n, n);
    for (int64_t k = n - 2; k >= 0; --k) {
      if (scales[k] == T(0)) continue;
      const int64_t m = n - k - 1;
      Row sums = Row::Zero(m);
      for (int64_t i = k + 1; i < n; ++i) sums += Eigen::numext::conj(a(i, k)) * vectors.row(i).tail(m);
      sums *= Eigen::numext::conj(scales[k]);
      for (int64_t i = k + 1; i < n; ++i) vectors.row(i).tail(m) -= a(i, k) * sums;
    }
    vectors.transposeInPlace();
  }
  /// QL steps with Wilkinson's shift, until nothing is beside the diagonal; false where they do not end.
  bool diagonalize(std::vector<double>& d, std::vector<double>& e) {
    constexpr int kMostSteps = 60;  // for each value; about two are needed
    const auto n = static_cast<int64_t>(d.size());
    const auto counts = [&](int64_t i) {
      return std::abs(e[i]) > std::numeric_limits<double>::epsilon() * (std::abs(d[i]) + std::abs(d[i + 1]));
    };
    for (int64_t first = 0; first < n; ++first)
      for (int step = 0;; ++step) {
        int64_t last = first;
        while (last + 1 < n && counts(last)) ++last;
        if (last == first) break;
        if (step == kMostSteps) return false;
        const double half = (d[first + 1] - d[first]) / (2 * e[first]);
        double g = d[last] - d[first] + e[first] / (half + std::copysign(std::hypot(half, 1.0), half));
        double s = 1, c = 1, p = 0;
        int64_t i = last - 1;
        for (; i >= first; --i) {
          const double f = s * e[i], b = c * e[i];
          e[i + 1] = std::hypot(f, g);
          if (e[i + 1] == 0) break;
          s = f / e[i + 1];
          c = g / e[i + 1];
          const double before = d[i + 1] - p, turned = (d[i] - before) * s + 2 * c * b;
          p = s * turned;
          d[i + 1] = before + p;
          g = c * turned - b;
          if (vectors.rows() > 0) vectors.applyOnTheLeft(i, i + 1, Eigen::JacobiRotation<T>(T(c), T(-s)));
        }
        d[i + 1] -= p;
        if (i < first) e[first] = g;
        e[last] = 0;
      }
    return true;
  }
};

template <class T> class SelfAdjointEig final : public ComputeKernel {
 public:
  explicit SelfAdjointEig(const KernelInit& init) : vectors_(init.attr<bool>("compute_v")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input", true));
    const int64_t n = m.rows;
    TROUPE_ASSIGN(const Shape values, m.like(n));
    TROUPE_ASSIGN(Tensor e, c.allocate(x.dtype(), values));
    TROUPE_ASSIGN(Tensor v, c.allocate(x.dtype(), vectors_ ? x.shape() : Shape{0}));
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), n ? m.count : 0, 9 * n * n * n, [&](int64_t i) -> Status {
      const Matrix<T> a = m.at<T>(x, i);
      if (!a.template triangularView<Eigen::Lower>().toDenseMatrix().allFinite()) {
        const T fill(std::numeric_limits<float>::quiet_NaN());
        std::fill_n(e.mutable_data<T>() + i * n, n, fill);
        if (vectors_) result_matrix<T>(v, i).setConstant(fill);
        return {};
      }
      bool found = false;
      const Hermitian<Wide<T>> eigen(a.template cast<Wide<T>>(), vectors_, found);
      if (!found) return invalid_argument("the eigenvalues of the matrix [{},{}] were not found", n, n);
      using Real = typename Eigen::NumTraits<T>::Real;
      for (int64_t k = 0; k < n; ++k) {
        e.mutable_data<T>()[i * n + k] = T(static_cast<Real>(eigen.values[k]));
        if (vectors_) result_matrix<T>(v, i).col(k) = eigen.vectors.row(eigen.order[k]).transpose().template cast<T>();
      }
      return {};
    }));
    c.set_output(0, std::move(e));
    c.set_output(1, std::move(v));
    return {};
  }

 private:
  const bool vectors_;
};

/// v (de + f .* (v^H dv)) v^H with f = 1 / (e_j - e_i), of which the lower triangle is all that counts.
Status self_adjoint_eig_gradient(GradientContext& c) {
  TROUPE_RETURN_IF_ERROR(needs_rank(c.input(0)));
  const bool vectors = c.node().attrs().get_or("compute_v", true);
  const Output e = c.output(0), de = c.dy(0), dv = vectors ? c.dy(1) : Output();
  if (!de && !dv) return {};
  const auto all = vectors ? std::vector<Output>{e, c.output(1)} : c.ops("SelfAdjointEigV2", {c.input(0)});
  if (all.size() != 2) return {};
  const Output v = all[1];
  Output inner = de ? c.op("MatrixDiag", {de}) : Output();
  if (dv) {
    const Output f = reciprocal_differences(c, e), turn = c.op("Mul", {f, matrix_product(c, v, dv, true)});
    inner = inner ? c.op("AddV2", {inner, turn}) : turn;
  }
  const Output g = matrix_product(c, v, matrix_product(c, inner, v, false, true));
  c.set_dx(0, scaled_diagonal(c, triangle(c, c.op("AddV2", {g, adjoint(c, g)}), true), 0.5));
  return {};
}

}  // namespace

void register_eigen_values_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("SelfAdjointEigV2")
              .input("input: T")
              .output("e: T")
              .output("v: T")
              .attr("compute_v: bool = true")
              .attr(type_attr("T", LinearOrHalfTypes{}))
              .shape(eigen_shape)
              .doc("Eigenvalues, the lowest first, and eigenvectors as columns, of each Hermitian matrix in the last "
                   "two dimensions, of which only the lower triangle is looked at. Without compute_v v is empty. A "
                   "matrix that is not finite gives NaN."),
          gradient(self_adjoint_eig_gradient));
  add_cpu_kernels<SelfAdjointEig>(kernels, "SelfAdjointEigV2", LinearTypes{});
  add_half_kernels<SelfAdjointEig<float>>(kernels, "SelfAdjointEigV2");
}

}  // namespace troupe
