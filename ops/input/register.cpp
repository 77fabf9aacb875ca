// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/input/register.h"

namespace troupe {

void register_input_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_decode_ops(ops, kernels);
  register_file_ops(ops, kernels);
  register_iterator_ops(ops, kernels);
  register_parse_example_ops(ops, kernels);
  register_parse_sequence_ops(ops, kernels);
  register_proto_ops(ops, kernels);
  register_reader_ops(ops, kernels);
}

}  // namespace troupe
