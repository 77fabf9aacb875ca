// SPDX-License-Identifier: Apache-2.0
// What the Schur decomposition of square matrices gives: Eig, MatrixSquareRoot, MatrixLogarithm. Source of the latter
// two: Higham, "Functions of matrices", 2008, chapters 6 and 11.
#include <Eigen/Eigenvalues>
#include <array>

#include "ops/linear/matrices.h"
#include "ops/linear/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/precision.h"
#include "ops/parts/through_float32.h"

namespace troupe {
namespace {

using C = std::complex<double>;
using SquareMatrix = Eigen::MatrixXcd;

// -- Eig --------------------------------------------------------------------------------------------------------------

template <class T> using DenseMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using Solver = std::conditional_t<is_complex_type<T>, Eigen::ComplexEigenSolver<DenseMatrix<T>>,
                                  Eigen::EigenSolver<DenseMatrix<T>>>;

template <class T> class Eig final : public ComputeKernel {
 public:
  explicit Eig(const KernelInit& init) : vectors_(init.attr<bool>("compute_v")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input", true));
    const int64_t n = m.rows;
    TROUPE_ASSIGN(const Shape values, m.like(n));
    TROUPE_ASSIGN(Tensor e, c.allocate(dtype_of<Complex<T>>, values));
    TROUPE_ASSIGN(Tensor v, c.allocate(dtype_of<Complex<T>>, vectors_ ? x.shape() : Shape{0}));
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), n ? m.count : 0, 30 * n * n * n, [&](int64_t i) -> Status {
      // Eigen's solvers in the type itself, as in TensorFlow: the order of the values is what comes of these.
      const DenseMatrix<T> a = m.at<T>(x, i);
      const Solver<T> found(a, vectors_);
      if (found.info() != Eigen::Success)
        return invalid_argument("Eigen decomposition was not successful. The input [{},{}] might not be valid.", n, n);
      std::ranges::copy(found.eigenvalues(), e.mutable_data<Complex<T>>() + i * n);
      if (vectors_) result_matrix<Complex<T>>(v, i) = found.eigenvectors();
      return {};
    }));
    c.set_output(0, std::move(e));
    c.set_output(1, std::move(v));
    return {};
  }

 private:
  const bool vectors_;
};

Status eig_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(check_precision(c, "Tout", c.input_dtype(0), complex_of(c.input_dtype(0))));
  return eigen_shape(c);
}

/// v^-H (de + conj(f) .* (v^H dv - v^H v diag(Re(v^H dv)))) v^H with f = 1 / (e_j - e_i). Source: Boeddeker et al., "On
/// the computation of complex-valued gradients with application to statistically optimum beamforming", 2017.
Status eig_gradient(GradientContext& c) {
  TROUPE_RETURN_IF_ERROR(needs_rank(c.input(0)));
  const bool vectors = c.node().attrs().get_or("compute_v", true);
  const Output e = c.output(0), de = c.dy(0), dv = vectors ? c.dy(1) : Output();
  if (!de && !dv) return {};
  const DType real = c.input(0).dtype();
  const auto all = vectors ? std::vector<Output>{e, c.output(1)} : c.ops("Eig", {c.input(0)}, {{"Tout", e.dtype()}});
  if (all.size() != 2) return {};
  const Output v = all[1], vh = adjoint(c, v);
  Output inner = de ? c.op("MatrixDiag", {de}) : Output();
  if (dv) {
    const Output turn = matrix_product(c, v, dv, true);
    const Output length = c.op("MatrixDiagPart", {real_part(c, turn)});
    const Output along = c.op("MatrixDiag", {c.op("Cast", {length}, {{"DstT", v.dtype()}})});
    const Output rest = c.op("Sub", {turn, matrix_product(c, matrix_product(c, v, v, true), along)});
    const Output turned = c.op("Mul", {conj(c, reciprocal_differences(c, e)), rest});
    inner = inner ? c.op("AddV2", {inner, turned}) : turned;
  }
  const Output da = c.op("MatrixSolve", {vh, matrix_product(c, inner, v, false, true)});
  c.set_dx(0, real == da.dtype() ? da : real_part(c, da));
  return {};
}

// -- functions of matrices --------------------------------------------------------------------------------------------

/// The upper triangular root of an upper triangular matrix whose diagonal has the principal roots. Elements that there
/// are none of are not finite.
SquareMatrix triangular_root(const SquareMatrix& t) {
  const int64_t n = t.rows();
  SquareMatrix r = SquareMatrix::Zero(n, n);
  for (int64_t j = 0; j < n; ++j) {
    r(j, j) = std::sqrt(t(j, j));
    for (int64_t i = j - 1; i >= 0; --i) {
      C sum = t(i, j);
      for (int64_t k = i + 1; k < j; ++k) sum -= r(i, k) * r(k, j);
      r(i, j) = sum / (r(i, i) + r(j, j));
    }
  }
  return r;
}

/// log(I + x) of a small upper triangular x: the Padé approximant of order 7 in partial fractions, whose poles and
/// weights are those of Gauss and Legendre's quadrature.
SquareMatrix log_near_one(const SquareMatrix& x) {
  constexpr std::array<double, 4> kNodes = {0, 0.4058451513773972, 0.7415311855993945, 0.9491079123427585};
  constexpr std::array<double, 4> kWeights = {0.4179591836734694, 0.3818300505051189, 0.2797053914892767,
                                              0.1294849661688697};
  const int64_t n = x.rows();
  const SquareMatrix one = SquareMatrix::Identity(n, n);
  SquareMatrix sum = SquareMatrix::Zero(n, n);
  for (size_t k = 0; k < kNodes.size(); ++k)
    for (const double side : {-1.0, 1.0}) {
      if (k == 0 && side > 0) continue;
      const double at = (1 + side * kNodes[k]) / 2;
      sum += kWeights[k] / 2 * (one + at * x).triangularView<Eigen::Upper>().solve(x);
    }
  return sum;
}

/// The principal logarithm of an upper triangular matrix: roots until it is near one. Not finite where there is none.
SquareMatrix triangular_log(SquareMatrix t) {
  constexpr double kNear = 0.25;    // where the approximant is exact to 1e-15
  constexpr int kMostRoots = 1100;  // of the smallest number there is
  const int64_t n = t.rows();
  const SquareMatrix one = SquareMatrix::Identity(n, n);
  double scale = 1;
  for (int roots = 0; roots < kMostRoots; ++roots, scale *= 2, t = triangular_root(t)) {
    const double size = (t - one).cwiseAbs().colwise().sum().maxCoeff();
    if (!std::isfinite(size)) break;
    if (size <= kNear) return scale * log_near_one(t - one);
  }
  return SquareMatrix::Constant(n, n, std::numeric_limits<double>::quiet_NaN());
}

/// f of square matrices, by their triangular form.
template <class T, SquareMatrix (*f)(SquareMatrix)> class OfMatrix : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Matrices m, Matrices::of(x, "input", true));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    const int64_t n = m.rows;
    TROUPE_RETURN_IF_ERROR(each_matrix(c.threads(), n ? m.count : 0, 30 * n * n * n, [&](int64_t i) -> Status {
      const SquareMatrix a = m.at<T>(x, i).template cast<C>();
      if (!a.allFinite()) {
        result_matrix<T>(y, i).setConstant(T(std::numeric_limits<float>::quiet_NaN()));
        return {};
      }
      const Eigen::ComplexSchur<SquareMatrix> schur(a);
      if (schur.info() != Eigen::Success)
        return invalid_argument("the triangular form of the matrix [{},{}] was not found", n, n);
      const SquareMatrix& u = schur.matrixU();
      result_matrix<T>(y, i) = as<T>(u * f(schur.matrixT()) * u.adjoint());
      return {};
    }));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// NaN where T is real and the matrix is not.
  template <class To> static Matrix<To> as(const SquareMatrix& x) {
    if constexpr (is_complex_type<To>) {
      return x.cast<To>();
    } else {
      constexpr double kRounding = 1e-6;
      if (x.imag().cwiseAbs().maxCoeff() > kRounding * x.cwiseAbs().maxCoeff())
        return Matrix<To>::Constant(x.rows(), x.cols(), std::numeric_limits<To>::quiet_NaN());
      return x.real().template cast<To>();
    }
  }
};

SquareMatrix root(SquareMatrix t) { return triangular_root(t); }
template <class T> using SquareRoot = OfMatrix<T, root>;
template <class T> using Logarithm = OfMatrix<T, triangular_log>;

/// The x of r^H x + x r^H = dr, by equations of all elements of x at once.
Status square_root_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  TROUPE_RETURN_IF_ERROR(needs_rank(c.input(0)));
  const Output r = adjoint(c, c.output(0));
  const Output one = c.op("MatrixDiag", {c.op("OnesLike", {c.op("MatrixDiagPart", {r})})});
  const auto sum = [&](const char* equation, Output a, Output b) {
    return c.op("Einsum", {a, b}, {{"equation", std::string(equation)}});
  };
  const Output left = sum("...ij,...kl->...ikjl", r, one), right = sum("...ij,...lk->...ikjl", one, r);
  const int64_t begin[] = {0}, two[] = {-2}, step[] = {1}, single[] = {1};
  const Output sizes = c.op("Shape", {r}), axis = c.constant(Tensor::scalar<int32_t>(0));
  const Output from = int_vector(c, begin), to = int_vector(c, two), by = int_vector(c, step);
  const Output batch = c.op("StridedSlice", {sizes, from, to, by});
  const Output order = c.op("StridedSlice", {sizes, to, from, by}, {{"end_mask", int64_t{1}}});
  const Output elements = c.op("Prod", {order, axis}, {{"keep_dims", true}});
  const Output equations = c.op("ConcatV2", {batch, elements, elements, axis});
  const Output column = c.op("ConcatV2", {batch, elements, int_vector(c, single), axis});
  const Output matrix = c.op("Reshape", {c.op("AddV2", {left, right}), equations});
  const Output x = c.op("MatrixSolve", {matrix, c.op("Reshape", {c.dy(0), column})});
  c.set_dx(0, c.op("Reshape", {x, sizes}));
  return {};
}

}  // namespace

void register_schur_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(
      OpDef("Eig")
          .input("input: T")
          .output("e: Tout")
          .output("v: Tout")
          .attr("compute_v: bool = true")
          .attr(type_attr("T", LinearTypes{}))
          .attr(type_attr("Tout", ComplexTypes{}))
          .shape(eig_shape)
          .doc("Eigenvalues, of complex matrices those of the smallest magnitude first, and eigenvectors of length 1 "
               "as columns, of each square matrix in the last two dimensions. Without compute_v v is empty. Error for "
               "a matrix "
               "that is not finite."),
      gradient(eig_gradient));
  add_cpu_kernels<Eig>(kernels, "Eig", LinearTypes{});
  ops.add(OpDef("MatrixSquareRoot")
              .input("input: T")
              .output("output: T")
              .attr(type_attr("T", LinearOrHalfTypes{}))
              .shape(square_shape)
              .doc("The matrix whose product with itself is the given one, for each square matrix in the last two "
                   "dimensions: the one whose eigenvalues have no negative real part. NaN where there is none of the "
                   "type, and for a matrix that is not finite."),
          gradient(square_root_gradient));
  add_cpu_kernels<SquareRoot>(kernels, "MatrixSquareRoot", LinearTypes{});
  add_half_kernels<SquareRoot<float>>(kernels, "MatrixSquareRoot");
  ops.add(OpDef("MatrixLogarithm")
              .input("input: T")
              .output("output: T")
              .attr(type_attr("T", ComplexTypes{}))
              .shape(square_shape)
              .doc("The matrix whose exponential is the given one, for each square matrix in the last two dimensions: "
                   "the one whose eigenvalues have imaginary parts in (-pi, pi]. NaN for one that is singular or "
                   "not finite."),
          undefined_gradient());
  add_cpu_kernels<Logarithm>(kernels, "MatrixLogarithm", ComplexTypes{});
}

}  // namespace troupe
