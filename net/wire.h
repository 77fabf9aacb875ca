// SPDX-License-Identifier: Apache-2.0
// WireWriter and WireReader: numbers, texts and lists as the bytes of a frame's body, little-endian, without padding.
// Implemented in net/wire.cpp.
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/cluster_spec.h"
#include "troupe/dtype.h"
#include "troupe/error.h"
#include "troupe/shape.h"

namespace troupe::net {

/// Appends to a string. Lengths are 32 bits; what does not fit is found when the frame is made, by its limits.
class WireWriter {
 public:
  void u8(uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void u32(uint32_t value) { number(value); }
  void u64(uint64_t value) { number(value); }
  void i64(int64_t value) { number(static_cast<uint64_t>(value)); }
  void boolean(bool value) { u8(value ? 1 : 0); }
  /// As the bits of an integer: infinities and NaNs arrive as they are.
  void f64(double value) { number(std::bit_cast<uint64_t>(value)); }
  /// Length and bytes.
  void text(std::string_view value);
  void dtype(DType value) { u8(static_cast<uint8_t>(value)); }
  void shape(const PartialShape& value);
  void task(const TaskId& value);
  /// An Error whole, or that there is none.
  void error(const std::optional<Error>& value);
  /// The number of elements, then each by write(element).
  template <class T, class F> void list(const std::vector<T>& values, F&& write) {
    u32(static_cast<uint32_t>(values.size()));
    for (const T& value : values) write(value);
  }

  std::string take() { return std::exchange(out_, {}); }

 private:
  template <class T> void number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
  }
  std::string out_;
};

/// Reads what a WireWriter wrote. The first fault stays: from then on all values are 0 or empty, and status() has the
/// error, so that a decoder may read everything and look once. Views into the bytes, which must outlive it.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  uint8_t u8() { return number<uint8_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  int64_t i64() { return static_cast<int64_t>(number<uint64_t>()); }
  /// 0 or 1; others are a fault.
  bool boolean();
  double f64() { return std::bit_cast<double>(number<uint64_t>()); }
  std::string text();
  /// A known dtype, kInvalid among them.
  DType dtype();
  PartialShape shape();
  /// A task by TaskId::check()'s rules.
  TaskId task();
  std::optional<Error> error();
  /// An enumerator from 0 to `last`.
  template <class E> E enumerator(E last) { return static_cast<E>(up_to(static_cast<uint8_t>(last))); }
  /// A list of elements that are read by read(). Each has at least `least_bytes` (from 1 on), so a count that what is
  /// left cannot hold is a fault before memory is taken.
  template <class F> auto list(size_t least_bytes, F&& read) {
    std::vector<decltype(read())> out;
    const size_t n = count(least_bytes);
    out.reserve(n);
    for (size_t i = 0; i < n && ok(); ++i) out.push_back(read());
    return out;
  }

  bool ok() const { return status_.ok(); }
  size_t left() const { return rest_.size(); }
  /// A fault of the caller's own, if there is none yet: a value that means nothing.
  void fail(Error error);
  /// The first fault, a kDataLoss.
  const Status& status() const { return status_; }
  /// status(), or a kDataLoss if bytes are left.
  Status finish();

 private:
  template <class T> T number() {
    T out = 0;
    const std::string_view bytes = take(sizeof(T));
    for (size_t i = 0; i < bytes.size(); ++i)
      out |= static_cast<T>(static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i));
    return out;
  }
  std::string_view take(size_t bytes);
  uint8_t up_to(uint8_t last);
  size_t count(size_t least_bytes);

  std::string_view rest_;
  Status status_;
};

}  // namespace troupe::net
