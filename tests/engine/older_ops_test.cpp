// SPDX-License-Identifier: Apache-2.0
// Ops of TensorFlow that become others of ours as a graph is read, those of its first graphs and Conv, through Session.
#include "tests/engine/fixtures.h"
#include "troupe/graph_def.h"

using namespace troupe;

namespace {

std::string node(const std::string& name, const std::string& op, const std::vector<std::string>& inputs,
                 const std::string& attrs = "") {
  std::string out = "node { name: '" + name + "' op: '" + op + "' ";
  for (const std::string& input : inputs) out += "input: '" + input + "' ";
  return out + attrs + "} ";
}
std::string type(const std::string& attr, const std::string& of = "DT_FLOAT") {
  return "attr { key: '" + attr + "' value { type: " + of + " } } ";
}
std::string constant(const std::string& name, const std::vector<int>& sizes, const std::vector<float>& values,
                     const std::string& of = "DT_FLOAT") {
  std::string tensor = "dtype: " + of + " tensor_shape { ";
  for (const int size : sizes) tensor += "dim { size: " + std::to_string(size) + " } ";
  tensor += "} ";
  for (const float v : values)
    tensor += (of == "DT_FLOAT" ? "float_val: " : "int_val: ") + std::to_string(static_cast<int>(v)) + " ";
  return node(name, "Const", {}, type("dtype", of) + "attr { key: 'value' value { tensor { " + tensor + "} } } ");
}

struct Old : TestEngine {
  explicit Old(const std::string& nodes) {
    const Status status = from_graph_def(nodes, graph);
    INFO((status.ok() ? "" : status.error().str()));
    REQUIRE(status.ok());
  }
  Tensor run(const std::string& fetch) {
    auto result = session->run({}, {*graph.output(fetch)});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return (*result)[0];
  }
  std::vector<float> floats(const std::string& fetch) {
    const Tensor out = run(fetch);
    return {out.values<float>().begin(), out.values<float>().end()};
  }
};

}  // namespace

TEST_CASE("a stack of the first graphs has no limit") {
  Old t(constant("x", {2}, {3, 4}) + constant("y", {2}, {5, 6}) + node("s", "Stack", {}, type("elem_type")) +
        node("push", "StackPush", {"s", "x"}, type("T")) + node("push2", "StackPush", {"s", "y", "^push"}, type("T")) +
        node("pop", "StackPop", {"s", "^push2"}, type("elem_type")) +
        node("pop2", "StackPop", {"s", "^pop"}, type("elem_type")) + node("close", "StackClose", {"s", "^pop2"}) +
        node("last", "Identity", {"pop2", "^close"}, type("T")));
  CHECK(t.floats("last:0") == std::vector<float>{3, 4});
  CHECK(t.floats("pop:0") == std::vector<float>{5, 6});
}

TEST_CASE("TensorArrayUnpack and TensorArrayPack move all elements") {
  Old t(constant("size", {}, {2}, "DT_INT32") + constant("v", {2, 1}, {7, 8}) + constant("flow", {}, {0}) +
        node("array", "TensorArray", {"size"}, type("dtype")) +
        node("in", "TensorArrayUnpack", {"array", "v", "flow"}, type("T")) +
        node("out", "TensorArrayPack", {"array", "in"}, type("dtype")));
  CHECK(t.floats("out:0") == std::vector<float>{7, 8});
  CHECK(t.run("out:0").shape() == Shape{2, 1});
}

TEST_CASE("SelfAdjointEig gives eigenvalues above eigenvectors") {
  Old t(constant("m", {2, 2}, {2, 0, 0, 1}) + node("e", "SelfAdjointEig", {"m"}, type("T")) +
        constant("ms", {1, 2, 2}, {2, 0, 0, 1}) + node("es", "BatchSelfAdjointEig", {"ms"}, type("T")) +
        node("size", "Abs", {"e"}, type("T")) + node("sizes", "Abs", {"es"}, type("T")));
  CHECK(t.floats("size:0") == std::vector<float>{1, 2, 0, 1, 1, 0});
  CHECK(t.run("sizes:0").shape() == Shape{1, 3, 2});
}

TEST_CASE("gradients of convolutions of volumes take tensors for their shapes") {
  const std::string attrs = type("T") + "attr { key: 'padding' value { s: 'SAME' } } " +
                            "attr { key: 'strides' value { list { i: 1 i: 1 i: 1 i: 1 i: 1 } } } ";
  Old t(constant("x", {1, 1, 1, 2, 1}, {1, 2}) + constant("k", {1, 1, 1, 1, 1}, {3}) +
        constant("g", {1, 1, 1, 2, 1}, {4, 5}) + node("dx", "Conv3DBackpropInput", {"x", "k", "g"}, attrs) +
        node("dk", "Conv3DBackpropFilter", {"x", "k", "g"}, attrs));
  CHECK(t.floats("dx:0") == std::vector<float>{12, 15});
  CHECK(t.floats("dk:0") == std::vector<float>{14});
}

TEST_CASE("Conv is the convolution of images or of volumes by its strides") {
  const auto attrs = [](const std::string& strides, const std::string& more = "") {
    return type("T") + "attr { key: 'padding' value { s: 'VALID' } } attr { key: 'groups' value { i: 1 } } " +
           "attr { key: 'strides' value { list { " + strides + " } } } attr { key: 'dilations' value { list { } } } " +
           more;
  };
  const std::string first = "attr { key: 'data_format' value { s: 'CHANNELS_FIRST' } } ";
  const std::string nodes = constant("x", {1, 1, 2, 2}, {1, 2, 3, 4}) + constant("k", {1, 2, 2, 1}, {1, 0, 0, 1}) +
                            constant("k1", {1, 2, 1, 1}, {1, 10}) + constant("v", {1, 1, 1, 2, 1}, {1, 2}) +
                            constant("kv", {1, 1, 2, 1, 1}, {1, 10});
  Old t(nodes + node("y", "Conv", {"x", "k"}, attrs("i: 1 i: 1 i: 1 i: 1")) +
        node("y1", "Conv", {"x", "k1"}, attrs("i: 1 i: 1 i: 1 i: 1", first)) +
        node("z", "Conv", {"v", "kv"}, attrs("i: 1 i: 1 i: 1 i: 1 i: 1")));
  CHECK(t.floats("y:0") == std::vector<float>{5});
  CHECK(t.floats("y1:0") == std::vector<float>{21, 43});
  CHECK(t.floats("z:0") == std::vector<float>{21});
}
