// SPDX-License-Identifier: Apache-2.0
// Strings.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_text_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_ngram_ops(OpRegistry&, KernelRegistry&);
void register_regex_ops(OpRegistry&, KernelRegistry&);
void register_string_hash_ops(OpRegistry&, KernelRegistry&);
void register_string_number_ops(OpRegistry&, KernelRegistry&);
void register_string_part_ops(OpRegistry&, KernelRegistry&);
void register_string_ops(OpRegistry&, KernelRegistry&);
void register_unicode_ops(OpRegistry&, KernelRegistry&);
void register_unicode_script_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
