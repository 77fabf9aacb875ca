// SPDX-License-Identifier: Apache-2.0
// Calls the registration function of every family.
#include "ops/all.h"

namespace troupe {

void register_all_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_const_ops(ops, kernels);
  register_control_flow_ops(ops, kernels);
  register_math_unary_ops(ops, kernels);
  register_math_binary_ops(ops, kernels);
  register_math_guarded_ops(ops, kernels);
  register_same_shape_ops(ops, kernels);
  register_special_ops(ops, kernels);
  register_bitwise_ops(ops, kernels);
  register_complex_ops(ops, kernels);
  register_reduction_ops(ops, kernels);
  register_scan_ops(ops, kernels);
  register_histogram_ops(ops, kernels);
  register_lrn_ops(ops, kernels);
  register_lstm_ops(ops, kernels);
  register_array_ops(ops, kernels);
  register_matmul_ops(ops, kernels);
  register_einsum_ops(ops, kernels);
  register_conv_ops(ops, kernels);
  register_pool_ops(ops, kernels);
  register_bias_ops(ops, kernels);
  register_softmax_ops(ops, kernels);
  register_batch_norm_ops(ops, kernels);
  register_gather_ops(ops, kernels);
  register_gather_nd_ops(ops, kernels);
  register_fake_quant_ops(ops, kernels);
  register_quantize_ops(ops, kernels);
  register_segment_ops(ops, kernels);
  register_sparse_segment_ops(ops, kernels);
  register_partition_ops(ops, kernels);
  register_unique_ops(ops, kernels);
  register_set_ops(ops, kernels);
  register_order_ops(ops, kernels);
  register_sparse_ops(ops, kernels);
  register_sparse_matmul_ops(ops, kernels);
  register_sparse_order_ops(ops, kernels);
  register_cast_ops(ops, kernels);
  register_random_ops(ops, kernels);
  register_candidate_ops(ops, kernels);
  register_ctc_ops(ops, kernels);
  register_variable_ops(ops, kernels);
  register_resource_gather_ops(ops, kernels);
  register_resource_scatter_ops(ops, kernels);
  register_training_ops(ops, kernels);
  register_queue_ops(ops, kernels);
  register_table_ops(ops, kernels);
  register_accumulator_ops(ops, kernels);
  register_iterator_ops(ops, kernels);
  register_reader_ops(ops, kernels);
  register_barrier_ops(ops, kernels);
  register_mutex_ops(ops, kernels);
  register_event_count_ops(ops, kernels);
  register_save_restore_ops(ops, kernels);
  register_tensor_list_ops(ops, kernels);
  register_stack_ops(ops, kernels);
  register_optional_ops(ops, kernels);
  register_tensor_array_ops(ops, kernels);
  register_print_ops(ops, kernels);
  register_string_ops(ops, kernels);
  register_string_part_ops(ops, kernels);
  register_string_number_ops(ops, kernels);
  register_string_hash_ops(ops, kernels);
  register_regex_ops(ops, kernels);
  register_summary_ops(ops, kernels);
  register_decode_ops(ops, kernels);
  register_audio_ops(ops, kernels);
  register_file_ops(ops, kernels);
  register_parse_example_ops(ops, kernels);
  // After those that they are made of.
  register_fused_elementwise_ops(ops, kernels);
  register_fused_product_ops(ops, kernels);
}

}  // namespace troupe
