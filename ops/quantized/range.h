// SPDX-License-Identifier: Apache-2.0
// Integers that stand for the numbers of a range, and what ops on them have in common. The integers are plain ones:
// GraphDef's quantised types are read as those that they are made of. The ways to round are TensorFlow's, which has two
// that differ in their last bit. Implemented in ops/quantized/range.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/parts/type_dispatch.h"
#include "troupe/kernel.h"

namespace troupe {

using QuantizedTypes = TypeList<int8_t, uint8_t, int32_t, int16_t, uint16_t>;

template <class T> inline constexpr double kLeast = static_cast<double>(std::numeric_limits<T>::min());
template <class T> inline constexpr double kMost = static_cast<double>(std::numeric_limits<T>::max());
template <class T> inline constexpr double kSteps = kMost<T> - kLeast<T>;

/// The whole part of x, or the nearest number that T holds; the least for NaN.
template <class T, class X> T to_integer(X x) {
  if (!(static_cast<double>(x) > kLeast<T>)) return std::numeric_limits<T>::min();
  return static_cast<double>(x) >= kMost<T> ? std::numeric_limits<T>::max() : static_cast<T>(x);
}

/// The numbers that the least and the most integer of a type stand for.
struct CodeRange {
  float low = 0, high = 0;
  bool operator==(const CodeRange&) const = default;
};

// -- by doubles -------------------------------------------------------------------------------------------------------

/// How many numbers wide the steps of a range are, as if it had one step more.
template <class T> double width_of(const CodeRange& r) {
  return static_cast<double>(r.high - r.low) * ((kSteps<T> + 1) / kSteps<T>);
}

/// The integer that x would be, were T large enough.
template <class T> int64_t unbounded_code(float x, const CodeRange& r) {
  if (r.low == r.high) return std::numeric_limits<T>::min();
  const double scale = (kSteps<T> + 1) / width_of<T>(r);
  return to_integer<int64_t>(std::round(x * scale) - std::round(r.low * scale) + kLeast<T>);
}

template <class T> T code_of(float x, const CodeRange& r) {
  return static_cast<T>(
      std::clamp<int64_t>(unbounded_code<T>(x, r), std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

/// TensorFlow's quantised types become other numbers by way of float, here as in all that follows.
template <class T> float number_of(T code, const CodeRange& r) {
  if (r.low == r.high) return r.low;
  const double step = width_of<T>(r) / (kSteps<T> + 1);
  const auto narrow = static_cast<float>(step);
  return static_cast<float>(std::round(r.low / narrow) * narrow + (static_cast<double>(code) - kLeast<T>)*step);
}

// -- by floats --------------------------------------------------------------------------------------------------------

/// Numbers to integers; zero is on a step.
template <class T> class Encoder {
 public:
  explicit Encoder(const CodeRange& r)
      : scale_(r.low == r.high ? 0.f : static_cast<float>(kSteps<T> / static_cast<double>(r.high - r.low))),
        start_(std::round(r.low * scale_) - static_cast<float>(kLeast<T>)) {}
  T operator()(float x) const {
    constexpr float kLargest = 2147483520;  // the last float before 2^31
    return to_integer<T>(std::min(std::round(x * scale_) - start_, kLargest));
  }

 private:
  float scale_, start_;
};

/// Integers to numbers: y = x * scale + offset; zero is on a step.
template <class T> struct Decoder {
  float scale, offset;
  explicit Decoder(const CodeRange& r) : scale(static_cast<float>(static_cast<double>(r.high - r.low) / kSteps<T>)) {
    const float rounded = r.low == r.high ? r.low : std::round(r.low / scale) * scale;
    offset = rounded - static_cast<float>(kLeast<T>) * scale;
  }
  float operator()(T x) const { return offset + static_cast<float>(x) * scale; }
};

// -- kernels ----------------------------------------------------------------------------------------------------------

/// The range that inputs i and i + 1 are. Errors: they are not one number each.
Result<CodeRange> range_at(const KernelContext& c, int i);
/// The same; errors also: a first that is not below the second.
Result<CodeRange> rising_range_at(const KernelContext& c, int i);
/// Outputs i and i + 1.
void set_range(KernelContext& c, int i, const CodeRange& range);
/// Shapes of outputs 1 and 2, the ends of a range.
void set_range_shape(ShapeContext& c);

/// The range of 32-bit integers for products of bytes: a step is as wide as one of a times one of b.
CodeRange product_range(const CodeRange& a, const CodeRange& b);
/// Which byte, or one that is none, stands for zero.
int32_t zero_of(const CodeRange& r);
/// Bytes as integers from that for zero on.
Result<Tensor> from_zero(const KernelContext& c, const Tensor& x, int32_t zero);

/// Why they have no gradient.
inline constexpr const char* kQuantized = "TensorFlow gives it none";

}  // namespace troupe
