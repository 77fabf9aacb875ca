// SPDX-License-Identifier: Apache-2.0
// Neural networks: activations, normalisation, windows, recurrent cells, losses, sampled classes.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "ops/parts/gpu_variants.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_nn_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_activation_ops(OpRegistry&, KernelRegistry&);
void register_batch_norm_ops(OpRegistry&, KernelRegistry&);
void register_bias_ops(OpRegistry&, KernelRegistry&);
void register_candidate_ops(OpRegistry&, KernelRegistry&);
void register_clustering_ops(OpRegistry&, KernelRegistry&);
void register_conv_ops(OpRegistry&, KernelRegistry&);
void register_conv3d_ops(OpRegistry&, KernelRegistry&);
void register_ctc_ops(OpRegistry&, KernelRegistry&);
void register_ctc_decode_ops(OpRegistry&, KernelRegistry&);
void register_edit_distance_ops(OpRegistry&, KernelRegistry&);
void register_fractional_pool_ops(OpRegistry&, KernelRegistry&);
void register_lrn_ops(OpRegistry&, KernelRegistry&);
void register_lstm_ops(OpRegistry&, KernelRegistry&);
void register_patches_ops(OpRegistry&, KernelRegistry&);
void register_pool_ops(OpRegistry&, KernelRegistry&);
void register_pool3d_ops(OpRegistry&, KernelRegistry&);
void register_pool_argmax_ops(OpRegistry&, KernelRegistry&);
void register_recurrent_cell_ops(OpRegistry&, KernelRegistry&);
void register_softmax_ops(OpRegistry&, KernelRegistry&);
void register_volume_patches_ops(OpRegistry&, KernelRegistry&);

// Of the files of kernels of GPUs.
TROUPE_GPU_VARIANTS(register_activation_gpu)
TROUPE_GPU_VARIANTS(register_batch_norm_gpu)
TROUPE_GPU_VARIANTS(register_bias_gpu)
TROUPE_GPU_VARIANTS(register_conv_gpu)
TROUPE_GPU_VARIANTS(register_gru_gpu)
TROUPE_GPU_VARIANTS(register_lrn_gpu)
TROUPE_GPU_VARIANTS(register_lstm_gpu)
TROUPE_GPU_VARIANTS(register_pool_gpu)
TROUPE_GPU_VARIANTS(register_softmax_gpu)

}  // namespace troupe
