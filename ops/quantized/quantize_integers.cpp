// SPDX-License-Identifier: Apache-2.0
// Numbers as integers of few bits with the range that these stand for, and back: QuantizeV2 and Dequantize.
#include "devices/parallel.h"
#include "ops/quantized/axis_slices.h"
#include "ops/quantized/range.h"
#include "ops/quantized/register.h"

namespace troupe {
namespace {

enum class Mode { kMinCombined, kMinFirst, kScaled };

struct IntegerOptions {
  Mode mode;
  bool narrow, half_to_even;
  int64_t axis;
  float least_range;
  explicit IntegerOptions(const Attrs& a)
      : mode(a.get_or<std::string>("mode", "") == "SCALED"      ? Mode::kScaled
             : a.get_or<std::string>("mode", "") == "MIN_FIRST" ? Mode::kMinFirst
                                                                : Mode::kMinCombined),
        narrow(a.get_or("narrow_range", false)),
        half_to_even(a.get_or<std::string>("round_mode", "") == "HALF_TO_EVEN"), axis(a.get_or<int64_t>("axis", -1)),
        least_range(a.get_or<float>("ensure_minimum_range", 0)) {}
  Status check() const {
    if (axis < -1) return invalid_argument("axis must be -1 or more, not {}", axis);
    if (half_to_even && mode != Mode::kScaled)
      return invalid_argument("round_mode HALF_TO_EVEN is for mode SCALED alone");
    return {};
  }
};

/// What is subtracted from codes that begin at 0 to make them those of T.
template <class T> inline constexpr float kHalf = kLeast<T> < 0 ? static_cast<float>((kSteps<T> + 1) / 2) : 0.f;

/// From numbers in [low, high], which is widened to hold 0 and not to be too narrow, to integers.
template <class T> class Quantizer {
 public:
  float low, high;
  Quantizer(const IntegerOptions& o, float min, float max) : low(std::min(0.f, min)), high(max), o_(o) {
    const float apart = std::max(1.f, std::max(std::fabs(min), std::fabs(max))) * o.least_range;
    high = std::max(0.f, std::max(max, low + apart));
    switch (o.mode) {
      case Mode::kMinCombined: scale_ = static_cast<float>(kSteps<T> / (high - low)); break;
      case Mode::kMinFirst: encode_ = Encoder<T>({low, high}); break;
      case Mode::kScaled: {
        const auto least = static_cast<float>(kLeast<T> + o.narrow), most = static_cast<float>(kMost<T>);
        const float none = std::numeric_limits<float>::max();
        const float by_low = least * low > 0 ? least / low : none, by_high = most * high > 0 ? most / high : none;
        scale_ = std::min(by_low, by_high);
        low = least / scale_;
        high = most / scale_;
      }
    }
  }
  T operator()(float x) const {
    const float inside = std::max(std::min(high, x), low);
    switch (o_.mode) {
      case Mode::kMinCombined:
        if constexpr (kLeast<T> < 0) return to_integer<T>(std::round((inside - low) * scale_ - kHalf<T>));
        else return to_integer<T>((inside - low) * scale_ + 0.5f);
      case Mode::kMinFirst: return encode_(x);
      default: return to_integer<T>(o_.half_to_even ? std::nearbyint(inside * scale_) : std::round(inside * scale_));
    }
  }

 private:
  const IntegerOptions& o_;
  float scale_ = 0;
  Encoder<T> encode_{CodeRange()};
};

/// From integers that stand for numbers in [low, high] to these: y = x * scale + offset.
template <class T> struct Dequantizer {
  float scale = 0, offset = 0;
  Dequantizer(const IntegerOptions& o, float low, float high) {
    switch (o.mode) {
      case Mode::kMinCombined:
        scale = (high - low) / static_cast<float>(kSteps<T>);
        offset = kHalf<T> * scale + low;
        break;
      case Mode::kMinFirst: {
        const Decoder<T> decode({low, high});
        scale = decode.scale;
        offset = decode.offset;
        break;
      }
      case Mode::kScaled: {
        const float by_high = high / static_cast<float>(kMost<T>);
        scale = kLeast<T> == 0 ? by_high : std::max(low / static_cast<float>(kLeast<T> + o.narrow), by_high);
      }
    }
  }
  float operator()(T x) const { return static_cast<float>(x) * scale + offset; }
};

/// The numbers of inputs 1 and 2 for slice k. Errors: a first that is not at most the second.
Result<std::pair<float, float>> range_of(const KernelContext& c, int64_t k) {
  const float low = c.input(1).data<float>()[k], high = c.input(2).data<float>()[k];
  if (!(low <= high)) return invalid_argument("min_range {} is not at most max_range {}", low, high);
  return std::pair(low, high);
}

/// The input by slices, whose ranges are inputs 1 and 2. Errors: as many ranges as there are not slices.
Result<AxisSlices> slices_of(const KernelContext& c, int64_t axis) {
  TROUPE_ASSIGN(const AxisSlices slices, AxisSlices::of(c.input(0).shape(), axis));
  TROUPE_RETURN_IF_ERROR(slices.check(c.input(1), "min_range", axis));
  TROUPE_RETURN_IF_ERROR(slices.check(c.input(2), "max_range", axis));
  return slices;
}

template <class T> class Quantize final : public ComputeKernel {
 public:
  explicit Quantize(const KernelInit& init) : options_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(options_.check());
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const AxisSlices slices, slices_of(c, options_.axis));
    const Shape ranges = options_.axis == -1 ? Shape{} : Shape{slices.count};
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, x.shape()));
    TROUPE_ASSIGN(Tensor low, c.allocate(DType::kFloat32, ranges));
    TROUPE_ASSIGN(Tensor high, c.allocate(DType::kFloat32, ranges));
    const float* in = x.data<float>();
    T* out = y.mutable_data<T>();
    for (int64_t k = 0; k < slices.count; ++k) {
      TROUPE_ASSIGN(const auto range, range_of(c, k));
      const Quantizer<T> quantize(options_, range.first, range.second);
      slices.runs(k, [&](int64_t begin, int64_t end) {
        parallel_for(c.threads(), end - begin, kCheapGrain, [&](int64_t from, int64_t to) {
          for (int64_t i = begin + from; i < begin + to; ++i) out[i] = quantize(in[i]);
        });
      });
      low.mutable_data<float>()[k] = quantize.low;
      high.mutable_data<float>()[k] = quantize.high;
    }
    c.set_output(0, std::move(y));
    c.set_output(1, std::move(low));
    c.set_output(2, std::move(high));
    return {};
  }

 private:
  const IntegerOptions options_;
};

template <class T> class Dequantize final : public ComputeKernel {
 public:
  explicit Dequantize(const KernelInit& init) : options_(*init.attrs), dtype_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(options_.check());
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const AxisSlices slices, slices_of(c, options_.axis));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_, x.shape()));
    const T* in = x.data<T>();
    for (int64_t k = 0; k < slices.count; ++k) {
      TROUPE_ASSIGN(const auto range, range_of(c, k));
      const Dequantizer<T> dequantize(options_, range.first, range.second);
      slices.runs(k, [&](int64_t begin, int64_t end) {
        with_type(dtype_, TypeList<float, bfloat16>{}, [&]<class Y>() {
          Y* out = y.mutable_data<Y>();
          parallel_for(c.threads(), end - begin, kCheapGrain, [&](int64_t from, int64_t to) {
            for (int64_t i = begin + from; i < begin + to; ++i) out[i] = narrow<Y>(dequantize(in[i]));
          });
        });
      });
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const IntegerOptions options_;
  const DType dtype_;
};

Status quantized_shape(ShapeContext& c) {
  const IntegerOptions o(c.attrs());
  TROUPE_RETURN_IF_ERROR(o.check());
  const PartialShape& x = c.input(0);
  if (x.has_rank() && o.axis >= x.rank()) return invalid_argument("axis {} of input {}", o.axis, x.str());
  c.set_output(0, x);
  for (int i = 1; i < c.num_outputs(); ++i) {
    PartialShape range = PartialShape::scalar();
    if (o.axis >= 0) range = PartialShape{x.has_rank() ? x[static_cast<int>(o.axis)] : -1};
    c.set_output(i, std::move(range));
  }
  return {};
}

}  // namespace

void register_quantize_integer_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string mode = "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'";
  const std::string ranges =
      " min_range and max_range are scalars or, with an axis, have a number for each slice along it. Mode SCALED keeps "
      "zero at zero (narrow_range leaves the least integer out), the others spread the integers over the range, and "
      "MIN_FIRST puts its beginning on a step.";
  ops.add(
      OpDef("QuantizeV2")
          .input("input: float32")
          .input("min_range: float32")
          .input("max_range: float32")
          .output("output: T")
          .output("output_min: float32")
          .output("output_max: float32")
          .attr(type_attr("T", QuantizedTypes{}))
          .attr(mode)
          .attr("round_mode: {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'")
          .attr("narrow_range: bool = false")
          .attr("axis: int = -1")
          .attr("ensure_minimum_range: float = 0.01")
          .shape(quantized_shape)
          .doc("Numbers as integers, cut off at the ends of a range, and the range that the integers stand for: the "
               "one given, widened to hold zero and to be ensure_minimum_range wide." +
               ranges),
      not_differentiable(kQuantized));
  ops.add(OpDef("Dequantize")
              .input("input: T")
              .input("min_range: float32")
              .input("max_range: float32")
              .output("output: dtype")
              .attr(type_attr("T", QuantizedTypes{}))
              .attr(mode)
              .attr("narrow_range: bool = false")
              .attr("axis: int = -1")
              .attr("dtype: {bfloat16, float32} = float32")
              .shape(quantized_shape)
              .doc("The numbers that integers of QuantizeV2 stand for." + ranges),
          not_differentiable(kQuantized));
  add_cpu_kernels<Quantize>(kernels, "QuantizeV2", QuantizedTypes{});
  add_cpu_kernels<Dequantize>(kernels, "Dequantize", QuantizedTypes{});
}

}  // namespace troupe
