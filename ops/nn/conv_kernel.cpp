// SPDX-License-Identifier: Apache-2.0
// Convolutions on oneDNN, and by loops for what it does not do.
//
// Activations keep their layout where oneDNN has fast code for it (a pass may have them come in blocks of channels, see
// ops/parts/image_blocks.h), and filters always change to the one it likes best:
// measured on AVX-512 with batch 64, plain NHWC activations with reordered filters beat both plain filters (2 to 8
// times) and blocked activations (the reorders cost more than they gain). Larger 3x3 convolutions are done after
// Winograd instead, which pays for blocking its activations. With AVX2 alone oneDNN does not do that, and and filters
// of 3x3 go through our own (ops/nn/winograd.h); for others larger than 1x1 blocks pay.
// The choice depends on the shape alone, never on a measurement, so that runs repeat bit by bit.
#include "ops/nn/conv_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "devices/parallel.h"
#include "ops/nn/winograd.h"
#include "ops/parts/image_blocks.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/steady_tensor.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"
#ifdef TROUPE_ONEDNN
#include "ops/parts/onednn.h"
#endif

namespace troupe {
namespace {

/// Distances in elements between neighbours of an image tensor.
struct Strides {
  int64_t n, c, h, w;
  Strides(bool channels_first, int64_t c_, int64_t h_, int64_t w_)
      : n(c_ * h_ * w_), c(channels_first ? h_ * w_ : 1), h(channels_first ? w_ : w_ * c_), w(channels_first ? 1 : c_) {
  }
};

/// Filters are [height, width, in/groups, out]; the result is zero before.
template <class T>
void convolve_plain(ConvDirection direction, const ConvShape& s, bool channels_first, T* in, T* filter, T* out,
                    int threads) {
  const Strides si(channels_first, s.in_channels, s.y.in, s.x.in);
  const Strides so(channels_first, s.out_channels, s.y.out, s.x.out);
  const int64_t per_group = s.out_channels / s.groups;
  const auto add = [](T& to, T a, T b) { to = wrapping_add(to, wrapping_multiply(a, b)); };
  const auto images = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t oy = 0; oy < s.y.out; ++oy)
        for (int64_t ox = 0; ox < s.x.out; ++ox)
          for (int64_t ky = 0; ky < s.y.size; ++ky) {
            const int64_t iy = oy * s.y.stride - s.y.lo + ky * s.y.dilation;
            if (iy < 0 || iy >= s.y.in) continue;
            for (int64_t kx = 0; kx < s.x.size; ++kx) {
              const int64_t ix = ox * s.x.stride - s.x.lo + kx * s.x.dilation;
              if (ix < 0 || ix >= s.x.in) continue;
              for (int64_t ci = 0; ci < s.in_channels; ++ci) {
                const int64_t g = ci / s.group_in;
                T& x = in[n * si.n + iy * si.h + ix * si.w + ci * si.c];
                T* w = filter + ((ky * s.x.size + kx) * s.group_in + ci % s.group_in) * s.out_channels + g * per_group;
                T* y = out + n * so.n + oy * so.h + ox * so.w + g * per_group * so.c;
                if (direction == ConvDirection::kOutput) {
                  for (int64_t co = 0; co < per_group; ++co) add(y[co * so.c], x, w[co]);
                } else if (direction == ConvDirection::kInput) {
                  for (int64_t co = 0; co < per_group; ++co) add(x, y[co * so.c], w[co]);
                } else {
                  for (int64_t co = 0; co < per_group; ++co) add(w[co], x, y[co * so.c]);
                }
              }
            }
          }
  };
  // All images add to the one filter.
  parallel_for(direction == ConvDirection::kFilter ? 1 : threads, s.batch, 1, images);
}

/// How images of channels in blocks come in; they go out so too.
struct BlockedForm {
  int64_t channels;  // of the input
  bool input;        // it is in blocks; else [batch, height, width, channels]
};

#ifdef TROUPE_ONEDNN
using dnnl::memory;

/// What a primitive is made for beside the shape.
struct Setting {
  ConvDirection direction;
  bool channels_first;
  const std::optional<BlockedForm>& blocked;
  const Epilogue& epilogue;  // of the forward direction
  bool constant_filter;      // it was one when the kernel was made
  int64_t kept_filter;       // not 0: it is the same in every call, of that version
  const std::shared_ptr<onednn::KeptLayouts>& layouts;
};

/// Convolution primitives of the three directions for activations and filter of these layouts.
std::shared_ptr<const onednn::Primitive> make_primitive(const Setting& setting, const ConvShape& s,
                                                        const memory::desc plain[3], bool any_activations,
                                                        dnnl::algorithm algorithm, bool& fast) {
  const ConvDirection direction = setting.direction;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto any = [](const memory::desc& d) { return memory::desc(d.dims(), d.data_type(), memory::format_tag::any); };
  // Into blocks goes what has its channels first.
  const bool into_blocks = setting.blocked && !setting.blocked->input;
  const memory::desc first(plain[0].dims(), memory::data_type::f32, memory::format_tag::nchw);
  const memory::desc src = any_activations ? any(plain[0]) : into_blocks ? first : plain[0], filter = any(plain[1]);
  const memory::desc dst = any_activations ? any(plain[2]) : plain[2];
  const memory::dims strides = {s.y.stride, s.x.stride}, dilates = {s.y.dilation - 1, s.x.dilation - 1};
  const memory::dims lo = {s.y.lo, s.x.lo}, hi = {s.y.hi, s.x.hi};
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops after;
  if (setting.epilogue.image() >= 0) after.append_sum(1);
  onednn::append_activation(after, setting.epilogue.activation());
  attr.set_post_ops(after);
  // That of an inference takes filters that Winograd's transformation is done with.
  const auto kind = direction == ConvDirection::kOutput && setting.constant_filter ? dnnl::prop_kind::forward_inference
                                                                                   : dnnl::prop_kind::forward_training;
  const memory::desc bias({s.out_channels}, memory::data_type::f32, memory::format_tag::a);
  using Forward = dnnl::convolution_forward::desc;
  const dnnl::convolution_forward::primitive_desc forward(
      setting.epilogue.bias() ? Forward(kind, algorithm, src, filter, bias, dst, strides, dilates, lo, hi)
                              : Forward(kind, algorithm, src, filter, dst, strides, dilates, lo, hi),
      attr, engine);
  const auto wrap = [&](const auto& pd, const dnnl::primitive& primitive, const memory::desc& a, int id_a,
                        const memory::desc& b, int id_b, const memory::desc& y, int id_y, int at_a, int at_b,
                        int at_y) {
    const std::string_view name = pd.impl_info_str();
    fast = name.find("ref") == std::string_view::npos && name.find("gemm") == std::string_view::npos;
    std::vector<onednn::Argument> arguments = {
        {id_a, plain[at_a], a}, {id_b, plain[at_b], b}, {id_y, plain[at_y], y, true}};
    arguments[2].added_to = setting.epilogue.image() >= 0;
    for (onednn::Argument& argument : arguments)
      if (argument.id == DNNL_ARG_WEIGHTS) argument.kept = setting.kept_filter;
    if (setting.epilogue.bias()) arguments.push_back({DNNL_ARG_BIAS, bias, bias});
    return std::make_shared<const onednn::Primitive>(engine, primitive, std::move(arguments), pd.scratchpad_desc(),
                                                     setting.layouts);
  };
  if (direction == ConvDirection::kOutput)
    return wrap(forward, dnnl::convolution_forward(forward), forward.src_desc(), DNNL_ARG_SRC, forward.weights_desc(),
                DNNL_ARG_WEIGHTS, forward.dst_desc(), DNNL_ARG_DST, 0, 1, 2);
  if (direction == ConvDirection::kInput) {
    const dnnl::convolution_backward_data::primitive_desc pd({algorithm, src, filter, dst, strides, dilates, lo, hi},
                                                             attr, engine, forward);
    return wrap(pd, dnnl::convolution_backward_data(pd), pd.weights_desc(), DNNL_ARG_WEIGHTS, pd.diff_dst_desc(),
                DNNL_ARG_DIFF_DST, pd.diff_src_desc(), DNNL_ARG_DIFF_SRC, 1, 2, 0);
  }
  // Named, since next_impl() reads it again.
  const dnnl::convolution_backward_weights::desc desc(algorithm, src, filter, dst, strides, dilates, lo, hi);
  dnnl::convolution_backward_weights::primitive_desc pd(desc, attr, engine, forward);
  // That of oneDNN 2.6 writes behind its scratch memory where it strides over fewer than 8 channels.
  if (s.in_channels < 8 && (s.y.stride > 1 || s.x.stride > 1) &&
      pd.impl_info_str() == std::string_view("jit_1x1:avx2") && !pd.next_impl())
    throw dnnl::error(dnnl_unimplemented, "no other implementation");
  return wrap(pd, dnnl::convolution_backward_weights(pd), pd.src_desc(), DNNL_ARG_SRC, pd.diff_dst_desc(),
              DNNL_ARG_DIFF_DST, pd.diff_weights_desc(), DNNL_ARG_DIFF_WEIGHTS, 0, 2, 1);
}

/// Whether tiles of 4x4 results after Winograd F(4x4, 3x3) are faster than a direct convolution: enough channels to
/// save products, enough places to share the transformed filter, and little waste in tiles beyond the edges. A constant
/// filter is transformed but once, so a few places are enough. Measured on AVX-512 with one thread: 1.03 to 1.6 times
/// as fast as direct within this rule, with a constant filter 1.2 to 3 times, half as fast outside. Errors are below
/// 1e-5 of the largest result.
bool winograd_pays(ConvDirection direction, const ConvShape& s, bool constant_filter) {
  const auto simple = [](const WindowAxis& a) {
    return a.size == 3 && a.stride == 1 && a.dilation == 1 && a.lo <= 1 && a.hi <= 1;
  };
  const auto enough = [](int64_t channels) { return channels >= 32 && channels % 16 == 0; };
  const bool input = direction == ConvDirection::kInput;
  const int64_t h = input ? s.y.in : s.y.out, w = input ? s.x.in : s.x.out, tiled = (h + 3) / 4 * ((w + 3) / 4) * 16;
  return simple(s.y) && simple(s.x) && s.groups == 1 && enough(s.in_channels) && enough(s.out_channels) &&
         2 * tiled <= 3 * h * w &&
         (s.batch * h * w >= 2048 || (constant_filter && s.batch * h * w >= 98 &&
                                      s.batch * h * w * std::min(s.in_channels, s.out_channels) >= 12544));
}

/// Whether images are worth bringing into oneDNN's blocks of 8 channels and back. Its AVX2 code for filters larger than
/// 1x1 steps over all channels of a place where these lie together. Measured with one thread, with the reorders: 1.0 to
/// 1.8 times as fast within this rule, 0.7 to 1.1 outside.
bool blocks_pay(ConvDirection direction, const ConvShape& s) {
  const int64_t least = direction == ConvDirection::kFilter ? 32 : 64;
  const auto enough = [&](int64_t channels) { return channels >= least && channels % 8 == 0; };
  return has_avx2() && !has_avx512() && s.y.size * s.x.size > 1 && s.groups == 1 && enough(s.in_channels) &&
         enough(s.out_channels);
}

std::shared_ptr<const onednn::Primitive> make_primitive(const Setting& setting, const ConvShape& s) {
  const auto f32 = memory::data_type::f32;
  using Tag = memory::format_tag;
  const Tag tag = setting.channels_first ? Tag::nchw : Tag::nhwc;
  const Tag unblocked = s.in_channels == 1 ? Tag::nchw : tag;  // the same memory, which need not be reordered then
  const Tag in = !setting.blocked ? tag : setting.blocked->input ? Tag::nChw16c : unblocked;
  const Tag out = setting.blocked ? Tag::nChw16c : tag;
  const int64_t o = s.out_channels, i = s.group_in, per_group = o / s.groups, h = s.y.size, w = s.x.size;
  const memory::desc plain[3] = {{{s.batch, s.in_channels, s.y.in, s.x.in}, f32, in},
                                 s.groups == 1 ? memory::desc({o, i, h, w}, f32, memory::dims{1, o, w * i * o, i * o})
                                               : memory::desc({s.groups, per_group, i, h, w}, f32,
                                                              memory::dims{per_group, 1, o, w * i * o, i * o}),
                                 {{s.batch, o, s.y.out, s.x.out}, f32, out}};
  bool fast = false, fast_any = false;
  const auto direct = dnnl::algorithm::convolution_direct, winograd = dnnl::algorithm::convolution_winograd;
  if (winograd_pays(setting.direction, s, setting.constant_filter)) {
    try {
      auto primitive = make_primitive(setting, s, plain, true, winograd, fast);
      if (fast) return primitive;
    } catch (const dnnl::error&) {
      // This processor has no code for it.
    }
  }
  if (!setting.blocked && blocks_pay(setting.direction, s)) {
    auto primitive = make_primitive(setting, s, plain, true, direct, fast);
    if (fast) return primitive;
  }
  auto primitive = make_primitive(setting, s, plain, false, direct, fast);
  if (fast) return primitive;
  if (setting.blocked) return nullptr;
  auto other = make_primitive(setting, s, plain, true, direct, fast_any);
  return fast_any ? other : primitive;
}
#endif

template <class T> class CpuConvolution final : public ComputeKernel {
 public:
  CpuConvolution(WindowAttrs attrs, ConvDirection direction, bool depthwise, Epilogue epilogue, bool constant_filter,
                 std::optional<BlockedForm> blocked = {}, std::unique_ptr<Winograd> winograd = {})
      : attrs_(std::move(attrs)), direction_(direction), depthwise_(depthwise), epilogue_(std::move(epilogue)),
        constant_filter_(constant_filter), blocked_(blocked), winograd_(std::move(winograd))
#ifdef TROUPE_ONEDNN
        ,
        steady_(constant_filter)
#endif
  {
    if (blocked_)
      plain_ = std::make_unique<CpuConvolution>(attrs_, direction_, depthwise_, epilogue_, constant_filter_);
  }

  Status compute(KernelContext& c) override {
    ConvTensors all;
    if (blocked_) {
      TROUPE_ASSIGN(all, blocked_tensors(c));
    } else {
      TROUPE_ASSIGN(all, conv_tensors(c, attrs_, direction_, depthwise_));
    }
    Tensor y;
    bool finished = blocked_.has_value();
    if (!all.empty()) {
      TROUPE_ASSIGN(finished, convolve(c, all, y));
    } else {
      TROUPE_ASSIGN(y, c.allocate(dtype_of<T>, all.made));
      std::memset(y.mutable_raw(), 0, y.bytes());
    }
    if (!finished) TROUPE_RETURN_IF_ERROR(epilogue_.apply(c, y));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// Input, filter and output of a call that computes `y`.
  std::array<void*, 3> tensors(KernelContext& c, Tensor& y) const {
    const auto data = [&](int i) { return const_cast<void*>(c.input(i).raw()); };
    if (direction_ == ConvDirection::kInput) return {y.mutable_raw(), data(1), data(2)};
    if (direction_ == ConvDirection::kFilter) return {data(0), y.mutable_raw(), data(2)};
    return {data(0), data(1), y.mutable_raw()};
  }

  /// The same of images in blocks. Errors: also an epilogue that does not fit.
  Result<ConvTensors> blocked_tensors(const KernelContext& c) const {
    ConvTensors t;
    t.in = c.input(0).shape();
    if (blocked_->input) {
      TROUPE_ASSIGN(t.in, unblocked_shape(t.in, blocked_->channels));
    }
    t.filter = c.input(1).shape();
    TROUPE_ASSIGN(t.shape, ConvShape::resolve(attrs_, t.in, t.filter, depthwise_));
    const ConvShape& s = t.shape;
    const int64_t dims[] = {s.batch, image_blocks(s.out_channels), s.y.out, s.x.out, kImageBlock};
    TROUPE_ASSIGN(t.made, Shape::make(dims));
    t.out = Shape{s.batch, s.y.out, s.x.out, s.out_channels};
    if (epilogue_.bias() && c.input(2).shape() != Shape{s.out_channels})
      return invalid_argument("bias {} for {} channels", c.input(2).shape().str(), s.out_channels);
    if (const int image = epilogue_.image(); image >= 0 && c.input(image).shape() != t.made)
      return invalid_argument("cannot add {} to {}", c.input(image).shape().str(), t.made.str());
    return t;
  }

  /// Sets `y`, by images that are not in blocks.
  Status convolve_unblocked(KernelContext& c, const ConvTensors& all, Tensor& y) const {
    std::vector<Tensor> values;
    for (int i = 0; i < c.num_inputs(); ++i) values.push_back(c.input(i));
    if (blocked_->input) {
      TROUPE_ASSIGN(values[0], unblock_images(c, values[0], blocked_->channels));
    }
    if (const int image = epilogue_.image(); image >= 0) {
      TROUPE_ASSIGN(values[image], unblock_images(c, values[image], all.shape.out_channels));
    }
    const auto n = static_cast<uint32_t>(values.size());
    std::vector<uint32_t> slots(n);
    std::iota(slots.begin(), slots.end(), 0);
    const std::vector<int32_t> uses(n, 2);
    values.emplace_back();
    KernelContext plain(values.data(), uses.data(), slots.data(), static_cast<int>(n), n, 1, c.device(), c.step());
    TROUPE_RETURN_IF_ERROR(plain_->compute(plain));
    TROUPE_ASSIGN(y, block_images(c, values.back()));
    return {};
  }

  /// Sets `y`. Whether the epilogue was done too.
  Result<bool> convolve(KernelContext& c, const ConvTensors& all, Tensor& y) {
    const int image = epilogue_.image();
    const bool fits = (!epilogue_.bias() || (c.input(2).rank() == 1 && c.input(2).dim(0) == all.shape.out_channels)) &&
                      (image < 0 || c.input(image).shape() == all.made);
    if (fits && winograd_) {
      const bool back = direction_ == ConvDirection::kInput;
      const ConvShape s = back ? back_of(all.shape) : all.shape;
      if (winograd_->pays(s, c.input(1))) {
        TROUPE_ASSIGN(y, winograd_->compute(c, c.input(back ? 2 : 0), c.input(1), s, epilogue_));
        return true;
      }
    }
#ifdef TROUPE_ONEDNN
    if constexpr (std::is_same_v<T, float>) {
      if (fits && !epilogue_.empty()) {
        TROUPE_ASSIGN(const bool ran, run_primitive(c, all, epilogue_, y));
        if (ran) return true;
      }
      if (!blocked_ || epilogue_.empty()) {
        TROUPE_ASSIGN(const bool ran, run_primitive(c, all, Epilogue(), y));
        if (ran) return false;
      }
    }
#endif
    if (blocked_) {
      TROUPE_RETURN_IF_ERROR(convolve_unblocked(c, all, y));
      return true;
    }
    TROUPE_ASSIGN(y, c.allocate(dtype_of<T>, all.made));
    std::memset(y.mutable_raw(), 0, y.bytes());
    const auto t = tensors(c, y);
    convolve_plain(direction_, all.shape, attrs_.layout.channels_first, static_cast<T*>(t[0]), static_cast<T*>(t[1]),
                   static_cast<T*>(t[2]), c.threads());
    return false;
  }

#ifdef TROUPE_ONEDNN
  /// Sets `y`. False where oneDNN has no code for it.
  Result<bool> run_primitive(KernelContext& c, const ConvTensors& all, const Epilogue& epilogue, Tensor& y) {
    const ConvShape& s = all.shape;
    int64_t kept = 0;
    if (direction_ == ConvDirection::kOutput || (direction_ == ConvDirection::kInput && constant_filter_)) {
      const auto seen = steady_.see(c.input(1));
      kept = seen.version;
      if (seen.let_go) primitives_.clear();
    }
    const onednn::PrimitiveCache::Key key = {c.threads(), s.batch,  s.in_channels,   s.y.in,
                                             s.x.in,      s.y.size, s.x.size,        s.out_channels,
                                             s.group_in,  kept,     epilogue.empty()};
    const bool keeps_transformed = constant_filter_ && direction_ == ConvDirection::kOutput;
    const auto primitive = primitives_.get(key, [&](const auto& layouts) {
      return make_primitive(
          {direction_, attrs_.layout.channels_first, blocked_, epilogue, keeps_transformed, kept, layouts}, s);
    });
    if (!primitive) return false;
    TROUPE_ASSIGN(y, output(c, all.made, epilogue.image()));
    const auto t = tensors(c, y);
    const int order[3][3] = {{0, 1, 2}, {1, 2, 0}, {0, 2, 1}};
    const int* at = order[static_cast<int>(direction_)];
    void* bias = epilogue.bias() ? const_cast<void*>(c.input(2).raw()) : nullptr;
    void* const data[4] = {t[at[0]], t[at[1]], t[at[2]], bias};
    TROUPE_RETURN_IF_ERROR(primitive->run(c, std::span(data, bias ? 4 : 3)));
    return true;
  }

  /// Where to put the result: what will be added to it is in there, if there is such.
  static Result<Tensor> output(KernelContext& c, const Shape& shape, int image) {
    if (image < 0) return c.allocate(DType::kFloat32, shape);
    const Tensor& added = c.input(image);
    const bool read_too = added.shares_buffer(c.input(0)) || added.shares_buffer(c.input(1)) ||
                          (image == 3 && added.shares_buffer(c.input(2)));
    TROUPE_ASSIGN(Tensor y,
                  read_too ? c.allocate(DType::kFloat32, shape) : c.forward_or_allocate(image, DType::kFloat32, shape));
    if (y.raw() != added.raw()) std::memcpy(y.mutable_raw(), added.raw(), added.bytes());
    return y;
  }
#endif

  const WindowAttrs attrs_;
  const ConvDirection direction_;
  const bool depthwise_;
  const Epilogue epilogue_;
  const bool constant_filter_;  // unless a step feeds it
  const std::optional<BlockedForm> blocked_;
  const std::unique_ptr<Winograd> winograd_;  // or none
  std::unique_ptr<ComputeKernel> plain_;      // does without blocks where `blocked_` cannot be had
#ifdef TROUPE_ONEDNN
  SteadyTensor steady_;
  onednn::PrimitiveCache primitives_;
#endif
};

}  // namespace

Result<Shape> shape_from_sizes(const Tensor& sizes) {
  if (sizes.dtype() != DType::kInt32 || sizes.rank() != 1 || sizes.elements() != 4)
    return invalid_argument("sizes must be 4 int32 values, not {}", sizes.str());
  const int32_t* s = sizes.data<int32_t>();
  const int64_t dims[] = {s[0], s[1], s[2], s[3]};
  return Shape::make(dims);
}

Result<ConvTensors> conv_tensors(const KernelContext& c, const WindowAttrs& attrs, ConvDirection direction,
                                 bool depthwise) {
  ConvTensors t;
  t.in = c.input(0).shape();
  t.filter = c.input(1).shape();
  if (direction == ConvDirection::kInput) {
    TROUPE_ASSIGN(t.in, shape_from_sizes(c.input(0)));
  }
  if (direction == ConvDirection::kFilter) {
    TROUPE_ASSIGN(t.filter, shape_from_sizes(c.input(1)));
  }
  TROUPE_ASSIGN(t.shape, ConvShape::resolve(attrs, t.in, t.filter, depthwise));
  const ConvShape& s = t.shape;
  t.out = attrs.layout.shape<Shape>(s.batch, s.y.out, s.x.out, s.out_channels);
  if (direction != ConvDirection::kOutput && c.input(2).shape() != t.out)
    return invalid_argument("out_backprop {} is not the result {} of input {} and filter {}", c.input(2).shape().str(),
                            t.out.str(), t.in.str(), t.filter.str());
  t.made = direction == ConvDirection::kOutput ? t.out : direction == ConvDirection::kInput ? t.in : t.filter;
  TROUPE_RETURN_IF_ERROR(Shape::make(t.made.dims()));
  return t;
}

Result<std::unique_ptr<ComputeKernel>> make_conv_kernel(const KernelInit& init, ConvDirection direction, bool depthwise,
                                                        Epilogue epilogue) {
  TROUPE_ASSIGN(WindowAttrs attrs, WindowAttrs::parse(*init.attrs));
  const bool constant = direction != ConvDirection::kFilter && init.constants.size() > 1 && init.constants[1].defined();
  std::unique_ptr<ComputeKernel> kernel;
  std::unique_ptr<Winograd> winograd;
  if (direction != ConvDirection::kFilter && !depthwise && init.attr<DType>("T") == DType::kFloat32 && !has_avx512())
    winograd = Winograd::make(
        attrs, direction == ConvDirection::kOutput ? Winograd::Filter::kForward : Winograd::Filter::kBack,
        constant ? init.constants[1] : Tensor());
  with_type(init.attr<DType>("T"), TypeList<float, double, int32_t>{}, [&]<class T>() {
    kernel.reset(new CpuConvolution<T>(std::move(attrs), direction, depthwise, std::move(epilogue), constant, {},
                                       std::move(winograd)));
  });
  return kernel;
}

Result<std::unique_ptr<ComputeKernel>> make_blocked_conv_kernel(const KernelInit& init,
                                                                const EpilogueKernels& kernels) {
  TROUPE_ASSIGN(WindowAttrs attrs, WindowAttrs::parse(*init.attrs));
  Attrs of_epilogue = *init.attrs;
  of_epilogue.set("T", DType::kFloat32);
  KernelInit typed = init;
  typed.attrs = &of_epilogue;
  TROUPE_ASSIGN(Epilogue epilogue, Epilogue::make(typed, kernels, true));
  const bool constant = init.constants.size() > 1 && init.constants[1].defined();
  const BlockedForm blocked{init.attr<int64_t>("channels"), init.attr<bool>("blocked")};
  return std::unique_ptr<ComputeKernel>(new CpuConvolution<float>(
      std::move(attrs), ConvDirection::kOutput, init.attr<bool>("depthwise"), std::move(epilogue), constant, blocked));
}

}  // namespace troupe
