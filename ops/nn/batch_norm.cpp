// SPDX-License-Identifier: Apache-2.0
// Batch normalisation: FusedBatchNormV3 and its gradient, and both with the Relu behind. Source: Ioffe and Szegedy,
// "Batch Normalization", 2015.
#include "ops/nn/batch_norm.h"

#include <cmath>
#include <cstring>

#include "devices/parallel.h"
#include "ops/nn/activation_functors.h"
#include "ops/nn/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

Status check_channel_vector(const Tensor& t, const char* name, int64_t channels) {
  if (t.rank() == 1 && t.dim(0) == channels) return {};
  return invalid_argument("{} {} for {} channels", name, t.shape().str(), channels);
}

}  // namespace

BatchNormAttrs::BatchNormAttrs(const KernelInit& init)
    : layout(*init.attrs), training(init.attr<bool>("is_training")), epsilon(init.attr<float>("epsilon")),
      factor(init.attrs->get_or<float>("exponential_avg_factor", 1)) {}

Result<BatchNormRelu> BatchNormRelu::parse(const KernelInit& init) {
  const auto sides = init.attr<int64_t>("num_side_inputs");
  if (sides > 1) return invalid_argument("num_side_inputs must be 0 or 1, got {}", sides);
  BatchNormRelu relu;
  relu.on = true;
  relu.side = sides == 1;
  relu.group = relu_group(size_of(init.attr<DType>("T")));
  return relu;
}

Status check_relu_reserve(const Tensor& reserve, int64_t wanted) {
  if (reserve.rank() == 1 && reserve.dim(0) == wanted) return {};
  return invalid_argument("reserve_space_3 {} is not what training left for this y_backprop: it must have {} elements",
                          reserve.shape().str(), wanted);
}

Status check_side_input(const KernelContext& c) {
  const Shape &x = c.input(0).shape(), &side = c.input(5).shape();
  if (x == side) return {};
  return invalid_argument("side_input {} is not of the shape of x, {}", side.str(), x.str());
}

Result<ImagesView> batch_norm_view(const KernelContext& c, const BatchNormAttrs& attrs) {
  const Tensor& x = c.input(0);
  if (x.rank() != attrs.layout.rank)
    return invalid_argument("x must have rank {}, but its shape is {}", attrs.layout.rank, x.shape().str());
  const ImagesView v(x.shape(), attrs.layout);
  constexpr const char* kNames[] = {"x", "scale", "offset", "mean", "variance"};
  for (int i = 1; i < (attrs.training && !attrs.blends() ? 3 : 5); ++i)
    TROUPE_RETURN_IF_ERROR(check_channel_vector(c.input(i), kNames[i], v.channels));
  return v;
}

Result<ImagesView> batch_norm_grad_view(const KernelContext& c, const BatchNormAttrs& attrs) {
  const Tensor &g = c.input(0), &x = c.input(1);
  if (x.rank() != attrs.layout.rank || g.shape() != x.shape())
    return invalid_argument("y_backprop {} does not fit x {}", g.shape().str(), x.shape().str());
  const ImagesView v(x.shape(), attrs.layout);
  constexpr const char* kNames[] = {"", "", "scale", "reserve_space_1", "reserve_space_2"};
  for (int i = 2; i < 5; ++i) TROUPE_RETURN_IF_ERROR(check_channel_vector(c.input(i), kNames[i], v.channels));
  return v;
}

namespace {

/// sums[i] += v and products[i] += v * (x[r][i] - m[i]) over the rows, where v is a[r][i], less m[i] if `centre`.
template <class T>
[[gnu::always_inline]] inline void sum_rows_body(const T* a, const T* x, const T* m, bool centre, T* sums, T* products,
                                                 int64_t rows, int64_t n) {
  const T part = centre ? T(1) : T(0);
  for (int64_t r = 0; r < rows; ++r, a += n, x += n)
    for (int64_t i = 0; i < n; ++i) {
      const T v = a[i] - part * m[i];
      sums[i] += v;
      products[i] += v * (x[i] - m[i]);
    }
}
void sum_rows(const double* a, const double* x, const double* m, bool centre, double* sums, double* products,
              int64_t rows, int64_t n) {
  sum_rows_body(a, x, m, centre, sums, products, rows, n);
}
TROUPE_SIMD_CLONES void sum_rows(const float* __restrict a, const float* __restrict x, const float* __restrict m,
                                 bool centre, float* __restrict sums, float* __restrict products, int64_t rows,
                                 int64_t n) {
  sum_rows_body(a, x, m, centre, sums, products, rows, n);
}

/// out[r][i] = g[r][i] * p[i] + (x[r][i] - m[i]) * q[i] + b[i], without the first where `p` is null: a 0 in its place
/// would make NaN of an infinite g. Each coefficient moves on by `step` with i.
template <class T>
[[gnu::always_inline]] inline void affine_body(T* out, const T* g, const T* x, const T* m, const T* p, const T* q,
                                               const T* b, int64_t rows, int64_t n, int64_t step) {
  for (int64_t r = 0; r < rows; ++r, out += n, g += n, x += n) {
    if (!p && step == 0)
      for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - *m) * *q + *b;
    else if (!p)
      for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - m[i]) * q[i] + b[i];
    else if (step == 0)
      for (int64_t i = 0; i < n; ++i) out[i] = g[i] * *p + (x[i] - *m) * *q + *b;
    else
      for (int64_t i = 0; i < n; ++i) out[i] = g[i] * p[i] + (x[i] - m[i]) * q[i] + b[i];
  }
}
void affine(double* out, const double* g, const double* x, const double* m, const double* p, const double* q,
            const double* b, int64_t rows, int64_t n, int64_t step) {
  affine_body(out, g, x, m, p, q, b, rows, n, step);
}
TROUPE_SIMD_CLONES void affine(float* out, const float* g, const float* x, const float* m, const float* p,
                               const float* q, const float* b, int64_t rows, int64_t n, int64_t step) {
  affine_body(out, g, x, m, p, q, b, rows, n, step);
}

/// Sums over each channel of v and of v * (x - m); see sum_rows.
template <class T> struct Sums {
  std::vector<double> sum, product;

  Sums(const ImagesView& v, const T* a, const T* x, const std::vector<T>& m, bool centre, int threads)
      : sum(v.channels, 0.0), product(v.channels, 0.0) {
    if (v.empty()) return;
    if (v.inner > 1) {
      parallel_for(threads, v.channels, 1 + kCheapGrain / v.count(), [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c)
          for (int64_t o = 0; o < v.outer; ++o) plane(a, x, m[c], centre, (o * v.channels + c) * v.inner, v.inner, c);
      });
      return;
    }
    const int64_t pieces =
        std::clamp<int64_t>(v.outer * v.channels / kCheapGrain, 1, std::min<int64_t>(threads, v.outer));
    std::vector<double> sums(pieces * v.channels, 0.0), products(pieces * v.channels, 0.0);
    parallel_for(static_cast<int>(pieces), pieces, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> s(v.channels), p(v.channels);
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t last = v.outer * (piece + 1) / pieces;
        for (int64_t r = v.outer * piece / pieces; r < last; r += kBlock) {
          std::fill(s.begin(), s.end(), T(0));
          std::fill(p.begin(), p.end(), T(0));
          sum_rows(a + r * v.channels, x + r * v.channels, m.data(), centre, s.data(), p.data(),
                   std::min(kBlock, last - r), v.channels);
          for (int64_t c = 0; c < v.channels; ++c) {
            sums[piece * v.channels + c] += s[c];
            products[piece * v.channels + c] += p[c];
          }
        }
      }
    });
    for (int64_t i = 0; i < pieces * v.channels; ++i) {
      sum[i % v.channels] += sums[i];
      product[i % v.channels] += products[i];
    }
  }

 private:
  /// Rows whose sum is kept in T before it joins a double: bounds the rounding error.
  static constexpr int64_t kBlock = 128;

  void plane(const T* a, const T* x, T m, bool centre, int64_t at, int64_t n, int64_t c) {
    constexpr int64_t kLanes = 16;
    T s[kLanes] = {}, p[kLanes] = {}, ms[kLanes];
    std::fill_n(ms, kLanes, m);
    const int64_t rows = n / kLanes;
    sum_rows(a + at, x + at, ms, centre, s, p, rows, kLanes);
    sum_rows(a + at + rows * kLanes, x + at + rows * kLanes, ms, centre, s, p, 1, n - rows * kLanes);
    for (int64_t i = 0; i < kLanes; ++i) {
      sum[c] += s[i];
      product[c] += p[i];
    }
  }
};

/// The sum over channel c of a * ((x - m) * factor): finite in places where that of a * (x - m), times factor, is not.
template <class T> double scaled_product(const ImagesView& v, const T* a, const T* x, T m, T factor, int64_t c) {
  double sum = 0;
  for (int64_t o = 0; o < v.outer; ++o)
    for (int64_t at = (o * v.channels + c) * v.inner, end = at + v.inner; at < end; ++at)
      sum += a[at] * ((x[at] - m) * factor);
  return sum;
}

/// affine() of all channels; `p` may be empty.
template <class T>
void affine_channels(const ImagesView& v, T* out, const T* g, const T* x, const std::vector<T>& m,
                     const std::vector<T>& p, const std::vector<T>& q, const std::vector<T>& b, int threads) {
  if (v.empty()) return;
  if (v.inner > 1) {
    parallel_for(threads, v.outer * v.channels, 1 + kCheapGrain / v.inner, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = i % v.channels, at = i * v.inner;
        affine(out + at, g + at, x + at, &m[c], p.empty() ? nullptr : &p[c], &q[c], &b[c], 1, v.inner, 0);
      }
    });
  } else {
    parallel_for(threads, v.outer, 1 + kCheapGrain / v.channels, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * v.channels;
      affine(out + at, g + at, x + at, m.data(), p.empty() ? nullptr : p.data(), q.data(), b.data(), end - begin,
             v.channels, 1);
    });
  }
}

/// y = Relu(y + side), where `side` may be null; leaves where it is on in `bits`, if that is not null.
template <class T>
void add_and_rectify(T* y, const T* side, unsigned char* bits, int64_t group, int64_t n, int threads) {
  parallel_for(threads, (n + group - 1) / group, kCheapGrain / group, [&](int64_t begin, int64_t end) {
    for (int64_t byte = begin; byte < end; ++byte) {
      unsigned on = 0;
      for (int64_t i = byte * group; i < std::min((byte + 1) * group, n); ++i) {
        y[i] = activation_functors::Relu::apply(side ? y[i] + side[i] : y[i]);
        on |= static_cast<unsigned>(y[i] > T(0)) << i % group;
      }
      if (bits) bits[byte] = static_cast<unsigned char>(on);
    }
  });
}

/// out[i] is g[i] where Relu was on, else 0.
template <class T>
void rectify_gradient(T* out, const T* g, const unsigned char* bits, int64_t group, int64_t n, int threads) {
  parallel_for(threads, n, kCheapGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = bits[i / group] >> i % group & 1 ? g[i] : T(0);
  });
}

template <class T> std::vector<T> vector_of(const Tensor& t) { return {t.data<T>(), t.data<T>() + t.elements()}; }

template <class T> class BatchNorm final : public ComputeKernel {
 public:
  explicit BatchNorm(const KernelInit& init, BatchNormRelu relu = {})
      : attrs_(init), relu_(relu), statistics_(init.op == "_BatchNormStatistics") {}

  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const ImagesView v, batch_norm_view(c, attrs_));
    if (relu_.side) TROUPE_RETURN_IF_ERROR(check_side_input(c));
    const bool training = attrs_.training;
    std::vector<T> mean, variance;
    if (training || v.empty()) {
      mean.assign(v.channels, T(0));
      const double n = static_cast<double>(std::max<int64_t>(v.count(), 1));
      const Sums<T> first(v, x.data<T>(), x.data<T>(), mean, false, c.threads());
      for (int64_t i = 0; i < v.channels; ++i) mean[i] = static_cast<T>(first.sum[i] / n);
      const Sums<T> second(v, x.data<T>(), x.data<T>(), mean, true, c.threads());
      for (int64_t i = 0; i < v.channels; ++i) variance.push_back(static_cast<T>(second.product[i] / n));
    } else {
      mean = vector_of<T>(c.input(3));
      variance = vector_of<T>(c.input(4));
    }
    const std::vector<T> scale = vector_of<T>(c.input(1)), offset = vector_of<T>(c.input(2));
    std::vector<T> factor(v.channels);
    for (int64_t i = 0; i < v.channels; ++i)
      factor[i] = scale[i] / std::sqrt(variance[i] + static_cast<T>(attrs_.epsilon));
    TROUPE_ASSIGN(Tensor reserve_mean, vector(c, mean));
    TROUPE_ASSIGN(Tensor reserve_variance, vector(c, variance));
    const int64_t n = x.elements(), kept = relu_.on && training ? relu_reserve(n, relu_.group, sizeof(T)) : 0;
    TROUPE_ASSIGN(Tensor reserve, c.allocate(dtype_of<T>, {kept}));
    if (kept > 0) std::memset(reserve.mutable_raw(), 0, reserve.bytes());
    if (training) {
      const T unbiased = static_cast<T>(v.count()) / static_cast<T>(std::max<int64_t>(v.count() - 1, 1));
      for (int64_t i = 0; i < v.channels; ++i) {
        variance[i] *= unbiased;
        if (!attrs_.blends()) continue;
        const T old = static_cast<T>(1 - attrs_.factor), part = static_cast<T>(attrs_.factor);
        mean[i] = old * c.input(3).data<T>()[i] + part * mean[i];
        variance[i] = old * c.input(4).data<T>()[i] + part * variance[i];
      }
    }
    if (v.empty()) mean.assign(v.channels, T(NAN)), variance = mean;
    TROUPE_ASSIGN(Tensor batch_mean, vector(c, mean));
    TROUPE_ASSIGN(Tensor batch_variance, vector(c, variance));
    if (statistics_) {
      TROUPE_ASSIGN(Tensor factors, vector(c, factor));
      Tensor outputs[] = {batch_mean, batch_variance, reserve_mean, reserve_variance, factors};
      for (int i = 0; i < 5; ++i) c.set_output(i, std::move(outputs[i]));
      return {};
    }
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    affine_channels(v, y.mutable_data<T>(), x.data<T>(), x.data<T>(), vector_of<T>(reserve_mean), {}, factor, offset,
                    c.threads());
    if (relu_.on)
      add_and_rectify(y.mutable_data<T>(), relu_.side ? c.input(5).data<T>() : nullptr,
                      kept > 0 ? static_cast<unsigned char*>(reserve.mutable_raw()) : nullptr, relu_.group, n,
                      c.threads());
    Tensor outputs[] = {y, batch_mean, batch_variance, reserve_mean, reserve_variance, reserve};
    y = Tensor();
    for (int i = 0; i < 6; ++i) c.set_output(i, std::move(outputs[i]));
    return {};
  }

 private:
  static Result<Tensor> vector(KernelContext& c, const std::vector<T>& values) {
    TROUPE_ASSIGN(Tensor t, c.allocate(dtype_of<T>, {static_cast<int64_t>(values.size())}));
    std::copy(values.begin(), values.end(), t.mutable_data<T>());
    return t;
  }

  const BatchNormAttrs attrs_;
  const BatchNormRelu relu_;
  const bool statistics_;  // of _BatchNormStatistics: no y
};

template <class T> class BatchNormGrad final : public ComputeKernel {
 public:
  explicit BatchNormGrad(const KernelInit& init, BatchNormRelu relu = {}) : attrs_(init), relu_(relu) {}

  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(1);
    TROUPE_ASSIGN(const ImagesView v, batch_norm_grad_view(c, attrs_));
    Tensor g = c.input(0);
    if (relu_.on) {
      TROUPE_RETURN_IF_ERROR(check_relu_reserve(c.input(5), relu_reserve(x.elements(), relu_.group, sizeof(T))));
      TROUPE_ASSIGN(g, c.allocate(x.dtype(), x.shape()));
      rectify_gradient(g.mutable_data<T>(), c.input(0).data<T>(), static_cast<const unsigned char*>(c.input(5).raw()),
                       relu_.group, x.elements(), c.threads());
    }
    const std::vector<T> scale = vector_of<T>(c.input(2)), mean = vector_of<T>(c.input(3));
    const T* variance = c.input(4).data<T>();
    const Sums<T> sums(v, g.data<T>(), x.data<T>(), mean, false, c.threads());
    TROUPE_ASSIGN(Tensor by_scale, c.allocate(dtype_of<T>, {v.channels}));
    TROUPE_ASSIGN(Tensor by_offset, c.allocate(dtype_of<T>, {v.channels}));
    TROUPE_ASSIGN(Tensor dx, c.forward_or_allocate(0, x.dtype(), x.shape()));
    std::vector<T> p(v.channels), q(v.channels, T(0)), b(v.channels, T(0));
    const double n = static_cast<double>(std::max<int64_t>(v.count(), 1));
    for (int64_t i = 0; i < v.channels; ++i) {
      const double inverse = 1 / std::sqrt(static_cast<double>(variance[i]) + static_cast<T>(attrs_.epsilon));
      // Inference overflows as TensorFlow's does, which multiplies the sum there.
      const bool term_by_term = attrs_.training && !std::isfinite(sums.product[i]);
      by_scale.mutable_data<T>()[i] =
          static_cast<T>(term_by_term ? scaled_product(v, g.data<T>(), x.data<T>(), mean[i], static_cast<T>(inverse), i)
                                      : sums.product[i] * inverse);
      by_offset.mutable_data<T>()[i] = static_cast<T>(sums.sum[i]);
      p[i] = static_cast<T>(scale[i] * inverse);
      if (!attrs_.training) continue;
      q[i] = static_cast<T>(-scale[i] * inverse * inverse * inverse * sums.product[i] / n);
      b[i] = static_cast<T>(-scale[i] * inverse * sums.sum[i] / n);
    }
    if (attrs_.training) affine_channels(v, dx.mutable_data<T>(), g.data<T>(), x.data<T>(), mean, p, q, b, c.threads());
    else  // x has no part in it, be it infinite
      affine_channels(v, dx.mutable_data<T>(), g.data<T>(), g.data<T>(), q, {}, p, b, c.threads());
    c.set_output(0, std::move(dx));
    c.set_output(1, std::move(by_scale));
    c.set_output(2, std::move(by_offset));
    if (relu_.on) {
      if (relu_.side) c.set_output(3, std::move(g));
      return {};
    }
    TROUPE_ASSIGN(Tensor none, c.allocate(dtype_of<T>, {0}));
    c.set_output(3, none);
    c.set_output(4, std::move(none));
    return {};
  }

 private:
  const BatchNormAttrs attrs_;
  const BatchNormRelu relu_;
};

/// A factory of BatchNorm<T> or BatchNormGrad<T> with Relu; with `half` of those of float32 for 16-bit floats.
template <class K, bool half = false> Result<std::unique_ptr<ComputeKernel>> make_with_relu(const KernelInit& init) {
  TROUPE_ASSIGN(BatchNormRelu relu, BatchNormRelu::parse(init));
  if (half) relu.group = relu_group(2);
  return std::unique_ptr<ComputeKernel>(new K(init, relu));
}

/// The size of the channels of input `image` and of the vectors [first, last], all one.
Result<int64_t> channel_size(ShapeContext& c, int image, int first, int last) {
  const BatchNormLayout layout(c.attrs());
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(image, layout.rank));
  int64_t channels = x[layout.channel()];
  for (int i = first; i <= last; ++i) {
    TROUPE_ASSIGN(const PartialShape s, c.with_rank(i, 1));
    if (s[0] >= 0 && channels >= 0 && s[0] != channels)
      return invalid_argument("input {} of shape {} for {} channels of input {}", i, s.str(), channels, x.str());
    channels = std::max(channels, s[0]);
  }
  return channels;
}

/// Of the forward pass.
Result<int64_t> norm_channels(ShapeContext& c) {
  const bool plain = c.attr<bool>("is_training") && c.attr<float>("exponential_avg_factor") == 1.0f;
  return channel_size(c, 0, 1, plain ? 2 : 4);
}

Status batch_norm_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const int64_t channels, norm_channels(c));
  c.set_output(0, c.input(0));
  for (int i = 1; i < 5; ++i) c.set_output(i, {channels});
  c.set_output(5, {0});
  return {};
}

Status batch_norm_statistics_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const int64_t channels, norm_channels(c));
  for (int i = 0; i < 5; ++i) c.set_output(i, {channels});
  return {};
}

Status batch_norm_relu_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(batch_norm_shape(c));
  PartialShape y = c.input(0);
  for (int i = 5; i < c.num_inputs(); ++i) {
    TROUPE_ASSIGN(y, PartialShape::merge(y, c.input(i)));
  }
  c.set_output(0, std::move(y));
  c.set_output(5, {c.attr<bool>("is_training") ? -1 : 0});
  return {};
}

Status batch_norm_relu_grad_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const int64_t channels, channel_size(c, 1, 2, 4));
  TROUPE_ASSIGN(PartialShape x, PartialShape::merge(c.input(0), c.input(1)));
  for (int i = 3; i < c.num_outputs(); ++i) c.set_output(i, x);
  c.set_output(0, std::move(x));
  for (int i = 1; i < 3; ++i) c.set_output(i, {channels});
  return {};
}

Status batch_norm_grad_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const int64_t channels, channel_size(c, 1, 2, 4));
  TROUPE_ASSIGN(PartialShape x, PartialShape::merge(c.input(0), c.input(1)));
  c.set_output(0, std::move(x));
  for (int i = 1; i < 3; ++i) c.set_output(i, {channels});
  for (int i = 3; i < 5; ++i) c.set_output(i, {0});
  return {};
}

Status batch_norm_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  Attrs attrs;
  for (const char* name : {"epsilon", "data_format", "is_training"})
    if (const AttrValue* v = c.node().attrs().find(name)) attrs.set(name, *v);
  const bool training = c.node().attrs().get_or("is_training", true);
  const Output mean = training ? c.output(3) : c.input(3), variance = training ? c.output(4) : c.input(4);
  const auto d = c.ops("FusedBatchNormGradV3", {c.dy(0), c.input(0), c.input(1), mean, variance, c.output(5)}, attrs);
  if (d.size() < 3) return {};
  for (int i = 0; i < 3; ++i) c.set_dx(i, d[i]);
  return {};
}

/// The gradients of FusedBatchNormGradV3 by y_backprop, x and scale. With d = x - mean, r = 1 / sqrt(variance +
/// epsilon), scale a, y_backprop g and <> for the mean over a channel of n places, training has
///   dx = a r (g - <g> - r^2 d <g d>),  dscale = r n <g d>,  doffset = n <g>,
/// where mean and variance depend on x; inference has dx = a r g with both constant. u, u_scale and u_offset are the
/// gradients by these three.
Status batch_norm_grad_gradient(GradientContext& c) {
  const Attrs& attrs = c.node().attrs();
  const bool training = attrs.get_or("is_training", true);
  const BatchNormLayout layout(attrs);
  const DType wide = c.input(2).dtype(), narrow = c.input(1).dtype();
  const auto cast = [&](Output x, DType to) { return x.dtype() == to ? x : c.op("Cast", {x}, {{"DstT", to}}); };
  const auto mul = [&](Output a, Output b) { return c.op("Mul", {a, b}); };
  const auto add = [&](Output a, Output b) { return c.op("AddV2", {a, b}); };
  const auto sub = [&](Output a, Output b) { return c.op("Sub", {a, b}); };
  // Vectors of the channels, as images of one place.
  std::vector<int64_t> around, image(static_cast<size_t>(layout.rank), 1);
  for (int i = 0; i < layout.rank; ++i)
    if (i != layout.channel()) around.push_back(i);
  image[static_cast<size_t>(layout.channel())] = -1;
  const Output places = int_vector(c, around);
  const int64_t flat[] = {-1};
  const auto channels = [&](Output v) { return v ? c.op("Reshape", {v, int_vector(c, image)}) : v; };
  const auto mean = [&](Output x) { return c.op("Mean", {x, places}, {{"keep_dims", true}}); };
  const auto sum = [&](Output x) { return c.op("Sum", {x, places}, {{"keep_dims", true}}); };

  const Output g = cast(c.input(0), wide), x = cast(c.input(1), wide), a = channels(c.input(2));
  const Output zeros = c.op("ZerosLike", {x});
  const Output u = c.dy(0) ? cast(c.dy(0), wide) : zeros, u_scale = channels(c.dy(1)), u_offset = channels(c.dy(2));
  const Output epsilon = scalar_like(c, wide, attrs.get_or("epsilon", 0.0001f));
  const Output r = c.op("Rsqrt", {add(channels(c.input(4)), epsilon)}), r2 = mul(r, r),
               d = sub(x, channels(c.input(3)));
  Output by_g, by_x = zeros, by_scale;
  if (training) {
    const Output g0 = sub(g, mean(g)), u0 = sub(u, mean(u)), gd = mean(mul(g, d)), ud = mean(mul(u, d));
    const Output both = mul(r2, mul(gd, ud));
    by_g = mul(mul(a, r), sub(u0, mul(mul(r2, ud), d)));
    by_scale = mul(r, sum(sub(mul(u, g0), both)));
    Output along_d = mul(a, sub(mean(mul(u, g0)), mul(scalar_like(c, wide, 3), both)));
    if (u_scale) along_d = add(along_d, mul(u_scale, gd));
    by_x = add(mul(d, along_d), mul(a, add(mul(gd, u0), mul(ud, g0))));
    by_x = c.op("Neg", {mul(mul(r, r2), by_x)});
    if (u_scale) by_x = add(by_x, mul(mul(u_scale, r), g0));
  } else {
    by_g = mul(mul(a, r), u);
    by_scale = mul(r, sum(mul(u, g)));
    if (u_scale) by_x = mul(mul(u_scale, r), g);
  }
  if (u_scale) by_g = add(by_g, mul(mul(u_scale, r), d));
  if (u_offset) by_g = add(by_g, u_offset);
  c.set_dx(0, cast(by_g, narrow));
  c.set_dx(1, cast(by_x, narrow));
  c.set_dx(2, c.op("Reshape", {by_scale, int_vector(c, flat)}));
  return {};
}

OpDef with_batch_norm_attrs(OpDef op) {
  op.attr(type_attr("T", FloatTypes{}))
      .attr(type_attr("U", FullFloatTypes{}))
      .attr("epsilon: float = 0.0001")
      .attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
      .attr("is_training: bool = true");
  return op;
}

}  // namespace

void register_batch_norm_ops(OpRegistry& ops, KernelRegistry& kernels) {
  OpDef forward("FusedBatchNormV3");
  forward.input("x: T").input("scale: U").input("offset: U").input("mean: U").input("variance: U");
  forward.output("y: T").output("batch_mean: U").output("batch_variance: U");
  for (const char* name : {"reserve_space_1: U", "reserve_space_2: U", "reserve_space_3: U"}) forward.output(name);
  ops.add(
      with_batch_norm_attrs(std::move(forward))
          .attr("exponential_avg_factor: float = 1.0")
          .shape(batch_norm_shape)
          .doc(
              "Images or volumes x, each channel shifted and scaled to mean 0 and variance 1, then times scale plus "
              "offset. "
              "Training takes mean and variance of the batch and gives them (the variance unbiased) blended with "
              "those given by exponential_avg_factor; else those given are taken. The reserve spaces are for "
              "the gradient. U is T, or float32 where T has 16 bits; vectors that do not fit the channels are errors."),
      gradient(batch_norm_gradient));
  OpDef backward("FusedBatchNormGradV3");
  backward.input("y_backprop: T").input("x: T").input("scale: U");
  for (const char* name : {"reserve_space_1: U", "reserve_space_2: U", "reserve_space_3: U"}) backward.input(name);
  backward.output("x_backprop: T").output("scale_backprop: U").output("offset_backprop: U");
  backward.output("reserve_space_4: U").output("reserve_space_5: U");
  ops.add(with_batch_norm_attrs(std::move(backward))
              .shape(batch_norm_grad_shape)
              .doc("The gradients of FusedBatchNormV3 by x, scale and offset. Reserve spaces 1 and 2 are mean and "
                   "variance, 3 has no effect; 4 and 5 are empty."),
          gradient(batch_norm_grad_gradient));
  OpDef statistics("_BatchNormStatistics");
  statistics.input("x: T").input("scale: U").input("offset: U").input("mean: U").input("variance: U");
  for (const char* name : {"batch_mean: U", "batch_variance: U", "reserve_space_1: U", "reserve_space_2: U"})
    statistics.output(name);
  ops.add(with_batch_norm_attrs(statistics.output("factor: U"))
              .attr("exponential_avg_factor: float = 1.0")
              .shape(batch_norm_statistics_shape)
              .doc("What FusedBatchNormV3 gives beside y, which is (x - reserve_space_1) * factor + offset. A pass "
                   "makes it."),
          not_differentiable("passes make it, after gradients"));
  OpDef with_relu("_FusedBatchNormRelu");
  with_relu.input("x: T").input("scale: U").input("offset: U").input("mean: U").input("variance: U");
  with_relu.input("side_input: num_side_inputs * T");
  with_relu.output("y: T").output("batch_mean: U").output("batch_variance: U");
  for (const char* name : {"reserve_space_1: U", "reserve_space_2: U", "reserve_space_3: U"}) with_relu.output(name);
  ops.add(
      with_batch_norm_attrs(std::move(with_relu))
          .attr("exponential_avg_factor: float = 1.0")
          .attr("num_side_inputs: int >= 0 = 0")
          .shape(batch_norm_relu_shape)
          .doc("FusedBatchNormV3, then Relu of y, or of y + side_input. Of training reserve_space_3 says where Relu "
               "is on. A pass makes it."),
      not_differentiable("passes make it, after gradients"));
  OpDef relu_gradient("_FusedBatchNormReluGrad");
  relu_gradient.input("y_backprop: T").input("x: T").input("scale: U");
  for (const char* name : {"reserve_space_1: U", "reserve_space_2: U", "reserve_space_3: U"}) relu_gradient.input(name);
  relu_gradient.output("x_backprop: T").output("scale_backprop: U").output("offset_backprop: U");
  relu_gradient.output("side_input_backprop: num_side_inputs * T");
  ops.add(
      with_batch_norm_attrs(std::move(relu_gradient))
          .attr("num_side_inputs: int >= 0 = 0")
          .shape(batch_norm_relu_grad_shape)
          .doc("The gradients of _FusedBatchNormRelu by x, scale, offset and side_input, with its reserve spaces. A "
               "pass makes it."),
      not_differentiable("passes make it, after gradients"));
  const auto add = [&]<class T>() {
    const KernelRegistry::Types types = {{"T", {dtype_of<T>}}, {"U", {dtype_of<T>}}};
    kernels.add<BatchNorm<T>>("FusedBatchNormV3", DeviceKind::kCpu, types);
    kernels.add<BatchNormGrad<T>>("FusedBatchNormGradV3", DeviceKind::kCpu, types);
    kernels.add<BatchNorm<T>>("_BatchNormStatistics", DeviceKind::kCpu, types);
    kernels.add("_FusedBatchNormRelu", DeviceKind::kCpu, types, make_with_relu<BatchNorm<T>>);
    kernels.add("_FusedBatchNormReluGrad", DeviceKind::kCpu, types, make_with_relu<BatchNormGrad<T>>);
  };
  add.template operator()<float>();
  add.template operator()<double>();
  const KernelRegistry::Types vectors = {{"U", {DType::kFloat32}}};
  add_half_kernels<BatchNorm<float>>(kernels, "FusedBatchNormV3", vectors);
  add_half_kernels<BatchNormGrad<float>>(kernels, "FusedBatchNormGradV3", vectors);
  add_half_kernels(kernels, "_FusedBatchNormRelu", make_with_relu<BatchNorm<float>, true>, vectors);
  add_half_kernels(kernels, "_FusedBatchNormReluGrad", make_with_relu<BatchNormGrad<float>, true>, vectors);
}

}  // namespace troupe
