// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of all lengths against the sum that defines them, and bad input.
#include <numbers>

#include "ops/signal/fourier.h"
#include "tests/ops/check_op.h"
#include "tests/ops/complex_cases.h"

namespace troupe::testing {
namespace {

template <class R> using Line = std::vector<typename Fourier<R>::Number>;

template <class R> Line<R> example(int64_t n, int phase) {
  Line<R> x;
  for (int64_t i = 0; i < n; ++i)
    x.push_back({static_cast<R>(std::sin(1.3 * i + phase)), static_cast<R>(std::cos(0.7 * i * i - phase))});
  return x;
}

std::complex<double> plain_number(const auto& x, int64_t k) {
  const auto n = static_cast<int64_t>(x.size());
  std::complex<double> sum;
  for (int64_t j = 0; j < n; ++j)
    sum += std::complex<double>(x[j].re, x[j].im) *
           std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n));
  return sum;
}

}  // namespace

TEMPLATE_TEST_CASE("transforms of every length are the sums that define them", "[fft]", float, double) {
  constexpr double kTolerance = std::is_same_v<TestType, float> ? 1e-6 : 1e-13;
  for (const int64_t n : {1,  2,   3,   4,   5,   6,   7,    8,    12,   16,   30,   31,   36,   37,   64,   74,
                          97, 120, 127, 210, 256, 341, 1000, 1021, 1331, 2047, 2048, 2049, 2100, 3000, 3721, 4096}) {
    INFO(n);
    const Fourier<TestType> fourier(n);
    Line<TestType> line = example<TestType>(n, 0), work(static_cast<size_t>(fourier.work_size())), two = line;
    const Line<TestType> x = line;
    fourier.run(line.data(), work.data());
    fourier.run(two.data(), work.data(), 2);
    for (int64_t k = 0; k < n; ++k) REQUIRE((two[k].re == line[k].re && two[k].im == line[k].im));
    for (int64_t k = 0; k < n; k += 1 + n / 400)
      REQUIRE(std::abs(std::complex<double>(line[k].re, line[k].im) - plain_number(x, k)) <
              kTolerance * static_cast<double>(n + 10));
  }
}

TEST_CASE("a transform and its inverse give what they were given, on two threads too", "[fft]") {
  const Tensor small = random_tensor<float>({3, 50, 34, 33}, 6), flat = random_tensor<float>({3, 9000}, 7),
               odd = random_tensor<float>({4099}, 8), tall = random_tensor<float>({1, 4096, 6}, 9);
  for (const auto& [forward, back, x, lengths] : {std::tuple{"RFFT", "IRFFT", small, I({33})},
                                                  {"RFFT2D", "IRFFT2D", small, I({34, 33})},
                                                  {"RFFT3D", "IRFFT3D", small, I({50, 34, 33})},
                                                  {"RFFT", "IRFFT", flat, I({9000})},
                                                  {"RFFT", "IRFFT", odd, I({4099})},
                                                  {"RFFT2D", "IRFFT2D", tall, I({4096, 6})}}) {
    const auto one = apply(forward, {x, lengths}, {}, 0, 1), two = apply(forward, {x, lengths}, {}, 0, 2);
    REQUIRE((one.ok() && two.ok()));
    CHECK(one->identical(*two));
    check_close(doubles(*apply(back, {*one, lengths}, {}, 0, 2)), doubles(x), 1e-6);
  }
}

TEST_CASE("transforms refuse lengths and ranks that do not fit", "[fft][bad_input]") {
  const auto fails = [](const std::string& op, const std::vector<Tensor>& inputs, const std::string& words) {
    for (const auto& r : {apply(op, inputs), apply_unshaped(op, inputs)}) {
      INFO(op << " " << words);
      REQUIRE_FALSE(r.ok());
      CHECK_THAT(r.error().message, Catch::Contains(words));
    }
  };
  const Tensor x = F({1, 2, 3}, {3}), z = Z({{1, 0}, {2, 0}});
  fails("RFFT", {x, I({4})}, "dimension 0 of [3] is shorter than the 4 of fft_length 4");
  fails("IRFFT", {z, I({4})}, "shorter than the 3 of fft_length 4");
  fails("RFFT", {x, I({-1})}, "negative");
  fails("RFFT", {x, I({2, 2})}, "2 numbers for 1 dimensions");
  CHECK_FALSE(apply("FFT2D", {z}).ok());
  CHECK_FALSE(apply_unshaped("RFFT2D", {x, I({1, 1})}).ok());
}

TEMPLATE_TEST_CASE("several transforms at once are those of one", "[fft]", float, double) {
  using F = Fourier<TestType>;
  for (const int64_t n : {1, 2, 3, 4, 8, 12, 16, 48, 64, 97, 127, 256, 341, 509, 1000}) {
    INFO(n);
    const F fourier(n);
    REQUIRE_FALSE(fourier.is_long());
    std::vector<typename F::Numbers> lanes(static_cast<size_t>(n)), work(static_cast<size_t>(fourier.work_size()));
    for (int l = 0; l < F::kLanes; ++l) {
      const Line<TestType> line = example<TestType>(n, l);
      for (int64_t i = 0; i < n; ++i) {
        lanes[i].re[l] = line[i].re;
        lanes[i].im[l] = line[i].im;
      }
    }
    fourier.run(lanes.data(), work.data());
    for (int l = 0; l < F::kLanes; ++l) {
      Line<TestType> line = example<TestType>(n, l), room(static_cast<size_t>(fourier.work_size()));
      fourier.run(line.data(), room.data());
      for (int64_t i = 0; i < n; ++i) {
        REQUIRE(line[i].re == Approx(lanes[i].re[l]).margin(1e-6 * static_cast<double>(n)));
        REQUIRE(line[i].im == Approx(lanes[i].im[l]).margin(1e-6 * static_cast<double>(n)));
      }
    }
  }
}

}  // namespace troupe::testing
