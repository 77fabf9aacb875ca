// SPDX-License-Identifier: Apache-2.0
// Convolutions over images: Conv2D, DepthwiseConv2dNative and the two ops that are the gradients of each.
#include "devices/parallel.h"
#include "ops/nn/conv_kernel.h"
#include "ops/nn/costs.h"
#include "ops/nn/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// Constant input i, a vector of sizes, as a shape; unknown where it is no constant.
Result<PartialShape> sizes_input(ShapeContext& c, int i) {
  const std::optional<Tensor> sizes = c.constant_input(i);
  if (!sizes) return PartialShape::of_rank(4);
  TROUPE_ASSIGN(const Shape shape, shape_from_sizes(*sizes));
  return PartialShape(shape);
}

ShapeFn conv_shape(ConvDirection direction, bool depthwise) {
  return [=](ShapeContext& c) -> Status {
    TROUPE_ASSIGN(const WindowAttrs attrs, WindowAttrs::parse(c.attrs()));
    PartialShape input = c.input(0), filter = c.input(1), out;
    if (direction == ConvDirection::kInput) {
      TROUPE_ASSIGN(input, sizes_input(c, 0));
    }
    if (direction == ConvDirection::kFilter) {
      TROUPE_ASSIGN(filter, sizes_input(c, 1));
    }
    TROUPE_ASSIGN(const ConvShape s, ConvShape::resolve(attrs, input, filter, depthwise));
    out = attrs.layout.shape<PartialShape>(s.batch, s.y.out, s.x.out, s.out_channels);
    if (direction == ConvDirection::kOutput) {
      c.set_output(0, std::move(out));
      return {};
    }
    if (!out.compatible(c.input(2)))
      return invalid_argument("out_backprop {} is not the result {} of input {} and filter {}", c.input(2).str(),
                              out.str(), input.str(), filter.str());
    c.set_output(0, direction == ConvDirection::kInput ? input : filter);
    return {};
  };
}

/// The names of an op and its gradients.
struct Family {
  const char *forward, *by_input, *by_filter;
};
constexpr Family kConv = {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"};
constexpr Family kDepthwise = {"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
                               "DepthwiseConv2dNativeBackpropFilter"};

// A convolution is linear in input and in filter, so each of the three ops' gradients are the other two.
Gradient forward_gradient(Family f) {
  return gradient([f](GradientContext& c) -> Status {
    const Output x = c.input(0), w = c.input(1), g = c.dy(0);
    c.set_dx(0, c.op(f.by_input, {sizes_of(c, x), w, g}, window_attrs(c)));
    c.set_dx(1, c.op(f.by_filter, {x, sizes_of(c, w), g}, window_attrs(c)));
    return {};
  });
}
Gradient by_input_gradient(Family f) {
  return gradient([f](GradientContext& c) -> Status {
    const Output w = c.input(1), g = c.input(2), dx = c.dy(0);
    c.set_dx(1, c.op(f.by_filter, {dx, sizes_of(c, w), g}, window_attrs(c)));
    c.set_dx(2, c.op(f.forward, {dx, w}, window_attrs(c)));
    return {};
  });
}
Gradient by_filter_gradient(Family f) {
  return gradient([f](GradientContext& c) -> Status {
    const Output x = c.input(0), g = c.input(2), dw = c.dy(0);
    c.set_dx(0, c.op(f.by_input, {sizes_of(c, x), dw, g}, window_attrs(c)));
    c.set_dx(2, c.op(f.forward, {x, dw}, window_attrs(c)));
    return {};
  });
}

using ConvTypes = TypeList<float, double, float16, bfloat16, int32_t>;

OpDef with_window(OpDef op, bool depthwise) {
  op.attr(depthwise ? type_attr("T", FloatTypes{}) : type_attr("T", ConvTypes{})).attr("strides: list(int)");
  if (!depthwise) op.attr("use_cudnn_on_gpu: bool = true");
  op.attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .attr("explicit_paddings: list(int) = []")
      .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .attr("dilations: list(int) = [1, 1, 1, 1]");
  return op;
}

void add_family(OpRegistry& ops, KernelRegistry& kernels, Family f, bool depthwise) {
  const std::string what = depthwise ? "a depthwise convolution (filter [height, width, channels, multiplier])"
                                     : "a convolution (filter [height, width, channels / groups, filters])";
  ops.add(with_window(OpDef(f.forward).input("input: T").input("filter: T").output("output: T"), depthwise)
              .shape(conv_shape(ConvDirection::kOutput, depthwise))
              .cost(convolution_cost(ConvDirection::kOutput, depthwise, 2))
              .doc("The result of " + what +
                   " over images [batch, height, width, channels], or [batch, channels, height, width] with NCHW. "
                   "Channels that do not fit are errors, and a filter larger than the padded image by two strides or "
                   "more."),
          forward_gradient(f));
  ops.add(
      with_window(
          OpDef(f.by_input).input("input_sizes: int32").input("filter: T").input("out_backprop: T").output("output: T"),
          depthwise)
          .shape(conv_shape(ConvDirection::kInput, depthwise))
          .cost(convolution_cost(ConvDirection::kInput, depthwise, 2))
          .doc("The gradient of " + what + " by its input, of which input_sizes is the shape."),
      by_input_gradient(f));
  ops.add(with_window(OpDef(f.by_filter)
                          .input("input: T")
                          .input("filter_sizes: int32")
                          .input("out_backprop: T")
                          .output("output: T"),
                      depthwise)
              .shape(conv_shape(ConvDirection::kFilter, depthwise))
              .cost(convolution_cost(ConvDirection::kFilter, depthwise, 2))
              .doc("The gradient of " + what + " by its filter, of which filter_sizes is the shape."),
          by_filter_gradient(f));
  const auto add = [&](const char* op, ConvDirection direction) {
    const KernelFactory factory = [=](const KernelInit& init) { return make_conv_kernel(init, direction, depthwise); };
    std::vector<DType> types = {DType::kFloat32, DType::kFloat64};
    if (!depthwise) types.push_back(DType::kInt32);
    kernels.add(op, DeviceKind::kCpu, {{"T", types}}, factory);
    add_half_kernels(kernels, op, factory);
  };
  add(f.forward, ConvDirection::kOutput);
  add(f.by_input, ConvDirection::kInput);
  add(f.by_filter, ConvDirection::kFilter);
}

}  // namespace

void register_conv_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_family(ops, kernels, kConv, false);
  add_family(ops, kernels, kDepthwise, true);
}

}  // namespace troupe
