// SPDX-License-Identifier: Apache-2.0
// Matrix products against loops, in every type and transposition, with gradients and bad input.
#include "ops/parts/gemm.h"
#include "tests/ops/check_op.h"

namespace troupe::testing {
namespace {

std::vector<double> naive(const Tensor& a, bool ta, const Tensor& b, bool tb, int64_t m, int64_t n, int64_t k) {
  const std::vector<double> x = doubles(a), y = doubles(b);
  std::vector<double> z(m * n, 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l) z[i * n + j] += x[ta ? l * m + i : i * k + l] * y[tb ? j * k + l : l * n + j];
  return z;
}

Shape matrix(bool transposed, int64_t rows, int64_t columns) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

template <class T> void check_type(double tolerance) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (auto [m, n, k] : {std::tuple{7, 5, 9}, {1, 1, 1}, {64, 33, 70}, {3, 4, 0}, {0, 4, 2}}) {
        const Tensor a = random_tensor<T>(matrix(ta, m, k), 1), b = random_tensor<T>(matrix(tb, k, n), 2);
        const auto y = apply("MatMul", {a, b}, Attrs{{"transpose_a", ta}, {"transpose_b", tb}}, 0, 2);
        INFO((y.ok() ? "" : y.error().str()));
        REQUIRE(y.ok());
        REQUIRE(y->shape() == Shape{m, n});
        check_close(doubles(*y), naive(a, ta, b, tb, m, n, k), tolerance);
      }
}

std::string error_of(const Result<Tensor>& r) { return r.ok() ? "no error" : r.error().str(); }

TEST_CASE("MatMul agrees with loops in every type") {
  check_type<float>(1e-5);
  check_type<double>(1e-12);
  check_type<bfloat16>(1e-2);
  check_type<float16>(2e-3);
}

TEST_CASE("A product that is worth a team is whole with any team") {
  const Tensor a = random_tensor<float>({256, 96}, 1), b = random_tensor<float>({96, 256}, 2);
  const auto want = naive(a, false, b, false, 256, 256, 96);
  for (int threads : {1, 2, 3, 8}) {
    const auto y = apply("MatMul", {a, b}, {}, 0, threads);
    REQUIRE(y.ok());
    check_close(doubles(*y), want, 1e-5);
  }
}

TEST_CASE("MatMul of integers wraps around") {
  const int32_t big = 1 << 30;
  const auto y =
      apply("MatMul", {Tensor::of<int32_t>({big, big, 3, 4}, {2, 2}), Tensor::of<int32_t>({2, 1, 2, 1}, {2, 2})});
  REQUIRE(y.ok());
  CHECK(y->data<int32_t>()[0] == 0);
  CHECK(y->data<int32_t>()[3] == 7);
}

TEST_CASE("BatchMatMulV2 broadcasts its batches") {
  const Tensor x = random_tensor<float>({2, 1, 3, 4}, 1), y = random_tensor<float>({5, 4, 6}, 2);
  for (int threads : {1, 2}) {
    const auto z = apply("BatchMatMulV2", {x, y}, {}, 0, threads);
    REQUIRE(z.ok());
    REQUIRE(z->shape() == Shape{2, 5, 3, 6});
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 5; ++j) {
        const Tensor a = *x.slice(i, i + 1), b = *y.slice(j, j + 1);
        const auto want = naive(a, false, b, false, 3, 6, 4);
        const auto all = doubles(*z);
        const auto at = all.begin() + (i * 5 + j) * 18;
        check_close({at, at + 18}, want, 1e-5);
      }
  }
}

TEST_CASE("BatchMatMulV2 takes one matrix for all of a batch") {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const Shape& of_y : {Shape{}, Shape{1}, Shape{1, 1, 1}}) {
        std::vector<int64_t> dims(of_y.begin(), of_y.end()), all(of_y.rank() == 3 ? 1 : 0, 1);
        const Shape one = matrix(tb, 4, 6), each = matrix(ta, 3, 4);
        dims.insert(dims.end(), one.begin(), one.end());
        all.insert(all.end(), {2, 5, 3, 6});
        const Tensor x = random_tensor<float>({2, 5, each[0], each[1]}, 1), y = random_tensor<float>(Shape(dims), 2);
        const auto z = apply("BatchMatMulV2", {x, y}, Attrs{{"adj_x", ta}, {"adj_y", tb}});
        REQUIRE(z.ok());
        REQUIRE(z->shape() == Shape(all));
        for (int i = 0; i < 10; ++i) {
          const Tensor a = *x.reshape({10, each[0], each[1]})->slice(i, i + 1);
          const auto numbers = doubles(*z);
          const auto at = numbers.begin() + i * 18;
          check_close({at, at + 18}, naive(a, ta, y, tb, 3, 6, 4), 1e-5);
        }
      }
}

TEST_CASE("Gradients of products agree with finite differences") {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      const Tensor a = random_tensor<double>(matrix(ta, 3, 4), 1), b = random_tensor<double>(matrix(tb, 4, 2), 2);
      check_gradients("MatMul", {a, b}, Attrs{{"transpose_a", ta}, {"transpose_b", tb}}, {0, 1});
      Shape sa = a.shape(), sb = b.shape();
      sa.insert(0, 2);
      sb.insert(0, 2);
      check_gradients("BatchMatMulV2", {random_tensor<double>(sa, 3), random_tensor<double>(sb, 4)},
                      Attrs{{"adj_x", ta}, {"adj_y", tb}}, {0, 1});
    }
}

TEST_CASE("The gradient by a matrix that many share is one product, not a product for each and a sum") {
  for (bool tb : {false, true}) {
    const Tensor b = random_tensor<double>(matrix(tb, 4, 2), 2);
    for (const Shape& sa : {Shape{2, 3, 4}, Shape{2, 1, 3, 4}, Shape{0, 3, 4}}) {
      const Tensor a = random_tensor<double>(sa, 1);
      check_gradients("BatchMatMulV2", {a, b}, {{"adj_y", tb}}, {0, 1});
      check_gradients("BatchMatMulV3", {a, b}, {{"adj_y", tb}, {"Tout", DType::kFloat64}}, {0, 1});
    }
    check_gradients("BatchMatMulV2", {random_tensor<double>({2, 4, 3}, 1), b}, {{"adj_x", true}, {"adj_y", tb}},
                    {0, 1});
    Graph graph(op_library()->ops);
    const Scope scope(graph);
    const Output y = scope.op(
        "BatchMatMulV2",
        {scope.constant(random_tensor<float>({2, 3, 4}, 1)), scope.constant(random_tensor<float>(b.shape(), 2))},
        {{"adj_y", tb}});
    const auto dxs = gradients(scope, {y}, {y.node->inputs()[1]});
    REQUIRE(dxs.ok());
    CHECK((*dxs)[0].node->op().name() == "MatMul");
    CHECK((*dxs)[0].shape().str() == PartialShape(b.shape()).str());
  }
}

TEST_CASE("Products that do not fit are errors that name the shapes") {
  const Tensor a = random_tensor<float>({64, 784}, 1), b = random_tensor<float>({500, 10}, 2),
               v = random_tensor<float>({3}, 3);
  for (const char* op : {"MatMul", "BatchMatMulV2"}) {
    for (const auto& r : {apply(op, {a, b}), apply_unshaped(op, {a, b})}) {
      CHECK_THAT(error_of(r), Catch::Contains("inner sizes differ: [64,784] x [500,10]"));
      CHECK_THAT(error_of(r), Catch::Contains(op));
    }
    CHECK_THAT(error_of(apply(op, {a, v})), Catch::Contains("[3]"));
    CHECK_THAT(error_of(apply_unshaped(op, {v, a})), Catch::Contains("[3]"));
  }
  CHECK_FALSE(
      apply_unshaped("BatchMatMulV2", {random_tensor<float>({2, 3, 4}, 1), random_tensor<float>({3, 4, 3}, 2)}).ok());
}

}  // namespace
namespace {

template <class T> void check_gemm(int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  std::vector<T> a(m * k), b(k * n), c(m * n);
  for (size_t i = 0; i < a.size(); ++i) a[i] = T(static_cast<int>(i * 7 % 13) - 6);
  for (size_t i = 0; i < b.size(); ++i) b[i] = T(static_cast<int>(i * 5 % 11) - 5);
  REQUIRE(gemm(a.data(), ta, b.data(), tb, c.data(), m, n, k));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T sum(0);
      for (int64_t p = 0; p < k; ++p) sum += (ta ? a[p * m + i] : a[i * k + p]) * (tb ? b[j * k + p] : b[p * n + j]);
      REQUIRE(c[i * n + j] == sum);
    }
}

}  // namespace

TEST_CASE("packed products of all types are the sums that define them") {
  for (const auto& [m, n, k] : {std::tuple{4, 4, 600}, {37, 67, 41}, {70, 130, 300}, {65, 9, 257}, {5, 200, 100}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        check_gemm<double>(m, n, k, ta, tb);
        check_gemm<int32_t>(m, n, k, ta, tb);
        check_gemm<complex64>(m, n, k, ta, tb);
        check_gemm<complex128>(m, n, k, ta, tb);
      }
}

}  // namespace troupe::testing
