// SPDX-License-Identifier: Apache-2.0
// The discrete Fourier transform of one sequence of any length. Implemented in ops/signal/fourier.cpp.
#pragma once
#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// A plan for sequences of n numbers, in double precision. Lengths of small prime factors are taken apart by Cooley and
/// Tukey's method; others become a convolution (Bluestein), so that no length takes more than O(n log n). A plan may
/// be used by one thread at a time.
class Fourier {
 public:
  using Number = std::complex<double>;
  explicit Fourier(int64_t n);
  /// Replaces data[k] by the sum of data[j] * exp(-2 pi i j k / n); by that with +, not scaled, when `inverse`.
  void run(Number* data, bool inverse);
  /// Numbers at the same place of kLanes sequences.
  static constexpr int kLanes = 4;
  struct Lanes {
    typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double)), aligned(sizeof(double))));
    Doubles re, im;
  };
  /// run() of as many sequences at once, not inverse, with room for work_size() numbers. Any number of threads.
  void run(Lanes* data, Lanes* work) const;
  int64_t work_size() const { return convolution_ ? 2 * convolution_->size() : n_; }
  /// exp(-2 pi i k / n).
  static Number root(int64_t k, int64_t n);
  int64_t size() const { return n_; }

 private:
  template <class N> void recurse_body(N* out, const N* in, int64_t stride, size_t factor) const;
  void recurse(Number* out, const Number* in, int64_t stride, size_t factor) const;
  void recurse(Lanes* out, const Lanes* in, int64_t stride, size_t factor) const;
  void forward(Number* data);
  void convolve(Number* data);

  const int64_t n_;
  std::vector<int64_t> factors_;
  std::vector<Number> roots_;              // exp(-2 pi i k / n)
  std::vector<Number> work_;               // n numbers, or those of the convolution
  std::unique_ptr<Fourier> convolution_;   // of a power of two, where n has a large prime factor
  std::vector<Number> chirp_, transform_;  // exp(-pi i k^2 / n), and the transform of its conjugate
};

}  // namespace troupe
