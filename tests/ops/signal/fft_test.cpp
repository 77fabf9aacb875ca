// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of all lengths against the sum that defines them, and bad input.
#include <numbers>

#include "ops/signal/fourier.h"
#include "tests/ops/check_op.h"
#include "tests/ops/complex_cases.h"

namespace troupe::testing {
namespace {

std::vector<Fourier::Number> plain_transform(const std::vector<Fourier::Number>& x, double sign) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<Fourier::Number> out(x.size());
  for (int64_t k = 0; k < n; ++k)
    for (int64_t j = 0; j < n; ++j)
      out[k] += x[j] * std::polar(1.0, sign * 2 * std::numbers::pi * static_cast<double>(j * k % n) / n);
  return out;
}

}  // namespace

TEST_CASE("transforms of every length are the sums that define them", "[fft]") {
  for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 30, 31, 36, 37, 64, 74, 97, 120, 127, 210, 256, 341, 1021}) {
    INFO(n);
    std::vector<Fourier::Number> x;
    for (int64_t i = 0; i < n; ++i) x.emplace_back(std::sin(1.3 * i), std::cos(0.7 * i * i));
    Fourier fourier(n);
    for (const bool inverse : {false, true}) {
      std::vector<Fourier::Number> got = x;
      fourier.run(got.data(), inverse);
      const auto want = plain_transform(x, inverse ? 1 : -1);
      for (int64_t k = 0; k < n; ++k) REQUIRE(std::abs(got[k] - want[k]) < 1e-11 * static_cast<double>(n));
    }
  }
}

TEST_CASE("a transform and its inverse give what they were given, on two threads too", "[fft]") {
  const Tensor x = random_tensor<float>({3, 50, 34, 33}, 6);
  for (const auto& [forward, back, lengths] : {std::tuple{"RFFT", "IRFFT", I({33})},
                                               {"RFFT2D", "IRFFT2D", I({34, 33})},
                                               {"RFFT3D", "IRFFT3D", I({50, 34, 33})}}) {
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

TEST_CASE("several transforms at once are those of one") {
  for (int64_t n : {1, 2, 3, 4, 8, 12, 16, 48, 64, 97, 127, 256, 341, 1021}) {
    INFO(n);
    Fourier fourier(n);
    std::vector<Fourier::Lanes> lanes(static_cast<size_t>(n)), work(static_cast<size_t>(fourier.work_size()));
    std::vector<std::vector<Fourier::Number>> lines(Fourier::kLanes);
    for (int l = 0; l < Fourier::kLanes; ++l)
      for (int64_t i = 0; i < n; ++i) {
        lines[l].emplace_back(std::sin(1.3 * i + l), std::cos(0.7 * i * i - l));
        lanes[i].re[l] = lines[l][i].real();
        lanes[i].im[l] = lines[l][i].imag();
      }
    fourier.run(lanes.data(), work.data());
    for (int l = 0; l < Fourier::kLanes; ++l) {
      fourier.run(lines[l].data(), false);
      for (int64_t i = 0; i < n; ++i)
        REQUIRE(std::abs(lines[l][i] - Fourier::Number(lanes[i].re[l], lanes[i].im[l])) <
                1e-11 * static_cast<double>(n));
    }
  }
}

}  // namespace troupe::testing
