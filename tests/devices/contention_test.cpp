// SPDX-License-Identifier: Apache-2.0
// When a team's threads are to wait briefly: known by the time that their turns take, with a clock from outside; and
// that brief waits change no result.
#include "devices/contention.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <optional>
#include <vector>

#include "devices/parallel.h"
#include "devices/team.h"

namespace troupe::testing {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST_CASE("contention: turns that wait for a core tell of it, turns that have one all the time do not") {
  Contention alone;
  for (int64_t now = 0; now < 1000 * kMs; now += kMs) alone.took(kMs, kMs * 9 / 10, now);
  CHECK_FALSE(alone.waits_briefly(1000 * kMs));

  Contention crowded;
  crowded.took(Contention::kWindowNs - 1, 1, 5 * kMs);
  CHECK_FALSE(crowded.waits_briefly(5 * kMs));  // it has not seen enough
  crowded.took(kMs, kMs / 3, 6 * kMs);
  CHECK(crowded.waits_briefly(6 * kMs));
  CHECK(crowded.waits_briefly(6 * kMs + Contention::kLeastHoldNs - 1));
  CHECK_FALSE(crowded.waits_briefly(6 * kMs + Contention::kLeastHoldNs));
}

TEST_CASE("contention: one slow turn among many counts for what it is") {
  Contention c;
  for (int64_t now = 0; now < 400 * kMs; now += 2 * kMs) {
    c.took(kMs, kMs, now);
    c.took(kMs, kMs * 2 / 10, now + kMs);
  }
  CHECK_FALSE(c.waits_briefly(400 * kMs));
}

TEST_CASE(
    "contention: while it stays, long waits are tried less and less often; when it was gone for long, as at first") {
  Contention c;
  int64_t now = kMs, hold = Contention::kLeastHoldNs;
  for (int i = 0; i < 8; ++i) {
    c.took(20 * kMs, 5 * kMs, now);
    CHECK(c.waits_briefly(now + hold - 1));
    CHECK_FALSE(c.waits_briefly(now + hold));
    now += hold + 20 * kMs;
    hold = std::min(2 * hold, Contention::kMostHoldNs);
  }
  now += 2 * Contention::kMostHoldNs;
  c.took(20 * kMs, 5 * kMs, now);
  CHECK_FALSE(c.waits_briefly(now + Contention::kLeastHoldNs));
}

TEST_CASE("contention: a thread's time beyond the turn's does not pay for others") {
  Contention c;
  c.took(8 * kMs, 80 * kMs, kMs);
  c.took(9 * kMs, kMs / 10, 2 * kMs);
  CHECK(c.waits_briefly(2 * kMs));
}

TEST_CASE("contention: work is split the same while waits are brief, and after them, in turns by several threads") {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    std::atomic<int64_t> sum{0};
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        Team team(2);
        std::optional<BriefWaits> brief;
        for (int i = 0; i < 20; ++i) {
          const Team::Turn turn(team);
          if (i == 5) brief.emplace();
          if (i == 15) brief.reset();
          parallel_for(2, 100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
        }
      });
    for (std::thread& t : threads) t.join();
    CHECK(sum == 3 * 20 * 100);
  }
}

}  // namespace
}  // namespace troupe::testing
