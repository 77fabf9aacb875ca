// SPDX-License-Identifier: Apache-2.0
// The one list of op families. A family is one file that registers schemas, gradients and CPU kernels.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers every op and kernel of Troupe.
void register_all_ops(OpRegistry& ops, KernelRegistry& kernels);

// One function for each family, in the file of the same name.
void register_const_ops(OpRegistry&, KernelRegistry&);        // const.cpp: Const, Placeholder, NoOp, Identity, ...
void register_math_unary_ops(OpRegistry&, KernelRegistry&);   // math_unary.cpp
void register_math_binary_ops(OpRegistry&, KernelRegistry&);  // math_binary.cpp: arithmetic, comparison, AddN, ...
void register_complex_ops(OpRegistry&, KernelRegistry&);      // complex.cpp: Complex, Real, Conj, Angle, ...
void register_reduction_ops(OpRegistry&, KernelRegistry&);    // reduction.cpp: Sum, Mean, Max, ArgMax, ...
void register_array_ops(OpRegistry&, KernelRegistry&);        // array.cpp: Reshape, Transpose, Concat, Slice, ...
void register_gather_ops(OpRegistry&, KernelRegistry&);       // gather.cpp: GatherV2, OneHot, UnsortedSegmentSum, ...
void register_cast_ops(OpRegistry&, KernelRegistry&);         // cast.cpp
void register_random_ops(OpRegistry&, KernelRegistry&);       // random.cpp
void register_matmul_ops(OpRegistry&, KernelRegistry&);       // matmul.cpp: MatMul, BatchMatMulV2
void register_conv_ops(OpRegistry&, KernelRegistry&);         // conv.cpp
void register_pool_ops(OpRegistry&, KernelRegistry&);         // pool.cpp
void register_bias_ops(OpRegistry&, KernelRegistry&);         // bias.cpp
void register_softmax_ops(OpRegistry&, KernelRegistry&);      // softmax.cpp: Softmax, LogSoftmax, cross-entropies
void register_batch_norm_ops(OpRegistry&, KernelRegistry&);   // batch_norm.cpp: FusedBatchNormV3
void register_variable_ops(OpRegistry&, KernelRegistry&);     // variable.cpp: VarHandleOp, ReadVariableOp, Assign...
void register_resource_gather_ops(OpRegistry&, KernelRegistry&);   // resource_gather.cpp
void register_resource_scatter_ops(OpRegistry&, KernelRegistry&);  // resource_scatter.cpp
void register_training_ops(OpRegistry&, KernelRegistry&);          // training.cpp: ResourceApply...
void register_queue_ops(OpRegistry&, KernelRegistry&);             // queue.cpp
void register_accumulator_ops(OpRegistry&, KernelRegistry&);       // accumulator.cpp
void register_iterator_ops(OpRegistry&, KernelRegistry&);          // iterator.cpp
void register_save_restore_ops(OpRegistry&, KernelRegistry&);      // save_restore.cpp

}  // namespace troupe
