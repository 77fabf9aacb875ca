// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates of rows of variables on GPUs: ResourceSparseApply..., by the rules of the CPU's, a row that
// comes several times in the order of the indices.
#include "ops/parts/indexed_rows.cuh"
#include "ops/training/gpu_rules.cuh"
#include "ops/training/proximal_rules.h"
#include "ops/training/register.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

template <class Rule, class T> __global__ void update_rows(GpuUpdate u, const __grid_constant__ IndexedRows rows) {
  Arithmetic<T> s[Rule::kScalars];
  read_scalars<Rule, T>(u, s);
  const T* const gradient = static_cast<const T*>(u.gradient);
  for_each_part(rows, [&](int64_t owner, int64_t column) {
    const bool there = column < rows.width;
    for_each_named(
        rows, owner, [&](int64_t i) { return there ? gradient[i * rows.width + column] : T{}; },
        [&](int64_t row, T g) {
          if (!there) return;
          T value[Rule::kVariables];
          T* at[Rule::kVariables];
          for (int k = 0; k < Rule::kVariables; ++k) {
            value[k] = static_cast<const T*>(u.to[k])[row * rows.width + column];
            at[k] = &value[k];
          }
          Rule::run(at, &g, s, u.flag, 1);
          for (int k = 0; k < Rule::kVariables; ++k) static_cast<T*>(u.to[k])[row * rows.width + column] = value[k];
        });
  });
}

template <class Rule, class T>
Status launch_rows(const gpu::Compute& gpu, const GpuUpdate& update, const GpuRows& named) {
  const IndexedRows rows = index_rows(gpu.card, *named.indices, {&named.rows, 1}, named.indices->elements(), update.n);
  return TROUPE_LAUNCH(gpu.stream, (update_rows<Rule, T>), indexed_blocks(gpu.card, rows), indexed_threads(), 0, update,
                       rows);
}

template <class Rule, class... T> void add_rule(KernelRegistry& kernels, const std::string& name, TypeList<T...>) {
  (add_gpu_update(kernels, "ResourceSparseApply" + name, "T",
                  {dtype_of<T>, Rule::kVariables, Rule::kScalars, Rule::kGradient, step_of<Rule>(), Rule::kFlag,
                   nullptr, launch_rows<Rule, T>}),
   ...);
}

}  // namespace

void register_sparse_updates_gpu(KernelRegistry& kernels) {
  const FloatTypes floats;
  add_rule<MomentumRule>(kernels, "Momentum", floats);
  add_rule<KerasMomentumRule>(kernels, "KerasMomentum", floats);
  add_rule<AdagradRule>(kernels, "Adagrad", floats);
  add_rule<AdagradV2Rule>(kernels, "AdagradV2", floats);
  add_rule<AdagradDaRule>(kernels, "AdagradDA", floats);
  add_rule<RmsPropRowsRule>(kernels, "RMSProp", floats);
  add_rule<CenteredRmsPropRowsRule>(kernels, "CenteredRMSProp", floats);
  add_rule<AdadeltaRule>(kernels, "Adadelta", floats);
  add_rule<FtrlRule>(kernels, "Ftrl", floats);
  add_rule<FtrlV2Rule>(kernels, "FtrlV2", floats);
  add_rule<ProximalGradientDescentRule>(kernels, "ProximalGradientDescent", floats);
  add_rule<ProximalAdagradRule>(kernels, "ProximalAdagrad", floats);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
