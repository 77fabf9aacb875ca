// SPDX-License-Identifier: Apache-2.0
// Decompositions multiply to what they were made from, gradients through symmetric matrices, and bad input.
#include "tests/ops/check_op.h"
#include "tests/ops/complex_cases.h"

namespace troupe::testing {
namespace {

using Build = std::function<Output(const Scope&, Output)>;

/// The gradient of sum(w * build(x)), w random, against central differences.
void check_built(const Tensor& x, const Build& build, double tolerance = 1e-6) {
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Output in = scope.op("Placeholder", {}, {{"dtype", x.dtype()}, {"shape", PartialShape(x.shape())}});
  const Output y = build(scope, in);
  INFO((scope.ok() ? "" : scope.status().error().str()));
  REQUIRE(scope.ok());
  Evaluator evaluator;
  const auto at = [&](const Tensor& value) { return doubles(evaluator.value(y, {{in, value}})); };
  const Tensor w = random_tensor<double>(evaluator.value(y, {{in, x}}).shape(), 7);
  const auto dx = gradients(scope, {y}, {in}, {scope.constant(w)});
  REQUIRE(dx.ok());
  const auto loss = [&](int64_t i, double by) {
    Tensor moved = *x.clone();
    moved.mutable_data<double>()[i] += by;
    const auto values = at(moved), weights = doubles(w);
    double sum = 0;
    for (size_t k = 0; k < values.size(); ++k) sum += values[k] * weights[k];
    return sum;
  };
  std::vector<double> want;
  for (int64_t i = 0; i < x.elements(); ++i) want.push_back((loss(i, 1e-6) - loss(i, -1e-6)) / 2e-6);
  check_close(doubles(evaluator.value((*dx)[0], {{in, x}})), want, tolerance);
}

Output product(const Scope& s, Output a, Output b, bool adj_a = false, bool adj_b = false) {
  return s.op("BatchMatMulV2", {a, b}, {{"adj_x", adj_a}, {"adj_y", adj_b}});
}

/// x x' + 2 I: symmetric and positive definite.
Output definite(const Scope& s, Output x) {
  const Output square = product(s, x, x, false, true), diagonal = s.op("MatrixDiagPart", {square});
  return s.op("MatrixSetDiag", {square, s.op("AddV2", {diagonal, s.constant(D(2))})});
}

/// Values of several outputs on constants.
std::vector<Tensor> outputs(const std::string& op, const Tensor& x, Attrs attrs, int n, int threads = 1) {
  std::vector<Tensor> out;
  for (int i = 0; i < n; ++i) {
    auto r = apply(op, {x}, attrs, i, threads);
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    out.push_back(*r);
  }
  return out;
}

Tensor times(const Tensor& a, const Tensor& b, bool adj_b = false) {
  return *apply("BatchMatMulV2", {a, b}, {{"adj_y", adj_b}});
}

/// u * diag(s) * v' is x, u and v are orthogonal, s goes down.
void check_svd(const Tensor& x, bool full, double tolerance) {
  INFO(x.shape().str() << (full ? " full" : ""));
  const auto out = outputs("Svd", x, {{"full_matrices", full}}, 3);
  const int64_t rows = x.dim(-2), columns = x.dim(-1), least = std::min(rows, columns);
  Tensor s = *apply("MatrixDiag", {out[0]});
  if (full)
    s = *apply("MatrixDiagV3", {out[0], I(0), I(static_cast<int32_t>(rows)), I(static_cast<int32_t>(columns)), D(0)});
  check_close(doubles(times(times(out[1], s), out[2], true)), doubles(x), tolerance);
  for (int i : {1, 2}) {
    const Tensor product = *apply("BatchMatMulV2", {out[i], out[i]}, {{"adj_x", true}}),
                 zero = *apply("ZerosLike", {product});
    const Tensor ones = *apply("OnesLike", {*apply("MatrixDiagPart", {zero})});
    check_close(doubles(product), doubles(*apply("MatrixSetDiag", {zero, ones})), tolerance);
  }
  const auto values = doubles(out[0]);
  for (size_t i = 0; i < values.size(); ++i) CHECK((values[i] >= 0 && (i % least == 0 || values[i] <= values[i - 1])));
}

const Tensor kSquare = D({2, -1, 0.5, 0.3, 1.5, -0.7, -0.4, 0.6, 1.8}, {3, 3});

}  // namespace

TEST_CASE("decompositions multiply to what they were made from", "[linear]") {
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 5}, Shape{4, 4}, Shape{2, 3, 6, 4}, Shape{40, 30}})
    for (const bool full : {false, true}) {
      const Tensor x = random_tensor<double>(shape, 3);
      const auto qr = outputs("Qr", x, {{"full_matrices", full}}, 2);
      check_close(doubles(times(qr[0], qr[1])), doubles(x), 1e-12);
    }
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 5}, Shape{4, 4}, Shape{2, 1, 6, 4}, Shape{1, 40, 30}, Shape{1, 1}})
    for (const bool full : {false, true}) check_svd(random_tensor<double>(shape, 9), full, 1e-12);
  const Tensor x = random_tensor<double>({3, 8, 8}, 4), square = times(x, x, true);
  const Tensor l = outputs("Cholesky", square, {}, 1)[0];
  check_close(doubles(times(l, l, true)), doubles(square), 1e-12);
  const auto eig = outputs("SelfAdjointEigV2", square, {}, 2);
  check_close(doubles(times(times(eig[1], *apply("MatrixDiag", {eig[0]})), eig[1], true)), doubles(square), 1e-11);
}

TEST_CASE("batches of matrices are the same on two threads", "[linear]") {
  const Tensor x = random_tensor<double>({64, 12, 12}, 5);
  for (const char* op : {"MatrixInverse", "MatrixDeterminant", "Qr", "SelfAdjointEigV2", "Svd"}) {
    INFO(op);
    CHECK(outputs(op, x, {}, 1, 1)[0].identical(outputs(op, x, {}, 1, 2)[0]));
  }
}

TEST_CASE("gradients pass through symmetric matrices", "[linear]") {
  check_built(kSquare, [](const Scope& s, Output x) { return s.op("Cholesky", {definite(s, x)}); });
  check_built(kSquare, [](const Scope& s, Output x) {
    return product(s, s.op("Cholesky", {definite(s, x)}), s.op("MatrixInverse", {definite(s, x)}));
  });
  check_built(kSquare, [](const Scope& s, Output x) {
    const Node* eig = s.node("SelfAdjointEigV2", {definite(s, x)}, {});
    return product(s, s.op("MatrixDiag", {eig->out(0)}), s.op("Square", {eig->out(1)}));
  });
}

TEST_CASE("least squares have gradients, tall and wide", "[linear]") {
  const Tensor tall = D({2, -1, 0.5, 0.3, 1.5, -0.7}, {3, 2}), wide = D({2, -1, 0.5, 0.3, 1.5, -0.7}, {2, 3});
  check_gradients("MatrixSolveLs", {tall, ramp({3, 2}), D(0.25)}, {}, {0, 1});
  check_gradients("MatrixSolveLs", {wide, ramp({2, 2}), D(0.25)}, {}, {0, 1});
}

TEST_CASE("gradients of factors with three columns more or fewer", "[linear]") {
  const Tensor tall = random_tensor<double>({2, 6, 3}, 8), wide = random_tensor<double>({2, 3, 6}, 8);
  for (const Tensor& x : {tall, wide})
    for (int port : {0, 1}) check_gradients("Qr", {x}, {}, {0}, port, 1e-5);
  for (const Tensor& x : {tall, wide})
    for (int port : {0, 1, 2}) check_gradients("Svd", {x}, {}, {0}, port, 1e-4);
}

TEST_CASE("singular values of matrices of low rank, of zeros and of extreme sizes", "[linear]") {
  const Tensor x = random_tensor<double>({6, 2}, 3), low = times(x, random_tensor<double>({5, 2}, 4), true);
  for (const bool full : {false, true}) {
    check_svd(low, full, 1e-12);
    check_svd(*Tensor::zeros(DType::kFloat64, {3, 4}), full, 1e-12);
    check_svd(*Tensor::zeros(DType::kFloat64, {4, 3}), full, 1e-12);
  }
  const auto values = doubles(outputs("Svd", low, {}, 1)[0]);
  for (size_t i = 2; i < values.size(); ++i) CHECK(values[i] < 1e-14);
  CHECK(doubles(outputs("Svd", D({1e300, 0, 0, 1e300}, {2, 2}), {}, 1)[0])[1] == Approx(1e300));
  CHECK(doubles(outputs("Svd", D({1e-300, 0, 0, 1e-300}, {2, 2}), {}, 1)[0])[1] == Approx(1e-300));
  // A graded matrix: the small value comes out to all digits.
  CHECK(doubles(outputs("Svd", D({1, 0, 0, 1e-20}, {2, 2}), {}, 1)[0])[1] == Approx(1e-20).epsilon(1e-14));
}

TEST_CASE("singular vectors and eigenvectors have TensorFlow's signs", "[linear]") {
  // By TensorFlow 2.21.
  const auto tall = outputs("Svd", F({1, 2, 3, 4, 5, 6}, {3, 2}), {}, 3);
  check_close(doubles(tall[1]), {0.22984774, -0.88346082, 0.52474487, -0.24078290, 0.81964207, 0.40189621}, 1e-6);
  check_close(doubles(tall[2]), {0.61962956, 0.78489447, 0.78489447, -0.61962956}, 1e-6);
  const auto wide = outputs("Svd", F({1, 3, 5, 2, 4, 6}, {2, 3}), {}, 3);
  check_close(doubles(wide[1]), {-0.61962950, -0.78489435, -0.78489435, 0.61962950}, 1e-6);
  check_close(doubles(wide[2]), {-0.22984774, 0.88346076, -0.52474487, 0.24078289, -0.81964201, -0.40189618}, 1e-6);
  const auto eigen = outputs("SelfAdjointEigV2", F({2, 1, 0, 1, 3, 1, 0, 1, 4}, {3, 3}), {}, 2);
  check_close(
      doubles(eigen[1]),
      {0.78867507, 0.57735032, 0.21132490, -0.57735026, 0.57735026, 0.57735032, 0.21132487, -0.57735026, 0.78867519},
      1e-6);
}

TEST_CASE("complex matrices have singular values and vectors", "[linear]") {
  const Tensor x = Z({{1.5, 0.25}, {-0.75, 0.5}, {0.25, -0.5}, {1, 1}, {0, 2}, {-1, 0.5}}, {3, 2});
  for (const Tensor& a : {x, *x.reshape(Shape{2, 3})}) {
    const auto out = outputs("Svd", a, {}, 3);
    check_close(doubles(times(times(out[1], *apply("MatrixDiag", {out[0]})), out[2], true)), doubles(a), 1e-6);
    const Tensor one = *apply("BatchMatMulV2", {out[1], out[1]}, {{"adj_x", true}});
    check_close(doubles(one), {1, 0, 0, 0, 0, 0, 1, 0}, 1e-6);
  }
}

TEST_CASE("a determinant may lie beyond what products of pivots reach", "[linear]") {
  Tensor x = *Tensor::zeros(DType::kFloat32, {40, 40});
  for (int i = 0; i < 40; ++i) x.mutable_data<float>()[41 * i] = i % 2 ? 1e-6f : 1e6f;
  CHECK(*apply("MatrixDeterminant", {x})->data<float>() == Approx(1).epsilon(1e-4));
  for (int i = 0; i < 40; ++i) x.mutable_data<float>()[41 * i] = 1e6f;
  CHECK(std::isinf(*apply("MatrixDeterminant", {x})->data<float>()));
  CHECK(*apply("LogMatrixDeterminant", {x}, {}, 1)->data<float>() == Approx(40 * std::log(1e6)));
}

TEST_CASE("matrices without a decomposition give NaN, as TensorFlow's do", "[linear]") {
  const auto all_nan = [](const std::vector<Tensor>& tensors) {
    for (const Tensor& t : tensors)
      for (double v : doubles(t)) CHECK(std::isnan(v));
  };
  all_nan(outputs("SelfAdjointEigV2", D({INFINITY}, {1, 1}), {}, 2));
  all_nan(outputs("Svd", D({1, NAN, 0, 2}, {2, 2}), {}, 3));
  const auto l = doubles(outputs("Cholesky", D({4, 0, 0, 9, -1, 0, 0, 4}, {2, 2, 2}), {}, 1)[0]);
  CHECK((l[0] == 2 && l[3] == 3 && std::isnan(l[4]) && l[5] == 0 && std::isnan(l[6]) && std::isnan(l[7])));
}

TEST_CASE("matrices that have no answer are errors that name them", "[linear][bad_input]") {
  const Tensor singular = D({1, 2, 2, 4}, {2, 2}), column = D({1, 2}, {2, 1});
  check_kernel_fails("MatrixInverse", {singular}, "Input is not invertible. It is [2,2]");
  check_kernel_fails("MatrixInverse", {D({1, 0, 0, 1, 0, 0, 0, 0}, {2, 2, 2})}, "matrix 1: Input is not invertible.");
  check_kernel_fails("MatrixInverse", {D({NAN}, {1, 1})}, "not invertible");
  check_kernel_fails("MatrixInverse", {D({1, 2}, {1, 2})}, "square matrices, but its shape is [1,2]");
  check_kernel_fails("MatrixDeterminant", {D({1})}, "must be matrices, but its shape is [1]");
  check_kernel_fails("MatrixSolve", {singular, column}, "Input matrix is not invertible.");
  check_kernel_fails("MatrixSolve", {kSquare, column}, "matrix [3,3] and rhs [2,1] do not fit");
  check_kernel_fails("MatrixTriangularSolve", {D({0, 0, 1, 1}, {2, 2}), column}, "0 at [0,0]");
  check_kernel_fails("MatrixSolveLs", {singular, column, D(0)}, "rank-deficient");
  check_kernel_fails("MatrixSolveLs", {singular, column, D(-1)}, "l2_regularizer is -1");
  check_kernel_fails("CholeskyGrad", {kSquare, singular}, "l [3,3] and grad [2,2] differ");
  CHECK_FALSE(apply("MatrixInverse", {D({1, 2}, {1, 2})}).ok());
  CHECK_FALSE(apply("MatrixSolve", {kSquare, column}).ok());
  CHECK_FALSE(apply("Qr", {D({1})}).ok());
  check_kernel_fails("Svd", {D({1})}, "must be matrices, but its shape is [1]");
  check_kernel_fails("Lu", {singular}, "Input is not invertible. It is [2,2]");
  check_kernel_fails("MatrixSquareRoot", {D({1, 2}, {1, 2})}, "square matrices, but its shape is [1,2]");
  check_kernel_fails("TridiagonalSolve", {singular, column}, "[...,3,m] and [...,m,k]");
  check_kernel_fails("TridiagonalSolve", {D({1, 2, 3}, {3, 1}), column}, "diagonals [3,1] and rhs [2,1] do not fit");
  check_kernel_fails("TridiagonalMatMul", {column, column, column, column}, "diagonal 0 must have shape [1,2]");
  check_kernel_fails("BandedTriangularSolve", {D({1, 0}, {1, 2}), column},
                     "Input matrix is not invertible. It is [2,2]: 0 at [1,1]");
  check_kernel_fails("BandedTriangularSolve", {D({}, {0, 2}), column}, "matrix [0,2] has no bands");
  check_kernel_fails("BandedTriangularSolve", {kSquare, column}, "matrix [3,3] and rhs [2,1] do not fit");
  const auto fails = [](const char* op, const std::vector<Tensor>& inputs, const Attrs& attrs, const char* words) {
    const auto result = apply(op, inputs, attrs);
    REQUIRE_FALSE(result.ok());
    CHECK_THAT(result.error().message, Catch::Contains(words));
  };
  const Tensor one = D({1}, {1, 1});
  fails("TridiagonalSolve", {D({1, 2, 3}, {3, 1}), one}, {{"partial_pivoting", false}, {"perturb_singular", true}},
        "perturb_singular needs partial_pivoting");
  fails("Eig", {F({NAN, 1, 0, 0}, {2, 2})}, {{"Tout", DType::kComplex64}}, "Eigen decomposition was not successful");
}

TEST_CASE("singular tridiagonal matrices are solved once they are perturbed", "[linear]") {
  // The solutions are along the null vectors.
  const Tensor diagonals = D({1, 1, 0, 1, 2, 1, 0, 1, 1}, {3, 3}), ones = D({1, 1, 1}, {3, 1});
  const auto x = apply("TridiagonalSolve", {diagonals, ones}, {{"perturb_singular", true}});
  REQUIRE(x.ok());
  const auto v = doubles(*x);
  CHECK(std::abs(v[0]) > 1e12);
  CHECK(v[1] / v[0] == Approx(-1));
  CHECK(v[2] / v[0] == Approx(1));
  for (const double scale : {0.0, 1e-310}) {
    const Tensor tiny = D({0, 0, scale, scale, 0, 0}, {3, 2});
    const auto y = apply("TridiagonalSolve", {tiny, D({1, 1e300}, {2, 1})}, {{"perturb_singular", true}});
    REQUIRE(y.ok());
    for (const double element : doubles(*y)) CHECK(std::isfinite(element));
  }
}

TEST_CASE("roots and logarithms of matrices give the matrices back", "[linear]") {
  for (const int64_t n : {1, 4, 9}) {
    const Tensor random = random_tensor<double>({n, n}, 3);
    const Tensor x = *apply("BatchMatMulV2", {random, random}, {{"adj_y", true}});
    const Tensor root = *apply("MatrixSquareRoot", {x});
    check_close(doubles(*apply("BatchMatMulV2", {root, root})), doubles(x), 1e-9);
    const Tensor z = *apply("Cast", {x}, {{"DstT", DType::kComplex64}});
    const Tensor log = *apply("MatrixLogarithm", {z});
    const Tensor half = *apply("MatrixLogarithm", {*apply("Cast", {root}, {{"DstT", DType::kComplex64}})});
    check_close(doubles(*apply("AddV2", {half, half})), doubles(log), 1e-4);
  }
}

}  // namespace troupe::testing
