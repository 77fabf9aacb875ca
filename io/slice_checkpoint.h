// SPDX-License-Identifier: Apache-2.0
// TensorFlow's checkpoints of the first format: a sorted table whose key "" says of the tensors their types, shapes and
// parts, and whose other keys, key_of_part(), have the parts' values. A tensor that is there whole is one part. The
// tensors, and the parts of one, may be spread over several such files.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "io/saved_parts.h"
#include "io/sorted_table.h"

namespace troupe {

/// Whether TensorFlow reads a dtype from such files.
bool slice_checkpoints_hold(DType dtype);

/// Takes a table, of which it may turn out that it is something else. Values are checked as they are read. Errors:
/// kDataLoss.
Result<std::unique_ptr<PartSource>> open_slice_checkpoint(SortedTable table);

/// Writes such a file in the place of `path`. Values are asked for one after another, in the order of their keys.
/// Errors: kInvalidArgument for a name given twice, parts that disagree, types that TensorFlow does not read from such
/// files (bfloat16, uint32, uint64, ...), and what is larger than 2 GiB; what values and the system say. On an error
/// nothing has changed.
Status write_slice_checkpoint(const FileAccess& access, const std::string& path, std::span<const TensorToSave> tensors);

}  // namespace troupe
