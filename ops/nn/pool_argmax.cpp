// SPDX-License-Identifier: Apache-2.0
// MaxPoolWithArgmax, which tells where the largest values are, and its gradient.
#include "devices/parallel.h"
#include "ops/nn/costs.h"
#include "ops/nn/register.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/window.h"
#include "ops/parts/wrapping.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

using RealTypes = TypeList<float, double, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t>;

struct PoolArgmaxShape {
  WindowAxis y, x;
  int64_t images = 0, channels = 0;
  Shape out;
  int64_t in_image() const { return y.in * x.in * channels; }
  int64_t out_image() const { return y.out * x.out * channels; }

  static Result<PoolArgmaxShape> of(const WindowAttrs& attrs, const Shape& in) {
    if (in.rank() != 4) return invalid_argument("input must have rank 4, but its shape is {}", in.str());
    PoolArgmaxShape s;
    TROUPE_ASSIGN(s.y, attrs.axis(0, in[1], attrs.sizes[0]));
    TROUPE_ASSIGN(s.x, attrs.axis(1, in[2], attrs.sizes[1]));
    s.images = in[0];
    s.channels = in[3];
    s.out = Shape{in[0], s.y.out, s.x.out, in[3]};
    return s;
  }
};

/// Attributes of both ops: the window, and whether places are counted through the whole batch.
struct ArgmaxAttrs {
  WindowAttrs window;
  bool whole_batch;
  static Result<ArgmaxAttrs> parse(const Attrs& attrs) {
    TROUPE_ASSIGN(WindowAttrs window, WindowAttrs::parse(attrs));
    return ArgmaxAttrs{std::move(window), attrs.get_or("include_batch_in_index", false)};
  }
};

/// The first place of the window that holds its largest value.
template <class T> int64_t largest(const PoolArgmaxShape& s, const T* image, int64_t oy, int64_t ox, int64_t k) {
  const Covered rows(s.y, oy), columns(s.x, ox);
  int64_t best = (rows.begin * s.x.in + columns.begin) * s.channels + k;
  for (int64_t y = rows.begin; y < rows.end; ++y)
    for (int64_t x = columns.begin; x < columns.end; ++x)
      if (const int64_t at = (y * s.x.in + x) * s.channels + k; image[at] > image[best]) best = at;
  return best;
}

template <class T>
void pool(int threads, const PoolArgmaxShape& s, bool whole_batch, const T* x, T* out, int64_t* argmax) {
  parallel_for(threads, s.images, 1 + kCheapGrain / s.in_image(), [&](int64_t begin, int64_t end) {
    int64_t to = begin * s.out_image();
    for (int64_t i = begin; i < end; ++i) {
      const T* image = x + i * s.in_image();
      const int64_t first = whole_batch ? i * s.in_image() : 0;
      for (int64_t oy = 0; oy < s.y.out; ++oy)
        for (int64_t ox = 0; ox < s.x.out; ++ox)
          for (int64_t k = 0; k < s.channels; ++k, ++to) {
            const int64_t at = largest(s, image, oy, ox, k);
            out[to] = image[at];
            argmax[to] = first + at;
          }
    }
  });
}

class MaxPoolWithArgmax final : public ComputeKernel {
 public:
  MaxPoolWithArgmax(ArgmaxAttrs attrs, const KernelInit& init)
      : attrs_(std::move(attrs)), index_(init.output_dtypes[1]) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const PoolArgmaxShape s, PoolArgmaxShape::of(attrs_.window, x.shape()));
    if (index_ == DType::kInt32 && (attrs_.whole_batch ? x.elements() : s.in_image()) > INT32_MAX)
      return invalid_argument("the places of input {} do not fit int32", x.shape().str());
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), s.out));
    TROUPE_ASSIGN(Tensor argmax, c.allocate(DType::kInt64, s.out));
    if (y.elements() > 0)
      with_type(x.dtype(), RealTypes{}, [&]<class T>() {
        pool(c.threads(), s, attrs_.whole_batch, x.data<T>(), y.mutable_data<T>(), argmax.mutable_data<int64_t>());
      });
    c.set_output(0, std::move(y));
    if (index_ == DType::kInt32) {
      TROUPE_ASSIGN(Tensor narrow, c.allocate(index_, s.out));
      std::ranges::transform(argmax.values<int64_t>(), narrow.mutable_data<int32_t>(),
                             [](int64_t at) { return static_cast<int32_t>(at); });
      argmax = std::move(narrow);
    }
    c.set_output(1, std::move(argmax));
    return {};
  }

 private:
  const ArgmaxAttrs attrs_;
  const DType index_;
};

class MaxPoolGradWithArgmax final : public ComputeKernel {
 public:
  MaxPoolGradWithArgmax(ArgmaxAttrs attrs, const KernelInit&) : attrs_(std::move(attrs)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &g = c.input(1), &argmax = c.input(2);
    TROUPE_ASSIGN(const PoolArgmaxShape s, PoolArgmaxShape::of(attrs_.window, x.shape()));
    if (g.shape() != s.out || argmax.shape() != s.out)
      return invalid_argument("grad {} and argmax {} are not the pool {} of input {}", g.shape().str(),
                              argmax.shape().str(), s.out.str(), x.shape().str());
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(x.dtype(), x.shape(), c.device().allocator));
    std::vector<int64_t> places;
    const bool narrow = argmax.dtype() == DType::kInt32;
    for (int64_t i = 0; i < g.elements(); ++i) {
      const int64_t image = i / s.out_image() * s.in_image(), first = attrs_.whole_batch ? image : 0;
      const int64_t at = narrow ? argmax.data<int32_t>()[i] : argmax.data<int64_t>()[i];
      if (at < first || at >= first + s.in_image())
        return invalid_argument("argmax {} at position {} is not in its image of {}", at, i, x.shape().str());
      places.push_back(image - first + at);
    }
    with_type(y.dtype(), RealTypes{}, [&]<class T>() {
      const T* from = g.data<T>();
      T* out = y.mutable_data<T>();
      for (int64_t at : places) out[at] = wrapping_add(out[at], *from++);
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const ArgmaxAttrs attrs_;
};

Result<PartialShape> argmax_pooled(ShapeContext& c) {
  TROUPE_ASSIGN(const WindowAttrs attrs, WindowAttrs::parse(c.attrs()));
  TROUPE_ASSIGN(const PartialShape in, c.with_rank(0, 4));
  TROUPE_ASSIGN(const WindowAxis y, attrs.axis(0, in[1], attrs.sizes[0]));
  TROUPE_ASSIGN(const WindowAxis x, attrs.axis(1, in[2], attrs.sizes[1]));
  return PartialShape{in[0], y.out, x.out, in[3]};
}

Status argmax_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape out, argmax_pooled(c));
  for (int i : {0, 1}) c.set_output(i, out);
  return {};
}

Status argmax_grad_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape out, argmax_pooled(c));
  for (int i : {1, 2})
    if (!out.compatible(c.input(i)))
      return invalid_argument("input {} of shape {} is not the pool {} of input {}", i, c.input(i).str(), out.str(),
                              c.input(0).str());
  c.set_output(0, c.input(0));
  return {};
}

Status argmax_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  Attrs attrs;
  for (const char* name : {"ksize", "strides", "padding", "include_batch_in_index"})
    if (const AttrValue* v = c.node().attrs().find(name)) attrs.set(name, *v);
  c.set_dx(0, c.op("MaxPoolGradWithArgmax", {c.input(0), c.dy(0), c.output(1)}, std::move(attrs)));
  return {};
}

/// By grad, what comes back from the places of argmax.
Status argmax_grad_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const auto vector = [&](int32_t n) { return c.constant(Tensor::of<int32_t>({n})); };
  const Output argmax = c.input(2), zero = c.constant(Tensor::scalar<int32_t>(0));
  if (c.node().attrs().get_or("include_batch_in_index", false)) {
    c.set_dx(1, c.op("GatherV2", {c.op("Reshape", {c.dy(0), vector(-1)}), argmax, zero}));
    return {};
  }
  const Output images = c.op("Slice", {c.op("Shape", {argmax}), vector(0), vector(1)});
  const Output flat = c.op("ConcatV2", {images, vector(-1), zero});
  const Output picked =
      c.op("GatherV2",
           {c.op("Reshape", {c.dy(0), flat}), c.op("Reshape", {argmax, flat}), c.constant(Tensor::scalar<int32_t>(1))},
           {{"batch_dims", int64_t{1}}});
  c.set_dx(1, c.op("Reshape", {picked, c.op("Shape", {argmax})}));
  return {};
}

template <class K> void add_argmax_kernels(KernelRegistry& kernels, const char* op) {
  const auto make = [](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
    TROUPE_ASSIGN(ArgmaxAttrs attrs, ArgmaxAttrs::parse(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new K(std::move(attrs), init));
  };
  kernels.add(op, DeviceKind::kCpu, {{"T", RealTypes::dtypes()}}, make);
  add_half_kernels(kernels, op, make);
}

}  // namespace

void register_pool_argmax_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto with_window = [](OpDef op) {
    return op.attr("ksize: list(int) >= 4")
        .attr("strides: list(int) >= 4")
        .attr(type_attr("Targmax", IndexTypes{}, "int64"))
        .attr("padding: {'SAME', 'VALID'}")
        .attr("include_batch_in_index: bool = false")
        .attr(type_attr("T", NumberTypes{}));
  };
  ops.add(
      with_window(OpDef("MaxPoolWithArgmax").input("input: T").output("output: T").output("argmax: Targmax"))
          .shape(argmax_shape)
          .cost(pool_cost())
          .doc("MaxPool, and where in the image, as a sequence of numbers, the largest values are; the first of equal "
               "ones. With include_batch_in_index places are counted through the whole batch."),
      gradient(argmax_gradient));
  ops.add(with_window(OpDef("MaxPoolGradWithArgmax")
                          .input("input: T")
                          .input("grad: T")
                          .input("argmax: Targmax")
                          .output("output: T"))
              .shape(argmax_grad_shape)
              .cost(reduction_cost)
              .doc("The gradient of MaxPoolWithArgmax: grad added at the places of argmax. Error for a place outside."),
          gradient(argmax_grad_gradient));
  add_argmax_kernels<MaxPoolWithArgmax>(kernels, "MaxPoolWithArgmax");
  add_argmax_kernels<MaxPoolGradWithArgmax>(kernels, "MaxPoolGradWithArgmax");
}

}  // namespace troupe
