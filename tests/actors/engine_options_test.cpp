// SPDX-License-Identifier: Apache-2.0
// What an engine takes of a machine where its options do not say.
#include "actors/engine_options.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <thread>

#include "base/threads_available.h"

namespace troupe {
namespace {

TEST_CASE("an engine takes the cores that its maker may run on, not those of the machine") {
  EngineOptions options;
  int cores = 0;
  bool bound = false;
  std::thread([&] {
    cpu_set_t own, one;
    if (sched_getaffinity(0, sizeof own, &own) != 0) return;
    CPU_ZERO(&one);
    for (int core = CPU_SETSIZE; core-- > 0 && CPU_COUNT(&one) == 0;)
      if (CPU_ISSET(core, &own)) CPU_SET(core, &one);
    bound = sched_setaffinity(0, sizeof one, &one) == 0;
    cores = count_cores_available();
    choose_devices(options);
  }).join();
  REQUIRE(bound);
  CHECK(cores == 1);
  CHECK(options.cpu_threads == std::vector<int>{1});
  EngineOptions given{.cpu_threads = {3, 2}};
  choose_devices(given);
  CHECK(given.cpu_threads == std::vector<int>{3, 2});
}

}  // namespace
}  // namespace troupe
