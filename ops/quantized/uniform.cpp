// SPDX-License-Identifier: Apache-2.0
// UniformQuantize and UniformDequantize: integers that stand for (integer - zero point) * scale, of a whole tensor or
// of each slice along an axis.
#include <algorithm>
#include <cmath>
#include <limits>

#include "devices/parallel.h"
#include "ops/parts/type_dispatch.h"
#include "ops/quantized/axis_slices.h"
#include "ops/quantized/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using UniformTypes = TypeList<int8_t, uint8_t, int32_t>;

/// Attributes of both ops, the integers that values are cut off at among them.
struct UniformOptions {
  int64_t axis, least, most;

  explicit UniformOptions(const Attrs& a)
      : axis(a.at<int64_t>("quantization_axis")), least(a.at<int64_t>("quantization_min_val")),
        most(a.at<int64_t>("quantization_max_val")) {}
  template <class T> Status check() const {
    using Limits = std::numeric_limits<T>;
    if (axis < -1) return invalid_argument("quantization_axis must be -1 or more, not {}", axis);
    if (least <= most && least >= Limits::min() && most <= Limits::max()) return {};
    return invalid_argument("quantization_min_val {} and quantization_max_val {} are no range of {}", least, most,
                            to_string(dtype_of<T>));
  }
  /// The input by slices. Errors: scales and zero points that are not one for each.
  Result<AxisSlices> slices(const KernelContext& c) const {
    TROUPE_ASSIGN(const AxisSlices out, AxisSlices::of(c.input(0).shape(), axis));
    TROUPE_RETURN_IF_ERROR(out.check(c.input(1), "scales", axis));
    TROUPE_RETURN_IF_ERROR(out.check(c.input(2), "zero_points", axis));
    return out;
  }
};

/// Calls f(begin, end, scale, zero point) for pieces of each slice.
template <class F> void for_each_slice(const KernelContext& c, const AxisSlices& slices, const F& f) {
  for (int64_t k = 0; k < slices.count; ++k) {
    const float scale = c.input(1).data<float>()[k];
    const int64_t zero = c.input(2).data<int32_t>()[k];
    slices.runs(k, [&](int64_t begin, int64_t end) {
      parallel_for(c.threads(), end - begin, kCheapGrain,
                   [&](int64_t from, int64_t to) { f(begin + from, begin + to, scale, zero); });
    });
  }
}

template <class T> class UniformQuantize final : public ComputeKernel {
 public:
  explicit UniformQuantize(const KernelInit& init) : options_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(options_.check<T>());
    TROUPE_ASSIGN(const AxisSlices slices, options_.slices(c));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, c.input(0).shape()));
    const float* in = c.input(0).data<float>();
    T* out = y.mutable_data<T>();
    for_each_slice(c, slices, [&](int64_t begin, int64_t end, float scale, int64_t zero) {
      const float inverse = 1 / scale;
      for (int64_t i = begin; i < end; ++i) {
        const float steps = std::floor(in[i] * inverse + 0.5f);
        // NaN is the least; both ends hold every integer that may come out, with any zero point.
        const auto whole = static_cast<int64_t>(std::min(std::max(steps, -0x1p40f), 0x1p40f));
        out[i] = static_cast<T>(std::isnan(steps) ? options_.least
                                                  : std::clamp(whole + zero, options_.least, options_.most));
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const UniformOptions options_;
};

template <class T> class UniformDequantize final : public ComputeKernel {
 public:
  explicit UniformDequantize(const KernelInit& init) : options_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(options_.check<T>());
    TROUPE_ASSIGN(const AxisSlices slices, options_.slices(c));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, c.input(0).shape()));
    const T* in = c.input(0).data<T>();
    float* out = y.mutable_data<float>();
    for_each_slice(c, slices, [&](int64_t begin, int64_t end, float scale, int64_t zero) {
      for (int64_t i = begin; i < end; ++i) out[i] = static_cast<float>(in[i] - zero) * scale;
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const UniformOptions options_;
};

OpDef uniform_op(const char* name, const std::string& in, const std::string& out) {
  return OpDef(name)
      .input("input: Tin")
      .input("scales: float32")
      .input("zero_points: int32")
      .output("output: Tout")
      .attr(in)
      .attr(out)
      .attr("quantization_axis: int = -1")
      .attr("quantization_min_val: int")
      .attr("quantization_max_val: int")
      .shape(unchanged_shape);
}

}  // namespace

void register_uniform_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string slices =
      " scales and zero_points are one for all, or with quantization_axis one for each slice along it.";
  ops.add(uniform_op("UniformQuantize", "Tin: {float32}", type_attr("Tout", UniformTypes{}))
              .doc("input / scale, rounded, halves up, and the zero point added: integers from quantization_min_val to "
                   "quantization_max_val, at which others are cut off." +
                   slices),
          not_differentiable("integers do not depend on numbers smoothly"));
  ops.add(uniform_op("UniformDequantize", type_attr("Tin", UniformTypes{}), "Tout: {float32}")
              .doc("The numbers that integers of UniformQuantize stand for, (input - zero point) * scale." + slices),
          not_differentiable("integers do not depend on numbers smoothly"));
  add_cpu_kernels<UniformQuantize>(kernels, "UniformQuantize", UniformTypes{}, "Tout");
  add_cpu_kernels<UniformDequantize>(kernels, "UniformDequantize", UniformTypes{}, "Tin");
}

}  // namespace troupe
