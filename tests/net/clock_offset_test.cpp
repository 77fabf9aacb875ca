// SPDX-License-Identifier: Apache-2.0
// How far two clocks are apart, from exchanges over ways of any length in either direction.
#include "net/clock_offset.h"

#include <catch2/catch.hpp>

#include <random>

#include "tests/repeats.h"

using namespace troupe::net;

TEST_CASE("nothing is known of a clock before an exchange") {
  ClockOffset clock;
  CHECK_FALSE(clock.offset_ns());
  clock.add(100, 5000, 5010, 130);
  REQUIRE(clock.offset_ns());
  // Between 5010 - 130 and 5000 - 100.
  CHECK(*clock.offset_ns() == 4890);
  CHECK(clock.error_ns() == 10);
}

TEST_CASE("the true offset is within the error, whatever the ways take, and several exchanges beat the best") {
  std::mt19937_64 random(5);
  for (int round = 0; round < troupe::repeats(200); ++round) {
    const auto offset = static_cast<int64_t>(random() % 2'000'000'000'000) - 1'000'000'000'000;
    const double rate = 1 + (static_cast<double>(random() % 100) - 50) * 1e-6;  // of the other clock
    const auto there = [&](int64_t t) { return static_cast<int64_t>(static_cast<double>(t) * rate) + offset; };
    ClockOffset clock;
    int64_t now = 1'000'000, best = INT64_MAX;
    for (int i = 0; i < 100; ++i) {
      const auto way = [&] { return static_cast<int64_t>(20'000 + random() % (random() % 8 ? 100'000 : 50'000'000)); };
      const int64_t sent = now, came = sent + way(), answered = came + static_cast<int64_t>(random() % 1'000'000),
                    heard = answered + way();
      clock.add(sent, there(came), there(answered), heard);
      best = std::min(best, (heard - sent - (answered - came)) / 2);
      REQUIRE(clock.offset_ns());
      CHECK(std::abs(*clock.offset_ns() - (there(heard) - heard)) <= clock.error_ns() + 1);
      now = heard + 200'000'000;
    }
    CHECK(clock.error_ns() <= best + 4'100'000);  // 20 s of drift
  }
}

TEST_CASE("a clock that was set is believed at once, and times that cannot be are not") {
  ClockOffset clock;
  clock.add(0, 1000, 1000, 20);
  clock.add(1000, 9'000'000, 9'000'000, 1020);
  CHECK(*clock.offset_ns() == 9'000'000 - 1010);
  const ClockOffset before = clock;
  clock.add(100, 50, 40, 120);                       // answered before it came
  clock.add(100, 50, 60, 90);                        // heard before it was sent
  clock.add(0, 0, 100, 20);                          // took longer there than in all
  clock.add(INT64_MIN, INT64_MAX, INT64_MAX, 5000);  // nonsense
  clock.add(2000, INT64_MIN, INT64_MAX, 2020);
  CHECK(*clock.offset_ns() == *before.offset_ns());
  CHECK(clock.error_ns() == before.error_ns());
}
