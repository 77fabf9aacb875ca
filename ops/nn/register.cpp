// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/nn/register.h"

namespace troupe {

void register_nn_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_activation_ops(ops, kernels);
  register_batch_norm_ops(ops, kernels);
  register_bias_ops(ops, kernels);
  register_candidate_ops(ops, kernels);
  register_clustering_ops(ops, kernels);
  register_conv_ops(ops, kernels);
  register_conv3d_ops(ops, kernels);
  register_ctc_ops(ops, kernels);
  register_ctc_decode_ops(ops, kernels);
  register_edit_distance_ops(ops, kernels);
  register_fractional_pool_ops(ops, kernels);
  register_lrn_ops(ops, kernels);
  register_lstm_ops(ops, kernels);
  register_patches_ops(ops, kernels);
  register_pool_ops(ops, kernels);
  register_pool3d_ops(ops, kernels);
  register_pool_argmax_ops(ops, kernels);
  register_recurrent_cell_ops(ops, kernels);
  register_softmax_ops(ops, kernels);
  register_volume_patches_ops(ops, kernels);
}

}  // namespace troupe
