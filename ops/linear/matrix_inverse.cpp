// SPDX-License-Identifier: Apache-2.0
// The LU decomposition of square matrices, and what it gives: Lu, MatrixInverse, MatrixDeterminant,
// LogMatrixDeterminant.
#include <cmath>
#include <numbers>

#include "ops/linear/factors.h"
#include "ops/linear/matrices.h"
#include "ops/linear/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

template <class T> class Lu final : public ComputeKernel {
 public:
  explicit Lu(const KernelInit& init) : index_(init.output_dtypes[1]) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input", true));
    TROUPE_ASSIGN(Tensor lu, c.allocate(x.dtype(), x.shape()));
    TROUPE_ASSIGN(const Shape indices, m.like(m.rows));
    TROUPE_ASSIGN(Tensor p, c.allocate(index_, indices));
    const int64_t n = m.rows;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), n ? m.count : 0, n * n * n, [&](int64_t i) -> Status {
      const LuFactors<T> factors(m.at<T>(x, i));
      if (!factors.invertible()) return not_invertible("Input", n);
      result_matrix<T>(lu, i) = factors.packed();
      with_type(index_, IndexTypes{}, [&]<class I>() {
        std::ranges::transform(factors.rows(), p.mutable_data<I>() + i * n,
                               [](int64_t k) { return static_cast<I>(k); });
      });
      return {};
    }));
    c.set_output(0, std::move(lu));
    c.set_output(1, std::move(p));
    return {};
  }

 private:
  const DType index_;
};

Status lu_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices m, PartialMatrices::of(c, 0, true));
  TROUPE_ASSIGN(PartialShape p, m.like(m.rows));
  c.set_output(1, std::move(p));
  return square_shape(c);
}

/// The adjoint of the inverse where asked for: attribute adjoint.
template <class T> class MatrixInverse final : public ComputeKernel {
 public:
  explicit MatrixInverse(const KernelInit& init) : adjoint_(init.attr<bool>("adjoint")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input", true));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    const int64_t n = x.elements() == 0 ? 0 : m.rows;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), n ? m.count : 0, n * n * n, [&](int64_t i) -> Status {
      Matrix<T> a = m.at<T>(x, i);
      if (adjoint_) a.adjointInPlace();
      const LuFactors<T> lu(std::move(a));
      if (!lu.invertible()) return not_invertible("Input", n);
      lu.solve(Matrix<T>(Matrix<T>::Identity(n, n)), result_matrix<T>(y, i));
      return {};
    }));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool adjoint_;
};

/// A determinant as sign * mantissa * 2^exponent, which neither overflows nor underflows.
template <class T> struct Determinant {
  using Real = typename Eigen::NumTraits<T>::Real;
  T sign = 1;
  Real mantissa = 1;
  int64_t exponent = 0;

  explicit Determinant(const ConstMatrixView<T>& x) {
    if (x.rows() == 0) return;
    const LuFactors<T> lu(x);
    sign = lu.odd() ? T(-1) : T(1);
    for (int64_t i = 0; i < x.rows(); ++i) {
      const T pivot = lu.pivot(i);
      const Real size = std::abs(pivot);
      sign *= size > 0 ? pivot / size : T(size);
      int by = 0, again = 0;
      mantissa = std::frexp(mantissa * std::frexp(size, &by), &again);
      exponent += std::isfinite(size) ? by + again : 0;
    }
  }
  T value() const {
    return sign * std::ldexp(mantissa, static_cast<int>(std::clamp<int64_t>(exponent, INT32_MIN / 2, INT32_MAX / 2)));
  }
  Real log() const { return std::log(mantissa) + static_cast<Real>(exponent) * std::numbers::ln2_v<Real>; }
};

template <class T> class MatrixDeterminant final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input", true));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), m.batch));
    Tensor log;
    if (c.num_outputs() == 2) {
      TROUPE_ASSIGN(log, c.allocate(x.dtype(), m.batch));
    }
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), m.count, m.rows * m.rows * m.rows, [&](int64_t i) -> Status {
      const Determinant<T> d(m.at<T>(x, i));
      y.mutable_data<T>()[i] = log.defined() ? d.sign : d.value();
      if (log.defined()) log.mutable_data<T>()[i] = d.log();
      return {};
    }));
    c.set_output(0, std::move(y));
    if (log.defined()) c.set_output(1, std::move(log));
    return {};
  }
};

Status determinant_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialMatrices m, PartialMatrices::of(c, 0, true));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, m.batch);
  return {};
}

// --- gradients ---

/// -y^H g y^H, or what that is where y is the adjoint of the inverse.
Status inverse_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const bool adjoint = c.node().attrs().get_or("adjoint", false);
  const Output y = c.output(0);
  const Output right = matrix_product(c, c.dy(0), y, adjoint, !adjoint);
  c.set_dx(0, c.op("Neg", {matrix_product(c, y, right, !adjoint, false)}));
  return {};
}

/// Each matrix of the adjoint of the inverse, times its factor.
Output times_inverse(GradientContext& c, Output factors) {
  const Output inverse = c.op("MatrixInverse", {c.input(0)}, {{"adjoint", true}});
  const Output last = c.constant(Tensor::scalar<int32_t>(-1));
  return c.op("Mul", {c.op("ExpandDims", {c.op("ExpandDims", {factors, last}), last}), inverse});
}

Status determinant_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, times_inverse(c, c.op("Mul", {c.dy(0), conj(c, c.output(0))})));
  return {};
}

/// The sign of real matrices does not change; that of complex ones is taken as constant, as TensorFlow does.
Status log_determinant_gradient(GradientContext& c) {
  if (c.dy(1)) c.set_dx(0, times_inverse(c, c.dy(1)));
  return {};
}

}  // namespace

void register_matrix_inverse_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string type = type_attr("T", LinearOrHalfTypes{});
  ops.add(OpDef("Lu")
              .input("input: T")
              .output("lu: T")
              .output("p: output_idx_type")
              .attr(type)
              .attr(type_attr("output_idx_type", IndexTypes{}, "int32"))
              .shape(lu_shape)
              .doc("Factors of each square matrix in the last two dimensions: u on and above the diagonal of `lu`, "
                   "below it l, whose own diagonal is 1; row i of l * u is row p[i] of the matrix. Error for a matrix "
                   "without an inverse."),
          undefined_gradient());
  ops.add(OpDef("MatrixInverse")
              .input("input: T")
              .output("output: T")
              .attr("adjoint: bool = false")
              .attr(type)
              .shape(square_shape)
              .doc("The inverse of each square matrix in the last two dimensions, or that of its adjoint. Error where "
                   "there is none."),
          gradient(inverse_gradient));
  ops.add(OpDef("MatrixDeterminant")
              .input("input: T")
              .output("output: T")
              .attr(type)
              .shape(determinant_shape)
              .doc("The determinant of each square matrix in the last two dimensions."),
          gradient(determinant_gradient));
  ops.add(OpDef("LogMatrixDeterminant")
              .input("input: T")
              .output("sign: T")
              .output("log_abs_determinant: T")
              .attr(type)
              .shape(determinant_shape)
              .doc("Sign and logarithm of the absolute value of the determinant of each square matrix in the last two "
                   "dimensions: of a singular one 0 and -infinity."),
          gradient(log_determinant_gradient));
  add_cpu_kernels<Lu>(kernels, "Lu", LinearTypes{});
  add_half_kernels<Lu<float>>(kernels, "Lu");
  add_cpu_kernels<MatrixInverse>(kernels, "MatrixInverse", LinearTypes{});
  add_half_kernels<MatrixInverse<float>>(kernels, "MatrixInverse");
  for (const char* op : {"MatrixDeterminant", "LogMatrixDeterminant"}) {
    add_cpu_kernels<MatrixDeterminant>(kernels, op, LinearTypes{});
    add_half_kernels<MatrixDeterminant<float>>(kernels, op);
  }
}

}  // namespace troupe
