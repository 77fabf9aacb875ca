// SPDX-License-Identifier: Apache-2.0
// Shape arithmetic that is known while a graph is built, over the real ops.
#include "graph/constant_value.h"

#include <catch2/catch.hpp>

#include "graph/step_graph.h"
#include "tests/op_library.h"
#include "troupe/scope.h"

using namespace troupe;

namespace {

struct ShapeOps : OpLibrary {
  ShapeOps() : OpLibrary(*testing::op_library()) {}
  Graph graph{ops};
  Scope scope{graph};

  Output slice(const Output& vector, int begin, int end, Attrs attrs) {
    const auto one = [&](int v) { return scope.constant(Tensor::of<int32_t>({v})); };
    return scope.op("StridedSlice", {vector, one(begin), one(end), one(1)}, std::move(attrs));
  }
};

}  // namespace

TEST_CASE("sizes taken from known shapes reach Reshape") {
  ShapeOps o;
  const Output x = o.scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{6, 2, 5}}});
  const Output shape = o.scope.op("Shape", {x});
  CHECK(constant_value(shape)->identical(Tensor::of<int32_t>({6, 2, 5})));
  const Output rows = o.slice(shape, 0, 1, {{"shrink_axis_mask", 1}});
  CHECK(constant_value(rows)->identical(Tensor::scalar<int32_t>(6)));
  CHECK(constant_value(o.slice(shape, -1, 0, {{"shrink_axis_mask", 1}}))->identical(Tensor::scalar<int32_t>(5)));
  CHECK(constant_value(o.slice(shape, 1, 0, {{"end_mask", 1}}))->identical(Tensor::of<int32_t>({2, 5})));
  CHECK(constant_value(o.slice(shape, 2, 1, {}))->elements() == 0);
  const Output dims = o.scope.op("Pack", {rows, o.scope.constant(int32_t{10})});
  CHECK(constant_value(dims)->identical(Tensor::of<int32_t>({6, 10})));
  CHECK(o.scope.op("Reshape", {x, dims}).shape().str() == "[6,10]");
  const Output wide = o.scope.op("Cast", {dims}, {{"DstT", DType::kInt64}});
  if (wide) CHECK(constant_value(wide)->identical(Tensor::of<int64_t>({6, 10})));

  const Output y = o.scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, 2}}});
  CHECK(!constant_value(o.scope.op("Shape", {y})));
  CHECK(constant_value(o.scope.op("Rank", {y}))->identical(Tensor::scalar<int32_t>(2)));
  CHECK(!constant_value(x));
}

TEST_CASE("sizes that follow from others that are not known reach Reshape, Fill and BroadcastTo") {
  ShapeOps o;
  Scope& s = o.scope;
  const auto number = [&](int32_t v) { return s.constant(v); };
  const auto numbers = [&](std::vector<int32_t> v) { return s.constant(Tensor::of<int32_t>(v)); };
  const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, -1, 12}}});
  const Output shape = s.op("Shape", {x});
  const auto size = [&](int i) { return o.slice(shape, i, i + 1, {{"shrink_axis_mask", 1}}); };
  CHECK(known_sizes(shape).str() == "[?,?,12]");

  // Heads, as of attention.
  const Output heads =
      s.op("Reshape", {x, s.op("Pack", {size(0), number(-1), number(3), s.op("FloorDiv", {size(2), number(3)})})});
  CHECK(heads.shape().str() == "[?,?,3,4]");

  // tf.tensordot of x and a matrix of [12, 8].
  const Output free = s.op("GatherV2", {shape, numbers({0, 1}), number(0)});
  const Output rows = s.op("Prod", {free, numbers({0})});
  const Output columns = s.op("Prod", {s.op("GatherV2", {shape, numbers({2}), number(0)}), numbers({0})});
  const Output flat = s.op("Reshape", {x, s.op("Pack", {rows, columns})});
  CHECK(flat.shape().str() == "[?,12]");
  const Output back = s.op("ConcatV2", {free, numbers({8}), number(0)});
  CHECK(s.op("Reshape", {s.op("MatMul", {flat, s.constant(*Tensor::zeros(DType::kFloat32, {12, 8}))}), back})
            .shape()
            .str() == "[?,?,8]");
  CHECK(s.op("Fill", {back, s.constant(1.0f)}).shape().str() == "[?,?,8]");
  CHECK(s.op("BroadcastTo", {s.constant(1.0f), back}).shape().str() == "[?,?,8]");
  CHECK(s.op("RandomUniform", {back}, {{"dtype", DType::kFloat32}}).shape().str() == "[?,?,8]");

  // The only size that is open follows from how many elements there are.
  const Output whole = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{4, 6}}});
  CHECK(s.op("Reshape", {whole, s.op("Pack", {size(0), number(8)})}).shape().str() == "[3,8]");
  CHECK(s.op("Reshape", {whole, s.op("Pack", {size(0), number(7)})}).shape().str() == "[?,7]");
  CHECK(s.op("Reshape", {whole, s.op("Pack", {size(0), size(1)})}).shape().str() == "[?,?]");
  REQUIRE(s.ok());

  // What is not known as a number, or does not fit its type, is not known.
  const Output huge = s.op("Mul", {number(INT32_MAX), number(2)});
  CHECK(!constant_value(huge));
  CHECK(known_sizes(s.op("Pack", {huge, number(5), s.op("FloorDiv", {number(5), number(0)})})).str() == "[?,5,?]");
  const Output some = s.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{3}}});
  CHECK(known_sizes(some).str() == "[?,?,?]");
  CHECK(!is_partly_known(some));
  CHECK(is_partly_known(shape));
  CHECK(!known_sizes(s.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{-1}}})).has_rank());
  const Output outside = s.op("GatherV2", {shape, numbers({5}), number(0)});
  CHECK(known_sizes(outside).str() == "[?]");
}

TEST_CASE("sizes that read one another many times are looked at for a bounded time") {
  ShapeOps o;
  Output at = o.scope.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}});
  for (int i = 0; i < 60; ++i) at = o.scope.op("AddV2", {at, at});
  CHECK(known_sizes(o.scope.op("Pack", {o.scope.constant(7), at})).str() == "[7,?]");
}

TEST_CASE("a step that is fed sizes of which some were known goes by no shape that follows from them") {
  ShapeOps o;
  const Output x = o.scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, 12}}});
  const Output rows = o.slice(o.scope.op("Shape", {x}), 0, 1, {{"shrink_axis_mask", 1}});
  const Output sizes = o.scope.op("Pack", {rows, o.scope.constant(12)});
  const Output y = o.scope.op("Reshape", {x, sizes});
  REQUIRE(o.scope.ok());
  CHECK(y.shape().str() == "[?,12]");
  CHECK(StepGraph(o.graph, {}, {&y, 1}, {}).shape(y).str() == "[?,12]");
  CHECK(StepGraph(o.graph, {&x, 1}, {&y, 1}, {}).shape(y).str() == "[?,12]");
  CHECK(StepGraph(o.graph, {&rows, 1}, {&y, 1}, {}).shape(y).str() == "[?,12]");
  CHECK_FALSE(StepGraph(o.graph, {&sizes, 1}, {&y, 1}, {}).shape(y).has_rank());
}
