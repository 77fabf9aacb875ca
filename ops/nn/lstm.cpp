// SPDX-License-Identifier: Apache-2.0
// A sequence, or one step of it, through a long short-term memory in one node, and the gradient of a sequence; that of
// a step is in recurrent_cells.cpp.
//
// The products with the input are one for all steps; those with the state add to them step by step, and one loop makes
// all that follows from a row of gates. With few rows a step is bound by reading the weights: then each thread takes
// some units, whose weights lie together (gate_panels.h), and the threads meet once a step. The gradient goes back the
// same way: the gates' gradients first, step by step, then those of weights and input by one product each.
#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "devices/parallel.h"
#include "ops/nn/gate_panels.h"
#include "ops/nn/lstm_steps.h"
#include "ops/nn/packed_product.h"
#include "ops/nn/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/steady_tensor.h"
#include "ops/parts/through_float32.h"
#include "ops/parts/type_dispatch.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// Rows of a step with fewer of which reading the weights takes longer than multiplying by them, and rows of all steps
/// from which on laying them out for once is worth it. Without gates to write panels are faster for more rows, too, and
/// with them where oneDNN's products are slower.
constexpr int64_t kManyRows = 8, kManyRowsOfStates = 65, kPanelRows = 32;
/// Multiplications of a step that are worth a second thread, which waits for the first after each.
constexpr int64_t kStepGrain = 1 << 17;
/// Rows of the input that stay in the second-level cache while all panels are gone through.
constexpr int64_t kRowsAtOnce = 256;

class BlockLstm final : public ComputeKernel {
 public:
  /// Of _BlockLSTMStates too, which gives cs and h of what its attribute `op` says.
  explicit BlockLstm(const KernelInit& init)
      : states_only_(init.op == "_BlockLSTMStates"), op_(states_only_ ? init.attr<std::string>("op") : init.op),
        order_(op_), peephole_(init.attr<bool>("use_peephole")), clip_(init.attr<float>("cell_clip")) {
    if (const float* bias = init.attrs->get<float>("forget_bias")) forget_bias_ = *bias;
    if (!(clip_ > 0)) clip_ = INFINITY;
  }

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Lstm l, Lstm::of(c, op_, peephole_));
    Results out = {};
    for (int i = 0, port = 0; i < 7; ++i) {
      if (states_only_ && i != 1 && i != 6) continue;
      TROUPE_ASSIGN(Tensor t, c.allocate(DType::kFloat32, l.results()));
      out[i] = t.mutable_data<float>();
      std::fill_n(out[i] + l.steps * l.state(), (l.most_steps - l.steps) * l.state(), 0.f);
      c.set_output(port++, std::move(t));
    }
    TROUPE_ASSIGN(const Tensor panels, panels_for(c, l));
    return panels.defined() ? by_panels(c, l, panels.data<float>(), out) : by_rows(c, l, out);
  }

 private:
  using Results = std::array<float*, 7>;  // i, cs, f, o, ci, co, h; nullptr: not wanted

  /// The results of step t.
  static LstmStates step(const Lstm& l, const Results& out, int64_t t) {
    const auto at = [&](int i) { return out[i] ? out[i] + t * l.state() : nullptr; };
    return {.c_before = t > 0 ? at(1) - l.state() : l.c0,
            .i = at(0),
            .cs = at(1),
            .f = at(2),
            .o = at(3),
            .ci = at(4),
            .co = at(5),
            .h = at(6)};
  }
  /// What step t has from the one before.
  static const float* state(const Lstm& l, const Results& out, int64_t t) {
    return t > 0 ? out[6] + (t - 1) * l.state() : l.h0;
  }

  /// The weights in panels where that pays; kept while they stay the same. Else an undefined tensor. Shapes alone
  /// decide which: panels add up in another order, and a step that is made again has the same bits.
  Result<Tensor> panels_for(const KernelContext& c, const Lstm& l) {
    const int64_t many = states_only_ || panels_beat_onednn() ? kManyRowsOfStates : kManyRows;
    if (l.batch >= many || l.steps * l.batch < kPanelRows) return Tensor();
    const SteadyTensor::Seen seen = steady_.see(c.input(l.first() + 3));
    const auto lay_out = [&] { return gate_panels(c, l.w, l.inputs + l.units, l.units); };
    const std::lock_guard lock(mutex_);
    if (seen.let_go) kept_ = {};
    if (seen.version == 0) return lay_out();
    if (!kept_.defined() || kept_version_ != seen.version) {
      TROUPE_ASSIGN(kept_, lay_out());
      kept_version_ = seen.version;
    }
    return kept_;
  }

  /// Each thread takes some panels. The first phase makes their products with the input, for all steps; in each one
  /// after, a step of their units is made. Every other step goes through the panels backwards, so that it begins with
  /// those which the step before left in the cache.
  Status by_panels(const KernelContext& c, const Lstm& l, const float* weights, const Results& out) const {
    const int64_t panels = panels_of(l.units), rows = l.steps * l.batch, width = panel_columns();
    TROUPE_ASSIGN(Tensor all_sums, c.allocate(DType::kFloat32, {panels, rows, width}));
    float* sums = all_sums.mutable_data<float>();
    const auto of_panel = [&](int64_t panel, int64_t row) { return sums + (panel * rows + row) * width; };
    const auto weights_of = [&](int64_t panel, int64_t row) {
      return weights + (panel * (l.inputs + l.units) + row) * width;
    };
    const auto make_step = [&](int64_t t, int64_t panel) {
      float* here = of_panel(panel, t * l.batch);
      multiply_panel(state(l, out, t), l.batch, l.units, weights_of(panel, l.inputs), width, true, here);
      const int64_t first = panel * panel_units();
      const LstmPart part = {.first_row = 0,
                             .rows = l.batch,
                             .first_unit = first,
                             .units = std::min(panel_units(), l.units - first),
                             .sums = here,
                             .gate = panel_units()};
      lstm_forward_part(l, order_, part, step(l, out, t), forget_bias_, clip_);
    };
    const int64_t per_panel = std::max<int64_t>(l.batch * l.units * width, 1);
    const auto take_input = [&](int64_t row, int64_t panel) {
      multiply_panel(l.x + row * l.inputs, std::min(kRowsAtOnce, rows - row), l.inputs, weights_of(panel, 0), width,
                     false, of_panel(panel, row));
    };
    parallel_phases(c.threads(), 1 + l.steps, panels, kStepGrain / per_panel + 1,
                    [&](int64_t phase, int64_t begin, int64_t end) {
                      if (phase == 0)
                        for (int64_t row = 0; row < rows; row += kRowsAtOnce)
                          for (int64_t panel = begin; panel < end; ++panel) take_input(row, panel);
                      else
                        for (int64_t i = begin; i < end; ++i) make_step(phase - 1, phase % 2 ? i : begin + end - 1 - i);
                    });
    return {};
  }

  Status by_rows(const KernelContext& c, const Lstm& l, const Results& out) const {
    TROUPE_ASSIGN(Tensor sums, c.allocate(DType::kFloat32, {l.steps, l.batch, 4 * l.units}));
    float* gates = sums.mutable_data<float>();
    if (!gemm(l.x, false, l.w, false, gates, l.steps * l.batch, 4 * l.units, l.inputs)) return product_failed(l);
    TROUPE_ASSIGN(const PackedProduct add_recurrent,
                  packed_product(c, l.recurrent(), false, true, l.batch, 4 * l.units, l.units, l.steps));
    for (int64_t t = 0; t < l.steps; ++t, gates += 4 * l.state()) {
      if (!add_recurrent(state(l, out, t), gates)) return product_failed(l);
      lstm_forward(c, l, order_, gates, step(l, out, t), forget_bias_, clip_);
    }
    return {};
  }

  const bool states_only_;
  const std::string op_;
  const GateOrder order_;
  const bool peephole_;
  float clip_, forget_bias_ = 0;
  SteadyTensor steady_{false};  // the weights
  std::mutex mutex_;
  Tensor kept_;  // guarded by mutex_, as is its version: panels of the steady weights
  int64_t kept_version_ = 0;
};

class BlockLstmGrad final : public ComputeKernel {
 public:
  explicit BlockLstmGrad(const KernelInit& init)
      : op_(init.op), order_(init.op), peephole_(init.attr<bool>("use_peephole")) {}

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Lstm l, Lstm::of(c, op_, peephole_));
    const float* kept[9];  // i, cs, f, o, ci, co, h and the gradients by cs and h
    TROUPE_RETURN_IF_ERROR(check_states(c, 9, 9, l.results()));
    for (int i = 0; i < 9; ++i) kept[i] = c.input(9 + i).data<float>();
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
    if (peephole_) lstm_peephole_gradients(l, order_, kept[1], gates, out[4], out[5], out[6]);
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
      const int64_t at = t * l.state();
      const LstmGradients step = {.c_before = t > 0 ? kept[1] + at - l.state() : l.c0,
                                  .i = kept[0] + at,
                                  .f = kept[2] + at,
                                  .o = kept[3] + at,
                                  .ci = kept[4] + at,
                                  .co = kept[5] + at,
                                  .dc = kept[7] + at,
                                  .dh = kept[8] + at,
                                  .dh_after = dh,
                                  .dc_after = dc};
      lstm_backward(c, l, order_, step, gates + 4 * at);
      if (!by_state(gates + 4 * at, dh)) return product_failed(l);
    }
    return {};
  }

  const std::string op_;
  const GateOrder order_;
  const bool peephole_;
};

// -- registration -----------------------------------------------------------------------------------------------------

Status lstm_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(1, 3));
  TROUPE_ASSIGN(const PartialShape b, c.with_rank(8, 1));
  const int64_t units = b.dim(0) < 0 ? -1 : b.dim(0) / 4;
  for (int i = 0; i < 7; ++i) c.set_output(i, PartialShape{x.dim(0), x.dim(1), units});
  return {};
}

Status lstm_states_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank(1, 3));
  TROUPE_ASSIGN(const PartialShape b, c.with_rank(8, 1));
  for (int i = 0; i < 2; ++i) c.set_output(i, PartialShape{x.dim(0), x.dim(1), b.dim(0) < 0 ? -1 : b.dim(0) / 4});
  return {};
}

Status lstm_grad_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 3));
  for (int i = 0; i < 8; ++i) c.set_output(i, c.input(i + 1));
  return {};
}

Status lstm_gradient(GradientContext& c) {
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

/// The products of [x, h] of every step with the weights [inputs + units, 4 * units]: `per_weight` operations for each
/// weight and row. Backward there are two as large, by the weights and by [x, h].
CostFn lstm_cost(int per_weight) {
  return [per_weight](const CostContext& c) -> NodeCost {
    const double rows = c.input_size(1, 0) * c.input_size(1, 1);
    return {per_weight * rows * c.input_elements(4), c.all_bytes()};
  };
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
                .shape(lstm_shape)
                .cost(lstm_cost(2))
                .doc(fmt::format(
                    "A sequence x [steps, batch, inputs] through an LSTM that begins with the cell cs_prev and the "
                    "result h_prev [batch, units]. For each step the gates {} are [x, h] times w [inputs + units, 4 * "
                    "units] plus b, plus wci, wcf and wco times the cell with use_peephole; with i, f, o their "
                    "logistic functions and ci the tanh of the cell's, cs = ci * i + cs * f, clipped to [-cell_clip, "
                    "cell_clip] where that is positive, co = tanh(cs), h = co * o.{} Steps from seq_len_max on are 0. "
                    "The gradient is that by cs and h.",
                    second ? "i, f, ci, o" : "i, ci, f, o", second ? "" : " forget_bias is added to f's sum.")),
            gradient(lstm_gradient));
    OpDef backward = with_inputs(OpDef(second ? "BlockLSTMGradV2" : "BlockLSTMGrad"));
    for (const char* name : {"i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"})
      backward.input(std::string(name) + ": T");
    for (const char* name : {"x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"})
      backward.output(std::string(name) + "_grad: T");
    ops.add(std::move(backward)
                .attr("use_peephole: bool")
                .attr(floats)
                .shape(lstm_grad_shape)
                .cost(lstm_cost(4))
                .doc(fmt::format("The gradients of {} by its inputs, from its results and the gradients by cs and h. "
                                 "Clipping counts as no change.",
                                 second ? "BlockLSTMV2" : "BlockLSTM")),
            undefined_gradient());
  }
  OpDef states("_BlockLSTMStates");
  states.input("seq_len_max: int64");
  for (const char* name : {"x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"})
    states.input(std::string(name) + ": float32");
  ops.add(std::move(states)
              .output("cs: float32")
              .output("h: float32")
              .attr("op: {'BlockLSTM', 'BlockLSTMV2'}")
              .attr("forget_bias: float = 0.0")
              .attr("cell_clip: float = 0.0")
              .attr("use_peephole: bool = false")
              .shape(lstm_states_shape)
              .cost(lstm_cost(2))
              .doc("The outputs cs and h of the BlockLSTM or BlockLSTMV2 that `op` names. A pass makes it where nobody "
                   "reads the others."),
          not_differentiable("a pass makes it, in steps without gradients"));
  kernels.add<BlockLstm>("_BlockLSTMStates", DeviceKind::kCpu, {});
  for (const char* op : {"BlockLSTM", "BlockLSTMV2", "LSTMBlockCell"}) {
    kernels.add<BlockLstm>(op, DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
    add_half_kernels<BlockLstm>(kernels, op);
  }
  for (const char* op : {"BlockLSTMGrad", "BlockLSTMGradV2"}) {
    kernels.add<BlockLstmGrad>(op, DeviceKind::kCpu, {{"T", {DType::kFloat32}}});
    add_half_kernels<BlockLstmGrad>(kernels, op);
  }
}

}  // namespace troupe
