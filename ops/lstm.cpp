// SPDX-License-Identifier: Apache-2.0
// A whole sequence through a long short-term memory in one node, and its gradient. Sources: Hochreiter and Schmidhuber,
// "Long short-term memory", 1997; Gers and Schmidhuber, "Recurrent nets that time and count", 2000, for peepholes.
//
// The products with the input are one for all steps; those with the state add to them step by step, and one loop makes
// all that follows from a row of gates. The gradient goes back the same way: the gates' gradients first, step by step,
// then those of weights and input by one product each.
#include <algorithm>
#include <cmath>

#include "devices/parallel.h"
#include "ops/all.h"
#include "ops/fast_math.h"
#include "ops/packed_product.h"
#include "ops/simd_clones.h"
#include "ops/through_float32.h"
#include "ops/type_dispatch.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// Where each gate is in a row of four: BlockLSTM has input, cell, forget, output, BlockLSTMV2 input, forget, cell,
/// output.
struct GateOrder {
  int64_t cell = 1, forget = 2;
  explicit GateOrder(std::string_view op) {
    if (op.ends_with("V2")) std::swap(cell, forget);
  }
};

/// Inputs of both ops, checked. Peepholes are nullptr where there are none.
struct Lstm {
  int64_t steps = 0, most_steps = 0, batch = 0, inputs = 0, units = 0;
  const float *x = nullptr, *c0 = nullptr, *h0 = nullptr, *w = nullptr, *b = nullptr;
  const float *wci = nullptr, *wcf = nullptr, *wco = nullptr;

  static Result<Lstm> of(const KernelContext& c, bool peephole) {
    const Tensor &length = c.input(0), &x = c.input(1), &w = c.input(4), &b = c.input(8);
    if (length.elements() != 1) return invalid_argument("seq_len_max must be a scalar, not {}", length.shape().str());
    if (x.rank() != 3) return invalid_argument("x must have shape [steps, batch, inputs], not {}", x.shape().str());
    if (b.rank() != 1 || b.dim(0) % 4 != 0)
      return invalid_argument("b must have shape [4 * units], not {}", b.shape().str());
    Lstm l;
    l.most_steps = x.dim(0);
    l.batch = x.dim(1);
    l.inputs = x.dim(2);
    l.units = b.dim(0) / 4;
    l.steps = length.data<int64_t>()[0];
    if (l.steps < 0 || l.steps > l.most_steps)
      return invalid_argument("seq_len_max is {}, and x has {} steps", l.steps, l.most_steps);
    const auto expect = [&](int i, const char* name, const Shape& shape) -> Status {
      if (c.input(i).shape() == shape) return {};
      return invalid_argument("{} must have shape {}, not {}", name, shape.str(), c.input(i).shape().str());
    };
    TROUPE_RETURN_IF_ERROR(expect(2, "cs_prev", {l.batch, l.units}));
    TROUPE_RETURN_IF_ERROR(expect(3, "h_prev", {l.batch, l.units}));
    TROUPE_RETURN_IF_ERROR(expect(4, "w", {l.inputs + l.units, 4 * l.units}));
    if (peephole) {
      TROUPE_RETURN_IF_ERROR(expect(5, "wci", {l.units}));
      TROUPE_RETURN_IF_ERROR(expect(6, "wcf", {l.units}));
      TROUPE_RETURN_IF_ERROR(expect(7, "wco", {l.units}));
      l.wci = c.input(5).data<float>();
      l.wcf = c.input(6).data<float>();
      l.wco = c.input(7).data<float>();
    }
    l.x = x.data<float>();
    l.c0 = c.input(2).data<float>();
    l.h0 = c.input(3).data<float>();
    l.w = w.data<float>();
    l.b = b.data<float>();
    return l;
  }
  const float* recurrent() const { return w + inputs * 4 * units; }
  Shape sequence() const { return {most_steps, batch, units}; }
  /// Elements of one step's state.
  int64_t state() const { return batch * units; }
};

Error product_failed(const Lstm& l) {
  return make_error(Code::kInternal, "the product of [{},{}] and [{},{}] failed", l.batch, l.units, l.units,
                    4 * l.units);
}

// -- forward ----------------------------------------------------------------------------------------------------------

/// One row of one step. Arrays of `n` units.
struct ForwardRow {
  const float *in_gate, *cell_gate, *forget_gate, *out_gate;  // sums of products
  const float *in_bias, *cell_bias, *forget_bias, *out_bias;
  const float *wci, *wcf, *wco, *c_before;
  float *i, *cs, *f, *o, *ci, *co, *h;
};

template <bool kPeephole>
[[gnu::always_inline]] inline void forward_units(const ForwardRow& r, int64_t n, float more_forget, float clip) {
#pragma omp simd
  for (int64_t k = 0; k < n; ++k) {
    const float before = r.c_before[k];
    float in = r.in_gate[k] + r.in_bias[k], forget = r.forget_gate[k] + r.forget_bias[k] + more_forget;
    if constexpr (kPeephole) {
      in += before * r.wci[k];
      forget += before * r.wcf[k];
    }
    const float i = fast_math::sigmoid(in), f = fast_math::sigmoid(forget);
    const float ci = fast_math::tanh(r.cell_gate[k] + r.cell_bias[k]);
    float cs = ci * i + before * f;
    cs = cs > clip ? clip : cs < -clip ? -clip : cs;
    float out = r.out_gate[k] + r.out_bias[k];
    if constexpr (kPeephole) out += cs * r.wco[k];
    const float o = fast_math::sigmoid(out), co = fast_math::tanh(cs);
    r.i[k] = i;
    r.cs[k] = cs;
    r.f[k] = f;
    r.o[k] = o;
    r.ci[k] = ci;
    r.co[k] = co;
    r.h[k] = co * o;
  }
}

TROUPE_SIMD_CLONES void forward_row(const ForwardRow& r, int64_t n, float more_forget, float clip) {
  if (r.wci) forward_units<true>(r, n, more_forget, clip);
  else forward_units<false>(r, n, more_forget, clip);
}

class BlockLstm final : public ComputeKernel {
 public:
  explicit BlockLstm(const KernelInit& init)
      : order_(init.op), peephole_(init.attr<bool>("use_peephole")), clip_(init.attr<float>("cell_clip")) {
    if (const float* bias = init.attrs->get<float>("forget_bias")) forget_bias_ = *bias;
    if (!(clip_ > 0)) clip_ = INFINITY;
  }

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Lstm l, Lstm::of(c, peephole_));
    float* out[7];  // i, cs, f, o, ci, co, h
    for (int i = 0; i < 7; ++i) {
      TROUPE_ASSIGN(Tensor t, c.allocate(DType::kFloat32, l.sequence()));
      out[i] = t.mutable_data<float>();
      std::fill_n(out[i] + l.steps * l.state(), (l.most_steps - l.steps) * l.state(), 0.f);
      c.set_output(i, std::move(t));
    }
    TROUPE_ASSIGN(Tensor sums, c.allocate(DType::kFloat32, {l.steps, l.batch, 4 * l.units}));
    float* gates = sums.mutable_data<float>();
    const int64_t rows = l.steps * l.batch;
    if (!gemm(l.x, false, l.w, false, gates, rows, 4 * l.units, l.inputs)) return product_failed(l);
    TROUPE_ASSIGN(const PackedProduct add_recurrent,
                  packed_product(c, l.recurrent(), false, true, l.batch, 4 * l.units, l.units, l.steps));
    for (int64_t t = 0; t < l.steps; ++t) {
      const int64_t at = t * l.state();
      const float* h = t > 0 ? out[6] + at - l.state() : l.h0;
      const float* cs = t > 0 ? out[1] + at - l.state() : l.c0;
      float* of_step = gates + 4 * at;
      if (!add_recurrent(h, of_step)) return product_failed(l);
      parallel_for(c.threads(), l.batch, kDearGrain / std::max<int64_t>(l.units, 1) + 1, [&](int64_t row, int64_t end) {
        for (; row < end; ++row) {
          const int64_t to = at + row * l.units;
          const float* sum = of_step + 4 * row * l.units;
          const int64_t n = l.units;
          const ForwardRow r = {.in_gate = sum,
                                .cell_gate = sum + order_.cell * n,
                                .forget_gate = sum + order_.forget * n,
                                .out_gate = sum + 3 * n,
                                .in_bias = l.b,
                                .cell_bias = l.b + order_.cell * n,
                                .forget_bias = l.b + order_.forget * n,
                                .out_bias = l.b + 3 * n,
                                .wci = l.wci,
                                .wcf = l.wcf,
                                .wco = l.wco,
                                .c_before = cs + row * n,
                                .i = out[0] + to,
                                .cs = out[1] + to,
                                .f = out[2] + to,
                                .o = out[3] + to,
                                .ci = out[4] + to,
                                .co = out[5] + to,
                                .h = out[6] + to};
          forward_row(r, n, forget_bias_, clip_);
        }
      });
    }
    return {};
  }

 private:
  const GateOrder order_;
  const bool peephole_;
  float clip_, forget_bias_ = 0;
};

// -- backward ---------------------------------------------------------------------------------------------------------

/// One row of one step. Arrays of `n` units.
struct BackwardRow {
  const float *wci, *wcf, *wco, *c_before;
  const float *i, *f, *o, *ci, *co;
  const float *dc, *dh;                                 // by the outputs
  const float* dh_after;                                // through the step after
  float* dc_after;                                      // the same of the cell; becomes that of the step before
  float *in_gate, *cell_gate, *forget_gate, *out_gate;  // gradients by the sums
};

template <bool kPeephole> [[gnu::always_inline]] inline void backward_units(const BackwardRow& r, int64_t n) {
#pragma omp simd
  for (int64_t k = 0; k < n; ++k) {
    const float i = r.i[k], f = r.f[k], o = r.o[k], ci = r.ci[k], co = r.co[k];
    const float dh = r.dh[k] + r.dh_after[k];
    const float d_out = o * (1 - o) * dh * co;
    float dc = (1 - co * co) * dh * o + r.dc[k] + r.dc_after[k];
    if constexpr (kPeephole) dc += d_out * r.wco[k];
    const float d_in = i * (1 - i) * dc * ci, d_forget = f * (1 - f) * dc * r.c_before[k];
    r.cell_gate[k] = (1 - ci * ci) * dc * i;
    r.in_gate[k] = d_in;
    r.forget_gate[k] = d_forget;
    r.out_gate[k] = d_out;
    dc *= f;
    if constexpr (kPeephole) dc += d_in * r.wci[k] + d_forget * r.wcf[k];
    r.dc_after[k] = dc;
  }
}

TROUPE_SIMD_CLONES void backward_row(const BackwardRow& r, int64_t n) {
  if (r.wci) backward_units<true>(r, n);
  else backward_units<false>(r, n);
}

TROUPE_SIMD_CLONES void add_to(float* sum, const float* x, int64_t n) {
  for (int64_t k = 0; k < n; ++k) sum[k] += x[k];
}
TROUPE_SIMD_CLONES void add_product_to(float* sum, const float* x, const float* y, int64_t n) {
  for (int64_t k = 0; k < n; ++k) sum[k] += x[k] * y[k];
}

class BlockLstmGrad final : public ComputeKernel {
 public:
  explicit BlockLstmGrad(const KernelInit& init) : order_(init.op), peephole_(init.attr<bool>("use_peephole")) {}

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Lstm l, Lstm::of(c, peephole_));
    const float* kept[9];  // i, cs, f, o, ci, co, h and the gradients by cs and h
    for (int i = 0; i < 9; ++i) {
      if (c.input(9 + i).shape() != l.sequence())
        return invalid_argument("input {} must have shape {}, not {}", 9 + i, l.sequence().str(),
                                c.input(9 + i).shape().str());
      kept[i] = c.input(9 + i).data<float>();
    }
    float* out[8];  // by x, cs_prev, h_prev, w, wci, wcf, wco, b
    for (int i = 0; i < 8; ++i) {
      TROUPE_ASSIGN(Tensor t, c.allocate(DType::kFloat32, c.input(i + 1).shape()));
      out[i] = t.mutable_data<float>();
      if (i != 3) std::fill_n(out[i], t.elements(), 0.f);
      c.set_output(i, std::move(t));
    }
    TROUPE_ASSIGN(Tensor sums, c.allocate(DType::kFloat32, {l.steps, l.batch, 4 * l.units}));
    float* gates = sums.mutable_data<float>();
    TROUPE_RETURN_IF_ERROR(by_gates(c, l, kept, out[1], out[2], gates));
    const int64_t n = l.units, rows = l.steps * l.batch;
    if (peephole_) by_peepholes(l, kept[1], gates, out[4], out[5], out[6]);
    for (int64_t row = 0; row < rows; ++row) add_to(out[7], gates + 4 * row * n, 4 * n);
    // The state that step t began with is h_prev, or the result of step t - 1.
    float* by_recurrent = out[3] + l.inputs * 4 * n;
    const int64_t first = std::min<int64_t>(l.steps, 1) * l.batch;
    const bool ok = gemm(gates, false, l.w, true, out[0], rows, l.inputs, 4 * n) &&
                    gemm(l.x, true, gates, false, out[3], l.inputs, 4 * n, rows) &&
                    gemm(l.h0, true, gates, false, by_recurrent, n, 4 * n, first) &&
                    gemm_add(kept[6], true, gates + 4 * first * n, false, by_recurrent, n, 4 * n, rows - first);
    return ok ? Status() : product_failed(l);
  }

 private:
  /// The gradients by the sums of products, and those by the states that the sequence began with.
  Status by_gates(const KernelContext& c, const Lstm& l, const float* const* kept, float* dc, float* dh,
                  float* gates) const {
    TROUPE_ASSIGN(const PackedProduct by_state,
                  packed_product(c, l.recurrent(), true, false, l.batch, l.units, 4 * l.units, l.steps));
    for (int64_t t = l.steps; t-- > 0;) {
      const int64_t at = t * l.state(), n = l.units;
      const float* c_before = t > 0 ? kept[1] + at - l.state() : l.c0;
      parallel_for(c.threads(), l.batch, kDearGrain / std::max<int64_t>(n, 1) + 1, [&](int64_t row, int64_t end) {
        for (; row < end; ++row) {
          const int64_t in = at + row * n;
          float* sum = gates + 4 * in;
          const BackwardRow r = {.wci = l.wci,
                                 .wcf = l.wcf,
                                 .wco = l.wco,
                                 .c_before = c_before + row * n,
                                 .i = kept[0] + in,
                                 .f = kept[2] + in,
                                 .o = kept[3] + in,
                                 .ci = kept[4] + in,
                                 .co = kept[5] + in,
                                 .dc = kept[7] + in,
                                 .dh = kept[8] + in,
                                 .dh_after = dh + row * n,
                                 .dc_after = dc + row * n,
                                 .in_gate = sum,
                                 .cell_gate = sum + order_.cell * n,
                                 .forget_gate = sum + order_.forget * n,
                                 .out_gate = sum + 3 * n};
          backward_row(r, n);
        }
      });
      if (!by_state(gates + 4 * at, dh)) return product_failed(l);
    }
    return {};
  }

  void by_peepholes(const Lstm& l, const float* cs, const float* gates, float* wci, float* wcf, float* wco) const {
    const int64_t n = l.units;
    for (int64_t row = 0; row < l.steps * l.batch; ++row) {
      const float* before = row < l.batch ? l.c0 + row * n : cs + (row - l.batch) * n;
      const float* of_row = gates + 4 * row * n;
      add_product_to(wci, of_row, before, n);
      add_product_to(wcf, of_row + order_.forget * n, before, n);
      add_product_to(wco, of_row + 3 * n, cs + row * n, n);
    }
  }

  const GateOrder order_;
  const bool peephole_;
};

// -- registration -----------------------------------------------------------------------------------------------------

Status sequence_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(1, 3));
  TROUPE_ASSIGN(const PartialShape b, c.with_rank(8, 1));
  const int64_t units = b.dim(0) < 0 ? -1 : b.dim(0) / 4;
  for (int i = 0; i < 7; ++i) c.set_output(i, PartialShape{x.dim(0), x.dim(1), units});
  return {};
}

Status sequence_grad_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 3));
  for (int i = 0; i < 8; ++i) c.set_output(i, c.input(i + 1));
  return {};
}

Status sequence_gradient(GradientContext& c) {
  for (const int i : {0, 2, 3, 4, 5})
    if (c.dy(i))
      return make_error(Code::kUnimplemented, "has a gradient by outputs cs and h only, not by output {}", i);
  std::vector<Output> inputs;
  for (int i = 0; i < 9; ++i) inputs.push_back(c.input(i));
  for (int i = 0; i < 7; ++i) inputs.push_back(c.output(i));
  for (const int i : {1, 6}) inputs.push_back(c.dy(i) ? c.dy(i) : c.op("ZerosLike", {c.output(i)}));
  const bool second = c.node().op().name().ends_with("V2");
  const auto dx = c.ops(second ? "BlockLSTMGradV2" : "BlockLSTMGrad", inputs,
                        {{"use_peephole", *c.node().attrs().get<bool>("use_peephole")}});
  for (size_t i = 0; i < dx.size(); ++i) c.set_dx(static_cast<int>(i) + 1, dx[i]);
  return {};
}

OpDef with_inputs(OpDef op) {
  op.input("seq_len_max: int64");
  for (const char* name : {"x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"})
    op.input(std::string(name) + ": T");
  return op;
}

}  // namespace

void register_lstm_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string floats = type_attr("T", TypeList<float16, bfloat16, float>{});
  for (const bool second : {false, true}) {
    OpDef forward = with_inputs(OpDef(second ? "BlockLSTMV2" : "BlockLSTM"));
    for (const char* name : {"i", "cs", "f", "o", "ci", "co", "h"}) forward.output(std::string(name) + ": T");
    if (!second) forward.attr("forget_bias: float = 1.0");
    forward.attr(second ? "cell_clip: float = 0.0" : "cell_clip: float = 3.0").attr("use_peephole: bool = false");
    forward.attr(floats);
    ops.add(std::move(forward)
                .shape(sequence_shape)
                .doc(fmt::format(
                    "A sequence x [steps, batch, inputs] through an LSTM that begins with the cell cs_prev and the "
                    "result h_prev [batch, units]. For each step the gates {} are [x, h] times w [inputs + units, 4 * "
                    "units] plus b, plus wci, wcf and wco times the cell with use_peephole; with i, f, o their "
                    "logistic functions and ci the tanh of the cell's, cs = ci * i + cs * f, clipped to [-cell_clip, "
                    "cell_clip] where that is positive, co = tanh(cs), h = co * o.{} Steps from seq_len_max on are 0. "
                    "The gradient is that by cs and h.",
                    second ? "i, f, ci, o" : "i, ci, f, o", second ? "" : " forget_bias is added to f's sum.")),
            gradient(sequence_gradient));
    OpDef backward = with_inputs(OpDef(second ? "BlockLSTMGradV2" : "BlockLSTMGrad"));
    for (const char* name : {"i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"})
      backward.input(std::string(name) + ": T");
    for (const char* name : {"x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"})
      backward.output(std::string(name) + "_grad: T");
    ops.add(std::move(backward)
                .attr("use_peephole: bool")
                .attr(floats)
                .shape(sequence_grad_shape)
                .doc(fmt::format("The gradients of {} by its inputs, from its results and the gradients by cs and h. "
                                 "Clipping counts as no change.",
                                 second ? "BlockLSTMV2" : "BlockLSTM")),
            not_differentiable("TensorFlow defines none"));
  }
  for (const char* op : {"BlockLSTM", "BlockLSTMV2"}) {
    kernels.add<BlockLstm>(op, DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
    add_half_kernels<BlockLstm>(kernels, op);
  }
  for (const char* op : {"BlockLSTMGrad", "BlockLSTMGradV2"}) {
    kernels.add<BlockLstmGrad>(op, DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
    add_half_kernels<BlockLstmGrad>(kernels, op);
  }
}

}  // namespace troupe
