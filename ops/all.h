// SPDX-License-Identifier: Apache-2.0
// The one list of op families. A family is one file that registers schemas, gradients and CPU kernels.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers every op and kernel of Troupe.
void register_all_ops(OpRegistry& ops, KernelRegistry& kernels);

// One function for each family, in the file of the same name.
void register_const_ops(OpRegistry&, KernelRegistry&);
void register_control_flow_ops(OpRegistry&, KernelRegistry&);
void register_math_unary_ops(OpRegistry&, KernelRegistry&);
void register_math_binary_ops(OpRegistry&, KernelRegistry&);
void register_math_guarded_ops(OpRegistry&, KernelRegistry&);
void register_same_shape_ops(OpRegistry&, KernelRegistry&);
void register_special_ops(OpRegistry&, KernelRegistry&);
void register_bitwise_ops(OpRegistry&, KernelRegistry&);
void register_complex_ops(OpRegistry&, KernelRegistry&);
void register_reduction_ops(OpRegistry&, KernelRegistry&);
void register_scan_ops(OpRegistry&, KernelRegistry&);
void register_histogram_ops(OpRegistry&, KernelRegistry&);
void register_lrn_ops(OpRegistry&, KernelRegistry&);
void register_lstm_ops(OpRegistry&, KernelRegistry&);
void register_array_ops(OpRegistry&, KernelRegistry&);
void register_gather_ops(OpRegistry&, KernelRegistry&);
void register_segment_ops(OpRegistry&, KernelRegistry&);
void register_sparse_segment_ops(OpRegistry&, KernelRegistry&);
void register_partition_ops(OpRegistry&, KernelRegistry&);
void register_unique_ops(OpRegistry&, KernelRegistry&);
void register_set_ops(OpRegistry&, KernelRegistry&);
void register_order_ops(OpRegistry&, KernelRegistry&);
void register_sparse_ops(OpRegistry&, KernelRegistry&);
void register_sparse_matmul_ops(OpRegistry&, KernelRegistry&);
void register_sparse_order_ops(OpRegistry&, KernelRegistry&);
void register_gather_nd_ops(OpRegistry&, KernelRegistry&);
void register_fake_quant_ops(OpRegistry&, KernelRegistry&);
void register_quantize_ops(OpRegistry&, KernelRegistry&);
void register_cast_ops(OpRegistry&, KernelRegistry&);
void register_random_ops(OpRegistry&, KernelRegistry&);
void register_candidate_ops(OpRegistry&, KernelRegistry&);
void register_ctc_ops(OpRegistry&, KernelRegistry&);
void register_matmul_ops(OpRegistry&, KernelRegistry&);
void register_einsum_ops(OpRegistry&, KernelRegistry&);
void register_conv_ops(OpRegistry&, KernelRegistry&);
void register_pool_ops(OpRegistry&, KernelRegistry&);
void register_bias_ops(OpRegistry&, KernelRegistry&);
void register_softmax_ops(OpRegistry&, KernelRegistry&);
void register_batch_norm_ops(OpRegistry&, KernelRegistry&);
void register_variable_ops(OpRegistry&, KernelRegistry&);
void register_resource_gather_ops(OpRegistry&, KernelRegistry&);
void register_resource_scatter_ops(OpRegistry&, KernelRegistry&);
void register_training_ops(OpRegistry&, KernelRegistry&);
void register_queue_ops(OpRegistry&, KernelRegistry&);
void register_accumulator_ops(OpRegistry&, KernelRegistry&);
void register_iterator_ops(OpRegistry&, KernelRegistry&);
void register_reader_ops(OpRegistry&, KernelRegistry&);
void register_barrier_ops(OpRegistry&, KernelRegistry&);
void register_mutex_ops(OpRegistry&, KernelRegistry&);
void register_event_count_ops(OpRegistry&, KernelRegistry&);
void register_save_restore_ops(OpRegistry&, KernelRegistry&);
void register_table_ops(OpRegistry&, KernelRegistry&);
void register_print_ops(OpRegistry&, KernelRegistry&);
void register_string_ops(OpRegistry&, KernelRegistry&);
void register_string_part_ops(OpRegistry&, KernelRegistry&);
void register_string_number_ops(OpRegistry&, KernelRegistry&);
void register_string_hash_ops(OpRegistry&, KernelRegistry&);
void register_regex_ops(OpRegistry&, KernelRegistry&);
void register_summary_ops(OpRegistry&, KernelRegistry&);
void register_audio_ops(OpRegistry&, KernelRegistry&);
void register_decode_ops(OpRegistry&, KernelRegistry&);
void register_file_ops(OpRegistry&, KernelRegistry&);
void register_parse_example_ops(OpRegistry&, KernelRegistry&);
void register_tensor_list_ops(OpRegistry&, KernelRegistry&);
void register_fused_elementwise_ops(OpRegistry&, KernelRegistry&);
void register_fused_product_ops(OpRegistry&, KernelRegistry&);
void register_stack_ops(OpRegistry&, KernelRegistry&);
void register_optional_ops(OpRegistry&, KernelRegistry&);
void register_tensor_array_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
