// SPDX-License-Identifier: Apache-2.0
// Shapes of tensors: Shape, wholly known, and PartialShape, of which rank or sizes may be unknown while a graph is
// built. Implemented in tensor/shape.cpp.
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>

#include "troupe/error.h"
#include "troupe/export.h"

namespace TROUPE_API troupe {

/// The most dimensions a tensor may have: twice as many as TensorFlow's kernels take, since it takes the gradient of
/// Tile through a reshape that splits every dimension in two.
inline constexpr int kMaxRank = 16;

/// Sizes of a tensor, outermost first; a scalar has none. A plain value without allocation. Copying touches the first
/// four, set or not, and of the others those that there are, so that small tensors stay within one line of the cache.
class Shape {
 public:
  Shape() = default;
  Shape(const Shape& other) { *this = other; }
  Shape& operator=(const Shape& other) {
    rank_ = other.rank_;
    std::memcpy(dims_, other.dims_, kCopied * sizeof(dims_[0]));  // a count known here takes a few instructions
    for (int i = kCopied; i < rank_; ++i) [[unlikely]] dims_[i] = other.dims_[i];
    return *this;
  }
  /// At most kMaxRank sizes (more abort), each >= 0. Negative ones are found where a tensor is made; for sizes from a
  /// user take Shape::make.
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  /// Checks rank, signs, and that the count of elements fits an int64.
  static Result<Shape> make(std::span<const int64_t> dims);

  /// A scalar's again.
  void clear() { rank_ = 0; }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  /// Size of dimension i, where negative i counts from the end.
  int64_t dim(int i) const { return dims_[i < 0 ? rank_ + i : i]; }
  void set(int i, int64_t size) { dims_[i] = size; }
  void push_back(int64_t size);
  void insert(int at, int64_t size);
  void erase(int at);
  std::span<const int64_t> dims() const { return {dims_, static_cast<size_t>(rank_)}; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  /// Product of all sizes; 1 for a scalar.
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  bool operator==(const Shape& other) const;
  /// "[64,784]"; "[]" for a scalar.
  std::string str() const;

 private:
  static constexpr int kCopied = 4;
  int rank_ = 0;
  int64_t dims_[kMaxRank];  // the first rank_ are set
};

/// A shape of which the rank or some sizes may be unknown: -1 is an unknown size.
class PartialShape {
 public:
  /// Unknown rank.
  PartialShape() = default;
  /// Sizes; -1 is unknown.
  PartialShape(std::initializer_list<int64_t> dims) : PartialShape(Shape(dims)) {}
  PartialShape(const Shape& dims) : dims_(dims), known_rank_(true) {}
  static Result<PartialShape> make(std::span<const int64_t> dims);
  static PartialShape unknown() { return {}; }
  static PartialShape scalar() { return PartialShape(Shape()); }
  static PartialShape of_rank(int rank);

  bool has_rank() const { return known_rank_; }
  /// -1 when unknown.
  int rank() const { return known_rank_ ? dims_.rank() : -1; }
  /// Size of dimension i (negative i from the end), -1 when unknown. Only when has_rank().
  int64_t dim(int i) const { return dims_.dim(i); }
  int64_t operator[](int i) const { return dims_[i]; }
  void set(int i, int64_t size) { dims_.set(i, size); }
  void push_back(int64_t size) { dims_.push_back(size); }
  std::span<const int64_t> dims() const { return dims_.dims(); }
  bool fully_known() const;
  /// The Shape; only when fully_known().
  const Shape& shape() const { return dims_; }
  /// Whether a tensor of shape `other` may stand here.
  bool compatible(const PartialShape& other) const;
  /// The more exact of two shapes of the same tensor, or an error that prints both.
  static Result<PartialShape> merge(const PartialShape& a, const PartialShape& b);
  bool operator==(const PartialShape& other) const;
  /// "[?,784]"; "<unknown>".
  std::string str() const;

 private:
  Shape dims_;
  bool known_rank_ = false;
};

/// The shape that `a` and `b` broadcast to by NumPy's rules, or an error that prints both.
Result<Shape> broadcast(const Shape& a, const Shape& b);
Result<PartialShape> broadcast(const PartialShape& a, const PartialShape& b);

}  // namespace troupe
