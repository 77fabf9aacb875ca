// SPDX-License-Identifier: Apache-2.0
// Plain loops over the products of which a convolution consists.
#include "gpu/fake/fake_dnn.h"

#include <type_traits>
#include <vector>

#include "gpu/fake/block.h"

namespace troupe::gpu {
namespace {

/// Where the elements of images or filters [n, y, x, c] are, whatever their order in memory.
struct HostStrides {
  int64_t n, y, x, c;
  HostStrides(bool channels_first, int64_t height, int64_t width, int64_t channels)
      : n(height * width * channels), y(channels_first ? width : width * channels), x(channels_first ? 1 : channels),
        c(channels_first ? height * width : 1) {}
};

template <class T> class HostConvolution {
 public:
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  explicit HostConvolution(const Convolution& c)
      : c_(c), in_(c.channels_first, c.y.in, c.x.in, c.in_channels),
        out_(c.channels_first, c.y.out, c.x.out, c.out_channels),
        filter_(c.channels_first, c.y.size, c.x.size, c.in_channels / c.groups) {}

  void run() {
    using Makes = Convolution::Makes;
    const auto *x = static_cast<const T*>(c_.input), *w = static_cast<const T*>(c_.filter),
               *y = static_cast<const T*>(c_.output);
    const int64_t count = c_.makes == Makes::kOutput  ? c_.batch * out_.n
                          : c_.makes == Makes::kInput ? c_.batch * in_.n
                                                      : c_.out_channels * filter_.n;
    std::vector<A> sums(static_cast<size_t>(count), A(0));
    switch (c_.makes) {
      case Makes::kOutput:
        for_each_product(
            [&](int64_t i, int64_t f, int64_t o) { sums[o] += static_cast<A>(x[i]) * static_cast<A>(w[f]); });
        break;
      case Makes::kInput:
        for_each_product(
            [&](int64_t i, int64_t f, int64_t o) { sums[i] += static_cast<A>(y[o]) * static_cast<A>(w[f]); });
        break;
      case Makes::kFilter:
        for_each_product(
            [&](int64_t i, int64_t f, int64_t o) { sums[f] += static_cast<A>(x[i]) * static_cast<A>(y[o]); });
        break;
    }
    if (c_.makes == Makes::kOutput) finish(sums);
    auto* made = static_cast<T*>(c_.made);
    for (int64_t i = 0; i < count; ++i) made[i] = static_cast<T>(sums[i]);
  }

 private:
  void finish(std::vector<A>& sums) const {
    const auto* bias = static_cast<const T*>(c_.bias);
    for (int64_t i = 0; i < c_.batch * out_.n; ++i) {
      A& x = sums[static_cast<size_t>(i)];
      if (bias) x += static_cast<A>(bias[i / out_.c % c_.out_channels]);
      if (c_.activation == Activation::kRelu && x < 0) x = A(0);
    }
  }
  /// Calls f(element of the input, of the filter, of the output) for each product.
  template <class F> void for_each_product(F f) const {
    const int64_t from = c_.in_channels / c_.groups, to = c_.out_channels / c_.groups;
    for (int64_t n = 0; n < c_.batch; ++n)
      for (int64_t oy = 0; oy < c_.y.out; ++oy)
        for (int64_t ox = 0; ox < c_.x.out; ++ox)
          for (int64_t fy = 0; fy < c_.y.size; ++fy) {
            const int64_t iy = oy * c_.y.stride - c_.y.padding + fy * c_.y.dilation;
            if (iy < 0 || iy >= c_.y.in) continue;
            for (int64_t fx = 0; fx < c_.x.size; ++fx) {
              const int64_t ix = ox * c_.x.stride - c_.x.padding + fx * c_.x.dilation;
              if (ix < 0 || ix >= c_.x.in) continue;
              const int64_t i = n * in_.n + iy * in_.y + ix * in_.x, o = n * out_.n + oy * out_.y + ox * out_.x;
              const int64_t w = fy * filter_.y + fx * filter_.x;
              for (int64_t k = 0; k < c_.out_channels; ++k)
                for (int64_t q = 0; q < from; ++q)
                  f(i + (k / to * from + q) * in_.c, k * filter_.n + w + q * filter_.c, o + k * out_.c);
            }
          }
  }

  const Convolution c_;
  const HostStrides in_, out_, filter_;
};

class FakeDnn final : public Dnn {
 public:
  explicit FakeDnn(const FakeDnnOptions& options) : options_(options) {}
  Status convolve(const Compute& gpu, const Convolution& c) override {
    if (Status status = check_convolution(c); !status.ok()) {
      fake::add_fault(status.error().message);
      return status;
    }
    if (c.activation != Activation::kNone && c.activation != Activation::kRelu)
      return make_error(Code::kUnimplemented, "convolutions have no such activation");
    if (!options_.epilogues && (c.bias || c.activation != Activation::kNone))
      return make_error(Code::kUnimplemented, "the test asked for a library without epilogues");
    switch (c.dtype) {
      case DType::kFloat32: gpu.stream.enqueue([c] { HostConvolution<float>(c).run(); }); break;
      case DType::kFloat64: gpu.stream.enqueue([c] { HostConvolution<double>(c).run(); }); break;
      case DType::kFloat16: gpu.stream.enqueue([c] { HostConvolution<float16>(c).run(); }); break;
      case DType::kBFloat16: gpu.stream.enqueue([c] { HostConvolution<bfloat16>(c).run(); }); break;
      default: return make_error(Code::kUnimplemented, "GPUs have no convolution of {}", to_string(c.dtype));
    }
    return gpu.stream.check_launch("convolution");
  }

 private:
  const FakeDnnOptions options_;
};

}  // namespace

std::shared_ptr<Dnn> make_fake_dnn(const FakeDnnOptions& options) { return std::make_shared<FakeDnn>(options); }

}  // namespace troupe::gpu
