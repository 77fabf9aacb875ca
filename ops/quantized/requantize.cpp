// SPDX-License-Identifier: Apache-2.0
// Integers of one range as integers of another: Requantize, RequantizationRange, their forms by channel,
// QuantizeDownAndShrinkRange, QuantizedConcat; and QuantizedRelu, QuantizedRelu6.
#include <span>

#include "devices/parallel.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/wrapping.h"
#include "ops/quantized/axis_slices.h"
#include "ops/quantized/range.h"
#include "ops/quantized/register.h"

namespace troupe {
namespace {

/// From 32 bits to 8 by whole numbers of 16 binary places.
class Shifter {
 public:
  Shifter(const CodeRange& from, const CodeRange& to) {
    const float width = from.high - from.low, target = to.high - to.low;
    const auto middle = static_cast<float>((static_cast<double>(from.low + from.high)) / 2.0);
    const auto steps = target == 0 ? 0.f : static_cast<float>(255.0 / target);
    int64_t start = 0;
    if (target != 0) {
      scale_ = to_integer<int64_t>(255.0 * kOne * width / target);
      start = to_integer<int64_t>(std::round(kOne * (to.low * 255.0) / target));
    }
    offset_ = wrapping_subtract(to_integer<int64_t>(middle * steps * static_cast<float>(kOne)), start);
    offset_ = wrapping_add(offset_, int64_t{kOne / 2});
  }
  uint8_t operator()(int32_t x) const {
    const int64_t scaled = wrapping_multiply(static_cast<int64_t>(static_cast<float>(x)), scale_) >> 32;
    return static_cast<uint8_t>(std::clamp<int64_t>(wrapping_add(scaled, offset_) >> 16, 0, 255));
  }

 private:
  static constexpr int kOne = 1 << 16;
  int64_t scale_ = 0, offset_ = 0;
};

/// x with the integers of another range.
template <class To> Result<Tensor> requantized(const KernelContext& c, const Tensor& x, CodeRange from, CodeRange to) {
  TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<To>, x.shape()));
  const int32_t* in = x.data<int32_t>();
  To* out = y.mutable_data<To>();
  parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<To, uint8_t>) {
      std::transform(in + begin, in + end, out + begin, Shifter(from, to));
    } else {
      const Decoder<int32_t> decode(from);
      const Encoder<To> encode(to);
      std::transform(in + begin, in + end, out + begin, [&](int32_t v) { return encode(decode(v)); });
    }
  });
  return y;
}

class Requantize final : public ComputeKernel {
 public:
  explicit Requantize(const KernelInit& init) : to_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const CodeRange from, range_at(c, 1));
    TROUPE_ASSIGN(const CodeRange to, range_at(c, 3));
    if (!(to.low <= 0 && to.high >= 0))
      return invalid_argument("the range asked for, {} to {}, does not hold zero", to.low, to.high);
    TROUPE_ASSIGN(Tensor y, to_ == DType::kInt8 ? requantized<int8_t>(c, c.input(0), from, to)
                                                : requantized<uint8_t>(c, c.input(0), from, to));
    c.set_output(0, std::move(y));
    set_range(c, 1, to);
    return {};
  }

 private:
  const DType to_;
};

/// The numbers that the least and the most of the integers stand for, widened to zero below.
CodeRange taken(const Tensor& x, const CodeRange& range) {
  int32_t least = std::numeric_limits<int32_t>::max(), most = std::numeric_limits<int32_t>::min();
  for (const int32_t v : x.values<int32_t>()) {
    least = std::min(least, v);
    most = std::max(most, v);
  }
  return {std::min(0.f, number_of(least, range)), number_of(most, range)};
}

class RequantizationRange final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const CodeRange range, range_at(c, 1));
    set_range(c, 0, taken(c.input(0), range));
    return {};
  }
};

class QuantizeDown final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const CodeRange range, range_at(c, 1));
    const CodeRange to = taken(c.input(0), range);
    TROUPE_ASSIGN(Tensor y, requantized<uint8_t>(c, c.input(0), range, to));
    c.set_output(0, std::move(y));
    set_range(c, 1, to);
    return {};
  }
};

// -- by channel -------------------------------------------------------------------------------------------------------

/// For each of the channels, the last dimension of input 0, the larger size of its numbers, which inputs 1 and 2 limit.
Result<std::vector<float>> channel_limits(const KernelContext& c) {
  const Tensor& x = c.input(0);
  std::vector<float> out;
  for (const int i : {1, 2})
    if (x.rank() < 1 || c.input(i).rank() > 1 || c.input(i).elements() != x.dim(-1))
      return invalid_argument("input {} of shape {} has not one number for each channel of {}", i,
                              c.input(i).shape().str(), x.shape().str());
  for (int64_t k = 0; k < x.dim(-1); ++k)
    out.push_back(std::max(std::abs(c.input(1).data<float>()[k]), std::abs(c.input(2).data<float>()[k])));
  return out;
}

constexpr float kWhole = 2147483648;  // what the largest number of a channel is as an integer, or just above it

class RequantizationRangeByChannel final : public ComputeKernel {
 public:
  explicit RequantizationRangeByChannel(const KernelInit& init) : most_(init.attr<float>("clip_value_max")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() != 4 || x.elements() == 0)
      return invalid_argument("input must be images of some elements, not of shape {}", x.shape().str());
    TROUPE_ASSIGN(const std::vector<float> limits, channel_limits(c));
    std::vector<int64_t> sizes(limits.size());
    bool negative = false;
    const auto values = x.values<int32_t>();
    for (size_t i = 0; i < values.size(); ++i) {
      int64_t& size = sizes[i % limits.size()];
      size = std::max(size, std::abs(int64_t{values[i]}));
      negative |= values[i] < 0;
    }
    float most = std::numeric_limits<float>::min();
    for (size_t k = 0; k < limits.size(); ++k) most = std::max(most, limits[k] * static_cast<float>(sizes[k]) / kWhole);
    most = std::min(most, most_);
    set_range(c, 0, {negative ? -most : 0.f, most});
    return {};
  }

 private:
  const float most_;
};

class RequantizeByChannel final : public ComputeKernel {
 public:
  explicit RequantizeByChannel(const KernelInit& init) : to_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() != 4 && x.rank() != 5)
      return invalid_argument("input must be images or volumes, not of shape {}", x.shape().str());
    TROUPE_ASSIGN(const std::vector<float> limits, channel_limits(c));
    TROUPE_ASSIGN(const CodeRange to, range_at(c, 3));
    if (to_ == DType::kInt8 && !(to.low < 0))
      return invalid_argument("the range asked for of int8, {} to {}, does not begin below zero", to.low, to.high);
    std::vector<float> scales;
    const float steps = to_ == DType::kInt8 ? 127.f : 255.f, target = std::max(std::abs(to.low), std::abs(to.high));
    for (const float limit : limits) scales.push_back(steps * (limit / target / kWhole));
    TROUPE_ASSIGN(Tensor y, c.allocate(to_, x.shape()));
    const auto channels = static_cast<int64_t>(limits.size());
    with_type(to_, TypeList<int8_t, uint8_t>{}, [&]<class T>() {
      parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          y.mutable_data<T>()[i] = to_integer<T>(
              std::nearbyint(static_cast<float>(x.data<int32_t>()[i]) * scales[static_cast<size_t>(i % channels)]));
      });
    });
    c.set_output(0, std::move(y));
    set_range(c, 1, to);
    return {};
  }

 private:
  const DType to_;
};

// -- joining ----------------------------------------------------------------------------------------------------------

/// A range that holds those of all values; of signed integers zero is in its middle.
CodeRange joint_range(std::span<const CodeRange> ranges, bool is_signed) {
  CodeRange out = ranges[0];
  for (const CodeRange& r : ranges) out = {std::min(out.low, r.low), std::max(out.high, r.high)};
  if (!is_signed) return out;
  const float size = std::max(std::abs(out.low), std::abs(out.high));
  return {-size, size};
}

/// Inputs: the axis, N values, N lower and N upper ends of ranges.
class QuantizedConcat final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const int n = (c.num_inputs() - 1) / 3;
    const Tensor& first = c.input(1);
    TROUPE_ASSIGN(const int axis, axis_from(c.input(0), first.rank()));
    std::vector<CodeRange> ranges;
    Shape shape = first.shape();
    int64_t total = 0;
    for (int i = 0; i < n; ++i) {
      const Tensor &low = c.input(1 + n + i), &high = c.input(1 + 2 * n + i);
      if (low.elements() != 1 || high.elements() != 1)
        return invalid_argument("the range of value {} is not two numbers: {}, {}", i, low.str(), high.str());
      ranges.push_back({*low.data<float>(), *high.data<float>()});
      Shape s = c.input(1 + i).shape();
      if (s.rank() == shape.rank()) {
        total += s[axis];
        s.set(axis, shape[axis]);
      }
      if (s != shape)
        return invalid_argument("value {} of shape {} does not join {} along dimension {}", i,
                                c.input(1 + i).shape().str(), first.shape().str(), axis);
    }
    shape.set(axis, total);
    TROUPE_ASSIGN(Tensor y, c.allocate(first.dtype(), shape));
    const CodeRange joint = joint_range(ranges, first.dtype() == DType::kInt32);
    with_type(first.dtype(), TypeList<uint8_t, int32_t>{}, [&]<class T>() {
      int64_t at = 0;
      for (int i = 0; i < n; ++i) at += put<T>(y, axis, at, c.input(1 + i), ranges[static_cast<size_t>(i)], joint);
    });
    c.set_output(0, std::move(y));
    set_range(c, 1, joint);
    return {};
  }

 private:
  /// Returns how many rows of the axis x has.
  template <class T>
  static int64_t put(Tensor& y, int axis, int64_t begin, const Tensor& x, const CodeRange& from, const CodeRange& to) {
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < x.rank(); ++d)
      if (d != axis) (d < axis ? outer : inner) *= x.dim(d);
    const int64_t row = x.dim(axis) * inner, step = y.dim(axis) * inner;
    const Decoder<T> decode(from);
    const Encoder<T> encode(to);
    for (int64_t o = 0; o < outer; ++o) {
      const T* in = x.data<T>() + o * row;
      T* out = y.mutable_data<T>() + o * step + begin * inner;
      if (from == to) std::copy_n(in, row, out);
      else std::transform(in, in + row, out, [&](T v) { return encode(decode(v)); });
    }
    return x.dim(axis);
  }
};

Status quantized_concat_shape(ShapeContext& c) {
  const int n = (c.num_inputs() - 1) / 3;
  set_range_shape(c);
  PartialShape out;
  int64_t total = 0;
  const auto at = c.constant_input(0);
  for (int i = 1; i <= n; ++i) {
    PartialShape s = c.input(i);
    if (!s.has_rank()) return {};
    if (!at) {
      s = PartialShape::of_rank(s.rank());
    } else {
      TROUPE_ASSIGN(const int axis, axis_from(*at, s.rank()));
      total = total < 0 || s[axis] < 0 ? -1 : total + s[axis];
      s.set(axis, -1);
    }
    TROUPE_ASSIGN(out, PartialShape::merge(out, s));
  }
  if (at) {
    TROUPE_ASSIGN(const int axis, axis_from(*at, out.rank()));
    out.set(axis, total);
  }
  c.set_output(0, out);
  return {};
}

// -- cutting off ------------------------------------------------------------------------------------------------------

/// The integers not below zero's, and of `six` not above that of 6.
template <bool six> class QuantizedRelu final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const CodeRange range, range_at(c, 1));
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    with_type(x.dtype(), TypeList<uint8_t, int32_t>{}, [&]<class T>() {
      const T low = code_of<T>(0, range), high = six ? code_of<T>(6, range) : std::numeric_limits<T>::max();
      const T* in = x.data<T>();
      T* out = y.mutable_data<T>();
      parallel_for(c.threads(), x.elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = std::min(std::max(in[i], low), high);
      });
    });
    c.set_output(0, std::move(y));
    set_range(c, 1, range);
    return {};
  }
};

Status with_range(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(unchanged_shape(c));
  set_range_shape(c);
  return {};
}

}  // namespace

void register_requantize_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](OpDef& op) { ops.add(std::move(op), not_differentiable(kQuantized)); };
  const std::string ends = "input_min: float32", end = "input_max: float32";
  const auto of = [&](const char* name, const char* type, const char* list) {
    OpDef op(name);
    op.input(std::string("input: ") + type).input(ends).input(end).attr(std::string(type) + ": " + list);
    return op;
  };
  OpDef whole = of("Requantize", "Tinput", "{int32}");
  add(whole.input("requested_output_min: float32")
          .input("requested_output_max: float32")
          .output("output: out_type")
          .output("output_min: float32")
          .output("output_max: float32")
          .attr("out_type: {int8, uint8}")
          .shape(with_range)
          .doc("Integers that stand for the same numbers in the range asked for, which must hold zero; numbers beyond "
               "it are cut off."));
  kernels.add<Requantize>("Requantize", DeviceKind::kCpu, {});
  OpDef range = of("RequantizationRange", "Tinput", "{int32}");
  add(range.output("output_min: float32")
          .output("output_max: float32")
          .shape(scalar_shape)
          .doc("The range of the numbers that the input's integers stand for, widened to zero below."));
  kernels.add<RequantizationRange>("RequantizationRange", DeviceKind::kCpu, {});
  OpDef shrunk = of("QuantizeDownAndShrinkRange", "Tinput", "{int32}");
  add(shrunk.output("output: out_type")
          .output("output_min: float32")
          .output("output_max: float32")
          .attr("out_type: {uint8}")
          .shape(with_range)
          .doc("Integers of 8 bits that stand for the same numbers, with the range that these take: "
               "RequantizationRange and Requantize in one."));
  kernels.add<QuantizeDown>("QuantizeDownAndShrinkRange", DeviceKind::kCpu, {});
  OpDef range_by_channel = of("RequantizationRangePerChannel", "T", "{int32} = int32");
  add(range_by_channel.output("output_min: float32")
          .output("output_max: float32")
          .attr("clip_value_max: float")
          .shape(scalar_shape)
          .doc("The range of the numbers of images whose channels have ranges with zero in the middle; it ends at "
               "clip_value_max at the latest, and begins at zero where no number is below."));
  kernels.add<RequantizationRangeByChannel>("RequantizationRangePerChannel", DeviceKind::kCpu, {});
  OpDef by_channel = of("RequantizePerChannel", "T", "{int32} = int32");
  add(by_channel.input("requested_output_min: float32")
          .input("requested_output_max: float32")
          .output("output: out_type")
          .output("output_min: float32")
          .output("output_max: float32")
          .attr("out_type: {int8, uint8} = uint8")
          .shape(with_range)
          .doc(
              "Integers of 8 bits that stand for the same numbers of images or volumes whose channels have ranges with "
              "zero in the middle, rounded to the nearest, of two to the even one."));
  kernels.add<RequantizeByChannel>("RequantizePerChannel", DeviceKind::kCpu, {});
  OpDef join("QuantizedConcat");
  add(join.input("concat_dim: int32")
          .input("values: N * T")
          .input("input_mins: N * float32")
          .input("input_maxes: N * float32")
          .output("output: T")
          .output("output_min: float32")
          .output("output_max: float32")
          .attr("N: int >= 2")
          .attr("T: {uint8, int32}")
          .shape(quantized_concat_shape)
          .doc("Tensors joined along a dimension, all with a range that holds each of theirs; of signed integers zero "
               "is in its middle."));
  kernels.add<QuantizedConcat>("QuantizedConcat", DeviceKind::kCpu, {});
  for (const bool six : {false, true}) {
    const std::string name = six ? "QuantizedRelu6" : "QuantizedRelu";
    OpDef relu(name);
    add(relu.input("features: Tinput")
            .input("min_features: float32")
            .input("max_features: float32")
            .output("activations: out_type")
            .output("min_activations: float32")
            .output("max_activations: float32")
            .attr("Tinput: {uint8, int32}")
            .attr("out_type: {uint8, int32} = uint8")
            .shape(with_range)
            .doc(std::string("Integers that stand for numbers not below 0") + (six ? " nor above 6" : "") +
                 "; the range stays. out_type is Tinput."));
    for (const DType t : {DType::kUInt8, DType::kInt32})
      if (six) kernels.add<QuantizedRelu<true>>(name, DeviceKind::kCpu, {{"Tinput", {t}}, {"out_type", {t}}});
      else kernels.add<QuantizedRelu<false>>(name, DeviceKind::kCpu, {{"Tinput", {t}}, {"out_type", {t}}});
  }
}

}  // namespace troupe
