// SPDX-License-Identifier: Apache-2.0
// What is found by an address is what was kept there.
#include "base/by_address.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace troupe;

TEST_CASE("of what was found last, each is found by its address or not at all") {
  ByAddress<int, std::string, 4> recent;
  std::vector<int> keys(100);
  std::vector<std::string> values(100);
  CHECK(!recent.find(keys[0]));
  const auto found = [&] {
    int count = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::string* value = recent.find(keys[i]);
      CHECK((!value || value == &values[i]));
      count += value != nullptr;
    }
    return count;
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    recent.keep(keys[i], values[i]);
    CHECK(recent.find(keys[i]) == &values[i]);
  }
  const int count = found();
  CHECK((count > 1 && count <= 4));
  std::string other;
  recent.keep(keys[7], other);
  CHECK(recent.find(keys[7]) == &other);
  recent.clear();
  CHECK(found() == 0);
}
