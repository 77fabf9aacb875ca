// SPDX-License-Identifier: Apache-2.0
// ImageProjectiveTransformV2 and V3: images seen through a projective transform of their plane.
#include <algorithm>
#include <cmath>
#include <limits>

#include "devices/parallel.h"
#include "ops/image/register.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using TransformTypes = TypeList<uint8_t, int32_t, int64_t, float16, bfloat16, float, double>;
constexpr int64_t kNumbers = 8;  // of a transform; the ninth is 1

enum class EdgeFill { kConstant, kReflect, kWrap, kNearest };

/// What lies beyond the edges of a line of so many pixels, as a coordinate within: kReflect has abc|cba, kWrap abc|abc,
/// kNearest abc|ccc.
float coordinate_within(EdgeFill fill, float at, float size) {
  if (fill == EdgeFill::kConstant) return at;
  if (fill != EdgeFill::kNearest && size <= 1) return 0;
  const float last = size - 1;
  if (fill == EdgeFill::kReflect && at < 0) {
    at += 2 * size * std::trunc(-at / (2 * size));
    at = at < -size ? at + 2 * size : -at - 1;
  } else if (fill == EdgeFill::kReflect && at > last) {
    at -= 2 * size * std::trunc(at / (2 * size));
    if (at >= size) at = 2 * size - at - 1;
  } else if (fill == EdgeFill::kWrap && at < 0) {
    at += size * (std::trunc(-at / last) + 1);
  } else if (fill == EdgeFill::kWrap && at > last) {
    at -= size * std::trunc(at / last);
  }
  return std::clamp(at, 0.0f, last);
}

/// A pixel of T, to which integers are cut off.
template <class T> T pixel(float value) {
  if constexpr (!std::is_integral_v<T>) return narrow<T>(static_cast<Arithmetic<T>>(value));
  else {
    constexpr auto kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
    if (std::isnan(value)) return T(0);
    if (value <= static_cast<float>(kLow)) return kLow;
    return value >= static_cast<float>(kHigh) ? kHigh : static_cast<T>(value);
  }
}

template <class T> class Transform {
 public:
  Transform(const Tensor& images, EdgeFill fill, bool bilinear, float fill_value)
      : images_(images.data<T>()), height_(images.dim(1)), width_(images.dim(2)), channels_(images.dim(3)), fill_(fill),
        bilinear_(bilinear), fill_value_(pixel<T>(fill_value)) {}

  /// The pixel at (x, y) of the result of image `b`, by transform t.
  void at(int64_t b, int64_t x, int64_t y, const float* t, T* out) const {
    const auto fx = static_cast<float>(x), fy = static_cast<float>(y);
    const float w = t[6] * fx + t[7] * fy + 1;
    const float in_x = coordinate_within(fill_, (t[0] * fx + t[1] * fy + t[2]) / w, static_cast<float>(width_));
    const float in_y = coordinate_within(fill_, (t[3] * fx + t[4] * fy + t[5]) / w, static_cast<float>(height_));
    if (w == 0 || !(in_x > -1 && in_x < static_cast<float>(width_) && in_y > -1 && in_y < static_cast<float>(height_)))
      return std::fill_n(out, channels_, fill_value_), void();  // NaN too
    const auto there = [&](int64_t row, int64_t column) {
      return row >= 0 && row < height_ && column >= 0 && column < width_;
    };
    const T* image = images_ + b * height_ * width_ * channels_;
    if (!bilinear_) {
      const int64_t row = std::lround(in_y), column = std::lround(in_x);
      if (!there(row, column)) return std::fill_n(out, channels_, fill_value_), void();
      return std::copy_n(image + (row * width_ + column) * channels_, channels_, out), void();
    }
    const float floor_x = std::floor(in_x), floor_y = std::floor(in_y);
    const auto left = static_cast<int64_t>(floor_x), top = static_cast<int64_t>(floor_y);
    const float right_part = in_x - floor_x, left_part = floor_x + 1 - in_x;
    const float low_part = in_y - floor_y, top_part = floor_y + 1 - in_y;
    for (int64_t c = 0; c < channels_; ++c) {
      const auto value = [&](int64_t row, int64_t column) {
        return static_cast<float>(
            widen(there(row, column) ? image[(row * width_ + column) * channels_ + c] : fill_value_));
      };
      const float upper = left_part * value(top, left) + right_part * value(top, left + 1);
      const float lower = left_part * value(top + 1, left) + right_part * value(top + 1, left + 1);
      out[c] = pixel<T>(top_part * upper + low_part * lower);
    }
  }

 private:
  const T* const images_;
  const int64_t height_, width_, channels_;
  const EdgeFill fill_;
  const bool bilinear_;
  const T fill_value_;
};

class ProjectiveTransform final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    constexpr std::pair<const char*, EdgeFill> kFills[] = {{"CONSTANT", EdgeFill::kConstant},
                                                           {"REFLECT", EdgeFill::kReflect},
                                                           {"WRAP", EdgeFill::kWrap},
                                                           {"NEAREST", EdgeFill::kNearest}};
    const auto &mode = init.attr<std::string>("fill_mode"), &interpolation = init.attr<std::string>("interpolation");
    if (interpolation != "NEAREST" && interpolation != "BILINEAR")
      return invalid_argument("interpolation must be NEAREST or BILINEAR, got \"{}\"", interpolation);
    for (const auto& [word, fill] : kFills)
      if (mode == word)
        return std::unique_ptr<ComputeKernel>(new ProjectiveTransform(fill, interpolation == "BILINEAR"));
    return invalid_argument("fill_mode must be CONSTANT, REFLECT, WRAP or NEAREST, got \"{}\"", mode);
  }

  Status compute(KernelContext& c) override {
    const Tensor &images = c.input(0), &transforms = c.input(1);
    if (images.rank() != 4)
      return invalid_argument("images must be [batch, height, width, channels], but have shape {}",
                              images.shape().str());
    if (transforms.rank() != 2 || transforms.dim(1) != kNumbers ||
        (transforms.dim(0) != images.dim(0) && transforms.dim(0) != 1))
      return invalid_argument("transforms must be [1 or {},{}], but have shape {}", images.dim(0), kNumbers,
                              transforms.shape().str());
    TROUPE_ASSIGN(const std::vector<int64_t> size, int_values(c.input(2), "output_shape"));
    if (size.size() != 2 || size[0] < 1 || size[1] < 1)
      return invalid_argument("output_shape must be a height and a width above 0, got {}", c.input(2).str());
    float fill_value = 0;
    if (c.num_inputs() > 3) {
      if (c.input(3).rank() != 0)
        return invalid_argument("fill_value must be a scalar, but has shape {}", c.input(3).shape().str());
      fill_value = c.input(3).data<float>()[0];
    }
    const int64_t height = size[0], width = size[1], channels = images.dim(3);
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::array<int64_t, 4>{images.dim(0), height, width, channels}));
    TROUPE_ASSIGN(Tensor y, c.allocate(images.dtype(), shape));
    with_type(images.dtype(), TransformTypes{}, [&]<class T>() {
      const Transform<T> transform(images, fill_, bilinear_, fill_value);
      const int64_t row = width * channels;
      parallel_for(c.threads(), row > 0 ? y.elements() / row : 0, 1 + kDearGrain / std::max<int64_t>(row, 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r) {
                       const int64_t b = r / height;
                       const float* t = transforms.data<float>() + (transforms.dim(0) == 1 ? 0 : b) * kNumbers;
                       for (int64_t x = 0; x < width; ++x)
                         transform.at(b, x, r % height, t, y.mutable_data<T>() + r * row + x * channels);
                     }
                   });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  ProjectiveTransform(EdgeFill fill, bool bilinear) : fill_(fill), bilinear_(bilinear) {}
  const EdgeFill fill_;
  const bool bilinear_;
};

Status projective_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape images, c.with_rank(0, 4));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 2));
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1));
  std::vector<int64_t> size = {-1, -1};
  if (const auto constant = c.constant_input(2)) {
    TROUPE_ASSIGN(size, int_values(*constant, "output_shape"));
    if (size.size() != 2 || size[0] < 1 || size[1] < 1)
      return invalid_argument("output_shape must be a height and a width above 0, got {}", constant->str());
  }
  const auto of_images = [&](int i) { return images.has_rank() ? images[i] : -1; };
  c.set_output(0, {of_images(0), size[0], size[1], of_images(3)});
  return {};
}

/// As TensorFlow has it: the gradient seen through the inverse transform.
Status projective_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output images = c.input(0), transforms = c.input(1);
  const auto vector = [&](std::initializer_list<int32_t> v) { return c.constant(Tensor::of<int32_t>(v)); };
  const Output count = c.op("Slice", {c.op("Shape", {transforms}), vector({0}), vector({1})});
  const Output row = c.constant(Tensor::of<int32_t>({1}));
  const Output ones = c.op("Fill", {c.op("ConcatV2", {count, row, c.constant(Tensor::scalar<int32_t>(0))}),
                                    c.constant(Tensor::scalar(1.0f))});
  const Output nine = c.op("ConcatV2", {transforms, ones, c.constant(Tensor::scalar<int32_t>(1))});
  const Output inverse =
      c.op("Reshape", {c.op("MatrixInverse", {c.op("Reshape", {nine, vector({-1, 3, 3})})}), vector({-1, 9})});
  const Output last = c.op("Slice", {inverse, vector({0, 8}), vector({-1, 1})});
  const Output flat = c.op("Slice", {c.op("RealDiv", {inverse, last}), vector({0, 0}), vector({-1, 8})});
  const Output size = c.op("Slice", {c.op("Shape", {images}), vector({1}), vector({2})});
  std::vector<Output> inputs = {c.dy(0), flat, size};
  if (c.num_inputs() > 3) inputs.push_back(c.constant(Tensor::scalar(0.0f)));
  Attrs attrs;
  for (const char* name : {"interpolation", "fill_mode"})
    if (const AttrValue* v = c.node().attrs().find(name)) attrs.set(name, *v);
  c.set_dx(0, c.op(c.node().op().name(), inputs, attrs));
  return {};
}

}  // namespace

void register_projective_ops(OpRegistry& ops, KernelRegistry& kernels) {
  for (const bool third : {false, true}) {
    OpDef op(third ? "ImageProjectiveTransformV3" : "ImageProjectiveTransformV2");
    const std::string name = op.name();
    op.input("images: dtype").input("transforms: float32").input("output_shape: int32");
    if (third) op.input("fill_value: float32");
    ops.add(
        op.output("transformed_images: dtype")
            .attr(type_attr("dtype", TransformTypes{}))
            .attr("interpolation: string")
            .attr("fill_mode: string = 'CONSTANT'")
            .shape(projective_shape)
            .doc(std::string("Images [batch, height, width, channels] through projective transforms, one for each "
                             "or one for all: the pixel (x, y) of the result is that at ((a0 x + a1 y + a2) / k, "
                             "(b0 x + b1 y + b2) / k) with k = c0 x + c1 y + 1, for a row a0 a1 a2 b0 b1 b2 c0 c1 "
                             "of `transforms`. `interpolation` is NEAREST or BILINEAR. Beyond the edges there is ") +
                 (third ? "`fill_value`" : "0") +
                 " with the `fill_mode` CONSTANT, else the image again (REFLECT, WRAP) or its edge (NEAREST). The "
                 "gradient goes back through the inverse transform, as TensorFlow has it."),
        gradient(projective_gradient));
    kernels.add(name, DeviceKind::kCpu, {}, ProjectiveTransform::make);
  }
}

}  // namespace troupe
