// SPDX-License-Identifier: Apache-2.0
// Long short-term memories on GPUs, of a step or a whole sequence, and their gradients. Products are those of
// ops/nn/lstm.cpp; a thread does what follows from the gates of one unit. 16-bit floats hold sums and states as such
// between steps, where CPUs keep float32.
#include <cmath>

#include "ops/nn/gpu_products.h"
#include "ops/nn/lstm_steps.h"
#include "ops/nn/recurrent_units.h"
#include "ops/nn/register.h"
#include "ops/parts/elementwise.cuh"
#include "ops/parts/reduce.cuh"
#include "ops/parts/reducers.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// Units of a batch, and where the gates of one are in a row of four times as many sums.
struct UnitPlan {
  int64_t elements, units, cell, forget;
  KnownDivisor by_units;
  UnitPlan(const LstmShape& l, GateOrder order)
      : elements(l.state()), units(l.units), cell(order.cell * l.units), forget(order.forget * l.units),
        by_units(l.units > 0 ? l.units : 1) {}
};

/// Calls f(element, unit, sums of that unit's row) for each unit of a batch, each by one thread.
template <class S, class F> __device__ inline void for_each_unit(const UnitPlan& p, S* sums, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < p.elements; e += step) {
    const int64_t row = p.by_units.divide(e), k = e - row * p.units;
    f(e, k, sums + 4 * row * p.units + k);
  }
}

/// Null where there are none.
template <class T> struct PeepholeWeights {
  const T *in, *forget, *out;
  __device__ LstmPeepholes of(int64_t k) const {
    LstmPeepholes w;
    if (in) w = {widen(in[k]), widen(forget[k]), widen(out[k])};
    return w;
  }
};

template <class T> struct StepForward {
  const T *sums, *biases, *before;
  T *i, *cs, *f, *o, *ci, *co, *h;
};
template <class T, bool kPeephole>
__global__ void lstm_step(StepForward<T> s, PeepholeWeights<T> weights, float more_forget, float clip, UnitPlan p) {
  for_each_unit(p, s.sums, [&](int64_t e, int64_t k, const T* sum) {
    const T* const b = s.biases + k;
    const LstmGates gates = {.in = widen(sum[0]) + widen(b[0]),
                             .cell = widen(sum[p.cell]) + widen(b[p.cell]),
                             .forget = widen(sum[p.forget]) + widen(b[p.forget]) + more_forget,
                             .out = widen(sum[3 * p.units]) + widen(b[3 * p.units])};
    const LstmUnit u = lstm_unit<kPeephole>(gates, widen(s.before[e]), weights.of(k), clip);
    s.i[e] = narrow<T>(u.i);
    s.cs[e] = narrow<T>(u.cs);
    s.f[e] = narrow<T>(u.f);
    s.o[e] = narrow<T>(u.o);
    s.ci[e] = narrow<T>(u.ci);
    s.co[e] = narrow<T>(u.co);
    s.h[e] = narrow<T>(u.h);
  });
}

/// dh_after and dc_after are null where no step follows.
template <class T> struct StepBackward {
  const T *before, *i, *f, *o, *ci, *co, *dc, *dh, *dh_after, *dc_after;
  T *sums, *dc_before;
};
template <class T, bool kPeephole>
__global__ void lstm_step_gradient(StepBackward<T> s, PeepholeWeights<T> weights, UnitPlan p) {
  for_each_unit(p, s.sums, [&](int64_t e, int64_t k, T* sum) {
    const LstmUnit u = {.i = widen(s.i[e]),
                        .cs = 0,
                        .f = widen(s.f[e]),
                        .o = widen(s.o[e]),
                        .ci = widen(s.ci[e]),
                        .co = widen(s.co[e]),
                        .h = 0};
    const float dh = widen(s.dh[e]) + (s.dh_after ? widen(s.dh_after[e]) : 0.f);
    const LstmUnitGradient d = lstm_unit_gradient<kPeephole>(u, widen(s.before[e]), weights.of(k), dh, widen(s.dc[e]),
                                                             s.dc_after ? widen(s.dc_after[e]) : 0.f);
    sum[0] = narrow<T>(d.sums.in);
    sum[p.cell] = narrow<T>(d.sums.cell);
    sum[p.forget] = narrow<T>(d.sums.forget);
    sum[3 * p.units] = narrow<T>(d.sums.out);
    s.dc_before[e] = narrow<T>(d.before);
  });
}

/// What the gradient by a gate's peephole adds up: the gate's gradient times the cell, of the step or (`before`) of the
/// one before, which the first step has apart.
template <class T> struct PeepholeProducts {
  const T *gate, *cells, *first;
  int64_t state;  // elements of a step
  bool before;
  struct OfUnit {
    const PeepholeProducts& p;
    int64_t unit;
    __device__ float operator[](int64_t i) const {
      const T* const cell = !p.before ? p.cells + i : i < p.state ? p.first + i : p.cells + i - p.state;
      return widen(p.gate[4 * i + unit]) * widen(cell[unit]);
    }
  };
  __device__ OfUnit of(int64_t /*result*/, int64_t unit) const { return {*this, unit}; }
};
template <class T> struct SumProducts : reducers::Adding<float> {
  static __device__ float take(float a, float x) { return a + x; }
  static __device__ T finish(float a, int64_t) { return narrow<T>(a); }
};

template <class T> const T* at(const Tensor& t, int64_t element = 0) {
  return static_cast<const T*>(t.address()) + element;
}
template <class T> T* at(Tensor& t, int64_t element = 0) { return static_cast<T*>(t.mutable_address()) + element; }

/// What the kernels have in common.
template <class T> class GpuLstmBase : public ComputeKernel {
 public:
  explicit GpuLstmBase(const KernelInit& init)
      : op_(init.op), order_(init.op), peephole_(init.attr<bool>("use_peephole")) {}

 protected:
  PeepholeWeights<T> weights(const KernelContext& c, const LstmShape& l) const {
    if (!peephole_) return {};
    return {at<T>(c.input(l.first() + 4)), at<T>(c.input(l.first() + 5)), at<T>(c.input(l.first() + 6))};
  }
  Status launch_step(const KernelContext& c, const LstmShape& l, const StepForward<T>& s, float forget_bias,
                     float clip) const {
    const gpu::Compute& gpu = *c.device().gpu;
    if (l.state() == 0) return {};
    const unsigned blocks = pack_blocks<1>(gpu, l.state());
    if (peephole_)
      return TROUPE_LAUNCH(gpu.stream, (lstm_step<T, true>), blocks, kElementThreads, 0, s, weights(c, l), forget_bias,
                           clip, UnitPlan(l, order_));
    return TROUPE_LAUNCH(gpu.stream, (lstm_step<T, false>), blocks, kElementThreads, 0, s, weights(c, l), forget_bias,
                         clip, UnitPlan(l, order_));
  }
  Status launch_gradient(const KernelContext& c, const LstmShape& l, const StepBackward<T>& s) const {
    const gpu::Compute& gpu = *c.device().gpu;
    if (l.state() == 0) return {};
    const unsigned blocks = pack_blocks<1>(gpu, l.state());
    if (peephole_)
      return TROUPE_LAUNCH(gpu.stream, (lstm_step_gradient<T, true>), blocks, kElementThreads, 0, s, weights(c, l),
                           UnitPlan(l, order_));
    return TROUPE_LAUNCH(gpu.stream, (lstm_step_gradient<T, false>), blocks, kElementThreads, 0, s, weights(c, l),
                         UnitPlan(l, order_));
  }
  /// The gradients by the peepholes from those by all sums; zeros where there are none.
  Status peephole_gradients(KernelContext& c, const LstmShape& l, const Tensor& sums, const Tensor& cells, Tensor& in,
                            Tensor& forget, Tensor& out) const {
    const gpu::Compute& gpu = *c.device().gpu;
    if (!peephole_) {
      for (Tensor* t : {&in, &forget, &out}) TROUPE_RETURN_IF_ERROR(clear_elements(gpu, *t, 0, t->elements()));
      return {};
    }
    const bool reduced[] = {true, false};
    const ReducePlan plan = plan_reduce(Shape{l.steps * l.batch, l.units}, reduced);
    const auto reduce = [&](Tensor& to, int64_t gate, bool before) {
      return launch_reduction_of<SumProducts<T>, T>(
          c,
          PeepholeProducts<T>{at<T>(sums, gate * l.units), at<T>(cells), at<T>(c.input(l.first() + 1)), l.state(),
                              before},
          to, plan);
    };
    TROUPE_RETURN_IF_ERROR(reduce(in, 0, true));
    TROUPE_RETURN_IF_ERROR(reduce(forget, order_.forget, true));
    return reduce(out, 3, false);
  }

  const std::string op_;
  const GateOrder order_;
  const bool peephole_;
};

/// BlockLSTM, BlockLSTMV2 and LSTMBlockCell.
template <class T> class GpuLstm final : public GpuLstmBase<T> {
 public:
  explicit GpuLstm(const KernelInit& init) : GpuLstmBase<T>(init), clip_(init.attr<float>("cell_clip")) {
    if (const float* bias = init.attrs->get<float>("forget_bias")) forget_bias_ = *bias;
    if (!(clip_ > 0)) clip_ = INFINITY;
  }
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const LstmShape l, LstmShape::of(c, this->op_, this->peephole_));
    const gpu::Compute& gpu = *c.device().gpu;
    const Tensor &x = c.input(l.first()), &c0 = c.input(l.first() + 1), &h0 = c.input(l.first() + 2),
                 &w = c.input(l.first() + 3), &b = c.input(l.first() + 7);
    Tensor out[7];  // i, cs, f, o, ci, co, h
    for (Tensor& t : out) {
      TROUPE_ASSIGN(t, c.allocate(dtype_of<T>, l.results()));
    }
    const int64_t gates = 4 * l.units;
    TROUPE_ASSIGN(Tensor sums, c.allocate(dtype_of<T>, {l.steps, l.batch, gates}));
    declare_uses(c, {&out[0], &out[1], &out[2], &out[3], &out[4], &out[5], &out[6], &sums});
    for (Tensor& t : out) TROUPE_RETURN_IF_ERROR(clear_elements(gpu, t, l.steps * l.state(), t.elements()));
    const GpuProduct by_input{.dtype = dtype_of<T>, .m = l.steps * l.batch, .n = gates, .k = l.inputs};
    const GpuProduct by_state{.dtype = dtype_of<T>, .m = l.batch, .n = gates, .k = l.units, .adds = true};
    TROUPE_RETURN_IF_ERROR(by_input.run(gpu, x.address(), w.address(), sums.mutable_address()));
    for (int64_t t = 0; t < l.steps; ++t) {
      const int64_t here = t * l.state(), last = here - l.state();
      const T* const h = t > 0 ? at<T>(std::as_const(out[6]), last) : at<T>(h0);
      TROUPE_RETURN_IF_ERROR(by_state.run(gpu, h, at<T>(w, l.inputs * gates), at<T>(sums, 4 * here)));
      const StepForward<T> step = {.sums = at<T>(sums, 4 * here),
                                   .biases = at<T>(b),
                                   .before = t > 0 ? at<T>(std::as_const(out[1]), last) : at<T>(c0),
                                   .i = at<T>(out[0], here),
                                   .cs = at<T>(out[1], here),
                                   .f = at<T>(out[2], here),
                                   .o = at<T>(out[3], here),
                                   .ci = at<T>(out[4], here),
                                   .co = at<T>(out[5], here),
                                   .h = at<T>(out[6], here)};
      TROUPE_RETURN_IF_ERROR(this->launch_step(c, l, step, forget_bias_, clip_));
    }
    for (int i = 0; i < 7; ++i) c.set_output(i, std::move(out[i]));
    return {};
  }

 private:
  float clip_, forget_bias_ = 0;
};

/// BlockLSTMGrad and BlockLSTMGradV2.
template <class T> class GpuLstmGrad final : public GpuLstmBase<T> {
 public:
  using GpuLstmBase<T>::GpuLstmBase;
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const LstmShape l, LstmShape::of(c, this->op_, this->peephole_));
    TROUPE_RETURN_IF_ERROR(check_states(c, 9, 9, l.results()));
    const gpu::Compute& gpu = *c.device().gpu;
    const Tensor &x = c.input(1), &c0 = c.input(2), &h0 = c.input(3), &w = c.input(4);
    const auto kept = [&](int i, int64_t element) { return at<T>(c.input(9 + i), element); };
    Tensor out[8];  // by x, cs_prev, h_prev, w, wci, wcf, wco, b
    for (int i = 0; i < 8; ++i) {
      TROUPE_ASSIGN(out[i], c.allocate(dtype_of<T>, c.input(i + 1).shape()));
    }
    const int64_t gates = 4 * l.units, rows = l.steps * l.batch;
    TROUPE_ASSIGN(Tensor sums, c.allocate(dtype_of<T>, {rows, gates}));
    declare_uses(c, {&out[0], &out[1], &out[2], &out[3], &out[4], &out[5], &out[6], &out[7], &sums});
    if (l.steps == 0)
      for (int i : {1, 2}) TROUPE_RETURN_IF_ERROR(clear_elements(gpu, out[i], 0, out[i].elements()));
    const GpuProduct by_state{.dtype = dtype_of<T>, .m = l.batch, .n = l.units, .k = gates, .tb = true};
    for (int64_t t = l.steps; t-- > 0;) {
      const int64_t here = t * l.state();
      const bool last = t == l.steps - 1;
      const StepBackward<T> step = {.before = t > 0 ? kept(1, here - l.state()) : at<T>(c0),
                                    .i = kept(0, here),
                                    .f = kept(2, here),
                                    .o = kept(3, here),
                                    .ci = kept(4, here),
                                    .co = kept(5, here),
                                    .dc = kept(7, here),
                                    .dh = kept(8, here),
                                    .dh_after = last ? nullptr : at<T>(std::as_const(out[2])),
                                    .dc_after = last ? nullptr : at<T>(std::as_const(out[1])),
                                    .sums = at<T>(sums, 4 * here),
                                    .dc_before = at<T>(out[1])};
      TROUPE_RETURN_IF_ERROR(this->launch_gradient(c, l, step));
      TROUPE_RETURN_IF_ERROR(
          by_state.run(gpu, at<T>(sums, 4 * here), at<T>(w, l.inputs * gates), out[2].mutable_address()));
    }
    // The state that step t began with is h_prev, or the result of step t - 1.
    const int64_t first = std::min<int64_t>(l.steps, 1) * l.batch;
    const GpuProduct by_x{.dtype = dtype_of<T>, .m = rows, .n = l.inputs, .k = gates, .tb = true};
    const GpuProduct by_w{.dtype = dtype_of<T>, .m = l.inputs, .n = gates, .k = rows, .ta = true};
    const GpuProduct by_first{.dtype = dtype_of<T>, .m = l.units, .n = gates, .k = first, .ta = true};
    const GpuProduct by_rest{
        .dtype = dtype_of<T>, .m = l.units, .n = gates, .k = rows - first, .ta = true, .adds = true};
    T* const by_recurrent = at<T>(out[3], l.inputs * gates);
    TROUPE_RETURN_IF_ERROR(by_x.run(gpu, sums.address(), w.address(), out[0].mutable_address()));
    TROUPE_RETURN_IF_ERROR(clear_elements(gpu, out[0], rows * l.inputs, out[0].elements()));
    TROUPE_RETURN_IF_ERROR(by_w.run(gpu, x.address(), sums.address(), out[3].mutable_address()));
    TROUPE_RETURN_IF_ERROR(by_first.run(gpu, h0.address(), sums.address(), by_recurrent));
    TROUPE_RETURN_IF_ERROR(by_rest.run(gpu, kept(6, 0), at<T>(sums, first * gates), by_recurrent));
    TROUPE_RETURN_IF_ERROR(this->peephole_gradients(c, l, sums, c.input(10), out[4], out[5], out[6]));
    const bool reduced[] = {true, false};
    TROUPE_RETURN_IF_ERROR((
        launch_reduction<reducers::Sum<T>, T, T>(c, sums.address(), out[7], plan_reduce(Shape{rows, gates}, reduced))));
    for (int i = 0; i < 8; ++i) c.set_output(i, std::move(out[i]));
    return {};
  }
};

template <class T> class GpuLstmCellGrad final : public GpuLstmBase<T> {
 public:
  using GpuLstmBase<T>::GpuLstmBase;
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const LstmShape l, LstmShape::of(c, this->op_, this->peephole_));
    TROUPE_RETURN_IF_ERROR(check_states(c, 8, 8, l.results()));
    const auto kept = [&](int i) { return at<T>(c.input(8 + i)); };
    Tensor out[5];  // by cs_prev, the sums, wci, wcf, wco
    for (int i = 0; i < 5; ++i) {
      TROUPE_ASSIGN(out[i], c.allocate(dtype_of<T>, i == 0   ? l.results()
                                                    : i == 1 ? Shape{l.batch, 4 * l.units}
                                                             : c.input(i + 2).shape()));
    }
    declare_uses(c, {&out[0], &out[1], &out[2], &out[3], &out[4]});
    const StepBackward<T> step = {.before = at<T>(c.input(1)),
                                  .i = kept(0),
                                  .f = kept(2),
                                  .o = kept(3),
                                  .ci = kept(4),
                                  .co = kept(5),
                                  .dc = kept(6),
                                  .dh = kept(7),
                                  .dh_after = nullptr,
                                  .dc_after = nullptr,
                                  .sums = at<T>(out[1]),
                                  .dc_before = at<T>(out[0])};
    TROUPE_RETURN_IF_ERROR(this->launch_gradient(c, l, step));
    TROUPE_RETURN_IF_ERROR(this->peephole_gradients(c, l, out[1], c.input(9), out[2], out[3], out[4]));
    for (int i = 0; i < 5; ++i) c.set_output(i, std::move(out[i]));
    return {};
  }
};

template <class... T> void add_kernels(KernelRegistry& kernels, TypeList<T...>) {
  const auto types = [](DType dtype) { return KernelRegistry::Types{{"T", {dtype}}}; };
  const KernelRegistry::HostMemory steps = {{0}, {}};
  for (const char* op : {"BlockLSTM", "BlockLSTMV2"})
    (kernels.add<GpuLstm<T>>(op, DeviceKind::kCuda, types(dtype_of<T>), steps), ...);
  for (const char* op : {"BlockLSTMGrad", "BlockLSTMGradV2"})
    (kernels.add<GpuLstmGrad<T>>(op, DeviceKind::kCuda, types(dtype_of<T>), steps), ...);
  (kernels.add<GpuLstm<T>>("LSTMBlockCell", DeviceKind::kCuda, types(dtype_of<T>)), ...);
  (kernels.add<GpuLstmCellGrad<T>>("LSTMBlockCellGrad", DeviceKind::kCuda, types(dtype_of<T>)), ...);
}

}  // namespace

void register_lstm_gpu(KernelRegistry& kernels) { add_kernels(kernels, TypeList<float, float16, bfloat16>{}); }

}  // namespace troupe::TROUPE_GPU_VARIANT
