// SPDX-License-Identifier: Apache-2.0
// SelfAdjointEigV2: eigenvalues and eigenvectors of Hermitian matrices.
#include <Eigen/Eigenvalues>
#include <limits>

#include "ops/linear/matrices.h"
#include "ops/linear/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

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
      // In the type itself by Eigen, as in TensorFlow, which gives the vectors the same signs.
      const Eigen::SelfAdjointEigenSolver<Matrix<T>> found(
          a, vectors_ ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
      if (found.info() != Eigen::Success)
        return invalid_argument("the eigenvalues of the matrix [{},{}] were not found", n, n);
      for (int64_t k = 0; k < n; ++k) e.mutable_data<T>()[i * n + k] = T(found.eigenvalues()[k]);
      if (vectors_) result_matrix<T>(v, i) = found.eigenvectors();
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
