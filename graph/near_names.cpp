// SPDX-License-Identifier: Apache-2.0
// Edit distance over names, for error messages.
#include "graph/near_names.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <numeric>

#include "base/join.h"
#include "base/lower_case.h"

namespace troupe {
namespace {

constexpr size_t kMostSuggestions = 5;

int edits(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

NearNames::NearNames(std::string_view name) : name_(lower_case(name.substr(0, 200))) {}

void NearNames::offer(std::string_view candidate) {
  const int allowed = std::min<int>(3, 1 + static_cast<int>(name_.size()) / 4);
  const int difference = std::abs(static_cast<int>(candidate.size()) - static_cast<int>(name_.size()));
  const bool long_enough = name_.size() >= 3;
  if (name_.empty() || (difference > allowed && (!long_enough || difference > 12))) return;
  const std::string other = lower_case(candidate);
  int distance = difference <= allowed ? edits(name_, other) : allowed + 1;
  if (distance > allowed) {
    if (!long_enough || other.find(name_) == std::string::npos) return;
    distance = allowed + 1 + difference;
  }
  std::pair<int, std::string> found{distance, candidate};
  auto at = std::lower_bound(best_.begin(), best_.end(), found);
  if (at == best_.end() && best_.size() == kMostSuggestions) return;
  best_.insert(at, std::move(found));
  if (best_.size() > kMostSuggestions) best_.pop_back();
}

std::vector<std::string> NearNames::take() const {
  std::vector<std::string> out;
  for (const auto& [distance, name] : best_) out.push_back(name);
  return out;
}

std::string NearNames::hint() const { return best_.empty() ? "" : fmt::format("; near it: {}", join(take(), ", ")); }

}  // namespace troupe
