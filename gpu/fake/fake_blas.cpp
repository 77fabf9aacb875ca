// SPDX-License-Identifier: Apache-2.0
// Plain loops, row of b by row of b, so that compilers vectorise them.
#include "gpu/fake/fake_blas.h"

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "gpu/fake/block.h"

namespace troupe::gpu {
namespace {

/// float of 16-bit floats.
template <class T> using HostSum = std::conditional_t<std::is_same_v<T, double>, double, float>;

double gelu_tanh(double x) { return std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }
double gelu(double x) { return 0.5 * x * (1 + gelu_tanh(x)); }
double gelu_slope(double x) {
  const double g = gelu_tanh(x), slope = (1 - g) * (1 + g);
  const double rest = 0.5 * x * slope * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + g) + (slope == 0 ? 0 : rest);
}

template <class T> class HostProduct {
 public:
  using A = HostSum<T>;
  explicit HostProduct(const Product& p)
      : p_(p), b_(static_cast<size_t>(p.k * p.n)), row_(static_cast<size_t>(p.n)),
        sums_(static_cast<size_t>(p.sums == SumsOf::kNone ? 0
                                  : p.sums == SumsOf::kA  ? p.m
                                                          : p.n)) {}

  void run() {
    for (int64_t i = 0; i < p_.batch; ++i) {
      if (i == 0 || p_.b_step != 0) read_b(static_cast<const T*>(p_.b) + i * p_.b_step);
      const T* a = static_cast<const T*>(p_.a) + i * p_.a_step;
      T* c = static_cast<T*>(p_.c) + i * p_.m * p_.n;
      for (int64_t r = 0; r < p_.m; ++r) {
        std::fill(row_.begin(), row_.end(), A(0));
        for (int64_t q = 0; q < p_.k; ++q) {
          const auto factor = static_cast<A>(p_.ta ? a[q * p_.m + r] : a[r * p_.k + q]);
          const A* from = b_.data() + q * p_.n;
          for (int64_t j = 0; j < p_.n; ++j) row_[j] += factor * from[j];
        }
        finish_row(c + r * p_.n, r);
      }
      if (p_.sums == SumsOf::kA || p_.sums == SumsOf::kB) sum_operand(a);
    }
    for (size_t i = 0; i < sums_.size(); ++i) static_cast<T*>(p_.sums_to)[i] = static_cast<T>(sums_[i]);
  }

 private:
  void read_b(const T* b) {
    for (int64_t q = 0; q < p_.k; ++q)
      for (int64_t j = 0; j < p_.n; ++j) b_[q * p_.n + j] = static_cast<A>(p_.tb ? b[j * p_.k + q] : b[q * p_.n + j]);
  }

  void finish_row(T* c, int64_t r) {
    for (int64_t j = 0; j < p_.n; ++j) {
      A x = static_cast<A>(p_.alpha) * row_[j];
      if (p_.beta != 0) x += static_cast<A>(p_.beta) * static_cast<A>(c[j]);
      if (p_.bias) x += static_cast<A>(static_cast<const T*>(p_.bias)[j]);
      x = activated(x);
      if (p_.mask && !is_on(r, j)) x = A(0);
      if (p_.gelu_of) x *= static_cast<A>(gelu_slope(static_cast<A>(static_cast<const T*>(p_.gelu_of)[r * p_.n + j])));
      if (p_.sums == SumsOf::kResult) sums_[static_cast<size_t>(j)] += x;
      c[j] = static_cast<T>(x);
    }
  }

  void sum_operand(const T* a) {
    for (int64_t q = 0; q < p_.k; ++q)
      for (size_t i = 0; i < sums_.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        sums_[i] += p_.sums == SumsOf::kB ? b_[static_cast<size_t>(q * p_.n + at)]
                                          : static_cast<A>(p_.ta ? a[q * p_.m + at] : a[at * p_.k + q]);
      }
  }

  A activated(A x) const {
    if (p_.activation == Activation::kRelu) return x < 0 ? A(0) : x;
    if (p_.activation == Activation::kGelu) return static_cast<A>(gelu(x));
    return x;
  }
  bool is_on(int64_t r, int64_t j) const {
    return (static_cast<const unsigned char*>(p_.mask)[r * ((p_.n + 127) / 128 * 16) + j / 8] >> j % 8 & 1) != 0;
  }

  const Product p_;
  std::vector<A> b_;    // op(b)
  std::vector<A> row_;  // of the result
  std::vector<A> sums_;
};

class FakeBlas final : public Blas {
 public:
  explicit FakeBlas(const FakeBlasOptions& options) : options_(options) {}
  Status multiply(const Compute& gpu, const Product& p) override {
    const bool sums = p.sums != SumsOf::kNone;
    const bool slopes = p.mask || p.gelu_of, plain = !p.bias && !slopes && p.activation == Activation::kNone;
    if (p.m <= 0 || p.n <= 0 || p.k <= 0 || p.batch <= 0 || (p.batch > 1 && (slopes || sums)) ||
        (slopes && (p.bias || p.activation != Activation::kNone)) || (p.mask && p.gelu_of) ||
        (sums && (!p.sums_to || (p.sums == SumsOf::kResult ? !slopes : !plain)))) {
      fake::add_fault(
          fmt::format("a product of {} [{},{}] x [{},{}] that libraries do not have", p.batch, p.m, p.k, p.k, p.n));
      return make_error(Code::kInternal, "no such product");
    }
    if (!options_.epilogues && (p.bias || p.activation != Activation::kNone || sums))
      return make_error(Code::kUnimplemented, "the test asked for a library without epilogues");
    if (!options_.masks && slopes)
      return make_error(Code::kUnimplemented, "the test asked for a library without masks");
    if (!options_.sums && sums) return make_error(Code::kUnimplemented, "the test asked for a library without sums");
    switch (p.dtype) {
      case DType::kFloat32: gpu.stream.enqueue([p] { HostProduct<float>(p).run(); }); break;
      case DType::kFloat64: gpu.stream.enqueue([p] { HostProduct<double>(p).run(); }); break;
      case DType::kFloat16: gpu.stream.enqueue([p] { HostProduct<float16>(p).run(); }); break;
      case DType::kBFloat16: gpu.stream.enqueue([p] { HostProduct<bfloat16>(p).run(); }); break;
      default: return make_error(Code::kUnimplemented, "GPUs have no product of {}", to_string(p.dtype));
    }
    return gpu.stream.check_launch("matrix product");
  }

 private:
  const FakeBlasOptions options_;
};

}  // namespace

std::shared_ptr<Blas> make_fake_blas(const FakeBlasOptions& options) { return std::make_shared<FakeBlas>(options); }

}  // namespace troupe::gpu
