// SPDX-License-Identifier: Apache-2.0
// Histograms in TensorFlow's buckets, which grow by a tenth each.
#pragma once
#include <span>
#include <vector>

namespace troupe {

/// Counts of values in buckets; bucket i holds values below limits[i] and not below limits[i - 1].
struct Histogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits;
  std::vector<double> counts;  // runs of empty buckets are joined into one
};

/// The upper limits: 1e-12 times powers of 1.1 up to 1e20, their negatives, 0, and the largest double. Source:
/// tensorflow/core/lib/histogram.
std::vector<double> histogram_limits();

/// Of finite values.
Histogram make_histogram(std::span<const double> values);

}  // namespace troupe
