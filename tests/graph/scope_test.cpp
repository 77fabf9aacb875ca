// SPDX-License-Identifier: Apache-2.0
// Scopes: names, devices, control dependencies, the first error.
#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;
using Catch::Contains;

TEST_CASE("scopes prefix names and stay apart") {
  test::Fixture f;
  const Scope a = f.scope.scope("layer");
  CHECK(a.prefix() == "layer/");
  const Scope b = f.scope.scope("layer"), c = f.scope.scope("layer");
  CHECK(b.prefix() == "layer_1/");
  CHECK(c.prefix() == "layer_2/");
  CHECK(a.scope("inner").prefix() == "layer/inner/");
  CHECK(a.scope("inner").prefix() == "layer/inner_1/");
  CHECK(a.op("NoOp", {}) == Output{});
  CHECK(f.graph.find("layer/NoOp"));
  const Output x = a.named("x").constant(1.0F);
  CHECK(x.node->name() == "layer/x");
  CHECK(a.named("x").constant(1.0F).node->name() == "layer/x_1");
  CHECK(a.constant(2).dtype() == DType::kInt32);
  f.scope.named("taken").constant(1.0F);
  CHECK(f.scope.scope("taken").prefix() == "taken_1/");
  CHECK(f.scope.scope("layer_1").prefix() == "layer_1_1/");
}

TEST_CASE("scopes carry devices and control inputs") {
  test::Fixture f;
  const Output x = f.scope.constant(1.0F);
  const Scope s = f.scope.device("/cpu:1").after({x}).after(std::vector<const Node*>{x.node, nullptr});
  const Node* n = s.node("NoOp", {});
  CHECK(n->device() == "/cpu:1");
  CHECK(n->control_inputs() == std::vector<const Node*>{x.node});
  CHECK(s.device("").node("NoOp", {})->device().empty());
}

TEST_CASE("a scope goes to the task of a device, and stays where it is there already") {
  test::Fixture f;
  const auto there = [&](const char* own, const char* device) {
    return f.scope.device(own).in_task_of(device).device_name();
  };
  const std::string home = "/job:worker/replica:0/task:1/device:gpu:2";
  for (const char* own : {"/job:worker/task:1/cpu:0", "/job:worker/replica:0/task:1", home.c_str()})
    CHECK(there(own, home.c_str()) == own);
  for (const char* own : {"/job:worker/task:0/cpu:0", "/job:ps", "/task:3", "/job:worker/replica:1/task:1"})
    CHECK(there(own, home.c_str()) == home);
  CHECK(there("", home.c_str()) == "/job:worker/replica:0/task:1");
  CHECK(there("/cpu:3", home.c_str()) == "/job:worker/replica:0/task:1/device:cpu:3");
  CHECK(there("/job:worker/gpu:*", home.c_str()) == "/job:worker/replica:0/task:1/device:gpu:*");
  CHECK(there("/task:1", home.c_str()) == "/job:worker/replica:0/task:1");
  CHECK(there("/job:ps/task:4/cpu:0", "/job:ps") == "/job:ps/task:4/cpu:0");
  for (const char* nowhere : {"", "/cpu:1", "/device:gpu:*", "/no such device"})
    for (const char* own : {"", "/cpu:0", "/job:ps", home.c_str()}) CHECK(there(own, nowhere) == own);
  CHECK(there("/no such device", home.c_str()) == "/no such device");

  CHECK(f.scope.device(home).task_name() == "/job:worker/replica:0/task:1");
  CHECK(f.scope.device("/job:ps/cpu:0").task_name() == "/job:ps");
  CHECK(f.scope.device("/task:2").task_name() == "/replica:0/task:2");
  for (const char* none : {"", "/cpu:0", "/no such device"}) CHECK(f.scope.device(none).task_name().empty());

  // What it was to be beside is in the other task.
  const Node* beside = f.scope.named("beside").device("/task:0").node("NoOp", {});
  const Scope both = f.scope.colocate(beside).device("/task:0");
  CHECK(both.node("NoOp", {})->attrs().has("_class"));
  CHECK_FALSE(both.in_task_of("/task:1").node("NoOp", {})->attrs().has("_class"));
}

TEST_CASE("a scope does not go where a node of another graph goes") {
  test::Fixture f, other;
  const Output there = other.scope.constant(1.0F);
  const Scope s = f.scope.colocate(there.node);
  CHECK(!s.constant(1.0F));
  CHECK_THAT(f.scope.status().error().str(), Contains("scope_test.cpp:") && Contains("another graph"));
  CHECK(other.scope.colocate(there.node).colocate(nullptr).constant(2.0F));
}

TEST_CASE("the first error sticks, with the caller's line") {
  test::Fixture f;
  const Scope inner = f.scope.scope("inner");
  const Output bad = inner.named("bad").op("Nonsense", {});
  CHECK(!bad);
  CHECK(!f.scope.ok());
  CHECK_THAT(f.scope.status().error().str(), Contains("scope_test.cpp:") && Contains("Nonsense 'inner/bad'"));
  const int size = f.graph.size();
  CHECK(!f.scope.constant(1.0F));
  CHECK(!inner.op("Neg", {bad}));
  CHECK(f.graph.size() == size);
  f.scope.fail(invalid_argument("a later fault"));
  CHECK_THAT(f.scope.status().error().message, !Contains("later"));
}
