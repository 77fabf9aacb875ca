// SPDX-License-Identifier: Apache-2.0
// Graphs with a function library through Session: calls, If, Case, While, what they nest, and what is refused.
#include "tests/engine/fixtures.h"
#include "troupe/graph_def.h"

using namespace troupe;
using Catch::Contains;

namespace {

std::string text(std::string body, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = body.find(from, at)) != std::string::npos; at += to.size())
    body.replace(at, from.size(), to);
  return body;
}

/// A function of float32 arguments `in` (names divided by spaces) with one output.
std::string function(const std::string& name, std::string in, const std::string& nodes, const std::string& ret,
                     const std::string& out_type = "DT_FLOAT", const std::string& more = "") {
  std::string args;
  for (in += ' '; !in.empty(); in.erase(0, in.find(' ') + 1))
    args += "input_arg { name: '" + in.substr(0, in.find(' ')) + "' type: DT_FLOAT } ";
  return "function { signature { name: '" + name + "' " + args + "output_arg { name: 'out' type: " + out_type +
         " } } " + nodes + " ret { key: 'out' value: '" + ret + "' } " + more + "} ";
}

std::string node(const std::string& name, const std::string& op, std::string inputs, const std::string& attrs = "") {
  std::string out = "node { name: '" + name + "' op: '" + op + "' ";
  for (inputs += ' '; inputs.size() > 1; inputs.erase(0, inputs.find(' ') + 1))
    out += "input: '" + inputs.substr(0, inputs.find(' ')) + "' ";
  return out + attrs + "} ";
}
std::string node_def(const std::string& name, const std::string& op, const std::string& inputs,
                     const std::string& attrs = "") {
  return text(node(name, op, inputs, attrs), "node { name: '" + name, "node_def { name: '" + name);
}
std::string func(const std::string& attr, const std::string& name) {
  return "attr { key: '" + attr + "' value { func { name: '" + name + "' } } } ";
}
std::string scalar(const std::string& value) {
  return "attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'value' value { tensor { dtype: DT_FLOAT "
         "tensor_shape { } float_val: " +
         value + " } } } ";
}

const std::string kInput =
    "node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } "
    "attr { key: 'shape' value { shape { } } } } ";

struct Imported : TestEngine {
  using TestEngine::TestEngine;
  Status load(const std::string& nodes, const std::string& functions) {
    return from_graph_def(kInput + nodes + "library { " + functions + "} ", graph);
  }
  float run(float x, const std::string& fetch) {
    auto out = graph.output(fetch);
    REQUIRE(out.ok());
    auto result = session->run({{*graph.output("x:0"), Tensor::scalar(x)}}, {*out});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return (*result)[0].data<float>()[0];
  }
  Error refused(const std::string& nodes, const std::string& functions) {
    const Status status = load(nodes, functions);
    REQUIRE(!status.ok());
    return status.error();
  }
};

const std::string kTwice = function("twice", "a", node_def("sum", "AddV2", "a a"), "sum:z:0");

/// The functions of kLoop, a While that calls `called` by `step_op` on its first value while that is below its second.
std::string doubling(const std::string& step_op, const std::string& called) {
  const auto two = [](const std::string& name, const std::string& out, const std::string& nodes) {
    return "function { signature { name: '" + name +
           "' input_arg { name: 'a' type: DT_FLOAT } input_arg { name: 'most' type: DT_FLOAT } " + out + " } " + nodes;
  };
  return two("less", "output_arg { name: 'out' type: DT_BOOL }",
             node_def("is", "Less", "a most") + "ret { key: 'out' value: 'is:z:0' } } ") +
         two("body", "output_arg { name: 'o1' type: DT_FLOAT } output_arg { name: 'o2' type: DT_FLOAT }",
             node_def("next", step_op, step_op == "SymbolicGradient" ? "a a" : "a", func("f", called)) +
                 "ret { key: 'o1' value: 'next:output:0' } ret { key: 'o2' value: 'most' } } ");
}
const std::string kLoop = func("cond", "less") + func("body", "body");

}  // namespace

TEST_CASE("a call becomes the nodes of its function, and calls nest") {
  Imported t;
  const std::string four =
      function("four", "a",
               node_def("one", "PartitionedCall", "a", func("f", "twice")) + node_def("two", "twice", "one:output:0"),
               "two:out:0");
  REQUIRE(
      t.load(node("y", "StatefulPartitionedCall", "x", func("f", "four")) + node("z", "Neg", "y:0"), kTwice + four));
  CHECK(t.run(3, "y:0") == 12);
  CHECK(t.run(3, "z:0") == -12);
  CHECK(t.graph.find("y/one/sum"));
}

TEST_CASE("functions name the outputs of ops that become others as these ops did") {
  Imported t;
  const auto sizes = [](const std::string& name, const std::string& count) {
    return node_def(
        name, "Const", "",
        "attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { tensor { dtype: DT_INT32 "
        "tensor_shape { dim { size: " +
            count + " } } int_val: 1 } } } ");
  };
  const std::string types = "attr { key: 'T' value { type: DT_FLOAT } } attr { key: 'U' value { type: DT_FLOAT } } ";
  const std::string norm =
      sizes("four", "4") + sizes("one", "1") + node_def("image", "Reshape", "a four:output:0") +
      node_def("v", "Reshape", "a one:output:0") + node_def("twice", "AddV2", "v:output:0 v:output:0") +
      node_def("n", "FusedBatchNormV2", "image:output:0 v:output:0 twice:z:0 v:output:0 v:output:0", types) +
      node_def("g", "FusedBatchNormGradV2",
               "image:output:0 image:output:0 v:output:0 n:reserve_space_1:0 n:reserve_space_2:0", types);
  const auto gives = [&](const std::string& name, const std::string& output) {
    return function(name, "a", norm + node_def("sum", "Add", output + " " + output), "sum:z:0");
  };
  REQUIRE(t.load(node("y", "PartitionedCall", "x", func("f", "of_y")) +
                     node("m", "PartitionedCall", "x", func("f", "of_m")) +
                     node("o", "PartitionedCall", "x", func("f", "of_o")),
                 gives("of_y", "n:y:0") + gives("of_m", "n:batch_mean:0") + gives("of_o", "g:offset_backprop:0")));
  CHECK(t.run(3, "y:0") == 12);  // twice the offset, since there is but one pixel
  CHECK(t.run(3, "m:0") == 6);
  CHECK(t.run(3, "o:0") == 6);
}

TEST_CASE("If runs the branch taken only") {
  Imported t;
  const std::string positive = function("positive", "a", node_def("root", "Sqrt", "a"), "root:y:0");
  const std::string negative = function(
      "negative", "a", node_def("stop", "Abort", "") + node_def("same", "Identity", "a ^stop"), "same:output:0");
  REQUIRE(t.load(node("zero", "Const", "", scalar("0")) + node("is", "Greater", "x zero") +
                     node("y", "If", "is x", func("then_branch", "positive") + func("else_branch", "negative")),
                 positive + negative));
  CHECK(t.run(9, "y:0") == 3);
  auto failed = t.session->run({{*t.graph.output("x:0"), Tensor::scalar(-1.f)}}, {*t.graph.output("y:0")});
  REQUIRE(!failed.ok());
  CHECK(failed.error().node == "y/else/stop");
  CHECK(t.run(16, "y:0") == 4);
}

TEST_CASE("what a branch must run, runs before what waits for the If") {
  Imported t;
  const std::string stops = function("stops", "a", node_def("stop", "Abort", ""), "a", "DT_FLOAT",
                                     "control_ret { key: 'stop' value: 'stop' } ");
  const std::string passes = function("passes", "a", "", "a");
  REQUIRE(t.load(node("zero", "Const", "", scalar("0")) + node("is", "Greater", "x zero") +
                     node("y", "If", "is x", func("then_branch", "passes") + func("else_branch", "stops")) +
                     node("z", "Neg", "x ^y"),
                 stops + passes));
  CHECK(t.run(2, "z:0") == -2);
  CHECK(!t.session->run({{*t.graph.output("x:0"), Tensor::scalar(-1.f)}}, {*t.graph.output("z:0")}).ok());
}

TEST_CASE("Case takes the branch of its index, the last for others") {
  Imported t;
  const std::string branches =
      "attr { key: 'branches' value { list { func { name: 'twice' } func { name: 'minus' } } } } ";
  const std::string minus = function("minus", "a", node_def("n", "Neg", "a"), "n:y:0");
  REQUIRE(t.load(
      node("i", "Cast", "x", "attr { key: 'DstT' value { type: DT_INT32 } } ") + node("y", "Case", "i x", branches),
      kTwice + minus));
  CHECK(t.run(0, "y:0") == 0);
  CHECK(t.run(1, "y:0") == -1);
  CHECK(t.run(5, "y:0") == -5);
}

TEST_CASE("While runs its body while its condition holds") {
  Imported t;
  const auto two = [](const std::string& name, const std::string& nodes, const std::string& out) {
    return "function { signature { name: '" + name +
           "' input_arg { name: 'a' type: DT_FLOAT } input_arg { name: 'most' type: DT_FLOAT } " + out + " ";
  };
  const std::string less = two("less", "", "output_arg { name: 'out' type: DT_BOOL } }") +
                           node_def("is", "Less", "a most") + "ret { key: 'out' value: 'is:z:0' } } ";
  const std::string body =
      two("body", "", "output_arg { name: 'o1' type: DT_FLOAT } output_arg { name: 'o2' type: DT_FLOAT } }") +
      node_def("next", "PartitionedCall", "a", func("f", "twice")) +
      "ret { key: 'o1' value: 'next:output:0' } ret { key: 'o2' value: 'most' } } ";
  REQUIRE(t.load(
      node("one", "Const", "", scalar("1")) + node("y", "While", "one x", func("cond", "less") + func("body", "body")),
      kTwice + less + body));
  CHECK(t.run(100, "y:0") == 128);
  CHECK(t.run(0.5, "y:0") == 1);
  CHECK(t.run(100, "y:1") == 100);
}

TEST_CASE("a node that waits for an argument of its function alone waits for it, also in a loop") {
  const std::string types =
      "input_arg { name: 'v' type: DT_RESOURCE } input_arg { name: 'i' type: DT_FLOAT } "
      "input_arg { name: 'a' type: DT_FLOAT } ";
  const std::string dtype = "attr { key: 'dtype' value { type: DT_FLOAT } } ";
  const std::string read = node_def("read", "ReadVariableOp", "v ^a", dtype);
  const std::string functions =
      "function { signature { name: 'call' " + types + "output_arg { name: 'out' type: DT_FLOAT } } " + read +
      " ret { key: 'out' value: 'read:value:0' } } function { signature { name: 'below' " + types +
      "output_arg { name: 'out' type: DT_BOOL } } " + node_def("one", "Const", "", scalar("1")) +
      node_def("less", "Less", "i one:output:0") +
      " ret { key: 'out' value: 'less:z:0' } } function { signature { name: 'body' " + types +
      "output_arg { name: 'w' type: DT_RESOURCE } output_arg { name: 'j' type: DT_FLOAT } "
      "output_arg { name: 'b' type: DT_FLOAT } } " +
      node_def("one", "Const", "", scalar("1")) + node_def("add", "AddV2", "i one:output:0") + read +
      " ret { key: 'w' value: 'v' } ret { key: 'j' value: 'add:z:0' } ret { key: 'b' value: 'read:value:0' } } "
      "function { signature { name: 'same' " +
      types +
      "output_arg { name: 'w' type: DT_RESOURCE } "
      "output_arg { name: 'j' type: DT_FLOAT } output_arg { name: 'b' type: DT_FLOAT } } " +
      node_def("one", "Const", "", scalar("1")) + node_def("add", "AddV2", "i one:output:0") + read +
      node_def("sum", "AddV2", "read:value:0 i") +
      " ret { key: 'w' value: 'v' } ret { key: 'j' value: 'sum:z:0' } ret { key: 'b' value: 'a' } } ";
  std::string nodes = node("v", "VarHandleOp", "", dtype + "attr { key: 'shape' value { shape { } } } ") +
                      node("zero", "Const", "", scalar("0")) + node("first", "AssignVariableOp", "v zero", dtype) +
                      node("chain_0", "Identity", "x");
  for (int i = 1; i < 100; ++i) nodes += node("chain_" + std::to_string(i), "Sqrt", "chain_" + std::to_string(i - 1));
  nodes += node("second", "AssignVariableOp", "v chain_99", dtype) + node("late", "Identity", "zero ^second");
  const std::string loop_types =
      "attr { key: 'T' value { list { type: DT_RESOURCE type: DT_FLOAT type: DT_FLOAT } } } ";
  nodes += node("called", "PartitionedCall", "v zero late",
                func("f", "call") +
                    "attr { key: 'Tin' value { list { type: DT_RESOURCE type: DT_FLOAT type: DT_FLOAT } } } "
                    "attr { key: 'Tout' value { list { type: DT_FLOAT } } } ") +
           node("looped", "While", "v zero late", func("cond", "below") + func("body", "body") + loop_types) +
           node("same", "While", "v zero late", func("cond", "below") + func("body", "same") + loop_types);
  for (const std::string fetch : {"called:0", "looped:2", "same:1"}) {
    INFO(fetch);
    Imported t({1, 1});
    const Status loaded = t.load(nodes, functions);
    INFO((loaded.ok() ? "" : loaded.error().str()));
    REQUIRE(loaded.ok());
    REQUIRE(t.session->run({{*t.graph.output("x:0"), f(1)}}, {}, {t.graph.find("first")}).ok());
    CHECK(t.run(1, fetch) == 1);
  }
}

TEST_CASE("what follows from invariants of a While alone ends with its last iteration") {
  Imported t;
  const std::string less =
      "function { signature { name: 'less' input_arg { name: 'a' type: DT_FLOAT } input_arg { name: 'y' type: DT_FLOAT "
      "} "
      "input_arg { name: 'most' type: DT_FLOAT } output_arg { name: 'out' type: DT_BOOL } } " +
      node_def("is", "Less", "a most") + "ret { key: 'out' value: 'is:z:0' } } ";
  const std::string body =
      "function { signature { name: 'body' input_arg { name: 'a' type: DT_FLOAT } input_arg { name: 'y' type: DT_FLOAT "
      "} "
      "input_arg { name: 'most' type: DT_FLOAT } output_arg { name: 'o1' type: DT_FLOAT } output_arg { name: 'o2' "
      "type: "
      "DT_FLOAT } output_arg { name: 'o3' type: DT_FLOAT } } " +
      node_def("next", "PartitionedCall", "a", func("f", "twice")) + node_def("square", "Mul", "most most") +
      "ret { key: 'o1' value: 'next:output:0' } ret { key: 'o2' value: 'square:z:0' } ret { key: 'o3' value: 'most' } "
      "} ";
  REQUIRE(t.load(node("one", "Const", "", scalar("1")) +
                     node("y", "While", "one one x", func("cond", "less") + func("body", "body")),
                 kTwice + less + body));
  CHECK(t.run(10, "y:0") == 16);
  CHECK(t.run(10, "y:1") == 100);
  CHECK(t.run(0.5, "y:1") == 1);
}

TEST_CASE("a While ends whose body chooses by an invariant between its value and another invariant") {
  const std::string args =
      "input_arg { name: 'p' type: DT_BOOL } input_arg { name: 'a' type: DT_FLOAT } "
      "input_arg { name: 'x' type: DT_FLOAT } ";
  const auto with = [&](const std::string& name, const std::string& more, const std::string& outputs,
                        const std::string& nodes) {
    return "function { signature { name: '" + name + "' " + more + args + outputs + "} " + nodes + "} ";
  };
  const std::string counter = "input_arg { name: 'i' type: DT_FLOAT } ", out = "output_arg { name: 'out' type: ";
  const std::string branches = func("then_branch", "twice_a") + func("else_branch", "minus_x");
  const std::string functions =
      with("less", counter, out + "DT_BOOL } ",
           node_def("four", "Const", "", scalar("4")) + node_def("is", "Less", "i four:output:0") +
               "ret { key: 'out' value: 'is:z:0' } ") +
      with("body", counter,
           "output_arg { name: 'o1' type: DT_FLOAT } output_arg { name: 'o2' type: DT_BOOL } "
           "output_arg { name: 'o3' type: DT_FLOAT } output_arg { name: 'o4' type: DT_FLOAT } ",
           node_def("one", "Const", "", scalar("1")) + node_def("next", "AddV2", "i one:output:0") + "%" +
               "ret { key: 'o1' value: 'next:z:0' } ret { key: 'o2' value: 'p' } "
               "ret { key: 'o3' value: 'chosen:output:0' } ret { key: 'o4' value: 'x' } ") +
      with("choose", "", out + "DT_FLOAT } ",
           node_def("if", "StatelessIf", "p p a x", branches) + "ret { key: 'out' value: 'if:output:0' } ") +
      with("twice_a", "", out + "DT_FLOAT } ",
           node_def("sum", "AddV2", "a a") + "ret { key: 'out' value: 'sum:z:0' } ") +
      with("minus_x", "", out + "DT_FLOAT } ", node_def("less", "Neg", "x") + "ret { key: 'out' value: 'less:y:0' } ");
  const std::string calls[] = {node_def("chosen", "If", "p p a x", branches),
                               node_def("chosen", "StatelessIf", "p p a x", branches),
                               node_def("chosen", "PartitionedCall", "p a x", func("f", "choose")),
                               node_def("not", "LogicalNot", "p") + node_def("p2", "LogicalNot", "not:y:0") +
                                   node_def("chosen", "StatelessIf", "p2:y:0 p a x", branches)};
  for (const std::string& call : calls) {
    for (const auto& [op, expected] : {std::pair{"LessEqual", 16.F}, std::pair{"Less", -5.F}}) {
      Imported t;
      const Status loaded =
          t.load(node("one", "Const", "", scalar("1")) + node("zero", "Const", "", scalar("0")) + node("p", op, "x x") +
                     node("y", "While", "zero p one x", func("cond", "less") + func("body", "body")),
                 text(functions, "%", call));
      INFO(call << (loaded.ok() ? "" : loaded.error().str()));
      REQUIRE(loaded.ok());
      CHECK(t.run(5, "y:2") == expected);
    }
  }
}

TEST_CASE("SymbolicGradient is the gradient of its function alone") {
  Imported f;
  const std::string product =
      function("product", "a b", node_def("ab", "Mul", "a b") + node_def("aab", "Mul", "ab:z:0 a"), "aab:z:0");
  const std::string unused = function("first", "a b", node_def("copy", "Identity", "a"), "copy:output:0");
  REQUIRE(f.load(node("square", "Mul", "x x") + node("gradients", "Neg", "x") +
                     node("g", "SymbolicGradient", "x square gradients", func("f", "product")) +
                     node("h", "SymbolicGradient", "x square x", func("f", "first")),
                 product + unused)
              .ok());
  // a^2 b at a = 3, b = 9, times -3: 2 a b is 54 and a^2 is 9. That b depends on x too is not the function's.
  CHECK(f.run(3, "g:0") == -162);
  CHECK(f.run(3, "g:1") == -27);
  CHECK(f.run(3, "h:0") == 3);
  CHECK(f.run(3, "h:1") == 0);
}

TEST_CASE("SymbolicGradient calls the gradient that the library gives a function") {
  const std::string square = function("square", "a", node_def("aa", "Mul", "a a"), "aa:z:0");
  const std::string own = function("own", "a by_square", node_def("sum", "AddV2", "a by_square"), "sum:z:0");
  const std::string gradient = "gradient { function_name: 'square' gradient_func: 'own' } ";
  const std::string g = node("g", "SymbolicGradient", "x ten", func("f", "square"));
  const std::string ten = node("ten", "Const", "", scalar("10"));
  {
    Imported f;
    REQUIRE(f.load(ten + node("y", "square", "x") + g, square + own + gradient).ok());
    CHECK(f.run(3, "y:0") == 9);
    CHECK(f.run(3, "g:0") == 13);  // 3 + 10, not 2 * 3 * 10
  }
  {
    Imported f;  // within a loop, from the body's function: a + a
    REQUIRE(f.load(node("most", "Const", "", scalar("10")) + node("y", "While", "x most", kLoop),
                   doubling("SymbolicGradient", "square") + square + own + gradient)
                .ok());
    CHECK(f.run(3, "y:0") == 12);
  }
  Imported f;
  CHECK_THAT(f.refused(ten + node("h", "SymbolicGradient", "x ten", func("f", "outer")),
                       square + own + gradient + function("outer", "a", node_def("in", "square", "a"), "in:out:0"))
                 .str(),
             Contains("'outer' calls 'square', whose gradient is a function of its own"));
  Imported wrong;
  CHECK_THAT(wrong.refused(ten + g, square + kTwice + text(gradient, "'own'", "'twice'")).str(),
             Contains("function 'twice' takes 1 inputs, not 2"));
  Imported nobody;
  CHECK_THAT(nobody.refused(ten + g, square + gradient).str(), Contains("'own' is not in the library"));
}

TEST_CASE("SymbolicGradient goes through the loops of its function, beside others") {
  Imported f;
  const std::string grown = function("grown", "a b", node_def("loop", "While", "a b", kLoop), "loop:output:0");
  REQUIRE(f.load(node("most", "Const", "", scalar("10")) + node("before", "While", "x most", kLoop) +
                     node("g", "SymbolicGradient", "before most x", func("f", "grown")) +
                     node("h", "SymbolicGradient", "x most before", func("f", "grown")) +
                     node("after", "While", "h most", kLoop),
                 kTwice + doubling("PartitionedCall", "twice") + grown)
              .ok());
  CHECK(f.run(3, "before:0") == 12);
  CHECK(f.run(3, "g:0") == 3);       // 12 is not doubled
  CHECK(f.run(3, "h:0") == 4 * 12);  // 3 is doubled twice
  CHECK(f.run(3, "after:0") == 48);  // 48 is not
}

TEST_CASE("SymbolicGradient stands in the body of a loop") {
  Imported f;
  // The gradient by a of (a^2 + 1) is 2 a, times a: the body gives 2 a^2.
  const std::string square = function("square", "a",
                                      node_def("aa", "Mul", "a a") + node_def("one", "Const", "", scalar("1")) +
                                          node_def("sum", "AddV2", "aa:z:0 one:output:0"),
                                      "sum:z:0");
  REQUIRE(f.load(node("most", "Const", "", scalar("100")) + node("y", "While", "x most", kLoop),
                 doubling("SymbolicGradient", "square") + square)
              .ok());
  CHECK(f.run(2, "y:0") == 128);  // 2, 8, 128
  CHECK(f.run(100, "y:0") == 100);
}

TEST_CASE("SymbolicGradient goes through a loop whose body has one") {
  Imported f;
  const std::string square = function("square", "a", node_def("aa", "Mul", "a a"), "aa:z:0");
  const std::string grown = function("grown", "a b", node_def("loop", "While", "a b", kLoop), "loop:output:0");
  REQUIRE(f.load(node("most", "Const", "", scalar("100")) + node("one", "Const", "", scalar("1")) +
                     node("g", "SymbolicGradient", "x most one", func("f", "grown")),
                 doubling("SymbolicGradient", "square") + square + grown)
              .ok());
  // The body gives 2 a^2: of 2 the loop makes 2 (2 a^2)^2 = 8 a^4, whose gradient is 32 a^3.
  CHECK(f.run(2, "g:0") == 256);
}

TEST_CASE("a SymbolicGradient that cannot be is refused with its node", "[bad_input]") {
  const std::string square = function("square", "a", node_def("aa", "Mul", "a a"), "aa:z:0");
  const auto fails = [&](const std::string& nodes, const char* words) {
    Imported f;
    const Status status = f.load(nodes, square);
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().str(), Contains("'g'") && Contains(words));
  };
  fails(node("g", "SymbolicGradient", "x", func("f", "square")), "1 arguments and 1 values");
  fails(node("g", "SymbolicGradient", "x x", func("f", "nobody")), "'nobody' is not in the library");
  fails(node("g", "SymbolicGradient", "x x"), "names no function");
  fails(node("g", "_FunctionGradient", "x x x"), "does not have 3 inputs");
  fails(node("g", "_FunctionGradient", "x x x",
             "attr { key: 'values' value { i: 2 } } attr { key: 'arguments' value { i: -1 } } "),
        "does not have 3 inputs");
}

TEST_CASE("ops that cannot be here are refused with what to do instead", "[bad_input]") {
  Imported f;
  const Status status = f.load(
      node("f", "PyFunc", "x") + node("db", "CreateSummaryDbWriter", "x") + node("jax", "XlaCallModule", "x"), "");
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().str(), Contains("PyFunc (f)") && Contains("actor_call") &&
                                       Contains("CreateSummaryFileWriter") && Contains("XlaCallModule (jax)") &&
                                       Contains("StableHLO"));
}

TEST_CASE("calls that do not fit are refused with the call") {
  const std::string call = node("y", "PartitionedCall", "x", func("f", "twice"));
  const auto error = [](const std::string& nodes, const std::string& functions) {
    Imported t;
    const Error e = t.refused(nodes, functions);
    CHECK(e.node == "y");
    return e.message;
  };
  CHECK_THAT(error(call, ""), Contains("function 'twice' is not in the library"));
  CHECK_THAT(error(node("y", "PartitionedCall", "x"), kTwice), Contains("attribute f names no function"));
  CHECK_THAT(error(node("y", "PartitionedCall", "x x", func("f", "twice")), kTwice), Contains("takes 1 inputs, not 2"));
  CHECK_THAT(error(call, function("twice", "a", node_def("s", "Neg", "b"), "s:y:0")),
             Contains("'b' is not in the function"));
  CHECK_THAT(error(call, function("twice", "a", node_def("s", "Neg", "a"), "s:w:0")), Contains("'s:w:0'"));
  CHECK_THAT(error(node("y", "If", "x", func("then_branch", "twice") + func("else_branch", "twice")), kTwice),
             Contains("takes 1 inputs, not 0"));
  CHECK_THAT(error(node("y", "While", "x", func("cond", "twice") + func("body", "none")), kTwice), Contains("'none'"));
  Imported t;
  const Error e =
      t.refused(call, function("twice", "a", node_def("s", "PartitionedCall", "a", func("f", "twice")), "s:output:0"));
  CHECK_THAT(e.message, Contains("function 'twice' calls itself"));
}

TEST_CASE("of functions that implement the same the one for CPUs is called, but on GPUs") {
  const auto says = [](const std::string& attr, const std::string& value) {
    return "attr { key: '" + attr + "' value { s: '" + value + "' } } ";
  };
  const auto marked = [&](const std::string& name, const std::string& op, const std::string& attrs,
                          const std::string& type = "DT_FLOAT") {
    return function(name, "a", node_def("is", op, "a"), type == "DT_FLOAT" ? "is:y:0" : "is:output:0", type, attrs);
  };
  const std::string same = says("api_implements", "f_1");
  const std::string plain = marked("plain", "Neg", same);
  const std::string cpu = marked("cpu", "Square", same + says("api_preferred_device", "CPU"));
  const std::string gpu = marked("gpu", "Sqrt", same + says("api_preferred_device", "GPU"));
  const std::string other = marked("other", "Exp", says("api_implements", "f_2") + says("api_preferred_device", "CPU"));
  const std::string outer =
      function("outer", "a", node_def("in", "StatefulPartitionedCall", "a", func("f", "plain")), "in:output:0");
  Imported t;
  REQUIRE(t.load(node("call", "PartitionedCall", "x", func("f", "plain")) + node("op", "plain", "x") +
                     node("nested", "PartitionedCall", "x", func("f", "outer")) +
                     node("card", "PartitionedCall", "x", "device: '/device:GPU:0' " + func("f", "plain")) +
                     node("asked", "PartitionedCall", "x", func("f", "other")),
                 plain + gpu + other + cpu + outer));
  CHECK(t.run(3, "call:0") == 9);
  CHECK(t.run(3, "op:0") == 9);
  CHECK(t.run(3, "nested:0") == 9);
  CHECK(t.graph.find("card/is")->op().name() == "Neg");
  CHECK(t.run(0, "asked:0") == 1);
  // Another signature cannot stand for it.
  Imported without;
  const std::string wrong = text(marked("cpu", "OnesLike", same + says("api_preferred_device", "CPU")),
                                 "name: 'a' type: DT_FLOAT", "name: 'a' type: DT_DOUBLE");
  REQUIRE(without.load(node("call", "PartitionedCall", "x", func("f", "plain")), plain + wrong));
  CHECK(without.run(3, "call:0") == -3);
  // A pair for gradients: what the forward one hands on to the backward one may be another number of values.
  const auto pair = [&](const std::string& name, const std::string& device, const std::string& outs,
                        const std::string& forward, const std::string& ins, const std::string& backward) {
    std::string out_args, in_args;
    for (const char c : outs) out_args += std::string("output_arg { name: '") + c + "' type: DT_FLOAT } ";
    for (const char c : ins) in_args += std::string("input_arg { name: '") + c + "' type: DT_FLOAT } ";
    const std::string both = same + (device.empty() ? "" : says("api_preferred_device", device));
    return "function { signature { name: 'forward_" + name + "' input_arg { name: 'a' type: DT_FLOAT } " + out_args +
           "} " + forward + both + says("backward_function_name", "backward_" + name) + "} function { signature { " +
           "name: 'backward_" + name + "' " + in_args + "output_arg { name: 'out' type: DT_FLOAT } } " + backward +
           both + says("forward_function_name", "forward_" + name) + "} ";
  };
  const auto ret = [](const std::string& key, const std::string& value) {
    return "ret { key: '" + key + "' value: '" + value + "' } ";
  };
  const std::string square = node_def("is", "Square", "a") + ret("y", "is:y:0");
  const std::string wide =
      pair("plain", "", "yp", square + ret("p", "a"), "gp", node_def("d", "Mul", "g p") + ret("out", "d:z:0"));
  const std::string narrow = pair("plain", "", "ypqr", square + ret("p", "a") + ret("q", "a") + ret("r", "a"), "gpqr",
                                  node_def("d", "Mul", "g p") + ret("out", "d:z:0"));
  const std::string on_cpu =
      pair("cpu", "CPU", "ypq", node_def("is", "Square", "a") + ret("y", "is:y:0") + ret("p", "a") + ret("q", "is:y:0"),
           "gpq", node_def("d", "Mul", "g p") + node_def("e", "AddV2", "d:z:0 q") + ret("out", "e:z:0"));
  for (const std::string& was : {wide, narrow}) {
    Imported pairs;
    REQUIRE(pairs.load(node("fw", "StatefulPartitionedCall", "x", func("f", "forward_plain")) +
                           node("bw", "PartitionedCall", was == wide ? "fw:0 fw:1" : "fw:0 fw:1 fw:2 fw:3",
                                func("f", "backward_plain")),
                       was + on_cpu));
    CHECK(pairs.run(3, "bw:0") == 9 * 3 + 9);
  }
}
