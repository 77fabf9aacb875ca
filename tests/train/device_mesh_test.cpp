// SPDX-License-Identifier: Apache-2.0
// Places in a mesh of devices, and what a mesh refuses.
#include "troupe/device_mesh.h"

#include "tests/nn/fixture.h"

namespace troupe::nn {
namespace {

DeviceMesh cube() {
  Names devices;
  for (int i = 0; i < 12; ++i) devices.push_back(fmt::format("/cpu:{}", i));
  auto made = DeviceMesh::create(devices, {{"data", 2}, {"pipeline", 2}, {"tensor", 3}});
  REQUIRE(made.ok());
  return *made;
}

template <class T> Error error_of(const Result<T>& result) {
  REQUIRE_FALSE(result.ok());
  return result.error();
}

TEST_CASE("a mesh finds devices by the names of its axes, the last running fastest") {
  const DeviceMesh mesh = cube();
  CHECK(mesh.str() == "data 2 x pipeline 2 x tensor 3");
  CHECK(*mesh.size("tensor") == 3);
  CHECK(*mesh.at({{"data", 0}, {"pipeline", 0}, {"tensor", 0}}) == "/cpu:0");
  CHECK(*mesh.at({{"tensor", 2}, {"data", 1}, {"pipeline", 0}}) == "/cpu:8");
  CHECK(*mesh.along("tensor", {{"data", 1}, {"pipeline", 0}}) == Names{"/cpu:6", "/cpu:7", "/cpu:8"});
  CHECK(*mesh.along("data", {{"pipeline", 1}, {"tensor", 1}}) == Names{"/cpu:4", "/cpu:10"});
  CHECK(*mesh.along("pipeline", {{"data", 0}, {"tensor", 2}}) == Names{"/cpu:2", "/cpu:5"});

  const auto replica = mesh.slice({{"data", 1}});
  REQUIRE(replica.ok());
  CHECK(replica->str() == "pipeline 2 x tensor 3");
  CHECK(replica->devices() == Names{"/cpu:6", "/cpu:7", "/cpu:8", "/cpu:9", "/cpu:10", "/cpu:11"});
  CHECK(*replica->along("tensor", {{"pipeline", 1}}) == Names{"/cpu:9", "/cpu:10", "/cpu:11"});
}

TEST_CASE("one axis is all devices, and a device may be there twice") {
  const auto mesh = DeviceMesh::create({"/cpu:0", "/cpu:0"}, {{"tensor", 2}});
  REQUIRE(mesh.ok());
  CHECK(*mesh->along("tensor", {}) == Names{"/cpu:0", "/cpu:0"});
}

TEST_CASE("a mesh refuses axes that do not fit its devices") {
  using Catch::Contains;
  const auto fault = [](const Names& devices, std::vector<DeviceMesh::Axis> axes) {
    return error_of(DeviceMesh::create(devices, std::move(axes))).message;
  };
  const Names four = {"/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"};
  CHECK_THAT(fault(four, {}), Contains("no axis") && Contains("4"));
  CHECK_THAT(fault({}, {{"data", 1}}), Contains("data 1") && Contains("0 devices"));
  CHECK_THAT(fault(four, {{"data", 2}, {"tensor", 3}}), Contains("data 2 x tensor 3") && Contains("4 devices"));
  CHECK_THAT(fault(four, {{"data", 4}, {"tensor", 0}}), Contains("'tensor'") && Contains("0"));
  CHECK_THAT(fault(four, {{"data", 2}, {"data", 2}}), Contains("two axes") && Contains("'data'"));
  CHECK_THAT(fault(four, {{"", 4}}), Contains("no name"));
  // A product beyond 64 bits is too many like any other.
  CHECK_THAT(fault(four, {{"a", int64_t{1} << 40}, {"b", int64_t{1} << 40}, {"c", 4}}), Contains("4 devices"));
}

TEST_CASE("a mesh refuses places that there are not, and lists its axes") {
  using Catch::Contains;
  const DeviceMesh mesh = cube();
  const auto axes = Contains("data 2 x pipeline 2 x tensor 3");
  CHECK(error_of(mesh.size("expert")).code == Code::kNotFound);
  CHECK_THAT(error_of(mesh.at({{"expert", 0}})).message, Contains("'expert'") && axes);
  CHECK_THAT(error_of(mesh.at({{"data", 0}, {"pipeline", 2}, {"tensor", 0}})).message, Contains("'pipeline'") && axes);
  CHECK_THAT(error_of(mesh.at({{"data", 0}, {"tensor", -1}})).message, Contains("-1") && axes);
  CHECK_THAT(error_of(mesh.at({{"data", 0}, {"tensor", 0}})).message, Contains("'pipeline'") && axes);
  CHECK_THAT(error_of(mesh.at({{"data", 0}, {"data", 0}})).message, Contains("twice") && axes);
  CHECK_THAT(error_of(mesh.along("expert", {})).message, Contains("'expert'") && axes);
  CHECK_THAT(error_of(mesh.along("data", {{"pipeline", 0}})).message, Contains("'tensor'") && axes);
  CHECK_THAT(error_of(mesh.along("data", {{"data", 0}, {"pipeline", 0}, {"tensor", 0}})).message,
             Contains("a place along axis 'data'"));
  CHECK_THAT(error_of(mesh.slice({{"data", 0}, {"pipeline", 0}, {"tensor", 0}})).message, axes);
}

}  // namespace
}  // namespace troupe::nn
