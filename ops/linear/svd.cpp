// SPDX-License-Identifier: Apache-2.0
// Singular value decompositions, and their gradient. Source of the latter: Wan and Zhang, "Automatic differentiation
// for complex valued SVD", 2019.
#include <complex>
#include <numeric>

#include "ops/linear/matrices.h"
#include "ops/linear/register.h"
#include "ops/linear/singular_values.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

template <class T> class Svd final : public ComputeKernel {
 public:
  explicit Svd(const KernelInit& init)
      : vectors_(init.attr<bool>("compute_uv")), full_(init.attr<bool>("full_matrices")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input"));
    const int64_t least = std::min(m.rows, m.columns);
    TROUPE_ASSIGN(const Shape values, m.like(least));
    TROUPE_ASSIGN(const Shape left, vectors_ ? m.like(m.rows, full_ ? m.rows : least) : Shape{0});
    TROUPE_ASSIGN(const Shape right, vectors_ ? m.like(m.columns, full_ ? m.columns : least) : Shape{0});
    TROUPE_ASSIGN(Tensor s, c.allocate(x.dtype(), values));
    TROUPE_ASSIGN(Tensor u, c.allocate(x.dtype(), left));
    TROUPE_ASSIGN(Tensor v, c.allocate(x.dtype(), right));
    const bool any = s.elements() + u.elements() + v.elements() > 0;
    const double work = 40.0 * static_cast<double>(least) * static_cast<double>(m.rows * m.columns + 1);
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), any ? m.count : 0, work, [&](int64_t i) -> Status {
      decompose(m.at<T>(x, i), s.mutable_data<T>() + i * least, u, v, i);
      return {};
    }));
    c.set_output(0, std::move(s));
    c.set_output(1, std::move(u));
    c.set_output(2, std::move(v));
    return {};
  }

 private:
  /// A matrix that is not finite has only NaN to give.
  void decompose(const ConstMatrixView<T>& x, T* s, Tensor& u, Tensor& v, int64_t i) const {
    using Real = typename Eigen::NumTraits<T>::Real;
    const int64_t least = std::min(x.rows(), x.cols());
    if (least == 0 || !x.allFinite()) {
      const T fill(std::numeric_limits<Real>::quiet_NaN());
      std::fill_n(s, least, fill);
      for (Tensor* t : {&u, &v}) {
        if (!vectors_) continue;
        if (least == 0) result_matrix<T>(*t, i).setIdentity();
        else result_matrix<T>(*t, i).setConstant(fill);
      }
      return;
    }
    const SingularValues<Wide<T>> d(x.template cast<Wide<T>>(), vectors_, full_);
    for (int64_t k = 0; k < least; ++k) s[k] = T(static_cast<Real>(d.s[k]));
    if (!vectors_) return;
    result_matrix<T>(u, i) = d.u.template cast<T>();
    result_matrix<T>(v, i) = d.v.template cast<T>();
  }

  const bool vectors_, full_;
};

Status svd_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices m, PartialMatrices::of(c, 0));
  const int64_t least = m.rows >= 0 && m.columns >= 0 ? std::min(m.rows, m.columns) : -1;
  TROUPE_ASSIGN(PartialShape s, m.like(least));
  c.set_output(0, std::move(s));
  PartialShape u{0}, v{0};
  if (c.attr<bool>("compute_uv")) {
    const bool full = c.attr<bool>("full_matrices");
    TROUPE_ASSIGN(u, m.like(m.rows, full ? m.rows : least));
    TROUPE_ASSIGN(v, m.like(m.columns, full ? m.columns : least));
  }
  c.set_output(1, std::move(u));
  c.set_output(2, std::move(v));
  return {};
}

// --- the gradient ---

/// For a = u s v^H, m x n with m <= n: du has m columns, dv m (or n, full) ones; a missing one is zero.
Output wide_gradient(GradientContext& c, Output s, Output u, Output v, Output ds, Output du, Output dv, int64_t m,
                     int64_t n, bool full) {
  const auto add = [&](Output a, Output b) { return a && b ? c.op("AddV2", {a, b}) : a ? a : b; };
  const auto hermitian = [&](Output x) { return c.op("AddV2", {x, adjoint(c, x)}); };
  const Output v1 = full && n > m ? columns_of(c, v, 0, m) : v;
  const Output dv1 = dv && full && n > m ? columns_of(c, dv, 0, m) : dv;
  const Output diagonal = c.op("MatrixDiag", {s});
  Output inner = ds ? c.op("MatrixDiag", {ds}) : Output();
  const Output f = du || dv ? reciprocal_differences(c, c.op("Square", {s})) : Output();
  if (du) {
    const Output turn = hermitian(c.op("Mul", {f, matrix_product(c, u, du, true)}));
    inner = add(inner, matrix_product(c, turn, diagonal));
  }
  const Output vdv = dv ? matrix_product(c, v1, dv1, true) : Output();
  if (dv) inner = add(inner, matrix_product(c, diagonal, hermitian(c.op("Mul", {f, vdv}))));
  const Output inverse = dv ? c.op("MatrixDiag", {safe_reciprocal(c, s)}) : Output();
  if (dv && is_complex(s.dtype())) {  // the phases of u and v go together
    const Output l = c.op("MatrixDiag", {c.op("MatrixDiagPart", {vdv})});
    const Output phase = matrix_product(c, inverse, c.op("Sub", {adjoint(c, l), l}));
    inner = add(inner, c.op("Mul", {phase, scalar_like(c, s.dtype(), 0.5)}));
  }
  const Output g = matrix_product(c, u, matrix_product(c, inner, v1, false, true));
  if (!dv || m == n) return g;
  const Output row = adjoint(c, dv1);
  Output rest = c.op("Sub", {row, matrix_product(c, matrix_product(c, row, v1), v1, false, true)});
  if (full) {
    const Output v2 = columns_of(c, v, m, n), dv2 = columns_of(c, dv, m, n);
    rest = c.op("Sub", {rest, matrix_product(c, matrix_product(c, v1, dv2, true), v2, false, true)});
  }
  return add(g, matrix_product(c, matrix_product(c, u, inverse), rest));
}

Status svd_gradient(GradientContext& c) {
  const Output a = c.input(0);
  Output ds = c.dy(0);
  if (ds && is_complex(ds.dtype())) {  // s is real whatever its type
    const Output real = real_part(c, ds);
    ds = complex_number(c, real, c.op("ZerosLike", {real}));
  }
  if (!c.node().attrs().get_or("compute_uv", true)) {
    const auto all = ds ? c.ops("Svd", {a}) : std::vector<Output>();
    if (all.size() != 3) return {};
    const Output us = matrix_product(c, all[1], c.op("MatrixDiag", {ds}));
    c.set_dx(0, matrix_product(c, us, all[2], false, true));
    return {};
  }
  const Output du = c.dy(1), dv = c.dy(2);
  if (!ds && !du && !dv) return {};
  const PartialShape& shape = a.shape();
  if (!shape.has_rank() || shape.dim(-1) < 0 || shape.dim(-2) < 0)
    return invalid_argument("the gradient needs known sizes of the matrices");
  const int64_t m = shape.dim(-2), n = shape.dim(-1);
  const bool full = c.node().attrs().get_or("full_matrices", false);
  if (full && std::abs(m - n) > 1)
    return make_error(Code::kUnimplemented, "there is no gradient with full_matrices of {} rows and {} columns", m, n);
  // The adjoint of a has u and v exchanged.
  const Output s = c.output(0), u = c.output(1), v = c.output(2);
  if (m <= n) c.set_dx(0, wide_gradient(c, s, u, v, ds, du, dv, m, n, full));
  else c.set_dx(0, adjoint(c, wide_gradient(c, s, v, u, ds, dv, du, n, m, full)));
  return {};
}

}  // namespace

void register_svd_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Svd")
              .input("input: T")
              .output("s: T")
              .output("u: T")
              .output("v: T")
              .attr("compute_uv: bool = true")
              .attr("full_matrices: bool = false")
              .attr(type_attr("T", LinearOrHalfTypes{}))
              .shape(svd_shape)
              .doc("Singular values s, the largest first, and singular vectors as columns of u and v, with u * diag(s) "
                   "* adjoint(v) = input, for each matrix in the last two dimensions. u and v are square with "
                   "full_matrices, and empty without compute_uv. A matrix that is not finite gives NaN."),
          gradient(svd_gradient));
  add_cpu_kernels<Svd>(kernels, "Svd", LinearTypes{});
  add_half_kernels<Svd<float>>(kernels, "Svd");
}

}  // namespace troupe
