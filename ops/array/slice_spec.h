// SPDX-License-Identifier: Apache-2.0
// StridedSlice's rules: begin, end, strides and five masks become one begin, stride and count for each dimension.
#pragma once
#include "ops/parts/index_tensors.h"
#include "ops/parts/strided_copy.h"
#include "troupe/attr.h"

namespace troupe {

/// What a StridedSlice reads of each dimension of its input, and the shape it gives.
struct SliceSpec {
  IntList begin, stride, count;  // count -1 where the size of the dimension is not known
  PartialShape result;           // with new dimensions and without those taken by an index
};

/// The masks of a StridedSlice node.
struct SliceMasks {
  int64_t begin = 0, end = 0, ellipsis = 0, new_axis = 0, shrink_axis = 0;
  explicit SliceMasks(const Attrs& attrs);
};

/// Errors: zero stride, an index out of range, two ellipses, more entries than dimensions. Source: TensorFlow's
/// tf.strided_slice.
Result<SliceSpec> slice_spec(const PartialShape& x, std::span<const int64_t> begin, std::span<const int64_t> end,
                             std::span<const int64_t> strides, const SliceMasks& masks);

/// Where a dense tensor of the spec's counts goes in a tensor of shape `whole`: from element `begin` on. Meaningless
/// where a count is 0.
struct SliceBox {
  int64_t begin = 0;
  StridedCopy copy;
};
SliceBox slice_box(const SliceSpec& spec, const Shape& whole);

/// Writes `part`, which has the shape spec.result, to its places in `whole`. Strings too.
void write_slice(const SliceSpec& spec, Tensor& whole, const Tensor& part, int threads);

}  // namespace troupe
