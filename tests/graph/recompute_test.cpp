// SPDX-License-Identifier: Apache-2.0
// Gradients that compute forward values again: which nodes they copy, what copies read and wait for.
#include <algorithm>
#include <set>

#include "tests/graph/passes/pass_fixture.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

using namespace troupe;
using Catch::Contains;
using NameSet = std::set<std::string>;

namespace {

struct RecomputeFixture : test::PassFixture {
  Output x = placeholder("x", {-1, 64});

  /// A block that ends in what its gradient needs beside what is within.
  static Output block(const Scope& s, Output in) {
    return s.named("end").op("Tanh", {s.named("mid").op("Sigmoid", {s.named("begin").op("Square", {in})})});
  }
  std::vector<Output> differentiate(Output y, const std::vector<Output>& by, std::vector<std::string> scopes) {
    auto made = gradients(s, {y}, by, {}, {}, {.recompute = std::move(scopes)});
    INFO((made.ok() ? "" : made.error().str()));
    REQUIRE(made.ok());
    return *made;
  }
  /// The originals of all copies.
  NameSet recomputed() const {
    NameSet out;
    for (int i = 0; i < graph.size(); ++i)
      if (const auto* name = graph.node(i).attrs().get<std::string>("_recomputes")) out.insert(*name);
    return out;
  }
  const Node& copy_of(const std::string& name) const {
    for (int i = 0; i < graph.size(); ++i)
      if (graph.node(i).attrs().get_or<std::string>("_recomputes", "") == name) return graph.node(i);
    FAIL("no copy of " << name);
    return graph.node(0);
  }
  static NameSet names(const std::vector<const Node*>& nodes) {
    NameSet out;
    for (const Node* n : nodes) out.insert(n->name());
    return out;
  }
};

}  // namespace

TEST_CASE("what a scope keeps to itself is computed again, when the gradient comes to it") {
  RecomputeFixture f;
  const Output first = f.block(f.s.scope("first"), f.x), second = f.block(f.s.scope("second"), first);
  const Output y = f.s.op("Square", {second});
  f.differentiate(y, {f.x}, {"first", "second/"});
  // The ends are kept: the next scope, and the square, read them.
  CHECK(f.recomputed() == NameSet{"first/begin", "first/mid", "second/begin", "second/mid"});

  const Node& begin = f.copy_of("second/begin");
  CHECK(begin.name() == "gradients/second/begin");
  CHECK(begin.inputs()[0] == first);
  const Node& trigger = *begin.control_inputs().at(0);
  CHECK(trigger.op().name() == "NoOp");
  REQUIRE(trigger.control_inputs().size() == 2);
  CHECK_THAT(trigger.control_inputs()[0]->name(), Catch::StartsWith("gradients/Square_grad/"));
  CHECK(trigger.control_inputs()[1]->name() == "second/end");
  const Node& mid = f.copy_of("second/mid");
  CHECK(mid.inputs()[0].node == &begin);
  CHECK(mid.control_inputs().empty());

  // Nothing in the gradients reads what is not kept.
  const NameSet lost = {"first/begin", "first/mid", "second/begin", "second/mid"};
  for (int i = 0; i < f.graph.size(); ++i)
    if (f.graph.node(i).name().starts_with("gradients/"))
      for (const Output& in : f.graph.node(i).inputs()) CHECK_FALSE(lost.contains(in.node->name()));
}

TEST_CASE("a scope waits for the gradients by weights of those after it, and for no gradient that nobody wants") {
  RecomputeFixture f;
  const Output w = f.placeholder("w", {64}), mask = f.placeholder("mask", {-1, 64});
  const auto weighted = [&](const char* name, Output in) {
    const Scope s = f.s.scope(name);
    return s.op("Tanh", {s.named("masked").op("Mul", {s.named("weighted").op("Mul", {s.op("Exp", {in}), w}), mask})});
  };
  const Output y = f.s.op("Square", {weighted("second", weighted("first", f.x))});
  const std::vector<Output> dxs = f.differentiate(y, {w, f.x}, {"first", "second"});
  const Node* trigger = f.graph.find("gradients/first/recompute");
  REQUIRE(trigger);
  const NameSet before = f.names(trigger->control_inputs());
  CHECK(before.contains("first/Tanh"));
  CHECK(before.contains("gradients/second/recompute"));
  const auto has = [&](const char* prefix) {
    return std::ranges::any_of(before, [&](const std::string& name) { return name.starts_with(prefix); });
  };
  CHECK(has("gradients/second/weighted_grad/"));
  CHECK(has("gradients/second/Exp_grad/"));
  CHECK(before.size() == 4);
  // By the mask there are nodes, of which no step has need.
  StepGraph step(f.graph, {}, dxs, {});
  const auto multiplied = std::ranges::count_if(step.nodes(), [](const Node* n) {
    return n->name().starts_with("gradients/second/masked_grad/") && n->op().name() == "Mul";
  });
  CHECK(multiplied == 1);
}

TEST_CASE("no pass merges a copy with its original") {
  RecomputeFixture f;
  const Output y = f.s.op("Square", {f.block(f.s.scope("block"), f.x)});
  const Output dx = f.differentiate(y, {f.x}, {"block"})[0];
  StepGraph step(f.graph, {}, {&dx, 1}, {});
  run_passes(step, {}, [](auto&&...) { return std::nullopt; });
  const auto count = [&](const char* op) {  // as nodes and within fused ones
    int64_t times = 0;
    for (const Node* n : step.nodes()) {
      times += n->op().name() == op;
      if (n->op().name() == "_FusedElementwise")
        times += std::ranges::count(*n->attrs().get<std::vector<std::string>>("ops"), op);
    }
    return times;
  };
  CHECK(count("Sigmoid") == 2);
  CHECK(count("NoOp") == 1);
}

TEST_CASE("results of ops with state, small ones and what may be fed are kept") {
  RecomputeFixture f;
  const Scope in = f.s.scope("block");
  const Output draw = in.named("draw").op("RandomUniform", {in.op("Shape", {f.x})}, {{"dtype", DType::kFloat32}});
  const Output mask =
      in.named("mask").op("Cast", {in.op("GreaterEqual", {draw, in.constant(0.5f)})}, {{"DstT", DType::kFloat32}});
  const Output handle = in.named("v").op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{64}}});
  const Output read = in.named("read").op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}});
  const Output fed = in.named("fed").op("PlaceholderWithDefault", {f.x}, {{"shape", PartialShape{-1, 64}}});
  const Output small = in.named("small").op("Exp", {f.s.constant(Tensor::of<float>({1, 2}))});
  Output h = in.named("masked").op("Mul", {in.op("Tanh", {in.op("Mul", {fed, read})}), mask});
  h = in.op("Mul", {h, in.op("Sum", {small, in.constant(0)})});
  const Output y = f.s.op("Square", {in.op("Sigmoid", {h})});
  f.differentiate(y, {f.x, handle}, {"block"});
  const NameSet copies = f.recomputed();
  CHECK(copies.contains("block/mask"));
  CHECK(copies.contains("block/masked"));
  for (const char* kept : {"block/draw", "block/read", "block/fed", "block/small", "block/v"})
    CHECK_FALSE(copies.contains(kept));
  CHECK(f.copy_of("block/GreaterEqual").inputs()[0] == draw);
}

TEST_CASE("what is in a branch is kept") {
  RecomputeFixture f;
  const Scope in = f.s.scope("block");
  const Output before = in.named("before").op("Sigmoid", {in.op("Square", {f.x})});
  const Output taken = f.placeholder("taken", PartialShape::scalar(), DType::kBool);
  const auto side = [](const Scope& s, Output v) {
    return std::vector<Output>{s.named("side").op("Tanh", {s.op("Square", {v})})};
  };
  const Output both = cond(
      in, taken, [&](const Scope& s) { return side(s, before); }, [&](const Scope& s) { return side(s, f.x); })[0];
  const Output y = f.s.op("Square", {in.named("after").op("Sigmoid", {in.op("Square", {both})})});
  f.differentiate(y, {f.x}, {"block"});
  const NameSet copies = f.recomputed();
  CHECK(copies.contains("block/Square"));
  for (const std::string& name : copies) CHECK_THAT(name, !Contains("side") && !Contains("cond"));
  for (int i = 0; i < f.graph.size(); ++i)
    if (f.graph.node(i).attrs().has("_recomputes"))
      for (const Node* n : f.graph.node(i).control_inputs()) CHECK(n->op().name() == "NoOp");
}

TEST_CASE("of nested scopes the outermost is computed again, and a scope may be anywhere in a name") {
  RecomputeFixture f;
  const Scope outer = f.s.scope("replica_0").scope("outer");
  const Output h = f.block(outer.scope("inner"), f.block(outer, f.x));
  f.differentiate(f.s.op("Square", {h}), {f.x}, {"inner", "outer"});
  const NameSet copies = f.recomputed();
  CHECK(copies.contains("replica_0/outer/end"));
  CHECK(copies.contains("replica_0/outer/inner/mid"));
  CHECK(f.graph.find("gradients/replica_0/outer/recompute"));
  CHECK_FALSE(f.graph.find("gradients/replica_0/outer/inner/recompute"));
}

TEST_CASE("a second gradient passes through copies to their originals") {
  RecomputeFixture f;
  const Scope in = f.s.scope("block");
  const Output u = in.op("Square", {f.x});
  const Output y = f.s.op("Square", {in.op("Sigmoid", {in.op("Tanh", {u})})});
  const Output dx = f.differentiate(y, {f.x}, {"block"})[0];
  CHECK(f.recomputed().contains("block/Tanh"));
  CHECK(f.differentiate(dx, {u}, {})[0]);
  CHECK(f.differentiate(dx, {f.x}, {"block"})[0]);
}

TEST_CASE("scopes without nodes are refused, and names that no copy has are no originals") {
  RecomputeFixture f;
  const Output y = f.block(f.s.scope("block"), f.x);
  const auto wrong = [&](const char* scope) {
    const auto made = gradients(f.s, {y}, {f.x}, {}, {}, {.recompute = {"block", scope}});
    return made.ok() ? Error{} : made.error();
  };
  CHECK(wrong("blok").code == Code::kNotFound);
  CHECK_THAT(wrong("blok").message, Contains("'blok'"));
  CHECK_THAT(wrong("lock").message, Contains("'lock'"));
  CHECK_THAT(wrong("").message, Contains("''"));

  for (const char* claimed : {"later", "x", "none", "claims"}) {
    const Output claims = f.s.named("claims").op("Neg", {f.x}, {{"_recomputes", std::string(claimed)}});
    const Output later = f.s.named("later").op("Neg", {claims});
    CHECK(f.differentiate(later, {f.x}, {})[0]);
  }
}
