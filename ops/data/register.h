// SPDX-License-Identifier: Apache-2.0
// Datasets as values of a graph, and the iterators over them: what tf.data makes.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_data_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_data_csv_ops(OpRegistry&, KernelRegistry&);
void register_data_file_ops(OpRegistry&, KernelRegistry&);
void register_data_function_ops(OpRegistry&, KernelRegistry&);
void register_data_group_ops(OpRegistry&, KernelRegistry&);
void register_data_iterator_ops(OpRegistry&, KernelRegistry&);
void register_data_join_ops(OpRegistry&, KernelRegistry&);
void register_data_reduce_ops(OpRegistry&, KernelRegistry&);
void register_data_saved_ops(OpRegistry&, KernelRegistry&);
void register_data_shuffle_ops(OpRegistry&, KernelRegistry&);
void register_data_source_ops(OpRegistry&, KernelRegistry&);
void register_data_stage_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
