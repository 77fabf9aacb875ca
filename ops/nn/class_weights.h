// SPDX-License-Identifier: Apache-2.0
// Drawing classes in proportion to weights: in logarithmic time where these change one at a time, else in constant
// time.
#pragma once
#include <string>
#include <vector>

#include "ops/random/draws.h"
#include "troupe/attr.h"
#include "troupe/error.h"

namespace troupe {

/// A tree of sums (Fenwick, "A new data structure for cumulative frequency tables", 1994). One thread at a time.
class ClassWeights {
 public:
  /// Weights are >= 0 and not all 0.
  explicit ClassWeights(const std::vector<double>& weights);
  double total() const { return total_; }
  double at(int64_t k) const { return weights_[k]; }
  /// How many weights are above 0.
  int64_t positive() const { return positive_; }
  void add(int64_t k, double by);
  /// The class in whose part of [0, total()) `sum` is.
  int64_t find(double sum) const;

 private:
  std::vector<double> weights_, sums_;  // sums_[i]: of the weights (i - lowest bit of i, i]
  double total_ = 0;
  int64_t positive_ = 0;
};

/// Each class takes as much of the column of its number as its weight fills, and what is left goes to one other class
/// (Walker, "An efficient method for generating discrete random variables with general distributions", 1977).
class AliasTable {
 public:
  /// Weights are >= 0 and not all 0.
  explicit AliasTable(const std::vector<double>& weights);
  int64_t draw(Words& words) const;

 private:
  struct Column {
    float own = 1;      // the share of the class of this number
    int64_t other = 0;  // whose the rest is
  };
  std::vector<Column> columns_;
};

/// The weights of FixedUnigramCandidateSampler: attribute unigrams, or the last comma-separated field of each line of
/// the file vocab_file, to the power distortion; 0 for the num_reserved_ids first classes and those of other shards.
/// Errors: neither or both, a file that cannot be read (named), a line without a number, a count but range_max.
Result<std::vector<double>> fixed_unigrams(const KernelInit& init);

}  // namespace troupe
