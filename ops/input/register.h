// SPDX-License-Identifier: Apache-2.0
// What steps read: iterators, readers, files, records, bytes.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_input_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_decode_ops(OpRegistry&, KernelRegistry&);
void register_file_ops(OpRegistry&, KernelRegistry&);
void register_iterator_ops(OpRegistry&, KernelRegistry&);
void register_parse_example_ops(OpRegistry&, KernelRegistry&);
void register_parse_sequence_ops(OpRegistry&, KernelRegistry&);
void register_proto_ops(OpRegistry&, KernelRegistry&);
void register_reader_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
