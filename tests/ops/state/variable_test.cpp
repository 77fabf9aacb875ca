// SPDX-License-Identifier: Apache-2.0
// Variable ops: handles, reads, assignments, arithmetic in place, shapes, errors at build and at run.
#include "tests/ops/state_fixture.h"

using namespace troupe;
using Catch::Contains;

TEST_CASE("a variable is assigned, read, added to and forgotten") {
  StateFixture f;
  const auto w = f.variable("w", {3});
  CHECK_FALSE(f.run("VarIsInitializedOp", {w})->at(0).data<bool>()[0]);
  CHECK(f.run("ReadVariableOp", {w}, {{"dtype", DType::kFloat32}}).error().code == Code::kFailedPrecondition);
  f.assign(w, Tensor::of<float>({1, 2, 3}));
  CHECK(f.last_node->op().name() == "AssignVariableOp");
  const Tensor before = f.read(w);
  CHECK(f.last_node->shape(0) == PartialShape{3});
  REQUIRE(f.run("AssignAddVariableOp", {w, Tensor::of<float>({1, 1, 1})}).ok());
  REQUIRE(f.run("AssignSubVariableOp", {w, Tensor::of<float>({0, 0, 4})}).ok());
  CHECK(f.read(w).identical(Tensor::of<float>({2, 3, 0})));
  CHECK(before.identical(Tensor::of<float>({1, 2, 3})));
  CHECK(f.run("VariableShape", {w})->at(0).identical(Tensor::of<int32_t>({3})));
  CHECK(f.run("VariableShape", {w}, {{"out_type", DType::kInt64}})->at(0).identical(Tensor::of<int64_t>({3})));
  REQUIRE(f.run("DestroyResourceOp", {w}, {{"ignore_lookup_error", false}}).ok());
  CHECK(f.run("DestroyResourceOp", {w}, {{"ignore_lookup_error", false}}).error().code == Code::kNotFound);
  CHECK(f.run("DestroyResourceOp", {w}).ok());
  CHECK_FALSE(f.run("VarIsInitializedOp", {w})->at(0).data<bool>()[0]);
}

TEST_CASE("shared_name, not the node, names the variable; containers keep theirs apart") {
  StateFixture f;
  const Attrs shared{{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", std::string("v")}};
  const auto a = f.handle("VarHandleOp", "a", shared), b = f.handle("VarHandleOp", "b", shared);
  f.assign(a, Tensor::scalar(5.f));
  CHECK(f.read(b).data<float>()[0] == 5);
  Attrs other = shared;
  other.set("container", std::string("other"));
  const auto c = f.handle("VarHandleOp", "c", other);
  CHECK_FALSE(f.run("VarIsInitializedOp", {c})->at(0).data<bool>()[0]);
}

TEST_CASE("wrong dtypes and shapes are refused when the graph is built, or at the container") {
  StateFixture f;
  const auto w = f.variable("w", {3});
  CHECK_THAT(f.run("ReadVariableOp", {w}, {{"dtype", DType::kInt32}}).error().str(), Contains("int32"));
  CHECK_THAT(f.run("AssignVariableOp", {w, Tensor::of<float>({1, 2})}).error().str(),
             Contains("[3]") && Contains("[2]"));
  CHECK(f.run("AssignVariableOp", {w, Tensor::of<int32_t>({1, 2, 3})}).error().code == Code::kInvalidArgument);

  const auto any = f.variable("any");
  f.assign(any, Tensor::of<float>({1, 2}));
  CHECK_THAT(f.run("AssignAddVariableOp", {any, Tensor::of<float>({1, 2, 3})}).error().message,
             Contains("'any'") && Contains("[2]") && Contains("[3]"));
  CHECK(f.run("AssignVariableOp", {any, Tensor::of<float>({1})}, {{"validate_shape", true}}).error().code ==
        Code::kInvalidArgument);
  f.assign(any, Tensor::of<float>({1}));
}

TEMPLATE_TEST_CASE("every number type is added and subtracted in place", "", float, double, int8_t, int16_t, int32_t,
                   int64_t, uint8_t, uint16_t, uint32_t, uint64_t, complex64, complex128, bfloat16, float16) {
  StateFixture f;
  const auto v = f.variable("v", {2}, dtype_of<TestType>);
  f.assign(v, Tensor::of<TestType>({TestType(5), TestType(7)}));
  REQUIRE(f.run("AssignAddVariableOp", {v, Tensor::of<TestType>({TestType(3), TestType(1)})}).ok());
  CHECK(f.read(v).identical(Tensor::of<TestType>({TestType(8), TestType(8)})));
  REQUIRE(f.run("AssignSubVariableOp", {v, Tensor::of<TestType>({TestType(2), TestType(8)})}).ok());
  CHECK(f.read(v).identical(Tensor::of<TestType>({TestType(6), TestType(0)})));
}

TEST_CASE("an op on the wrong kind of resource says so") {
  StateFixture f;
  const auto q = f.handle("FIFOQueueV2", "q", {{"component_types", std::vector{DType::kFloat32}}});
  CHECK_THAT(f.run("ReadVariableOp", {q}, {{"dtype", DType::kFloat32}}).error().message,
             Contains("needs a variable") && Contains("'q'"));
}
