// SPDX-License-Identifier: Apache-2.0
// Images of other sizes: ResizeBilinear, ResizeBicubic, ResizeArea, ResizeNearestNeighbor, and their gradients.
//
// Each is a weighted sum along the rows, then along the columns (ops/image/resample.h; of bilinear ones both at once).
// The gradient is the same with the taps transposed.
#include <cmath>

#include "base/join.h"
#include "ops/image/register.h"
#include "ops/image/resample.h"
#include "ops/parts/gradient_math.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

enum class Method { kNearest, kBilinear, kBicubic, kArea };

struct ResizeOptions {
  Method method;
  bool align, half;
  explicit ResizeOptions(std::string_view op, const Attrs& attrs)
      : method(op.find("Bilinear") != op.npos  ? Method::kBilinear
               : op.find("Bicubic") != op.npos ? Method::kBicubic
               : op.find("Area") != op.npos    ? Method::kArea
                                               : Method::kNearest),
        align(attrs.get_or("align_corners", false)), half(attrs.get_or("half_pixel_centers", false)) {}
  Status check() const {
    if (align && half) return invalid_argument("align_corners and half_pixel_centers are both true");
    return {};
  }
};

/// Four taps of a cubic, of which TensorFlow tells 1024 places between two pixels apart. With half_pixel_centers it is
/// Keys' cubic, and taps outside of the image have no weight.
void add_cubic(Taps& taps, float at, int64_t in, bool half) {
  const auto base = static_cast<int64_t>(std::floor(at));
  const float a = half ? -0.5f : -0.75f;
  const float near = static_cast<float>(std::lrint((at - static_cast<float>(base)) * 1024)) / 1024, away = 1 - near;
  const auto inner = [a](float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto outer = [a](float x) { return ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a; };
  float weights[4] = {outer(near), inner(near), inner(away), outer(away)}, sum = 0;
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t place = base - 1 + k;
    if (half && (place < 0 || place >= in)) weights[k] = 0;
    sum += weights[k];
  }
  const float scale = half && std::abs(sum) >= 1000 * std::numeric_limits<float>::min() ? 1 / sum : 1;
  for (int64_t k = 0; k < 4; ++k) taps.add(std::clamp<int64_t>(base - 1 + k, 0, in - 1), weights[k] * scale);
}

/// The taps of an axis of `in` places that becomes one of `out`.
Taps taps_of(const ResizeOptions& o, int64_t in, int64_t out) {
  Taps taps;
  // A single place has corners that coincide: as areas, all places share it.
  const bool aligned = o.align && out > 1 && (in > 1 || o.method != Method::kArea);
  const float scale = aligned ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                              : static_cast<float>(in) / static_cast<float>(out);
  for (int64_t i = 0; i < out; ++i) {
    const auto x = static_cast<float>(i);
    if (o.method == Method::kArea) {
      const float begin = x * scale, end = (x + 1) * scale;
      for (auto v = static_cast<int64_t>(std::floor(begin)); v < static_cast<int64_t>(std::ceil(end)); ++v) {
        const auto left = static_cast<float>(v);
        const float share = left < begin     ? (left + 1 > end ? scale : left + 1 - begin)
                            : left + 1 > end ? end - left
                                             : 1;
        taps.add(std::clamp<int64_t>(v, 0, in - 1), share / scale);
      }
    } else if (o.method == Method::kNearest) {
      const float at = o.half ? (x + 0.5f) * scale : x * scale;
      taps.add(std::clamp<int64_t>(static_cast<int64_t>(o.align ? std::round(at) : std::floor(at)), 0, in - 1), 1);
    } else {
      const float at = o.half ? (x + 0.5f) * scale - 0.5f : x * scale;
      if (o.method == Method::kBicubic) {
        add_cubic(taps, at, in, o.half);
      } else {
        const float below = std::floor(at), part = at - below;
        taps.add(std::clamp<int64_t>(static_cast<int64_t>(below), 0, in - 1), 1 - part);
        taps.add(std::min<int64_t>(static_cast<int64_t>(std::ceil(at)), in - 1), part);
      }
    }
    taps.close();
  }
  return taps;
}

/// ResizeBilinear: each pixel is between two of a row and two of a column, both of which taps_of makes for each place.
/// Written as a + (b - a) * part, as TensorFlow does, which is NaN beside an infinity.
template <class T> void blend(const Tensor& x, Tensor& y, const Taps& rows, const Taps& columns, int threads) {
  const int64_t in_h = x.dim(1), h = y.dim(1), w = y.dim(2), channels = y.dim(3), line = x.dim(2) * channels;
  const T* in = x.data<T>();
  float* out = y.mutable_data<float>();
  parallel_for(threads, y.dim(0) * h, 1 + kDearGrain / (w * channels), [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(line));
    for (int64_t r = begin; r < end; ++r) {
      const int64_t* ends = rows.index.data() + 2 * (r % h);
      const T *upper = in + (r / h * in_h + ends[0]) * line, *lower = in + (r / h * in_h + ends[1]) * line;
      const float down = rows.weight[2 * (r % h) + 1];
      for (int64_t k = 0; k < line; ++k) {
        const auto a = static_cast<float>(widen(upper[k]));
        row[k] = a + (static_cast<float>(widen(lower[k])) - a) * down;
      }
      float* to = out + r * w * channels;
      for (int64_t i = 0; i < w; ++i, to += channels) {
        const float *left = row.data() + columns.index[2 * i] * channels,
                    *right = row.data() + columns.index[2 * i + 1] * channels, across = columns.weight[2 * i + 1];
        for (int64_t k = 0; k < channels; ++k) to[k] = left[k] + (right[k] - left[k]) * across;
      }
    }
  });
}

class Resize final : public ComputeKernel {
 public:
  explicit Resize(const KernelInit& init) : options_(init.op, *init.attrs) {}
  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(options_.check());
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto size, size_from(c.input(1)));
    TROUPE_ASSIGN(const Shape shape, resized(x, size.first, size.second));
    const bool nearest = options_.method == Method::kNearest;
    TROUPE_ASSIGN(Tensor y, c.allocate(nearest ? x.dtype() : DType::kFloat32, shape));
    if (shape.elements() > 0) {
      const Taps rows = taps_of(options_, x.dim(1), size.first), columns = taps_of(options_, x.dim(2), size.second);
      if (nearest) pick(x, y, rows, columns, c.threads());
      else
        with_type(x.dtype(), ImageTypes{}, [&]<class T>() {
          if (options_.method != Method::kBilinear) resample<T, float, float>(x, y, rows, columns, c.threads());
          else if (shape != x.shape()) blend<T>(x, y, rows, columns, c.threads());
          else  // copies, also of infinities
            std::transform(x.data<T>(), x.data<T>() + x.elements(), y.mutable_data<float>(),
                           [](T v) { return static_cast<float>(widen(v)); });
        });
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  static void pick(const Tensor& x, Tensor& y, const Taps& rows, const Taps& columns, int threads) {
    const int64_t h = y.dim(1), w = y.dim(2), channels = y.dim(3), line = x.dim(2) * channels;
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      parallel_for(threads, y.dim(0) * h, 1 + kCheapGrain / (w * channels), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const S* from = in + (r / h * x.dim(1) + rows.index[r % h]) * line;
          for (int64_t i = 0; i < w; ++i)
            std::copy_n(from + columns.index[i] * channels, channels, out + (r * w + i) * channels);
        }
      });
    });
  }

  const ResizeOptions options_;
};

/// Gradients of images of the size of input 1, an image or, of ResizeNearestNeighbor, a size.
class ResizeGrad final : public ComputeKernel {
 public:
  explicit ResizeGrad(const KernelInit& init) : options_(init.op, *init.attrs), dtype_(init.output_dtypes[0]) {}
  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(options_.check());
    const Tensor& g = c.input(0);
    const bool nearest = options_.method == Method::kNearest;
    std::pair<int64_t, int64_t> size;
    if (nearest) {
      TROUPE_ASSIGN(size, size_from(c.input(1)));
    } else {
      const Tensor& x = c.input(1);
      TROUPE_RETURN_IF_ERROR(resized(x, 1, 1).status());
      size = {x.dim(1), x.dim(2)};
      if (g.rank() != 4 || g.dim(0) != x.dim(0) || g.dim(3) != x.dim(3))
        return invalid_argument("grads {} and original_image {} do not fit", g.shape().str(), x.shape().str());
    }
    TROUPE_ASSIGN(const Shape shape, resized(g, size.first, size.second));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_, shape));
    if (shape.elements() > 0) {
      const Taps rows = taps_of(options_, size.first, g.dim(1)).transposed(size.first);
      const Taps columns = taps_of(options_, size.second, g.dim(2)).transposed(size.second);
      if (nearest)
        with_type(dtype_, NearestTypes{},
                  [&]<class T>() { resample<T, Arithmetic<T>, T>(g, y, rows, columns, c.threads()); });
      else if (dtype_ == DType::kFloat64) resample<float, double, double>(g, y, rows, columns, c.threads());
      else
        with_type(dtype_, TypeList<float, float16, bfloat16>{},
                  [&]<class T>() { resample<float, float, T>(g, y, rows, columns, c.threads()); });
    }
    c.set_output(0, std::move(y));
    return {};
  }

  using NearestTypes = TypeList<uint8_t, int8_t, int32_t, float16, float, double, bfloat16>;

 private:
  const ResizeOptions options_;
  const DType dtype_;
};

Status resize_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(ResizeOptions("", c.attrs()).check());
  return set_resized_shape(c);
}

Status resize_grad_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(ResizeOptions("", c.attrs()).check());
  return set_resized_grad_shape(c);
}

/// [height, width] of images.
Output size_of(GradientContext& c, Output images) {
  const auto ints = [&](int32_t v) { return c.constant(Tensor::of<int32_t>({v})); };
  return c.op("StridedSlice", {c.op("Shape", {images}), ints(1), ints(3), ints(1)});
}

Attrs corners_of(const Node& node) {
  Attrs attrs;
  for (const char* name : {"align_corners", "half_pixel_centers"}) attrs.set(name, node.attrs().get_or(name, false));
  return attrs;
}

Status resize_gradient(GradientContext& c) {
  const Output x = c.input(0), g = c.dy(0);
  if (!g || !is_floating(x.dtype())) return {};
  const std::string& name = c.node().op().name();
  const Output second = name == "ResizeNearestNeighbor" ? size_of(c, x) : x;
  c.set_dx(0, c.op(name + "Grad", {g, second}, corners_of(c.node())));
  return {};
}

/// Linear in grads, so what comes back is resized as the images were.
Status resize_grad_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const std::string& name = c.node().op().name();
  const std::string forward = name.substr(0, name.size() - std::string_view("Grad").size());
  c.set_dx(0, c.op(forward, {c.dy(0), size_of(c, c.input(0))}, corners_of(c.node())));
  return {};
}

OpDef with_corners(OpDef op) { return op.attr("align_corners: bool = false").attr("half_pixel_centers: bool = false"); }

}  // namespace

Result<std::pair<int64_t, int64_t>> size_from(const Tensor& t) {
  TROUPE_ASSIGN(const auto size, int_values(t, "size"));
  if (size.size() != 2 || size[0] <= 0 || size[1] <= 0)
    return invalid_argument("size must be two numbers above 0, not [{}]", join(size));
  return std::pair(size[0], size[1]);
}

Result<Shape> resized(const Tensor& x, int64_t height, int64_t width) {
  if (x.rank() != 4) return invalid_argument("images must have rank 4, but their shape is {}", x.shape().str());
  if (x.dim(1) == 0 || x.dim(2) == 0) return invalid_argument("images {} have no pixels", x.shape().str());
  return Shape::make(std::array{x.dim(0), height, width, x.dim(3)});
}

Status set_resized_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 4));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1).status());
  int64_t height = -1, width = -1;
  if (const auto size = c.constant_input(1)) {
    TROUPE_ASSIGN(std::tie(height, width), size_from(*size));
  }
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(std::array{x[0], height, width, x[3]}));
  c.set_output(0, std::move(out));
  return {};
}

Status set_resized_grad_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 4).status());
  TROUPE_ASSIGN(PartialShape x, c.with_rank(1, 4));
  c.set_output(0, std::move(x));
  return {};
}

void register_resize_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string corners =
      " align_corners maps the outermost pixels on one another, half_pixel_centers takes pixels by their middle.";
  const auto resize = [&](const char* name, bool same, const std::string& doc) {
    OpDef op(name);
    op.input("images: T").input("size: int32").output(same ? "resized_images: T" : "resized_images: float32");
    return op.attr(type_attr("T", ImageTypes{})).shape(resize_shape).doc(doc);
  };
  const auto grad = [&](const char* name, const std::string& type) {
    OpDef op(name);
    op.input("grads: float32").input("original_image: T").output("output: T").attr(type);
    return with_corners(op.shape(resize_grad_shape).doc("The gradient of the op of this name without Grad."));
  };
  ops.add(with_corners(resize("ResizeBilinear", false,
                              "Images [batch,height,width,channels] of another size, each "
                              "pixel from the four around its place." +
                                  corners)),
          gradient(resize_gradient));
  ops.add(with_corners(resize("ResizeBicubic", false,
                              "Images [batch,height,width,channels] of another size, each "
                              "pixel from the sixteen around its place by a cubic." +
                                  corners)),
          gradient(resize_gradient));
  ops.add(with_corners(resize("ResizeNearestNeighbor", true,
                              "Images [batch,height,width,channels] of another size, "
                              "each pixel the one nearest to its place." +
                                  corners)),
          gradient(resize_gradient));
  ops.add(resize("ResizeArea", false,
                 "Images [batch,height,width,channels] of another size, each pixel the mean of "
                 "the area it covers.")
              .attr("align_corners: bool = false"),
          undefined_gradient());
  ops.add(grad("ResizeBilinearGrad", type_attr("T", TypeList<float, bfloat16, float16, double>{})),
          gradient(resize_grad_gradient));
  ops.add(grad("ResizeBicubicGrad", type_attr("T", FullFloatTypes{})), gradient(resize_grad_gradient));
  ops.add(with_corners(OpDef("ResizeNearestNeighborGrad").input("grads: T").input("size: int32").output("output: T"))
              .attr(type_attr("T", ResizeGrad::NearestTypes{}))
              .shape(resize_shape)
              .doc("The gradient of ResizeNearestNeighbor by images of this size: pixels that came from one place "
                   "are added there."),
          gradient(resize_grad_gradient));
  for (const char* op : {"ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor", "ResizeArea"})
    kernels.add<Resize>(op, DeviceKind::kCpu, {});
  for (const char* op : {"ResizeBilinearGrad", "ResizeBicubicGrad", "ResizeNearestNeighborGrad"})
    kernels.add<ResizeGrad>(op, DeviceKind::kCpu, {});
}

}  // namespace troupe
