// SPDX-License-Identifier: Apache-2.0
// How deep graphs may nest, and how long their chains may be: functions, loops, chains of a million nodes. See
// docs/limits.md.
#include <ctime>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/gradients.h"
#include "troupe/graph_def.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// Of the process' processor time: others may keep the machine busy.
double seconds_of(const std::function<void()>& f) {
  const std::clock_t begin = std::clock();
  f();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / kSlowness;
}

const std::string kFloatInput =
    "node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } "
    "attr { key: 'shape' value { shape { } } } } ";

std::string call(const std::string& node, const std::string& name, const std::string& function, const std::string& in) {
  return node + " { name: '" + name + "' op: 'PartitionedCall' input: '" + in +
         "' attr { key: 'f' value { func { name: '" + function + "' } } } } ";
}

std::string signature(const std::string& name) {
  return "signature { name: '" + name +
         "' input_arg { name: 'a' type: DT_FLOAT } output_arg { name: 'out' type: DT_FLOAT } } ";
}

/// A function f<i> that calls f<i+1> `times` one after the other.
std::string caller(int i, int times) {
  std::string nodes, in = "a";
  for (int t = 0; t < times; ++t) {
    nodes += call("node_def", fmt::format("c{}", t), fmt::format("f{}", i + 1), in);
    in = fmt::format("c{}:output:0", t);
  }
  return "function { " + signature(fmt::format("f{}", i)) + nodes + "ret { key: 'out' value: '" + in + "' } } ";
}

std::string leaf(int i) {
  return "function { " + signature(fmt::format("f{}", i)) +
         "node_def { name: 'n' op: 'Neg' input: 'a' } ret { key: 'out' value: 'n:y:0' } } ";
}

/// f0 calls f1 `times`, and so on, `deep` times.
std::string nested(int deep, int times) {
  std::string out = kFloatInput + call("node", "y", "f0", "x") + "library { ";
  for (int i = 0; i < deep; ++i) out += caller(i, times);
  return out + leaf(deep) + "} ";
}

Status load(const std::string& text) {
  TestEngine t;
  return from_graph_def(text, t.graph);
}

}  // namespace

TEST_CASE("functions that would become 2^40 nodes are an error, at once") {
  for (const auto& [deep, times] : {std::pair(40, 2), std::pair(63, 100), std::pair(21, 2), std::pair(2, 1100)}) {
    INFO(deep << " deep, " << times << " times");
    Status status;
    CHECK(seconds_of([&, deep = deep, times = times] { status = load(nested(deep, times)); }) < 5);
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::kResourceExhausted);
    CHECK(status.error().node == "y");
    CHECK_THAT(status.error().message, Contains("1000000 and") && Contains("are most"));
  }
}

TEST_CASE("functions that are called often, but not too often, are put in") {
  TestEngine t;
  REQUIRE(from_graph_def(nested(12, 2), t.graph).ok());
  const auto y = t.session->run({{"x", Tensor::scalar(2.f)}}, {"y"});
  REQUIRE(y.ok());
  CHECK((*y)[0].data<float>()[0] == 2.f);  // 4,096 times negated
}

TEST_CASE("many calls of a function with a large constant are counted by bytes") {
  const std::string value(1 << 20, 'x');
  std::string text = kFloatInput;
  for (int i = 0; i < 1100; ++i) text += call("node", fmt::format("y{}", i), "big", "x");
  text +=
      "library { function { " + signature("big") +
      "node_def { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' value { "
      "tensor { dtype: DT_STRING tensor_shape { } string_val: '" +
      value + "' } } } } node_def { name: 'n' op: 'Neg' input: 'a' } ret { key: 'out' value: 'n:y:0' } } } ";
  const Status status = load(text);
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::kResourceExhausted);
}

TEST_CASE("a function that calls itself is an error by any way") {
  const auto refused = [](const std::string& library) {
    const Status status = load(kFloatInput + call("node", "y", "f0", "x") + "library { " + library + "} ");
    REQUIRE(!status.ok());
    CHECK(status.error().node == "y");
    CHECK_THAT(status.error().message, Contains("calls itself"));
  };
  const std::string again = "attr { key: 'T' value { type: DT_FLOAT } } ";
  refused(caller(0, 1) + caller(1, 1) + "function { " + signature("f2") + call("node_def", "c", "f0", "a") +
          "ret { key: 'out' value: 'c:output:0' } } ");
  const auto by = [&](const std::string& op, const std::string& attrs, const std::string& inputs) {
    refused("function { " + signature("f0") + "node_def { name: 'c' op: '" + op + "' " + inputs + attrs +
            "} ret { key: 'out' value: 'c:output:0' } } " + leaf(7));
  };
  const auto names = [](const std::string& key, const std::string& f) {
    return "attr { key: '" + key + "' value { func { name: '" + f + "' } } } ";
  };
  by("If", names("then_branch", "f7") + names("else_branch", "f0"), "input: 'a' input: 'a' ");
  by("While", names("cond", "f7") + names("body", "f0"), "input: 'a' ");
  by("StatelessCase", "attr { key: 'branches' value { list { func { name: 'f7' } func { name: 'f0' } } } } ",
     "input: 'a' input: 'a' ");
  by("f0", "", "input: 'a' ");
}

TEST_CASE("calls nest 64 deep, and a library may have a chain of any length that nothing calls") {
  CHECK(load(nested(63, 1)).ok());
  const Status status = load(nested(64, 1));
  REQUIRE(!status.ok());
  CHECK_THAT(status.error().message, Contains("function calls must nest at most 64 deep"));
  CHECK(!load(nested(5'000, 1)).ok());
  std::string text = kFloatInput + "library { ";
  for (int i = 0; i < 5'000; ++i) text += caller(i, 2);
  CHECK(load(text + "} ").ok());
}

TEST_CASE("shapes that have billions of ways to their constants are unknown, at once") {
  TestEngine t;
  const Scope& s = t.scope;
  Output x = s.constant(Tensor::scalar<int32_t>(3));
  const Output zero = s.constant(Tensor::of<int32_t>({0})), one = s.constant(Tensor::of<int32_t>({1}));
  CHECK(seconds_of([&] {
          for (int i = 0; i < 20; ++i) {
            const Output packed = s.op("Pack", std::vector<Output>(16, x));
            x = s.op("StridedSlice", {packed, zero, one, one}, {{"shrink_axis_mask", int64_t{1}}});
          }
          REQUIRE(s.op("Fill", {s.op("Pack", {x}), s.constant(1.f)}));
        }) < 5);
  CHECK(t.value({}, x).data<int32_t>()[0] == 3);
}

TEST_CASE("a chain of 500,000 nodes runs, is written and read, and goes") {
  constexpr int kNodes = many(500'000);
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, Shape{});
  Output y = x;
  for (int i = 0; i < kNodes; ++i) y = t.scope.op("Neg", {y});
  REQUIRE(t.scope.ok());
  CHECK(t.value({{x, Tensor::scalar(3.f)}}, y).data<float>()[0] == 3.f);
  const std::string bytes = to_graph_def(t.graph);
  Graph copy(t.engine->ops());
  REQUIRE(from_graph_def(bytes, copy).ok());
  CHECK(copy.size() == t.graph.size());
}

TEST_CASE("the gradient of a chain of 100,000 nodes is a chain") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, Shape{});
  Output y = x;
  for (int i = 0; i < many(100'000); ++i) y = t.scope.op("Neg", {y});
  const auto dx = gradients(t.scope, {y}, {x});
  REQUIRE(dx.ok());
  CHECK(t.value({{x, Tensor::scalar(3.f)}}, (*dx)[0]).data<float>()[0] == 1.f);
}

TEST_CASE("chains and meshes of constants that wait for one another are planned in linear time") {
  TestEngine t;
  const Output v = t.variable("v", DType::kFloat32, Shape{});
  const Node* first = t.scope.node("AssignVariableOp", {v, t.scope.constant(1.f)});
  const Node* last = first;
  for (int i = 0; i < many(200'000); ++i) last = t.scope.after(std::vector<const Node*>{last}).constant(1.f).node;
  // Each waits for both of the pair before: 2^40 ways to the first.
  const Node* one = last;
  const Node* other = last;
  for (int i = 0; i < 40; ++i) {
    const Scope after = t.scope.after(std::vector<const Node*>{one, other});
    one = after.constant(1.f).node;
    other = after.constant(2.f).node;
  }
  const Output sum = t.scope.op("AddV2", {one->out(), other->out()});
  const Output read =
      t.scope.after(std::vector<const Node*>{sum.node}).op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  CHECK(seconds_of([&] { CHECK(t.value({}, read).data<float>()[0] == 1.f); }) < 20);
}

TEST_CASE("a node may wait for 200,000 others") {
  TestEngine t;
  std::vector<const Node*> before;
  for (int i = 0; i < many(200'000); ++i) before.push_back(t.scope.node("NoOp", {}));
  const Node* all = t.scope.after(before).node("NoOp", {});
  REQUIRE(t.scope.ok());
  CHECK(seconds_of([&] { CHECK(t.session->run(std::vector<Feed>{}, {}, {all}).ok()); }) < 30);
}

TEST_CASE("loops nest 64 deep") {
  const auto nest = [](int deep) {
    TestEngine t;
    Output x = t.scope.constant(1.f);
    for (int i = 0; i < deep; ++i)
      x = t.scope.op("Enter", {x}, {{"frame_name", fmt::format("loop{}", i)}, {"is_constant", true}});
    for (int i = 0; i < deep; ++i) x = t.scope.op("Exit", {x});
    auto out = t.session->run(std::vector<Feed>{}, {x});
    return out.ok() ? std::string() : out.error().str();
  };
  CHECK(nest(64) == "");
  CHECK_THAT(nest(65), Contains("loops must nest at most 64 deep"));
  CHECK_THAT(nest(20'000), Contains("loops must nest at most 64 deep"));
}

TEST_CASE("messages and text that nest without end are errors") {
  std::string text = kFloatInput + "library { function { signature { name: 'f' } node_def { name: 'n' op: 'o' ";
  for (int i = 0; i < 100'000; ++i) text += "attr { key: 'a' value { func { name: 'f' ";
  CHECK(!load(text).ok());
  // A node's attribute's value's func has attributes in field 2, whose entries have the value in field 2.
  std::string inner;
  const auto wrap = [&](char field) {
    std::string length;
    for (size_t n = inner.size();; n >>= 7) {
      length += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
      if (n < 128) break;
    }
    inner = field + length + inner;
  };
  for (int i = 0; i < 2'000; ++i) {
    for (const char field : {'\x12', '\x12', '\x52'}) wrap(field);
  }
  for (const char field : {'\x12', '\x2a', '\x0a'}) wrap(field);
  CHECK(!load(inner).ok());
}
