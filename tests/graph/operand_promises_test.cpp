// SPDX-License-Identifier: Apache-2.0
// What builders and operators are given by mistake: ports that are not there, outputs of other graphs, empty ones,
// numbers between two values. Each is a fault that sticks, or the nearest value.
#include <bit>
#include <catch2/catch.hpp>
#include <climits>
#include <cmath>

#include "tests/graph/passes/pass_fixture.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

using namespace troupe;
using Catch::Contains;

namespace {

const OpRegistry& all_ops() {
  static const test::RealOps all;
  return all.ops;
}

struct Builder {
  Graph graph{all_ops()};
  Scope scope{graph};
  Output input(DType dtype = DType::kFloat32, PartialShape shape = PartialShape::scalar()) {
    return scope.named("x").op("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}});
  }
  std::string fault() const { return scope.ok() ? "none" : scope.status().error().str(); }
};

const auto kKeep = [](const Scope&, const Outputs& v) { return v; };
BranchFn branch_of(Output output) {
  return [output](const Scope&) { return Outputs{output}; };
}

const auto kNever = [](const Scope& s, const Outputs&) { return s.constant(false); };

template <class T> double rounded(Number n) {
  const auto t = n.as(dtype_of<T>);
  REQUIRE(t.ok());
  return static_cast<double>(static_cast<float>(t->template data<T>()[0]));
}

}  // namespace

TEST_CASE("a port that a node has not is a fault of whatever builder or operator is given it") {
  const std::vector<std::function<Outputs(Builder&, Output)>> uses = {
      [](Builder&, Output bad) { return Outputs{bad + bad}; },
      [](Builder& b, Output bad) { return Outputs{b.input() * bad}; },
      [](Builder&, Output bad) { return Outputs{-bad}; },
      [](Builder&, Output bad) { return Outputs{~bad}; },
      [](Builder&, Output bad) { return Outputs{bad > 2}; },
      [](Builder&, Output bad) { return Outputs{bad += 1}; },
      [](Builder& b, Output bad) { return Outputs{b.scope.op("Neg", {bad})}; },
      [](Builder& b, Output bad) { return cond(b.scope, bad, branch_of(bad), branch_of(bad)); },
      [](Builder& b, Output bad) { return cond(b.scope, b.input(DType::kBool), branch_of(bad), branch_of(bad)); },
      [](Builder& b, Output bad) { return while_loop(b.scope, {bad}, kNever, kKeep); },
      [](Builder& b, Output bad) {
        return while_loop(
            b.scope, {b.input()}, [&](const Scope&, const Outputs&) { return bad; }, kKeep);
      },
      [](Builder& b, Output bad) {
        return while_loop(b.scope, {b.input()}, kNever, [&](const Scope&, const Outputs&) { return Outputs{bad}; });
      },
      [](Builder& b, Output bad) {
        return scan(b.scope, {bad}, {b.input()}, [](const Scope&, const Outputs& s, const Outputs&) { return s; });
      },
      [](Builder& b, Output bad) {
        return scan(b.scope, {b.input(DType::kFloat32, {3})}, {bad},
                    [](const Scope&, const Outputs& s, const Outputs&) { return s; });
      }};
  for (size_t i = 0; i < uses.size(); ++i)
    for (int port : {1, 99, -1, INT_MAX, INT_MIN}) {
      INFO("use " << i << ", port " << port);
      Builder b;
      const Outputs out = uses[i](b, {b.input().node, port});
      CHECK((out.empty() || !out[0]));
      INFO(b.fault());
      REQUIRE_FALSE(b.scope.ok());
      CHECK(b.scope.status().error().code == Code::kInvalidArgument);
    }
  Builder b;
  const Output x = b.input();
  for (int port : {1, -1}) {
    const Output bad{x.node, port};
    CHECK(bad.dtype() == DType::kInvalid);
    CHECK_FALSE(bad.shape().has_rank());
    for (const auto& r : {gradients(b.scope, {bad}, {x}), gradients(b.scope, {x}, {bad}),
                          gradients(b.scope, {x}, {x}, {bad}), gradients(b.scope, {x}, {x}, {}, {bad})}) {
      REQUIRE_FALSE(r.ok());
      CHECK_THAT(r.error().message, Contains("the node has 1 outputs"));
    }
  }
  CHECK(b.scope.ok());
}

TEST_CASE("outputs of another graph are a fault of each builder, also inside a branch or body") {
  Builder other;
  const Output far = other.input(), far_bool = other.input(DType::kBool);
  const std::vector<std::function<Outputs(Builder&)>> uses = {
      [&](Builder& b) { return cond(b.scope, far_bool, branch_of(far), branch_of(far)); },
      [&](Builder& b) { return cond(b.scope, b.input(DType::kBool), branch_of(far), branch_of(far)); },
      [&](Builder& b) {
        return cond(
            b.scope, b.input(DType::kBool), [&](const Scope& s) { return Outputs{s.op("Neg", {far})}; },
            [&](const Scope& s) { return Outputs{s.constant(1.F)}; });
      },
      [&](Builder& b) { return while_loop(b.scope, {far}, kNever, kKeep); },
      [&](Builder& b) {
        return while_loop(
            b.scope, {b.input()}, [&](const Scope&, const Outputs&) { return far_bool; }, kKeep);
      },
      [&](Builder& b) {
        return while_loop(b.scope, {b.input()}, kNever, [&](const Scope&, const Outputs&) { return Outputs{far}; });
      },
      [&](Builder& b) {
        return while_loop(b.scope, {b.input()}, kNever, [&](const Scope& s, const Outputs& v) {
          return cond(s, far_bool, branch_of(v[0]), branch_of(v[0]));
        });
      },
      [&](Builder& b) { return Outputs{b.scope.after({far}).op("Neg", {b.input()})}; },
      [&](Builder& b) {
        return cond(
            b.scope, b.input(DType::kBool), [&](const Scope& s) { return Outputs{s.after({far}).constant(1.F)}; },
            [&](const Scope& s) { return Outputs{s.constant(1.F)}; });
      },
      [&](Builder& b) {
        return while_loop(b.scope, {b.input()}, kNever,
                          [&](const Scope& s, const Outputs& v) { return Outputs{s.after({far}).op("Neg", {v[0]})}; });
      }};
  const int before = other.graph.size();
  for (size_t i = 0; i < uses.size(); ++i) {
    INFO("use " << i);
    Builder b;
    const Outputs out = uses[i](b);
    CHECK((out.empty() || !out[0]));
    CHECK_THAT(b.fault(), Contains("of another graph"));
  }
  CHECK(other.graph.size() == before);
  CHECK(other.scope.ok());
}

TEST_CASE("empty outputs are a fault of each builder, also inside a branch or body") {
  const Output none;
  const std::vector<std::function<Outputs(Builder&)>> uses = {
      [&](Builder& b) { return cond(b.scope, none, branch_of(b.input()), branch_of(b.input())); },
      [&](Builder& b) {
        return while_loop(b.scope, {b.input()}, kNever, [&](const Scope& s, const Outputs& v) {
          return cond(s, none, branch_of(v[0]), branch_of(v[0]));
        });
      },
      [&](Builder& b) { return cond(b.scope, b.input(DType::kBool), branch_of(none), branch_of(none)); },
      [&](Builder& b) { return while_loop(b.scope, {none}, kNever, kKeep); },
      [&](Builder& b) {
        return while_loop(
            b.scope, {b.input()}, [&](const Scope&, const Outputs&) { return none; }, kKeep);
      },
      [&](Builder& b) {
        return while_loop(b.scope, {b.input()}, kNever, [&](const Scope&, const Outputs&) { return Outputs{none}; });
      },
      [&](Builder& b) {
        return scan(b.scope, {none}, {b.input()}, [](const Scope&, const Outputs& s, const Outputs&) { return s; });
      }};
  for (size_t i = 0; i < uses.size(); ++i) {
    INFO("use " << i);
    Builder b;
    const Outputs out = uses[i](b);
    CHECK((out.empty() || !out[0]));
    CHECK_THAT(b.fault(), Contains("empty") && Contains("operand_promises_test.cpp:"));
  }
}

TEST_CASE("branches and loops whose counts, dtypes or options do not fit are faults") {
  const auto of = [](Outputs outputs) { return [outputs](const Scope&) { return outputs; }; };
  {
    Builder b;
    CHECK(cond(b.scope, b.input(DType::kBool), of({b.input()}), of({b.input(), b.input()})).empty());
    CHECK_THAT(b.fault(), Contains("gives 1 output,") && Contains("the other 2"));
  }
  {
    Builder b;
    CHECK(cond(b.scope, b.input(DType::kBool), of({b.input()}), of({b.input(DType::kInt32)})).empty());
    CHECK_THAT(b.fault(), Contains("float32") && Contains("int32"));
  }
  for (const PartialShape& shape : {PartialShape{2}, PartialShape{1}, PartialShape{-1, -1}}) {
    INFO(shape.str());
    Builder c, w;
    CHECK(cond(c.scope, c.input(DType::kBool, shape), of({c.input()}), of({c.input()})).empty());
    CHECK_FALSE(c.scope.ok());
    const Output many = w.input(DType::kBool, shape);
    CHECK(while_loop(
              w.scope, {w.input()}, [&](const Scope&, const Outputs&) { return many; }, kKeep)
              .empty());
    CHECK_FALSE(w.scope.ok());
  }
  {
    Builder b;  // a size in which the two differ is unknown
    const Outputs out = cond(b.scope, b.input(DType::kBool), of({b.input(DType::kFloat32, {2, 3})}),
                             of({b.input(DType::kFloat32, {4, 3})}));
    REQUIRE(out.size() == 1);
    CHECK(out[0].shape() == PartialShape{-1, 3});
    CHECK(cond(b.scope, b.input(DType::kBool), of({}), of({})).empty());
    CHECK(b.fault() == "none");
  }
  for (const WhileOptions& options : {WhileOptions{.parallel_iterations = 0}, WhileOptions{.parallel_iterations = -5},
                                      WhileOptions{.shapes = {PartialShape{}, PartialShape{}}},
                                      WhileOptions{.shapes = {PartialShape{3}}}, WhileOptions{.name = "bad name"}}) {
    Builder b;
    CHECK(while_loop(b.scope, {b.input()}, kNever, kKeep, options).empty());
    CHECK_FALSE(b.scope.ok());
  }
  {
    Builder b;
    CHECK(while_loop(b.scope, {}, kNever, kKeep).empty());
    CHECK_THAT(b.fault(), Contains("a loop needs a value"));
  }
  for (size_t count : {0, 2}) {
    Builder b;
    const Output x = b.input();
    const auto states = [&](const Scope&, const Outputs&, const Outputs&) { return Outputs(count, x); };
    CHECK(scan(b.scope, {b.input(DType::kFloat32, {3})}, {x}, states).empty());
    CHECK_THAT(b.fault(), Contains(fmt::format("the body of a scan gives {} values for 1", count)));
  }
  {
    Builder b;
    const auto states = [](const Scope&, const Outputs& s, const Outputs&) { return Outputs{s[0], {}}; };
    CHECK(scan(b.scope, {b.input(DType::kFloat32, {3})}, {b.input(), b.input()}, states).empty());
    CHECK_THAT(b.fault(), Contains("value 1 that the body of a scan gives is empty"));
  }
  {
    Builder b;
    const auto other = [](const Scope& s, const Outputs&) { return Outputs{s.constant(1)}; };
    CHECK(while_loop(b.scope, {b.input()}, kNever, other).empty());
    CHECK_THAT(b.fault(), Contains("float32") && Contains("int32"));
  }
}

TEST_CASE("empty functions are faults of the builders that take them") {
  const auto keep = [](const Scope& s) { return Outputs{s.constant(1)}; };
  const auto fault = [](auto build) {
    Builder b;
    CHECK(build(b).empty());
    return b.fault();
  };
  CHECK_THAT(fault([&](Builder& b) { return cond(b.scope, b.input(DType::kBool), {}, keep); }),
             Contains("an empty function: the one for true"));
  CHECK_THAT(fault([&](Builder& b) { return cond(b.scope, b.input(DType::kBool), keep, {}); }),
             Contains("an empty function: the one for false"));
  CHECK_THAT(fault([&](Builder& b) { return while_loop(b.scope, {b.input()}, {}, kKeep); }),
             Contains("the predicate of a loop is an empty function"));
  CHECK_THAT(fault([&](Builder& b) { return while_loop(b.scope, {b.input()}, kNever, {}); }),
             Contains("the body of a loop is an empty function"));
  CHECK_THAT(fault([&](Builder& b) { return scan(b.scope, {b.input(DType::kFloat32, {3})}, {b.input()}, {}); }),
             Contains("the body of a scan is an empty function"));
}

TEST_CASE("loops without a name are told apart") {
  Builder b;
  const Outputs first = while_loop(b.scope, {b.input()}, kNever, kKeep, {.name = ""});
  const Outputs second = while_loop(b.scope, {b.input()}, kNever, kKeep, {.name = ""});
  INFO(b.fault());
  REQUIRE(b.scope.ok());
  const auto frame = [](Output exit) {
    const Node* merge = exit.node->inputs()[0].node->inputs()[0].node;
    return *merge->inputs()[0].node->attrs().get<std::string>("frame_name");
  };
  CHECK_FALSE(frame(first[0]).empty());
  CHECK(frame(first[0]) != frame(second[0]));
}

TEST_CASE("a number becomes the nearest value of its dtype, rounded once") {
  const double tie = 1 + std::ldexp(1, -11);  // between two float16
  CHECK(rounded<float16>(tie) == 1);
  CHECK(rounded<float16>(tie + std::ldexp(1, -40)) == 1 + std::ldexp(1, -10));
  CHECK(rounded<float16>(tie - std::ldexp(1, -40)) == 1);
  CHECK(rounded<float16>(-tie - std::ldexp(1, -40)) == -1 - std::ldexp(1, -10));
  const double other = 1 + 3 * std::ldexp(1, -11);  // rounds up as a tie
  CHECK(rounded<float16>(other) == 1 + std::ldexp(1, -9));
  CHECK(rounded<float16>(other - std::ldexp(1, -40)) == 1 + std::ldexp(1, -10));
  CHECK(rounded<bfloat16>(1 + std::ldexp(1, -8) + std::ldexp(1, -40)) == 1 + std::ldexp(1, -7));
  CHECK(rounded<float16>(std::ldexp(1, -25) + std::ldexp(1, -70)) == std::ldexp(1, -24));  // among the smallest
  CHECK(rounded<float16>(1e-300) == 0);
  CHECK(std::signbit(rounded<float16>(-1e-300)));
  const int64_t big = int64_t{1} << 60, half = int64_t{1} << 36;
  CHECK(rounded<float>(big + half) == std::ldexp(1, 60));
  CHECK(rounded<float>(big + half + 1) == std::ldexp(1, 60) + std::ldexp(1, 37));
  CHECK(rounded<float>(-big - half - 1) == -std::ldexp(1, 60) - std::ldexp(1, 37));
  CHECK(rounded<float>(static_cast<uint64_t>(big) * 8 + 8 * half + 1) == std::ldexp(1, 63) + std::ldexp(1, 40));
  CHECK(rounded<bfloat16>(big + (int64_t{1} << 52) + 1) == std::ldexp(1, 60) + std::ldexp(1, 53));
  CHECK(rounded<float>(INT64_MIN) == -std::ldexp(1, 63));
  CHECK(rounded<float>(UINT64_MAX) == std::ldexp(1, 64));
  CHECK(Number((int64_t{1} << 53) + 3).as(DType::kFloat64)->data<double>()[0] == std::ldexp(1, 53) + 4);
  CHECK_FALSE(Number(65520.0).as(DType::kFloat16).ok());  // its nearest would be infinity
  CHECK(rounded<float16>(65520.0 - 1e-9) == 65504);
  CHECK(std::isnan(rounded<float16>(NAN)));
  CHECK(std::isinf(rounded<bfloat16>(-INFINITY)));
  CHECK_FALSE(Number(UINT64_MAX).as(DType::kFloat16).ok());
}
