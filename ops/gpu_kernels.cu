// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/gpu_kernels.h"

#include "gpu/launch.h"
#include "ops/array/gather.h"
#include "ops/array/register.h"
#include "ops/fused/register.h"
#include "ops/linear/register.h"
#include "ops/math/register.h"
#include "ops/nn/register.h"
#include "ops/parts/moves.h"
#include "ops/parts/scatter.h"
#include "ops/random/register.h"
#include "ops/state/register.h"
#include "ops/training/register.h"

namespace troupe::TROUPE_GPU_VARIANT {

void register_gpu_kernels(KernelRegistry& kernels) {
  register_shapes_gpu(kernels);  // first: where two serve a node, that which was added first is taken
  register_activation_gpu(kernels);
  register_batch_norm_gpu(kernels);
  register_bias_gpu(kernels);
  register_broadcast_args_gpu(kernels);
  register_cast_gpu(kernels);
  register_conv_gpu(kernels);
  register_const_gpu(kernels);
  register_gru_gpu(kernels);
  register_lrn_gpu(kernels);
  register_lstm_gpu(kernels);
  register_math_binary_gpu(kernels);
  register_math_guarded_gpu(kernels);
  register_math_unary_gpu(kernels);
  register_gather_gpu(kernels);
  register_fused_elementwise_gpu(kernels, launch_fused);
  const GpuEpilogueLaunches epilogues{launch_epilogue, launch_relu_gradient, launch_gelu_gradient, launch_relu_mask,
                                      launch_bias_gradient};
  register_fused_product_gpu(kernels, epilogues);
  register_product_gradient_gpu(kernels, epilogues);
  register_matmul_gpu(kernels);
  register_pool_gpu(kernels);
  register_random_gpu(kernels);
  register_reduction_gpu(kernels);
  register_reverse_sequence_gpu(kernels);
  register_scan_gpu(kernels);
  register_select_gpu(kernels);
  register_sequence_gpu(kernels);
  register_softmax_gpu(kernels);
  register_sparse_updates_gpu(kernels);
  register_top_k_gpu(kernels);
  register_updates_gpu(kernels);
  register_partition_gpu(kernels, launch_gather, launch_scatter);
  register_resource_gather_gpu(kernels, launch_gather);
  register_resource_scatter_gpu(kernels, launch_scatter);
  register_scatter_nd_gpu(kernels, launch_scatter);
  register_segment_gpu(kernels, launch_segment_sum);
  const Moves& moves = gpu_moves();
  register_broadcast_moves(kernels, moves);
  register_concat_moves(kernels, moves);
  register_pad_moves(kernels, moves);
  register_reshape_moves(kernels, moves);
  register_reverse_moves(kernels, moves);
  register_slice_moves(kernels, moves);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
