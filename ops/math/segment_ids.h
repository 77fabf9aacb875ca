// SPDX-License-Identifier: Apache-2.0
// Which segment each row belongs to, and how many segments there are: what Segment..., UnsortedSegment... and
// SparseSegment... read alike.
#pragma once
#include <vector>

#include "troupe/op.h"

namespace troupe {

/// The ids in a row. Errors for those that must be `sorted`: not a vector, one below 0 or below the one before it.
Result<std::vector<int64_t>> segment_ids(const Tensor& t, bool sorted);
/// How many segments the scalar `given` says, or, without it, sorted ids have. Errors: a negative number, an id that is
/// not below it.
Result<int64_t> segment_count(std::span<const int64_t> ids, const Tensor* given);
/// The same while the graph is built, for ids in input `ids` and a number in input `given`, if the node has that many;
/// -1 where they are not constants.
Result<int64_t> inferred_segment_count(const ShapeContext& c, int ids, int given);

}  // namespace troupe
