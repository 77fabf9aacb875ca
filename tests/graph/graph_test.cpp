// SPDX-License-Identifier: Apache-2.0
// Growth of a graph: inference, checks, look-up, names.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;
using Catch::Contains;

namespace {

std::string failure(Graph& graph, NodeSpec spec) {
  const int before = graph.size();
  auto added = graph.add(std::move(spec));
  REQUIRE(!added.ok());
  CHECK(graph.size() == before);
  return added.error().str();
}

}  // namespace

TEST_CASE("types, numbers and defaults come from inputs and schema") {
  test::Fixture f;
  const Output x = f.placeholder("x", {64, 784});
  const Output w = f.placeholder("w", {784, 10});
  const Node* m = *f.graph.add({"MatMul", "m", {x, w}});
  CHECK(*m->attrs().get<DType>("T") == DType::kFloat32);
  CHECK(*m->attrs().get<bool>("transpose_a") == false);
  CHECK(m->dtype(0) == DType::kFloat32);
  CHECK(m->shape(0).str() == "[64,10]");
  CHECK(m->out().name() == "m:0");

  const Node* sum = *f.graph.add({"AddN", "sum", {x, x, x}});
  CHECK(*sum->attrs().get<int64_t>("N") == 3);
  const Node* split = *f.graph.add({"Split", "split", {x}, {{"num_split", 4}}});
  CHECK(split->num_outputs() == 4);
  CHECK(split->dtype(3) == DType::kFloat32);
  CHECK(!split->shape(3).has_rank());

  const Output h = f.scope.op("Handle", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}});
  const Node* enqueue = *f.graph.add({"Enqueue", "e", {h, x, h}});
  CHECK(*enqueue->attrs().get<std::vector<DType>>("Tcomponents") == std::vector{DType::kFloat32, DType::kResource});
  CHECK(enqueue->num_outputs() == 0);
  const Node* read = *f.graph.add({"Read", "r", {h}, {{"dtype", DType::kFloat32}}});
  CHECK(read->shape(0).str() == "[3]");
}

TEST_CASE("the output that a fault leaves tells that it is none") {
  const Output none;
  CHECK(!none);
  CHECK(none.dtype() == DType::kInvalid);
  CHECK(!none.shape().has_rank());
  CHECK(none.name() == "<none>");
}

TEST_CASE("a constant input reaches the shape function") {
  test::Fixture f;
  const Output x = f.placeholder("x", {6});
  const Output dims = f.scope.constant(Tensor::of<int32_t>({2, 3}));
  CHECK(f.scope.op("Reshape", {x, dims}).shape().str() == "[2,3]");
  CHECK(f.scope.op("Reshape", {x, f.scope.op("Identity", {dims})}).shape().str() == "[2,3]");
  CHECK(!f.scope.op("Reshape", {x, f.placeholder("d", {2}, DType::kInt32)}).shape().has_rank());
}

TEST_CASE("what does not fit is refused with node, op and values") {
  test::Fixture f;
  const Output x = f.placeholder("x", {64, 784});
  const Output w = f.placeholder("w", {500, 10});
  const Output i = f.placeholder("i", {2}, DType::kInt32);
  CHECK(failure(f.graph, {"MatMul", "fc1", {x, w}}) ==
        "invalid argument: MatMul 'fc1': inner sizes differ: [64,784] x [500,10]");
  CHECK_THAT(failure(f.graph, {"Matmul", "m", {x, w}}), Contains("unknown op") && Contains("MatMul"));
  CHECK_THAT(failure(f.graph, {"Neg", "x", {w}}), Contains("already exists"));
  CHECK_THAT(failure(f.graph, {"Neg", "bad name", {w}}), Contains("name"));
  CHECK_THAT(failure(f.graph, {"Neg", "", {w}}), Contains("name"));
  CHECK_THAT(failure(f.graph, {"Neg", "n", {}}), Contains("input"));
  CHECK_THAT(failure(f.graph, {"Neg", "n", {x, w}}), Contains("takes 1 inputs (x), got 2"));
  CHECK_THAT(failure(f.graph, {"Neg", "n", {{}}}), Contains("input 0 is empty"));
  CHECK_THAT(failure(f.graph, {"Neg", "n", {{x.node, 1}}}), Contains("x:1") && Contains("has 1 outputs"));
  CHECK_THAT(failure(f.graph, {"Mul", "n", {x, i}}), Contains("input 1 'y'") && Contains("i:0 is int32"));
  CHECK_THAT(failure(f.graph, {"MatMul", "n", {i, i}}), Contains("int32 is not allowed") && Contains("float64"));
  CHECK_THAT(failure(f.graph, {"Neg", "n", {x}, {{"T", DType::kInt32}}}), Contains("must be int32 (T)"));
  CHECK_THAT(failure(f.graph, {"Neg", "n", {x}, {{"wrong", 1}}}), Contains("no attribute wrong") && Contains("T"));
  CHECK_THAT(failure(f.graph, {"MatMul", "n", {x, w}, {{"transpose_a", 1}}}), Contains("must be bool, not int"));
  CHECK_THAT(failure(f.graph, {"Cast", "n", {x}}), Contains("DstT (type) is missing"));
  CHECK_THAT(failure(f.graph, {"AddN", "n", {x, x}, {{"N", 3}}}), Contains("takes 3 or more inputs"));
  CHECK_THAT(failure(f.graph, {"AddN", "n", {x}, {{"N", INT64_MAX}}}), Contains("takes 9223372036854775807 or more"));
  CHECK_THAT(failure(f.graph, {"AddN", "n", {}}), Contains("N"));
  CHECK_THAT(failure(f.graph, {"Split", "n", {x}, {{"num_split", 0}}}), Contains("at least 1"));
  for (const int64_t n : {int64_t{1} << 60, int64_t{1} << 16, int64_t{1} << 15})
    CHECK_THAT(failure(f.graph, {"Split", "n", {x}, {{"num_split", n}}}), Contains("not a count of outputs"));
  const std::vector<int64_t> four = {1, 2, 2, 1}, two = {2, 2};
  CHECK_THAT(failure(f.graph, {"Pool", "n", {x}, {{"ksize", four}, {"padding", "FULL"}}}),
             Contains("\"FULL\" is not allowed") && Contains("SAME, VALID"));
  CHECK_THAT(failure(f.graph, {"Pool", "n", {x}, {{"ksize", two}, {"padding", "SAME"}}}),
             Contains("[2,2]") && Contains("at least 4"));
  test::Fixture other;
  CHECK_THAT(failure(f.graph, {"Neg", "n", {other.placeholder("x", {2})}}), Contains("another graph"));
  CHECK(f.graph.add({"Neg", "n", {x}, {{"_anything", 1}}}).ok());
}

TEST_CASE("outputs are found by name") {
  test::Fixture f;
  const Output x = f.placeholder("scope/input", {2});
  CHECK(*f.graph.output("scope/input") == x);
  CHECK(*f.graph.output("scope/input:0") == x);
  CHECK(f.graph.output("^scope/input")->node == x.node);
  CHECK(f.graph.output("scope/input:1").error().code == Code::kInvalidArgument);
  CHECK(f.graph.output("scope/input:y").error().code == Code::kInvalidArgument);
  CHECK(f.graph.output("scope/input:99999999999").error().code == Code::kInvalidArgument);
  CHECK(f.graph.output("").error().code == Code::kNotFound);
  const Error error = f.graph.output("scope/inptu").error();
  CHECK(error.code == Code::kNotFound);
  CHECK_THAT(error.message, Contains("scope/input"));
  const Node* nothing = f.scope.node("NoOp", {});
  CHECK(f.graph.output("NoOp")->node == nothing);
}

TEST_CASE("unique names count up") {
  test::Fixture f;
  CHECK(f.graph.unique_name("x") == "x");
  f.placeholder("x", {});
  CHECK(f.graph.unique_name("x") == "x_1");
  CHECK(f.graph.unique_name("x") == "x_1");
  f.placeholder("x_1", {});
  CHECK(f.graph.unique_name("x") == "x_2");
}
