// SPDX-License-Identifier: Apache-2.0
// What lies under windows over images: ExtractImagePatches, Dilation2D and its gradients.
#include <limits>

#include "devices/parallel.h"
#include "ops/nn/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/window.h"
#include "ops/parts/wrapping.h"

namespace troupe {
namespace {

/// The attributes of these ops by the names that WindowAttrs knows.
Result<WindowAttrs> window_from(const Attrs& attrs) {
  Attrs renamed;
  const std::pair<const char*, const char*> names[] = {
      {"ksizes", "ksize"}, {"strides", "strides"}, {"rates", "dilations"}, {"padding", "padding"}};
  for (const auto& [theirs, ours] : names)
    if (const AttrValue* v = attrs.find(theirs)) renamed.set(ours, *v);
  return WindowAttrs::parse(renamed);
}

/// Windows over images [batch, height, width, channels].
struct ImageWindows {
  WindowAxis y, x;
  int64_t batch = -1, channels = -1;

  static Result<ImageWindows> of(const WindowAttrs& attrs, const PartialShape& in, int64_t rows, int64_t columns) {
    ImageWindows w;
    TROUPE_ASSIGN(w.y, attrs.axis(0, in[1], rows));
    TROUPE_ASSIGN(w.x, attrs.axis(1, in[2], columns));
    w.batch = in[0];
    w.channels = in[3];
    return w;
  }
  int64_t in_image() const { return y.in * x.in * channels; }
  /// Calls f(row and column of the window's element, first channel in the image) for the elements of the window at
  /// row oy, column ox that are inside.
  template <class F> void each(int64_t oy, int64_t ox, F&& f) const {
    for (int64_t ky = 0; ky < y.size; ++ky) {
      const int64_t row = oy * y.stride - y.lo + ky * y.dilation;
      if (row < 0 || row >= y.in) continue;
      for (int64_t kx = 0; kx < x.size; ++kx) {
        const int64_t column = ox * x.stride - x.lo + kx * x.dilation;
        if (column >= 0 && column < x.in) f(ky * x.size + kx, (row * x.in + column) * channels);
      }
    }
  }
};

// --- ExtractImagePatches ---

/// Numbers of a patch; -1 where `channels` is. Error: more than an int64 counts.
Result<int64_t> patch_depth(const WindowAttrs& attrs, int64_t channels) {
  const int64_t window = attrs.sizes[0] * attrs.sizes[1];  // no more than 2^60
  if (channels > INT64_MAX / window) return invalid_argument("patches of {} places and {} channels", window, channels);
  return channels < 0 ? -1 : window * channels;
}

class Patches final : public ComputeKernel {
 public:
  explicit Patches(WindowAttrs attrs) : attrs_(std::move(attrs)) {}
  Status compute(KernelContext& c) override {
    const Tensor& in = c.input(0);
    if (in.rank() != 4) return invalid_argument("images must have rank 4, but their shape is {}", in.shape().str());
    TROUPE_ASSIGN(const ImageWindows w, ImageWindows::of(attrs_, in.shape(), attrs_.sizes[0], attrs_.sizes[1]));
    TROUPE_ASSIGN(const int64_t depth, patch_depth(attrs_, w.channels));
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::array{w.batch, w.y.out, w.x.out, depth}));
    TROUPE_ASSIGN(Tensor out, Tensor::zeros(in.dtype(), shape, c.device().allocator));
    const int64_t places = out.elements() == 0 ? 0 : w.batch * w.y.out * w.x.out;
    with_storage(in.dtype(), [&]<class S>() {
      const S* from = static_cast<const S*>(in.raw());
      S* to = static_cast<S*>(out.mutable_raw());
      parallel_for(c.threads(), places, 1 + kCheapGrain / std::max<int64_t>(depth, 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const S* image = from + i / (w.y.out * w.x.out) * w.in_image();
          w.each(i / w.x.out % w.y.out, i % w.x.out, [&](int64_t element, int64_t at) {
            std::copy_n(image + at, w.channels, to + i * depth + element * w.channels);
          });
        }
      });
    });
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  const WindowAttrs attrs_;
};

Status patches_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape in, c.with_rank(0, 4));
  TROUPE_ASSIGN(const WindowAttrs attrs, window_from(c.attrs()));
  TROUPE_ASSIGN(const ImageWindows w, ImageWindows::of(attrs, in, attrs.sizes[0], attrs.sizes[1]));
  TROUPE_ASSIGN(const int64_t depth, patch_depth(attrs, w.channels));
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(std::array{w.batch, w.y.out, w.x.out, depth}));
  c.set_output(0, std::move(out));
  return {};
}

/// Patches are a depthwise convolution whose filters each pick one element of the window, but for the order of the
/// result; the gradient is that of such a convolution.
Status patches_gradient(GradientContext& c) {
  const Output x = c.input(0), g = c.dy(0);
  if (!g) return {};
  if (is_complex(x.dtype())) return make_error(Code::kUnimplemented, "complex images have no gradient");
  if (!x.shape().has_rank() || x.shape()[3] < 0)
    return invalid_argument("the gradient needs a known number of channels");
  TROUPE_ASSIGN(const WindowAttrs attrs, window_from(c.node().attrs()));
  const int64_t rows = attrs.sizes[0], columns = attrs.sizes[1], window = rows * columns, channels = x.shape()[3];
  constexpr int64_t kMost = 1024;
  if (window > kMost) return make_error(Code::kUnimplemented, "there is no gradient of windows of {} places", window);
  TROUPE_ASSIGN(Tensor picks, Tensor::zeros(DType::kFloat32, Shape{rows, columns, 1, window}));
  for (int64_t i = 0; i < window; ++i) picks.mutable_data<float>()[i * window + i] = 1;
  const auto ints = [&](std::initializer_list<int64_t> v) { return int_vector(c, std::span(v.begin(), v.size())); };
  const Output one = c.op("Cast", {c.constant(picks)}, {{"DstT", x.dtype()}});
  const Output filter = c.op("Tile", {one, ints({1, 1, channels, 1})});
  const Output sizes = c.op("StridedSlice", {c.op("Shape", {g}), ints({0}), ints({3}), ints({1})});
  const auto with = [&](std::initializer_list<int64_t> rest) {
    return c.op("ConcatV2", {sizes, ints(rest), c.constant(Tensor::scalar<int32_t>(0))});
  };
  const Output split = c.op("Reshape", {g, with({window, channels})});
  const Output ordered =
      c.op("Reshape", {c.op("Transpose", {split, ints({0, 1, 2, 4, 3})}), with({channels * window})});
  Attrs conv = {{"padding", attrs.padding}};
  conv.set("strides", std::vector<int64_t>{1, attrs.strides[0], attrs.strides[1], 1});
  conv.set("dilations", std::vector<int64_t>{1, attrs.dilations[0], attrs.dilations[1], 1});
  c.set_dx(0, c.op("DepthwiseConv2dNativeBackpropInput", {sizes_of(c, x), filter, ordered}, std::move(conv)));
  return {};
}

// --- Dilation2D ---

enum class DilationPart { kOutput, kInput, kFilter };

/// The largest sum of image and filter under each window of images [begin, end), or where it is, each channel on its
/// own. Where no sum is above the least number, it is said to be at the window's first pixel and the filter's first
/// place, as TensorFlow has it.
template <class T>
void dilate(const ImageWindows& w, DilationPart part, const T* in, const T* filter, const T* g, T* to, int64_t begin,
            int64_t end) {
  std::vector<T> best(static_cast<size_t>(w.channels));
  std::vector<int64_t> at(best.size()), element(best.size());
  for (int64_t i = begin * w.y.out * w.x.out; i < end * w.y.out * w.x.out; ++i) {
    const int64_t image = i / (w.y.out * w.x.out) * w.in_image();
    std::ranges::fill(best, std::numeric_limits<T>::lowest());
    std::ranges::fill(element, -1);
    w.each(i / w.x.out % w.y.out, i % w.x.out, [&](int64_t k, int64_t first) {
      for (int64_t d = 0; d < w.channels; ++d) {
        const T sum = wrapping_add(in[image + first + d], filter[k * w.channels + d]);
        if (element[d] < 0) at[d] = image + first + d, element[d] = d;
        if (!(sum > best[d])) continue;
        best[d] = sum;
        at[d] = image + first + d;
        element[d] = k * w.channels + d;
      }
    });
    for (int64_t d = 0; d < w.channels; ++d) {
      if (part == DilationPart::kOutput) {
        to[i * w.channels + d] = best[d];
      } else if (element[d] >= 0) {
        T& sum = to[part == DilationPart::kInput ? at[d] : element[d]];
        sum = wrapping_add(sum, g[i * w.channels + d]);
      }
    }
  }
}

using DilationTypes = TypeList<float, double, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t>;

class Dilation final : public ComputeKernel {
 public:
  Dilation(WindowAttrs attrs, DilationPart part) : attrs_(std::move(attrs)), part_(part) {}
  Status compute(KernelContext& c) override {
    const Tensor &in = c.input(0), &filter = c.input(1);
    if (in.rank() != 4 || filter.rank() != 3 || in.dim(3) != filter.dim(2))
      return invalid_argument("input {} and filter {} do not fit", in.shape().str(), filter.shape().str());
    if (filter.elements() == 0) return invalid_argument("filter {} has no weights", filter.shape().str());
    TROUPE_ASSIGN(const ImageWindows w, ImageWindows::of(attrs_, in.shape(), filter.dim(0), filter.dim(1)));
    const Shape shape{w.batch, w.y.out, w.x.out, w.channels};
    if (part_ != DilationPart::kOutput && c.input(2).shape() != shape)
      return invalid_argument("out_backprop {} is not the result {} of input {} and filter {}",
                              c.input(2).shape().str(), shape.str(), in.shape().str(), filter.shape().str());
    const Shape& made = part_ == DilationPart::kOutput  ? shape
                        : part_ == DilationPart::kInput ? in.shape()
                                                        : filter.shape();
    TROUPE_ASSIGN(Tensor out, Tensor::zeros(in.dtype(), made, c.device().allocator));
    const int64_t images = shape.elements() == 0 ? 0 : w.batch;
    // All images add to the one filter.
    parallel_for(part_ == DilationPart::kFilter ? 1 : c.threads(), images, 1, [&](int64_t begin, int64_t end) {
      with_type(in.dtype(), DilationTypes{}, [&]<class T>() {
        const T* g = part_ == DilationPart::kOutput ? nullptr : c.input(2).data<T>();
        dilate(w, part_, in.data<T>(), filter.data<T>(), g, out.mutable_data<T>(), begin, end);
      });
    });
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  const WindowAttrs attrs_;
  const DilationPart part_;
};

ShapeFn dilation_shape(DilationPart part) {
  return [part](ShapeContext& c) -> Status {
    TROUPE_ASSIGN(const PartialShape in, c.with_rank(0, 4));
    TROUPE_ASSIGN(const PartialShape filter, c.with_rank(1, 3));
    TROUPE_ASSIGN(const WindowAttrs attrs, window_from(c.attrs()));
    if (in[3] >= 0 && filter[2] >= 0 && in[3] != filter[2])
      return invalid_argument("input {} and filter {} do not fit", in.str(), filter.str());
    for (int i = 0; i < 3; ++i)
      if (filter[i] == 0) return invalid_argument("filter {} has no weights", filter.str());
    TROUPE_ASSIGN(const ImageWindows w, ImageWindows::of(attrs, in, filter[0], filter[1]));
    const PartialShape out{w.batch, w.y.out, w.x.out, std::max(in[3], filter[2])};
    if (part != DilationPart::kOutput && !out.compatible(c.input(2)))
      return invalid_argument("out_backprop {} is not the result {} of input {} and filter {}", c.input(2).str(),
                              out.str(), in.str(), filter.str());
    c.set_output(0, part == DilationPart::kOutput ? out : part == DilationPart::kInput ? in : filter);
    return {};
  };
}

Status dilation_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  for (const int i : {0, 1}) {
    Attrs attrs;
    for (const char* name : {"strides", "rates", "padding"})
      if (const AttrValue* v = c.node().attrs().find(name)) attrs.set(name, *v);
    const char* op = i == 0 ? "Dilation2DBackpropInput" : "Dilation2DBackpropFilter";
    c.set_dx(i, c.op(op, {c.input(0), c.input(1), c.dy(0)}, std::move(attrs)));
  }
  return {};
}

using PatchTypes = TypeList<float, double, int32_t, uint8_t, int16_t, int8_t, int64_t, bfloat16, uint16_t, float16,
                            uint32_t, uint64_t, complex64, complex128, bool>;
void add_dilation(KernelRegistry& kernels, const char* op, DilationPart part) {
  const auto make = [part](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
    TROUPE_ASSIGN(WindowAttrs attrs, window_from(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new Dilation(std::move(attrs), part));
  };
  kernels.add(op, DeviceKind::kCpu, {{"T", DilationTypes::dtypes()}}, make);
  add_half_kernels(kernels, op, make);
}

}  // namespace

void register_patches_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("ExtractImagePatches")
              .input("images: T")
              .output("patches: T")
              .attr("ksizes: list(int) >= 4")
              .attr("strides: list(int) >= 4")
              .attr("rates: list(int) >= 4")
              .attr(type_attr("T", PatchTypes{}))
              .attr("padding: {'SAME', 'VALID'}")
              .shape(patches_shape)
              .doc("What lies under each window of ksizes places, `rates` apart, over images "
                   "[batch,height,width,channels], with zeros beyond the edges: [batch,rows,columns,ksizes*channels]."),
          gradient(patches_gradient));
  kernels.add("ExtractImagePatches", DeviceKind::kCpu, {},
              [](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(WindowAttrs attrs, window_from(*init.attrs));
                return std::unique_ptr<ComputeKernel>(new Patches(std::move(attrs)));
              });
  const auto add = [&](const char* name, DilationPart part, const char* output, const Gradient& gradient,
                       const char* doc) {
    OpDef op(name);
    op.input("input: T").input("filter: T");
    if (part != DilationPart::kOutput) op.input("out_backprop: T");
    ops.add(op.output(std::string(output) + ": T")
                .attr(type_attr("T", NumberTypes{}))
                .attr("strides: list(int) >= 4")
                .attr("rates: list(int) >= 4")
                .attr("padding: {'SAME', 'VALID'}")
                .shape(dilation_shape(part))
                .doc(doc),
            gradient);
    add_dilation(kernels, name, part);
  };
  const Gradient none = undefined_gradient();
  add("Dilation2D", DilationPart::kOutput, "output", gradient(dilation_gradient),
      "The largest sum of an image [batch,height,width,channels] and a filter [height,width,channels] under each "
      "window, each channel on its own.");
  add("Dilation2DBackpropInput", DilationPart::kInput, "in_backprop", none, "The gradient of Dilation2D by its input.");
  add("Dilation2DBackpropFilter", DilationPart::kFilter, "filter_backprop", none,
      "The gradient of Dilation2D by its filter.");
}

}  // namespace troupe
