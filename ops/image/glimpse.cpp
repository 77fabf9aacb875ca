// SPDX-License-Identifier: Apache-2.0
// ExtractGlimpse and ExtractGlimpseV2: windows of images, which may reach beyond them into noise.
#include "ops/image/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/random/draws.h"
#include "ops/random/streams.h"

namespace troupe {
namespace {

enum class Noise { kUniform, kGaussian, kZero };

Result<Noise> noise_of(const Attrs& attrs) {
  const std::string name = attrs.get_or<std::string>("noise", "uniform");
  const bool uniform = attrs.get_or("uniform_noise", true);
  if (uniform && !name.empty() && name != "uniform")
    return invalid_argument("uniform_noise and noise '{}' contradict each other", name);
  if (name == "uniform" || (name.empty() && uniform)) return Noise::kUniform;
  if (name == "gaussian" || name.empty()) return Noise::kGaussian;
  if (name == "zero") return Noise::kZero;
  return invalid_argument("noise must be 'uniform', 'gaussian' or 'zero', not '{}'", name);
}

/// An image [height, width, channels] and the window of it.
struct Glimpse {
  const float* image;
  int64_t height, width, channels;
  float* out;
  int64_t rows, columns;
  int64_t top, left;  // may be outside

  void copy() const {
    const int64_t x0 = std::max<int64_t>(0, -left), x1 = std::min(columns, width - left);
    for (int64_t y = std::max<int64_t>(0, -top); y < std::min(rows, height - top); ++y)
      if (x0 < x1)
        std::copy_n(image + ((top + y) * width + left + x0) * channels, (x1 - x0) * channels,
                    out + (y * columns + x0) * channels);
  }
  bool inside() const { return top >= 0 && left >= 0 && top + rows <= height && left + columns <= width; }

  /// Uniform between the least and the largest value of the image.
  void fill_uniform(Words& random) const {
    const auto [low, high] = std::minmax_element(image, image + height * width * channels);
    for (int64_t i = 0; i < rows * columns * channels; ++i) out[i] = *low + random.uniform_float() * (*high - *low);
  }
  /// Normal with each channel's mean and deviation, cut to its range.
  void fill_gaussian(Draws& random) const {
    const int64_t pixels = height * width;
    for (int64_t k = 0; k < channels; ++k) {
      float low = image[k], high = image[k];
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < pixels; ++i) {
        const float v = image[i * channels + k];
        low = std::min(low, v);
        high = std::max(high, v);
        sum += v;
      }
      const double mean = sum / static_cast<double>(pixels);
      for (int64_t i = 0; i < pixels; ++i) squares += std::pow(image[i * channels + k] - mean, 2);
      const double deviation = std::sqrt(squares / static_cast<double>(pixels));
      for (int64_t i = 0; i < rows * columns; ++i) {
        const auto drawn = static_cast<float>(mean + random.normal() * deviation);
        out[i * channels + k] = std::max(low, std::min(high, drawn));
      }
    }
  }
};

class ExtractGlimpse final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(const Noise noise, noise_of(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new ExtractGlimpse(init, noise));
  }

  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &offsets = c.input(2);
    if (x.rank() != 4) return invalid_argument("input must have rank 4, but its shape is {}", x.shape().str());
    TROUPE_ASSIGN(const Shape size, shape_from(c.input(1), "size"));
    if (size.rank() != 2) return invalid_argument("size must be [height, width], not {}", size.str());
    if (offsets.shape() != Shape{x.dim(0), 2})
      return invalid_argument("offsets must have shape [{},2], not {}", x.dim(0), offsets.shape().str());
    const int64_t sizes[] = {x.dim(0), size[0], size[1], x.dim(3)};
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(DType::kFloat32, shape, c.device().allocator));
    const int64_t image = x.elements() > 0 ? x.elements() / x.dim(0) : 0;
    const int64_t window = y.elements() > 0 ? y.elements() / x.dim(0) : 0;
    const Philox random = streams_.next(c, y.elements() + 2);
    Words words(random);
    Draws draws(random);
    for (int64_t i = 0; i < (image > 0 && window > 0 ? x.dim(0) : 0); ++i) {
      TROUPE_ASSIGN(const int64_t top, corner(offsets.data<float>()[2 * i], x.dim(1), size[0]));
      TROUPE_ASSIGN(const int64_t left, corner(offsets.data<float>()[2 * i + 1], x.dim(2), size[1]));
      const Glimpse g{x.data<float>() + i * image,
                      x.dim(1),
                      x.dim(2),
                      x.dim(3),
                      y.mutable_data<float>() + i * window,
                      size[0],
                      size[1],
                      top,
                      left};
      if (!g.inside() && noise_ == Noise::kUniform) g.fill_uniform(words);
      if (!g.inside() && noise_ == Noise::kGaussian) g.fill_gaussian(draws);
      g.copy();
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  ExtractGlimpse(const KernelInit& init, Noise noise)
      : centered_(init.attr<bool>("centered")), normalized_(init.attr<bool>("normalized")),
        second_(init.op.ends_with("V2")), noise_(noise), streams_(init) {}

  /// Where the window of this size begins, of which the offset tells the centre, or in the second version also its
  /// beginning.
  Result<int64_t> corner(float offset, int64_t in, int64_t size) const {
    const auto whole = static_cast<float>(in), half = static_cast<float>(size) / 2;
    float at = normalized_ ? offset * whole : offset;
    if (centered_) at = (normalized_ || !second_ ? at / 2 : at) + whole / 2;
    if (!second_ || (normalized_ && centered_)) at -= half;
    if (!std::isfinite(at)) return invalid_argument("offset {} must be finite", offset);
    constexpr float kFar = 0x1p40f;  // beyond any image
    return static_cast<int64_t>(std::clamp(at, -kFar, kFar));
  }

  const bool centered_, normalized_, second_;
  const Noise noise_;
  Streams streams_;
};

Status glimpse_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(noise_of(c.attrs()).status());
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 4));
  TROUPE_ASSIGN(const PartialShape offsets, c.with_rank(2, 2));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  TROUPE_ASSIGN(const PartialShape pairs, PartialShape::merge(offsets, PartialShape{x.dim(0), 2}));
  PartialShape size{-1, -1};
  if (const auto sizes = c.constant_input(1)) {
    TROUPE_ASSIGN(const Shape known, shape_from(*sizes, "size"));
    if (known.rank() != 2) return invalid_argument("size must be [height, width], not {}", known.str());
    size = known;
  }
  c.set_output(0, PartialShape{pairs.dim(0), size.dim(0), size.dim(1), x.dim(3)});
  return {};
}

}  // namespace

void register_glimpse_ops(OpRegistry& ops, KernelRegistry& kernels) {
  for (const bool second : {false, true}) {
    const std::string op = second ? "ExtractGlimpseV2" : "ExtractGlimpse";
    ops.add(OpDef(op)
                .input("input: float32")
                .input("size: int32")
                .input("offsets: float32")
                .output("glimpse: float32")
                .attr("centered: bool = true")
                .attr("normalized: bool = true")
                .attr("uniform_noise: bool = true")
                .attr("noise: string = 'uniform'")
                .stateful()
                .shape(glimpse_shape)
                .doc(fmt::format(
                    "Of each image the window of `size` [height, width] at its offset (y, x): `normalized` ones are "
                    "from 0 to 1, `centered` ones from the image's centre, to which the borders are at -1 and 1. {} "
                    "Places outside get noise: 'uniform' in the image's range, 'gaussian' as each channel's values "
                    "are spread, or 'zero'; which random numbers is not defined, as in TensorFlow.",
                    second ? "The offset is the window's centre where it is normalized and centered, else its corner."
                           : "The offset is the window's centre.")),
            second ? undefined_gradient() : not_differentiable("TensorFlow defines none"));
    kernels.add(op, DeviceKind::kCpu, {}, ExtractGlimpse::make);
  }
}

}  // namespace troupe
