// SPDX-License-Identifier: Apache-2.0
// Pools over volumes: MaxPool3D, AvgPool3D and their gradients.
#include "devices/parallel.h"
#include "ops/nn/costs.h"
#include "ops/nn/pool_shapes.h"
#include "ops/nn/register.h"
#include "ops/nn/volume.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

struct Pool3dShape {
  std::array<WindowAxis, 3> axes;
  int64_t volumes = 0, channels = 0, in_volume = 0, out_volume = 0;
  Shape out;

  static Result<Pool3dShape> of(const VolumeAttrs& attrs, const Shape& in) {
    TROUPE_RETURN_IF_ERROR(attrs.check_layout());
    TROUPE_RETURN_IF_ERROR(volume_of(in, "input").status());
    Pool3dShape s;
    TROUPE_ASSIGN(s.axes, attrs.axes(in, attrs.sizes));
    s.volumes = in[0];
    s.channels = in[4];
    s.out = placed(attrs, in[0], s.axes, s.channels).shape();
    s.in_volume = in[1] * in[2] * in[3] * in[4];
    s.out_volume = s.out[1] * s.out[2] * s.out[3] * s.out[4];
    return s;
  }
  /// Calls f(first channel of the place in the result, of one in the input under its window, number of such) for all
  /// places of one volume, window by window.
  template <class F> void each(F&& f) const {
    int64_t to = 0;
    for (int64_t d = 0; d < axes[0].out; ++d)
      for (int64_t h = 0; h < axes[1].out; ++h)
        for (int64_t w = 0; w < axes[2].out; ++w, to += channels) {
          const Covered ds(axes[0], d), hs(axes[1], h), ws(axes[2], w);
          const int64_t count = (ds.end - ds.begin) * (hs.end - hs.begin) * (ws.end - ws.begin);
          for (int64_t i = ds.begin; i < ds.end; ++i)
            for (int64_t j = hs.begin; j < hs.end; ++j)
              for (int64_t k = ws.begin; k < ws.end; ++k)
                f(to, ((i * axes[1].in + j) * axes[2].in + k) * channels, count);
        }
  }
  /// Calls f(volume) on up to `threads` threads; nowhere where there is nothing.
  template <class F> void each_volume(int threads, F&& f) const {
    if (in_volume == 0 || out_volume == 0) return;
    parallel_for(threads, volumes, 1 + kCheapGrain / in_volume, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i);
    });
  }
};

template <class T, bool max> class Pool3D : public ComputeKernel {
 public:
  explicit Pool3D(VolumeAttrs attrs) : attrs_(attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const Pool3dShape s, Pool3dShape::of(attrs_, x.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), s.out));
    T* to = y.mutable_data<T>();
    std::fill_n(to, y.elements(), max ? -std::numeric_limits<T>::infinity() : T(0));
    s.each_volume(c.threads(), [&](int64_t i) {
      const T* in = x.data<T>() + i * s.in_volume;
      T* out = to + i * s.out_volume;
      s.each([&](int64_t place, int64_t from, int64_t count) {
        const T share = T(1) / static_cast<T>(count);
        for (int64_t k = 0; k < s.channels; ++k) {
          if (!max) out[place + k] += in[from + k] * share;
          else if (in[from + k] > out[place + k]) out[place + k] = in[from + k];
        }
      });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const VolumeAttrs attrs_;
};
template <class T> class MaxPool3D final : public Pool3D<T, true> { using Pool3D<T, true>::Pool3D; };
template <class T> class AvgPool3D final : public Pool3D<T, false> { using Pool3D<T, false>::Pool3D; };

/// The gradient of MaxPool3D goes to all places of each window that hold its largest value, as it does in TensorFlow,
/// and MaxPool3DGradGrad takes the value from the first one.
template <class T, bool back> class MaxGrad : public ComputeKernel {
 public:
  explicit MaxGrad(VolumeAttrs attrs) : attrs_(attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1), &g = c.input(2);
    TROUPE_ASSIGN(const Pool3dShape s, Pool3dShape::of(attrs_, x.shape()));
    if (y.shape() != s.out || g.shape() != (back ? s.out : x.shape()))
      return invalid_argument("orig_output {} and grad {} do not fit the pool {} of input {}", y.shape().str(),
                              g.shape().str(), s.out.str(), x.shape().str());
    TROUPE_ASSIGN(Tensor d, Tensor::zeros(x.dtype(), back ? x.shape() : s.out, c.device().allocator));
    T* to = d.mutable_data<T>();
    s.each_volume(c.threads(), [&](int64_t i) {
      const T *in = x.data<T>() + i * s.in_volume, *most = y.data<T>() + i * s.out_volume;
      const T* grads = g.data<T>() + i * (back ? s.out_volume : s.in_volume);
      T* out = to + i * (back ? s.in_volume : s.out_volume);
      std::vector<bool> taken(static_cast<size_t>(s.out_volume));
      s.each([&](int64_t place, int64_t from, int64_t) {
        for (int64_t k = 0; k < s.channels; ++k) {
          if (in[from + k] != most[place + k]) continue;
          if (back) out[from + k] += grads[place + k];
          else if (!taken[place + k]) out[place + k] = grads[from + k];
          taken[place + k] = true;
        }
      });
    });
    c.set_output(0, std::move(d));
    return {};
  }

 private:
  const VolumeAttrs attrs_;
};
template <class T> class MaxPool3DGrad final : public MaxGrad<T, true> { using MaxGrad<T, true>::MaxGrad; };
template <class T> class MaxPool3DGradGrad final : public MaxGrad<T, false> { using MaxGrad<T, false>::MaxGrad; };

template <class T> class AvgPool3DGrad final : public ComputeKernel {
 public:
  explicit AvgPool3DGrad(VolumeAttrs attrs) : attrs_(attrs) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape in, volume_from(c.input(0), "orig_input_shape"));
    const Tensor& g = c.input(1);
    TROUPE_ASSIGN(const Pool3dShape s, Pool3dShape::of(attrs_, in));
    if (g.shape() != s.out)
      return invalid_argument("grad {} is not the pool {} of input {}", g.shape().str(), s.out.str(), in.str());
    TROUPE_ASSIGN(Tensor d, Tensor::zeros(g.dtype(), in, c.device().allocator));
    T* to = d.mutable_data<T>();
    s.each_volume(c.threads(), [&](int64_t i) {
      const T* grads = g.data<T>() + i * s.out_volume;
      T* out = to + i * s.in_volume;
      s.each([&](int64_t place, int64_t from, int64_t count) {
        const T share = T(1) / static_cast<T>(count);
        for (int64_t k = 0; k < s.channels; ++k) out[from + k] += grads[place + k] * share;
      });
    });
    c.set_output(0, std::move(d));
    return {};
  }

 private:
  const VolumeAttrs attrs_;
};

// --- shapes and gradients ---

Result<PartialShape> pooled_volume(const Attrs& node, const PartialShape& input) {
  TROUPE_ASSIGN(const VolumeAttrs attrs, VolumeAttrs::parse(node));
  TROUPE_ASSIGN(const PartialShape in, volume_of(input, "input"));
  TROUPE_ASSIGN(const auto axes, attrs.axes(in, attrs.sizes));
  return placed(attrs, in[0], axes, in[attrs.channel()]);
}

Status pool3d_shape(ShapeContext& c) { return set_pool_shape(c, pooled_volume); }
Status max_pool3d_grad_shape(ShapeContext& c) { return set_pool_grad_shape(c, pooled_volume, c.input(0), 1, 2); }
Status max_pool3d_grad_grad_shape(ShapeContext& c) { return set_pool_grad_grad_shape(c, pooled_volume); }
Status avg_pool3d_grad_shape(ShapeContext& c) {
  PartialShape input = PartialShape::of_rank(5);
  if (const auto sizes = c.constant_input(0)) {
    TROUPE_ASSIGN(const Shape shape, volume_from(*sizes, "orig_input_shape"));
    input = shape;
  }
  return set_pool_grad_shape(c, pooled_volume, input, 1, 1);
}

Status max_pool3d_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op("MaxPool3DGrad", {c.input(0), c.output(0), c.dy(0)}, pool_attrs(c)));
  return {};
}
/// Linear in grad; where the largest values are does not change with the rest.
Status max_pool3d_grad_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(2, c.op("MaxPool3DGradGrad", {c.input(0), c.input(1), c.dy(0)}, pool_attrs(c)));
  return {};
}
Status max_pool3d_grad_grad_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(2, c.op("MaxPool3DGrad", {c.input(0), c.input(1), c.dy(0)}, pool_attrs(c)));
  return {};
}
Status avg_pool3d_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.op("AvgPool3DGrad", {sizes_of(c, c.input(0)), c.dy(0)}, pool_attrs(c)));
  return {};
}
Status avg_pool3d_grad_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(1, c.op("AvgPool3D", {c.dy(0)}, pool_attrs(c)));
  return {};
}

OpDef with_pool3d(OpDef op, const char* type = "") {
  return op.attr("ksize: list(int) >= 5")
      .attr("strides: list(int) >= 5")
      .attr("padding: {'SAME', 'VALID'}")
      .attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
      .attr(type_attr("T", FloatTypes{}, type));
}

/// `others` are type attributes that are as T is.
template <template <class> class K>
void add_pool3d_kernels(KernelRegistry& kernels, const char* op, std::initializer_list<const char*> others = {}) {
  const auto types = [&](std::vector<DType> all) {
    KernelRegistry::Types out = {{"T", all}};
    for (const char* name : others) out[name] = all;
    return out;
  };
  const auto make = []<class T>(const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
    TROUPE_ASSIGN(const VolumeAttrs attrs, VolumeAttrs::parse(*init.attrs));
    return std::unique_ptr<ComputeKernel>(new K<T>(attrs));
  };
  const KernelFactory floats = [make](const KernelInit& init) { return make.template operator()<float>(init); };
  const KernelFactory doubles = [make](const KernelInit& init) { return make.template operator()<double>(init); };
  kernels.add(op, DeviceKind::kCpu, types({DType::kFloat32}), floats);
  kernels.add(op, DeviceKind::kCpu, types({DType::kFloat64}), doubles);
  add_half_kernels(kernels, op, floats, types({DType::kFloat16, DType::kBFloat16}));
}

}  // namespace

void register_pool3d_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(with_pool3d(OpDef("MaxPool3D").input("input: T").output("output: T"))
              .shape(pool3d_shape)
              .cost(pool_cost())
              .doc("The largest value in each window of ksize places over volumes [batch,depth,height,width,channels]. "
                   "A window larger than the volume by two strides or more is an error with padding VALID."),
          gradient(max_pool3d_gradient));
  ops.add(with_pool3d(OpDef("MaxPool3DGrad")
                          .input("orig_input: TInput")
                          .input("orig_output: TInput")
                          .input("grad: T")
                          .output("output: T"),
                      "float32")
              .attr(type_attr("TInput", FloatTypes{}, "float32"))
              .shape(max_pool3d_grad_shape)
              .cost(pool_cost(2))
              .doc("The gradient of MaxPool3D: grad goes to all places of each window that hold its largest value."),
          gradient(max_pool3d_grad_gradient));
  ops.add(
      with_pool3d(OpDef("MaxPool3DGradGrad")
                      .input("orig_input: T")
                      .input("orig_output: T")
                      .input("grad: T")
                      .output("output: T"))
          .shape(max_pool3d_grad_grad_shape)
          .cost(pool_cost())
          .doc(
              "The gradient of MaxPool3DGrad by its grad: of each window the value of `grad`, which is of the volume's "
              "shape, at the first place that holds the window's largest value."),
      gradient(max_pool3d_grad_grad_gradient));
  ops.add(with_pool3d(OpDef("AvgPool3D").input("input: T").output("output: T"))
              .shape(pool3d_shape)
              .cost(pool_cost())
              .doc("The mean of the places of the volume in each window of ksize places; padding does not count."),
          gradient(avg_pool3d_gradient));
  ops.add(with_pool3d(OpDef("AvgPool3DGrad").input("orig_input_shape: int32").input("grad: T").output("output: T"))
              .shape(avg_pool3d_grad_shape)
              .cost(pool_cost(1))
              .doc("The gradient of AvgPool3D: grad shared among the places of each window."),
          gradient(avg_pool3d_grad_gradient));
  add_pool3d_kernels<MaxPool3D>(kernels, "MaxPool3D");
  add_pool3d_kernels<MaxPool3DGrad>(kernels, "MaxPool3DGrad", {"TInput"});
  add_pool3d_kernels<MaxPool3DGradGrad>(kernels, "MaxPool3DGradGrad");
  add_pool3d_kernels<AvgPool3D>(kernels, "AvgPool3D");
  add_pool3d_kernels<AvgPool3DGrad>(kernels, "AvgPool3DGrad");
}

}  // namespace troupe
