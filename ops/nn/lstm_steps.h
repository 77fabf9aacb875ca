// SPDX-License-Identifier: Apache-2.0
// What kernels of long short-term memories share, of a step or a whole sequence: inputs and gates, of CPUs and GPUs,
// and the loops of CPUs that make all that follows from a row of gates. Implemented in ops/nn/lstm_steps.cpp.
#pragma once
#include <string_view>
#include <utility>

#include "troupe/kernel.h"

namespace troupe {

/// Where each gate is in a row of four: BlockLSTM and LSTMBlockCell have input, cell, forget, output, BlockLSTMV2
/// input, forget, cell, output.
struct GateOrder {
  int64_t cell = 1, forget = 2;
  explicit GateOrder(std::string_view op) {
    if (op.ends_with("V2")) std::swap(cell, forget);
  }
};

/// Sizes of the inputs of the ops, checked.
struct LstmShape {
  bool cell = false;  // the op is of one step, whose number is no dimension
  int64_t steps = 1, most_steps = 1, batch = 0, inputs = 0, units = 0;

  /// Inputs of `op` from the first: seq_len_max, which is in the host's memory, unless it is a cell, then x, cs_prev,
  /// h_prev, w, wci, wcf, wco, b. Errors: shapes that do not fit.
  static Result<LstmShape> of(const KernelContext& c, std::string_view op, bool peephole);
  /// The number of input x.
  int first() const { return cell ? 0 : 1; }
  /// The shape of the results.
  Shape results() const { return cell ? Shape{batch, units} : Shape{most_steps, batch, units}; }
  /// Elements of one step's state.
  int64_t state() const { return batch * units; }
};

/// Errors: one of `count` inputs from `first` on has another shape.
Status check_states(const KernelContext& c, int first, int count, const Shape& shape);

/// Inputs of a CPU's kernel. Peepholes are nullptr where there are none.
struct Lstm : LstmShape {
  const float *x = nullptr, *c0 = nullptr, *h0 = nullptr, *w = nullptr, *b = nullptr;
  const float *wci = nullptr, *wcf = nullptr, *wco = nullptr;

  /// Errors: as of LstmShape.
  static Result<Lstm> of(const KernelContext& c, std::string_view op, bool peephole);
  const float* recurrent() const { return w + inputs * 4 * units; }
};

/// Results of one step, [batch, units] each; i, f, o, ci and co are all there, or all nullptr: not wanted.
struct LstmStates {
  const float* c_before;
  float *i, *cs, *f, *o, *ci, *co, *h;
};
/// Makes the results of a step from the sums of products, `gates` [batch, 4 * units]. `clip` is infinite for none.
void lstm_forward(const KernelContext& c, const Lstm& l, GateOrder order, const float* gates, const LstmStates& step,
                  float forget_bias, float clip);

/// Some rows and units of a step, and their sums of products: rows of four gates, `gate` elements each.
struct LstmPart {
  int64_t first_row, rows, first_unit, units;
  const float* sums;
  int64_t gate;
};
/// The same for a part of a step, by the calling thread.
void lstm_forward_part(const Lstm& l, GateOrder order, const LstmPart& part, const LstmStates& step, float forget_bias,
                       float clip);

/// Results of one step and the gradients by them, [batch, units] each.
struct LstmGradients {
  const float* c_before;
  const float *i, *f, *o, *ci, *co;
  const float *dc, *dh;   // by the outputs
  const float* dh_after;  // through the step after
  float* dc_after;        // the same of the cell; becomes that of the step before
};
/// Makes the gradients by the sums of products, `gates` [batch, 4 * units].
void lstm_backward(const KernelContext& c, const Lstm& l, GateOrder order, const LstmGradients& step, float* gates);

/// Adds the gradients by peepholes of all steps to wci, wcf and wco, from the cells and the gradients by the sums.
void lstm_peephole_gradients(const Lstm& l, GateOrder order, const float* cs, const float* gates, float* wci,
                             float* wcf, float* wco);

/// sum += x.
void add_to(float* sum, const float* x, int64_t n);

/// The error of a library that multiplies.
Error product_failed(const Lstm& l);

}  // namespace troupe
