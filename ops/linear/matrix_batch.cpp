// SPDX-License-Identifier: Apache-2.0
// Indices and gradients of batches of matrices that broadcast.
#include "ops/linear/matrix_batch.h"

#include "ops/parts/gradient_math.h"

namespace troupe {

std::vector<int64_t> matrix_indices(const Shape& batch, std::span<const int64_t> own) {
  std::vector<int64_t> at(batch.elements());
  for (int64_t i = 0; i < batch.elements(); ++i) {
    int64_t rest = i, stride = 1;
    for (int d = batch.rank() - 1, o = static_cast<int>(own.size()) - 1; o >= 0; --d, --o) {
      at[i] += own[o] == 1 ? 0 : rest % batch[d] * stride;
      rest /= batch[d];
      stride *= own[o];
    }
  }
  return at;
}

Output sum_batches(GradientContext& c, Output g, Output x, Output y) {
  const PartialShape &xs = x.shape(), &ys = y.shape();
  if (xs.fully_known() && ys.fully_known()) {
    const auto xb = xs.dims().first(xs.rank() - 2), yb = ys.dims().first(ys.rank() - 2);
    if (std::ranges::equal(xb, yb)) return g;
    const auto whole = broadcast(Shape(xb), Shape(yb));
    if (!whole.ok() || std::ranges::equal(*whole, xb)) return g;
    std::vector<int64_t> axes;
    for (int i = 0; i < whole->rank(); ++i) {
      const int at = i - (whole->rank() - static_cast<int>(xb.size()));
      if (at < 0 || (xb[at] == 1 && (*whole)[i] != 1)) axes.push_back(i);
    }
    return c.op("Reshape", {c.op("Sum", {g, int_vector(c, axes)}), sizes_of(c, x)});
  }
  const auto batch = [&](Output sizes) {
    const int64_t begin[] = {0}, end[] = {-2}, step[] = {1};
    return c.op("StridedSlice", {sizes, int_vector(c, begin), int_vector(c, end), int_vector(c, step)});
  };
  const Output sx = c.op("Shape", {x}), sy = c.op("Shape", {y});
  const std::vector<Output> axes = c.ops("BroadcastGradientArgs", {batch(sx), batch(sy)});
  return axes.empty() ? Output() : c.op("Reshape", {c.op("Sum", {g, axes[0]}), sx});
}

}  // namespace troupe
