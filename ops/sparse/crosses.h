// SPDX-License-Identifier: Apache-2.0
// Crosses of features: every choice of one feature of each of several columns, row by row.
#pragma once
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ops/text/string_hash.h"
#include "troupe/error.h"
#include "troupe/tensor.h"

namespace troupe {

/// The features of one input, by row: those of a sparse matrix in the order of its indices, those between the splits of
/// a ragged one, or all of a dense one.
struct CrossColumn {
  enum class Kind { kSparse, kRagged, kDense };
  /// Places of values, from begin to before end.
  struct Places {
    int64_t begin, end;
  };
  Kind kind;
  const Tensor* values;
  std::vector<int64_t> rows = {};    // of the values of a sparse matrix, sorted
  std::vector<int64_t> splits = {};  // of a ragged one
  int64_t width = 0;                 // of a dense one

  Places at(int64_t row) const {
    if (kind == Kind::kDense) return {row * width, (row + 1) * width};
    if (kind == Kind::kRagged) return {splits[static_cast<size_t>(row)], splits[static_cast<size_t>(row) + 1]};
    const auto found = std::ranges::equal_range(rows, row);
    return {found.begin() - rows.begin(), found.end() - rows.begin()};
  }
};

/// How many crosses a row has; nothing where an int64 does not count them.
inline std::optional<int64_t> count_crosses(const std::vector<CrossColumn>& columns, int64_t row) {
  int64_t out = 1;
  for (const CrossColumn& column : columns) {
    const auto [begin, end] = column.at(row);
    if (__builtin_mul_overflow(out, end - begin, &out)) return std::nullopt;
  }
  return out;
}

/// Calls `each` with the places of each cross of a row that has some; the last column goes round first.
template <class Each> void for_each_cross(const std::vector<CrossColumn>& columns, int64_t row, Each&& each) {
  std::vector<CrossColumn::Places> places;
  std::vector<int64_t> chosen;
  for (const CrossColumn& column : columns) {
    places.push_back(column.at(row));
    chosen.push_back(places.back().begin);
  }
  for (;;) {
    each(chosen);
    size_t k = columns.size();
    while (k > 0 && ++chosen[k - 1] == places[k - 1].end) {
      chosen[k - 1] = places[k - 1].begin;
      --k;
    }
    if (k == 0) return;
  }
}

/// Joins two fingerprints, as TensorFlow does.
inline uint64_t joined_fingerprints(uint64_t a, uint64_t b) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  const auto mix = [](uint64_t x) { return x ^ (x >> 47); };
  uint64_t out = (a ^ kMul ^ (mix(b * kMul) * kMul)) * kMul;
  out = mix(out) * kMul;
  return mix(out);
}

/// The remainder of a hash by `buckets`, or one of 63 bits where that is 0.
inline int64_t bucket_of(uint64_t hash, int64_t buckets) {
  return static_cast<int64_t>(hash %
                              static_cast<uint64_t>(buckets > 0 ? buckets : std::numeric_limits<int64_t>::max()));
}

/// The hash of a cross, from `key` on, modulo `buckets` unless that is 0.
inline int64_t cross_bucket(const std::vector<CrossColumn>& columns, const std::vector<int64_t>& chosen, uint64_t key,
                            int64_t buckets) {
  uint64_t hash = key;
  for (size_t k = 0; k < columns.size(); ++k) {
    const Tensor& values = *columns[k].values;
    hash = joined_fingerprints(hash, values.dtype() == DType::kString
                                         ? farm_fingerprint(values.data<std::string>()[chosen[k]])
                                         : static_cast<uint64_t>(values.data<int64_t>()[chosen[k]]));
  }
  return bucket_of(hash, buckets);
}

/// The features of a cross as text.
inline std::string cross_text(const std::vector<CrossColumn>& columns, const std::vector<int64_t>& chosen,
                              const std::string& separator) {
  std::string out;
  for (size_t k = 0; k < columns.size(); ++k) {
    const Tensor& values = *columns[k].values;
    if (k > 0) out += separator;
    if (values.dtype() == DType::kString) out += values.data<std::string>()[chosen[k]];
    else out += std::to_string(values.data<int64_t>()[chosen[k]]);
  }
  return out;
}

}  // namespace troupe
