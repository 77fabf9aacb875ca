// SPDX-License-Identifier: Apache-2.0
// Indices into several dimensions at once: each row of an indices tensor names one slice of a tensor by its place in
// the leading dimensions. Implemented in ops/array/nd_index.cpp.
#pragma once
#include <vector>

#include "troupe/attr.h"

namespace troupe {

/// What to do with rows that are out of range: attribute bad_indices_policy.
enum class BadIndices { kError, kIgnore };
/// Errors: a policy that is none.
Result<BadIndices> bad_indices_policy(const Attrs& attrs);

/// The slice that each row names, counted in slices; -1 for rows to be ignored. `indices` are int16, int32 or int64.
/// Errors: a row out of range, named with its values; more numbers in a row than `shape` has dimensions.
Result<std::vector<int64_t>> nd_slices(const Tensor& indices, const Shape& shape,
                                       BadIndices policy = BadIndices::kError);
/// The same where every index is a row by itself into a dimension of `bound`, as GatherV2 and ScatterUpdate have them.
Result<std::vector<int64_t>> row_slices(const Tensor& indices, int64_t bound);

/// The shape of the slices at `indices` of a tensor of this shape: what GatherNd gives and what the updates of a
/// scatter must have. Sizes of -1 are not known. Errors: a scalar, rows longer than the rank of `shape`.
Result<PartialShape> nd_shape(const PartialShape& indices, const PartialShape& shape);

/// Elements of one slice.
int64_t nd_slice_size(const Tensor& indices, const Shape& shape);

}  // namespace troupe
