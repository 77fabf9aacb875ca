// SPDX-License-Identifier: Apache-2.0
// Graphs, scopes and schemas where their promises are hardest to keep: after faults, across threads, in loops that are
// closed twice, and in schemas that are wrong.
#include <atomic>
#include <catch2/catch.hpp>
#include <limits>
#include <thread>

#include "tests/aborts.h"
#include "tests/graph/fake_ops.h"
#include "tests/op_library.h"
#include "troupe/gradients.h"
#include "troupe/graph_def.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct AllOps : OpLibrary {
  AllOps() : OpLibrary(*testing::op_library()) {}
};

/// A loop's Merge that is still open, in a graph of all ops.
struct OpenLoop : AllOps {
  Graph graph{ops};
  Scope scope{graph};
  const Output x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, 3}}});
  const Output entered = scope.op("Enter", {x}, {{"frame_name", std::string("f")}});
  const Node* merge = scope.open_merge(entered, PartialShape{-1, 3});
  Output next(DType dtype, PartialShape shape) const {
    const Output value = scope.op("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}});
    return scope.op("NextIteration", {value});
  }
};

}  // namespace

// -- graphs -----------------------------------------------------------------------------------------------------------

TEST_CASE("a node that was refused leaves nothing: its name is free and ids go on") {
  test::Fixture f;
  const Output x = f.placeholder("x", {2});
  const auto code = [&](NodeSpec spec) {
    auto added = f.graph.add(std::move(spec));
    return added.ok() ? std::optional<Code>() : added.error().code;
  };
  CHECK(code({"Nope", "n", {x}}) == Code::kNotFound);
  CHECK(code({"Neg", "x", {x}}) == Code::kAlreadyExists);
  CHECK(code({"Neg", "n", {x, x}}) == Code::kInvalidArgument);
  CHECK(code({"Neg", "n", {x}, {}, {nullptr}}) == Code::kInvalidArgument);
  CHECK(code({"MatMul", "n", {x, x}}) == Code::kInvalidArgument);  // of its shape function
  const int64_t big = int64_t{1} << 40;
  const Output tall = f.placeholder("tall", {big, 1}), wide = f.placeholder("wide", {1, big});
  CHECK(code({"Mul", "n", {tall, wide}}) == Code::kInvalidArgument);  // more elements than an int64 counts
  CHECK(f.graph.size() == 3);
  CHECK(f.graph.find("n") == nullptr);
  CHECK(f.graph.unique_name("n") == "n");
  CHECK(f.graph.add({"Neg", "n", {x}}).value()->id() == 3);
  CHECK(&f.graph.node(3) == f.graph.find("n"));
  CHECK(f.graph.ops().find("Neg") == &f.graph.find("n")->op());
}

TEST_CASE("names of the wrong form are refused, those of TensorFlow's form taken") {
  test::Fixture f;
  for (const char* name : {"", "/a", "-a", "\\a", ">a", "^a", "a:0", "a b", "a\n", "\xc3\xa4", "a,b"}) {
    INFO(name);
    CHECK(f.graph.add({"NoOp", name}).error().code == Code::kInvalidArgument);
    CHECK_FALSE(f.graph.add({"NoOp", name}).error().message.empty());
  }
  CHECK(f.graph.add({"NoOp", std::string("a\0b", 3)}).error().code == Code::kInvalidArgument);
  for (const char* name : {"_a", ".a", "0", "a/b-c\\d>e.f_G9"}) CHECK(f.graph.add({"NoOp", name}).ok());
}

TEST_CASE("outputs are looked up by name in every form, and nothing else") {
  test::Fixture f;
  const Output x = f.placeholder("x", {2});
  const Node* pair = f.scope.named("pair").node("Pair", {x});
  const Node* none = f.scope.named("none").node("NoOp", {});
  CHECK(*f.graph.output("pair:1") == pair->out(1));
  CHECK(*f.graph.output("^none") == Output{none, 0});
  for (const char* name : {"pair:2", "pair:-1", "pair:+1", "pair: 1", "pair:1 ", "pair:", "none:0", "pair:1:1x"}) {
    INFO(name);
    CHECK(f.graph.output(name).error().code == Code::kInvalidArgument);
  }
  for (const char* name : {"^", ":0", "^pair:0", "pair:1:1", "^^pair", "PAIR", " pair"}) {
    INFO(name);
    CHECK(f.graph.output(name).error().code == Code::kNotFound);
  }
  CHECK_THAT(f.graph.output("PAIR").error().message, Contains("pair"));
  CHECK(Output().name() == "<none>");
}

TEST_CASE("a loop is closed once, by a NextIteration of its graph that is as promised") {
  OpenLoop l;
  REQUIRE(l.merge);
  CHECK(l.merge->open());
  OpenLoop other;
  const auto refused = [&](const Node& merge, Output next, const std::string& why) {
    const Status closed = l.graph.close_loop(merge, next);
    REQUIRE_FALSE(closed.ok());
    CHECK(closed.error().code == Code::kInvalidArgument);
    CHECK(closed.error().node == merge.name());
    CHECK_THAT(closed.error().message, Contains(why));
    CHECK(l.merge->open());
  };
  const Output good = l.next(DType::kFloat32, PartialShape{5, 3});
  refused(*l.merge, Output(), "<none>");
  refused(*l.merge, l.x, "closed by a NextIteration");
  refused(*l.merge, {good.node, 1}, "closed by a NextIteration");
  refused(*l.merge, {good.node, -1}, "closed by a NextIteration");
  refused(*l.merge, other.next(DType::kFloat32, PartialShape{5, 3}), "of its graph");
  refused(*l.merge, l.next(DType::kInt32, PartialShape{5, 3}), "int32");
  refused(*l.merge, l.next(DType::kFloat32, PartialShape{5, 4}), "[5,4]");
  refused(*l.merge, l.next(DType::kFloat32, PartialShape{5, -1}), "[?,3]");
  refused(*l.merge, l.next(DType::kFloat32, PartialShape::unknown()), "<unknown>");
  refused(*l.x.node, good, "not the Merge");
  refused(*other.merge, good, "not the Merge");
  CHECK(other.merge->open());
  REQUIRE(l.graph.close_loop(*l.merge, good).ok());
  CHECK_FALSE(l.merge->open());
  CHECK(l.merge->inputs()[1] == good);
  CHECK(l.graph.close_loop(*l.merge, good).error().code == Code::kInvalidArgument);
  CHECK(l.graph.close_loop(*l.merge, l.next(DType::kFloat32, PartialShape{7, 3})).error().code ==
        Code::kInvalidArgument);
  CHECK(l.merge->inputs()[1] == good);
}

TEST_CASE("of a Merge at most one input may be empty, and of other ops none") {
  OpenLoop l;
  CHECK_THAT(l.graph.add({"Merge", "m", {l.entered, Output(), Output()}}).error().message,
             Contains("input 2 is empty"));
  CHECK_THAT(l.graph.add({"Merge", "m", {Output(), l.entered}}).error().message, Contains("input 0 is empty"));
  CHECK_THAT(l.graph.add({"AddV2", "m", {l.entered, Output()}}).error().message, Contains("input 1 is empty"));
}

TEST_CASE("other threads read nodes that they were told of, and look nodes up under the mutex, while the graph grows") {
  test::Fixture f;
  constexpr int kNodes = 3000;
  std::atomic<const Node*> newest{f.placeholder("x", {2}).node};
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t)
    readers.emplace_back([&] {
      while (!done) {
        int id = newest.load()->id();
        for (const Node* n = newest; !n->inputs().empty(); n = n->inputs()[0].node) {
          wrong += n->inputs()[0].node->id() >= n->id() || n->dtype(0) != DType::kFloat32 || n->shape(0).rank() != 1;
          if (n->id() % 64 == 0) break;
        }
        const std::lock_guard lock(f.graph.mutex());
        wrong += f.graph.node(id).id() != id || f.graph.size() <= id || f.graph.find("x") != &f.graph.node(0);
      }
    });
  for (int i = 1; i < kNodes; ++i) newest = f.scope.node("Neg", {newest.load()->out()});
  done = true;
  for (std::thread& t : readers) t.join();
  CHECK(wrong == 0);
  CHECK(f.graph.size() == kNodes);
  CHECK(f.graph.find("x") == &f.graph.node(0));  // pointers stay
}

TEST_CASE("a graph keeps the first of its builders' faults") {
  test::Fixture f;
  CHECK(f.graph.status().ok());
  f.graph.fail(invalid_argument("first"));
  f.graph.fail(invalid_argument("second"));
  CHECK(f.graph.status().error().message == "first");
  const Scope second(f.graph);
  second.fail(invalid_argument("third"));
  CHECK(f.graph.status().error().message == "first");
  CHECK_THAT(second.status().error().message, Contains("third"));
}

TEST_CASE("a value put into a graph is frozen: writing to it writes a copy") {
  test::Fixture f;
  Tensor value = Tensor::of<float>({1, 2});
  Tensor view = *value.slice(1, 2);
  const Output c = f.scope.constant(value);
  value.mutable_data<float>()[0] = 9;
  view.mutable_data<float>()[0] = 9;
  CHECK(c.node->attrs().get<Tensor>("value")->identical(Tensor::of<float>({1, 2})));
}

// -- scopes -----------------------------------------------------------------------------------------------------------

TEST_CASE("faults that scopes are given stick, and name the line that asked") {
  const auto fault = [](auto&& build) {
    test::Fixture f;
    build(f);
    REQUIRE_FALSE(f.scope.ok());
    CHECK(f.graph.status().error().message == f.scope.status().error().message);
    return f.scope.status().error().str();
  };
  const auto here = [](int line) { return Contains(fmt::format("graph_promises_test.cpp:{}: ", line)); };
  CHECK_THAT(fault([](test::Fixture& f) { CHECK_FALSE(f.scope.constant(Tensor())); }), here(__LINE__));
  CHECK_THAT(fault([](test::Fixture& f) { f.scope.named("no name").constant(1.F); }), here(__LINE__));
  CHECK_THAT(fault([](test::Fixture& f) { f.scope.scope("no scope").constant(1.F); }), here(__LINE__));
  CHECK_THAT(fault([](test::Fixture& f) {
               test::Fixture other;
               f.scope.after({other.placeholder("far", {})}).node("NoOp", {});
             }),
             Contains("a control input is of another graph"));
  CHECK_THAT(fault([](test::Fixture& f) { CHECK_FALSE(f.scope.open_merge(Output(), {})); }), here(__LINE__));
  int line = 0;
  const std::string first_kept = fault([&](test::Fixture& f) {
    line = __LINE__ + 1;
    const Scope told = f.scope.told_at(std::source_location::current()).told_at(std::source_location());
    told.op("Nope", {});
  });
  CHECK_THAT(first_kept, here(line));
  const std::string each_line = fault([&](test::Fixture& f) {
    const Scope told = f.scope.told_at(std::source_location()).scope("a").told_at_each_line();
    line = __LINE__ + 1;
    told.op("Nope", {});
  });
  CHECK_THAT(each_line, here(line));
  const auto builder = [](const ScopeAt& at) {
    const auto inner = [](const ScopeAt& in) { in.op("Nope", {}); };
    inner(at);
  };
  CHECK_THAT(fault([&](test::Fixture& f) { builder(f.scope); }), here(__LINE__));
}

TEST_CASE("a scope of no name is the same scope, and one that is named loses its name within") {
  test::Fixture f;
  const Scope layer = f.scope.scope("layer");
  CHECK(layer.scope("").prefix() == "layer/");
  CHECK(layer.named("n").scope("").constant(1.F).node->name() == "layer/Const");
  CHECK(layer.named("n").scope("in").constant(1.F).node->name() == "layer/in/Const");
  CHECK(f.scope.scope("a/b").prefix() == "a/b/");
  CHECK(f.scope.scope("a").scope("b").prefix() == "a/b_1/");
}

TEST_CASE("empty outputs and nodes are waited for by nobody") {
  test::Fixture f;
  const Node* n =
      f.scope.after(std::vector<Output>{Output(), Output()}).after(std::vector<const Node*>{nullptr}).node("NoOp", {});
  REQUIRE(n);
  CHECK(n->control_inputs().empty());
}

TEST_CASE("beside a node is its scope: errors are shared, what it waits for is not") {
  test::Fixture f;
  const Output x = f.placeholder("x", {});
  const Scope inner = f.scope.scope("in").device("/cpu:1").after({x}).named("n");
  const Node* n = inner.node("Neg", {x});
  const auto beside = Scope::beside(*n);
  REQUIRE(beside);
  CHECK(&beside->graph() == &f.graph);
  CHECK(beside->prefix() == "in/");
  CHECK(beside->device_name() == "/cpu:1");
  CHECK(beside->node("NoOp", {})->control_inputs().empty());
  beside->fail(invalid_argument("shared"));
  CHECK_FALSE(f.scope.ok());
  CHECK_FALSE(inner.ok());
  CHECK_FALSE(Scope::beside(*x.node)->ok());
}

// -- schemas ----------------------------------------------------------------------------------------------------------

TEST_CASE("a schema that is malformed ends the program with op, text and reason") {
  using Make = void (*)(OpDef&);
  const std::pair<const char*, Make> wrong[] = {
      {"expected a name", [](OpDef& op) { op.input(""); }},
      {"expected ':'", [](OpDef& op) { op.input("x"); }},
      {"expected a name", [](OpDef& op) { op.output("x:"); }},
      {"is left over", [](OpDef& op) { op.output("x: T y"); }},
      {"expected a name", [](OpDef& op) { op.input("x: N *"); }},
      {"unknown type of attribute", [](OpDef& op) { op.attr("a: integer"); }},
      {"expected a number", [](OpDef& op) { op.attr("a: int = x"); }},
      {"expected a number", [](OpDef& op) { op.attr("a: int = 9223372036854775808"); }},
      {"is left over", [](OpDef& op) { op.attr("a: int = 1.5"); }},
      {"expected true or false", [](OpDef& op) { op.attr("a: bool = 1"); }},
      {"expected a quoted string", [](OpDef& op) { op.attr("a: string = x"); }},
      {"a quote is not closed", [](OpDef& op) { op.attr("a: {'SAME, }"); }},
      {"unknown type 'float31'", [](OpDef& op) { op.attr("T: {float31}"); }},
      {"expected a name", [](OpDef& op) { op.attr("T: {float32"); }},
      {"expected ')'", [](OpDef& op) { op.attr("a: list(int"); }},
      {"no lists of tensors", [](OpDef& op) { op.attr("a: list(tensor)"); }},
      {"no default can be written", [](OpDef& op) { op.attr("a: tensor = 1"); }},
      {"is left over", [](OpDef& op) { op.attr("a: int = 1 >= 1"); }},
      {"only an int or a list has a minimum", [](OpDef& op) { op.attr("a: float >= 1"); }},
      {"only an int or a list has a minimum", [](OpDef& op) { op.attr("a: string >= 1"); }},
      {"there already", [](OpDef& op) { op.attr("a: int").attr("a: float"); }}};
  for (const auto& [why, make] : wrong) {
    INFO(why);
    const std::string words = words_of_abort([make = make] {
      OpDef op("Wrong");
      make(op);
    });
    CHECK_THAT(words, Contains("op Wrong") && Contains(why));
  }
}

TEST_CASE("an op that is not whole, or there already, ends the program when it is added") {
  const auto adding = [](const OpDef& op, Gradient g) {
    return words_of_abort([&] {
      OpRegistry ops;
      test::register_fake_ops(ops);
      ops.add(op, std::move(g));
    });
  };
  const Gradient none = not_differentiable("a test");
  const auto whole = [](const char* name) { return OpDef(name).doc("A test's.").shape(unknown_shape); };
  CHECK(adding(whole("New"), none) == "survived");
  CHECK_THAT(adding(whole("Neg"), none),
             Catch::StartsWith("op Neg: it is registered twice") && Contains("EngineOptions::register_ops"));
  CHECK(adding(OpDef("New").shape(unknown_shape), none) == "op New: it has no doc\n");
  CHECK_THAT(adding(OpDef("New").doc("A test's."), none), Contains("no shape function"));
  CHECK_THAT(adding(whole("New"), Gradient()), Contains("neither a gradient nor a reason"));
  CHECK_THAT(adding(whole("New").input("x: T"), none), Contains("neither a type nor a type attribute"));
  CHECK_THAT(adding(whole("New").input("x: N * float32"), none), Contains("not an int attribute"));
  CHECK_THAT(adding(whole("New").attr("N: float").input("x: N * float32"), none), Contains("not an int attribute"));
}

TEST_CASE("a shape function that errs is an error with op and node, and nothing is added") {
  OpRegistry ops;
  const auto add = [&](const char* name, ShapeFn shape) {
    ops.add(OpDef(name).output("a: float32").doc("A test's.").shape(std::move(shape)), not_differentiable("a test"));
  };
  add("Far", [](ShapeContext& c) -> Status {
    c.set_output(1, {});
    return {};
  });
  add("Negative", [](ShapeContext& c) -> Status {
    c.set_output(-1, {});
    return {};
  });
  add("Huge", [](ShapeContext& c) -> Status {
    c.set_output(0, PartialShape{int64_t{1} << 40, int64_t{1} << 40});
    return {};
  });
  add("Throws", [](ShapeContext&) -> Status { throw std::bad_alloc(); });
  add("Says", [](ShapeContext&) -> Status { return make_error(Code::kDataLoss, "my words"); });
  add("Unset", [](ShapeContext&) -> Status { return {}; });
  Graph graph(ops);
  for (const auto& [op, code] : {std::pair{"Far", Code::kInternal},
                                 {"Negative", Code::kInternal},
                                 {"Huge", Code::kInvalidArgument},
                                 {"Throws", Code::kResourceExhausted},
                                 {"Says", Code::kDataLoss}}) {
    const auto added = graph.add({op, "n"});
    REQUIRE_FALSE(added.ok());
    CHECK(added.error().code == code);
    CHECK(added.error().op == op);
    CHECK(added.error().node == "n");
    CHECK(graph.size() == 0);
  }
  CHECK_FALSE((*graph.add({"Unset", "n"}))->shape(0).has_rank());
}

// -- gradients --------------------------------------------------------------------------------------------------------

TEST_CASE("gradients of nothing, of the same twice, and of outputs elsewhere") {
  test::Fixture f, other;
  const Output x = f.placeholder("x", PartialShape::scalar()), far = other.placeholder("x", PartialShape::scalar());
  const Output y = f.scope.op("Neg", {x});
  const auto elsewhere = Contains("of another graph");
  CHECK_THAT(gradients(f.scope, {far}, {x}).error().message, elsewhere);
  CHECK_THAT(gradients(f.scope, {y}, {far}).error().message, elsewhere);
  CHECK_THAT(gradients(f.scope, {y}, {x}, {far}).error().message, elsewhere);
  CHECK_THAT(gradients(f.scope, {y}, {x}, {}, {far}).error().message, elsewhere);
  CHECK_THAT(gradients(other.scope, {y}, {x}).error().message, elsewhere);
  CHECK_THAT(gradients(f.scope, {y}, {x}, {}, {Output()}).error().message, Contains("stop_gradients[0] is empty"));
  CHECK_THAT(gradients(f.scope, {y}, {Output()}).error().message, Contains("xs[0] is empty"));
  const auto gone = gradients(f.scope, {y}, {x}, {}, {}, {.recompute = {"no/such/scope"}});
  CHECK(gone.error().code == Code::kNotFound);
  CHECK(gradients(f.scope, {y}, {})->empty());
  CHECK_FALSE((*gradients(f.scope, {}, {x}))[0]);
  const auto twice = gradients(f.scope, {y, y}, {x, x});
  REQUIRE(twice.ok());
  CHECK((*twice)[0] == (*twice)[1]);
  CHECK((*twice)[0].node->op().name() == "Neg");
  CHECK((*twice)[0].node->inputs()[0].node->op().name() == "AddN");
  CHECK(f.scope.ok());  // what was refused does not stick
  f.scope.fail(invalid_argument("before"));
  CHECK_THAT(gradients(f.scope, {y}, {x}).error().message, Contains("before"));
}

TEST_CASE("a gradient function that errs is an error with the node that it differentiates") {
  OpRegistry ops;
  test::register_fake_ops(ops);
  const auto add = [&](const char* name, GradientFn fn) {
    ops.add(OpDef(name).input("x: float32").output("y: float32").doc("A test's.").shape(unchanged_shape),
            gradient(std::move(fn)));
  };
  add("Throws", [](GradientContext&) -> Status { throw std::runtime_error("my throw"); });
  add("Says", [](GradientContext&) -> Status { return make_error(Code::kDataLoss, "my words"); });
  add("Far", [](GradientContext& c) -> Status {
    c.set_dx(1, c.dy(0));
    return {};
  });
  add("Port", [](GradientContext& c) -> Status {
    c.set_dx(0, {c.dy(0).node, 5});
    return {};
  });
  add("Type", [](GradientContext& c) -> Status {
    c.set_dx(0, c.op("Cast", {c.dy(0)}, {{"DstT", DType::kInt32}}));
    return {};
  });
  add("Builder", [](GradientContext& c) -> Status {
    c.set_dx(0, c.op("Nope", {c.dy(0)}));
    return {};
  });
  Graph other(ops);
  const Output elsewhere =
      Scope(other).op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
  add("Elsewhere", [&](GradientContext& c) -> Status {
    c.set_dx(0, elsewhere);
    return {};
  });
  add("Unset", [](GradientContext&) -> Status { return {}; });
  for (const char* op : {"Throws", "Says", "Far", "Port", "Type", "Builder", "Elsewhere", "Unset"}) {
    INFO(op);
    Graph graph(ops);
    const Scope scope(graph);
    const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
    const auto g = gradients(scope, {scope.named("node").op(op, {x})}, {x});
    if (std::string_view(op) == "Unset") {
      REQUIRE(g.ok());
      CHECK_FALSE((*g)[0]);
      continue;
    }
    REQUIRE_FALSE(g.ok());
    INFO(g.error().str());
    CHECK(g.error().node == "node");
    CHECK(g.error().op == op);
  }
}

// -- GraphDef ---------------------------------------------------------------------------------------------------------

TEST_CASE("a prefix of any form, and floats that are not numbers, come through GraphDef") {
  test::Fixture f;
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  f.scope.named("p").op("Pool", {f.placeholder("x", {})},
                        {{"ksize", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", "SAME"}, {"alpha", nan}});
  f.scope.named("q").op("Pool", {*f.graph.output("x")},
                        {{"ksize", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", "SAME"}, {"alpha", -inf}});
  f.scope.named("c").constant(Tensor::of<float>({nan, -nan, inf, -0.F}));
  REQUIRE(f.scope.ok());
  for (const std::string& bytes : {to_graph_def(f.graph), to_graph_def_text(f.graph)})
    for (const char* prefix : {"", "a", "a/", "a/b"}) {
      test::Fixture copy;
      REQUIRE(from_graph_def(bytes, copy.graph, prefix).ok());
      const std::string at = *prefix ? std::string(prefix) + (std::string_view(prefix).ends_with('/') ? "" : "/") : "";
      for (const char* name : {"p", "q", "c"}) {
        const Node *mine = f.graph.find(name), *theirs = copy.graph.find(at + name);
        REQUIRE(theirs);
        for (const auto& [attr, value] : mine->attrs()) CHECK(same(value, *theirs->attrs().find(attr)));
      }
      CHECK(from_graph_def(bytes, copy.graph, prefix).error().code == Code::kAlreadyExists);
    }
  for (const char* prefix : {"/", "a b", "^", "-"}) {
    test::Fixture copy;
    CHECK(from_graph_def(to_graph_def(f.graph), copy.graph, prefix).error().code == Code::kInvalidArgument);
    CHECK(copy.graph.size() == 0);
  }
}

TEST_CASE("an empty graph goes to GraphDef and back") {
  test::Fixture f, copy;
  REQUIRE_FALSE(to_graph_def(f.graph).empty());
  CHECK(from_graph_def(to_graph_def(f.graph), copy.graph).ok());
  CHECK(from_graph_def(to_graph_def_text(f.graph), copy.graph).ok());
  CHECK(copy.graph.size() == 0);
}
