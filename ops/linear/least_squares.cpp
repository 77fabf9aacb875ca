// SPDX-License-Identifier: Apache-2.0
// MatrixSolveLs: linear equations that have more than one solution, or none.
#include "ops/linear/equations.h"
#include "ops/linear/factors.h"
#include "ops/linear/register.h"
#include "ops/linear/singular_values.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

/// Adds adjoint(a) * b to y.
template <class T, class B> void add_adjoint_product(const ConstMatrixView<T>& a, const B& b, MatrixView<T> y) {
  for (int64_t k = 0; k < a.rows(); ++k)
    for (int64_t i = 0; i < a.cols(); ++i) y.row(i) += Eigen::numext::conj(a(k, i)) * b.row(k);
}

/// The lower triangle of adjoint(a) * a, or of a * adjoint(a), whichever is smaller.
template <class T> Matrix<T> gram_matrix(const ConstMatrixView<T>& a) {
  const int64_t n = std::min(a.rows(), a.cols());
  Matrix<T> out = Matrix<T>::Zero(n, n);
  if (a.rows() < a.cols()) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) out(i, j) = a.row(j).dot(a.row(i));
    return out;
  }
  for (int64_t k = 0; k < a.rows(); ++k)
    for (int64_t i = 0; i < n; ++i) out.row(i).head(i + 1) += Eigen::numext::conj(a(k, i)) * a.row(k).head(i + 1);
  return out;
}

/// The shortest of the best x, by singular values; those that rounding may have made count as 0.
template <class T> void solve_any(const ConstMatrixView<T>& a, const ConstMatrixView<T>& b, MatrixView<T> x) {
  using W = Wide<T>;
  const SingularValues<W> d(a.template cast<W>(), true, false);
  const double least = d.s[0] * static_cast<double>(std::max(a.rows(), a.cols())) *
                       static_cast<double>(std::numeric_limits<typename Eigen::NumTraits<T>::Real>::epsilon());
  Matrix<W> sum = Matrix<W>::Zero(x.rows(), x.cols());
  const Matrix<W> wide = b.template cast<W>();
  for (int64_t k = 0; k < d.u.cols() && d.s[k] > least; ++k) {
    Matrix<W> part = Matrix<W>::Zero(1, x.cols());
    for (int64_t i = 0; i < a.rows(); ++i) part += Eigen::numext::conj(d.u(i, k)) / d.s[k] * wide.row(i);
    for (int64_t i = 0; i < x.rows(); ++i) sum.row(i) += d.v(i, k) * part;
  }
  x = sum.template cast<T>();
}

template <class T> class SolveLeastSquares final : public ComputeKernel {
 public:
  explicit SolveLeastSquares(const KernelInit& init) : fast_(init.attr<bool>("fast")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Equations e, Equations::of(c, false, false));
    if (c.input(2).rank() != 0)
      return invalid_argument("l2_regularizer must be a scalar, not {}", c.input(2).shape().str());
    const double penalty = *c.input(2).data<double>();
    if (!(penalty >= 0)) return invalid_argument("l2_regularizer is {}, not 0 or more", penalty);
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(c.input(0).dtype(), e.x, c.device().allocator));
    const bool empty = y.elements() == 0 || e.a.rows == 0;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), empty ? 0 : e.a.count, e.work(), [&](int64_t i) -> Status {
      const auto a = e.a.at<T>(c.input(0), i);
      const auto b = e.b.at<T>(c.input(1), i);
      auto x = result_matrix<T>(y, i);
      if (!fast_) {
        if (!a.allFinite()) x.setConstant(T(std::numeric_limits<float>::quiet_NaN()));
        else solve_any<T>(a, b, x);
        return {};
      }
      // Normal equations of the smaller Gram matrix: (A'A + l I) x = A'b, or x = A'z with (AA' + l I) z = b.
      const bool tall = a.rows() >= a.cols();
      Matrix<T> gram = gram_matrix<T>(a);
      const int64_t n = gram.rows();
      gram.diagonal().array() += T(static_cast<typename Eigen::NumTraits<T>::Real>(penalty));
      if (!cholesky<T>({gram.data(), n, n}))
        return invalid_argument(
            "the matrix [{},{}] is rank-deficient or ill-conditioned: a larger l2_regularizer or fast = false may do",
            a.rows(), a.cols());
      Matrix<T> z = tall ? Matrix<T>(Matrix<T>::Zero(n, b.cols())) : Matrix<T>(b);
      if (tall) add_adjoint_product<T>(a, b, {z.data(), n, b.cols()});
      for (const bool adjoint : {false, true})
        solve_triangular<T>({gram.data(), n, n}, true, adjoint, {z.data(), n, b.cols()});
      if (tall) x = z;
      else add_adjoint_product<T>(a, z, x);  // x is zero
      return {};
    }));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool fast_;
};

Status least_squares_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output a = c.input(0), b = c.input(1), x = c.output(0), g = c.dy(0);
  if (!c.node().attrs().get_or("fast", true))
    return make_error(Code::kUnimplemented, "there is no gradient with fast = false");
  const PartialShape& s = a.shape();
  if (!s.has_rank() || s.dim(-1) < 0 || s.dim(-2) < 0)
    return invalid_argument("the gradient needs known sizes of the matrices");
  const bool tall = s.dim(-2) >= s.dim(-1);
  const Output gram = matrix_product(c, a, a, tall, !tall), diagonal = c.op("MatrixDiagPart", {gram});
  const Output penalty = c.op("Cast", {c.input(2)}, {{"DstT", a.dtype()}});
  const Output normal = c.op("MatrixSetDiag", {gram, c.op("AddV2", {diagonal, penalty})});
  const auto solve = [&](Output rhs) { return c.op("MatrixSolve", {normal, rhs}); };
  if (tall) {
    const Output z = solve(g);
    const Output both = c.op("AddV2", {matrix_product(c, x, z, false, true), matrix_product(c, z, x, false, true)});
    c.set_dx(0, c.op("Sub", {matrix_product(c, b, z, false, true), matrix_product(c, a, both)}));
    c.set_dx(1, matrix_product(c, a, z));
    return {};
  }
  const Output db = solve(matrix_product(c, a, g)), z = solve(b);
  const Output rest = c.op("Sub", {g, matrix_product(c, a, db, true)});
  c.set_dx(0, c.op("Sub", {matrix_product(c, z, rest, false, true), matrix_product(c, db, x, false, true)}));
  c.set_dx(1, db);
  return {};
}

}  // namespace

void register_least_squares_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("MatrixSolveLs")
              .input("matrix: T")
              .input("rhs: T")
              .input("l2_regularizer: float64")
              .output("output: T")
              .attr(type_attr("T", LinearOrHalfTypes{}))
              .attr("fast: bool = true")
              .shape([](ShapeContext& c) { return solve_shape(c, false, false); })
              .doc("The x of least |matrix * x - rhs|^2 + l2_regularizer * |x|^2 for each matrix in the last two "
                   "dimensions, by normal equations; where those have no solution it is an error. Without `fast` by "
                   "singular values, which take any matrix and no l2_regularizer."),
          gradient(least_squares_gradient));
  add_cpu_kernels<SolveLeastSquares>(kernels, "MatrixSolveLs", LinearTypes{});
  add_half_kernels<SolveLeastSquares<float>>(kernels, "MatrixSolveLs");
}

}  // namespace troupe
