// SPDX-License-Identifier: Apache-2.0
// Names that look like a misspelt one, for error messages.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Collects the few candidates nearest to a name: equal but for case, within a few edits, or containing it.
/// Time: linear in the candidates; most are refused by their length alone.
class NearNames {
 public:
  explicit NearNames(std::string_view name);
  void offer(std::string_view candidate);
  /// At most five, nearest first, equal distances by alphabet.
  std::vector<std::string> take() const;
  /// "; near it: a, b", or nothing.
  std::string hint() const;

 private:
  std::string name_;  // lower case
  std::vector<std::pair<int, std::string>> best_;
};

}  // namespace troupe
