// SPDX-License-Identifier: Apache-2.0
// _BlockImages, _UnblockImages and _BlockedConv2D: what inference on CPUs does with images in blocks of channels.
#include "ops/fused/register.h"
#include "ops/nn/conv_kernel.h"
#include "ops/nn/epilogue.h"
#include "ops/parts/image_blocks.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

class BlockImages final : public ComputeKernel {
 public:
  bool shareable() const override { return true; }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, block_images(c, c.input(0)));
    c.set_output(0, std::move(y));
    return {};
  }
};

class UnblockImages final : public ComputeKernel {
 public:
  explicit UnblockImages(const KernelInit& init) : channels_(init.attr<int64_t>("channels")) {}
  bool shareable() const override { return true; }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, unblock_images(c, c.input(0), channels_));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const int64_t channels_;
};

/// Input 0, which is in blocks, as [batch, height, width, channels].
Result<PartialShape> plain_input(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 5));
  const int64_t channels = c.attr<int64_t>("channels");
  const int64_t blocks = image_blocks(channels);
  if ((x[1] >= 0 && x[1] != blocks) || (x[4] >= 0 && x[4] != kImageBlock))
    return invalid_argument("{} are not {} channels in blocks of {}", x.str(), channels, kImageBlock);
  return PartialShape{x[0], x[2], x[3], channels};
}

Status block_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 4));
  c.set_output(0, PartialShape{x[0], image_blocks(x[3]), x[1], x[2], kImageBlock});
  return {};
}

Status unblock_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape x, plain_input(c));
  c.set_output(0, std::move(x));
  return {};
}

Status blocked_conv_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const WindowAttrs attrs, WindowAttrs::parse(c.attrs()));
  PartialShape input = c.input(0);
  if (c.attr<bool>("blocked")) {
    TROUPE_ASSIGN(input, plain_input(c));
  }
  TROUPE_ASSIGN(const ConvShape s, ConvShape::resolve(attrs, input, c.input(1), c.attr<bool>("depthwise")));
  c.set_output(0, PartialShape{s.batch, image_blocks(s.out_channels), s.y.out, s.x.out, kImageBlock});
  return {};
}

}  // namespace

void register_blocked_image_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto none = not_differentiable("passes make it, in steps without gradients");
  ops.add(OpDef("_BlockImages")
              .input("images: float32")
              .output("blocked: float32")
              .shape(block_shape)
              .doc("Images [batch, height, width, channels] as [batch, blocks, height, width, 16], in blocks of 16 "
                   "channels; what the last block has beyond them is 0. A pass makes it."),
          none);
  ops.add(OpDef("_UnblockImages")
              .input("blocked: float32")
              .output("images: float32")
              .attr("channels: int >= 1")
              .shape(unblock_shape)
              .doc("The images of so many channels that _BlockImages made blocks of. A pass makes it."),
          none);
  ops.add(OpDef("_BlockedConv2D")
              .input("input: float32")
              .input("filter: float32")
              .input("args: num_args * float32")
              .output("output: float32")
              .attr("depthwise: bool = false")
              .attr("blocked: bool = true")
              .attr("channels: int >= 1")
              .attr("num_args: int >= 0")
              .attr("fused_ops: list(string)")
              .attr("strides: list(int)")
              .attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
              .attr("explicit_paddings: list(int) = []")
              .attr("dilations: list(int) = [1, 1, 1, 1]")
              .shape(blocked_conv_shape)
              .cost([dense = ops.find("Conv2D")->cost_fn(), depthwise = ops.find("DepthwiseConv2dNative")->cost_fn()](
                        const CostContext& c) { return (c.attrs().at<bool>("depthwise") ? depthwise : dense)(c); })
              .doc("The result of _FusedConv2D, or with `depthwise` of _FusedDepthwiseConv2dNative, on images of so "
                   "many channels, in blocks as _BlockImages makes them. The input is in blocks too, where it is "
                   "`blocked`, and so is the image that Add takes. A pass makes it. Relu and Relu6 of a NaN may be 0."),
          none);
  kernels.add<BlockImages>("_BlockImages", DeviceKind::kCpu, {});
  kernels.add<UnblockImages>("_UnblockImages", DeviceKind::kCpu, {});
  kernels.add("_BlockedConv2D", DeviceKind::kCpu, KernelRegistry::Types{},
              KernelFactory([epilogues = std::make_shared<const EpilogueKernels>(kernels)](
                                const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                return make_blocked_conv_kernel(init, *epilogues);
              }));
}

}  // namespace troupe
