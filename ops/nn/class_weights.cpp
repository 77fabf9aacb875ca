// SPDX-License-Identifier: Apache-2.0
// Weights of classes, and how unigrams are read.
#include "ops/nn/class_weights.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>
#include <sstream>

#include "io/data_folders.h"
#include "io/whole_file.h"

namespace troupe {

ClassWeights::ClassWeights(const std::vector<double>& weights)
    : weights_(weights.size(), 0.0), sums_(weights.size() + 1, 0.0) {
  for (size_t k = 0; k < weights.size(); ++k)
    if (weights[k] > 0) add(static_cast<int64_t>(k), weights[k]);
}

void ClassWeights::add(int64_t k, double by) {
  positive_ += weights_[k] == 0;
  weights_[k] += by;
  total_ += by;
  for (size_t i = static_cast<size_t>(k) + 1; i < sums_.size(); i += i & -i) sums_[i] += by;
}

int64_t ClassWeights::find(double sum) const {
  size_t at = 0;
  for (size_t step = std::bit_floor(weights_.size()); step > 0; step /= 2)
    if (at + step < sums_.size() && sums_[at + step] <= sum) {
      at += step;
      sum -= sums_[at];
    }
  // Rounding may lead past the last class, or to one that cannot be drawn: then to the one before.
  at = std::min(at, weights_.size() - 1);
  while (weights_[at] == 0 && at > 0) --at;
  while (weights_[at] == 0) ++at;
  return static_cast<int64_t>(at);
}

AliasTable::AliasTable(const std::vector<double>& weights) : columns_(weights.size()) {
  const double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
  std::vector<double> left(weights.size());
  std::vector<size_t> low, high;
  for (size_t k = 0; k < weights.size(); ++k) {
    left[k] = weights[k] / mean;
    (left[k] < 1 ? low : high).push_back(k);
  }
  while (!low.empty() && !high.empty()) {
    const size_t poor = low.back(), rich = high.back();
    low.pop_back();
    high.pop_back();
    columns_[poor] = {static_cast<float>(left[poor]), static_cast<int64_t>(rich)};
    left[rich] -= 1 - left[poor];
    (left[rich] < 1 ? low : high).push_back(rich);
  }  // but for rounding, those that are left fill their columns
}

int64_t AliasTable::draw(Words& words) const {
  const float share = words.uniform_float();
  const uint32_t k = words.below(static_cast<uint32_t>(columns_.size()));
  return share < columns_[k].own ? k : columns_[k].other;
}

namespace {

Result<std::vector<double>> read_counts(const std::string& path) {
  auto text = read_file(path);
  if (!text.ok()) return make_error(text.error().code, "vocab_file: {}", text.error().message);
  std::istringstream file(std::move(*text));
  std::vector<double> out;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const size_t comma = line.rfind(',');
    const char* field = line.data() + (comma == std::string::npos ? 0 : comma + 1);
    double count = 0;
    const auto [end, fault] = std::from_chars(field, line.data() + line.size(), count);
    if (fault != std::errc() || end != line.data() + line.size())
      return invalid_argument("line {} of vocab_file '{}' does not end in a number: '{}'", out.size() + 1, path, line);
    out.push_back(count);
  }
  return out;
}

}  // namespace

Result<std::vector<double>> fixed_unigrams(const KernelInit& init) {
  const Attrs& attrs = *init.attrs;
  const auto& path = *attrs.get<std::string>("vocab_file");
  const auto& unigrams = *attrs.get<std::vector<float>>("unigrams");
  const int64_t reserved = *attrs.get<int64_t>("num_reserved_ids"), range = *attrs.get<int64_t>("range_max");
  const int64_t shards = *attrs.get<int64_t>("num_shards"), shard = *attrs.get<int64_t>("shard");
  const double distortion = *attrs.get<float>("distortion");
  if (path.empty() == unigrams.empty()) return invalid_argument("either vocab_file or unigrams must be given");
  if (reserved < 0 || shard < 0 || shard >= shards)
    return invalid_argument("num_reserved_ids {}, shard {} of {}", reserved, shard, shards);
  std::vector<double> counts(unigrams.begin(), unigrams.end());
  if (!path.empty()) {
    TROUPE_RETURN_IF_ERROR(may_touch(init.data_folders, path));
    TROUPE_ASSIGN(counts, read_counts(path));
  }
  if (reserved > range || static_cast<int64_t>(counts.size()) != range - reserved)
    return invalid_argument("{} reserved ids and {} counts for range_max {}", reserved, counts.size(), range);
  counts.insert(counts.begin(), static_cast<size_t>(reserved), 0.0);
  double total = 0;
  for (int64_t k = 0; k < range; ++k) {
    if (!(counts[k] >= 0) || std::isinf(counts[k])) return invalid_argument("count {} of class {}", counts[k], k);
    counts[k] = k < reserved || k % shards != shard ? 0 : std::pow(counts[k], distortion);
    total += counts[k];
  }
  if (!(total > 0) || std::isinf(total))
    return invalid_argument("the counts must add up to a finite number above 0, got {}", total);
  return counts;
}

}  // namespace troupe
