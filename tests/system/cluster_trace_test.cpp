// SPDX-License-Identifier: Apache-2.0
// Traces that programs write under troupe launch: one file, JSON, with what the devices of all tasks did.
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/system/cluster.h"

namespace troupe::testing {
namespace {

/// What each device did, by its name in the trace: "run NAME", "send NAME" and "receive NAME". Checks what every event
/// must have.
std::map<std::string, std::multiset<std::string>> slices_in(const std::string& path) {
  const auto events = nlohmann::json::parse(TemporaryDirectory::read(path), nullptr, false);
  REQUIRE(events.is_array());
  std::map<int, std::string> devices;
  for (const auto& event : events)
    if (event.at("ph") == "M" && event.at("name") == "thread_name")
      devices[event.at("tid")] = event.at("args").at("name");
  std::map<std::string, std::multiset<std::string>> out;
  for (const auto& event : events) {
    if (event.at("ph") != "X") continue;
    INFO(event.dump());
    REQUIRE(devices.contains(event.at("tid")));
    CHECK(event.at("ts") >= 0.0);
    CHECK(event.at("dur") >= 0.0);
    out[devices.at(event.at("tid"))].insert(event.at("name"));
  }
  return out;
}

std::string device_of(int task) { return "/job:worker/replica:0/task:" + std::to_string(task) + "/device:cpu:0"; }

}  // namespace

TEST_CASE("cluster trace: run under launch writes what both tasks did in every step") {
  const TemporaryDirectory folder;
  folder.write("g.pbtxt", R"(
    node { name: 'one' op: 'Const' device: '/job:worker/task:0/cpu:0' attr { key: 'dtype' value { type: DT_FLOAT } }
           attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1.5 } } } }
    node { name: 'here' op: 'Exp' input: 'one' device: '/job:worker/task:0/cpu:0'
           attr { key: 'T' value { type: DT_FLOAT } } }
    node { name: 'there' op: 'Neg' input: 'here' device: '/job:worker/task:1/cpu:0'
           attr { key: 'T' value { type: DT_FLOAT } } }
    node { name: 'back' op: 'Square' input: 'there' device: '/job:worker/task:0/cpu:0'
           attr { key: 'T' value { type: DT_FLOAT } } })");
  const std::string trace = folder.file("trace.json");
  const Ended ended = run({"launch", "-n", "2", "--", kTroupePath, "run", folder.file("g.pbtxt"), "--steps", "3",
                           "--fetch", "back", "--passes", "none", "--trace", trace});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  const auto slices = slices_in(trace);
  REQUIRE(slices.contains(device_of(0)));
  REQUIRE(slices.contains(device_of(1)));
  const auto &here = slices.at(device_of(0)), &there = slices.at(device_of(1));
  for (const char* const name : {"here", "back", "send here", "receive there"}) CHECK(here.count(name) == 3);
  for (const char* const name : {"there", "send there", "receive here"}) CHECK(there.count(name) == 3);
}

TEST_CASE("cluster trace: a pipeline under launch writes what the devices of its stages did") {
  const TemporaryDirectory folder;
  const std::string trace = folder.file("trace.json");
  const Ended ended = run({"launch", "-n", "2", "--", "../examples/pipeline", "--devices", "workers", "--stages", "2",
                           "--batches", "1", "--micro-batches", "2", "--trace", trace});
  INFO(ended.out << ended.err);
  REQUIRE(ended.status == 0);
  const auto slices = slices_in(trace);
  for (const int task : {0, 1}) {
    REQUIRE(slices.contains(device_of(task)));
    CHECK(std::ranges::any_of(slices.at(device_of(task)), [](const auto& name) { return name.starts_with("send "); }));
    CHECK(
        std::ranges::any_of(slices.at(device_of(task)), [](const auto& name) { return name.starts_with("receive "); }));
  }
}

}  // namespace troupe::testing
