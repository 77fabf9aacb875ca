// SPDX-License-Identifier: Apache-2.0
// What outlives a step: variables, queues, tables, accumulators, locks, and their checkpoints.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

struct GpuGather;   // ops/array/gather.h
struct GpuScatter;  // ops/parts/scatter.h

/// Registers all of them, by calling each of those below.
void register_state_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_accumulator_ops(OpRegistry&, KernelRegistry&);
void register_barrier_ops(OpRegistry&, KernelRegistry&);
void register_event_count_ops(OpRegistry&, KernelRegistry&);
void register_mutex_ops(OpRegistry&, KernelRegistry&);
void register_queue_ops(OpRegistry&, KernelRegistry&);
void register_resource_gather_ops(OpRegistry&, KernelRegistry&);
void register_resource_scatter_ops(OpRegistry&, KernelRegistry&);
void register_save_restore_ops(OpRegistry&, KernelRegistry&);
void register_staging_map_ops(OpRegistry&, KernelRegistry&);
void register_staging_ops(OpRegistry&, KernelRegistry&);
void register_table_ops(OpRegistry&, KernelRegistry&);
void register_variable_ops(OpRegistry&, KernelRegistry&);
void register_warm_start_ops(OpRegistry&, KernelRegistry&);

// Kernels for variables in a GPU's memory, which launch by what files of kernels give.
void register_resource_gather_gpu(KernelRegistry&, Status (*launch)(const GpuGather&));
void register_resource_scatter_gpu(KernelRegistry&, Status (*launch)(const GpuScatter&));

}  // namespace troupe
