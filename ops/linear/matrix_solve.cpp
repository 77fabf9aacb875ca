// SPDX-License-Identifier: Apache-2.0
// Linear equations: MatrixSolve, MatrixTriangularSolve. MatrixSolveLs is in least_squares.cpp.
#include "ops/linear/equations.h"
#include "ops/linear/factors.h"
#include "ops/linear/matrix_batch.h"
#include "ops/linear/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

template <class T> class MatrixSolve final : public ComputeKernel {
 public:
  explicit MatrixSolve(const KernelInit& init) : adjoint_(init.attr<bool>("adjoint")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Equations e, Equations::of(c, true, false));
    TROUPE_ASSIGN(Tensor y, c.allocate(c.input(0).dtype(), e.x));
    const int64_t n = e.a.rows;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), y.elements() ? e.a.count : 0, e.work(), [&](int64_t i) -> Status {
      Matrix<T> a = e.a.at<T>(c.input(0), i);
      if (adjoint_) a.adjointInPlace();
      const LuFactors<T> lu(std::move(a));
      if (!lu.invertible()) return not_invertible("Input matrix", n);
      lu.solve(e.b.at<T>(c.input(1), i), result_matrix<T>(y, i));
      return {};
    }));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool adjoint_;
};

template <class T> class TriangularSolve final : public ComputeKernel {
 public:
  explicit TriangularSolve(const KernelInit& init)
      : lower_(init.attr<bool>("lower")), adjoint_(init.attr<bool>("adjoint")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Equations e, Equations::of(c, true, true));
    TROUPE_ASSIGN(Tensor y, c.allocate(c.input(0).dtype(), e.x));
    const int64_t n = e.a.rows;
    TROUPE_RETURN_IF_ERROR(
        each_matrix(c.threads(), y.elements() ? e.batch.elements() : 0, e.work(), [&](int64_t i) -> Status {
          const auto a = e.a.at<T>(c.input(0), e.as[i]);
          for (int64_t k = 0; k < n; ++k)
            if (a(k, k) == T(0)) return not_invertible("Input matrix", n, fmt::format(": 0 at [{},{}]", k, k));
          auto x = result_matrix<T>(y, i);
          x = e.b.at<T>(c.input(1), e.bs[i]);
          solve_triangular<T>(a, lower_, adjoint_, x);
          return {};
        }));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool lower_, adjoint_;
};

// --- gradients ---

Status solve_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const bool adjoint = c.node().attrs().get_or("adjoint", false);
  const Output x = c.output(0), db = c.op("MatrixSolve", {c.input(0), c.dy(0)}, {{"adjoint", !adjoint}});
  c.set_dx(0, c.op("Neg", {adjoint ? matrix_product(c, x, db, false, true) : matrix_product(c, db, x, false, true)}));
  c.set_dx(1, db);
  return {};
}

Status triangular_solve_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const bool adjoint = c.node().attrs().get_or("adjoint", false), lower = c.node().attrs().get_or("lower", true);
  const Output a = c.input(0), b = c.input(1), x = c.output(0);
  const Output db = c.op("MatrixTriangularSolve", {a, c.dy(0)}, {{"lower", lower}, {"adjoint", !adjoint}});
  const Output da = adjoint ? matrix_product(c, x, db, false, true) : matrix_product(c, db, x, false, true);
  c.set_dx(0, sum_batches(c, triangle(c, c.op("Neg", {da}), lower), a, b));
  c.set_dx(1, sum_batches(c, db, b, a));
  return {};
}

}  // namespace

void register_matrix_solve_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string type = type_attr("T", LinearOrHalfTypes{});
  ops.add(OpDef("MatrixSolve")
              .input("matrix: T")
              .input("rhs: T")
              .output("output: T")
              .attr("adjoint: bool = false")
              .attr(type)
              .shape([](ShapeContext& c) { return solve_shape(c, true, false); })
              .doc("The x of matrix * x = rhs, or of adjoint(matrix) * x = rhs, for each matrix in the last two "
                   "dimensions. Error where a matrix has no inverse."),
          gradient(solve_gradient));
  ops.add(OpDef("MatrixTriangularSolve")
              .input("matrix: T")
              .input("rhs: T")
              .output("output: T")
              .attr("lower: bool = true")
              .attr("adjoint: bool = false")
              .attr(type_attr("T", TypeList<bfloat16, double, float, float16, complex64, complex128>{}))
              .shape([](ShapeContext& c) { return solve_shape(c, true, true); })
              .doc("MatrixSolve for matrices of which only the lower or the upper triangle is looked at. The "
                   "dimensions before the last two broadcast. Error for a 0 on the diagonal."),
          gradient(triangular_solve_gradient));
  add_cpu_kernels<MatrixSolve>(kernels, "MatrixSolve", LinearTypes{});
  add_cpu_kernels<TriangularSolve>(kernels, "MatrixTriangularSolve", LinearTypes{});
  add_half_kernels<MatrixSolve<float>>(kernels, "MatrixSolve");
  add_half_kernels<TriangularSolve<float>>(kernels, "MatrixTriangularSolve");
}

}  // namespace troupe
