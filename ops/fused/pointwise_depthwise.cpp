// SPDX-License-Identifier: Apache-2.0
// _PointwiseDepthwise: a 1x1 convolution and the depthwise one behind it, as in MobileNets and EfficientNets. What is
// between, the largest images of such networks, is never in memory: some rows of one block at a time, in the cache.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "devices/parallel.h"
#include "ops/fused/part_kernels.h"
#include "ops/fused/register.h"
#include "ops/nn/block_rows.h"
#include "ops/nn/conv_kernel.h"
#include "ops/parts/image_blocks.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// Bytes of the input that all blocks read before the next of its rows are begun: about half of the second-level cache
/// of processors with AVX-512, and of others.
constexpr int64_t kBandBytes = 768 << 10, kSmallBandBytes = 256 << 10;
/// Places of a block that are made at once, where rows are short: of small images all, which are best divided.
constexpr int64_t kPlacesAtOnce = 56, kSmallImage = 256;
constexpr int64_t kMostTaps = 16;  // rows of a filter

/// Both convolutions; `depthwise` says what the attributes of the node do.
struct Both {
  ConvShape pointwise, depthwise;
  static Result<Both> resolve(const WindowAttrs& attrs, const PartialShape& images, const PartialShape& pointwise,
                              const PartialShape& depthwise) {
    Both out;
    const WindowAttrs one{.layout = ChannelLayout(Attrs()), .padding = "VALID"};
    TROUPE_ASSIGN(out.pointwise, ConvShape::resolve(one, images, pointwise, false));
    const PartialShape between{images[0], out.pointwise.y.out, out.pointwise.x.out, out.pointwise.out_channels};
    TROUPE_ASSIGN(out.depthwise, ConvShape::resolve(attrs, between, depthwise, true));
    return out;
  }
};

/// Of the result.
template <class Sizes> Sizes made_sizes(const ConvShape& depthwise, bool blocked) {
  const ConvShape& d = depthwise;
  if (!blocked) return Sizes{d.batch, d.y.out, d.x.out, d.out_channels};
  return Sizes{d.batch, image_blocks(d.out_channels), d.y.out, d.x.out, kImageBlock};
}

Error not_pointwise(const std::string& filter, int64_t channels, int64_t middle) {
  return invalid_argument("pointwise filter {} is not [1,1,{},{}]", filter, channels, middle);
}

/// The attributes of one of the two as a node of its own, a _BlockedConv2D or a fused one.
Attrs attrs_of(const KernelInit& init, bool depthwise) {
  const auto& ops = init.attr<std::vector<std::string>>(depthwise ? "depthwise_ops" : "pointwise_ops");
  Attrs out;
  out.set("T", DType::kFloat32);
  out.set("depthwise", depthwise);
  out.set("blocked", true);
  out.set("channels", init.attr<int64_t>(depthwise ? "middle" : "channels"));
  out.set("data_format", std::string("NHWC"));
  out.set("fused_ops", ops);
  out.set("num_args", int64_t{std::ranges::find(ops, "BiasAdd") != ops.end()});
  out.set("strides", depthwise ? init.attr<std::vector<int64_t>>("strides") : std::vector<int64_t>{1, 1, 1, 1});
  out.set("padding", depthwise ? init.attr<std::string>("padding") : std::string("VALID"));
  out.set("explicit_paddings",
          depthwise ? init.attr<std::vector<int64_t>>("explicit_paddings") : std::vector<int64_t>());
  out.set("dilations", std::vector<int64_t>{1, 1, 1, 1});
  return out;
}

/// Filters and biases, a part for each block of 16 channels: [channels, 16] of the pointwise one, its bias, [places,
/// 16] of the depthwise one, its bias. What is beyond the channels is 0.
struct Part {
  int64_t channels, places;
  int64_t size() const { return (channels + 1 + places + 1) * kImageBlock; }
  int64_t bias() const { return channels * kImageBlock; }
  int64_t depthwise() const { return bias() + kImageBlock; }
  int64_t depthwise_bias() const { return depthwise() + places * kImageBlock; }
};

/// Where images have their floats, in blocks of 16 channels or not: places of a row are next to one another.
struct ImageFloats {
  int64_t image, row, place, block;
  static ImageFloats of(int64_t height, int64_t width, int64_t channels, bool blocked) {
    const int64_t places = height * width;
    if (!blocked) return {places * channels, width * channels, channels, kImageBlock};
    return {image_blocks(channels) * places * kImageBlock, width * kImageBlock, kImageBlock, places * kImageBlock};
  }
};

/// One call: the rows of results lie one behind the other, by image, band of rows, block, row.
struct PairRows {
  const ConvShape& shape;  // of the depthwise convolution
  const BlockRows &first, &second;
  const float *x, *parts;
  float* y;
  ImageFloats in, out;
  Part part;
  int64_t blocks, bands;
  /// Rows between the two that are made together, in turns within a buffer; behind them is one of zeros.
  int64_t together = made_together(shape);
  int64_t held = (together - 1) * shape.y.stride + shape.y.size;
  int64_t pitch = row_places() * kImageBlock;

  int64_t count() const { return shape.batch * blocks * shape.y.out; }
  int64_t row_places() const {
    return std::max(shape.x.in + shape.x.lo, (shape.x.out - 1) * shape.x.stride + shape.x.size);
  }

  /// Floats that run() needs for itself.
  int64_t buffer_size() const { return (held + 1) * pitch; }

  /// Rows [begin, end) of all.
  void run(int64_t begin, int64_t end, float* buffer) const {
    std::fill_n(buffer, buffer_size(), 0.0f);  // padding
    while (begin < end) {
      const int64_t of_image = shape.y.out * blocks, image = begin / of_image, at = begin % of_image;
      int64_t band = at * bands / of_image;
      while (first_row(band + 1) * blocks <= at) ++band;
      while (first_row(band) * blocks > at) --band;
      const int64_t from = first_row(band), rows = first_row(band + 1) - from;
      const int64_t block = (at - from * blocks) / rows, row = from + (at - from * blocks) % rows;
      const int64_t last = std::min(from + rows, row + end - begin);
      run_block(image, block, row, last, buffer);
      begin += last - row;
    }
  }

 private:
  static int64_t made_together(const ConvShape& s) {
    const int64_t step = s.x.in * s.y.stride;  // places that a row of results needs more
    if (s.y.in * s.x.in <= kSmallImage) return s.y.out;
    return std::clamp<int64_t>((kPlacesAtOnce + step - 1) / step, 1, s.y.out);
  }
  int64_t first_row(int64_t band) const { return shape.y.out * band / bands; }

  void run_block(int64_t image, int64_t block, int64_t begin, int64_t end, float* buffer) const {
    const WindowAxis &v = shape.y, &h = shape.x;
    const float* const from = x + image * in.image;
    float* const to = y + image * out.image + block * out.block;
    const float* const weights = parts + block * part.size();
    const float* const zeros = buffer + held * pitch;
    int64_t made = std::max<int64_t>(0, begin * v.stride - v.lo);  // rows between that are done with or in the buffer
    for (int64_t row = begin; row < end; row += together) {
      const int64_t last = std::min(end, row + together);
      const int64_t needed = std::min(v.in, (last - 1) * v.stride - v.lo + v.size);
      made = std::max(made, row * v.stride - v.lo);
      if (needed > made) {
        make_between(from + made * in.row, made, needed, weights, buffer);
        made = needed;
      }
      for (int64_t r = row; r < last; ++r) {
        const float* taps[kMostTaps];
        for (int64_t i = 0; i < v.size; ++i) {
          const int64_t between = r * v.stride - v.lo + i;
          taps[i] = between < 0 || between >= v.in ? zeros : buffer + between % held * pitch;
        }
        second.depthwise(h.out, h.stride, taps, v.size, h.size, weights + part.depthwise(),
                         weights + part.depthwise_bias(), to + r * out.row, out.place);
      }
    }
  }

  /// Rows [begin, end) between the two, of which `from` is the first of the input.
  void make_between(const float* from, int64_t begin, int64_t end, const float* weights, float* buffer) const {
    const int64_t width = shape.x.in, places = (end - begin) * width, most = first.most_places();
    const int64_t groups = (places + most - 1) / most, least = places / groups, larger = places % groups;
    float* const wrap = buffer + held * pitch;
    float* place = buffer + begin % held * pitch + shape.x.lo * kImageBlock;
    int64_t column = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t n = least + (g < larger);
      float* to[kMostPlaces];
      for (int64_t i = 0; i < n;) {
        for (const int64_t last = std::min(n, i + width - column); i < last; ++i, ++column, place += kImageBlock)
          to[i] = place;
        if (column < width) continue;
        column = 0;
        place += pitch - width * kImageBlock;
        if (place >= wrap) place -= held * pitch;
      }
      first.pointwise(n, from, in.place, in.block, part.channels, weights, weights + part.bias(), to);
      from += n * in.place;
    }
  }
};

class PointwiseDepthwise final : public ComputeKernel {
 public:
  static Result<std::unique_ptr<ComputeKernel>> make(const KernelInit& init, const EpilogueKernels& epilogues) {
    const Attrs attrs[2] = {attrs_of(init, false), attrs_of(init, true)};
    TROUPE_ASSIGN(WindowAttrs window, WindowAttrs::parse(attrs[1]));
    std::unique_ptr<PointwiseDepthwise> out(new PointwiseDepthwise(
        std::move(window), init.attr<int64_t>("channels"), init.attr<int64_t>("middle"), init.attr<bool>("blocked")));
    std::optional<BlockActivation> activations[2];
    for (int i = 0; i < 2; ++i) {
      KernelInit one = init;
      one.attrs = &attrs[i];
      TROUPE_ASSIGN(const EpilogueForm form, EpilogueForm::parse(one));
      out->biases_[i] = form.bias;
      activations[i] = BlockActivation::of(form.activation);
      one.constants.clear();
      one.constants.resize(2);
      if (init.constants.size() > 2) one.constants[1] = init.constants[static_cast<size_t>(1 + i)];
      TROUPE_ASSIGN(out->alone_[i],
                    out->blocked_ ? make_blocked_conv_kernel(one, epilogues) : make_plain(one, i == 1, epilogues));
    }
    if (init.attr<int64_t>("num_args") != out->biases_[0] + out->biases_[1])
      return invalid_argument("{} args for {} biases", init.attr<int64_t>("num_args"),
                              out->biases_[0] + out->biases_[1]);
    if (BlockRows::available(out->blocked_) && activations[0] && activations[1]) {
      out->first_.emplace(*activations[0], out->blocked_);
      out->second_.emplace(*activations[1], out->blocked_);
    }
    if (init.constants.size() > 2 && std::ranges::all_of(init.constants.begin() + 1, init.constants.end(),
                                                         [](const Tensor& t) { return t.defined(); }))
      out->constants_.assign(init.constants.begin() + 1, init.constants.end());
    return std::unique_ptr<ComputeKernel>(std::move(out));
  }

  Status compute(KernelContext& c) override {
    Shape images = c.input(0).shape();
    if (blocked_) {
      TROUPE_ASSIGN(images, unblocked_shape(images, channels_));
    }
    TROUPE_ASSIGN(const Both both, Both::resolve(attrs_, images, c.input(1).shape(), c.input(2).shape()));
    const ConvShape &p = both.pointwise, &d = both.depthwise;
    if (const Shape& filter = c.input(1).shape(); filter != Shape{1, 1, channels_, middle_})
      return not_pointwise(filter.str(), channels_, middle_);
    const bool fits = d.out_channels == p.out_channels && d.x.stride <= 2 && d.y.size <= kMostTaps &&
                      d.x.lo < d.x.size && d.y.dilation == 1 && d.x.dilation == 1 && c.input(0).elements() > 0 &&
                      (blocked_ || middle_ % kImageBlock == 0) && d.batch * d.y.out * d.x.out * d.out_channels > 0;
    for (int i = 0, at = 3; i < 2; ++i)
      if (biases_[i] && c.input(at++).shape() != Shape{p.out_channels})
        return invalid_argument("bias {} for {} channels", c.input(at - 1).shape().str(), p.out_channels);
    return first_ && fits ? together(c, both) : one_after_another(c);
  }

 private:
  PointwiseDepthwise(WindowAttrs attrs, int64_t channels, int64_t middle, bool blocked)
      : attrs_(std::move(attrs)), channels_(channels), middle_(middle), blocked_(blocked) {}

  static Result<std::unique_ptr<ComputeKernel>> make_plain(const KernelInit& init, bool depthwise,
                                                           const EpilogueKernels& epilogues) {
    TROUPE_ASSIGN(Epilogue epilogue, Epilogue::make(init, epilogues));
    return make_conv_kernel(init, ConvDirection::kOutput, depthwise, std::move(epilogue));
  }

  Status together(KernelContext& c, const Both& both) {
    const ConvShape& d = both.depthwise;
    TROUPE_ASSIGN(const Shape made, Shape::make(made_sizes<std::vector<int64_t>>(d, blocked_)));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, made));
    const Part part{both.pointwise.in_channels, d.y.size * d.x.size};
    TROUPE_ASSIGN(const Tensor parts, parts_for(c, part, d.out_channels));
    const ImageFloats in = ImageFloats::of(d.y.in, d.x.in, part.channels, blocked_);
    const int64_t row_bytes = in.image / d.y.in * int64_t{sizeof(float)};
    const int64_t rows_of_band =
        std::max<int64_t>((blocked_ ? kBandBytes : kSmallBandBytes) / row_bytes / d.y.stride, 1);
    const PairRows rows{.shape = d,
                        .first = *first_,
                        .second = *second_,
                        .x = c.input(0).data<float>(),
                        .parts = parts.data<float>(),
                        .y = y.mutable_data<float>(),
                        .in = in,
                        .out = ImageFloats::of(d.y.out, d.x.out, d.out_channels, blocked_),
                        .part = part,
                        .blocks = image_blocks(d.out_channels),
                        .bands = (d.y.out + rows_of_band - 1) / rows_of_band};
    const int64_t vectors = d.x.in * d.y.stride * part.channels + d.x.out * part.places;  // of a row, multiplied
    TROUPE_ASSIGN(Tensor buffers, c.allocate(DType::kFloat32, {c.threads(), rows.buffer_size()}));
    float* const buffer = buffers.mutable_data<float>();
    std::atomic<int64_t> taken = 0;  // of the buffers
    parallel_for(c.threads(), rows.count(), 1 + kCheapGrain / std::max<int64_t>(vectors, 1),
                 [&](int64_t begin, int64_t end) { rows.run(begin, end, buffer + taken++ * rows.buffer_size()); });
    c.set_output(0, std::move(y));
    return {};
  }

  /// Filters and biases in parts; those that are constants stay so.
  Result<Tensor> parts_for(const KernelContext& c, const Part& part, int64_t channels) {
    bool constant = !constants_.empty();
    for (size_t i = 0; i < constants_.size(); ++i)  // unless another is fed
      constant = constant && constants_[i].raw() == c.input(static_cast<int>(i) + 1).raw();
    if (!constant) return pack(c, part, channels);
    const std::lock_guard lock(mutex_);
    if (!kept_.defined()) {
      TROUPE_ASSIGN(kept_, pack(c, part, channels));
    }
    return kept_;
  }

  Result<Tensor> pack(const KernelContext& c, const Part& part, int64_t channels) const {
    const int64_t blocks = image_blocks(channels);
    TROUPE_ASSIGN(Tensor packed, c.allocate(DType::kFloat32, {blocks, part.size()}));
    float* const to = packed.mutable_data<float>();
    std::fill_n(to, packed.elements(), 0.0f);
    // `rows` of all channels, into what is `offset` in each part.
    const auto copy = [&](const float* from, int64_t rows, int64_t offset) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t b = 0; b < blocks; ++b)
          std::copy_n(from + r * channels + b * kImageBlock, std::min(kImageBlock, channels - b * kImageBlock),
                      to + b * part.size() + offset + r * kImageBlock);
    };
    copy(c.input(1).data<float>(), part.channels, 0);
    copy(c.input(2).data<float>(), part.places, part.depthwise());
    if (biases_[0]) copy(c.input(3).data<float>(), 1, part.bias());
    if (biases_[1]) copy(c.input(3 + biases_[0]).data<float>(), 1, part.depthwise_bias());
    return packed;
  }

  /// By the kernels of the two, where the loops have no code for it.
  Status one_after_another(KernelContext& c) {
    Tensor image = c.input(0);
    for (int i = 0, bias = 3; i < 2; ++i) {
      std::vector<Tensor> inputs = {std::move(image), c.input(1 + i)};
      if (biases_[i]) inputs.push_back(c.input(bias++));
      TROUPE_ASSIGN(image, run_part(*alone_[i], c, std::move(inputs), false));
    }
    c.set_output(0, std::move(image));
    return {};
  }

  const WindowAttrs attrs_;  // of the depthwise one
  const int64_t channels_, middle_;
  const bool blocked_;
  bool biases_[2] = {};
  std::vector<Tensor> constants_;  // filters and biases; none: some are not
  std::unique_ptr<ComputeKernel> alone_[2];
  std::optional<BlockRows> first_, second_;
  std::mutex mutex_;
  Tensor kept_;  // guarded by mutex_: parts of the constants
};

Status pointwise_depthwise_shape(ShapeContext& c) {
  const bool blocked = c.attr<bool>("blocked");
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, blocked ? 5 : 4));
  const int64_t channels = c.attr<int64_t>("channels"), middle = c.attr<int64_t>("middle");
  const int64_t blocks = image_blocks(channels);
  if (blocked && ((x[1] >= 0 && x[1] != blocks) || (x[4] >= 0 && x[4] != kImageBlock)))
    return invalid_argument("{} are not {} channels in blocks of {}", x.str(), channels, kImageBlock);
  TROUPE_ASSIGN(const PartialShape filter, c.with_rank(1, 4));
  const int64_t wanted[] = {1, 1, channels, middle};
  for (int i = 0; i < 4; ++i)
    if (filter[i] >= 0 && filter[i] != wanted[i]) return not_pointwise(filter.str(), channels, middle);
  TROUPE_ASSIGN(const WindowAttrs attrs, WindowAttrs::parse(c.attrs()));
  const PartialShape images = blocked ? PartialShape{x[0], x[2], x[3], channels} : x;
  TROUPE_ASSIGN(const Both both, Both::resolve(attrs, images, filter, c.input(2)));
  c.set_output(0, made_sizes<PartialShape>(both.depthwise, blocked));
  return {};
}

NodeCost pointwise_depthwise_cost(const CostContext& c) {
  const double between = c.input_elements(0) / std::max(c.input_size(1, 2), 1.0) * c.input_size(1, 3);
  const double taps = c.input_size(2, 0) * c.input_size(2, 1);
  return {2 * between * c.input_size(1, 2) + 2 * c.output_elements(0) * taps, c.all_bytes()};
}

}  // namespace

void register_pointwise_depthwise_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("_PointwiseDepthwise")
              .input("input: float32")
              .input("pointwise_filter: float32")
              .input("depthwise_filter: float32")
              .input("args: num_args * float32")
              .output("output: float32")
              .attr("blocked: bool")
              .attr("channels: int >= 1")
              .attr("middle: int >= 1")
              .attr("num_args: int >= 0")
              .attr("pointwise_ops: list(string)")
              .attr("depthwise_ops: list(string)")
              .attr("strides: list(int)")
              .attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
              .attr("explicit_paddings: list(int) = []")
              .shape(pointwise_depthwise_shape)
              .cost(pointwise_depthwise_cost)
              .doc("A _FusedConv2D of 1x1 places and stride 1, from so many channels to `middle`, and the "
                   "_FusedDepthwiseConv2dNative of its result, whose strides and padding the attributes say; with "
                   "`blocked` both on images in blocks, as _BlockedConv2D. Each may have a bias, which is in args, and "
                   "an activation behind it. A pass makes it."),
          not_differentiable("passes make it, in steps without gradients"));
  kernels.add("_PointwiseDepthwise", DeviceKind::kCpu, KernelRegistry::Types{},
              KernelFactory([epilogues = std::make_shared<const EpilogueKernels>(kernels)](
                                const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                return PointwiseDepthwise::make(init, *epilogues);
              }));
}

}  // namespace troupe
