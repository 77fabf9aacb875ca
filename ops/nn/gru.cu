// SPDX-License-Identifier: Apache-2.0
// One step of a GRU and its gradient on GPUs, by the products of ops/nn/recurrent_cells.cpp; a thread does what follows
// for one unit.
#include "ops/nn/gru.h"

#include "ops/nn/gpu_products.h"
#include "ops/nn/lstm_steps.h"
#include "ops/nn/recurrent_units.h"
#include "ops/nn/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

struct GruPlan {
  int64_t elements, units;
  KnownDivisor by_units;
  explicit GruPlan(const GruShape& g)
      : elements(g.batch * g.units), units(g.units), by_units(g.units > 0 ? g.units : 1) {}
};
/// Calls f(element, unit, where in a row of two for each unit its first is) for each unit of a batch.
template <class F> __device__ inline void for_each_gru_unit(const GruPlan& p, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < p.elements; e += step) {
    const int64_t row = p.by_units.divide(e), k = e - row * p.units;
    f(e, k, 2 * row * p.units + k);
  }
}

__global__ void gru_gates(float* r, float* u, float* hr, const float* sums, const float* bias, const float* h,
                          GruPlan p) {
  for_each_gru_unit(p, [&](int64_t e, int64_t k, int64_t both) {
    const float reset = fast_math::sigmoid(sums[both] + bias[k]);
    r[e] = reset;
    u[e] = fast_math::sigmoid(sums[both + p.units] + bias[p.units + k]);
    hr[e] = h[e] * reset;
  });
}
/// The candidate comes in place of its sum.
__global__ void gru_states(float* out, float* candidate, const float* bias, const float* h, const float* u, GruPlan p) {
  for_each_gru_unit(p, [&](int64_t e, int64_t k, int64_t) {
    const float c = fast_math::tanh(candidate[e] + bias[k]);
    candidate[e] = c;
    out[e] = gru_state(u[e], h[e], c);
  });
}

__global__ void gru_candidate_gradients(float* out, const float* dh, const float* u, const float* candidate,
                                        GruPlan p) {
  for_each_gru_unit(p,
                    [&](int64_t e, int64_t, int64_t) { out[e] = gru_candidate_gradient(dh[e], u[e], candidate[e]); });
}
__global__ void gru_gate_gradients(float* gates, float* by_state, const float* d_reset, const float* dh, const float* h,
                                   const float* r, const float* u, const float* candidate, GruPlan p) {
  for_each_gru_unit(p, [&](int64_t e, int64_t, int64_t both) {
    const GruGateGradient d = gru_gate_gradient(d_reset[e], dh[e], h[e], r[e], u[e], candidate[e]);
    gates[both] = d.r;
    gates[both + p.units] = d.u;
    by_state[e] = d.h;
  });
}

const float* floats(const Tensor& t, int64_t element = 0) { return static_cast<const float*>(t.address()) + element; }
float* floats(Tensor& t) { return static_cast<float*>(t.mutable_address()); }

class GpuGru final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const GruShape g, GruShape::of(c));
    const gpu::Compute& gpu = *c.device().gpu;
    const Tensor &x = c.input(0), &h = c.input(1), &w_ru = c.input(2), &w_c = c.input(3);
    Tensor out[4];  // r, u, c, h
    for (Tensor& t : out) {
      TROUPE_ASSIGN(t, c.allocate(DType::kFloat32, g.state()));
    }
    const int64_t n = g.units;
    TROUPE_ASSIGN(Tensor hr, c.allocate(DType::kFloat32, g.state()));
    TROUPE_ASSIGN(Tensor sums, c.allocate(DType::kFloat32, {g.batch, 2 * n}));
    if (const GruPlan plan(g); plan.elements > 0) {
      declare_uses(c, {&out[0], &out[1], &out[2], &out[3], &hr, &sums});
      const unsigned blocks = pack_blocks<1>(gpu, plan.elements);
      TROUPE_RETURN_IF_ERROR(multiply(gpu, g, x, h, w_ru, sums, 2 * n));
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, gru_gates, blocks, kElementThreads, 0, floats(out[0]),
                                           floats(out[1]), floats(hr), floats(std::as_const(sums)), floats(c.input(4)),
                                           floats(h), plan));
      TROUPE_RETURN_IF_ERROR(multiply(gpu, g, x, hr, w_c, out[2], n));
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, gru_states, blocks, kElementThreads, 0, floats(out[3]),
                                           floats(out[2]), floats(c.input(5)), floats(h), floats(std::as_const(out[1])),
                                           plan));
    }
    for (int i = 0; i < 4; ++i) c.set_output(i, std::move(out[i]));
    return {};
  }

 private:
  /// out = [left, right] * w, of `columns` columns.
  static Status multiply(const gpu::Compute& gpu, const GruShape& g, const Tensor& left, const Tensor& right,
                         const Tensor& w, Tensor& out, int64_t columns) {
    const GpuProduct first{.dtype = DType::kFloat32, .m = g.batch, .n = columns, .k = g.inputs};
    const GpuProduct second{.dtype = DType::kFloat32, .m = g.batch, .n = columns, .k = g.units, .adds = true};
    TROUPE_RETURN_IF_ERROR(first.run(gpu, left.address(), w.address(), out.mutable_address()));
    return second.run(gpu, right.address(), floats(w, g.inputs * columns), out.mutable_address());
  }
};

class GpuGruGrad final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const GruShape g, GruShape::of(c));
    TROUPE_RETURN_IF_ERROR(check_states(c, 6, 4, g.state()));
    const gpu::Compute& gpu = *c.device().gpu;
    const Tensor &h = c.input(1), &w_ru = c.input(2), &w_c = c.input(3);
    const float *const r = floats(c.input(6)), *const u = floats(c.input(7)), *const candidate = floats(c.input(8)),
                       *const dh = floats(c.input(9));
    const int64_t n = g.units;
    Tensor out[4];  // by x, h_prev, the candidate's sum, the gates' sums
    const Shape shapes[] = {{g.batch, g.inputs}, g.state(), g.state(), {g.batch, 2 * n}};
    for (int i = 0; i < 4; ++i) {
      TROUPE_ASSIGN(out[i], c.allocate(DType::kFloat32, shapes[i]));
    }
    TROUPE_ASSIGN(Tensor d_reset, c.allocate(DType::kFloat32, g.state()));  // by h_prev times r
    declare_uses(c, {&out[0], &out[1], &out[2], &out[3], &d_reset});
    const auto product = [&](int64_t columns, int64_t k, bool adds) {
      return GpuProduct{.dtype = DType::kFloat32, .m = g.batch, .n = columns, .k = k, .tb = true, .adds = adds};
    };
    const GruPlan plan(g);
    const unsigned blocks = pack_blocks<1>(gpu, plan.elements);
    if (plan.elements > 0) {
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, gru_candidate_gradients, blocks, kElementThreads, 0,
                                           floats(out[2]), dh, u, candidate, plan));
      TROUPE_RETURN_IF_ERROR(
          product(n, n, false).run(gpu, out[2].address(), floats(w_c, g.inputs * n), d_reset.mutable_address()));
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, gru_gate_gradients, blocks, kElementThreads, 0, floats(out[3]),
                                           floats(out[1]), floats(std::as_const(d_reset)), dh, floats(h), r, u,
                                           candidate, plan));
    }
    TROUPE_RETURN_IF_ERROR(
        product(g.inputs, n, false).run(gpu, out[2].address(), w_c.address(), out[0].mutable_address()));
    TROUPE_RETURN_IF_ERROR(
        product(g.inputs, 2 * n, true).run(gpu, out[3].address(), w_ru.address(), out[0].mutable_address()));
    TROUPE_RETURN_IF_ERROR(
        product(n, 2 * n, true).run(gpu, out[3].address(), floats(w_ru, g.inputs * 2 * n), out[1].mutable_address()));
    for (int i = 0; i < 4; ++i) c.set_output(i, std::move(out[i]));
    return {};
  }
};

}  // namespace

void register_gru_gpu(KernelRegistry& kernels) {
  const KernelRegistry::Types types = {{"T", {DType::kFloat32}}};
  kernels.add<GpuGru>("GRUBlockCell", DeviceKind::kCuda, types);
  kernels.add<GpuGruGrad>("GRUBlockCellGrad", DeviceKind::kCuda, types);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
