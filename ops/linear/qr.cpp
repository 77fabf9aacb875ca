// SPDX-License-Identifier: Apache-2.0
// QR decompositions, and their gradient. Source: Walter and Lehmann, "Algorithmic differentiation of linear algebra
// functions with application in optimum experimental design", 2012.
#include "ops/linear/matrices.h"
#include "ops/linear/reflections.h"
#include "ops/linear/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

template <class T> class Qr final : public ComputeKernel {
 public:
  explicit Qr(const KernelInit& init) : full_(init.attr<bool>("full_matrices")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input"));
    const int64_t least = std::min(m.rows, m.columns), width = full_ ? m.rows : least;
    TROUPE_ASSIGN(const Shape q_shape, m.like(m.rows, width));
    TROUPE_ASSIGN(const Shape r_shape, m.like(width, m.columns));
    TROUPE_ASSIGN(Tensor q, c.allocate(x.dtype(), q_shape));
    TROUPE_ASSIGN(Tensor r, c.allocate(x.dtype(), r_shape));
    const int64_t work = m.rows * m.columns * (least + width);
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), width ? m.count : 0, work, [&](int64_t i) -> Status {
      const Reflections<T> reflections(m.at<T>(x, i));
      reflections.q(result_matrix<T>(q, i));
      reflections.r(result_matrix<T>(r, i));
      return {};
    }));
    c.set_output(0, std::move(q));
    c.set_output(1, std::move(r));
    return {};
  }

 private:
  const bool full_;
};

Status qr_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices m, PartialMatrices::of(c, 0));
  const bool known = m.rows >= 0 && m.columns >= 0;
  const int64_t width = c.attr<bool>("full_matrices") ? m.rows : known ? std::min(m.rows, m.columns) : -1;
  TROUPE_ASSIGN(PartialShape q, m.like(m.rows, width));
  TROUPE_ASSIGN(PartialShape r, m.like(width, m.columns));
  c.set_output(0, std::move(q));
  c.set_output(1, std::move(r));
  return {};
}

// --- the gradient ---

/// x * r^-H for an upper triangular r.
Output divided(GradientContext& c, Output x, Output r) {
  return adjoint(c, c.op("MatrixTriangularSolve", {r, adjoint(c, x)}, {{"lower", false}}));
}

/// The gradient by a = q * r with as many rows as columns or more.
Output tall_gradient(GradientContext& c, Output q, Output r, Output dq, Output dr) {
  const Output qdq = matrix_product(c, q, dq, true), rdr = matrix_product(c, r, dr, false, true);
  const auto skew = [&](Output x) { return c.op("Sub", {x, adjoint(c, x)}); };
  const Output below = triangle(c, c.op("AddV2", {skew(qdq), skew(rdr)}), true);
  const Output inside = matrix_product(c, q, c.op("AddV2", {dr, divided(c, below, r)}));
  const Output outside = divided(c, c.op("Sub", {dq, matrix_product(c, q, qdq)}), r);
  const Output sum = c.op("AddV2", {inside, outside});
  if (!is_complex(q.dtype())) return sum;
  // The diagonal of r is real: what is imaginary there turns the columns of q.
  const Output turn = c.op("Sub", {rdr, adjoint(c, qdq)}), diagonal = c.op("MatrixDiagPart", {turn});
  const Output part = imaginary_part(c, diagonal);
  const Output imaginary = c.op("MatrixDiag", {complex_number(c, c.op("ZerosLike", {part}), part)});
  return c.op("AddV2", {sum, divided(c, matrix_product(c, q, adjoint(c, imaginary)), r)});
}

Status qr_gradient(GradientContext& c) {
  const Output a = c.input(0), q = c.output(0), r = c.output(1);
  const PartialShape& s = a.shape();
  if (!s.has_rank() || s.dim(-1) < 0 || s.dim(-2) < 0)
    return invalid_argument("the gradient needs known sizes of the matrices");
  const int64_t m = s.dim(-2), n = s.dim(-1);
  if (m > n && c.node().attrs().get_or("full_matrices", false))
    return make_error(Code::kUnimplemented, "there is no gradient with full_matrices of {} rows and {} columns", m, n);
  if (!c.dy(0) && !c.dy(1)) return {};
  const Output dq = c.dy(0) ? c.dy(0) : c.op("ZerosLike", {q}), dr = c.dy(1) ? c.dy(1) : c.op("ZerosLike", {r});
  if (m >= n) {
    c.set_dx(0, tall_gradient(c, q, r, dq, dr));
    return {};
  }
  // a = [x, y] = q * [u, v]: y = q * v adds to the gradient of q.
  const Output y = columns_of(c, a, m), dv = columns_of(c, dr, m);
  const Output dq_both = c.op("AddV2", {dq, matrix_product(c, y, dv, false, true)});
  const Output dx = tall_gradient(c, q, columns_of(c, r, 0, m), dq_both, columns_of(c, dr, 0, m));
  c.set_dx(0, c.op("ConcatV2", {dx, matrix_product(c, q, dv), c.constant(Tensor::scalar<int32_t>(-1))}));
  return {};
}

}  // namespace

void register_qr_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Qr")
              .input("input: T")
              .output("q: T")
              .output("r: T")
              .attr("full_matrices: bool = false")
              .attr(type_attr("T", LinearOrHalfTypes{}))
              .shape(qr_shape)
              .doc("q with orthonormal columns and upper triangular r whose product is the input, for each matrix in "
                   "the last two dimensions. With full_matrices q is square."),
          gradient(qr_gradient));
  add_cpu_kernels<Qr>(kernels, "Qr", LinearTypes{});
  add_half_kernels<Qr<float>>(kernels, "Qr");
}

}  // namespace troupe
