// SPDX-License-Identifier: Apache-2.0
// Ops on images of integers that stand for numbers: QuantizedConv2D, QuantizedMaxPool, QuantizedAvgPool,
// QuantizedInstanceNorm, QuantizedResizeBilinear.
#include "devices/parallel.h"
#include "ops/image/resample.h"
#include "ops/parts/gemm.h"
#include "ops/parts/window.h"
#include "ops/parts/wrapping.h"
#include "ops/quantized/range.h"
#include "ops/quantized/register.h"

namespace troupe {
namespace {

Status check_quantized_images(const Tensor& x) {
  if (x.rank() == 4) return {};
  return invalid_argument("input must be images of rank 4, not of shape {}", x.shape().str());
}

// -- convolution ------------------------------------------------------------------------------------------------------

/// The most numbers of the patches that are multiplied at once.
constexpr int64_t kPatches = 1 << 20;

/// Where windows stand. TensorFlow places padded ones here by half of what they reach over the image, even where that
/// is less than nothing.
struct ConvWindows {
  WindowAxis y, x;
  static Result<ConvWindows> make(const WindowAttrs& attrs, const PartialShape& in, const PartialShape& filter) {
    if (attrs.strides[0] != attrs.strides[1] || attrs.dilations[0] != 1 || attrs.dilations[1] != 1)
      return invalid_argument("strides along height and width must be equal and dilations 1");
    if (in[3] >= 0 && filter[2] >= 0 && in[3] != filter[2])
      return invalid_argument("filter {} is not for the {} channels of input {}", filter.str(), in[3], in.str());
    if (filter[0] == 0 || filter[1] == 0 || filter[2] == 0)
      return invalid_argument("filter {} has no weights", filter.str());
    ConvWindows out;
    TROUPE_ASSIGN(out.y, attrs.axis(0, in[1], filter[0]));
    TROUPE_ASSIGN(out.x, attrs.axis(1, in[2], filter[1]));
    if (attrs.padding == "SAME")
      for (WindowAxis* a : {&out.y, &out.x}) a->lo = ((a->out - 1) * a->stride + a->size - a->in) / 2;
    return out;
  }
};

class QuantizedConv final : public ComputeKernel {
 public:
  explicit QuantizedConv(WindowAttrs attrs) : attrs_(std::move(attrs)) {}
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(WindowAttrs attrs, WindowAttrs::parse(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new QuantizedConv(std::move(attrs)));
  }

  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &filter = c.input(1);
    TROUPE_RETURN_IF_ERROR(check_quantized_images(x));
    if (filter.rank() != 4) return invalid_argument("filter must have rank 4, not {}", filter.shape().str());
    TROUPE_ASSIGN(const CodeRange a, range_at(c, 2));
    TROUPE_ASSIGN(const CodeRange b, range_at(c, 4));
    TROUPE_ASSIGN(const ConvWindows w, ConvWindows::make(attrs_, x.shape(), filter.shape()));
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::array{x.dim(0), w.y.out, w.x.out, filter.dim(3)}));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(DType::kInt32, shape, c.device().allocator));
    if (shape.elements() > 0) {
      TROUPE_ASSIGN(const Tensor from, from_zero(c, x, zero_of(a)));
      TROUPE_ASSIGN(const Tensor weights, from_zero(c, filter, zero_of(b)));
      TROUPE_RETURN_IF_ERROR(convolve(c, w, from, weights, y));
    }
    c.set_output(0, std::move(y));
    set_range(c, 1, product_range(a, b));
    return {};
  }

 private:
  static Status convolve(KernelContext& c, const ConvWindows& w, const Tensor& x, const Tensor& filter, Tensor& y) {
    const int64_t k = w.y.size * w.x.size * x.dim(3), n = filter.dim(3), rows = x.dim(0) * w.y.out;
    const int64_t at_once = std::clamp<int64_t>(kPatches / (w.x.out * k), 1, rows);
    TROUPE_ASSIGN(Tensor patches, c.allocate(DType::kInt32, Shape{at_once, w.x.out, k}));
    for (int64_t row = 0; row < rows; row += at_once) {
      const int64_t some = std::min(at_once, rows - row);
      parallel_for(c.threads(), some, 1 + kCheapGrain / (w.x.out * k), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          take_patches(w, x, row + r, patches.mutable_data<int32_t>() + r * w.x.out * k);
      });
      if (!gemm(patches.data<int32_t>(), false, filter.data<int32_t>(), false,
                y.mutable_data<int32_t>() + row * w.x.out * n, some * w.x.out, n, k))
        return make_error(Code::kInternal, "the product of patches and filter {} failed", filter.shape().str());
    }
    return {};
  }

  /// The windows of one row of the result, each as a row; places beyond the image are zero.
  static void take_patches(const ConvWindows& w, const Tensor& x, int64_t row, int32_t* out) {
    const int64_t depth = x.dim(3), top = row % w.y.out * w.y.stride - w.y.lo;
    const int32_t* image = x.data<int32_t>() + row / w.y.out * w.y.in * w.x.in * depth;
    for (int64_t ox = 0; ox < w.x.out; ++ox) {
      const int64_t left = ox * w.x.stride - w.x.lo;
      for (int64_t fy = top; fy < top + w.y.size; ++fy)
        for (int64_t fx = left; fx < left + w.x.size; ++fx, out += depth) {
          const bool inside = fy >= 0 && fy < w.y.in && fx >= 0 && fx < w.x.in;
          if (inside) std::copy_n(image + (fy * w.x.in + fx) * depth, depth, out);
          else std::fill_n(out, depth, 0);
        }
    }
  }

  const WindowAttrs attrs_;
};

Status quantized_conv_shape(ShapeContext& c) {
  set_range_shape(c);
  TROUPE_ASSIGN(const WindowAttrs attrs, WindowAttrs::parse(c.attrs()));
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 4));
  TROUPE_ASSIGN(const PartialShape filter, c.with_rank(1, 4));
  TROUPE_ASSIGN(const ConvWindows w, ConvWindows::make(attrs, x, filter));
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(std::array{x[0], w.y.out, w.x.out, filter[3]}));
  c.set_output(0, std::move(out));
  return {};
}

// -- pools ------------------------------------------------------------------------------------------------------------

/// The largest integer of each window, or their mean without its fraction. The range stays.
template <bool max> class QuantizedPool final : public ComputeKernel {
 public:
  explicit QuantizedPool(WindowAttrs attrs) : attrs_(std::move(attrs)) {}
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init) {
    TROUPE_ASSIGN(WindowAttrs attrs, WindowAttrs::parse(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new QuantizedPool(std::move(attrs)));
  }

  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_RETURN_IF_ERROR(check_quantized_images(x));
    TROUPE_ASSIGN(const CodeRange range, range_at(c, 1));
    TROUPE_ASSIGN(const WindowAxis rows, attrs_.axis(0, x.dim(1), attrs_.sizes[0]));
    TROUPE_ASSIGN(const WindowAxis columns, attrs_.axis(1, x.dim(2), attrs_.sizes[1]));
    const int64_t depth = x.dim(3);
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), Shape{x.dim(0), rows.out, columns.out, depth}));
    with_type(x.dtype(), TypeList<int8_t, uint8_t>{}, [&]<class T>() {
      const auto grain = 1 + kDearGrain / std::max<int64_t>(columns.out * depth * columns.size * rows.size, 1);
      parallel_for(c.threads(), y.elements() > 0 ? x.dim(0) * rows.out : 0, grain, [&](int64_t begin, int64_t end) {
        std::vector<int32_t> joined(static_cast<size_t>(depth));
        for (int64_t row = begin; row < end; ++row) {
          const T* image = x.data<T>() + row / rows.out * rows.in * columns.in * depth;
          T* out = y.mutable_data<T>() + row * columns.out * depth;
          const Covered down(rows, row % rows.out);
          for (int64_t ox = 0; ox < columns.out; ++ox, out += depth) {
            const Covered across(columns, ox);
            std::ranges::fill(joined, max ? std::numeric_limits<int32_t>::min() : 0);
            for (int64_t at_y = down.begin; at_y < down.end; ++at_y)
              for (int64_t at_x = across.begin; at_x < across.end; ++at_x) {
                const T* in = image + (at_y * columns.in + at_x) * depth;
                for (size_t k = 0; k < joined.size(); ++k)
                  joined[k] = max ? std::max<int32_t>(joined[k], in[k]) : wrapping_add<int32_t>(joined[k], in[k]);
              }
            const auto count = static_cast<int32_t>((down.end - down.begin) * (across.end - across.begin));
            for (size_t k = 0; k < joined.size(); ++k) out[k] = static_cast<T>(max ? joined[k] : joined[k] / count);
          }
        }
      });
    });
    c.set_output(0, std::move(y));
    set_range(c, 1, range);
    return {};
  }

 private:
  const WindowAttrs attrs_;
};

Status quantized_pool_shape(ShapeContext& c) {
  set_range_shape(c);
  TROUPE_ASSIGN(const WindowAttrs attrs, WindowAttrs::parse(c.attrs()));
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 4));
  TROUPE_ASSIGN(const WindowAxis rows, attrs.axis(0, x[1], attrs.sizes[0]));
  TROUPE_ASSIGN(const WindowAxis columns, attrs.axis(1, x[2], attrs.sizes[1]));
  c.set_output(0, PartialShape{x[0], rows.out, columns.out, x[3]});
  return {};
}

// -- normalisation ----------------------------------------------------------------------------------------------------

/// Each channel of each image with mean 0 and variance 1.
class QuantizedInstanceNorm final : public ComputeKernel {
 public:
  explicit QuantizedInstanceNorm(const KernelInit& init)
      : given_(init.attr<bool>("output_range_given")), range_{init.attr<float>("given_y_min"),
                                                              init.attr<float>("given_y_max")},
        epsilon_(init.attr<float>("variance_epsilon")), least_apart_(init.attr<float>("min_separation")) {}

  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_RETURN_IF_ERROR(check_quantized_images(x));
    TROUPE_ASSIGN(const CodeRange from, rising_range_at(c, 1));
    if (given_ && !(range_.low < range_.high))
      return invalid_argument("given_y_min {} is not below given_y_max {}", range_.low, range_.high);
    const float step = (from.high - from.low) / 255.f;
    const int64_t depth = x.dim(3), places = x.dim(1) * x.dim(2);
    std::vector<float> normal(static_cast<size_t>(x.elements()));
    for (int64_t image = 0; image < x.dim(0) && !normal.empty(); ++image)
      for (int64_t k = 0; k < depth; ++k) {
        const int64_t first = image * places * depth + k;
        const uint8_t* in = x.data<uint8_t>() + first;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < places; ++i) sum += in[i * depth];
        const auto mean = static_cast<float>(sum / static_cast<double>(places));
        for (int64_t i = 0; i < places; ++i) {
          const float apart = step * (static_cast<float>(in[i * depth]) - mean);
          squares += double{apart} * apart;
        }
        const auto variance = static_cast<float>(squares / static_cast<double>(places));
        const float scale = 1 / std::sqrt(variance + epsilon_);
        for (int64_t i = 0; i < places; ++i)
          normal[static_cast<size_t>(first + i * depth)] = step * (static_cast<float>(in[i * depth]) - mean) * scale;
      }
    CodeRange to = range_;
    if (!given_ && !normal.empty()) to = {*std::ranges::min_element(normal), *std::ranges::max_element(normal)};
    if (to.high - to.low < least_apart_) to.high = to.low + least_apart_;
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kUInt8, x.shape()));
    std::ranges::transform(normal, y.mutable_data<uint8_t>(), Encoder<uint8_t>(to));
    c.set_output(0, std::move(y));
    set_range(c, 1, to);
    return {};
  }

 private:
  const bool given_;
  const CodeRange range_;
  const float epsilon_, least_apart_;
};

Status quantized_norm_shape(ShapeContext& c) {
  set_range_shape(c);
  TROUPE_ASSIGN(PartialShape x, c.with_rank(0, 4));
  c.set_output(0, std::move(x));
  return {};
}

// -- resizing ---------------------------------------------------------------------------------------------------------

/// For a place of the result the two of the input between which it lies, and how far on the way.
struct Between {
  int64_t lower, upper;
  float part;
};

std::vector<Between> betweens(int64_t in, int64_t out, bool align, bool half) {
  const float scale = align && out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                                       : static_cast<float>(in) / static_cast<float>(out);
  std::vector<Between> all;
  for (int64_t i = 0; i < out; ++i) {
    const auto place = static_cast<float>(i);
    const float at = half ? (place + 0.5f) * scale - 0.5f : place * scale, below = std::floor(at);
    const int64_t upper = std::min(static_cast<int64_t>(std::ceil(at)), in - 1);
    all.push_back({std::min(std::max<int64_t>(static_cast<int64_t>(below), 0), upper), upper, at - below});
  }
  return all;
}

/// What lies between the corners top left, top right, bottom left, bottom right; of integers by whole numbers, with 7
/// binary places for bytes and 30 for those of 32 bits.
template <class T> T mixed(const std::array<T, 4>& v, const Between& x, const Between& y) {
  if constexpr (std::is_same_v<T, float>) {
    const float top = v[0] + (v[1] - v[0]) * x.part, bottom = v[2] + (v[3] - v[2]) * x.part;
    return top + (bottom - top) * y.part;
  } else {
    constexpr int64_t kOne = int64_t{1} << (std::is_same_v<T, uint8_t> ? 7 : 30);
    const auto share = [](float part) { return static_cast<int64_t>(part * static_cast<float>(kOne)); };
    const auto row = [&](T a, T b) {
      const auto from = static_cast<int64_t>(static_cast<float>(a)), to = static_cast<int64_t>(static_cast<float>(b));
      return from * kOne + (to - from) * share(x.part);
    };
    const int64_t top = row(v[0], v[1]), bottom = row(v[2], v[3]);
    return to_integer<T>((top + (bottom - top) / kOne * share(y.part) + kOne / 2) / kOne);
  }
}

class QuantizedResize final : public ComputeKernel {
 public:
  explicit QuantizedResize(const KernelInit& init)
      : align_(init.attr<bool>("align_corners")), half_(init.attr<bool>("half_pixel_centers")) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto size, size_from(c.input(1)));
    TROUPE_ASSIGN(const Shape shape, resized(x, size.first, size.second));
    TROUPE_ASSIGN(const CodeRange range, range_at(c, 2));
    set_range(c, 1, range);
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    if (shape == x.shape() || shape.elements() == 0) {
      c.set_output(0, shape == x.shape() ? x : std::move(y));
      return {};
    }
    const auto rows = betweens(x.dim(1), shape[1], align_, half_),
               columns = betweens(x.dim(2), shape[2], align_, half_);
    const int64_t depth = shape[3], line = x.dim(2) * depth;
    with_type(x.dtype(), TypeList<uint8_t, int32_t, float>{}, [&]<class T>() {
      const auto grain = 1 + kDearGrain / std::max<int64_t>(shape[2] * depth, 1);
      parallel_for(c.threads(), shape[0] * shape[1], grain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const Between& row = rows[static_cast<size_t>(r % shape[1])];
          const T* image = x.data<T>() + r / shape[1] * x.dim(1) * line;
          const T *upper = image + row.lower * line, *lower = image + row.upper * line;
          T* out = y.mutable_data<T>() + r * shape[2] * depth;
          for (const Between& column : columns)
            for (int64_t k = 0; k < depth; ++k) {
              const int64_t left = column.lower * depth + k, right = column.upper * depth + k;
              *out++ = mixed<T>({upper[left], upper[right], lower[left], lower[right]}, column, row);
            }
        }
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool align_, half_;
};

Status quantized_resize_shape(ShapeContext& c) {
  set_range_shape(c);
  return set_resized_shape(c);
}

}  // namespace

void register_quantized_image_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](OpDef& op) { ops.add(std::move(op), not_differentiable(kQuantized)); };
  OpDef conv("QuantizedConv2D");
  add(conv.input("input: Tinput")
          .input("filter: Tfilter")
          .input("min_input: float32")
          .input("max_input: float32")
          .input("min_filter: float32")
          .input("max_filter: float32")
          .output("output: out_type")
          .output("min_output: float32")
          .output("max_output: float32")
          .attr("Tinput: {uint8}")
          .attr("Tfilter: {uint8}")
          .attr("out_type: {int32} = int32")
          .attr("strides: list(int)")
          .attr("padding: {'SAME', 'VALID'}")
          .attr("dilations: list(int) = [1, 1, 1, 1]")
          .shape(quantized_conv_shape)
          .doc("The convolution of images [batch, height, width, channels], as integers of 32 bits; a step stands for "
               "the product of the inputs' steps. Strides along height and width are equal, dilations 1."));
  kernels.add("QuantizedConv2D", DeviceKind::kCpu, {}, QuantizedConv::make);
  for (const bool max : {true, false}) {
    const char* name = max ? "QuantizedMaxPool" : "QuantizedAvgPool";
    OpDef pool(name);
    add(pool.input("input: T")
            .input("min_input: float32")
            .input("max_input: float32")
            .output("output: T")
            .output("min_output: float32")
            .output("max_output: float32")
            .attr("T: {int8, uint8}")
            .attr("ksize: list(int)")
            .attr("strides: list(int)")
            .attr("padding: {'SAME', 'VALID'}")
            .shape(quantized_pool_shape)
            .doc(std::string(max ? "The largest integer of each window"
                                 : "The mean of the integers of each window, without its fraction,") +
                 " of images [batch, height, width, channels]. The range stays."));
    kernels.add(name, DeviceKind::kCpu, {}, max ? QuantizedPool<true>::make : QuantizedPool<false>::make);
  }
  OpDef norm("QuantizedInstanceNorm");
  add(norm.input("x: T")
          .input("x_min: float32")
          .input("x_max: float32")
          .output("y: T")
          .output("y_min: float32")
          .output("y_max: float32")
          .attr("T: {uint8}")
          .attr("output_range_given: bool = false")
          .attr("given_y_min: float = 0.0")
          .attr("given_y_max: float = 0.0")
          .attr("variance_epsilon: float = 0.00001")
          .attr("min_separation: float = 0.001")
          .shape(quantized_norm_shape)
          .doc(
              "Images whose channels have mean 0 and variance 1 each. The range of the result is the one given or that "
              "of its numbers, and at least min_separation wide."));
  kernels.add<QuantizedInstanceNorm>("QuantizedInstanceNorm", DeviceKind::kCpu, {});
  OpDef resize("QuantizedResizeBilinear");
  add(resize.input("images: T")
          .input("size: int32")
          .input("min: float32")
          .input("max: float32")
          .output("resized_images: T")
          .output("out_min: float32")
          .output("out_max: float32")
          .attr("T: {uint8, int32, float32}")
          .attr("align_corners: bool = false")
          .attr("half_pixel_centers: bool = false")
          .shape(quantized_resize_shape)
          .doc("Images of another size; between pixels numbers change evenly, those of integers by steps of 1/128 for "
               "bytes and 2^-30 for 32 bits. The range stays."));
  kernels.add<QuantizedResize>("QuantizedResizeBilinear", DeviceKind::kCpu, {});
}

}  // namespace troupe
