// SPDX-License-Identifier: Apache-2.0
// Which values go when there are too many.
#include "base/recently_used.h"

#include <catch2/catch.hpp>

#include <ctime>

#include "tests/repeats.h"

using namespace troupe;

TEST_CASE("of values by key those that nobody looks up or holds go first") {
  RecentlyUsed<std::string> recent(2, 100);
  const auto make = [](const char* text) { return std::make_shared<std::string>(text); };
  CHECK(recent.add("a", make("A"), 10).empty());
  CHECK(recent.add("b", make("B"), 10).empty());
  CHECK(recent.find("a"));
  auto gone = recent.add("c", make("C"), 10);
  REQUIRE(gone.size() == 1);
  CHECK(*gone[0] == "B");
  CHECK(!recent.find("b"));

  const auto held = recent.find("a");
  CHECK(recent.find("c"));
  gone = recent.add("d", make("D"), 10);  // "a" is the oldest, but held
  REQUIRE(gone.size() == 1);
  CHECK(*gone[0] == "C");
  CHECK(recent.find("a") == held);
  CHECK(recent.bytes() == 20);

  gone = recent.add("e", make("E"), 1000);  // more than there may be, but the newest
  CHECK(gone.size() == 1);
  CHECK(recent.find("e"));
  gone = recent.add("f", make("F"), 1);
  CHECK(gone.size() == 1);
  CHECK(!recent.find("e"));
  CHECK(recent.size() == 2);
}

TEST_CASE("many values that others hold do not make additions slow") {
  RecentlyUsed<int> recent(10, 0);
  std::vector<std::shared_ptr<int>> held;
  const std::clock_t begin = std::clock();  // processor time: others may keep the machine busy
  for (int i = 0; i < many(100'000); ++i) {
    held.push_back(std::make_shared<int>(i));
    CHECK(recent.add(std::to_string(i), held.back(), 1).empty());
  }
  held.clear();
  for (int i = 0; i < 2'000; ++i) recent.add("x" + std::to_string(i), std::make_shared<int>(i), 1);
  CHECK(recent.size() < 10);
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / kSlowness < 10);
}
