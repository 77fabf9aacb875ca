// SPDX-License-Identifier: Apache-2.0
// Parts of tensors as Save and Restore name them. Implemented in io/tensor_slice.cpp.
#pragma once
#include "troupe/tensor.h"

namespace troupe {

/// A box of a tensor. "4 6 0,2:-" is the rows 0 and 1, all columns, of a tensor [4,6].
struct TensorSlice {
  Shape whole, part;
  std::vector<int64_t> begin;

  /// Errors name `text`: not sizes and as many ranges, a range that is not inside.
  static Result<TensorSlice> parse(const std::string& text);
  /// The slice that is the whole of a tensor.
  static TensorSlice all(const Shape& shape);
  /// What parse() takes.
  std::string str() const;
  bool overlaps(const TensorSlice& other) const;
  /// What is in both slices, which are of one shape; without elements where nothing is.
  TensorSlice intersection(const TensorSlice& other) const;
  /// Copies the elements of `common`, which is in both slices: `from` holds this one's, `to` those of `slice`.
  void copy(const TensorSlice& common, const Tensor& from, const TensorSlice& slice, Tensor& to) const;
  /// The part of `x`. Errors: x has not the shape `whole`.
  Result<Tensor> read(const Tensor& x, const std::shared_ptr<Allocator>& allocator) const;
  /// Writes the part of `x`, which has the shape `whole`. Errors: `value` has not the shape of the part.
  Status write(Tensor& x, const Tensor& value) const;
};

}  // namespace troupe
