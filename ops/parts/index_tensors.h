// SPDX-License-Identifier: Apache-2.0
// Small integer tensors that say where and how much: sizes, offsets, axes, permutations.
#pragma once
#include <array>
#include <vector>

#include "troupe/tensor.h"

namespace troupe {

/// A list of numbers, without memory of its own where it is short: for kernels that are done in less time than it takes
/// to get that.
class IntList {
 public:
  void push_back(int64_t number) {
    if (size_ == kShort) long_.assign(short_.begin(), short_.end());
    if (size_ < kShort) short_[size_] = number;
    else long_.push_back(number);
    ++size_;
  }
  size_t size() const { return size_; }
  const int64_t* data() const { return size_ <= kShort ? short_.data() : long_.data(); }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t operator[](size_t i) const { return data()[i]; }
  int64_t& operator[](size_t i) { return const_cast<int64_t*>(data())[i]; }

 private:
  static constexpr size_t kShort = 8;
  size_t size_ = 0;
  std::array<int64_t, kShort> short_;  // the first size_ are set
  std::vector<int64_t> long_;          // all, where they are more
};

/// The elements of a vector (or scalar) of int32, int64, int16 or int8. Errors name `what`.
Result<std::vector<int64_t>> int_values(const Tensor& t, const char* what);
/// The same.
Result<IntList> int_list(const Tensor& t, const char* what);
/// An integer tensor of one element. Errors name `what`.
Result<int64_t> int_scalar(const Tensor& t, const char* what);
/// The same of a count: a negative one is an error too.
Result<int64_t> count_from(const Tensor& t, const char* what);
/// The [rank,2] paddings or crops before and after each dimension, in a row; any rank where that is -1. Errors name
/// `what`: other shapes, numbers below 0.
Result<std::vector<int64_t>> paddings_from(const Tensor& t, int rank, const char* what);
/// A scalar axis of a tensor of this rank, negative ones counted from the end. Errors: out of range, with the rank.
Result<int> axis_from(const Tensor& t, int rank);
Result<int> axis_from(int64_t axis, int rank);
/// Sizes as a Shape.
Result<Shape> shape_from(const Tensor& t, const char* what);
/// The product of the sizes [begin, end) of a shape.
int64_t sizes_product(const Shape& s, int begin, int end);
/// The shape of `rows` slices of x, one for an element of `first` each: `rows`, then the dimensions of x behind those
/// of `first`. `rows` is -1 where it is not known. Errors name `what`, which `first` is: x does not begin with its
/// shape.
Result<PartialShape> slices_shape(const PartialShape& x, const PartialShape& first, int64_t rows, const char* what);
/// An int32 or int64 tensor of `shape`. Errors: a value that does not fit an int32.
Result<Tensor> int_tensor(DType dtype, std::span<const int64_t> values, const Shape& shape);

/// An error that names the first index outside [0, bound), or success. Negative indices count as outside.
template <class I> Status check_indices(std::span<const I> indices, int64_t bound) {
  for (size_t i = 0; i < indices.size(); ++i)
    if (indices[i] < 0 || static_cast<int64_t>(indices[i]) >= bound) [[unlikely]]
      return invalid_argument("index {} at position {} is not in [0, {})", static_cast<int64_t>(indices[i]), i, bound);
  return {};
}

}  // namespace troupe
