// SPDX-License-Identifier: Apache-2.0
// The singular value decomposition of one matrix. Implemented in ops/linear/singular_values.cpp.
#pragma once
#include <complex>
#include <vector>

#include "ops/linear/matrices.h"

namespace troupe {

/// The type that decompositions into eigenvalues and singular values are computed in.
template <class T> using Wide = std::conditional_t<is_complex_type<T>, std::complex<double>, double>;

/// A power of two that x divided by it has elements of a size near 1; 1 for zeros.
double power_of_two(double largest);

/// x = u * diag(s) * adjoint(v), s the largest first, of a finite matrix with one row and one column at least. T is
/// double or complex numbers of these.
template <class T> struct SingularValues {
  std::vector<double> s;
  Matrix<T> u, v;  // columns: as many as s, or with `full` square; none without `vectors`

  SingularValues(Matrix<T> x, bool vectors, bool full);
};

}  // namespace troupe
