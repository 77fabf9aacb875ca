// SPDX-License-Identifier: Apache-2.0
// Matrices in the last two dimensions of tensors: views for Eigen, loops over a batch of them, shapes. Implemented in
// ops/linear/matrices.cpp.
#pragma once
#include <Eigen/Core>
#include <functional>
#include <vector>

#include "ops/parts/type_dispatch.h"

namespace troupe {

/// Types that decompositions and solvers run in; 16-bit floats go through float32.
using LinearTypes = TypeList<float, double, complex64, complex128>;
using LinearOrHalfTypes = TypeList<double, float, float16, complex64, complex128>;

template <class T> using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T> using MatrixView = Eigen::Map<Matrix<T>>;
template <class T> using ConstMatrixView = Eigen::Map<const Matrix<T>>;

/// The matrices of a tensor.
struct Matrices {
  int64_t rows = 0, columns = 0, count = 0;
  Shape batch;

  /// Errors: a rank below 2; with `square`, other sizes. They name `what` and the shape.
  static Result<Matrices> of(const Tensor& x, const char* what, bool square = false);
  /// The shape of as many matrices of other sizes. Errors: more elements than an int64 counts.
  Result<Shape> like(int64_t other_rows, int64_t other_columns) const;
  Result<Shape> like(int64_t size) const;
  /// Matrix i of a tensor of these.
  template <class T> ConstMatrixView<T> at(const Tensor& x, int64_t i) const {
    return {x.data<T>() + i * rows * columns, rows, columns};
  }
};

/// Matrix i of the result `y`.
template <class T> MatrixView<T> result_matrix(Tensor& y, int64_t i) {
  const int64_t rows = y.dim(-2), columns = y.dim(-1);
  return {y.mutable_data<T>() + i * rows * columns, rows, columns};
}

/// Calls f(i) for i in [0, count) on up to `threads` threads, each call about `work` multiplications. The error of the
/// lowest i that has one, which the message names where there are several.
Status each_matrix(int threads, int64_t count, double work, const std::function<Status(int64_t)>& f);

/// The error for a matrix [n,n] without an inverse, in TensorFlow's words, which name it `what`.
Error not_invertible(const char* what, int64_t n, std::string_view why = "");

/// What is known of the sizes of matrices.
struct PartialMatrices {
  PartialShape batch;  // unknown where the rank is
  int64_t rows = -1, columns = -1;

  /// Input i. Errors: a rank below 2; with `square`, sizes that differ.
  static Result<PartialMatrices> of(ShapeContext& c, int i, bool square = false);
  Result<PartialShape> like(int64_t other_rows, int64_t other_columns) const;
  Result<PartialShape> like(int64_t size) const;
};

/// The shape functions of an op of square matrices that gives more of them.
Status square_shape(ShapeContext& c);
/// That of eigenvalues and, with the attribute compute_v, eigenvectors of square matrices; else the second is empty.
Status eigen_shape(ShapeContext& c);

// Nodes that gradients of these ops are made of.
Output matrix_product(GradientContext& c, Output a, Output b, bool adjoint_a = false, bool adjoint_b = false);
/// The conjugate of the transpose. Errors stick to the scope: the rank must be known.
Output adjoint(GradientContext& c, Output x);
/// The lower (or upper) triangle, with the diagonal.
Output triangle(GradientContext& c, Output x, bool lower);
/// x with its diagonal multiplied by `factor`.
Output scaled_diagonal(GradientContext& c, Output x, double factor);
/// 1 / x, and 0 for 0.
Output safe_reciprocal(GradientContext& c, Output x);
/// Matrices [i,j] of 1 / (x[j] - x[i]), with 0 where these are equal.
Output reciprocal_differences(GradientContext& c, Output x);
/// Columns [begin, end) of matrices; all from `begin` where end is -1.
Output columns_of(GradientContext& c, Output x, int64_t begin, int64_t end = -1);
/// Whether the rank of x is known; gradients that need it say so.
Status needs_rank(Output x);

}  // namespace troupe
