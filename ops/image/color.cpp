// SPDX-License-Identifier: Apache-2.0
// Colours of images: RGBToHSV, HSVToRGB, AdjustHue, AdjustSaturation, AdjustContrastv2.
#include <algorithm>
#include <cmath>

#include "devices/parallel.h"
#include "ops/image/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

template <class T> struct Color { T a, b, c; };

/// Hue, saturation and value, each in [0, 1]. A NaN is neither the largest nor the smallest channel but in the last.
template <class T> Color<T> to_hsv(T r, T g, T b) {
  const T larger = r > g ? r : g, value = larger > b ? larger : b;
  const T smaller = r < g ? r : g, range = value - (smaller < b ? smaller : b);
  const T sixth = range > 0 ? 1 / (6 * range) : T(0);
  T hue = r == value ? sixth * (g - b) : g == value ? sixth * (b - r) + T(2) / 6 : sixth * (r - g) + T(4) / 6;
  if (!(range > 0)) hue = 0;
  return {hue < 0 ? hue + 1 : hue, value > 0 ? range / value : T(0), value};
}

template <class T> Color<T> to_rgb(T hue, T saturation, T value) {
  const auto part = [&](T x) { return ((1 - saturation) + saturation * std::clamp(x, T(0), T(1))) * value; };
  const T h = hue * 6;
  return {part(std::abs(h - 3) - 1), part(2 - std::abs(h - 2)), part(2 - std::abs(h - 4))};
}

/// The same from the range, the value less the smallest channel, for values that may be negative.
Color<float> to_rgb_of_range(float hue, float range, float value) {
  const Color<float> shade = to_rgb(hue, 1.f, 1.f);
  const auto part = [&](float x) { return value - range + range * x; };
  return {part(shade.a), part(shade.b), part(shade.c)};
}

/// A function of the three channels of each pixel.
template <class T, class F> Status each_pixel(KernelContext& c, F&& f) {
  const Tensor& x = c.input(0);
  if (x.rank() == 0 || x.dim(-1) != 3)
    return invalid_argument("images must have 3 channels in the last dimension: {}", x.shape().str());
  TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
  const T* in = x.data<T>();
  T* out = y.mutable_data<T>();
  parallel_for(c.threads(), x.elements() / 3, kDearGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 3 * begin; i < 3 * end; i += 3) {
      const Color<T> color = f(in[i], in[i + 1], in[i + 2]);
      out[i] = color.a;
      out[i + 1] = color.b;
      out[i + 2] = color.c;
    }
  });
  c.set_output(0, std::move(y));
  return {};
}

template <class T> class RgbToHsv final : public ComputeKernel {
  Status compute(KernelContext& c) override { return each_pixel<T>(c, to_hsv<T>); }
};
template <class T> class HsvToRgb final : public ComputeKernel {
  Status compute(KernelContext& c) override { return each_pixel<T>(c, to_rgb<T>); }
};

/// A scalar parameter. Errors name it.
Result<float> scalar_from(const Tensor& t, const char* what) {
  if (t.rank() != 0) return invalid_argument("{} must be a scalar, not {}", what, t.shape().str());
  return *t.data<float>();
}

class AdjustHue final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const float delta, scalar_from(c.input(1), "delta"));
    return each_pixel<float>(c, [delta](float r, float g, float b) {
      const auto hsv = to_hsv(r, g, b);
      const float hue = hsv.a + delta;
      return to_rgb_of_range(hue - std::floor(hue), hsv.c - std::min({r, g, b}), hsv.c);
    });
  }
};

class AdjustSaturation final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const float scale, scalar_from(c.input(1), "scale"));
    return each_pixel<float>(c, [scale](float r, float g, float b) {
      const auto hsv = to_hsv(r, g, b);
      return to_rgb(hsv.a, std::clamp(hsv.b * scale, 0.f, 1.f), hsv.c);
    });
  }
};

/// (x - mean) * factor + mean, with the mean of each channel of each image.
class AdjustContrast final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() < 3) return invalid_argument("images must have rank 3 or more: {}", x.shape().str());
    TROUPE_ASSIGN(const float factor, scalar_from(c.input(1), "contrast_factor"));
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    const int64_t channels = x.dim(-1), pixels = x.dim(-2) * x.dim(-3);
    const int64_t images = x.elements() == 0 ? 0 : x.elements() / (channels * pixels);
    const float* in = x.data<float>();
    float* out = y.mutable_data<float>();
    parallel_for(c.threads(), images, 1 + kCheapGrain / std::max<int64_t>(pixels * channels, 1),
                 [&](int64_t begin, int64_t end) {
                   std::vector<double> mean(static_cast<size_t>(channels));
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t first = i * pixels * channels, last = first + pixels * channels;
                     std::fill(mean.begin(), mean.end(), 0.0);
                     for (int64_t k = first; k < last; ++k) mean[(k - first) % channels] += in[k];
                     for (double& m : mean) m /= static_cast<double>(pixels);
                     for (int64_t k = first; k < last; ++k) {
                       const auto m = static_cast<float>(mean[(k - first) % channels]);
                       out[k] = (in[k] - m) * factor + m;
                     }
                   }
                 });
    c.set_output(0, std::move(y));
    return {};
  }
};

Status pixels_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  if (x.has_rank() && x.dim(-1) >= 0 && x.dim(-1) != 3)
    return invalid_argument("images must have 3 channels in the last dimension: {}", x.str());
  if (c.num_inputs() > 1) TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  return unchanged_shape(c);
}

Status contrast_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(0, 3).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  return unchanged_shape(c);
}

/// With the largest channel M, the smallest m and range M - m: value is M, saturation range / M, and hue (difference of
/// the other two channels) / (6 range) and a constant. Of equal channels the first is the largest and the last the
/// smallest. Grey pixels and black ones have derivatives of zero where there are none.
Status rgb_to_hsv_gradient(GradientContext& c) {
  const Output x = c.input(0), dy = c.dy(0);
  if (!dy) return {};
  const DType dtype = x.dtype();
  const Output last = c.constant(Tensor::scalar<int32_t>(-1)), zero = scalar_like(c, dtype, 0);
  const auto binary = [&](const char* op, Output a, Output b) { return c.op(op, {a, b}); };
  const auto pick = [&](const char* op, Output of) {
    const Output at = c.op(op, {of, last});
    return c.op("OneHot", {at, c.constant(Tensor::scalar<int32_t>(3)), scalar_like(c, dtype, 1), zero});
  };
  const Output largest = pick("ArgMax", x);
  const Output flipped = c.op("ReverseV2", {x, c.constant(Tensor::of<int32_t>({-1}))});
  const Output smallest = c.op("ReverseV2", {pick("ArgMin", flipped), c.constant(Tensor::of<int32_t>({-1}))});
  const auto total = [&](Output v) { return c.op("Sum", {v, last}, {{"keep_dims", true}}); };
  const Output high = total(binary("Mul", largest, x)), low = total(binary("Mul", smallest, x));
  const Output range = binary("Sub", high, low);
  /// a / b, and 0 where b is.
  const auto divided = [&](Output a, Output b) {
    const Output none = binary("Equal", b, zero);
    return c.op("SelectV2", {none, zero, binary("RealDiv", a, c.op("SelectV2", {none, scalar_like(c, dtype, 1), b}))});
  };
  const auto parts = c.ops("Split", {last, dy}, {{"num_split", int64_t{3}}});
  if (parts.size() != 3) return {};
  // Rows: by the largest channel, how much each channel adds to the difference that hue is made of.
  const Output rows =
      c.op("Cast", {c.constant(Tensor::of<float>({0, 1, -1, -1, 0, 1, 1, -1, 0}, Shape{3, 3}))}, {{"DstT", dtype}});
  const Output signs =
      c.op("Sum", {binary("Mul", c.op("ExpandDims", {largest, last}), rows), c.constant(Tensor::scalar<int32_t>(-2))});
  const Output difference = total(binary("Mul", signs, x)), spread = binary("Sub", largest, smallest);
  const Output per_hue = divided(parts[0], binary("Mul", range, scalar_like(c, dtype, 6)));
  const Output by_hue = binary("Sub", binary("Mul", per_hue, signs),
                               binary("Mul", binary("Mul", per_hue, divided(difference, range)), spread));
  const Output per_saturation = divided(parts[1], high);
  const Output by_saturation = binary("Sub", binary("Mul", binary("Mul", per_saturation, divided(low, high)), largest),
                                      binary("Mul", per_saturation, smallest));
  const Output by_value = binary("Mul", parts[2], largest);
  c.set_dx(0, binary("AddV2", binary("AddV2", by_hue, by_saturation), by_value));
  return {};
}

}  // namespace

void register_color_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* none = "TensorFlow gives it none";
  const std::string type = "T: {float16, bfloat16, float32, float64} = float32";
  ops.add(OpDef("RGBToHSV")
              .input("images: T")
              .output("output: T")
              .attr(type)
              .shape(pixels_shape)
              .doc("Hue, saturation and value, each in [0, 1], of red, green and blue in the last dimension."),
          gradient(rgb_to_hsv_gradient));
  ops.add(OpDef("HSVToRGB")
              .input("images: T")
              .output("output: T")
              .attr(type)
              .shape(pixels_shape)
              .doc("Red, green and blue of hue, saturation and value in the last dimension."),
          not_differentiable(none));
  add_cpu_kernels<RgbToHsv>(kernels, "RGBToHSV", FullFloatTypes{});
  add_half_kernels<RgbToHsv<float>>(kernels, "RGBToHSV");
  add_cpu_kernels<HsvToRgb>(kernels, "HSVToRGB", FullFloatTypes{});
  add_half_kernels<HsvToRgb<float>>(kernels, "HSVToRGB");
  const auto adjust = [&](const char* name, const char* parameter, const ShapeFn& shape, const char* doc) {
    OpDef op(name);
    op.input("images: T").input(std::string(parameter) + ": float32").output("output: T");
    ops.add(op.attr("T: {float16, float32} = float32").shape(shape).doc(doc), not_differentiable(none));
  };
  adjust("AdjustHue", "delta", pixels_shape, "Images with `delta` of a full turn added to the hue of each pixel.");
  adjust("AdjustSaturation", "scale", pixels_shape,
         "Images with the saturation of each pixel multiplied by `scale`, and cut off at 1.");
  adjust("AdjustContrastv2", "contrast_factor", contrast_shape,
         "Images whose pixels are contrast_factor times as far from the mean of their channel.");
  kernels.add<AdjustHue>("AdjustHue", DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
  kernels.add<AdjustSaturation>("AdjustSaturation", DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
  kernels.add<AdjustContrast>("AdjustContrastv2", DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
  add_half_kernels<AdjustHue>(kernels, "AdjustHue");
  add_half_kernels<AdjustSaturation>(kernels, "AdjustSaturation");
  add_half_kernels<AdjustContrast>(kernels, "AdjustContrastv2");
}

}  // namespace troupe
