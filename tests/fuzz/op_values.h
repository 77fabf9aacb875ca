// SPDX-License-Identifier: Apache-2.0
// Random numbers and tensors for the op fuzzer. Implemented in op_values.cpp.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "troupe/tensor.h"

namespace troupe::fuzz {

/// Random choices that follow from a seed alone.
class Rng {
 public:
  explicit Rng(uint64_t seed) : engine_(seed) {}
  /// From `low` to `high`, both included; `low` where high is smaller.
  int64_t between(int64_t low, int64_t high);
  /// True so many times in a hundred.
  bool percent(int chance) { return between(0, 99) < chance; }
  double real(double low, double high);
  template <class T> const T& one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

/// A size of a dimension: mostly 1 to 3, sometimes 0.
int64_t any_size(Rng& rng);

/// Elements of any value that the dtype has. Numbers are small, mostly; some tensors have NaN, infinities, the ends of
/// the type's range.
Tensor any_tensor(Rng& rng, DType dtype, const Shape& shape);

/// The number as an element, cut off at the ends of the type; text for strings.
void set_number(Tensor& tensor, int64_t i, double value);

/// Puts extreme values in some places of a tensor of numbers.
void make_extreme(Rng& rng, Tensor& tensor);

/// Dtypes a tensor of plain values may have.
const std::vector<DType>& value_dtypes();

/// Same dtype, shape and elements; all NaNs are equal. With `close`, floating numbers may differ by rounding.
/// Elements of resources and variants are not compared.
bool agree(const Tensor& a, const Tensor& b, bool close);

}  // namespace troupe::fuzz
