// SPDX-License-Identifier: Apache-2.0
// BiasAdd: a vector added along the channels, and the sum over all else that is its gradient.
#include "ops/nn/bias.h"

#include "devices/parallel.h"
#include "ops/nn/register.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// Channel dimension of a tensor of this rank.
int channel_of(bool first, int rank) { return first && rank > 2 ? 1 : rank - 1; }

template <class S> Status check_rank(const S& shape) {
  if (shape.rank() < 2) return invalid_argument("value must have rank 2 or more, but its shape is {}", shape.str());
  return {};
}

}  // namespace

bool bias_channels_first(const Attrs& attrs) { return attrs.get_or<std::string>("data_format", "NHWC") == "NCHW"; }

Result<BiasView> bias_view(const Shape& x, bool first) {
  TROUPE_RETURN_IF_ERROR(check_rank(x));
  const int channel = channel_of(first, x.rank());
  BiasView view;
  view.channels = x[channel];
  for (int i = 0; i < channel; ++i) view.outer *= x[i];
  for (int i = channel + 1; i < x.rank(); ++i) view.inner *= x[i];
  return view;
}

Status check_bias(const Shape& bias, const BiasView& view, const Shape& x) {
  if (bias.rank() != 1 || bias[0] != view.channels)
    return invalid_argument("bias {} for {} channels of value {}", bias.str(), view.channels, x.str());
  return {};
}

namespace {

/// Rows shorter than this are handled several at a time, so that loops over them fill vector registers.
constexpr int64_t kShortRow = 64;

/// How many times a vector of `channels` is repeated to fill kShortRow.
int64_t repeats(int64_t channels) { return channels >= kShortRow ? 1 : (kShortRow + channels - 1) / channels; }

/// out[r][i] = x[r][i] + bias[i].
template <class T> void add_bias_rows(T* out, const T* x, const T* bias, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, out += n, x += n)
    for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(wrapping_add(widen(x[i]), widen(bias[i])));
}
TROUPE_SIMD_CLONES void add_bias_rows(float* out, const float* x, const float* bias, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, out += n, x += n)
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + bias[i];
}

template <class T> void add_scalar(T* out, const T* x, T bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(wrapping_add(widen(x[i]), widen(bias)));
}
TROUPE_SIMD_CLONES void add_scalar(float* out, const float* x, float bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + bias;
}

/// sums[i] += x[r][i] over the rows.
template <class T, class A> void sum_rows(A* sums, const T* x, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n)
    for (int64_t i = 0; i < n; ++i) sums[i] += widen(x[i]);
}
TROUPE_SIMD_CLONES void sum_rows(float* sums, const float* x, int64_t rows, int64_t n) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4, x += 4 * n)
    for (int64_t i = 0; i < n; ++i) sums[i] += (x[i] + x[i + n]) + (x[i + 2 * n] + x[i + 3 * n]);
  for (; r < rows; ++r, x += n)
    for (int64_t i = 0; i < n; ++i) sums[i] += x[i];
}

/// The sum of n values, by 16 partial sums.
template <class T> [[gnu::always_inline]] inline double sum_by_parts(const T* x, int64_t n) {
  Arithmetic<T> part[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) part[j] += widen(x[i + j]);
  double sum = 0;
  for (; i < n; ++i) sum += widen(x[i]);
  for (const auto p : part) sum += p;
  return sum;
}
template <class T> double sum_values(const T* x, int64_t n) { return sum_by_parts(x, n); }
TROUPE_SIMD_CLONES double sum_values(const float* x, int64_t n) { return sum_by_parts(x, n); }

Status bias_add_shape(ShapeContext& c) {
  PartialShape value = c.input(0);
  TROUPE_ASSIGN(const PartialShape bias, c.with_rank(1, 1));
  if (value.has_rank()) {
    const bool first = bias_channels_first(c.attrs());
    TROUPE_RETURN_IF_ERROR(check_rank(value));
    const int channel = channel_of(first, value.rank());
    if (value[channel] >= 0 && bias[0] >= 0 && value[channel] != bias[0])
      return invalid_argument("bias of {} values for {} channels of value {}", bias[0], value[channel], value.str());
    if (value[channel] < 0) value.set(channel, bias[0]);
  }
  c.set_output(0, std::move(value));
  return {};
}

Status bias_add_grad_shape(ShapeContext& c) {
  const PartialShape& value = c.input(0);
  if (!value.has_rank()) {
    c.set_output(0, {-1});
    return {};
  }
  const bool first = bias_channels_first(c.attrs());
  TROUPE_RETURN_IF_ERROR(check_rank(value));
  c.set_output(0, {value[channel_of(first, value.rank())]});
  return {};
}

/// add_bias_rows from element `at` of out and x onwards.
using AddRows = void (*)(void* out, const void* x, const void* bias, int64_t at, int64_t rows, int64_t n);
template <class T> void add_rows_at(void* out, const void* x, const void* bias, int64_t at, int64_t rows, int64_t n) {
  add_bias_rows(static_cast<T*>(out) + at, static_cast<const T*>(x) + at, static_cast<const T*>(bias), rows, n);
}

/// Planes [begin, end) of `inner` elements, each with the bias of its channel.
template <class T> void add_planes(T* out, const T* x, const T* bias, const BiasView& v, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) add_scalar(out + i * v.inner, x + i * v.inner, bias[i % v.channels], v.inner);
}

class BiasAdd final : public ComputeKernel {
 public:
  explicit BiasAdd(const KernelInit& init) : first_(bias_channels_first(*init.attrs)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &bias = c.input(1);
    TROUPE_ASSIGN(const BiasView v, bias_view(x.shape(), first_));
    TROUPE_RETURN_IF_ERROR(check_bias(bias.shape(), v, x.shape()));
    const DType dtype = x.dtype();
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, dtype, x.shape()));
    const void *px = x.raw(), *b = bias.raw();
    void* py = y.mutable_raw();
    if (v.inner != 1 && x.elements() > 0) {
      parallel_for(c.threads(), v.outer * v.channels, 1 + kCheapGrain / v.inner, [&](int64_t begin, int64_t end) {
        with_wrapping(dtype, [&]<class T>() {
          add_planes(static_cast<T*>(py), static_cast<const T*>(px), static_cast<const T*>(b), v, begin, end);
        });
      });
    } else if (x.elements() > 0) {
      AddRows add = nullptr;
      with_wrapping(dtype, [&]<class T>() { add = add_rows_at<T>; });
      const int64_t times = std::min(repeats(v.channels), v.outer), wide = times * v.channels;
      const void* pb = b;
      Tensor repeated;
      if (times > 1) {
        TROUPE_ASSIGN(repeated, c.allocate(dtype, {wide}));
        void* to = repeated.mutable_raw();
        const size_t bytes = static_cast<size_t>(v.channels) * size_of(dtype);
        for (int64_t i = 0; i < times; ++i) std::memcpy(static_cast<char*>(to) + i * bytes, b, bytes);
        pb = to;
      }
      const int64_t rows = v.outer / times;
      parallel_for(c.threads(), rows, 1 + kCheapGrain / wide,
                   [&](int64_t begin, int64_t end) { add(py, px, pb, begin * wide, end - begin, wide); });
      const int64_t done = rows * wide, rest = x.elements() - done;
      add(py, px, pb, done, 1, rest);
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool first_;
};

/// Rows whose sum is kept in T before it joins a double: bounds the rounding error.
constexpr int64_t kSumBlock = 256;

template <class T> void sum_planes(const T* g, const BiasView& v, double* sums, int threads) {
  parallel_for(threads, v.channels, 1 + kCheapGrain / (v.outer * v.inner), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t o = 0; o < v.outer; ++o) sums[i] += sum_values(g + (o * v.channels + i) * v.inner, v.inner);
  });
}

template <class T> void sum_channels_last(const T* g, const BiasView& v, double* sums, int threads) {
  using A = Arithmetic<T>;
  const int64_t times = std::min(repeats(v.channels), v.outer), wide = times * v.channels, rows = v.outer / times;
  const int64_t grain = std::max<int64_t>(1, kCheapGrain / wide);
  const int64_t pieces = std::clamp<int64_t>(rows / grain, 1, threads);
  std::vector<std::vector<double>> partial(pieces, std::vector<double>(wide, 0.0));
  parallel_for(static_cast<int>(pieces), pieces, 1, [&](int64_t begin, int64_t end) {
    std::vector<A> block(wide);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t last = rows * (p + 1) / pieces;
      for (int64_t r = rows * p / pieces; r < last; r += kSumBlock) {
        std::fill(block.begin(), block.end(), A(0));
        sum_rows(block.data(), g + r * wide, std::min(kSumBlock, last - r), wide);
        for (int64_t i = 0; i < wide; ++i) partial[p][i] += block[i];
      }
    }
  });
  for (const auto& part : partial)
    for (int64_t i = 0; i < wide; ++i) sums[i % v.channels] += part[i];
  for (int64_t i = rows * wide; i < v.outer * v.channels; ++i) sums[i % v.channels] += widen(g[i]);
}

template <class T> void sum_floats(const Tensor& g, const BiasView& v, Tensor& y, int threads) {
  std::vector<double> sums(v.channels, 0.0);
  if (g.elements() > 0) (v.inner == 1 ? sum_channels_last<T> : sum_planes<T>)(g.data<T>(), v, sums.data(), threads);
  T* out = y.mutable_data<T>();
  for (int64_t i = 0; i < v.channels; ++i) out[i] = narrow<T>(static_cast<Arithmetic<T>>(sums[i]));
}

/// Of integers, which wrap around, and complex numbers: in the type itself.
template <class T> void sum_plain(const T* in, int64_t n, BiasView v, T* out) {
  for (int64_t i = 0; i < n; ++i) {
    T& sum = out[i / v.inner % v.channels];
    sum = wrapping_add(sum, in[i]);
  }
}

class BiasAddGrad final : public ComputeKernel {
 public:
  explicit BiasAddGrad(const KernelInit& init) : first_(bias_channels_first(*init.attrs)) {}
  Status compute(KernelContext& c) override {
    const Tensor& g = c.input(0);
    TROUPE_ASSIGN(const BiasView v, bias_view(g.shape(), first_));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(g.dtype(), {v.channels}, c.device().allocator));
    if (!with_type(g.dtype(), FloatTypes{}, [&]<class T>() { sum_floats<T>(g, v, y, c.threads()); }))
      with_type(g.dtype(), PlainTypes{},
                [&]<class T>() { sum_plain(g.data<T>(), g.elements(), v, y.mutable_data<T>()); });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  using PlainTypes =
      TypeList<int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t, complex64, complex128>;
  const bool first_;
};

Status bias_add_gradient(GradientContext& c) {
  const std::string format = c.node().attrs().get_or<std::string>("data_format", "NHWC");
  c.set_dx(0, c.dy(0));
  c.set_dx(1, c.op("BiasAddGrad", {c.dy(0)}, Attrs{{"data_format", format}}));
  return {};
}

/// The gradient's gradient g, one value a channel, spread over all places of x.
Status bias_add_grad_gradient(GradientContext& c) {
  const std::string format = c.node().attrs().get_or<std::string>("data_format", "NHWC");
  c.set_dx(0, c.op("BiasAdd", {c.op("ZerosLike", {c.input(0)}), c.dy(0)}, Attrs{{"data_format", format}}));
  return {};
}

}  // namespace

void register_bias_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("BiasAdd")
              .input("value: T")
              .input("bias: T")
              .output("output: T")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
              .shape(bias_add_shape)
              .doc("Adds the vector bias along the channels of value: its last dimension, or its second with NCHW. A "
                   "bias of another length is an error."),
          gradient(bias_add_gradient));
  ops.add(OpDef("BiasAddGrad")
              .input("out_backprop: T")
              .output("output: T")
              .attr(type_attr("T", NumberOrComplexTypes{}))
              .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
              .shape(bias_add_grad_shape)
              .cost(reduction_cost)
              .doc("The sum of out_backprop over all dimensions but the channels: the gradient of BiasAdd by bias."),
          gradient(bias_add_grad_gradient));
  kernels.add<BiasAdd>("BiasAdd", DeviceKind::kCpu, {{"T", NumberOrComplexTypes::dtypes()}});
  kernels.add<BiasAddGrad>("BiasAddGrad", DeviceKind::kCpu, {{"T", NumberOrComplexTypes::dtypes()}});
}

}  // namespace troupe
