// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "troupe/device_rates.h"

namespace troupe {

Links::Links(std::vector<uint32_t> group_of, const LinkRates& within)
    : within_(within), group_of_(std::move(group_of)),
      groups_(group_of_.empty() ? 0 : *std::ranges::max_element(group_of_) + 1),
      between_(size_t{groups_} * groups_, within) {}

void Links::set(uint32_t from_group, uint32_t to_group, const LinkRates& rates) {
  if (from_group < groups_ && to_group < groups_) between_[from_group * groups_ + to_group] = rates;
}

LinkRates Links::mean() const {
  if (group_of_.size() < 2) return within_;
  double latency = 0, byte = 0;
  for (uint32_t a = 0; a < group_of_.size(); ++a)
    for (uint32_t b = 0; b < group_of_.size(); ++b)
      if (a != b) latency += between(a, b).latency_ns, byte += 1 / between(a, b).bandwidth;
  const auto pairs = static_cast<double>(group_of_.size() * (group_of_.size() - 1));
  return {pairs / byte, latency / pairs};
}

}  // namespace troupe
