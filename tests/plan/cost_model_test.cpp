// SPDX-License-Identifier: Apache-2.0
// The cost model and its file, and the counts of operations behind its estimates.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <limits>

#include "plan/op_costs.h"
#include "tests/graph/passes/pass_fixture.h"
#include "tests/io/temporary_directory.h"
#include "troupe/cost_model.h"
#include "troupe/placement.h"

using namespace troupe;
using Catch::Contains;

TEST_CASE("a measured cost is the mean of the first 20, from then on the newest counts a twentieth") {
  CostModel m;
  CHECK(m.empty());
  CHECK(m.find("a", "cpu") == nullptr);
  for (int i = 1; i <= 20; ++i) m.add("a", "cpu", i, 2 * i);
  CHECK(m.find("a", "cpu")->ns == Approx(10.5));
  CHECK(m.find("a", "cpu")->bytes == Approx(21));
  CHECK(m.find("a", "cpu")->steps == 20);
  m.add("a", "cpu", 30.5, 21);
  CHECK(m.find("a", "cpu")->ns == Approx(11.5));
  CHECK(m.find("a", "gpu") == nullptr);
  CHECK(m.find("b", "cpu") == nullptr);
  CHECK(m.size() == 1);
}

TEST_CASE("several measurements at once weigh as many, and models add up") {
  CostModel a, b;
  a.add("n", "cpu", 10, 4, 4);
  a.add("n", "cpu", 20, 4);
  CHECK(a.find("n", "cpu")->ns == Approx(12));
  b.add("n", "cpu", 2, 4, 5);
  b.add("other", "sim", 7, 8, 1000);
  b.add("never", "cpu", 7, 8, 0);
  a.add(b);
  CHECK(a.find("n", "cpu")->ns == Approx(7));
  CHECK(a.find("n", "cpu")->steps == 10);
  CHECK(a.find("other", "sim")->ns == 7);
  CHECK(a.find("never", "cpu") == nullptr);
  a.add("other", "sim", 27, 8, 40);  // more than is remembered
  CHECK(a.firings("other") == 1);
  CHECK_FALSE(a.firings("never"));
  a.add("looped", "cpu", 10, 4, 10, 40);
  a.add("looped", "cpu", 10, 4, 10, 60);
  a.add("looped", "sim", 10, 4, 5, 7);
  CHECK(a.firings("looped") == 50);  // where it was measured most
  CHECK(a.find("other", "sim")->ns == 27);
}

TEST_CASE("a cost model comes back from its file as it was") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("costs.json");
  CostModel m;
  m.add("a/b:\"'\n", "cpu", 1234.5678901234, 1e12);
  m.add("a/b:\"'\n", "gpu", 1e-3, 0);
  m.add("c", "sim", 3, 4, 99, 12.5);
  REQUIRE(m.save(path).ok());
  REQUIRE(m.save(path).ok());  // over what is there
  auto back = CostModel::load(path);
  REQUIRE(back.ok());
  CHECK(back->size() == 2);
  CHECK(back->find("a/b:\"'\n", "cpu")->ns == 1234.5678901234);
  CHECK(back->find("a/b:\"'\n", "gpu")->ns == 1e-3);
  CHECK(back->find("c", "sim")->steps == 99);
  CHECK(back->find("c", "sim")->firings == 12.5);
  CHECK_FALSE(std::ifstream(path + ".new"));
  REQUIRE(CostModel().save(path).ok());
  CHECK(CostModel::load(path)->empty());
}

TEST_CASE("files that are not a cost model are refused with what is wrong") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("costs.json");
  CHECK(CostModel::load(path).error().code == Code::kNotFound);
  CHECK_THAT(CostModel::load(path).error().message, Contains(path));
  CHECK(CostModel().save(directory.file("none/costs.json")).error().code == Code::kNotFound);
  const auto head = [](const std::string& nodes, const std::string& version = "1") {
    return R"({"format": "troupe cost model", "version": )" + version + R"(, "nodes": )" + nodes + "}";
  };
  const std::pair<std::string, std::string> bad[] = {
      {"", "another format"},
      {"no json", "another format"},
      {"[1, 2]", "another format"},
      {"{}", "another format"},
      {R"({"format": 3})", "another format"},
      {head("{}").substr(0, 40), "another format"},
      {R"({"format": "troupe cost model", "nodes": {}})", "version"},
      {head("{}", "2"), "version"},
      {head("{}", "\"1\""), "version"},
      {R"({"format": "troupe cost model", "version": 1})", "no nodes"},
      {head("[]"), "no nodes"},
      {head(R"({"a": 3})"), "'a' has no costs"},
      {head(R"({"a": {"cpu": 3}})"), "'a' on cpu"},
      {head(R"({"a": {"cpu": {"ns": 1, "steps": 2}}})"), "'a' on cpu"},
      {head(R"({"a": {"cpu": {"ns": -1, "steps": 2, "bytes": 1}}})"), "'a' on cpu"},
      {head(R"({"a": {"cpu": {"ns": 1, "steps": 0, "bytes": 1}}})"), "'a' on cpu"},
      {head(R"({"a": {"cpu": {"ns": 1, "steps": 1e300, "bytes": 1}}})"), "'a' on cpu"},
      {head(R"({"a": {"cpu": {"ns": 1e300, "steps": 1, "bytes": 1}}})"), "1e+18"},
      {head(R"({"a": {"cpu": {"ns": 1, "steps": 1, "bytes": 1e19}}})"), "1e+18"},
      {head(R"({"a": {"cpu": {"ns": "1", "steps": 1, "bytes": 1}}})"), "'a' on cpu"},
      {head(R"({"a": {"cpu": {"ns": null, "steps": 1, "bytes": 1}}})"), "'a' on cpu"},
      {head(R"({"a": {"cpu": {"ns": 1, "steps": 1, "bytes": 1, "firings": -1}}})"), "'a' on cpu"},
      {head(R"({"a": {"cpu": {"ns": 1, "steps": 1, "bytes": 1, "firings": "often"}}})"), "'a' on cpu"},
  };
  for (const auto& [text, why] : bad) {
    std::ofstream(path, std::ios::trunc) << text;
    const auto loaded = CostModel::load(path);
    INFO(text);
    REQUIRE_FALSE(loaded.ok());
    CHECK(loaded.error().code == Code::kDataLoss);
    CHECK_THAT(loaded.error().message, Contains(why) && Contains(path));
  }
}

TEST_CASE("a file that does not say how often nodes run is taken as if once") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("costs.json");
  std::ofstream(path) << R"({"format": "troupe cost model", "version": 1,
                             "nodes": {"a": {"cpu": {"ns": 3, "steps": 2, "bytes": 1}}}})";
  const auto loaded = CostModel::load(path);
  REQUIRE(loaded.ok());
  CHECK(loaded->firings("a") == 1);
  CHECK(loaded->find("a", "cpu")->ns == 3);
}

TEST_CASE("by the roofline a node takes the longer of arithmetic and memory") {
  const DeviceRates rates{.flops = 1e9, .memory_bandwidth = 1e9, .launch_ns = 100};
  CHECK(NodeCost{1000, 10}.time_ns(rates) == 1100);
  CHECK(NodeCost{10, 1000}.time_ns(rates) == 1100);
  CHECK(NodeCost{}.time_ns(rates) == 0);
}

TEST_CASE("operations of products, convolutions and their gradients, counted by hand") {
  test::PassFixture f;
  auto p = [&, i = 0](PartialShape shape) mutable { return f.placeholder(fmt::format("p{}", i++), std::move(shape)); };
  const auto ints = [&](std::initializer_list<int32_t> v) { return f.s.constant(Tensor::of<int32_t>(v)); };
  const Output a = p({3, 4}), b = p({4, 5});
  CHECK(cost_of(*f.s.node("MatMul", {a, b})).flops == 2 * 3 * 4 * 5);
  CHECK(cost_of(*f.s.node("MatMul", {p({4, 3}), b}, {{"transpose_a", true}})).flops == 2 * 3 * 4 * 5);
  CHECK(cost_of(*f.s.node("BatchMatMulV2", {p({7, 3, 4}), p({7, 4, 5})})).flops == 7 * 2 * 3 * 4 * 5);
  const Attrs fused = {{"num_args", int64_t{0}}, {"fused_ops", std::vector<std::string>{"Tanh"}}};
  CHECK(cost_of(*f.s.node("_FusedMatMul", {a, b}, fused)).flops == 2 * 3 * 4 * 5);
  const auto zeros = [&](const Shape& shape) { return f.s.constant(*Tensor::zeros(DType::kFloat32, shape)); };
  const Node* attention = f.s.node("_FusedAttention", {zeros({2, 3, 5, 4}), zeros({2, 7, 3, 4}), zeros({2, 3, 7, 6})},
                                   {{"num_added", int64_t{0}},
                                    {"num_masks", int64_t{0}},
                                    {"scale", 1.f},
                                    {"hidden", 0.f},
                                    {"layouts", std::string("hthh")}});
  REQUIRE(attention);
  CHECK(cost_of(*attention).flops == 2 * 2 * 3 * 5 * 7 * (4 + 6));

  // 3 x 3 filters from 4 to 8 channels over images of 10 x 12, stride 2: 5 x 6 outputs.
  const Attrs attrs = {{"strides", std::vector<int64_t>{1, 2, 2, 1}}, {"padding", std::string("SAME")}};
  const Output x = p({2, 10, 12, 4}), w = p({3, 3, 4, 8}), dy = p({2, 5, 6, 8});
  const double conv = 2.0 * (2 * 5 * 6 * 8) * (3 * 3 * 4);
  CHECK(cost_of(*f.s.node("Conv2D", {x, w}, attrs)).flops == conv);
  CHECK(cost_of(*f.s.node("Conv2DBackpropInput", {ints({2, 10, 12, 4}), w, dy}, attrs)).flops == conv);
  CHECK(cost_of(*f.s.node("Conv2DBackpropFilter", {x, ints({3, 3, 4, 8}), dy}, attrs)).flops == conv);
  Attrs fused_conv = attrs;
  fused_conv.set("num_args", int64_t{0});
  fused_conv.set("fused_ops", std::vector<std::string>{"Relu"});
  CHECK(cost_of(*f.s.node("_FusedConv2D", {x, w}, fused_conv)).flops == conv);
  const Output deep = p({3, 3, 4, 2}), deep_dy = p({2, 5, 6, 8});
  const double depthwise = 2.0 * (2 * 5 * 6 * 8) * (3 * 3);
  CHECK(cost_of(*f.s.node("DepthwiseConv2dNative", {x, deep}, attrs)).flops == depthwise);
  CHECK(cost_of(*f.s.node("DepthwiseConv2dNativeBackpropInput", {ints({2, 10, 12, 4}), deep, deep_dy}, attrs)).flops ==
        depthwise);
  CHECK(cost_of(*f.s.node("DepthwiseConv2dNativeBackpropFilter", {x, ints({3, 3, 4, 2}), deep_dy}, attrs)).flops ==
        depthwise);
  const Attrs window = {{"ksize", std::vector<int64_t>{1, 3, 3, 1}},
                        {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                        {"padding", std::string("SAME")}};
  CHECK(cost_of(*f.s.node("MaxPool", {x}, window)).flops == 9 * (2 * 5 * 6 * 4));
  CHECK(cost_of(*f.s.node("Sum", {x, ints({0, 1})})).flops == 2 * 10 * 12 * 4);
  CHECK(cost_of(*f.s.node("Relu", {x})).flops == 2 * 10 * 12 * 4);
  CHECK(cost_of(*f.s.node("Transpose", {a, ints({1, 0})})).flops == 0);
  REQUIRE(f.s.ok());
}

TEST_CASE("operations of volumes and sparse updates, counted by hand") {
  test::PassFixture f;
  const auto ints = [&](std::initializer_list<int32_t> v) { return f.s.constant(Tensor::of<int32_t>(v)); };
  const std::vector<int64_t> once = {1, 1, 1, 1, 1};
  const Attrs attrs{{"strides", once}, {"padding", std::string("SAME")}};
  const Output x = f.placeholder("x", {2, 4, 5, 6, 3}), w = f.placeholder("w", {3, 3, 3, 3, 8});
  const Output dy = f.placeholder("dy", {2, 4, 5, 6, 8});
  const double conv = 2.0 * (2 * 4 * 5 * 6 * 8) * (3 * 3 * 3 * 3);
  CHECK(cost_of(*f.s.node("Conv3D", {x, w}, attrs)).flops == conv);
  CHECK(cost_of(*f.s.node("Conv3DBackpropInputV2", {ints({2, 4, 5, 6, 3}), w, dy}, attrs)).flops == conv);
  CHECK(cost_of(*f.s.node("Conv3DBackpropFilterV2", {x, ints({3, 3, 3, 3, 8}), dy}, attrs)).flops == conv);
  const Attrs window{
      {"ksize", std::vector<int64_t>{1, 2, 2, 2, 1}}, {"strides", once}, {"padding", std::string("SAME")}};
  CHECK(cost_of(*f.s.node("MaxPool3D", {x}, window)).flops == 8 * (2 * 4 * 5 * 6 * 3));
  const Output table = f.s.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{100, 7}}});
  const Node* rows = f.s.node("ResourceScatterAdd", {table, ints({3, 4}), f.placeholder("rows", {2, 7})});
  CHECK(rows->op().does_update_variable());
  CHECK(cost_of(*rows).flops == 2 * 7);
  REQUIRE(f.s.ok());
}

TEST_CASE("an op of one's own states its cost") {
  test::PassFixture f;
  f.ops.add(OpDef("Cubic")
                .input("x: float32")
                .output("y: float32")
                .doc("A test's.")
                .shape(unchanged_shape)
                .cost([](const CostContext& c) -> NodeCost {
                  const double n = c.input_size(0, -1);
                  return {n * n * n, c.input_bytes(0) + c.output_bytes(0) + c.input_bytes(7) + c.output_size(3, 5) - 1};
                }),
            not_differentiable("a test's"));
  f.ops.add(OpDef("Unstated").input("x: float32").output("y: float32").doc("A test's.").shape(unchanged_shape),
            not_differentiable("a test's"));
  const Output x = f.placeholder("x", {2, 10}), open = f.placeholder("open", {-1, 10});
  CHECK(cost_of(*f.s.node("Cubic", {x})).flops == 1000);
  CHECK(cost_of(*f.s.node("Cubic", {x})).bytes == 2 * 4 * 20);
  CHECK(cost_of(*f.s.node("Cubic", {open})).bytes == 2 * 4 * 10);  // what is not known counts as 1
  CHECK(cost_of(*f.s.node("Unstated", {x})).flops == 20);
  CHECK(estimated_ns(*f.s.node("Cubic", {x}), {.flops = 1e9, .memory_bandwidth = 1e12, .launch_ns = 5}) == 1005);
  REQUIRE(f.s.ok());
}

TEST_CASE("what a cost function asks in vain, and what is not a number, does no harm") {
  test::PassFixture f;
  f.ops.add(OpDef("Vain")
                .input("x: float32")
                .input("z: float32")
                .output("y: float32")
                .doc("A test's.")
                .shape(unchanged_shape)
                .cost([](const CostContext& c) -> NodeCost {
                  for (const int i : {-3, 2, 77}) {
                    CHECK(c.input_dtype(i) == DType::kInvalid);
                    CHECK(c.output_dtype(i) == DType::kInvalid);
                    CHECK(c.input_bytes(i) + c.output_bytes(i) == 0);
                  }
                  return {c.input_elements(0) / c.input_elements(0) - 1, c.input_bytes(0)};
                }),
            not_differentiable("a test's"));
  Output y = f.placeholder("x", {0});
  const Output start = y;
  for (int i = 0; i < 20; ++i) y = f.s.op("Vain", {y, i % 2 ? start : y});
  REQUIRE(f.s.ok());
  CHECK(cost_of(*y.node).flops == 0);
  CHECK(estimated_ns(*y.node, {.flops = 1e9, .memory_bandwidth = 1e12, .launch_ns = 5}) == 0);
  PlacementOptions options;
  options.devices = {{"/job:a/task:0/cpu:0"}, {"/job:a/task:0/cpu:1"}};
  CHECK(place(f.graph, {&start, 1}, {&y, 1}, {}, options).ok());
}

TEST_CASE("passes' forms of products and convolutions cost what the plain ops do") {
  test::RealOps real;
  const auto has_cost_of = [&](const char* fused, const char* plain) {
    const auto& a = real.ops.find(fused)->cost_fn();
    const auto& b = real.ops.find(plain)->cost_fn();
    return a.target_type() == b.target_type();
  };
  for (const char* op : {"_FusedMatMul", "_FusedMatMulReluGrad", "_FusedMatMulGeluGrad", "_FusedMatMulBiasAddGrad"})
    CHECK(has_cost_of(op, "MatMul"));
  CHECK(has_cost_of("_FusedConv2D", "Conv2D"));
  CHECK(has_cost_of("_FusedDepthwiseConv2dNative", "DepthwiseConv2dNative"));
  CHECK_FALSE(has_cost_of("_FusedMatMul", "Relu"));
}

TEST_CASE("what a node moves, and what takes a device no time") {
  test::PassFixture f;
  const DeviceRates rates{.flops = 1e9, .memory_bandwidth = 1e9, .launch_ns = 100};
  const Output x = f.placeholder("x", {8, 16}), y = f.placeholder("y", {16, 4});
  const NodeCost product = cost_of(*f.s.node("MatMul", {x, y}));
  CHECK(product.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4));
  CHECK(cost_of(*f.s.node("Transpose", {x, f.s.constant(Tensor::of<int32_t>({1, 0}))})).bytes == 4 * 2 * (8 * 16) + 8);
  CHECK(cost_of(*f.s.node("Identity", {x})).bytes == 0);
  CHECK(estimated_ns(*f.s.node("Identity", {x}), rates) == 0);
  CHECK(estimated_ns(*x.node, rates) == 0);
  CHECK(estimated_ns(*f.s.node("NoOp", {}), rates) == 0);
  CHECK(estimated_ns(*f.s.constant(1.f).node, rates) == 0);
  const Output v = f.s.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{8, 16}}});
  CHECK(estimated_ns(*v.node, rates) == 0);
  CHECK(estimated_ns(*f.s.node("_EventCount", {}), rates) == 0);
  CHECK(estimated_ns(*f.s.node("RandomShuffleQueueV2", {}, {{"component_types", std::vector{DType::kFloat32}}}),
                     rates) == 0);
  const Output lr = f.s.constant(0.1f);
  CHECK(estimated_ns(*f.s.node("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}}), rates) == 0);
  CHECK(estimated_ns(*f.s.node("AssignVariableOp", {v, x}), rates) == 0);
  const Node* update = f.s.node("ResourceApplyGradientDescent", {v, lr, x});
  CHECK(update->op().does_update_variable());
  CHECK(cost_of(*update).flops == 8 * 16);
  CHECK(estimated_ns(*update, rates) > 100);
  REQUIRE(f.s.ok());
  // Measured: of that kind; simulated devices also take what was measured on the CPU.
  CostModel m;
  const Node& node = *f.s.node("MatMul", {x, y});
  CHECK(m.time_ns(node, "sim", rates) == estimated_ns(node, rates));
  m.add(node.name(), "cpu", 77, 0);
  CHECK(m.time_ns(node, "cpu", rates) == 77);
  CHECK(m.time_ns(node, "sim", rates) == 77);
  CHECK(m.time_ns(node, "gpu", rates) == estimated_ns(node, rates));
  m.add(node.name(), "sim", 7, 0);
  CHECK(m.time_ns(node, "sim", rates) == 7);
}

TEST_CASE("values that cannot be measurements are left out, so that a model can always be kept in a file") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("costs.json");
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  CostModel m;
  for (const double bad : {kNan, kInfinity, -kInfinity, -1., 2e18}) {
    m.add("a", "cpu", bad, 1);
    m.add("a", "cpu", 1, bad);
    m.add("a", "cpu", 1, 1, 1, bad);
  }
  for (const int64_t steps : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()})
    m.add("a", "cpu", 1, 1, steps);
  CHECK(m.empty());
  for (int i = 0; i < 20; ++i) m.add("a", "cpu", 1e18, 1e18, std::numeric_limits<int64_t>::max(), 1e18);
  m.add("", "", 0, 0, 1, 0);
  m.add(m);
  REQUIRE(m.save(path).ok());
  const auto back = CostModel::load(path);
  INFO((back.ok() ? "" : back.error().str()));
  REQUIRE(back.ok());
  CHECK(back->find("a", "cpu")->ns == 1e18);
  CHECK(back->find("a", "cpu")->steps == m.find("a", "cpu")->steps);
  CHECK(back->find("", "")->firings == 0);
}

TEST_CASE("a cost model that cannot be written leaves the one that is there") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("costs.json");
  CostModel m;
  m.add("a", "cpu", 3, 4);
  REQUIRE(m.save(path).ok());
  std::filesystem::create_directories(path + ".new/in the way");
  m.add("b", "cpu", 3, 4);
  CHECK(m.save(path).error().code == Code::kNotFound);
  CHECK(CostModel::load(path)->size() == 1);
  CHECK(m.save(directory.path()).error().code == Code::kNotFound);
  CHECK(CostModel::load(directory.path()).error().code == Code::kDataLoss);
}
