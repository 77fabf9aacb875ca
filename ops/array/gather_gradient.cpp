// SPDX-License-Identifier: Apache-2.0
// The gradient of a gather as a sum over segments.
#include "ops/array/gather_gradient.h"

#include "ops/parts/gradient_math.h"

namespace troupe {
namespace {

/// The product of sizes [begin, end) of x, int64; `sizes` is its shape as a tensor.
Output size_product(GradientContext& c, Output x, Output sizes, int begin, int end) {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product = product < 0 || x.shape()[i] < 0 ? -1 : product * x.shape()[i];
  if (product >= 0) return c.constant(Tensor::scalar<int64_t>(product));
  const int64_t from[] = {begin}, n[] = {end - begin}, all[] = {0};
  return c.op("Prod", {c.op("Slice", {sizes, int_vector(c, from), int_vector(c, n)}), int_vector(c, all)});
}

}  // namespace

// Slices of dy are summed where they came from, between transposes that bring the indices' dimensions behind the batch
// dimensions. Batches are told apart by adding to the indices what the batches before have of rows.
Output gather_gradient(GradientContext& c, Output x, Output indices, Output dy, int axis, int batch) {
  const int rank = x.shape().rank(), index_rank = indices.shape().rank();
  const Output sizes = c.op("Shape", {x}, {{"out_type", DType::kInt64}});
  Output ids = indices, rows = size_product(c, x, sizes, axis, axis + 1);
  if (batch > 0) {
    const Output batches = size_product(c, x, sizes, 0, batch);
    const Output zero = scalar_like(c, DType::kInt64, 0), one = scalar_like(c, DType::kInt64, 1);
    const Output firsts = c.op("Mul", {c.op("Range", {zero, batches, one}), rows});
    const int64_t none[] = {0}, n[] = {batch}, end[] = {0, index_rank - batch};
    const Output lead = c.op("Slice", {sizes, int_vector(c, none), int_vector(c, n)});
    const Output pads = c.op("Reshape", {int_vector(c, end), c.constant(Tensor::of<int32_t>({1, 2}))});
    const Output wide = c.op("Cast", {indices}, {{"DstT", DType::kInt64}});
    ids = c.op("AddV2", {wide, c.op("Reshape", {firsts, c.op("PadV2", {lead, pads, one})})});
    rows = c.op("Mul", {rows, batches});
  }
  // dy: [batch, outer, indices, inner] -> [batch, indices, outer, inner] -> [batch x rows, outer, inner]
  // -> [batch, rows, outer, inner] -> [batch, outer, rows, inner].
  const int taken = index_rank - batch, outer = axis - batch;
  std::vector<int64_t> to, split, back;
  for (int i = 0; i < batch; ++i) to.push_back(i), split.push_back(i), back.push_back(i);
  for (int i = 0; i < taken; ++i) to.push_back(axis + i);
  for (int i = batch; i < axis; ++i) to.push_back(i);
  split.push_back(axis);
  for (int i = batch; i < axis; ++i) split.push_back(i), back.push_back(i + 1);
  back.push_back(batch);
  for (int i = axis + 1; i < rank; ++i) to.push_back(i - 1 + taken), split.push_back(i), back.push_back(i);
  Output sums = c.op("UnsortedSegmentSum", {outer > 0 ? c.op("Transpose", {dy, int_vector(c, to)}) : dy, ids, rows});
  if (batch > 0) {
    Output parts = c.op("GatherV2", {sizes, int_vector(c, split), c.constant(Tensor::scalar<int32_t>(0))});
    if (x.shape().fully_known()) {
      for (int64_t& d : split) d = x.shape()[static_cast<int>(d)];
      parts = c.constant(Tensor::of<int64_t>(std::span<const int64_t>(split)));
    }
    sums = c.op("Reshape", {sums, parts});
  }
  return outer > 0 ? c.op("Transpose", {sums, int_vector(c, back)}) : sums;
}

}  // namespace troupe
