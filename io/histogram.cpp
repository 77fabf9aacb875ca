// SPDX-License-Identifier: Apache-2.0
// Filling and joining of buckets.
#include "io/histogram.h"

#include <algorithm>
#include <limits>

namespace troupe {

std::vector<double> histogram_limits() {
  std::vector<double> positive;
  for (double v = 1e-12; v < 1e20; v *= 1.1) positive.push_back(v);
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> limits;
  for (auto v = positive.rbegin(); v != positive.rend(); ++v) limits.push_back(-*v);
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  return limits;
}

Histogram make_histogram(std::span<const double> values) {
  const std::vector<double> limits = histogram_limits();
  std::vector<double> counts(limits.size());
  Histogram out;
  if (!values.empty()) out.min = out.max = values[0];
  for (const double v : values) {
    const auto bucket = std::ranges::upper_bound(limits, v) - limits.begin();
    counts[std::min<size_t>(static_cast<size_t>(bucket), counts.size() - 1)] += 1;
    out.min = std::min(out.min, v);
    out.max = std::max(out.max, v);
    out.num += 1;
    out.sum += v;
    out.sum_squares += v * v;
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool joins = !out.counts.empty() && out.counts.back() == 0 && counts[i] == 0;
    if (joins) {
      out.limits.back() = limits[i];
    } else {
      out.limits.push_back(limits[i]);
      out.counts.push_back(counts[i]);
    }
  }
  return out;
}

}  // namespace troupe
