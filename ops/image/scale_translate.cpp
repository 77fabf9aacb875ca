// SPDX-License-Identifier: Apache-2.0
// Images scaled and moved, each pixel from those around its place by a kernel of some radius: ScaleAndTranslate and its
// gradient. What makes an image smaller may widen the kernel by as much, so that no pixel is passed over.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/image/register.h"
#include "ops/image/resample.h"
#include "ops/parts/gradient_math.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// The weight of a pixel at distance x, which is not negative, of the middle.
using KernelWeight = float (*)(float x);

template <int radius> float lanczos(float x) {
  if (x > radius) return 0;
  if (x <= 1e-3f) return 1;
  const float pi = std::numbers::pi_v<float>;
  return radius * std::sin(pi * x) * std::sin(pi * x / radius) / (pi * pi * x * x);
}
float gaussian(float x) { return x >= 1.5f ? 0 : std::exp(-2 * x * x); }
float box(float x) { return x < 0.5f ? 1.f : x == 0.5f ? 0.5f : 0.f; }
float triangle_weight(float x) { return x < 1 ? 1 - x : 0; }
float keys_cubic(float x) {
  if (x >= 2) return 0;
  return x >= 1 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : (1.5f * x - 2.5f) * x * x + 1;
}
float mitchell_cubic(float x) {
  if (x >= 2) return 0;
  return x >= 1 ? ((-7.f / 18 * x + 2) * x - 10.f / 3) * x + 16.f / 9 : (7.f / 6 * x - 2) * x * x + 8.f / 9;
}

struct NamedKernel {
  const char* name;
  float radius;
  KernelWeight weight;
};
constexpr NamedKernel kKernels[] = {{"lanczos1", 1, lanczos<1>},
                                    {"lanczos3", 3, lanczos<3>},
                                    {"lanczos5", 5, lanczos<5>},
                                    {"gaussian", 1.5f, gaussian},
                                    {"box", 1, box},
                                    {"triangle", 1, triangle_weight},
                                    {"keyscubic", 2, keys_cubic},
                                    {"mitchellcubic", 2, mitchell_cubic}};

Result<const NamedKernel*> kernel_named(const std::string& name) {
  for (const NamedKernel& kernel : kKernels)
    if (name == kernel.name) return &kernel;
  return invalid_argument(
      "kernel_type '{}' is none of lanczos1, lanczos3, lanczos5, gaussian, box, triangle, keyscubic, mitchellcubic",
      name);
}

/// The taps of an axis of `in` places that is scaled, moved and cut to `out`; places from outside have none.
Result<Taps> taps_of(const NamedKernel& kernel, bool antialias, int64_t in, int64_t out, float scale,
                     float translation) {
  if (!(scale > 0) || !std::isfinite(scale) || !std::isfinite(translation))
    return invalid_argument("scale {} must be above 0 and translation {} finite", scale, translation);
  constexpr int64_t kMostTaps = int64_t{1} << 28;
  const float inverse = 1 / scale, moved = -inverse * translation;
  const float wider = antialias ? std::max(inverse, 1.f) : 1.f, reach = kernel.radius * wider;
  if (std::min<double>(2.0 * reach + 1, static_cast<double>(in)) * static_cast<double>(out) > kMostTaps)
    return make_error(Code::kResourceExhausted, "{} places made of up to {} each", out, in);
  const auto place = [in](float x) { return static_cast<int64_t>(std::clamp(x, 0.f, static_cast<float>(in - 1))); };
  Taps taps;
  for (int64_t i = 0; i < out; ++i) {
    const float at = (static_cast<float>(i) + 0.5f) * inverse + moved;
    if (at >= 0 && at <= static_cast<float>(in)) {
      const int64_t first = place(std::ceil(at - reach - 0.5f));
      const int64_t last = std::min(place(std::floor(at + reach - 0.5f)), in - 1);
      const size_t begin = taps.weight.size();
      float sum = 0;
      for (int64_t k = first; k <= last; ++k) {
        taps.add(k, kernel.weight(std::abs((static_cast<float>(k) + 0.5f - at) * (1 / wider))));
        sum += taps.weight.back();
      }
      if (std::abs(sum) >= 1000 * std::numeric_limits<float>::min())
        for (size_t k = begin; k < taps.weight.size(); ++k) taps.weight[k] *= 1 / sum;
    }
    taps.close();
  }
  return taps;
}

class ScaleAndTranslate final : public ComputeKernel {
 public:
  explicit ScaleAndTranslate(const KernelInit& init)
      : gradient_(init.op == "ScaleAndTranslateGrad"), kernel_(kernel_named(init.attr<std::string>("kernel_type"))),
        antialias_(init.attr<bool>("antialias")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const NamedKernel* const kernel, kernel_);
    const Tensor& x = c.input(0);
    // Sizes of the images that are scaled and of what they become.
    std::pair<int64_t, int64_t> from, to;
    TROUPE_RETURN_IF_ERROR(resized(x, 1, 1).status());
    if (gradient_) {
      TROUPE_RETURN_IF_ERROR(resized(c.input(1), 1, 1).status());
      if (c.input(1).dim(0) != x.dim(0) || c.input(1).dim(3) != x.dim(3))
        return invalid_argument("grads {} and original_image {} do not fit", x.shape().str(), c.input(1).shape().str());
      from = {c.input(1).dim(1), c.input(1).dim(2)};
      to = {x.dim(1), x.dim(2)};
    } else {
      from = {x.dim(1), x.dim(2)};
      TROUPE_ASSIGN(to, size_from(c.input(1)));
    }
    for (int i : {2, 3})
      if (c.input(i).rank() != 1 || c.input(i).dim(0) != 2)
        return invalid_argument("scale and translation must be two numbers, not {}", c.input(i).shape().str());
    const float *scale = c.input(2).data<float>(), *translation = c.input(3).data<float>();
    const auto size = gradient_ ? from : to;
    TROUPE_ASSIGN(const Shape shape, resized(x, size.first, size.second));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, shape));
    const bool empty = shape.elements() == 0;  // sizes may be any: no place is made
    TROUPE_ASSIGN(Taps rows, taps_of(*kernel, antialias_, from.first, empty ? 0 : to.first, scale[0], translation[0]));
    TROUPE_ASSIGN(Taps columns,
                  taps_of(*kernel, antialias_, from.second, empty ? 0 : to.second, scale[1], translation[1]));
    if (gradient_ && !empty) {
      rows = rows.transposed(from.first);
      columns = columns.transposed(from.second);
    }
    if (!empty)
      with_type(x.dtype(), ImageTypes{},
                [&]<class T>() { resample<T, float, float>(x, y, rows, columns, c.threads()); });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool gradient_;
  const Result<const NamedKernel*> kernel_;
  const bool antialias_;
};

Status scaled_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(kernel_named(c.attr<std::string>("kernel_type")).status());
  for (int i : {2, 3}) {
    TROUPE_ASSIGN(const PartialShape two, c.with_rank(i, 1));
    if (two[0] >= 0 && two[0] != 2)
      return invalid_argument("scale and translation must be two numbers, not {}", two.str());
  }
  return set_resized_shape(c);
}

Status scaled_grad_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(kernel_named(c.attr<std::string>("kernel_type")).status());
  return set_resized_grad_shape(c);
}

Status scaled_gradient(GradientContext& c) {
  if (!c.dy(0) || c.input(0).dtype() != DType::kFloat32) return {};
  const Attrs& attrs = c.node().attrs();
  c.set_dx(0, c.op("ScaleAndTranslateGrad", {c.dy(0), c.input(0), c.input(2), c.input(3)},
                   {{"kernel_type", attrs.get_or<std::string>("kernel_type", "lanczos3")},
                    {"antialias", attrs.get_or("antialias", true)}}));
  return {};
}

}  // namespace

void register_scale_translate_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("ScaleAndTranslate")
              .input("images: T")
              .input("size: int32")
              .input("scale: float32")
              .input("translation: float32")
              .output("resized_images: float32")
              .attr(type_attr("T", ImageTypes{}))
              .attr("kernel_type: string = 'lanczos3'")
              .attr("antialias: bool = true")
              .shape(scaled_shape)
              .doc("Images [batch,height,width,channels] scaled, moved by so many pixels and cut to `size`, each pixel "
                   "from those around its place by a kernel: lanczos1, lanczos3, lanczos5, gaussian, box, triangle, "
                   "keyscubic or mitchellcubic; with antialias it is widened by as much as the image becomes smaller. "
                   "Zero where there is no image."),
          gradient(scaled_gradient));
  ops.add(OpDef("ScaleAndTranslateGrad")
              .input("grads: T")
              .input("original_image: T")
              .input("scale: float32")
              .input("translation: float32")
              .output("output: T")
              .attr("T: {float32}")
              .attr("kernel_type: string = 'lanczos3'")
              .attr("antialias: bool = true")
              .shape(scaled_grad_shape)
              .doc("The gradient of ScaleAndTranslate by its images."),
          undefined_gradient());
  for (const char* op : {"ScaleAndTranslate", "ScaleAndTranslateGrad"})
    kernels.add<ScaleAndTranslate>(op, DeviceKind::kCpu, {});
}

}  // namespace troupe
