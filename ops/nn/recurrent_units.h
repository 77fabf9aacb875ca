// SPDX-License-Identifier: Apache-2.0
// What a unit of a recurrent network does in one step, and back: for the loops of CPUs and the threads of GPUs.
#pragma once
#include "base/host_device.h"
#include "ops/parts/fast_math.h"

namespace troupe {

/// Of the four gates of an LSTM's unit: sums of products and biases, or gradients by these.
struct LstmGates {
  float in, cell, forget, out;
};
/// What the unit's gates weigh its cell by.
struct LstmPeepholes {
  float in = 0, forget = 0, out = 0;
};
/// The unit's results.
struct LstmUnit {
  float i, cs, f, o, ci, co, h;
};

/// `before` is the cell; clip is infinite for none.
template <bool kPeephole>
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline LstmUnit lstm_unit(LstmGates sum, float before, LstmPeepholes w,
                                                                    float clip) {
  if constexpr (kPeephole) {
    sum.in += before * w.in;
    sum.forget += before * w.forget;
  }
  LstmUnit u;
  u.i = fast_math::sigmoid(sum.in);
  u.f = fast_math::sigmoid(sum.forget);
  u.ci = fast_math::tanh(sum.cell);
  const float cs = u.ci * u.i + before * u.f;
  u.cs = cs > clip ? clip : cs < -clip ? -clip : cs;
  if constexpr (kPeephole) sum.out += u.cs * w.out;
  u.o = fast_math::sigmoid(sum.out);
  u.co = fast_math::tanh(u.cs);
  u.h = u.co * u.o;
  return u;
}

/// The gradients by the unit's sums and by its cell before the step.
struct LstmUnitGradient {
  LstmGates sums;
  float before;
};
/// From the unit's results but cs and h, and the gradients by these two: of the step, and (dc_after) through the next.
template <bool kPeephole>
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline LstmUnitGradient lstm_unit_gradient(const LstmUnit& u, float before,
                                                                                     LstmPeepholes w, float dh,
                                                                                     float dc_here, float dc_after) {
  LstmUnitGradient d;
  d.sums.out = u.o * (1 - u.o) * dh * u.co;
  float dc = (1 - u.co * u.co) * dh * u.o + dc_here + dc_after;
  if constexpr (kPeephole) dc += d.sums.out * w.out;
  d.sums.in = u.i * (1 - u.i) * dc * u.ci;
  d.sums.forget = u.f * (1 - u.f) * dc * before;
  d.sums.cell = (1 - u.ci * u.ci) * dc * u.i;
  d.before = dc * u.f;
  if constexpr (kPeephole) d.before += d.sums.in * w.in + d.sums.forget * w.forget;
  return d;
}

/// The new state of a GRU's unit from its update u, its state h and its candidate.
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float gru_state(float u, float h, float candidate) {
  return u * h + (1 - u) * candidate;
}
/// The gradient by the candidate's sum, from dh, that by the new state.
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float gru_candidate_gradient(float dh, float u, float candidate) {
  return dh * (1 - u) * (1 - candidate * candidate);
}
/// The gradients by the sums of reset and update, and by the state but for what these two bring it; `d_reset` is that
/// by the state times the reset.
struct GruGateGradient {
  float r, u, h;
};
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline GruGateGradient gru_gate_gradient(float d_reset, float dh, float h,
                                                                                   float r, float u, float candidate) {
  return {d_reset * h * r * (1 - r), dh * (h - candidate) * u * (1 - u), d_reset * r + dh * u};
}

}  // namespace troupe
