// SPDX-License-Identifier: Apache-2.0
#include "base/making.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>

using namespace troupe;

TEST_CASE("a thread knows what it is making, by owner and key, and other threads do not") {
  int owner = 0, other = 0;
  CHECK_FALSE(Making::has(&owner, "a"));
  {
    const Making outer(&owner, "a");
    CHECK(Making::has(&owner, std::string("a")));
    CHECK_FALSE(Making::has(&owner, "b"));
    CHECK_FALSE(Making::has(&other, "a"));
    {
      const Making inner(&other, "b");
      CHECK(Making::has(&owner, "a"));
      CHECK(Making::has(&other, "b"));
      bool elsewhere = true;
      std::thread([&] { elsewhere = Making::has(&owner, "a"); }).join();
      CHECK_FALSE(elsewhere);
    }
    CHECK_FALSE(Making::has(&other, "b"));
    CHECK(Making::has(&owner, "a"));
  }
  CHECK_FALSE(Making::has(&owner, "a"));
}
