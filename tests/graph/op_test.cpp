// SPDX-License-Identifier: Apache-2.0
// Schema texts and the registry.
#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;

TEST_CASE("schema texts are read into arguments and attributes") {
  test::Fixture f;
  const OpDef& pool = *f.ops.find("Pool");
  REQUIRE(pool.attrs().size() == 7);
  CHECK(pool.find_attr("T")->allowed_types == std::vector{DType::kFloat32});
  CHECK(std::get<DType>(*pool.find_attr("T")->default_value) == DType::kFloat32);
  CHECK(pool.find_attr("ksize")->type == "list(int)");
  CHECK(pool.find_attr("ksize")->minimum == 4);
  CHECK(!pool.find_attr("ksize")->default_value);
  CHECK(pool.find_attr("padding")->allowed_values == std::vector<std::string>{"SAME", "VALID"});
  CHECK(std::get<float>(*pool.find_attr("alpha")->default_value) == 0.5F);
  CHECK(std::get<std::vector<std::string>>(*pool.find_attr("names")->default_value).at(1) == "b");
  CHECK(std::get<int64_t>(*pool.find_attr("big")->default_value) == -9000000000);
  CHECK(std::get<PartialShape>(*pool.find_attr("shape")->default_value).str() == "[2,?]");
  CHECK(pool.find_attr("nothing") == nullptr);

  const OpDef& enqueue = *f.ops.find("Enqueue");
  CHECK(enqueue.is_stateful());
  CHECK(enqueue.inputs()[0].dtype == DType::kResource);
  CHECK(enqueue.inputs()[1].type_list_attr == "Tcomponents");
  CHECK(enqueue.inputs()[1].type_attr.empty());
  CHECK(f.ops.find("AddN")->inputs()[0].number_attr == "N");
  CHECK(f.ops.find("AddN")->inputs()[0].type_attr == "T");
}

TEST_CASE("the registry finds ops and names near a misspelt one") {
  test::Fixture f;
  CHECK(f.ops.find("Matmul") == nullptr);
  CHECK(f.ops.near("Matmul").at(0) == "MatMul");
  CHECK(f.ops.near("AdN").at(0) == "AddN");
  CHECK(f.ops.near("XYZQRSTUVW").empty());
  CHECK(!f.ops.find("Floor")->gradient().function);
  CHECK(f.ops.find("Floor")->gradient().no_gradient_reason == "its derivative is zero");
}
