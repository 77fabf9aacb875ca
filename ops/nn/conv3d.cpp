// SPDX-License-Identifier: Apache-2.0
// Convolutions over volumes: Conv3D and its gradients by input and filter, on oneDNN, and for what it has no fast code
// as products of matrices: the columns of what is under the window, place by place, times the filter.
#include "devices/parallel.h"
#include "ops/nn/costs.h"
#include "ops/nn/register.h"
#include "ops/nn/volume.h"
#include "ops/parts/gemm.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/steady_tensor.h"
#include "ops/parts/through_float32.h"
#ifdef TROUPE_ONEDNN
#include "ops/parts/onednn.h"
#endif

namespace troupe {
namespace {

/// A convolution; -1: not known.
struct Conv3dShape {
  std::array<WindowAxis, 3> axes;
  int64_t batch = -1, in_channels = -1, out_channels = -1;
  int64_t groups = 1;  // of channels, each of which has filters of its own
  PartialShape out;

  /// Filters are [depth, height, width, channels of a group, filters]. Errors name both shapes.
  static Result<Conv3dShape> of(const VolumeAttrs& attrs, const PartialShape& input, const PartialShape& filter) {
    TROUPE_ASSIGN(const PartialShape in, volume_of(input, "input"));
    TROUPE_ASSIGN(const PartialShape f, volume_of(filter, "filter"));
    for (int i = 0; i < 4; ++i)
      if (f[i] == 0) return invalid_argument("filter {} has no weights", f.str());
    Conv3dShape s;
    s.batch = in[0];
    s.in_channels = in[attrs.channel()];
    s.out_channels = f[4];
    if (s.in_channels >= 0 && f[3] > 0 && s.in_channels != f[3]) {
      if (s.in_channels == 0 || s.in_channels % f[3] != 0)
        return invalid_argument("filter {} is not for the {} channels of input {}", f.str(), s.in_channels, in.str());
      s.groups = s.in_channels / f[3];
      if (f[4] >= 0 && f[4] % s.groups != 0)
        return invalid_argument("{} filters do not divide into {} groups: input {}, filter {}", f[4], s.groups,
                                in.str(), f.str());
    }
    TROUPE_ASSIGN(s.axes, attrs.axes(in, {f[0], f[1], f[2]}));
    s.out = placed(attrs, s.batch, s.axes, s.out_channels);
    return s;
  }
  /// Of one group.
  Conv3dShape group() const {
    Conv3dShape one = *this;
    one.in_channels /= groups;
    one.out_channels /= groups;
    one.groups = 1;
    return one;
  }
  int64_t window() const { return axes[0].size * axes[1].size * axes[2].size * in_channels / groups; }
  int64_t places() const { return axes[0].out * axes[1].out * axes[2].out; }
  /// Whether no window stands in the padding alone, and it and its steps are of ordinary sizes.
  bool is_ordinary() const {
    constexpr int64_t kMost = 1 << 15;
    return std::ranges::all_of(axes, [](const WindowAxis& a) {
      return a.size <= kMost && a.dilation <= kMost && a.stride <= kMost &&
             std::max(a.lo, a.hi) <= (a.size - 1) * a.dilation && (a.size - 1) * a.dilation < kMost;
    });
  }
  int64_t in_volume() const { return axes[0].in * axes[1].in * axes[2].in * in_channels; }
};

#ifdef TROUPE_ONEDNN
/// The primitive of a direction, on volumes and filters of float32 as they lie; `kept`: not 0 where the filter is the
/// same in every call, of that version. nullptr where oneDNN has no fast code. Throws dnnl::error.
std::shared_ptr<const onednn::Primitive> make_primitive(const Conv3dShape& s, ConvDirection direction, int64_t kept,
                                                        const std::shared_ptr<onednn::KeptLayouts>& layouts) {
  using dnnl::memory;
  const auto f32 = memory::data_type::f32;
  const auto each = [&](int64_t WindowAxis::*member, int64_t less = 0) {
    return memory::dims{s.axes[0].*member - less, s.axes[1].*member - less, s.axes[2].*member - less};
  };
  const auto sizes = [](int64_t a, int64_t b, const memory::dims& space) {
    return memory::dims{a, b, space[0], space[1], space[2]};
  };
  const int64_t i = s.in_channels, o = s.out_channels, h = s.axes[1].size, w = s.axes[2].size;
  const int64_t line = i / s.groups * o;  // what a place of the filter has
  const memory::desc in(sizes(s.batch, i, each(&WindowAxis::in)), f32, memory::format_tag::ndhwc);
  const memory::desc out(sizes(s.batch, o, each(&WindowAxis::out)), f32, memory::format_tag::ndhwc);
  memory::dims window = sizes(o / s.groups, i / s.groups, each(&WindowAxis::size));
  memory::dims steps{1, o, h * w * line, w * line, line};
  if (s.groups > 1) {
    window.insert(window.begin(), s.groups);
    steps.insert(steps.begin(), o / s.groups);
  }
  const memory::desc plain(window, f32, steps);
  const memory::desc filter(window, f32, memory::format_tag::any);
  const memory::dims strides = each(&WindowAxis::stride), dilates = each(&WindowAxis::dilation, 1);
  const memory::dims lo = each(&WindowAxis::lo), hi = each(&WindowAxis::hi);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto direct = dnnl::algorithm::convolution_direct;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto kind =
      direction == ConvDirection::kOutput ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
  const dnnl::convolution_forward::primitive_desc forward({kind, direct, in, filter, out, strides, dilates, lo, hi},
                                                          attr, engine);
  const auto wrap = [&](const auto& pd, const dnnl::primitive& primitive,
                        std::vector<onednn::Argument> arguments) -> std::shared_ptr<const onednn::Primitive> {
    const std::string_view name = pd.impl_info_str();
    if (name.find("ref") != std::string_view::npos || name.find("gemm") != std::string_view::npos) return nullptr;
    return std::make_shared<const onednn::Primitive>(engine, primitive, std::move(arguments), pd.scratchpad_desc(),
                                                     layouts);
  };
  if (direction == ConvDirection::kOutput)
    return wrap(forward, dnnl::convolution_forward(forward),
                {{DNNL_ARG_SRC, in, in},
                 {DNNL_ARG_WEIGHTS, plain, forward.weights_desc(), false, false, kept},
                 {DNNL_ARG_DST, out, out, true}});
  if (direction == ConvDirection::kInput) {
    const dnnl::convolution_backward_data::primitive_desc pd({direct, in, filter, out, strides, dilates, lo, hi}, attr,
                                                             engine, forward);
    return wrap(pd, dnnl::convolution_backward_data(pd),
                {{DNNL_ARG_WEIGHTS, plain, pd.weights_desc(), false, false, kept},
                 {DNNL_ARG_DIFF_DST, out, out},
                 {DNNL_ARG_DIFF_SRC, in, in, true}});
  }
  const dnnl::convolution_backward_weights::primitive_desc pd({direct, in, filter, out, strides, dilates, lo, hi}, attr,
                                                              engine, forward);
  // See ops/nn/conv_kernel.cpp.
  const auto stride = [](const WindowAxis& a) { return a.stride > 1; };
  if (i < 8 && std::ranges::any_of(s.axes, stride) && pd.impl_info_str() == std::string_view("jit_1x1:avx2"))
    return nullptr;
  return wrap(pd, dnnl::convolution_backward_weights(pd),
              {{DNNL_ARG_SRC, in, in},
               {DNNL_ARG_DIFF_DST, out, out},
               {DNNL_ARG_DIFF_WEIGHTS, plain, pd.diff_weights_desc(), true}});
}
#endif

template <class T> class Conv3D final : public ComputeKernel {
 public:
  Conv3D(const VolumeAttrs& attrs, ConvDirection direction, bool constant_filter)
      : attrs_(attrs), direction_(direction), constant_filter_(constant_filter), steady_(constant_filter) {}
  Status compute(KernelContext& c) override {
    TROUPE_RETURN_IF_ERROR(attrs_.check_layout());
    Shape in = c.input(0).shape(), filter = c.input(1).shape();
    if (direction_ == ConvDirection::kInput) {
      TROUPE_ASSIGN(in, volume_from(c.input(0), "input_sizes"));
    }
    if (direction_ == ConvDirection::kFilter) {
      TROUPE_ASSIGN(filter, volume_from(c.input(1), "filter_sizes"));
    }
    TROUPE_ASSIGN(const Conv3dShape s, Conv3dShape::of(attrs_, in, filter));
    TROUPE_ASSIGN(const Shape out, Shape::make(s.out.dims()));
    if (direction_ != ConvDirection::kOutput && c.input(2).shape() != out)
      return invalid_argument("out_backprop {} is not the result {} of input {} and filter {}",
                              c.input(2).shape().str(), out.str(), in.str(), filter.str());
    const Shape& made = direction_ == ConvDirection::kOutput ? out : direction_ == ConvDirection::kInput ? in : filter;
    const bool empty = in.elements() == 0 || filter.elements() == 0 || out.elements() == 0;
#ifdef TROUPE_ONEDNN
    if constexpr (std::is_same_v<T, float>) {
      if (!empty && s.is_ordinary()) {
        TROUPE_ASSIGN(const bool ran, run_primitive(c, s, made));
        if (ran) return {};
      }
    }
#endif
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(dtype_of<T>, made, c.device().allocator));
    if (!empty) TROUPE_RETURN_IF_ERROR(s.groups > 1 ? convolve_groups(c, s, y) : convolve(c, s, operands(c), y));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
#ifdef TROUPE_ONEDNN
  /// Sets the output. False where oneDNN has no fast code for it.
  Result<bool> run_primitive(KernelContext& c, const Conv3dShape& s, const Shape& made) {
    int64_t kept = 0;
    if (direction_ == ConvDirection::kOutput || (direction_ == ConvDirection::kInput && constant_filter_)) {
      const auto seen = steady_.see(c.input(1));
      kept = seen.version;
      if (seen.let_go) primitives_.clear();
    }
    const auto& a = s.axes;
    const auto primitive =
        primitives_.get({c.threads(), s.batch, s.in_channels, a[0].in, a[1].in, a[2].in, a[0].size, a[1].size,
                         a[2].size, s.out_channels, s.groups, kept},
                        [&](const auto& layouts) { return make_primitive(s, direction_, kept, layouts); });
    if (!primitive) return false;
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, made));
    const auto data = [&](int i) { return const_cast<void*>(c.input(i).raw()); };
    const int first = direction_ == ConvDirection::kInput ? 1 : 0;
    const int second = direction_ == ConvDirection::kOutput ? 1 : 2;
    void* const arguments[] = {data(first), data(second), y.mutable_raw()};
    TROUPE_RETURN_IF_ERROR(primitive->run(c, arguments));
    c.set_output(0, std::move(y));
    return true;
  }
#endif

  /// The inputs as tensors, without that which is only sizes.
  std::array<Tensor, 3> operands(const KernelContext& c) const {
    std::array<Tensor, 3> of;
    for (int i = 0; i < c.num_inputs(); ++i) of[static_cast<size_t>(i)] = c.input(i);
    return of;
  }

  /// Group by group, on copies of its channels and filters.
  Status convolve_groups(KernelContext& c, const Conv3dShape& s, Tensor& y) const {
    const auto sizes_at = static_cast<size_t>(direction_ == ConvDirection::kInput    ? 0
                                              : direction_ == ConvDirection::kFilter ? 1
                                                                                     : 3);
    const auto narrowed = [&](const Shape& whole) {
      std::vector<int64_t> dims(whole.dims().begin(), whole.dims().end());
      dims.back() /= s.groups;
      return Shape(dims);
    };
    for (int64_t g = 0; g < s.groups; ++g) {
      std::array<Tensor, 3> of = operands(c);
      for (size_t i = 0; i < of.size(); ++i) {
        if (!of[i].defined() || i == sizes_at) continue;
        TROUPE_ASSIGN(Tensor part, c.allocate(dtype_of<T>, narrowed(of[i].shape())));
        const int64_t width = part.shape().dims().back(), all = of[i].shape().dims().back();
        const T* from = of[i].template data<T>() + g * width;
        T* to = part.mutable_data<T>();
        for (int64_t row = 0; row < part.elements() / width; ++row)
          std::copy_n(from + row * all, width, to + row * width);
        of[i] = std::move(part);
      }
      TROUPE_ASSIGN(Tensor part, Tensor::zeros(dtype_of<T>, narrowed(y.shape()), c.device().allocator));
      TROUPE_RETURN_IF_ERROR(convolve(c, s.group(), of, part));
      const int64_t width = part.shape().dims().back(), all = y.shape().dims().back();
      const T* from = part.data<T>();
      T* to = y.mutable_data<T>() + g * width;
      for (int64_t row = 0; row < part.elements() / width; ++row)
        std::copy_n(from + row * width, width, to + row * all);
    }
    return {};
  }

  /// Volume by volume, as many places at a time as make a matrix of a reasonable size.
  Status convolve(KernelContext& c, const Conv3dShape& s, const std::array<Tensor, 3>& of, Tensor& y) const {
    const int64_t window = s.window(), places = s.places(), filters = s.out_channels;
    const int64_t most = std::clamp<int64_t>((int64_t{1} << 20) / window, 1, places);
    TROUPE_ASSIGN(Tensor columns, c.allocate(dtype_of<T>, Shape{most, window}));
    Tensor part;  // of the filter's gradient
    if (direction_ == ConvDirection::kFilter) {
      TROUPE_ASSIGN(part, c.allocate(dtype_of<T>, y.shape()));
    }
    T* cols = columns.mutable_data<T>();
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t begin = 0; begin < places; begin += most) {
        const int64_t count = std::min(most, places - begin), at = (n * places + begin) * filters;
        bool done = true;
        if (direction_ == ConvDirection::kInput) {
          done = gemm<T>(of[2].data<T>() + at, false, of[1].data<T>(), true, cols, count, window, filters);
          add_columns<T>(s.axes, s.in_channels, cols, begin, count, y.mutable_data<T>() + n * s.in_volume());
        } else {
          gather(c, s, of[0], n, begin, count, cols);
          if (direction_ == ConvDirection::kOutput) {
            done = gemm<T>(cols, false, of[1].data<T>(), false, y.mutable_data<T>() + at, count, filters, window);
          } else {
            T *to = y.mutable_data<T>(), *from = part.mutable_data<T>();
            done = gemm<T>(cols, true, of[2].data<T>() + at, false, from, window, filters, count);
            for (int64_t i = 0; i < y.elements(); ++i) to[i] += from[i];
          }
        }
        if (!done) return make_error(Code::kInternal, "the product of matrices failed");
      }
    return {};
  }
  static void gather(KernelContext& c, const Conv3dShape& s, const Tensor& x, int64_t n, int64_t begin, int64_t count,
                     T* cols) {
    const T* volume = x.data<T>() + n * s.in_volume();
    parallel_for(c.threads(), count, 1 + kCheapGrain / s.window(), [&](int64_t from, int64_t to) {
      gather_columns<T>(s.axes, s.in_channels, volume, begin + from, to - from, cols + from * s.window());
    });
  }

  const VolumeAttrs attrs_;
  const ConvDirection direction_;
  const bool constant_filter_;  // unless a step feeds it
  SteadyTensor steady_;
#ifdef TROUPE_ONEDNN
  onednn::PrimitiveCache primitives_;
#endif
};

/// Constant input i, sizes, as a shape; five unknown ones where it is no constant.
Result<PartialShape> volume_sizes_input(ShapeContext& c, int i) {
  const auto sizes = c.constant_input(i);
  if (!sizes) return PartialShape::of_rank(5);
  TROUPE_ASSIGN(const Shape shape, volume_from(*sizes, "sizes"));
  return PartialShape(shape);
}

ShapeFn conv3d_shape(ConvDirection direction) {
  return [=](ShapeContext& c) -> Status {
    TROUPE_ASSIGN(const VolumeAttrs attrs, VolumeAttrs::parse(c.attrs()));
    PartialShape input = c.input(0), filter = c.input(1);
    if (direction == ConvDirection::kInput) {
      TROUPE_ASSIGN(input, volume_sizes_input(c, 0));
    }
    if (direction == ConvDirection::kFilter) {
      TROUPE_ASSIGN(filter, volume_sizes_input(c, 1));
    }
    TROUPE_ASSIGN(const Conv3dShape s, Conv3dShape::of(attrs, input, filter));
    if (direction == ConvDirection::kOutput) {
      TROUPE_ASSIGN(PartialShape out, PartialShape::make(s.out.dims()));
      c.set_output(0, std::move(out));
      return {};
    }
    if (!s.out.compatible(c.input(2)))
      return invalid_argument("out_backprop {} is not the result {} of input {} and filter {}", c.input(2).str(),
                              s.out.str(), input.str(), filter.str());
    c.set_output(0, direction == ConvDirection::kInput ? input : filter);
    return {};
  };
}

// --- gradients: a convolution is linear in input and in filter, so each of the three ops' are the other two ---

Output forward(GradientContext& c, Output x, Output w) { return c.op("Conv3D", {x, w}, window_attrs(c)); }
Output volume_by_input(GradientContext& c, Output x, Output w, Output g) {
  return c.op("Conv3DBackpropInputV2", {sizes_of(c, x), w, g}, window_attrs(c));
}
Output volume_by_filter(GradientContext& c, Output x, Output w, Output g) {
  return c.op("Conv3DBackpropFilterV2", {x, sizes_of(c, w), g}, window_attrs(c));
}

Status conv_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  c.set_dx(0, volume_by_input(c, c.input(0), c.input(1), c.dy(0)));
  c.set_dx(1, volume_by_filter(c, c.input(0), c.input(1), c.dy(0)));
  return {};
}
Status volume_by_input_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  c.set_dx(1, volume_by_filter(c, c.dy(0), c.input(1), c.input(2)));
  c.set_dx(2, forward(c, c.dy(0), c.input(1)));
  return {};
}
Status volume_by_filter_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  c.set_dx(0, volume_by_input(c, c.input(0), c.dy(0), c.input(2)));
  c.set_dx(2, forward(c, c.input(0), c.dy(0)));
  return {};
}

OpDef with_volume_window(OpDef op) {
  return op.attr(type_attr("T", FloatTypes{}))
      .attr("strides: list(int) >= 5")
      .attr("padding: {'SAME', 'VALID'}")
      .attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
      .attr("dilations: list(int) = [1, 1, 1, 1, 1]");
}

void add_kernels(KernelRegistry& kernels, const char* op, ConvDirection direction) {
  const auto make = [=]<class T>(const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
    TROUPE_ASSIGN(const VolumeAttrs attrs, VolumeAttrs::parse(*init.attrs));
    const bool constant =
        direction != ConvDirection::kFilter && init.constants.size() > 1 && init.constants[1].defined();
    return std::unique_ptr<ComputeKernel>(new Conv3D<T>(attrs, direction, constant));
  };
  const KernelFactory floats = [make](const KernelInit& init) { return make.template operator()<float>(init); };
  const KernelFactory doubles = [make](const KernelInit& init) { return make.template operator()<double>(init); };
  kernels.add(op, DeviceKind::kCpu, {{"T", {DType::kFloat32}}}, floats);
  kernels.add(op, DeviceKind::kCpu, {{"T", {DType::kFloat64}}}, doubles);
  add_half_kernels(kernels, op, floats);
}

}  // namespace

void register_conv3d_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(with_volume_window(OpDef("Conv3D").input("input: T").input("filter: T").output("output: T"))
              .shape(conv3d_shape(ConvDirection::kOutput))
              .cost(convolution_cost(ConvDirection::kOutput, false, 3))
              .doc("The convolution of volumes [batch,depth,height,width,channels] with a filter "
                   "[depth,height,width,channels,filters]. Where the filter has fewer channels than the volume, "
                   "groups of so many have filters of their own. Channels that do not fit and, with padding VALID, a "
                   "filter larger than the volume by two strides or more are errors."),
          gradient(conv_gradient));
  ops.add(with_volume_window(OpDef("Conv3DBackpropInputV2")
                                 .input("input_sizes: Tshape")
                                 .input("filter: T")
                                 .input("out_backprop: T")
                                 .output("output: T")
                                 .attr(type_attr("Tshape", IndexTypes{}, "int32")))
              .shape(conv3d_shape(ConvDirection::kInput))
              .cost(convolution_cost(ConvDirection::kInput, false, 3))
              .doc("The gradient of Conv3D by its input, of which input_sizes is the shape."),
          gradient(volume_by_input_gradient));
  ops.add(with_volume_window(OpDef("Conv3DBackpropFilterV2")
                                 .input("input: T")
                                 .input("filter_sizes: int32")
                                 .input("out_backprop: T")
                                 .output("output: T"))
              .shape(conv3d_shape(ConvDirection::kFilter))
              .cost(convolution_cost(ConvDirection::kFilter, false, 3))
              .doc("The gradient of Conv3D by its filter, of which filter_sizes is the shape."),
          gradient(volume_by_filter_gradient));
  add_kernels(kernels, "Conv3D", ConvDirection::kOutput);
  add_kernels(kernels, "Conv3DBackpropInputV2", ConvDirection::kInput);
  add_kernels(kernels, "Conv3DBackpropFilterV2", ConvDirection::kFilter);
}

}  // namespace troupe
