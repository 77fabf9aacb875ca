// SPDX-License-Identifier: Apache-2.0
// Cases of Fourier transforms.
#pragma once
#include "tests/ops/complex_cases.h"

namespace troupe::testing {

inline std::vector<OpCase> fourier_cases() {
  const auto numbers = [](const Shape& s) {
    const Tensor parts = ramp32(
        [&] {
          Shape twice = s;
          twice.push_back(2);
          return twice;
        }(),
        0.11);
    Tensor t = *Tensor::make(DType::kComplex64, s);
    std::copy_n(parts.data<float>(), parts.elements(), static_cast<float*>(t.mutable_raw()));
    return t;
  };
  const Tensor four = Z({{1, 0}, {2, 0}, {3, 0}, {4, 0}}), made = Z({{10, 0}, {-2, 2}, {-2, 0}, {-2, -2}});
  const Tensor real = F({1, 2, 3, 4}, {4}), half = Z({{10, 0}, {-2, 2}, {-2, 0}});
  return {
      {"FFT", {four}, {}, {made}},
      {"IFFT", {made}, {}, {four}},
      {"FFT", {numbers({2, 7})}},
      {"FFT", {Z({}, {2, 0})}, {}, {Z({}, {2, 0})}},
      {"FFT2D", {numbers({2, 3, 2})}},
      {"IFFT2D", {numbers({3, 4})}},
      {"FFT3D", {numbers({2, 3, 2})}},
      {"IFFT3D", {numbers({2, 2, 3})}},
      {"RFFT", {real, I({4})}, {}, {half}},
      {"RFFT", {real, I({3})}},
      {"RFFT", {real, I({0})}, {}, {Z({})}},
      {"IRFFT", {half, I({4})}, {}, {real}},
      {"IRFFT", {half, I({5})}},
      {"IRFFT", {half, I({2})}},
      {"RFFT2D", {ramp32({2, 3, 4}), I({3, 4})}},
      {"RFFT2D", {ramp32({3, 5}), I({2, 3})}},
      {"IRFFT2D", {numbers({2, 3}), I({2, 5})}},
      {"IRFFT2D", {numbers({3, 3}), I({2, 4})}},
      {"RFFT3D", {ramp32({2, 2, 3}), I({2, 2, 3})}},
      {"IRFFT3D", {numbers({2, 3, 2}), I({2, 3, 2})}},
  };
}

}  // namespace troupe::testing
