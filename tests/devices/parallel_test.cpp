// SPDX-License-Identifier: Apache-2.0
// Work that is split over a team: all of it is done once, and phases wait for one another.
#include "devices/parallel.h"

#include <catch2/catch.hpp>

#include <numeric>
#include <vector>

namespace troupe::testing {
namespace {

TEST_CASE("parallel: a phase begins when all of the one before is done") {
  for (const int threads : {1, 2, 3})
    for (const int64_t n : {0, 1, 7})
      for (const int64_t phases : {0, 1, 100}) {
        INFO(threads << " threads, " << n << " items, " << phases << " phases");
        // Each item of a phase is the sum of all items of the phase before and 1: one that is missing would show.
        std::vector<std::vector<uint64_t>> items(phases + 1, std::vector<uint64_t>(n));
        set_team(threads);
        parallel_phases(threads, phases, n, 1, [&](int64_t phase, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            items[phase + 1][i] += 1 + std::accumulate(items[phase].begin(), items[phase].end(), uint64_t{0});
        });
        set_team(1);
        uint64_t want = 0;
        for (const auto& phase : items) {
          for (const uint64_t item : phase) REQUIRE(item == want);
          want = 1 + n * want;
        }
      }
}

TEST_CASE("parallel: a range is the same in every phase, and not smaller than the grain") {
  std::vector<std::vector<int64_t>> begins(5, std::vector<int64_t>(10, -1));
  set_team(4);
  parallel_phases(4, 5, 10, 3, [&](int64_t phase, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) begins[phase][i] = begin;
  });
  set_team(1);
  for (const auto& phase : begins) CHECK(phase == begins[0]);
  CHECK(begins[0] == std::vector<int64_t>{0, 0, 0, 3, 3, 3, 6, 6, 6, 6});
}

}  // namespace
}  // namespace troupe::testing
