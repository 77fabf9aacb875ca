// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/text/register.h"

namespace troupe {

void register_text_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_ngram_ops(ops, kernels);
  register_regex_ops(ops, kernels);
  register_string_hash_ops(ops, kernels);
  register_string_number_ops(ops, kernels);
  register_string_part_ops(ops, kernels);
  register_string_ops(ops, kernels);
  register_unicode_ops(ops, kernels);
  register_unicode_script_ops(ops, kernels);
}

}  // namespace troupe
