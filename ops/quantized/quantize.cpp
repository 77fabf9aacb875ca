// SPDX-License-Identifier: Apache-2.0
// QuantizeAndDequantize in its four versions: values rounded to those that integers of few bits can stand for.
#include <cmath>
#include <limits>

#include "devices/parallel.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/quantized/axis_slices.h"
#include "ops/quantized/range.h"
#include "ops/quantized/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

struct QuantizeOptions {
  bool is_signed = true, range_given = false, narrow = false, half_up = false;
  int64_t bits = 8, axis = -1;
  explicit QuantizeOptions(const Attrs& a)
      : is_signed(a.get_or("signed_input", true)), range_given(a.get_or("range_given", false)),
        narrow(a.get_or("narrow_range", false)), half_up(a.get_or<std::string>("round_mode", "") == "HALF_UP"),
        bits(a.get_or<int64_t>("num_bits", 8)), axis(a.get_or<int64_t>("axis", -1)) {}
  Status check() const {
    if (bits < 1 || bits > (is_signed ? 62 : 63))
      return invalid_argument("num_bits must be from 1 to {}, not {}", is_signed ? 62 : 63, bits);
    if (axis < -1) return invalid_argument("axis must be -1 or more, not {}", axis);
    return {};
  }
};

/// Values [min, max] and how they map to integers, zero to zero.
template <class T> struct Scale {
  T min, max, scale, inverse;

  Scale(const QuantizeOptions& o, T low, T high) : min(low), max(high) {
    const int64_t half = int64_t{1} << (o.bits - 1);
    const T least = o.is_signed ? static_cast<T>(-half + o.narrow) : T(0);
    const T most = static_cast<T>(o.is_signed ? half - 1 : 2 * half - 1);
    const T by_min = least * min > 0 ? least / min : std::numeric_limits<T>::max();
    const T by_max = most * max > 0 ? most / max : std::numeric_limits<T>::max();
    if (by_min < by_max) {
      scale = by_min;
      inverse = min / least;
      max = most * inverse;
    } else {
      scale = by_max;
      inverse = max / most;
      min = least * inverse;
    }
  }
  T rounded(T x, const QuantizeOptions& o) const {
    if (o.range_given) x = std::max(std::min(x, max), min);
    x *= scale;
    return (o.half_up ? std::floor(x + T(0.5)) : std::nearbyint(x)) * inverse;
  }
};

template <class T> class QuantizeAndDequantize final : public ComputeKernel {
 public:
  explicit QuantizeAndDequantize(const KernelInit& init)
      : options_(*init.attrs), low_(init.attrs->get_or<float>("input_min", 0)),
        high_(init.attrs->get_or<float>("input_max", 0)) {}
  Status compute(KernelContext& c) override {
    QuantizeOptions o = options_;
    if (c.num_inputs() == 4) {
      TROUPE_ASSIGN(o.bits, int_scalar(c.input(3), "num_bits"));
    }
    TROUPE_RETURN_IF_ERROR(o.check());
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const AxisSlices slices, AxisSlices::of(x.shape(), o.axis));
    const bool inputs = c.num_inputs() > 1;
    if (inputs && o.range_given) {
      TROUPE_RETURN_IF_ERROR(slices.check(c.input(1), "input_min", o.axis));
      TROUPE_RETURN_IF_ERROR(slices.check(c.input(2), "input_max", o.axis));
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), x.shape()));
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    for (int64_t k = 0; k < slices.count; ++k) {
      T low = inputs && o.range_given ? c.input(1).data<T>()[k] : static_cast<T>(low_);
      T high = inputs && o.range_given ? c.input(2).data<T>()[k] : static_cast<T>(high_);
      if (!o.range_given) {
        low = std::numeric_limits<T>::max();
        high = std::numeric_limits<T>::lowest();
        slices.runs(k, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            low = std::min(low, in[i]);
            high = std::max(high, in[i]);
          }
        });
      } else if (low > high) {
        return invalid_argument("input_min {} is above input_max {}", low, high);
      }
      const Scale<T> scale(o, low, high);
      slices.runs(k, [&](int64_t begin, int64_t end) {
        parallel_for(c.threads(), end - begin, kCheapGrain, [&](int64_t from, int64_t to) {
          for (int64_t i = begin + from; i < begin + to; ++i) out[i] = scale.rounded(in[i], o);
        });
      });
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const QuantizeOptions options_;
  const float low_, high_;
};

template <class T> class V4Grad final : public ComputeKernel {
 public:
  explicit V4Grad(const KernelInit& init) : axis_(init.attr<int64_t>("axis")) {}
  Status compute(KernelContext& c) override {
    const Tensor &g = c.input(0), &x = c.input(1);
    if (g.shape() != x.shape())
      return invalid_argument("gradients {} and input {} differ", g.shape().str(), x.shape().str());
    TROUPE_ASSIGN(const AxisSlices slices, AxisSlices::of(x.shape(), axis_));
    TROUPE_RETURN_IF_ERROR(slices.check(c.input(2), "input_min", axis_));
    TROUPE_RETURN_IF_ERROR(slices.check(c.input(3), "input_max", axis_));
    TROUPE_ASSIGN(Tensor dx, c.allocate(x.dtype(), x.shape()));
    T* out = dx.mutable_data<T>();
    for (int64_t k = 0; k < slices.count; ++k) {
      const T low = c.input(2).data<T>()[k], high = c.input(3).data<T>()[k];
      slices.runs(k, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T v = x.data<T>()[i];
          out[i] = v >= low && v <= high ? g.data<T>()[i] : T(0);
        }
      });
    }
    c.set_output(0, std::move(dx));
    for (int i : {1, 2}) {
      TROUPE_ASSIGN(Tensor none, Tensor::zeros(x.dtype(), c.input(i + 1).shape(), c.device().allocator));
      c.set_output(i, std::move(none));
    }
    return {};
  }

 private:
  const int64_t axis_;
};

Status quantize_shape(ShapeContext& c) {
  const QuantizeOptions o(c.attrs());
  TROUPE_RETURN_IF_ERROR(o.check());
  if (c.input(0).has_rank() && o.axis >= c.input(0).rank())
    return invalid_argument("axis {} of input {}", o.axis, c.input(0).str());
  return unchanged_shape(c);
}

Status v4_grad_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape x, PartialShape::merge(c.input(0), c.input(1)));
  c.set_output(0, std::move(x));
  for (int i : {1, 2}) c.set_output(i, c.input(i + 1));
  return {};
}

/// As if nothing was rounded.
Status straight_through(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.dy(0));
  return {};
}

Attrs axis_of(GradientContext& c) { return {{"axis", c.node().attrs().get_or<int64_t>("axis", -1)}}; }

Status v4_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const auto d = c.ops("QuantizeAndDequantizeV4Grad", {c.dy(0), c.input(0), c.input(1), c.input(2)}, axis_of(c));
  for (size_t i = 0; i < d.size(); ++i) c.set_dx(static_cast<int>(i), d[i]);
  return {};
}

Status v4_grad_gradient(GradientContext& c) {
  if (c.dy(0))
    c.set_dx(0, c.op("QuantizeAndDequantizeV4Grad", {c.dy(0), c.input(1), c.input(2), c.input(3)}, axis_of(c)));
  return {};
}

}  // namespace

void register_quantize_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string type = type_attr("T", FullFloatTypes{});
  const std::string what =
      "The input rounded to values that integers of num_bits stand for, with zero among them. The range is given, and "
      "values are cut off at it, or is that of the input";
  for (const std::string v : {"", "V2", "V3", "V4"}) {
    OpDef op("QuantizeAndDequantize" + v);
    op.input("input: T");
    if (!v.empty()) op.input("input_min: T").input("input_max: T");
    if (v == "V3") op.input("num_bits: int32");
    op.output("output: T").attr("signed_input: bool = true");
    if (v != "V3") op.attr("num_bits: int = 8");
    op.attr(v == "V3" ? "range_given: bool = true" : "range_given: bool = false");
    if (v.empty()) op.attr("input_min: float = 0.0").attr("input_max: float = 0.0");
    op.attr(type);
    if (v == "V2" || v == "V4") op.attr("round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'");
    if (!v.empty()) op.attr("narrow_range: bool = false").attr("axis: int = -1");
    const bool cut = v == "V4";
    ops.add(op.shape(quantize_shape)
                .doc(what + (v.empty() ? "." : "; with an axis there is one for each slice along it.") +
                     (cut ? " The gradient is zero where values are cut off." : " The gradient passes unchanged.")),
            gradient(cut ? v4_gradient : straight_through));
    add_cpu_kernels<QuantizeAndDequantize>(kernels, "QuantizeAndDequantize" + v, FullFloatTypes{});
  }
  ops.add(OpDef("QuantizeAndDequantizeV4Grad")
              .input("gradients: T")
              .input("input: T")
              .input("input_min: T")
              .input("input_max: T")
              .output("input_backprop: T")
              .output("input_min_backprop: T")
              .output("input_max_backprop: T")
              .attr(type)
              .attr("axis: int = -1")
              .shape(v4_grad_shape)
              .doc("The gradients of QuantizeAndDequantizeV4: zero where the input was cut off, and by the range."),
          gradient(v4_grad_gradient));
  add_cpu_kernels<V4Grad>(kernels, "QuantizeAndDequantizeV4Grad", FullFloatTypes{});
}

}  // namespace troupe
