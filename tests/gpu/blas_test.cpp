// SPDX-License-Identifier: Apache-2.0
// Products of the fake's matrix library, with what follows them; how libraries that are column-major see a product.
#include "gpu/blas.h"

#include <cmath>
#include <random>

#include <catch2/catch.hpp>

#include "gpu/fake/fake_blas.h"
#include "ops/parts/type_dispatch.h"
#include "tests/gpu/inline_stream.h"

namespace troupe::testing {
namespace {

using gpu::Activation;

struct Host {
  InlineStream stream;
  gpu::Card card;
  std::shared_ptr<gpu::Blas> blas = gpu::make_fake_blas();
  gpu::Compute compute{.stream = stream, .card = card, .blas = blas.get(), .allocator = {}};
  void multiply(const gpu::Product& p) { REQUIRE(blas->multiply(compute, p).ok()); }
};

std::vector<double> numbers(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> out(static_cast<size_t>(n));
  for (double& x : out) x = static_cast<double>(random() % 17) / 4 - 2;
  return out;
}

/// What a Product says, straight from its sentence.
double element(const gpu::Product& p, int64_t batch, int64_t i, int64_t j) {
  const auto *a = static_cast<const double*>(p.a) + batch * p.a_step,
             *b = static_cast<const double*>(p.b) + batch * p.b_step;
  double sum = 0;
  for (int64_t q = 0; q < p.k; ++q)
    sum += (p.ta ? a[q * p.m + i] : a[i * p.k + q]) * (p.tb ? b[j * p.k + q] : b[q * p.n + j]);
  return sum;
}

TEST_CASE("The fake multiplies matrices, transposed or not, many at once") {
  Host host;
  for (int form = 0; form < 4; ++form)
    for (int64_t batch : {1, 3}) {
      gpu::Product p{.dtype = DType::kFloat64, .m = 4, .n = 5, .k = 3, .ta = form % 2 == 1, .tb = form / 2 == 1};
      const auto a = numbers(batch * 12, 1), b = numbers(15, 2), before = numbers(batch * 20, 3);
      auto c = before;
      p.a = a.data();
      p.b = b.data();
      p.c = c.data();
      p.batch = batch;
      p.a_step = 12;
      p.alpha = 2;
      p.beta = 0.5;
      host.multiply(p);
      for (int64_t x = 0; x < batch * 20; ++x) CHECK(c[x] == 2 * element(p, x / 20, x / 5 % 4, x % 5) + before[x] / 2);
    }
}

TEST_CASE("16-bit floats add up as float32") {
  Host host;
  const int64_t k = 3000;
  std::vector<bfloat16> a(k, bfloat16(1.0f)), b(k, bfloat16(1.0f)), c(1);
  gpu::Product p{.dtype = DType::kBFloat16, .m = 1, .n = 1, .k = k};
  p.a = a.data();
  p.b = b.data();
  p.c = c.data();
  host.multiply(p);
  CHECK(static_cast<float>(c[0]) == static_cast<float>(bfloat16(3000.0f)));
}

double gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

/// The mask of m rows of n numbers: where they are above 0.
std::vector<unsigned char> mask_of(const std::vector<double>& x, int64_t m, int64_t n) {
  std::vector<unsigned char> mask(static_cast<size_t>(gpu::Blas::mask_bytes(m, n)));
  const int64_t row = static_cast<int64_t>(mask.size()) / m;
  for (int64_t i = 0; i < m * n; ++i)
    mask[i / n * row + i % n / 8] |= static_cast<unsigned char>((x[i] > 0) << i % n % 8);
  return mask;
}

TEST_CASE("Biases, activations and masks follow products") {
  Host host;
  const int64_t m = 3, n = 11, k = 4;
  const auto a = numbers(m * k, 4), b = numbers(k * n, 5), bias = numbers(n, 6), g = numbers(m * n, 7);
  const auto mask = mask_of(g, m, n);
  std::vector<double> y(m * n);
  gpu::Product p{.dtype = DType::kFloat64, .m = m, .n = n, .k = k};
  p.a = a.data();
  p.b = b.data();
  p.c = y.data();
  for (Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu})
    for (bool with_bias : {false, true}) {
      p.bias = with_bias ? bias.data() : nullptr;
      p.activation = activation;
      host.multiply(p);
      for (int64_t i = 0; i < m * n; ++i) {
        const double x = element(p, 0, i / n, i % n) + (with_bias ? bias[i % n] : 0);
        const double wanted = activation == Activation::kRelu   ? std::max(x, 0.0)
                              : activation == Activation::kGelu ? gelu(x)
                                                                : x;
        CHECK(y[i] == Approx(wanted).margin(1e-6));
      }
    }
  p.bias = nullptr;
  p.activation = Activation::kNone;
  p.mask = mask.data();
  host.multiply(p);
  for (int64_t i = 0; i < m * n; ++i) CHECK(y[i] == (g[i] > 0 ? element(p, 0, i / n, i % n) : 0));
  p.mask = nullptr;
  p.gelu_of = g.data();
  host.multiply(p);
  constexpr double kStep = 1e-5;
  for (int64_t i = 0; i < m * n; ++i) {
    const double slope = (gelu(g[i] + kStep) - gelu(g[i] - kStep)) / (2 * kStep);
    CHECK(y[i] == Approx(slope * element(p, 0, i / n, i % n)).margin(1e-8));
  }
}

TEST_CASE("Sums of operands and of gradients come with products") {
  Host host;
  const int64_t m = 3, n = 11, k = 4;
  const auto a = numbers(m * k, 4), b = numbers(k * n, 5), g = numbers(m * k, 7);
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const gpu::SumsOf sums : {gpu::SumsOf::kA, gpu::SumsOf::kB}) {
        gpu::Product p{.dtype = DType::kFloat64, .m = m, .n = n, .k = k, .ta = ta, .tb = tb};
        std::vector<double> y(m * n), got(sums == gpu::SumsOf::kA ? m : n);
        p.a = a.data();
        p.b = b.data();
        p.c = y.data();
        p.sums = sums;
        p.sums_to = got.data();
        host.multiply(p);
        for (int64_t i = 0; i < m * n; ++i) CHECK(y[i] == element(p, 0, i / n, i % n));
        for (size_t i = 0; i < got.size(); ++i) {
          double wanted = 0;
          const auto at = static_cast<int64_t>(i);
          for (int64_t q = 0; q < k; ++q)
            wanted += sums == gpu::SumsOf::kA ? a[ta ? q * m + at : at * k + q] : b[tb ? at * k + q : q * n + at];
          CHECK(got[i] == wanted);
        }
      }
  std::vector<double> dy(m * n), sums(n);
  const auto mask = mask_of(numbers(m * n, 8), m, n);
  gpu::Product p{.dtype = DType::kFloat64, .m = m, .n = n, .k = k};
  p.a = g.data();
  p.b = b.data();
  p.c = dy.data();
  p.mask = mask.data();
  p.sums = gpu::SumsOf::kResult;
  p.sums_to = sums.data();
  host.multiply(p);
  for (int64_t j = 0; j < n; ++j) {
    double wanted = 0;
    for (int64_t i = 0; i < m; ++i) wanted += dy[i * n + j];
    CHECK(sums[j] == Approx(wanted).margin(1e-12));
  }
}

TEST_CASE("A column-major library that follows the layout makes the row-major product") {
  for (int form = 0; form < 4; ++form) {
    gpu::Product p{.dtype = DType::kFloat64, .m = 4, .n = 5, .k = 3, .ta = form % 2 == 1, .tb = form / 2 == 1};
    const auto a = numbers(2 * 12, 8), b = numbers(2 * 15, 9);
    p.a = a.data();
    p.b = b.data();
    p.batch = 2;
    p.a_step = 12;
    p.b_step = 15;
    const gpu::ColumnMajorProduct c = column_major(p);
    const auto* left = static_cast<const double*>(c.left);
    const auto* right = static_cast<const double*>(c.right);
    REQUIRE(c.result_step == 20);
    std::vector<double> y(40);
    for (int64_t batch = 0; batch < 2; ++batch)
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = 0; j < c.n; ++j) {
          // Element (row, column) of what lies there is at row + column * rows.
          double sum = 0;
          for (int64_t q = 0; q < c.k; ++q) {
            const int64_t at = c.transpose_left ? q + i * c.left_rows : i + q * c.left_rows;
            const int64_t from = c.transpose_right ? j + q * c.right_rows : q + j * c.right_rows;
            REQUIRE(at < c.left_rows * c.left_columns);
            REQUIRE(from < c.right_rows * c.right_columns);
            sum += left[batch * c.left_step + at] * right[batch * c.right_step + from];
          }
          y[batch * c.result_step + i + j * c.m] = sum;
        }
    for (int64_t x = 0; x < 40; ++x) CHECK(y[x] == element(p, x / 20, x / 5 % 4, x % 5));
  }
}

TEST_CASE("Products of types that GPUs do not multiply are errors") {
  Host host;
  int32_t x = 1;
  gpu::Product p{.dtype = DType::kInt32, .m = 1, .n = 1, .k = 1};
  p.a = p.b = p.c = &x;
  const Status status = host.blas->multiply(host.compute, p);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == Code::kUnimplemented);
}

}  // namespace
}  // namespace troupe::testing
