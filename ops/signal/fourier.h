// SPDX-License-Identifier: Apache-2.0
// The discrete Fourier transform of sequences of any length. Implemented in ops/signal/fourier.cpp.
#pragma once
#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// Numbers at the same place of L sequences.
template <class R, int L> struct Lanes;
template <class R> struct Lanes<R, 1> { R re, im; };
template <> struct Lanes<float, 8> {
  typedef float Parts __attribute__((vector_size(32), aligned(4)));
  Parts re, im;
};
template <> struct Lanes<double, 4> {
  typedef double Parts __attribute__((vector_size(32), aligned(8)));
  Parts re, im;
};

/// A plan for sequences of n numbers with parts of type R, float or double. Lengths of small prime factors are taken
/// apart by Cooley and Tukey's method; others become a convolution (Bluestein), so that no length takes more than
/// O(n log n). Long sequences are the rows and columns of a matrix (Bailey's four steps), which go through the lanes.
/// Any number of threads may use a plan. Results are the same whatever `threads` is.
template <class R> class Fourier {
 public:
  static constexpr int kLanes = 32 / sizeof(R);
  using Number = Lanes<R, 1>;
  using Numbers = Lanes<R, kLanes>;

  explicit Fourier(int64_t n) : Fourier(n, true) {}
  ~Fourier();
  int64_t size() const { return n_; }
  /// Whether sequences are to go one by one: those of others go several at once.
  bool is_long() const { return rows_ || (convolution_ && convolution_->is_long()); }
  /// What run() needs room for.
  int64_t work_size() const { return convolution_ ? convolution_->size() + convolution_->work_size() : n_; }
  /// Replaces line[k] by the sum of line[j] * exp(-2 pi i j k / n), with up to `threads` threads.
  void run(Number* line, Number* work, int threads = 1) const;
  /// The same of several sequences, of a length that is not long.
  void run(Numbers* lines, Numbers* work) const;
  /// exp(-2 pi i k / n).
  static Number root(int64_t k, int64_t n);

 private:
  friend struct FourierSteps;
  Fourier(int64_t n, bool may_be_long);
  template <class N> void convolve(N* data, N* work, int threads) const;

  const int64_t n_;
  std::vector<int64_t> factors_;
  std::vector<Number> roots_;                // exp(-2 pi i k / n), of lengths that are not long
  std::unique_ptr<Fourier> rows_, columns_;  // of long ones: those of the matrix
  std::vector<Number> turns_;                // exp(-2 pi i j k / n) for each row k of column j
  std::unique_ptr<Fourier> convolution_;     // of a power of two, where n has a large prime factor
  std::vector<Number> chirp_, transform_;    // exp(-pi i k^2 / n), and the transform of its conjugate
};

/// A plan for n numbers, which may be real. Of an even count of real ones, the transform of n / 2 numbers, each made of
/// two neighbours, has all that is needed.
template <class R> class RealFourier {
 public:
  using Number = typename Fourier<R>::Number;
  using Numbers = typename Fourier<R>::Numbers;

  RealFourier(int64_t n, bool real);
  bool halved() const { return half_ > 0; }
  /// Of n / 2 numbers where it is halved, else of n.
  const Fourier<R>& fourier() const { return fourier_; }
  /// Makes of the transform of the pairs of real numbers the first n / 2 + 1 numbers of theirs.
  void part(Number* line) const;
  void part(Numbers* line) const;
  /// Makes of the conjugates of these what has n times the conjugates of the pairs as its transform.
  void join(Number* line) const;
  void join(Numbers* line) const;

 private:
  const int64_t half_;  // n / 2, or 0: not halved
  const Fourier<R> fourier_;
  std::vector<Number> turns_;  // exp(-2 pi i k / n), up to half_
};

}  // namespace troupe
