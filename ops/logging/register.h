// SPDX-License-Identifier: Apache-2.0
// What tells a person something: prints and summaries.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_logging_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_print_ops(OpRegistry&, KernelRegistry&);
void register_summary_ops(OpRegistry&, KernelRegistry&);
void register_summary_writer_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
