// SPDX-License-Identifier: Apache-2.0
// CropAndResize: boxes cut out of images and brought to one size, and its gradients by images and boxes.
#include <algorithm>
#include <cmath>

#include "base/join.h"
#include "devices/parallel.h"
#include "ops/image/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using CropTypes = TypeList<uint8_t, uint16_t, int8_t, int16_t, int32_t, int64_t, float16, float, double>;
using CropGradTypes = TypeList<float, float16, double>;

/// Where the places of a crop lie along one axis of an image of `size` pixels.
struct Axis {
  float start, step;
  int64_t size;
  Axis(float from, float to, int64_t size, int64_t crop) : size(size) {
    const auto last = static_cast<float>(size - 1);
    step = crop > 1 ? (to - from) * last / static_cast<float>(crop - 1) : 0;
    start = crop > 1 ? from * last : 0.5f * (from + to) * last;
  }
  float at(int64_t i) const { return start + static_cast<float>(i) * step; }
  bool inside(float at) const { return at >= 0 && at <= static_cast<float>(size - 1); }
};

/// The checked inputs of all three ops.
struct Crops {
  const float* boxes = nullptr;
  const int32_t* images = nullptr;
  int64_t count = 0, height = 0, width = 0, image_height = 0, image_width = 0, depth = 0;

  /// `image` is the shape of the images. Errors: other shapes, images that are not there.
  static Result<Crops> of(const Tensor& boxes, const Tensor& images, const Shape& image, int64_t height,
                          int64_t width) {
    if (image.rank() != 4) return invalid_argument("image must have rank 4, but its shape is {}", image.str());
    if (boxes.rank() != 2 || boxes.dim(1) != 4 || images.rank() != 1 || images.dim(0) != boxes.dim(0))
      return invalid_argument("boxes {} and box_ind {} must be [n,4] and [n]", boxes.shape().str(),
                              images.shape().str());
    if (height <= 0 || width <= 0) return invalid_argument("crops of {} by {} pixels", height, width);
    if (image[1] <= 0 || image[2] <= 0) return invalid_argument("images {} have no pixels", image.str());
    TROUPE_RETURN_IF_ERROR(check_indices(images.values<int32_t>(), image[0]));
    return Crops{
        boxes.data<float>(), images.data<int32_t>(), boxes.dim(0), height, width, image[1], image[2], image[3]};
  }
  Axis rows(int64_t b) const { return {boxes[4 * b], boxes[4 * b + 2], image_height, height}; }
  Axis columns(int64_t b) const { return {boxes[4 * b + 1], boxes[4 * b + 3], image_width, width}; }
  /// The first element of a pixel of the image of box b. Places beyond 2^24 may be rounded past the last pixel.
  int64_t pixel(int64_t b, int64_t y, int64_t x) const {
    y = std::min(y, image_height - 1);
    x = std::min(x, image_width - 1);
    return ((images[b] * image_height + y) * image_width + x) * depth;
  }

  /// Calls f(first element of the pixel of the crop, place in the image) for pixels of box b whose place is inside and
  /// outside(first element) for the others.
  template <class F, class G> void each(int64_t b, F&& f, G&& outside) const {
    if (depth == 0) return;  // height and width may be any
    const Axis ys = rows(b), xs = columns(b);
    int64_t to = b * height * width * depth;
    for (int64_t i = 0; i < height; ++i)
      for (int64_t j = 0; j < width; ++j, to += depth) {
        const float y = ys.at(i), x = xs.at(j);
        if (ys.inside(y) && xs.inside(x)) f(to, y, x);
        else outside(to);
      }
  }
};

/// The four pixels around a place and its distance from the upper left one.
struct Corners {
  int64_t top_left, top_right, bottom_left, bottom_right;
  float down, right;
  [[gnu::noinline]] Corners(const Crops& c, int64_t b, float y, float x)
      : down(y - std::floor(y)), right(x - std::floor(x)) {
    const auto top = static_cast<int64_t>(std::floor(y)), bottom = static_cast<int64_t>(std::ceil(y));
    const auto left = static_cast<int64_t>(std::floor(x)), beside = static_cast<int64_t>(std::ceil(x));
    top_left = c.pixel(b, top, left);
    top_right = c.pixel(b, top, beside);
    bottom_left = c.pixel(b, bottom, left);
    bottom_right = c.pixel(b, bottom, beside);
  }
};

[[gnu::noinline]] int64_t nearest(const Crops& c, int64_t b, float y, float x) {
  return c.pixel(b, static_cast<int64_t>(std::round(y)), static_cast<int64_t>(std::round(x)));
}

bool is_nearest(const KernelInit& init) { return init.attr<std::string>("method") == "nearest"; }

/// The value at a place of the image of box b: the nearest pixel or the mean of the four around it.
template <class T>
void pick(const Crops& c, bool by_nearest, int64_t b, float y, float x, const void* image, float* out) {
  const auto value = [in = static_cast<const T*>(image)](int64_t at) { return static_cast<float>(widen(in[at])); };
  if (by_nearest) {
    const int64_t at = nearest(c, b, y, x);
    for (int64_t k = 0; k < c.depth; ++k) out[k] = value(at + k);
    return;
  }
  const Corners at(c, b, y, x);
  for (int64_t k = 0; k < c.depth; ++k) {
    const float tl = value(at.top_left + k), bl = value(at.bottom_left + k);
    const float top = tl + (value(at.top_right + k) - tl) * at.right;
    const float bottom = bl + (value(at.bottom_right + k) - bl) * at.right;
    out[k] = top + (bottom - top) * at.down;
  }
}

class CropAndResize final : public ComputeKernel {
 public:
  explicit CropAndResize(const KernelInit& init)
      : nearest_(is_nearest(init)), outside_(init.attr<float>("extrapolation_value")) {}
  Status compute(KernelContext& c) override {
    const Tensor& image = c.input(0);
    TROUPE_ASSIGN(const auto size, int_values(c.input(3), "crop_size"));
    if (size.size() != 2) return invalid_argument("crop_size must be two numbers, not {}", size.size());
    TROUPE_ASSIGN(const Crops crops, Crops::of(c.input(1), c.input(2), image.shape(), size[0], size[1]));
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::array{crops.count, size[0], size[1], crops.depth}));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, shape));
    auto pick_pixel = pick<float>;
    with_type(image.dtype(), CropTypes{}, [&]<class T>() { pick_pixel = pick<T>; });
    float* out = y.mutable_data<float>();
    const int64_t one = std::max<int64_t>(size[0] * size[1] * crops.depth, 1);
    parallel_for(c.threads(), crops.count, 1 + kDearGrain / one, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        crops.each(
            b,
            [&](int64_t to, float row, float column) {
              pick_pixel(crops, nearest_, b, row, column, image.raw(), out + to);
            },
            [&](int64_t to) { std::fill_n(out + to, crops.depth, outside_); });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool nearest_;
  const float outside_;
};

/// Crops of the shape of `grads` for images of shape `image`. Errors: grads that are not of these crops.
Result<Crops> crops_of(const Tensor& grads, const Tensor& boxes, const Tensor& images, const Shape& image) {
  if (grads.rank() != 4 || image.rank() != 4 || boxes.rank() != 2 || grads.dim(0) != boxes.dim(0) ||
      grads.dim(3) != image[3])
    return invalid_argument("grads {} do not fit boxes {} of images {}", grads.shape().str(), boxes.shape().str(),
                            image.str());
  return Crops::of(boxes, images, image, grads.dim(1), grads.dim(2));
}

/// Adds the gradient `g` of the value at a place of the image of box b to the pixels that it was made of.
template <class T>
void add_back(const Crops& c, bool by_nearest, int64_t b, float y, float x, const float* g, void* image) {
  const auto add = [out = static_cast<T*>(image)](int64_t at, float v) {
    out[at] = narrow<T>(widen(out[at]) + static_cast<Arithmetic<T>>(v));
  };
  const Corners at(c, b, y, x);
  const int64_t near = nearest(c, b, y, x);
  for (int64_t k = 0; k < c.depth; ++k) {
    const float v = g[k], top = (1 - at.down) * v, bottom = at.down * v;
    if (by_nearest) {
      add(near + k, v);
      continue;
    }
    add(at.top_left + k, (1 - at.right) * top);
    add(at.top_right + k, at.right * top);
    add(at.bottom_left + k, (1 - at.right) * bottom);
    add(at.bottom_right + k, at.right * bottom);
  }
}

class CropGradImage final : public ComputeKernel {
 public:
  explicit CropGradImage(const KernelInit& init) : nearest_(is_nearest(init)), dtype_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const auto size, int_values(c.input(3), "image_size"));
    if (size.size() != 4) return invalid_argument("image_size must be four numbers, not {}", size.size());
    TROUPE_ASSIGN(const Shape shape, Shape::make(size));
    TROUPE_ASSIGN(const Crops crops, crops_of(c.input(0), c.input(1), c.input(2), shape));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(dtype_, shape, c.device().allocator));
    auto add_pixel = add_back<float>;
    with_type(dtype_, CropGradTypes{}, [&]<class T>() { add_pixel = add_back<T>; });
    const float* g = c.input(0).data<float>();
    for (int64_t b = 0; b < crops.count; ++b)
      crops.each(
          b,
          [&](int64_t from, float row, float column) {
            add_pixel(crops, nearest_, b, row, column, g + from, y.mutable_raw());
          },
          [](int64_t) {});
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool nearest_;
  const DType dtype_;
};

/// How the value at a place of the image of box b, weighted by g, changes as the place moves down and right.
template <class T>
std::pair<float, float> slope(const Crops& c, int64_t b, float y, float x, const void* image, const float* g) {
  const auto value = [in = static_cast<const T*>(image)](int64_t at) { return static_cast<float>(widen(in[at])); };
  const Corners at(c, b, y, x);
  float dy = 0, dx = 0;
  for (int64_t k = 0; k < c.depth; ++k) {
    const float tl = value(at.top_left + k), tr = value(at.top_right + k);
    const float bl = value(at.bottom_left + k), br = value(at.bottom_right + k), v = g[k];
    dy += v * ((1 - at.right) * (bl - tl) + at.right * (br - tr));
    dx += v * ((1 - at.down) * (tr - tl) + at.down * (br - bl));
  }
  return {dy, dx};
}

class CropGradBoxes final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& image = c.input(1);
    TROUPE_ASSIGN(const Crops crops, crops_of(c.input(0), c.input(2), c.input(3), image.shape()));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(DType::kFloat32, c.input(2).shape(), c.device().allocator));
    auto slope_at = slope<float>;
    with_type(image.dtype(), CropTypes{}, [&]<class T>() { slope_at = slope<T>; });
    const float* g = c.input(0).data<float>();
    const auto tall = static_cast<float>(crops.image_height - 1), wide = static_cast<float>(crops.image_width - 1);
    for (int64_t b = 0; b < crops.count && crops.depth > 0; ++b) {
      double by[4] = {};
      const int64_t first = b * crops.height * crops.width;
      crops.each(
          b,
          [&](int64_t from, float row, float column) {
            const auto [dy, dx] = slope_at(crops, b, row, column, image.raw(), g + from);
            const int64_t place = from / crops.depth - first;
            spread(by[0], by[2], dy * tall, place / crops.width, crops.height);
            spread(by[1], by[3], dx * wide, place % crops.width, crops.width);
          },
          [](int64_t) {});
      for (int k = 0; k < 4; ++k) y.mutable_data<float>()[4 * b + k] = static_cast<float>(by[k]);
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// How place i of n moves with the beginning and the end of its axis.
  static void spread(double& begin, double& end, float d, int64_t i, int64_t n) {
    const double share = n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0.5;
    begin += d * (1 - share);
    end += d * share;
  }
};

Status crop_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape image, c.with_rank(0, 4));
  TROUPE_ASSIGN(const PartialShape boxes, c.with_rank(1, 2));
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1).status());
  std::vector<int64_t> size = {-1, -1};
  if (const auto constant = c.constant_input(3)) {
    TROUPE_ASSIGN(size, int_values(*constant, "crop_size"));
    if (size.size() != 2 || size[0] <= 0 || size[1] <= 0)
      return invalid_argument("crop_size must be two numbers above 0, not [{}]", join(size));
  }
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(std::array{boxes[0], size[0], size[1], image[3]}));
  c.set_output(0, std::move(out));
  return {};
}

Status crop_grad_image_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 4).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 2).status());
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1).status());
  PartialShape out = PartialShape::of_rank(4);
  if (const auto size = c.constant_input(3)) {
    TROUPE_ASSIGN(const Shape shape, shape_from(*size, "image_size"));
    if (shape.rank() != 4) return invalid_argument("image_size must be four numbers, not {}", shape.rank());
    out = shape;
  }
  c.set_output(0, out);
  return {};
}

Status crop_gradient(GradientContext& c) {
  const Output image = c.input(0), boxes = c.input(1), images = c.input(2), g = c.dy(0);
  if (!g) return {};
  if (is_floating(image.dtype())) {
    const auto method = c.node().attrs().get_or<std::string>("method", "bilinear");
    c.set_dx(0, c.op("CropAndResizeGradImage", {g, boxes, images, c.op("Shape", {image})},
                     {{"T", image.dtype()}, {"method", method}}));
  }
  c.set_dx(1, c.op("CropAndResizeGradBoxes", {g, image, boxes, images}));
  return {};
}

/// The op is linear in grads; by the boxes it changes as the crops of what comes back do.
Status crop_grad_image_gradient(GradientContext& c) {
  const Output grads = c.input(0), boxes = c.input(1), images = c.input(2), g = c.dy(0);
  if (!g) return {};
  const auto method = c.node().attrs().get_or<std::string>("method", "bilinear");
  const auto ends = [&](int32_t n) { return c.constant(Tensor::of<int32_t>({n})); };
  const Output size = c.op("Slice", {c.op("Shape", {grads}), ends(1), ends(2)});
  c.set_dx(0, c.op("CropAndResize", {g, boxes, images, size}, {{"method", method}}));
  if (method == "bilinear") c.set_dx(1, c.op("CropAndResizeGradBoxes", {grads, g, boxes, images}));
  return {};
}

}  // namespace

void register_crop_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string type = type_attr("T", CropTypes{}), method = "method: {'bilinear', 'nearest'} = 'bilinear'";
  ops.add(
      OpDef("CropAndResize")
          .input("image: T")
          .input("boxes: float32")
          .input("box_ind: int32")
          .input("crop_size: int32")
          .output("crops: float32")
          .attr(type)
          .attr(method)
          .attr("extrapolation_value: float = 0.0")
          .shape(crop_shape)
          .doc("Boxes [y1,x1,y2,x2] (0 is the first and 1 the last pixel) of the images that box_ind names, brought "
               "to crop_size. What lies outside gets extrapolation_value. Error for an image that is not there."),
      gradient(crop_gradient));
  ops.add(OpDef("CropAndResizeGradImage")
              .input("grads: float32")
              .input("boxes: float32")
              .input("box_ind: int32")
              .input("image_size: int32")
              .output("output: T")
              .attr(type_attr("T", CropGradTypes{}))
              .attr(method)
              .shape(crop_grad_image_shape)
              .doc("The gradient of CropAndResize by its images, which have image_size."),
          gradient(crop_grad_image_gradient));
  ops.add(OpDef("CropAndResizeGradBoxes")
              .input("grads: float32")
              .input("image: T")
              .input("boxes: float32")
              .input("box_ind: int32")
              .output("output: float32")
              .attr(type)
              .attr("method: {'bilinear'} = 'bilinear'")
              .shape([](ShapeContext& c) -> Status {
                TROUPE_ASSIGN(PartialShape boxes, c.with_rank(2, 2));
                c.set_output(0, std::move(boxes));
                return {};
              })
              .doc("The gradient of CropAndResize by its boxes, those of a bilinear one."),
          undefined_gradient());
  kernels.add<CropAndResize>("CropAndResize", DeviceKind::kCpu, {{"T", CropTypes::dtypes()}});
  kernels.add<CropGradImage>("CropAndResizeGradImage", DeviceKind::kCpu, {{"T", CropGradTypes::dtypes()}});
  kernels.add<CropGradBoxes>("CropAndResizeGradBoxes", DeviceKind::kCpu, {{"T", CropTypes::dtypes()}});
}

}  // namespace troupe
