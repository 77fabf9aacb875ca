// SPDX-License-Identifier: Apache-2.0
// One step of a recurrent network in one node, with its gradient: LSTMBlockCell, whose kernel is that of a sequence
// (lstm.cpp), and GRUBlockCell. Source of the latter: Cho et al., "Learning phrase representations using RNN
// encoder-decoder", 2014.
#include "devices/parallel.h"
#include "ops/nn/gru.h"
#include "ops/nn/lstm_steps.h"
#include "ops/nn/recurrent_units.h"
#include "ops/nn/register.h"
#include "ops/parts/fast_math.h"
#include "ops/parts/gemm.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {

Result<GruShape> GruShape::of(const KernelContext& c) {
  const Tensor &x = c.input(0), &h = c.input(1);
  if (x.rank() != 2) return invalid_argument("x must have shape [batch, inputs], not {}", x.shape().str());
  if (h.rank() != 2 || h.dim(0) != x.dim(0))
    return invalid_argument("h_prev must have shape [{}, units], not {}", x.dim(0), h.shape().str());
  const GruShape g{x.dim(0), x.dim(1), h.dim(1)};
  const int64_t both = g.inputs + g.units;
  const Shape want[] = {{both, 2 * g.units}, {both, g.units}, {2 * g.units}, {g.units}};
  const char* names[] = {"w_ru", "w_c", "b_ru", "b_c"};
  for (int i = 0; i < 4; ++i)
    if (c.input(i + 2).shape() != want[i])
      return invalid_argument("{} must have shape {}, not {}", names[i], want[i].str(), c.input(i + 2).shape().str());
  return g;
}

namespace {

// -- LSTMBlockCell ----------------------------------------------------------------------------------------------------

class LstmCellGrad final : public ComputeKernel {
 public:
  explicit LstmCellGrad(const KernelInit& init) : op_(init.op), peephole_(init.attr<bool>("use_peephole")) {}

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Lstm l, Lstm::of(c, op_, peephole_));
    const float* kept[8];  // i, cs, f, o, ci, co and the gradients by cs and h
    TROUPE_RETURN_IF_ERROR(check_states(c, 8, 8, l.results()));
    for (int i = 0; i < 8; ++i) kept[i] = c.input(8 + i).data<float>();
    float* out[5];  // by cs_prev, the sums, wci, wcf, wco
    for (int i = 0; i < 5; ++i) {
      const Shape shape = i == 0 ? l.results() : i == 1 ? Shape{l.batch, 4 * l.units} : c.input(i + 2).shape();
      TROUPE_ASSIGN(Tensor t, Tensor::zeros(DType::kFloat32, shape, c.device().allocator));
      out[i] = t.mutable_data<float>();
      c.set_output(i, std::move(t));
    }
    const std::vector<float> nothing(static_cast<size_t>(l.state()));
    const LstmGradients step = {.c_before = l.c0,
                                .i = kept[0],
                                .f = kept[2],
                                .o = kept[3],
                                .ci = kept[4],
                                .co = kept[5],
                                .dc = kept[6],
                                .dh = kept[7],
                                .dh_after = nothing.data(),
                                .dc_after = out[0]};
    lstm_backward(c, l, GateOrder(op_), step, out[1]);
    if (peephole_) lstm_peephole_gradients(l, GateOrder(op_), kept[1], out[1], out[2], out[3], out[4]);
    return {};
  }

 private:
  const std::string op_;
  const bool peephole_;
};

Status lstm_cell_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape cs, c.with_rank(1, 2));
  TROUPE_ASSIGN(const PartialShape b, c.with_rank(7, 1));
  const int64_t units = b.dim(0) < 0 ? -1 : b.dim(0) / 4;
  TROUPE_ASSIGN(const PartialShape state, PartialShape::merge(cs, PartialShape{x.dim(0), units}));
  if (c.num_outputs() == 7) {
    for (int i = 0; i < 7; ++i) c.set_output(i, state);
    return {};
  }
  c.set_output(0, state);
  c.set_output(1, PartialShape{state.dim(0), b.dim(0)});
  for (int i = 2; i < 5; ++i) c.set_output(i, c.input(i + 2));
  return {};
}

/// The columns of `both` that are those of x and of h where these lie side by side.
std::vector<Output> parted(GradientContext& c, Output both, Output x, Output h) {
  const int64_t one[] = {1};
  const auto columns = [&](Output t) {
    return c.op("Slice", {c.op("Shape", {t}), int_vector(c, one), int_vector(c, one)});
  };
  const Output sizes = c.op("ConcatV2", {columns(x), columns(h), c.constant(Tensor::scalar<int32_t>(0))});
  return c.ops("SplitV", {both, sizes, c.constant(Tensor::scalar<int32_t>(1))}, {{"num_split", int64_t{2}}});
}

Output product(GradientContext& c, Output a, Output b, bool ta, bool tb) {
  return c.op("MatMul", {a, b}, {{"transpose_a", ta}, {"transpose_b", tb}});
}
Output side_by_side(GradientContext& c, Output a, Output b) {
  return c.op("ConcatV2", {a, b, c.constant(Tensor::scalar<int32_t>(1))});
}

Status lstm_cell_gradient(GradientContext& c) {
  for (const int i : {0, 2, 3, 4, 5})
    if (c.dy(i))
      return make_error(Code::kUnimplemented, "has a gradient by outputs cs and h only, not by output {}", i);
  std::vector<Output> inputs;
  for (int i = 0; i < 8; ++i) inputs.push_back(c.input(i));
  for (int i = 0; i < 6; ++i) inputs.push_back(c.output(i));
  for (const int i : {1, 6}) inputs.push_back(c.dy(i) ? c.dy(i) : c.op("ZerosLike", {c.output(i)}));
  const auto by = c.ops("LSTMBlockCellGrad", inputs, {{"use_peephole", *c.node().attrs().get<bool>("use_peephole")}});
  if (by.size() != 5) return {};
  const Output x = c.input(0);
  const auto dxh = parted(c, product(c, by[1], c.input(3), false, true), x, c.input(2));
  if (dxh.size() != 2) return {};
  c.set_dx(0, dxh[0]);
  c.set_dx(1, by[0]);
  c.set_dx(2, dxh[1]);
  c.set_dx(3, product(c, side_by_side(c, x, c.input(2)), by[1], true, false));
  for (int i = 4; i < 7; ++i) c.set_dx(i, by[i - 2]);
  c.set_dx(7, c.op("BiasAddGrad", {by[1]}));
  return {};
}

// -- GRUBlockCell -----------------------------------------------------------------------------------------------------

struct Gru : GruShape {
  const float *x = nullptr, *h = nullptr, *w_ru = nullptr, *w_c = nullptr, *b_ru = nullptr, *b_c = nullptr;

  static Result<Gru> of(const KernelContext& c) {
    Gru g;
    TROUPE_ASSIGN(static_cast<GruShape&>(g), GruShape::of(c));
    const float** const to[] = {&g.x, &g.h, &g.w_ru, &g.w_c, &g.b_ru, &g.b_c};
    for (int i = 0; i < 6; ++i) *to[i] = c.input(i).data<float>();
    return g;
  }
  /// out = [left, right] * w + no bias, of `columns` columns.
  bool product(const float* left, const float* right, const float* w, float* out, int64_t columns) const {
    return gemm(left, false, w, false, out, batch, columns, inputs) &&
           gemm_add(right, false, w + inputs * columns, false, out, batch, columns, units);
  }
  Error failed() const { return make_error(Code::kInternal, "a product of {} rows of {} units failed", batch, units); }
};

/// Resets and updates of a row from their sums, and the state times the resets.
TROUPE_SIMD_CLONES void gate_row(const float* sums, const float* bias, const float* h, float* r, float* u, float* hr,
                                 int64_t n) {
#pragma omp simd
  for (int64_t k = 0; k < n; ++k) {
    r[k] = fast_math::sigmoid(sums[k] + bias[k]);
    u[k] = fast_math::sigmoid(sums[n + k] + bias[n + k]);
    hr[k] = h[k] * r[k];
  }
}
/// The candidate in place of its sum, and the new state.
TROUPE_SIMD_CLONES void state_row(float* candidate, const float* bias, const float* h, const float* u, float* out,
                                  int64_t n) {
#pragma omp simd
  for (int64_t k = 0; k < n; ++k) {
    candidate[k] = fast_math::tanh(candidate[k] + bias[k]);
    out[k] = gru_state(u[k], h[k], candidate[k]);
  }
}

class GruCell final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Gru g, Gru::of(c));
    float* out[4];  // r, u, c, h
    for (int i = 0; i < 4; ++i) {
      TROUPE_ASSIGN(Tensor t, c.allocate(DType::kFloat32, g.state()));
      out[i] = t.mutable_data<float>();
      c.set_output(i, std::move(t));
    }
    TROUPE_ASSIGN(Tensor kept, c.allocate(DType::kFloat32, g.state()));
    TROUPE_ASSIGN(Tensor sums, c.allocate(DType::kFloat32, {g.batch, 2 * g.units}));
    float *hr = kept.mutable_data<float>(), *gates = sums.mutable_data<float>();
    if (!g.product(g.x, g.h, g.w_ru, gates, 2 * g.units)) return g.failed();
    each_row(c, g, [&](int64_t at) {
      gate_row(gates + 2 * at, g.b_ru, g.h + at, out[0] + at, out[1] + at, hr + at, g.units);
    });
    if (!g.product(g.x, hr, g.w_c, out[2], g.units)) return g.failed();
    each_row(c, g, [&](int64_t at) { state_row(out[2] + at, g.b_c, g.h + at, out[1] + at, out[3] + at, g.units); });
    return {};
  }

 private:
  /// Calls f with the place of each row's state.
  template <class F> static void each_row(const KernelContext& c, const Gru& g, const F& f) {
    parallel_for(c.threads(), g.batch, kDearGrain / std::max<int64_t>(g.units, 1) + 1, [&](int64_t row, int64_t end) {
      for (; row < end; ++row) f(row * g.units);
    });
  }
};

class GruCellGrad final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Gru g, Gru::of(c));
    const float* kept[4];  // r, u, c and the gradient by h
    TROUPE_RETURN_IF_ERROR(check_states(c, 6, 4, g.state()));
    for (int i = 0; i < 4; ++i) kept[i] = c.input(6 + i).data<float>();
    const float *r = kept[0], *u = kept[1], *candidate = kept[2], *dh = kept[3];
    float* out[4];  // by x, h_prev, the candidate's sum, the gates' sums
    const Shape shapes[] = {{g.batch, g.inputs}, g.state(), g.state(), {g.batch, 2 * g.units}};
    for (int i = 0; i < 4; ++i) {
      TROUPE_ASSIGN(Tensor t, c.allocate(DType::kFloat32, shapes[i]));
      out[i] = t.mutable_data<float>();
      c.set_output(i, std::move(t));
    }
    const int64_t n = g.units, all = g.batch * n;
    for (int64_t i = 0; i < all; ++i) out[2][i] = gru_candidate_gradient(dh[i], u[i], candidate[i]);
    TROUPE_ASSIGN(Tensor reset, c.allocate(DType::kFloat32, g.state()));
    float* d_reset = reset.mutable_data<float>();  // by h_prev times r
    if (!gemm(out[2], false, g.w_c + g.inputs * n, true, d_reset, g.batch, n, n)) return g.failed();
    for (int64_t i = 0; i < all; ++i) {
      float* gates = out[3] + i / n * 2 * n + i % n;
      const GruGateGradient d = gru_gate_gradient(d_reset[i], dh[i], g.h[i], r[i], u[i], candidate[i]);
      gates[0] = d.r;
      gates[n] = d.u;
      out[1][i] = d.h;
    }
    const bool ok = gemm(out[2], false, g.w_c, true, out[0], g.batch, g.inputs, n) &&
                    gemm_add(out[3], false, g.w_ru, true, out[0], g.batch, g.inputs, 2 * n) &&
                    gemm_add(out[3], false, g.w_ru + g.inputs * 2 * n, true, out[1], g.batch, n, 2 * n);
    return ok ? Status() : g.failed();
  }
};

Status gru_cell_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape h, c.with_rank(1, 2));
  TROUPE_ASSIGN(const PartialShape state, PartialShape::merge(h, PartialShape{x.dim(0), -1}));
  const int64_t units = state.dim(1);
  if (c.num_inputs() == 6) {
    for (int i = 0; i < 4; ++i) c.set_output(i, state);
    return {};
  }
  c.set_output(0, x);
  for (int i : {1, 2}) c.set_output(i, state);
  c.set_output(3, PartialShape{state.dim(0), units < 0 ? -1 : 2 * units});
  return {};
}

Status gru_cell_gradient(GradientContext& c) {
  for (int i = 0; i < 3; ++i)
    if (c.dy(i)) return make_error(Code::kUnimplemented, "has a gradient by output h only, not by output {}", i);
  std::vector<Output> inputs;
  for (int i = 0; i < 6; ++i) inputs.push_back(c.input(i));
  for (int i = 0; i < 3; ++i) inputs.push_back(c.output(i));
  inputs.push_back(c.dy(3));
  const auto by = c.ops("GRUBlockCellGrad", inputs);
  if (by.size() != 4) return {};
  const Output x = c.input(0), h = c.input(1), hr = c.op("Mul", {h, c.output(0)});
  c.set_dx(0, by[0]);
  c.set_dx(1, by[1]);
  c.set_dx(2, product(c, side_by_side(c, x, h), by[3], true, false));
  c.set_dx(3, product(c, side_by_side(c, x, hr), by[2], true, false));
  c.set_dx(4, c.op("BiasAddGrad", {by[3]}));
  c.set_dx(5, c.op("BiasAddGrad", {by[2]}));
  return {};
}

OpDef with(OpDef op, std::initializer_list<const char*> inputs, std::initializer_list<const char*> outputs) {
  for (const char* name : inputs) op.input(std::string(name) + ": T");
  for (const char* name : outputs) op.output(std::string(name) + ": T");
  return op;
}

}  // namespace

void register_recurrent_cell_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string floats = type_attr("T", TypeList<float16, bfloat16, float>{});
  ops.add(with(OpDef("LSTMBlockCell"), {"x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"},
               {"i", "cs", "f", "o", "ci", "co", "h"})
              .attr("forget_bias: float = 1.0")
              .attr("cell_clip: float = 3.0")
              .attr("use_peephole: bool = false")
              .attr(floats)
              .shape(lstm_cell_shape)
              .doc("One step of BlockLSTM, of x [batch, inputs]. The gradient is that by cs and h."),
          gradient(lstm_cell_gradient));
  ops.add(with(OpDef("LSTMBlockCellGrad"),
               {"x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b", "i", "cs", "f", "o", "ci", "co", "cs_grad",
                "h_grad"},
               {"cs_prev_grad", "dicfo", "wci_grad", "wcf_grad", "wco_grad"})
              .attr("use_peephole: bool")
              .attr(floats)
              .shape(lstm_cell_shape)
              .doc("The gradients of LSTMBlockCell by cs_prev, by the sums of its gates and by the peepholes, from its "
                   "results and the gradients by cs and h. Clipping counts as no change."),
          undefined_gradient());
  kernels.add<LstmCellGrad>("LSTMBlockCellGrad", DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
  add_half_kernels<LstmCellGrad>(kernels, "LSTMBlockCellGrad");
  const std::string only = type_attr("T", TypeList<float>{});
  ops.add(with(OpDef("GRUBlockCell"), {"x", "h_prev", "w_ru", "w_c", "b_ru", "b_c"}, {"r", "u", "c", "h"})
              .attr(only)
              .shape(gru_cell_shape)
              .doc("One step of a GRU from x [batch, inputs] and the state h_prev [batch, units]: r and u are the "
                   "logistic functions of [x, h_prev] * w_ru + b_ru, c = tanh([x, h_prev * r] * w_c + b_c), h = u * "
                   "h_prev + (1 - u) * c. The gradient is that by h."),
          gradient(gru_cell_gradient));
  ops.add(with(OpDef("GRUBlockCellGrad"), {"x", "h_prev", "w_ru", "w_c", "b_ru", "b_c", "r", "u", "c", "d_h"},
               {"d_x", "d_h_prev", "d_c_bar", "d_r_bar_u_bar"})
              .attr(only)
              .shape(gru_cell_shape)
              .doc("The gradients of GRUBlockCell by x, by h_prev, by the sum of c and by those of r and u, from its "
                   "results and the gradient by h."),
          undefined_gradient());
  kernels.add<GruCell>("GRUBlockCell", DeviceKind::kCpu, {});
  kernels.add<GruCellGrad>("GRUBlockCellGrad", DeviceKind::kCpu, {});
}

}  // namespace troupe
