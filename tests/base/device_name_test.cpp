// SPDX-License-Identifier: Apache-2.0
// Device names, full and partial.
#include "base/device_name.h"

#include <catch2/catch.hpp>

using namespace troupe;

namespace {
DeviceName parse(std::string_view text) {
  auto name = DeviceName::parse(text);
  INFO(text);
  REQUIRE(name.ok());
  return *name;
}
}  // namespace

TEST_CASE("device names are read and printed") {
  const DeviceName full = parse("/job:worker/replica:0/task:17/device:cpu:3");
  CHECK(full.full());
  CHECK(full.str() == "/job:worker/replica:0/task:17/device:cpu:3");
  CHECK(*full.job == "worker");
  CHECK(*full.task == 17);
  CHECK(parse("/cpu:1").str() == "/device:cpu:1");
  CHECK(parse("/device:CPU:1") == parse("/cpu:1"));
  CHECK(parse("GPU:0") == parse("/gpu:0"));
  CHECK(parse("/gpu:*") == parse("/gpu"));
  CHECK(parse("/gpu").str() == "/device:gpu:*");
  CHECK(parse(parse("/gpu").str()) == parse("/gpu"));
  CHECK(parse("/device:*:2").index == 2);
  CHECK(parse("/job:ps").str() == "/job:ps");
  CHECK(parse("").empty());
  CHECK(!parse("/task:3").full());
}

TEST_CASE("malformed device names are errors that name them") {
  for (const char* text : {"/job:", "/job:1x", "/task:x", "/task:", "/task:-1", "/cpu:", "/cpu:1x", "/:1", "//", "/",
                           "/cpu:0/gpu:1", "/job:a/job:b", "/device:", "/task:1/task:2", "/cpu:99999999999"}) {
    const auto name = DeviceName::parse(text);
    INFO(text);
    REQUIRE(!name.ok());
    CHECK_THAT(name.error().message, Catch::Contains(text));
  }
}

TEST_CASE("partial names match and merge") {
  const DeviceName full = parse("/job:localhost/task:0/device:cpu:0");
  for (const char* text : {"", "/cpu:0", "/cpu", "/job:localhost", "/task:0", "/replica:0", "/device:*:0"})
    CHECK(parse(text).matches(full));
  for (const char* text : {"/gpu", "/cpu:1", "/job:ps", "/task:1", "/replica:1"}) CHECK(!parse(text).matches(full));
  CHECK(DeviceName::merge(parse("/job:a"), parse("/cpu:1"))->str() == "/job:a/device:cpu:1");
  CHECK_THAT(DeviceName::merge(parse("/cpu:0"), parse("/cpu:1")).error().message,
             Catch::Contains("cpu:0") && Catch::Contains("cpu:1"));
  CHECK(DeviceName::override(parse("/job:a/cpu:1"), parse("/gpu")).str() == "/job:a/device:gpu:*");
  CHECK(DeviceName::override(parse("/job:a/cpu:1"), parse("/cpu:2")).str() == "/job:a/device:cpu:2");
}
