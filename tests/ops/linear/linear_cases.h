// SPDX-License-Identifier: Apache-2.0
// Cases of ops of whole matrices, solvers and decompositions.
#pragma once
#include "tests/ops/complex_cases.h"

namespace troupe::testing {

inline std::vector<OpCase> linear_cases() {
  const Tensor a = D({4, 7, 2, 6}, {2, 2}), b = D({1, 2}, {2, 1});
  const Tensor m = D({2, -1, 0.5, 0.3, 1.5, -0.7, -0.4, 0.6, 1.8}, {3, 3}), none = D({}, {2, 0, 0});
  const Tensor batch = D({2, -1, 0.5, 1, -1.5, 0.25, 0.5, 3}, {2, 2, 2}), rhs = ramp({2, 2, 3});
  const Tensor z = Z({{1.5, 0.25}, {-0.75, 0.5}, {0.25, -0.5}, {1, 1}}, {2, 2}), zb = Z({{1, 0.5}, {-0.5, 2}}, {2, 1});
  const Attrs adjoint = {{"adjoint", true}}, upper = {{"lower", false}}, exact = {{"fast", false}};
  const Attrs values = {{"compute_uv", false}}, full = {{"full_matrices", true}};
  const Attrs upper_adjoint = {{"lower", false}, {"adjoint", true}};
  const Attrs kComplex = {{"Tout", DType::kComplex64}};
  const complex64 kNan(NAN, NAN);
  const Tensor diagonals = D({1, 1, 9, 2, 2, 3, 9, 2, 2}, {3, 3});
  const Tensor bands = D({2, -1.5, 3, 0.5, 1, -0.25, 1.5, -2, 2.5, 3, 2, -4, 0.5, 1, 2, -1, 2, 1.5}, {2, 3, 3});
  const Tensor zbands = Z({{2, 1}, {-1, 3}, {0.5, 2}, {3, 0}, {1, -2}, {4, 1}, {1, 1}, {0.5, 0}, {0, 2}}, {3, 3});
  const Tensor zrow = Z({{2, 1}, {-1, 3}, {0.5, 2}}, {1, 3}), zrows = Z({{1, 0.5}, {-0.5, 2}, {0.25, -1}}, {3, 1});
  return {
      {"MatrixInverse", {a}, {}, {D({0.6, -0.7, -0.2, 0.4}, {2, 2})}},
      {"MatrixInverse", {a}, adjoint, {D({0.6, -0.2, -0.7, 0.4}, {2, 2})}},
      {"MatrixInverse", {m}},
      {"MatrixInverse", {batch}, adjoint},
      {"MatrixInverse", {z}},
      {"MatrixInverse", {none}, {}, {none}},
      {"MatrixDeterminant", {a}, {}, {D(10)}},
      {"MatrixDeterminant", {D({1, 2, 2, 4}, {2, 2})}, {}, {D(0)}, false},
      {"MatrixDeterminant", {batch}, {}, {D({2.5, -4.625})}},
      {"MatrixDeterminant", {z}},
      {"MatrixDeterminant", {none}, {}, {D({1, 1})}},
      {"LogMatrixDeterminant", {a}, {}, {D(1), D(2.302585092994046)}},
      {"LogMatrixDeterminant", {batch}, {}, {D({1, -1})}},
      {"LogMatrixDeterminant", {D({1, 2, 2, 4}, {2, 2})}, {}, {D(0), D(-INFINITY)}, false},
      {"MatrixSolve", {a, b}, {}, {D({-0.8, 0.6}, {2, 1})}},
      {"MatrixSolve", {a, b}, adjoint},
      {"MatrixSolve", {batch, rhs}},
      {"MatrixSolve", {z, zb}, adjoint},
      {"MatrixSolve", {D({}, {0, 0}), D({}, {0, 2})}, {}, {D({}, {0, 2})}},
      {"MatrixTriangularSolve", {D({2, 9, 1, 4}, {2, 2}), D({4, 10}, {2, 1})}, {}, {D({2, 2}, {2, 1})}},
      {"MatrixTriangularSolve", {D({2, 1, 9, 4}, {2, 2}), D({4, 8}, {2, 1})}, upper, {D({1, 2}, {2, 1})}},
      {"MatrixTriangularSolve", {m, ramp({3, 2})}, adjoint},
      {"MatrixTriangularSolve", {m, ramp({2, 3, 2})}, upper_adjoint},
      {"MatrixTriangularSolve", {batch, ramp({3, 1, 2, 1})}},
      {"MatrixTriangularSolve", {z, zb}, adjoint},
      {"MatrixSolveLs", {D({1, 0, 0, 1, 0, 0}, {3, 2}), D({1, 2, 3}, {3, 1}), D(1)}, {}, {D({0.5, 1}, {2, 1})}, false},
      {"MatrixSolveLs", {D({1, 0, 0, 0, 2, 0}, {2, 3}), D({1, 2}, {2, 1}), D(0)}, exact, {D({1, 1, 0}, {3, 1})}, false},
      {"MatrixSolveLs", {D({}, {0, 2}), D({}, {0, 1}), D(0)}, {}, {D({0, 0}, {2, 1})}, false},
      {"Cholesky", {D({4, 9, 2, 5}, {2, 2})}, {}, {D({2, 0, 1, 2}, {2, 2})}, false},
      {"Cholesky",
       {Z({{4, 0}, {0, 0}, {0, 2}, {5, 0}}, {2, 2})},
       {},
       {Z({{2, 0}, {0, 0}, {0, 1}, {2, 0}}, {2, 2})},
       false},
      {"CholeskyGrad", {D({2, 0, 1, 2}, {2, 2}), D({1, 0, 0, 0}, {2, 2})}, {}, {D({0.25, 0, 0, 0}, {2, 2})}},
      {"Qr", {m}},
      {"Qr", {D({2, -1, 0.5, 0.3, 1.5, -0.7}, {3, 2})}},
      {"Qr", {D({2, -1, 0.5, 0.3, 1.5, -0.7}, {2, 3})}},
      {"Qr", {batch}, full},
      {"Qr", {D({}, {2, 0})}, full, {D({1, 0, 0, 1}, {2, 2})}, false},
      {"Svd", {D({0, 3, -4, 0}, {2, 2})}, values, {D({4, 3})}},
      {"Svd", {m}},
      {"Svd", {D({2, -1, 0.5, 0.3, 1.5, -0.7}, {3, 2})}},
      {"Svd", {D({2, -1, 0.5, 0.3, 1.5, -0.7}, {2, 3})}},
      {"Svd", {D({2, -1, 0.5, 0.3, 1.5, -0.7}, {3, 2})}, full},
      {"Svd", {D({2, -1, 0.5, 0.3, 1.5, -0.7}, {2, 3})}, full},
      {"Svd", {batch}},
      {"Svd", {z}, values},
      {"Svd", {D({}, {2, 0})}, full, {D({}), D({1, 0, 0, 1}, {2, 2}), D({}, {0, 0})}, false},
      {"SelfAdjointEigV2", {D({2, 9, 0, -1}, {2, 2})}, {}, {D({-1, 2})}, false},
      {"SelfAdjointEigV2", {m}},
      {"SelfAdjointEigV2", {batch}, {{"compute_v", false}}},
      {"SelfAdjointEigV2", {z}, {{"compute_v", false}}},
      {"Lu", {a}, {}, {D({4, 7, 0.5, 2.5}, {2, 2}), I({0, 1})}},
      {"Lu", {D({2, 6, 4, 8}, {2, 2})}, {{"output_idx_type", DType::kInt64}}, {D({4, 8, 0.5, 2}, {2, 2}), L({1, 0})}},
      {"Lu", {none}, {}, {none, I({}, {2, 0})}},
      {"Eig",
       {F({1, 2, -3, 1}, {2, 2})},
       kComplex,
       {Z({{1, 2.4494897f}, {1, -2.4494897f}}),
        Z({{0.6324555f, 0}, {0.6324555f, 0}, {0, 0.7745967f}, {0, -0.7745967f}}, {2, 2})},
       false},
      {"Eig", {z}, {{"compute_v", false}, {"Tout", DType::kComplex64}}},
      {"Eig", {F({}, {2, 0, 0})}, kComplex, {Z({}, {2, 0})}, false},
      {"MatrixSquareRoot", {D({33, 24, 48, 57}, {2, 2})}, {}, {D({5, 2, 4, 7}, {2, 2})}},
      {"MatrixSquareRoot", {D({0, -4, 4, 0}, {2, 2})}, {}, {D({M_SQRT2, -M_SQRT2, M_SQRT2, M_SQRT2}, {2, 2})}},
      {"MatrixSquareRoot", {D({-1, 0, 0, 4}, {2, 2})}, {}, {D({NAN, NAN, NAN, NAN}, {2, 2})}, false},
      {"MatrixSquareRoot", {m}},
      {"MatrixSquareRoot", {z}},
      {"MatrixSquareRoot", {none}, {}, {none}},
      {"MatrixLogarithm",
       {Z({{-1, 0}, {0, 0}, {0, 0}, {4, 0}}, {2, 2})},
       {},
       {Z({{0, 3.14159265f}, {0, 0}, {0, 0}, {1.3862944f, 0}}, {2, 2})}},
      {"MatrixLogarithm",
       {Z({{1, 0}, {2, 0}, {0, 0}, {1, 0}}, {2, 2})},
       {},
       {Z({{0, 0}, {2, 0}, {0, 0}, {0, 0}}, {2, 2})}},
      {"MatrixLogarithm", {Z({{1, 0}, {0, 0}, {0, 0}, {0, 0}}, {2, 2})}, {}, {Z({kNan, kNan, kNan, kNan}, {2, 2})}},
      {"TridiagonalSolve", {diagonals, D({4, 7, 7}, {3, 1})}, {}, {D({1, 2, 1}, {3, 1})}},
      {"TridiagonalSolve", {D({1, 0, 9, 0, 3, 2, 9, 1, 0}, {3, 3}), D({2, 5, 4}, {3, 1})}, {}, {D({-1, 2, 2}, {3, 1})}},
      {"TridiagonalSolve", {D({0, 0, 0}, {3, 1}), D({1, 2}, {1, 2})}, {}, {D({NAN, NAN}, {1, 2})}, false},
      {"TridiagonalSolve", {bands, ramp({2, 3, 2})}},
      {"TridiagonalSolve", {bands, ramp({2, 3, 2})}, {{"partial_pivoting", false}}},
      {"TridiagonalSolve", {zbands, zrows}},
      {"TridiagonalSolve", {D({}, {2, 3, 0}), D({}, {2, 0, 1})}, {}, {D({}, {2, 0, 1})}},
      {"TridiagonalMatMul",
       {D({1, 1, 9}, {1, 3}), D({2, 2, 2}, {1, 3}), D({9, 3, 4}, {1, 3}), D({1, 2, 1}, {3, 1})},
       {},
       {D({4, 8, 10}, {3, 1})}},
      {"TridiagonalMatMul", {ramp({2, 1, 3}), ramp({2, 1, 3}, 0.5), ramp({2, 1, 3}, 0.2), ramp({2, 3, 2})}},
      {"TridiagonalMatMul", {zrow, zrow, zrow, zrows}},
      {"BandedTriangularSolve", {D({2, 4, 9, 1}, {2, 2}), D({4, 10}, {2, 1})}, {}, {D({2, 2}, {2, 1})}},
      {"BandedTriangularSolve", {D({1, 9, 2, 4}, {2, 2}), D({4, 8}, {2, 1})}, upper, {D({1, 2}, {2, 1})}},
      {"BandedTriangularSolve", {bands, ramp({2, 3, 2})}},
      {"BandedTriangularSolve", {bands, ramp({2, 3, 2})}, adjoint},
      {"BandedTriangularSolve", {bands, ramp({2, 3, 2})}, upper},
      {"BandedTriangularSolve", {D({2, -1.5, 3, 9, 1, 0.5}, {2, 3}), ramp({2, 3, 2})}, upper_adjoint},
      {"BandedTriangularSolve", {zbands, zrows}, adjoint},
  };
}

}  // namespace troupe::testing
