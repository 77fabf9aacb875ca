// SPDX-License-Identifier: Apache-2.0
// Small steps whose schedules are computed by hand.
#include <catch2/catch.hpp>

#include "plan/simulated_step.h"

using namespace troupe;

namespace {

/// Devices alike; links of a byte a nanosecond and a latency of 10.
Cluster cluster_of(uint32_t count, double memory = 0) {
  return {std::vector<uint32_t>(count, 0), std::vector<double>(count, memory),
          LinkRates{.bandwidth = 1e9, .latency_ns = 10}};
}

/// A task of `ns` with one output of `bytes` that reads outputs of others; returns the output.
uint32_t task(TaskGraph& g, double ns, double bytes, const std::vector<uint32_t>& reads = {}, double resident = 0) {
  g.add_task({{ns}, resident, g.size(), false});
  for (const uint32_t v : reads) g.add_input(v);
  return g.add_value(bytes);
}

Schedule run(const TaskGraph& g, const Cluster& c, std::vector<uint32_t> device_of) {
  return Simulator(g, c).run(device_of, Simulator::Detail::kEverything);
}

}  // namespace

TEST_CASE("a device carries out one task at a time, the longest way first") {
  TaskGraph g;
  const uint32_t a = task(g, 100, 50), b = task(g, 10, 50), c = task(g, 500, 50, {b});
  task(g, 20, 50, {a, c});
  g.close();
  const Schedule s = run(g, cluster_of(1), {0, 0, 0, 0});
  CHECK(s.start_ns == std::vector<double>{510, 0, 10, 610});  // b and c, with the longer way, before a
  CHECK(s.step_ns == 630);
  CHECK(s.busy_ns == std::vector<double>{630});
  CHECK(s.transfers.empty());
  CHECK(s.critical_path() == std::vector<uint32_t>{1, 2, 0, 3});
}

TEST_CASE("a value goes to each device that reads it once, and takes latency and bytes") {
  TaskGraph g;
  const uint32_t a = task(g, 100, 50);
  task(g, 30, 0, {a});
  task(g, 30, 0, {a});
  task(g, 30, 0, {a});
  g.close();
  const Schedule s = run(g, cluster_of(2), {0, 1, 1, 0});
  REQUIRE(s.transfers.size() == 1);
  CHECK(s.transfers[0].asked_ns == 100);
  CHECK(s.transfers[0].there_ns == 160);
  CHECK(s.start_ns == std::vector<double>{0, 160, 190, 100});
  CHECK(s.step_ns == 220);
  CHECK(s.busy_ns == std::vector<double>{130, 60});
}

TEST_CASE("a device sends one value at a time") {
  TaskGraph g;
  const uint32_t a = task(g, 100, 50);
  task(g, 1, 0, {a});
  task(g, 1, 0, {a});
  g.close();
  // To device 1 first (its reader is the first): leaves from 100 to 150; to device 2 from 150 to 200.
  const Schedule s = run(g, cluster_of(3), {0, 1, 2});
  CHECK(s.start_ns == std::vector<double>{0, 160, 210});
}

TEST_CASE("a device receives one value at a time, and sends meanwhile") {
  TaskGraph g;
  const uint32_t a = task(g, 100, 50), b = task(g, 100, 80), c = task(g, 100, 40);
  task(g, 1, 0, {a, b});  // on 2: a from 0 there at 160, b from 1 at 160 + 80
  task(g, 1, 0, {c});     // on 0: c from 2, which receives meanwhile, at 150
  g.close();
  const Schedule s = run(g, cluster_of(3), {0, 1, 2, 2, 0});
  CHECK(s.start_ns[3] == 240);
  CHECK(s.start_ns[4] == 150);
}

TEST_CASE("a fact without bytes crosses with the latency alone; tasks that take no time hold up nobody") {
  TaskGraph g;
  const uint32_t a = task(g, 100, 0), b = task(g, 0, 0, {a}), c = task(g, 0, 0, {b});
  task(g, 7, 0, {c});
  g.close();
  const Schedule s = run(g, cluster_of(2), {0, 0, 0, 1});
  CHECK(s.start_ns[3] == 110);
  CHECK(s.step_ns == 117);
}

TEST_CASE("devices of another class take other times") {
  TaskGraph g;
  g.add_task({{100, 10}, 0, 0, false});
  g.close();
  const Cluster c = {{0, 1}, {0, 0}, {}};
  CHECK(run(g, c, {0}).step_ns == 100);
  CHECK(run(g, c, {1}).step_ns == 10);
}

TEST_CASE("memory is taken from a task's start until its last reader on a device has ended") {
  TaskGraph g;
  const uint32_t a = task(g, 100, 50, {}, 1000), b = task(g, 100, 70, {a}), c = task(g, 100, 30, {b});
  task(g, 100, 5, {c, a});
  g.close();
  SECTION("on one device") {
    // a (50); a, b (120); a, b, c (150): b goes when c has ended; a, c and the last (85).
    CHECK(run(g, cluster_of(1), {0, 0, 0, 0}).peak_bytes == std::vector<double>{1150});
  }
  SECTION("on two, where what was sent is held until it is there, and again there") {
    // Device 0 has a, b (120) and, while b is on its way, both still; device 1 has b, c and at last a.
    const Schedule s = run(g, cluster_of(2), {0, 0, 1, 1});
    CHECK(s.peak_bytes == std::vector<double>{1120, 150});  // a came early: a, b, c
    CHECK(s.excess_bytes == 0);
  }
  SECTION("over the limit") {
    CHECK(run(g, cluster_of(2, 1100), {0, 0, 1, 1}).excess_bytes == 20);
    CHECK(Simulator(g, cluster_of(2, 1100)).run(std::vector<uint32_t>{0, 0, 1, 1}).excess_bytes == 20);
  }
}

TEST_CASE("what shares memory counts once, and what is fetched is held to the end") {
  TaskGraph g;
  const uint32_t a = task(g, 10, 100);
  g.add_task({{0}, 0, 1, true});
  g.add_input(a);
  const uint32_t same = g.add_value(100, a);
  const uint32_t b = task(g, 10, 7, {same});
  task(g, 10, 1000, {b});
  SECTION("let go of") {
    g.close();
    CHECK(run(g, cluster_of(1), {0, 0, 0, 0}).peak_bytes == std::vector<double>{1007});
  }
  SECTION("kept") {
    g.keep(same);
    g.close();
    CHECK(run(g, cluster_of(1), {0, 0, 0, 0}).peak_bytes == std::vector<double>{1107});
  }
}

TEST_CASE("nothing to do takes no time") {
  TaskGraph g;
  g.close();
  const Schedule s = run(g, cluster_of(2), {});
  CHECK(s.step_ns == 0);
  CHECK(s.critical_path().empty());
}
