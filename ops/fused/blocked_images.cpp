// SPDX-License-Identifier: Apache-2.0
// What inference on CPUs does with images in blocks of channels: _BlockImages, _UnblockImages, _BlockedConv2D, and the
// two halves of squeeze and excitation, _MeanOfBlockedImages and _ScaleBlockedImages.
#include "devices/parallel.h"
#include "ops/fused/register.h"
#include "ops/nn/conv_kernel.h"
#include "ops/nn/epilogue.h"
#include "ops/parts/image_blocks.h"
#include "ops/parts/instruction_sets.h"
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

/// The mean of so many places of one block.
TROUPE_SIMD_CLONES void mean_of_block(const float* x, int64_t places, float* mean) {
  float sums[kImageBlock] = {};
  for (int64_t p = 0; p < places; ++p, x += kImageBlock)
    for (int64_t k = 0; k < kImageBlock; ++k) sums[k] += x[k];
  for (int64_t k = 0; k < kImageBlock; ++k) mean[k] = sums[k] / static_cast<float>(places);
}

TROUPE_SIMD_CLONES void scale_block(const float* x, const float* scales, int64_t places, float* y) {
  for (int64_t p = 0; p < places; ++p, x += kImageBlock, y += kImageBlock)
    for (int64_t k = 0; k < kImageBlock; ++k) y[k] = x[k] * scales[k];
}

class MeanOfBlockedImages final : public ComputeKernel {
 public:
  explicit MeanOfBlockedImages(const KernelInit& init)
      : channels_(init.attr<int64_t>("channels")), keep_dims_(init.attr<bool>("keep_dims")) {}
  bool shareable() const override { return true; }
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Shape images, unblocked_shape(x.shape(), channels_));
    const Shape means = keep_dims_ ? Shape{images[0], 1, 1, channels_} : Shape{images[0], channels_};
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, means));
    const int64_t blocks = x.dim(1), places = images[1] * images[2];
    const float* from = x.data<float>();
    float* to = y.mutable_data<float>();
    parallel_for(c.threads(), images[0] * blocks, grain_of(places), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float mean[kImageBlock];
        mean_of_block(from + i * places * kImageBlock, places, mean);
        const int64_t first = i % blocks * kImageBlock;
        std::copy_n(mean, std::min(kImageBlock, channels_ - first), to + i / blocks * channels_ + first);
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }
  /// Blocks that are worth a thread.
  static int64_t grain_of(int64_t places) { return 1 + kCheapGrain / std::max<int64_t>(places * kImageBlock, 1); }

 private:
  const int64_t channels_;
  const bool keep_dims_;
};

class ScaleBlockedImages final : public ComputeKernel {
 public:
  bool shareable() const override { return true; }
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &scales = c.input(1);
    if (scales.rank() != 4) return invalid_argument("scales must have rank 4, but have {}", scales.shape().str());
    const int64_t channels = scales.dim(3);
    TROUPE_ASSIGN(const Shape images, unblocked_shape(x.shape(), channels));
    const bool each = scales.dim(0) == images[0];  // image has its own
    if (scales.dim(1) != 1 || scales.dim(2) != 1 || (!each && scales.dim(0) != 1))
      return invalid_argument("scales {} do not fit images {}", scales.shape().str(), images.str());
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, DType::kFloat32, x.shape()));
    const int64_t blocks = x.dim(1), places = images[1] * images[2];
    const float *from = x.data<float>(), *by = scales.data<float>();
    float* to = y.mutable_data<float>();
    parallel_for(c.threads(), images[0] * blocks, MeanOfBlockedImages::grain_of(places),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t first = i % blocks * kImageBlock, n = std::min(kImageBlock, channels - first);
                     float own[kImageBlock] = {};  // what is beyond the channels stays 0
                     std::copy_n(by + (each ? i / blocks * channels : 0) + first, n, own);
                     scale_block(from + i * places * kImageBlock, own, places, to + i * places * kImageBlock);
                   }
                 });
    c.set_output(0, std::move(y));
    return {};
  }
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

Status blocked_mean_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, plain_input(c));
  c.set_output(0, c.attr<bool>("keep_dims") ? PartialShape{x[0], 1, 1, x[3]} : PartialShape{x[0], x[3]});
  return {};
}

Status blocked_scale_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape x, c.with_rank(0, 5));
  TROUPE_ASSIGN(const PartialShape scales, c.with_rank(1, 4));
  if (scales[3] >= 0 && x[1] >= 0 && x[1] != image_blocks(scales[3]))
    return invalid_argument("scales {} do not fit {}", scales.str(), x.str());
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
  ops.add(OpDef("_MeanOfBlockedImages")
              .input("blocked: float32")
              .output("means: float32")
              .attr("channels: int >= 1")
              .attr("keep_dims: bool = true")
              .shape(blocked_mean_shape)
              .cost(reduction_cost)
              .doc("The Mean over height and width of the images of so many channels that _BlockImages made blocks of: "
                   "[batch, 1, 1, channels], or [batch, channels] without keep_dims. A pass makes it."),
          none);
  ops.add(OpDef("_ScaleBlockedImages")
              .input("blocked: float32")
              .input("scales: float32")
              .output("scaled: float32")
              .shape(blocked_scale_shape)
              .doc("Images that _BlockImages made blocks of, each channel times its scale. scales is [batch, 1, 1, "
                   "channels], or [1, 1, 1, channels] for all images. A pass makes it."),
          none);
  kernels.add<MeanOfBlockedImages>("_MeanOfBlockedImages", DeviceKind::kCpu, {});
  kernels.add<ScaleBlockedImages>("_ScaleBlockedImages", DeviceKind::kCpu, {});
  kernels.add<BlockImages>("_BlockImages", DeviceKind::kCpu, {});
  kernels.add<UnblockImages>("_UnblockImages", DeviceKind::kCpu, {});
  kernels.add("_BlockedConv2D", DeviceKind::kCpu, KernelRegistry::Types{},
              KernelFactory([epilogues = std::make_shared<const EpilogueKernels>(kernels)](
                                const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                return make_blocked_conv_kernel(init, *epilogues);
              }));
}

}  // namespace troupe
