// SPDX-License-Identifier: Apache-2.0
// Plans of broadcast loops.
#include "ops/parts/broadcast.h"

namespace troupe {
namespace {

/// Strides of `from` in a result of shape `to`, aligned at the last dimension.
void broadcast_strides(const Shape& from, const Shape& to, std::array<int64_t, kMaxRank>& out) {
  int64_t stride = 1;
  for (int i = 1; i <= to.rank(); ++i) {
    const int64_t size = i <= from.rank() ? from.dim(-i) : 1;
    out[to.rank() - i] = size == 1 ? 0 : stride;
    stride *= size;
  }
}

Broadcast plan(const Shape& shape, std::initializer_list<const Shape*> inputs) {
  std::array<std::array<int64_t, kMaxRank>, 3> full{};
  int k = 0;
  for (const Shape* s : inputs) broadcast_strides(*s, shape, full[k++]);
  Broadcast b;
  b.shape = shape;
  // From the innermost dimension outwards: a dimension joins the one inside it where all strides continue.
  std::array<int64_t, kMaxRank> size{};
  std::array<std::array<int64_t, kMaxRank>, 3> stride{};
  int rank = 0;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    bool joins = rank > 0;
    for (int i = 0; i < 3 && joins; ++i) joins = full[i][d] == stride[i][rank - 1] * size[rank - 1];
    if (joins) {
      size[rank - 1] *= shape[d];
    } else {
      size[rank] = shape[d];
      for (int i = 0; i < 3; ++i) stride[i][rank] = full[i][d];
      ++rank;
    }
  }
  if (rank == 0) {
    size[0] = 1;
    rank = 1;
  }
  b.rank = rank;
  for (int d = 0; d < rank; ++d) {
    b.size[d] = size[rank - 1 - d];
    for (int i = 0; i < 3; ++i) b.stride[i][d] = stride[i][rank - 1 - d];
  }
  return b;
}

}  // namespace

Result<Broadcast> plan_broadcast(const Shape& a, const Shape& b) {
  if (a == b) return plan(a, {&a, &b});
  TROUPE_ASSIGN(const Shape shape, broadcast(a, b));
  return plan(shape, {&a, &b});
}

Result<Broadcast> plan_broadcast(const Shape& a, const Shape& b, const Shape& c) {
  TROUPE_ASSIGN(const Shape ab, broadcast(a, b));
  TROUPE_ASSIGN(const Shape shape, broadcast(ab, c));
  return plan(shape, {&a, &b, &c});
}

}  // namespace troupe
