// SPDX-License-Identifier: Apache-2.0
// Shapes: checks, merging, broadcasting, printing.
#include "troupe/shape.h"
#include "base/join.h"

#include <algorithm>

#include "base/check.h"

namespace troupe {
namespace {

// 64 bytes are more than any element has, so that bytes fit an int64 as well.
constexpr int64_t kMaxElements = INT64_MAX / 64;

}  // namespace

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  TROUPE_CHECK(dims.size() <= kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_);
}

Result<Shape> Shape::make(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) return invalid_argument("rank {} is more than the {} supported", dims.size(), kMaxRank);
  int64_t elements = 1;
  bool overflow = false;
  for (int64_t d : dims) {
    if (d < 0) return invalid_argument("negative size {} in shape [{}]", d, join(dims));
    // Sizes of 0 are left out, so that no product of some of the sizes overflows.
    overflow |= __builtin_mul_overflow(elements, std::max<int64_t>(d, 1), &elements);
  }
  if (overflow || elements > kMaxElements)
    return invalid_argument("shape [{}] has more elements than an int64 counts", join(dims));
  return Shape(dims);
}

void Shape::push_back(int64_t size) {
  TROUPE_CHECK(rank_ < kMaxRank);
  dims_[rank_++] = size;
}

void Shape::insert(int at, int64_t size) {
  TROUPE_CHECK(rank_ < kMaxRank && at >= 0 && at <= rank_);
  for (int i = rank_; i > at; --i) dims_[i] = dims_[i - 1];
  dims_[at] = size;
  ++rank_;
}

void Shape::erase(int at) {
  TROUPE_CHECK(at >= 0 && at < rank_);
  for (int i = at; i + 1 < rank_; ++i) dims_[i] = dims_[i + 1];
  --rank_;
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(dims(), other.dims()); }

std::string Shape::str() const { return fmt::format("[{}]", join(dims())); }

Result<PartialShape> PartialShape::make(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) return invalid_argument("rank {} is more than the {} supported", dims.size(), kMaxRank);
  int64_t elements = 1;
  for (int64_t d : dims) {
    if (d < -1) return invalid_argument("size {} in shape [{}]", d, join(dims));
    if (d > 0 && (__builtin_mul_overflow(elements, d, &elements) || elements > kMaxElements))
      return invalid_argument("shape [{}] has more elements than an int64 counts", join(dims));
  }
  return PartialShape(Shape(dims));
}

PartialShape PartialShape::of_rank(int rank) {
  PartialShape s = scalar();
  for (int i = 0; i < rank; ++i) s.push_back(-1);
  return s;
}

bool PartialShape::fully_known() const {
  return known_rank_ && std::ranges::none_of(dims_.dims(), [](int64_t d) { return d < 0; });
}

bool PartialShape::compatible(const PartialShape& other) const {
  if (!known_rank_ || !other.known_rank_) return true;
  if (rank() != other.rank()) return false;
  for (int i = 0; i < rank(); ++i)
    if (dims_[i] >= 0 && other.dims_[i] >= 0 && dims_[i] != other.dims_[i]) return false;
  return true;
}

Result<PartialShape> PartialShape::merge(const PartialShape& a, const PartialShape& b) {
  if (!a.compatible(b)) return invalid_argument("shapes {} and {} do not agree", a.str(), b.str());
  if (!a.known_rank_) return b;
  if (!b.known_rank_) return a;
  PartialShape out = a;
  for (int i = 0; i < a.rank(); ++i)
    if (out[i] < 0) out.set(i, b[i]);
  return out;
}

bool PartialShape::operator==(const PartialShape& other) const {
  return known_rank_ == other.known_rank_ && dims_ == other.dims_;
}

std::string PartialShape::str() const {
  if (!known_rank_) return "<unknown>";
  std::string out = "[";
  for (int i = 0; i < rank(); ++i) {
    if (i) out += ",";
    out += dims_[i] < 0 ? "?" : std::to_string(dims_[i]);
  }
  return out + "]";
}

Result<PartialShape> broadcast(const PartialShape& a, const PartialShape& b) {
  if (!a.has_rank() || !b.has_rank()) return PartialShape::unknown();
  const int rank = std::max(a.rank(), b.rank());
  PartialShape out = PartialShape::of_rank(rank);
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a.dim(-i) : 1;
    const int64_t y = i <= b.rank() ? b.dim(-i) : 1;
    int64_t size;
    if (x == 1) size = y;
    else if (y == 1 || x == y) size = x;
    else if (x < 0) size = y;
    else if (y < 0) size = x;
    else return invalid_argument("shapes {} and {} do not broadcast", a.str(), b.str());
    out.set(rank - i, size);
  }
  return out;
}

Result<Shape> broadcast(const Shape& a, const Shape& b) {
  TROUPE_ASSIGN(PartialShape out, broadcast(PartialShape(a), PartialShape(b)));
  return Shape::make(out.dims());
}

}  // namespace troupe
