// SPDX-License-Identifier: Apache-2.0
// Reading and checking the ids of segments.
#include "ops/math/segment_ids.h"

#include "ops/parts/index_tensors.h"

namespace troupe {

Result<std::vector<int64_t>> segment_ids(const Tensor& t, bool sorted) {
  if (sorted && t.rank() != 1) return invalid_argument("segment_ids of shape {}", t.shape().str());
  TROUPE_ASSIGN(const Tensor flat, t.reshape(Shape{t.elements()}));
  TROUPE_ASSIGN(std::vector<int64_t> ids, int_values(flat, "segment_ids"));
  for (size_t i = 0; i < ids.size() && sorted; ++i)
    if (ids[i] < 0 || (i > 0 && ids[i] < ids[i - 1]))
      return invalid_argument("segment ids must ascend from 0 or more; at position {} there is {}", i, ids[i]);
  return ids;
}

Result<int64_t> segment_count(std::span<const int64_t> ids, const Tensor* given) {
  int64_t count = ids.empty() ? 0 : ids.back() + (ids.back() < INT64_MAX);
  if (given) {
    TROUPE_ASSIGN(count, count_from(*given, "num_segments"));
  }
  for (int64_t id : ids)
    if (id >= count) return invalid_argument("segment id {} is not below num_segments {}", id, count);
  return count;
}

Result<int64_t> inferred_segment_count(const ShapeContext& c, int ids, int given) {
  if (c.num_inputs() > given) {
    TROUPE_RETURN_IF_ERROR(c.with_rank(given, 0).status());
    const auto count = c.constant_input(given);
    return count ? count_from(*count, "num_segments") : Result<int64_t>(-1);
  }
  const auto constant = c.constant_input(ids);
  if (!constant) return -1;
  TROUPE_ASSIGN(const std::vector<int64_t> sorted, segment_ids(*constant, true));
  return segment_count(sorted, nullptr);
}

}  // namespace troupe
