// SPDX-License-Identifier: Apache-2.0
// Cholesky decompositions of Hermitian matrices, and their gradient. Source: Murray, "Differentiation of the Cholesky
// decomposition", 2016.
#include <limits>

#include "ops/linear/factors.h"
#include "ops/linear/matrices.h"
#include "ops/linear/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

template <class T> class Cholesky final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input", true));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    const int64_t n = m.rows;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), n ? m.count : 0, n * n * n / 3, [&](int64_t i) -> Status {
      auto l = result_matrix<T>(y, i);
      l = m.at<T>(x, i);
      if (cholesky<T>(l)) return {};
      l.setZero();  // TensorFlow's answer, which its least squares count on
      for (int64_t k = 0; k < n; ++k) l.row(k).head(k + 1).setConstant(T(std::numeric_limits<float>::quiet_NaN()));
      return {};
    }));
    c.set_output(0, std::move(y));
    return {};
  }
};

/// The gradient by the input, from the result l and its gradient: l^-H p l^-1 made symmetric, where p is the lower
/// triangle of l^H g with half its diagonal.
template <class T> class CholeskyGrad final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &l = c.input(0), &g = c.input(1);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(l, "l", true));
    if (l.shape() != g.shape()) return invalid_argument("l {} and grad {} differ", l.shape().str(), g.shape().str());
    TROUPE_ASSIGN(Tensor y, c.allocate(l.dtype(), l.shape()));
    const int64_t n = m.rows;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), n ? m.count : 0, 2 * n * n * n, [&](int64_t i) -> Status {
      const auto factor = m.at<T>(l, i), grad = m.at<T>(g, i);
      Matrix<T> p = Matrix<T>::Zero(n, n);
      for (int64_t k = 0; k < n; ++k)
        for (int64_t row = 0; row <= k; ++row) p.row(row).head(row + 1) += factor(k, row) * grad.row(k).head(row + 1);
      p.diagonal() *= T(0.5);
      for (int side = 0; side < 2; ++side) {
        solve_triangular<T>(factor, true, true, {p.data(), n, n});
        p.transposeInPlace();
      }
      result_matrix<T>(y, i) = T(0.5) * (p + p.transpose());
      return {};
    }));
    c.set_output(0, std::move(y));
    return {};
  }
};

Status cholesky_grad_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices m, PartialMatrices::of(c, 0, true));
  TROUPE_ASSIGN(PartialShape l, m.like(m.rows, m.columns));
  TROUPE_ASSIGN(l, PartialShape::merge(l, c.input(1)));
  c.set_output(0, std::move(l));
  return {};
}

/// As CholeskyGrad, in nodes, so that it differentiates again and takes complex numbers.
Status cholesky_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  TROUPE_RETURN_IF_ERROR(needs_rank(c.input(0)));
  const Output l = c.output(0);
  const auto solve = [&](Output x) { return c.op("MatrixTriangularSolve", {l, x}, {{"adjoint", true}}); };
  const Output p = scaled_diagonal(c, triangle(c, matrix_product(c, l, c.dy(0), true), true), 0.5);
  const Output s = solve(adjoint(c, solve(p)));
  c.set_dx(0, c.op("Mul", {c.op("AddV2", {s, adjoint(c, s)}), scalar_like(c, s.dtype(), 0.5)}));
  return {};
}

}  // namespace

void register_cholesky_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Cholesky")
              .input("input: T")
              .output("output: T")
              .attr(type_attr("T", LinearOrHalfTypes{}))
              .shape(square_shape)
              .doc("The lower triangular l with l * adjoint(l) = input, for each matrix in the last two dimensions; "
                   "only the lower triangle of the input is looked at. NaN where it is not positive definite."),
          gradient(cholesky_gradient));
  ops.add(OpDef("CholeskyGrad")
              .input("l: T")
              .input("grad: T")
              .output("output: T")
              .attr(type_attr("T", TypeList<float16, float, double>{}))
              .shape(cholesky_grad_shape)
              .doc("The gradient of Cholesky, from its result l and the gradient by that."),
          undefined_gradient());
  add_cpu_kernels<Cholesky>(kernels, "Cholesky", LinearTypes{});
  add_half_kernels<Cholesky<float>>(kernels, "Cholesky");
  add_cpu_kernels<CholeskyGrad>(kernels, "CholeskyGrad", FullFloatTypes{});
  add_half_kernels<CholeskyGrad<float>>(kernels, "CholeskyGrad");
}

}  // namespace troupe
