// SPDX-License-Identifier: Apache-2.0
// Pools over images: MaxPool, AvgPool and their gradients. NCHW images are pooled as NHWC images of one channel.
#include "ops/nn/pool.h"

#include <cstring>
#include <limits>

#include "devices/parallel.h"
#include "ops/nn/conv_kernel.h"
#include "ops/nn/costs.h"
#include "ops/nn/pool_shapes.h"
#include "ops/nn/register.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/window.h"
#include "ops/parts/wrapping.h"

namespace troupe {

Result<PoolWindow> PoolWindow::make(const KernelInit& init) {
  PoolWindow w;
  w.by_inputs_ = !init.attrs->has("ksize");
  if (w.by_inputs_) w.attrs_ = *init.attrs;
  TROUPE_ASSIGN(w.window_, WindowAttrs::parse(*init.attrs));
  return w;
}

Result<WindowAttrs> PoolWindow::of(const KernelContext& c) const {
  if (!by_inputs_) return window_;
  const int n = c.num_inputs();
  TROUPE_ASSIGN(const Attrs all, attrs(attrs_, c.input(n - 2), c.input(n - 1)));
  return WindowAttrs::parse(all);
}

Result<Attrs> PoolWindow::attrs(const Attrs& node, const Tensor& ksize, const Tensor& strides) {
  Attrs out = node;
  for (const auto& [name, t] : {std::pair("ksize", &ksize), std::pair("strides", &strides)}) {
    if (t->dtype() != DType::kInt32 || t->rank() != 1 || t->dim(0) != 4)
      return invalid_argument("{} must be 4 values, not {}", name, t->str());
    const auto values = t->values<int32_t>();
    out.set(name, std::vector<int64_t>(values.begin(), values.end()));
  }
  return out;
}

bool PoolShape::tiles() const {
  const auto exact = [](const WindowAxis& a) { return a.lo == 0 && a.stride == a.size && a.out * a.size == a.in; };
  return exact(y) && exact(x);
}

Result<PoolShape> pool_of(const PoolWindow& window, const KernelContext& c, const Shape& in) {
  TROUPE_ASSIGN(const WindowAttrs attrs, window.of(c));
  if (in.rank() != 4) return invalid_argument("input must have rank 4, but its shape is {}", in.str());
  const ChannelLayout& l = attrs.layout;
  const int64_t channels = in[l.channel()];
  PoolShape s;
  TROUPE_ASSIGN(s.y, attrs.axis(0, in[l.height()], attrs.sizes[0]));
  TROUPE_ASSIGN(s.x, attrs.axis(1, in[l.width()], attrs.sizes[1]));
  for (const WindowAxis& a : {s.y, s.x}) {
    if (a.lo >= a.size || a.hi >= a.size)
      return invalid_argument("padding of {} and {} must be smaller than the window of {}", a.lo, a.hi, a.size);
    if (a.in == 0 && a.out > 0) return invalid_argument("images {} have no places for windows of {}", in.str(), a.size);
  }
  s.images = l.channels_first ? in[0] * channels : in[0];
  s.channels = l.channels_first ? 1 : channels;
  s.out = l.shape<Shape>(in[0], s.y.out, s.x.out, channels);
  return s;
}

Result<PoolShape> max_pool_of_gradient(const PoolWindow& window, const KernelContext& c, bool image) {
  const Shape &x = c.input(0).shape(), &y = c.input(1).shape(), &g = c.input(2).shape();
  TROUPE_ASSIGN(PoolShape s, pool_of(window, c, x));
  if (y == s.out && g == (image ? x : s.out)) return s;
  if (image)
    return invalid_argument("orig_output {} and grad {} do not fit the pool {} of input {}", y.str(), g.str(),
                            s.out.str(), x.str());
  return invalid_argument("orig_output {} and grad {} are not the pool {} of input {}", y.str(), g.str(), s.out.str(),
                          x.str());
}

Result<PoolShape> average_pool_of_gradient(const PoolWindow& window, const KernelContext& c, Shape& in) {
  TROUPE_ASSIGN(in, shape_from_sizes(c.input(0)));
  TROUPE_ASSIGN(PoolShape s, pool_of(window, c, in));
  if (const Shape& g = c.input(1).shape(); g != s.out)
    return invalid_argument("grad {} is not the pool {} of input {}", g.str(), s.out.str(), in.str());
  return s;
}

namespace {

/// One row of outputs: rows of the input are joined first, whole, then places beside one another.
template <class T, bool max>
[[gnu::always_inline]] inline void pool_row_body(const PoolShape& s, const T* image, int64_t oy, T* joined, T* out) {
  const int64_t c = s.channels, wide = s.x.in * c;
  const auto join = [](T a, T b) { return max ? (b > a ? b : a) : wrapping_add(a, b); };
  // A NaN is passed over, as TensorFlow does.
  using Limits = std::numeric_limits<T>;
  constexpr T least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  const auto begun = [&](T a) { return max ? join(least, a) : a; };
  const Covered rows(s.y, oy);
  const T* line = image + rows.begin * wide;
  if (rows.end > rows.begin + 1) {
    for (int64_t i = 0; i < wide; ++i) joined[i] = join(begun(line[i]), line[i + wide]);
    for (int64_t y = rows.begin + 2; y < rows.end; ++y)
      for (int64_t i = 0; i < wide; ++i) joined[i] = join(joined[i], image[y * wide + i]);
    line = joined;
  }
  for (int64_t ox = 0; ox < s.x.out; ++ox, out += c) {
    const Covered columns(s.x, ox);
    const T* first = line + columns.begin * c;
    if (columns.end == columns.begin + 1) {
      for (int64_t i = 0; i < c; ++i) out[i] = begun(first[i]);
    } else {
      for (int64_t i = 0; i < c; ++i) out[i] = join(begun(first[i]), first[i + c]);
      for (int64_t x = columns.begin + 2; x < columns.end; ++x)
        for (int64_t i = 0; i < c; ++i) out[i] = join(out[i], line[x * c + i]);
    }
    if (!max) {
      const T count = static_cast<T>((rows.end - rows.begin) * (columns.end - columns.begin));
      for (int64_t i = 0; i < c; ++i) out[i] /= count;
    }
  }
}
template <bool max, class T> void pool_row(const PoolShape& s, const T* image, int64_t oy, T* joined, T* out) {
  pool_row_body<T, max>(s, image, oy, joined, out);
}
TROUPE_SIMD_CLONES void max_row(const PoolShape& s, const float* image, int64_t oy, float* joined, float* out) {
  pool_row_body<float, true>(s, image, oy, joined, out);
}
TROUPE_SIMD_CLONES void average_row(const PoolShape& s, const float* image, int64_t oy, float* joined, float* out) {
  pool_row_body<float, false>(s, image, oy, joined, out);
}
template <bool max> void pool_row(const PoolShape& s, const float* image, int64_t oy, float* joined, float* out) {
  max ? max_row(s, image, oy, joined, out) : average_row(s, image, oy, joined, out);
}

/// One row of max_gradient_body's windows that tile, by vectors of `lanes` channels; returns how many windows from the
/// left are done. Vectors wider than the channels spill into the next place, which is written after; windows whose
/// spill would leave the row are left.
template <class T, int lanes>
[[gnu::always_inline]] inline int64_t max_gradient_tiles(const PoolShape& s, const T* x, const T* y, const T* g,
                                                         T* dx) {
  typedef T Vector __attribute__((vector_size(lanes * sizeof(T))));
  const int64_t c = s.channels, wide = s.x.in * c, reach = std::max<int64_t>(c, lanes);
  int64_t ox = 0;
  for (; ((ox + 1) * s.x.size - 1) * c + reach <= wide && ox * c + reach <= s.x.out * c; ++ox)
    for (int64_t chunk = 0; chunk < c; chunk += lanes) {
      const int64_t i = std::min(chunk, reach - lanes);
      Vector largest, rest;
      std::memcpy(&largest, y + ox * c + i, sizeof largest);
      std::memcpy(&rest, g + ox * c + i, sizeof rest);
      for (int64_t iy = 0; iy < s.y.size; ++iy)
        for (int64_t ix = 0; ix < s.x.size; ++ix) {
          const int64_t at = iy * wide + (ox * s.x.size + ix) * c + i;
          Vector in;
          std::memcpy(&in, x + at, sizeof in);
          const auto here = in == largest;
          const Vector taken = here ? rest : Vector{};
          rest = here ? Vector{} : rest;
          std::memcpy(dx + at, &taken, sizeof taken);
        }
    }
  return ox;
}

/// The gradient goes to the first place of each window that holds the largest value. `rest` holds what of a
/// window's gradient has not found its place. With `tiles` places are written, else added to.
template <class T, bool tiles>
[[gnu::always_inline]] inline void max_gradient_body(const PoolShape& s, const T* x, const T* y, const T* g, T* dx,
                                                     T* rest) {
  const int64_t c = s.channels;
  for (int64_t oy = 0; oy < s.y.out; ++oy) {
    const Covered rows(s.y, oy);
    int64_t ox = 0;
    if constexpr (tiles && std::is_same_v<T, float>) {
      const int64_t begin = rows.begin * s.x.in * c;
      ox = c < 16 ? max_gradient_tiles<T, 8>(s, x + begin, y, g, dx + begin)
                  : max_gradient_tiles<T, 16>(s, x + begin, y, g, dx + begin);
      y += ox * c;
      g += ox * c;
    }
    for (; ox < s.x.out; ++ox, y += c, g += c) {
      const Covered columns(s.x, ox);
      for (int64_t i = 0; i < c; ++i) rest[i] = g[i];
      for (int64_t iy = rows.begin; iy < rows.end; ++iy)
        for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
          const T* in = x + (iy * s.x.in + ix) * c;
          T* out = dx + (iy * s.x.in + ix) * c;
          for (int64_t i = 0; i < c; ++i) {
            const T taken = in[i] == y[i] ? rest[i] : T(0);
            const T left = in[i] == y[i] ? T(0) : rest[i];
            out[i] = tiles ? taken : wrapping_add(out[i], taken);
            rest[i] = left;
          }
        }
    }
  }
}
template <class T> void max_gradient(const PoolShape& s, const T* x, const T* y, const T* g, T* dx, T* rest) {
  s.tiles() ? max_gradient_body<T, true>(s, x, y, g, dx, rest) : max_gradient_body<T, false>(s, x, y, g, dx, rest);
}
TROUPE_SIMD_CLONES void max_gradient(const PoolShape& s, const float* __restrict x, const float* __restrict y,
                                     const float* __restrict g, float* __restrict dx, float* __restrict rest) {
  s.tiles() ? max_gradient_body<float, true>(s, x, y, g, dx, rest)
            : max_gradient_body<float, false>(s, x, y, g, dx, rest);
}

using MaxPoolTypes = TypeList<float, double, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using AvgPoolTypes = FullFloatTypes;

/// Calls f(first image, last) on up to c.threads() threads, where images have pixels.
template <class F> void for_each_image(const KernelContext& c, const PoolShape& s, F&& f) {
  if (s.in_image() > 0 && s.out_image() > 0)
    parallel_for(c.threads(), s.images, 1 + kCheapGrain / s.in_image(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i);
    });
}

/// Rows [begin, end) of outputs of all images.
template <bool max, class T> void pool_rows(const PoolShape& s, const T* in, T* out, int64_t begin, int64_t end) {
  std::vector<T> joined(s.x.in * s.channels);
  for (int64_t r = begin; r < end; ++r)
    pool_row<max>(s, in + r / s.y.out * s.in_image(), r % s.y.out, joined.data(), out + r * s.x.out * s.channels);
}

template <bool max> class PoolKernel : public ComputeKernel {
 public:
  explicit PoolKernel(PoolWindow window) : window_(std::move(window)) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const PoolShape s, pool_of(window_, c, x.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), s.out));
    if (y.elements() > 0)
      parallel_for(c.threads(), s.images * s.y.out, 1 + kCheapGrain / (s.x.in * s.channels * s.y.size),
                   [&](int64_t begin, int64_t end) {
                     with_type(x.dtype(), std::conditional_t<max, MaxPoolTypes, AvgPoolTypes>{},
                               [&]<class T>() { pool_rows<max>(s, x.data<T>(), y.mutable_data<T>(), begin, end); });
                   });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const PoolWindow window_;
};
using MaxPool = PoolKernel<true>;
using AvgPool = PoolKernel<false>;

class MaxPoolGrad final : public ComputeKernel {
 public:
  explicit MaxPoolGrad(PoolWindow window) : window_(std::move(window)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1), &g = c.input(2);
    TROUPE_ASSIGN(const PoolShape s, max_pool_of_gradient(window_, c, false));
    TROUPE_ASSIGN(Tensor dx, c.allocate(x.dtype(), x.shape()));
    if (!s.tiles()) std::memset(dx.mutable_raw(), 0, dx.bytes());
    with_type(x.dtype(), MaxPoolTypes{}, [&]<class T>() {
      for_each_image(c, s, [&](int64_t i) {
        std::vector<T> rest(s.channels);
        max_gradient(s, x.data<T>() + i * s.in_image(), y.data<T>() + i * s.out_image(),
                     g.data<T>() + i * s.out_image(), dx.mutable_data<T>() + i * s.in_image(), rest.data());
      });
    });
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const PoolWindow window_;
};

/// Of each window the value of `grad` at the first place that holds the window's largest value.
class MaxPoolGradGrad final : public ComputeKernel {
 public:
  explicit MaxPoolGradGrad(PoolWindow window) : window_(std::move(window)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1), &g = c.input(2);
    TROUPE_ASSIGN(const PoolShape s, max_pool_of_gradient(window_, c, true));
    TROUPE_ASSIGN(Tensor out, c.allocate(x.dtype(), s.out));
    with_type(x.dtype(), MaxPoolTypes{}, [&]<class T>() {
      for_each_image(c, s, [&](int64_t i) {
        pick(s, x.data<T>() + i * s.in_image(), y.data<T>() + i * s.out_image(), g.data<T>() + i * s.in_image(),
             out.mutable_data<T>() + i * s.out_image());
      });
    });
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  template <class T> static void pick(const PoolShape& s, const T* x, const T* y, const T* g, T* out) {
    const int64_t c = s.channels;
    for (int64_t oy = 0; oy < s.y.out; ++oy)
      for (int64_t ox = 0; ox < s.x.out; ++ox, y += c, out += c) {
        const Covered rows(s.y, oy), columns(s.x, ox);
        std::fill_n(out, c, T(0));
        // Backwards, so that the first place is the last one written.
        for (int64_t iy = rows.end - 1; iy >= rows.begin; --iy)
          for (int64_t ix = columns.end - 1; ix >= columns.begin; --ix) {
            const int64_t at = (iy * s.x.in + ix) * c;
            for (int64_t i = 0; i < c; ++i) out[i] = x[at + i] == y[i] ? g[at + i] : out[i];
          }
      }
  }

  const PoolWindow window_;
};

class AvgPoolGrad final : public ComputeKernel {
 public:
  explicit AvgPoolGrad(PoolWindow window) : window_(std::move(window)) {}
  Status compute(KernelContext& c) override {
    const Tensor& g = c.input(1);
    Shape in;
    TROUPE_ASSIGN(const PoolShape s, average_pool_of_gradient(window_, c, in));
    TROUPE_ASSIGN(Tensor dx, c.allocate(g.dtype(), in));
    std::memset(dx.mutable_raw(), 0, dx.bytes());
    with_type(g.dtype(), AvgPoolTypes{}, [&]<class T>() {
      for_each_image(c, s, [&](int64_t i) {
        spread(s, g.data<T>() + i * s.out_image(), dx.mutable_data<T>() + i * s.in_image());
      });
    });
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  template <class T> static void spread(const PoolShape& s, const T* g, T* dx) {
    const int64_t c = s.channels;
    for (int64_t oy = 0; oy < s.y.out; ++oy)
      for (int64_t ox = 0; ox < s.x.out; ++ox, g += c) {
        const Covered rows(s.y, oy), columns(s.x, ox);
        const T share = T(1) / static_cast<T>((rows.end - rows.begin) * (columns.end - columns.begin));
        for (int64_t y = rows.begin; y < rows.end; ++y)
          for (int64_t x = columns.begin; x < columns.end; ++x)
            for (int64_t i = 0; i < c; ++i) dx[(y * s.x.in + x) * c + i] += g[i] * share;
      }
  }

  const PoolWindow window_;
};

/// What the pool of an input, of which sizes may be unknown, looks like.
Result<PartialShape> pooled(const Attrs& node, const PartialShape& input) {
  TROUPE_ASSIGN(const WindowAttrs attrs, WindowAttrs::parse(node));
  if (input.has_rank() && input.rank() != 4)
    return invalid_argument("input must have rank 4, but its shape is {}", input.str());
  const PartialShape in = input.has_rank() ? input : PartialShape::of_rank(4);
  TROUPE_ASSIGN(const WindowAxis y, attrs.axis(0, in[attrs.layout.height()], attrs.sizes[0]));
  TROUPE_ASSIGN(const WindowAxis x, attrs.axis(1, in[attrs.layout.width()], attrs.sizes[1]));
  return attrs.layout.shape<PartialShape>(in[0], y.out, x.out, in[attrs.layout.channel()]);
}

Status pool_shape(ShapeContext& c) { return set_pool_shape(c, pooled); }
Status max_pool_grad_shape(ShapeContext& c) { return set_pool_grad_shape(c, pooled, c.input(0), 1, 2); }
Status max_pool_grad_grad_shape(ShapeContext& c) { return set_pool_grad_grad_shape(c, pooled); }
Status avg_pool_grad_shape(ShapeContext& c) {
  PartialShape input = PartialShape::of_rank(4);
  if (const auto sizes = c.constant_input(0)) {
    TROUPE_ASSIGN(const Shape shape, shape_from_sizes(*sizes));
    input = shape;
  }
  return set_pool_grad_shape(c, pooled, input, 1, 1);
}

/// The pool of `input` by the last two inputs, where these are known; else what is known of it.
Result<PartialShape> pooled_by_inputs(ShapeContext& c, const PartialShape& input) {
  const int n = c.num_inputs();
  const auto ksize = c.constant_input(n - 2), strides = c.constant_input(n - 1);
  if (ksize && strides) {
    TROUPE_ASSIGN(const Attrs attrs, PoolWindow::attrs(c.attrs(), *ksize, *strides));
    return pooled(attrs, input);
  }
  for (int i = n - 2; i < n; ++i)
    if (!c.input(i).compatible(PartialShape{4}))
      return invalid_argument("{} must be 4 values, not {}", i == n - 2 ? "ksize" : "strides", c.input(i).str());
  if (input.has_rank() && input.rank() != 4)
    return invalid_argument("input must have rank 4, but its shape is {}", input.str());
  const PartialShape in = input.has_rank() ? input : PartialShape::of_rank(4);
  const ChannelLayout layout(c.attrs());
  return layout.shape<PartialShape>(in[0], -1, -1, in[layout.channel()]);
}

Status max_pool_v2_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape out, pooled_by_inputs(c, c.input(0)));
  c.set_output(0, std::move(out));
  return {};
}
/// `image` is the last input, and its gradient the output, of the image's shape; or the other way round.
Status max_pool_grad_v2_shape(ShapeContext& c, bool image) {
  PartialShape in = c.input(0);
  if (image) {
    TROUPE_ASSIGN(in, PartialShape::merge(in, c.input(2)));
  }
  TROUPE_ASSIGN(PartialShape out, pooled_by_inputs(c, in));
  TROUPE_ASSIGN(out, PartialShape::merge(out, c.input(1)));
  if (!image) {
    TROUPE_RETURN_IF_ERROR(PartialShape::merge(out, c.input(2)).status());
  }
  c.set_output(0, image ? std::move(out) : std::move(in));
  return {};
}

/// Padding and data_format of the node whose gradient is made.
Attrs pool_v2_attrs(GradientContext& c) {
  Attrs out;
  for (const char* name : {"padding", "data_format"})
    if (const AttrValue* v = c.node().attrs().find(name)) out.set(name, *v);
  return out;
}
Status max_pool_v2_gradient(GradientContext& c) {
  c.set_dx(0, c.op("MaxPoolGradV2", {c.input(0), c.output(0), c.dy(0), c.input(1), c.input(2)}, pool_v2_attrs(c)));
  return {};
}
/// As of the first version.
Status max_pool_grad_v2_gradient(GradientContext& c) {
  const char* other = c.node().op().name() == "MaxPoolGradV2" ? "MaxPoolGradGradV2" : "MaxPoolGradV2";
  c.set_dx(2, c.op(other, {c.input(0), c.input(1), c.dy(0), c.input(3), c.input(4)}, pool_v2_attrs(c)));
  return {};
}

Status max_pool_gradient(GradientContext& c) {
  Attrs attrs = pool_attrs(c);
  if (const AttrValue* pads = c.node().attrs().find("explicit_paddings")) attrs.set("explicit_paddings", *pads);
  c.set_dx(0, c.op("MaxPoolGrad", {c.input(0), c.output(0), c.dy(0)}, std::move(attrs)));
  return {};
}
/// Linear in grad; where the largest values are does not change with the rest.
Status max_pool_grad_gradient(GradientContext& c) {
  if (c.node().attrs().get_or<std::string>("padding", "") == "EXPLICIT")
    return make_error(Code::kUnimplemented, "MaxPoolGradGrad has no EXPLICIT padding: pad the image before the pool");
  c.set_dx(2, c.op("MaxPoolGradGrad", {c.input(0), c.input(1), c.dy(0)}, pool_attrs(c)));
  return {};
}
Status max_pool_grad_grad_gradient(GradientContext& c) {
  c.set_dx(2, c.op("MaxPoolGrad", {c.input(0), c.input(1), c.dy(0)}, pool_attrs(c)));
  return {};
}
Status avg_pool_gradient(GradientContext& c) {
  c.set_dx(0, c.op("AvgPoolGrad", {sizes_of(c, c.input(0)), c.dy(0)}, pool_attrs(c)));
  return {};
}
Status avg_pool_grad_gradient(GradientContext& c) {
  c.set_dx(1, c.op("AvgPool", {c.dy(0)}, pool_attrs(c)));
  return {};
}

OpDef with_pool(OpDef op, bool max) {
  op.attr("ksize: list(int) >= 4").attr("strides: list(int) >= 4");
  if (max) op.attr("padding: {'SAME', 'VALID', 'EXPLICIT'}").attr("explicit_paddings: list(int) = []");
  else op.attr("padding: {'SAME', 'VALID'}");
  op.attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .attr(max ? type_attr("T", NumberTypes{}, "float32") : type_attr("T", FloatTypes{}));
  return op;
}

template <class K, class Types> void add_pool_kernels(KernelRegistry& kernels, const char* op, Types) {
  const KernelFactory make = [](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
    TROUPE_ASSIGN(PoolWindow window, PoolWindow::make(init));
    return std::unique_ptr<ComputeKernel>(new K(std::move(window)));
  };
  kernels.add(op, DeviceKind::kCpu, {{"T", Types::dtypes()}}, make);
  add_half_kernels(kernels, op, make);
}

}  // namespace

void register_pool_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(with_pool(OpDef("MaxPool").input("input: T").output("output: T"), true)
              .shape(pool_shape)
              .cost(pool_cost())
              .doc("The largest value in each window of ksize places over images. A window larger than the padded "
                   "image by two strides or more is an error."),
          gradient(max_pool_gradient));
  ops.add(
      with_pool(
          OpDef("MaxPoolGrad").input("orig_input: T").input("orig_output: T").input("grad: T").output("output: T"),
          true)
          .shape(max_pool_grad_shape)
          .cost(pool_cost(2))
          .doc("The gradient of MaxPool: grad goes to the first place of each window that holds its largest value."),
      gradient(max_pool_grad_gradient));
  ops.add(OpDef("MaxPoolGradGrad")
              .input("orig_input: T")
              .input("orig_output: T")
              .input("grad: T")
              .output("output: T")
              .attr("ksize: list(int) >= 4")
              .attr("strides: list(int) >= 4")
              .attr("padding: {'SAME', 'VALID'}")
              .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
              .attr(type_attr("T", NumberTypes{}))
              .shape(max_pool_grad_grad_shape)
              .cost(pool_cost())
              .doc("The gradient of MaxPoolGrad by its grad: of each window the value of `grad`, which is of the "
                   "image's shape, at the first place that holds the window's largest value."),
          gradient(max_pool_grad_grad_gradient));
  ops.add(with_pool(OpDef("AvgPool").input("value: T").output("output: T"), false)
              .shape(pool_shape)
              .cost(pool_cost())
              .doc("The mean of the places of the image in each window of ksize places; padding does not count."),
          gradient(avg_pool_gradient));
  ops.add(with_pool(OpDef("AvgPoolGrad").input("orig_input_shape: int32").input("grad: T").output("output: T"), false)
              .shape(avg_pool_grad_shape)
              .cost(pool_cost(1))
              .doc("The gradient of AvgPool: grad shared among the places of each window."),
          gradient(avg_pool_grad_gradient));
  const auto second = [](OpDef op) {
    op.input("ksize: int32").input("strides: int32").output("output: T").attr("padding: {'SAME', 'VALID'}");
    op.attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'").attr(type_attr("T", NumberTypes{}, "float32"));
    return op;
  };
  ops.add(second(OpDef("MaxPoolV2").input("input: T"))
              .shape(max_pool_v2_shape)
              .cost(pool_cost())
              .doc("MaxPool with the window and the strides, four numbers each, as inputs."),
          gradient(max_pool_v2_gradient));
  ops.add(second(OpDef("MaxPoolGradV2").input("orig_input: T").input("orig_output: T").input("grad: T"))
              .shape([](ShapeContext& c) { return max_pool_grad_v2_shape(c, false); })
              .cost(pool_cost(2))
              .doc("MaxPoolGrad with the window and the strides, four numbers each, as inputs."),
          gradient(max_pool_grad_v2_gradient));
  ops.add(second(OpDef("MaxPoolGradGradV2").input("orig_input: T").input("orig_output: T").input("grad: T"))
              .shape([](ShapeContext& c) { return max_pool_grad_v2_shape(c, true); })
              .cost(pool_cost())
              .doc("MaxPoolGradGrad with the window and the strides, four numbers each, as inputs."),
          gradient(max_pool_grad_v2_gradient));
  add_pool_kernels<MaxPool>(kernels, "MaxPoolV2", MaxPoolTypes{});
  add_pool_kernels<MaxPoolGrad>(kernels, "MaxPoolGradV2", MaxPoolTypes{});
  add_pool_kernels<MaxPoolGradGrad>(kernels, "MaxPoolGradGradV2", MaxPoolTypes{});
  add_pool_kernels<MaxPool>(kernels, "MaxPool", MaxPoolTypes{});
  add_pool_kernels<MaxPoolGrad>(kernels, "MaxPoolGrad", MaxPoolTypes{});
  add_pool_kernels<MaxPoolGradGrad>(kernels, "MaxPoolGradGrad", MaxPoolTypes{});
  add_pool_kernels<AvgPool>(kernels, "AvgPool", AvgPoolTypes{});
  add_pool_kernels<AvgPoolGrad>(kernels, "AvgPoolGrad", AvgPoolTypes{});
}

}  // namespace troupe
