// SPDX-License-Identifier: Apache-2.0
// Inputs and steps of long short-term memories. Sources: Hochreiter and Schmidhuber, "Long short-term memory", 1997;
// Gers and Schmidhuber, "Recurrent nets that time and count", 2000, for peepholes.
#include "ops/nn/lstm_steps.h"

#include "devices/parallel.h"
#include "ops/nn/recurrent_units.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// Some units of rows of one step.
struct ForwardRows {
  const float *in_gate, *cell_gate, *forget_gate, *out_gate;  // sums of products, `row_of_sums` apart
  const float *in_bias, *cell_bias, *forget_bias, *out_bias;
  const float *wci, *wcf, *wco;
  const float* c_before;                // like the results `row_of_units` apart
  float *i, *cs, *f, *o, *ci, *co, *h;  // all, or cs and h alone
  int64_t rows, row_of_sums, row_of_units;
};

/// Row `row`, of n units.
template <bool kPeephole, bool kGates>
[[gnu::always_inline]] inline void forward_units(const ForwardRows& r, int64_t row, int64_t n, float more_forget,
                                                 float clip) {
  const int64_t sum = row * r.row_of_sums, at = row * r.row_of_units;
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const LstmGates sums = {.in = r.in_gate[sum + k] + r.in_bias[k],
                            .cell = r.cell_gate[sum + k] + r.cell_bias[k],
                            .forget = r.forget_gate[sum + k] + r.forget_bias[k] + more_forget,
                            .out = r.out_gate[sum + k] + r.out_bias[k]};
    LstmPeepholes w;
    if constexpr (kPeephole) w = {r.wci[k], r.wcf[k], r.wco[k]};
    const LstmUnit u = lstm_unit<kPeephole>(sums, r.c_before[at + k], w, clip);
    r.cs[at + k] = u.cs;
    r.h[at + k] = u.h;
    if constexpr (kGates) {
      r.i[at + k] = u.i;
      r.f[at + k] = u.f;
      r.o[at + k] = u.o;
      r.ci[at + k] = u.ci;
      r.co[at + k] = u.co;
    }
  }
}

template <bool kPeephole, bool kGates>
[[gnu::always_inline]] inline void forward_rows(const ForwardRows& r, int64_t n, float more_forget, float clip) {
  for (int64_t row = 0; row < r.rows; ++row)
    if (n == 16) forward_units<kPeephole, kGates>(r, row, 16, more_forget, clip);  // units of a panel, without rests
    else if (n == 12) forward_units<kPeephole, kGates>(r, row, 12, more_forget, clip);
    else forward_units<kPeephole, kGates>(r, row, n, more_forget, clip);
}

[[gnu::always_inline]] inline void forward_rows_of(const ForwardRows& r, int64_t n, float more_forget, float clip) {
  if (r.wci && r.i) forward_rows<true, true>(r, n, more_forget, clip);
  else if (r.wci) forward_rows<true, false>(r, n, more_forget, clip);
  else if (r.i) forward_rows<false, true>(r, n, more_forget, clip);
  else forward_rows<false, false>(r, n, more_forget, clip);
}

TROUPE_SIMD_CLONES void forward_rows_by_clone(const ForwardRows& r, int64_t n, float more_forget, float clip) {
  forward_rows_of(r, n, more_forget, clip);
}

/// The clone for AVX2 does without.
TROUPE_AVX2_AND_FMA void forward_rows_fma(const ForwardRows& r, int64_t n, float more_forget, float clip) {
  forward_rows_of(r, n, more_forget, clip);
}

void forward_rows(const ForwardRows& r, int64_t n, float more_forget, float clip) {
  (has_avx2_and_fma() && !has_avx512() ? forward_rows_fma : forward_rows_by_clone)(r, n, more_forget, clip);
}

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
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const LstmUnit u = {.i = r.i[k], .cs = 0, .f = r.f[k], .o = r.o[k], .ci = r.ci[k], .co = r.co[k], .h = 0};
    LstmPeepholes w;
    if constexpr (kPeephole) w = {r.wci[k], r.wcf[k], r.wco[k]};
    const LstmUnitGradient d =
        lstm_unit_gradient<kPeephole>(u, r.c_before[k], w, r.dh[k] + r.dh_after[k], r.dc[k], r.dc_after[k]);
    r.in_gate[k] = d.sums.in;
    r.cell_gate[k] = d.sums.cell;
    r.forget_gate[k] = d.sums.forget;
    r.out_gate[k] = d.sums.out;
    r.dc_after[k] = d.before;
  }
}

TROUPE_SIMD_CLONES void backward_row(const BackwardRow& r, int64_t n) {
  if (r.wci) backward_units<true>(r, n);
  else backward_units<false>(r, n);
}

TROUPE_SIMD_CLONES void add_product_to(float* sum, const float* x, const float* y, int64_t n) {
  for (int64_t k = 0; k < n; ++k) sum[k] += x[k] * y[k];
}

/// Calls f(begin, end) on rows of a step.
void some_rows(const KernelContext& c, const Lstm& l, RangeFunction f) {
  parallel_for(c.threads(), l.batch, kDearGrain / std::max<int64_t>(l.units, 1) + 1, f);
}

}  // namespace

Result<LstmShape> LstmShape::of(const KernelContext& c, std::string_view op, bool peephole) {
  LstmShape l;
  l.cell = op.starts_with("LSTMBlockCell");
  const int first = l.first(), rank = l.cell ? 2 : 3;
  const Tensor &x = c.input(first), &b = c.input(first + 7);
  if (x.rank() != rank)
    return invalid_argument("x must have shape {}, not {}", l.cell ? "[batch, inputs]" : "[steps, batch, inputs]",
                            x.shape().str());
  if (b.rank() != 1 || b.dim(0) % 4 != 0)
    return invalid_argument("b must have shape [4 * units], not {}", b.shape().str());
  l.batch = x.dim(-2);
  l.inputs = x.dim(-1);
  l.units = b.dim(0) / 4;
  if (!l.cell) {
    const Tensor& length = c.input(0);
    if (length.elements() != 1) return invalid_argument("seq_len_max must be a scalar, not {}", length.shape().str());
    l.most_steps = x.dim(0);
    l.steps = length.data<int64_t>()[0];
    if (l.steps < 0 || l.steps > l.most_steps)
      return invalid_argument("seq_len_max is {}, and x has {} steps", l.steps, l.most_steps);
  }
  const auto expect = [&](int i, const char* name, const Shape& shape) -> Status {
    if (c.input(first + i).shape() == shape) return {};
    return invalid_argument("{} must have shape {}, not {}", name, shape.str(), c.input(first + i).shape().str());
  };
  TROUPE_RETURN_IF_ERROR(expect(1, "cs_prev", {l.batch, l.units}));
  TROUPE_RETURN_IF_ERROR(expect(2, "h_prev", {l.batch, l.units}));
  TROUPE_RETURN_IF_ERROR(expect(3, "w", {l.inputs + l.units, 4 * l.units}));
  if (peephole) {
    TROUPE_RETURN_IF_ERROR(expect(4, "wci", {l.units}));
    TROUPE_RETURN_IF_ERROR(expect(5, "wcf", {l.units}));
    TROUPE_RETURN_IF_ERROR(expect(6, "wco", {l.units}));
  }
  return l;
}

Status check_states(const KernelContext& c, int first, int count, const Shape& shape) {
  for (int i = first; i < first + count; ++i)
    if (c.input(i).shape() != shape)
      return invalid_argument("input {} must have shape {}, not {}", i, shape.str(), c.input(i).shape().str());
  return {};
}

Result<Lstm> Lstm::of(const KernelContext& c, std::string_view op, bool peephole) {
  Lstm l;
  TROUPE_ASSIGN(static_cast<LstmShape&>(l), LstmShape::of(c, op, peephole));
  const auto input = [&](int i) { return c.input(l.first() + i).data<float>(); };
  l.x = input(0);
  l.c0 = input(1);
  l.h0 = input(2);
  l.w = input(3);
  if (peephole) {
    l.wci = input(4);
    l.wcf = input(5);
    l.wco = input(6);
  }
  l.b = input(7);
  return l;
}

void lstm_forward_part(const Lstm& l, GateOrder order, const LstmPart& part, const LstmStates& step, float forget_bias,
                       float clip) {
  const float *sums = part.sums, *bias = l.b + part.first_unit;
  const auto peephole = [&](const float* w) { return w ? w + part.first_unit : nullptr; };
  const int64_t to = part.first_row * l.units + part.first_unit;
  const auto result = [&](float* x) { return x ? x + to : nullptr; };
  const ForwardRows r = {.in_gate = sums,
                         .cell_gate = sums + order.cell * part.gate,
                         .forget_gate = sums + order.forget * part.gate,
                         .out_gate = sums + 3 * part.gate,
                         .in_bias = bias,
                         .cell_bias = bias + order.cell * l.units,
                         .forget_bias = bias + order.forget * l.units,
                         .out_bias = bias + 3 * l.units,
                         .wci = peephole(l.wci),
                         .wcf = peephole(l.wcf),
                         .wco = peephole(l.wco),
                         .c_before = step.c_before + to,
                         .i = result(step.i),
                         .cs = step.cs + to,
                         .f = result(step.f),
                         .o = result(step.o),
                         .ci = result(step.ci),
                         .co = result(step.co),
                         .h = step.h + to,
                         .rows = part.rows,
                         .row_of_sums = 4 * part.gate,
                         .row_of_units = l.units};
  forward_rows(r, part.units, forget_bias, clip);
}

void lstm_forward(const KernelContext& c, const Lstm& l, GateOrder order, const float* gates, const LstmStates& step,
                  float forget_bias, float clip) {
  const int64_t n = l.units;
  some_rows(c, l, [&](int64_t begin, int64_t end) {
    const LstmPart part = {
        .first_row = begin, .rows = end - begin, .first_unit = 0, .units = n, .sums = gates + 4 * begin * n, .gate = n};
    lstm_forward_part(l, order, part, step, forget_bias, clip);
  });
}

void lstm_backward(const KernelContext& c, const Lstm& l, GateOrder order, const LstmGradients& step, float* gates) {
  const int64_t n = l.units;
  const auto make_row = [&](int64_t row) {
    const int64_t in = row * n;
    float* sum = gates + 4 * in;
    const BackwardRow r = {.wci = l.wci,
                           .wcf = l.wcf,
                           .wco = l.wco,
                           .c_before = step.c_before + in,
                           .i = step.i + in,
                           .f = step.f + in,
                           .o = step.o + in,
                           .ci = step.ci + in,
                           .co = step.co + in,
                           .dc = step.dc + in,
                           .dh = step.dh + in,
                           .dh_after = step.dh_after + in,
                           .dc_after = step.dc_after + in,
                           .in_gate = sum,
                           .cell_gate = sum + order.cell * n,
                           .forget_gate = sum + order.forget * n,
                           .out_gate = sum + 3 * n};
    backward_row(r, n);
  };
  some_rows(c, l, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) make_row(row);
  });
}

void lstm_peephole_gradients(const Lstm& l, GateOrder order, const float* cs, const float* gates, float* wci,
                             float* wcf, float* wco) {
  const int64_t n = l.units;
  for (int64_t row = 0; row < l.steps * l.batch; ++row) {
    const float* before = row < l.batch ? l.c0 + row * n : cs + (row - l.batch) * n;
    const float* of_row = gates + 4 * row * n;
    add_product_to(wci, of_row, before, n);
    add_product_to(wcf, of_row + order.forget * n, before, n);
    add_product_to(wco, of_row + 3 * n, cs + row * n, n);
  }
}

TROUPE_SIMD_CLONES void add_to(float* sum, const float* x, int64_t n) {
  for (int64_t k = 0; k < n; ++k) sum[k] += x[k];
}

Error product_failed(const Lstm& l) {
  return make_error(Code::kInternal, "the product of [{},{}] and [{},{}] failed", l.batch, l.units, l.units,
                    4 * l.units);
}

}  // namespace troupe
