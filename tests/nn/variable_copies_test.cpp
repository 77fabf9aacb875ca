// SPDX-License-Identifier: Apache-2.0
// Copies of variables: whole, by a share, after an update of the same step; sets that do not fit one another.
#include "troupe/variable_copies.h"

#include "tests/nn/fixture.h"

namespace troupe::nn {
namespace {

Output network(const Scope& s, Variables& v, float initial) {
  const Output x = s.constant(Tensor::of<float>({1, 2}, {1, 2}));
  const Output y = dense(s, v, x, 2, "hidden", {.kernel = constant_init(initial)});
  v.read(s, "count", Shape{}, zeros(), false, DType::kInt64);
  return y;
}

struct Pair : Fixture {
  Variables online{"online"}, target{"target"};
  const Output y = network(s.scope("online"), online, 3);
  const Output z = network(s.scope("target"), target, 1);
  void begin() {
    run({}, online.initializers());
    run({}, target.initializers());
  }
  Tensor value(const char* container, const std::string& name) {
    auto snapshot = engine->snapshot(container).get();
    REQUIRE(snapshot.ok());
    return snapshot->variables.at(name);
  }
};

TEST_CASE("variables are copied by their names") {
  Pair f;
  const Node* copy = copy_variables(f.s, f.target, f.online);
  f.begin();
  CHECK(f.floats(f.z) == std::vector<float>{3, 3});
  f.run({}, {copy});
  CHECK(f.floats(f.z) == std::vector<float>{9, 9});
  CHECK(f.floats(f.y) == std::vector<float>{9, 9});
}

TEST_CASE("a copy follows by a share of the difference, integers at once") {
  Pair f;
  const Node* follow = follow_variables(f.s, f.target, f.online, 0.25f);
  const Output count = f.online.handle(f.s, "count", Shape{}, zeros(), false, DType::kInt64);
  const Node* set = f.s.node("AssignVariableOp", {count, f.s.constant(int64_t{5})});
  f.begin();
  f.run({}, {set});
  double expected = 1;
  for (int i = 0; i < 5; ++i) {
    f.run({}, {follow});
    expected += 0.25 * (3 - expected);
    CHECK(f.value("target", "hidden/kernel").data<float>()[3] == Approx(expected));
  }
  CHECK(f.value("target", "count").data<int64_t>()[0] == 5);
  CHECK(f.value("online", "hidden/kernel").data<float>()[0] == 3);
}

TEST_CASE("behind a training step a copy has the values of that update") {
  Pair f;
  const Node* train = minimize(f.s, f.online, momentum(constant_rate(0.1f)), mean_all(f.s, f.y));
  const Node* copy = copy_variables(f.s.after(std::vector{train}), f.target, f.online);
  f.begin();
  f.run({}, f.online.initializers());
  for (int i = 0; i < 20; ++i) {
    f.run({f.y}, {copy});
    CHECK(f.value("target", "hidden/kernel").identical(f.value("online", "hidden/kernel")));
    CHECK(f.value("online", "global_step").data<int64_t>()[0] == i + 1);
  }
}

TEST_CASE("a copy is made where it lives") {
  Fixture f(2);
  Variables online("online"), target("target");
  online.read(f.s.device("/cpu:0"), "w", {2}, ones());
  const Output b = target.read(f.s.device("/cpu:1"), "w", {2}, zeros());
  const Node* copy = copy_variables(f.s.device("/cpu:1"), target, online);
  f.run({}, online.initializers());
  f.run({}, target.initializers());
  f.run({}, {copy});
  CHECK(f.floats(b) == std::vector<float>{1, 1});
}

TEST_CASE("sets that do not fit one another are errors that name the variable") {
  const auto fault = [](auto build) {
    Fixture f;
    CHECK(build(f) == nullptr);
    REQUIRE_FALSE(f.s.ok());
    return f.s.status().error().message;
  };
  using Catch::Contains;
  CHECK_THAT(fault([](Fixture& f) {
               Variables a("same"), b("same");
               network(f.s, a, 1);
               return copy_variables(f.s, b, a);
             }),
             Contains("container 'same'"));
  CHECK_THAT(fault([](Fixture& f) {
               Variables a("a"), b("b");
               network(f.s, a, 1);
               return copy_variables(f.s, b, a);
             }),
             Contains("no variables in 'b'"));
  CHECK_THAT(fault([](Fixture& f) {
               Variables a("a"), b("b");
               network(f.s, b, 1);
               return copy_variables(f.s, b, a);
             }),
             Contains("copy_variables: variable 'hidden/kernel' of 'b' is not in 'a'"));
  CHECK_THAT(fault([](Fixture& f) {
               Variables a("a"), b("b");
               a.read(f.s, "w", {2}, ones());
               b.read(f.s, "w", {3}, ones());
               return follow_variables(f.s, b, a, 0.5f);
             }),
             Contains("follow_variables: variable 'w' is float32[3] in 'b' and float32[2] in 'a'"));
  for (const float share : {-0.1f, 1.1f, std::nanf("")})
    CHECK_THAT(fault([&](Fixture& f) {
                 Variables a("a"), b("b");
                 return follow_variables(f.s, b, a, share);
               }),
               Contains("from 0 to 1"));
}

}  // namespace
}  // namespace troupe::nn
