// SPDX-License-Identifier: Apache-2.0
// Shape arithmetic that is known while a graph is built, over the real ops.
#include "graph/constant_value.h"

#include <catch2/catch.hpp>

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
