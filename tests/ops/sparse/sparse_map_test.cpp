// SPDX-License-Identifier: Apache-2.0
// Maps of sparse tensors: numbers for what is kept, each of which gives it back once.
#include <catch2/catch.hpp>

#include "tests/ops/check_op.h"
#include "tests/ops/state_fixture.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

class Map : public StateFixture {
 public:
  Result<Tensor> insert(const Tensor& serialized) { return use("_SparseTensorsMapInsert", serialized); }
  Result<Tensor> take(std::initializer_list<int64_t> handles) {
    return use("_SparseTensorsMapTake", Tensor::of<int64_t>(handles));
  }

 private:
  Result<Tensor> use(const char* op, const Tensor& input) {
    TROUPE_ASSIGN(auto out, run(op, {map_, input}));
    return out.at(0);
  }
  Arg map_ = handle("_SparseTensorsMap", "map", {});
};

/// The rows of [[0,5],[6,0],[0,7]], serialized.
Tensor rows() {
  const Tensor indices = Tensor::of<int64_t>({0, 1, 1, 0, 2, 1}, Shape{3, 2}), values = Tensor::of<float>({5, 6, 7});
  return *apply("SerializeManySparse", {indices, values, Tensor::of<int64_t>({3, 2})}, {{"out_type", DType::kVariant}});
}

}  // namespace

TEST_CASE("sparse tensors are kept by numbers that count up, and taken once") {
  Map map;
  CHECK(map.insert(rows())->identical(Tensor::of<int64_t>({0, 1, 2})));
  CHECK(map.insert(*rows().slice(0, 1))->identical(Tensor::of<int64_t>({3})));
  const auto taken = map.take({2, 0});
  REQUIRE(taken.ok());
  const auto part = [&](int i) {
    return *apply("DeserializeSparse", {*taken}, {{"dtype", DType::kFloat32}, {"Tserialized", DType::kVariant}}, i);
  };
  CHECK(part(0).identical(Tensor::of<int64_t>({0, 1, 1, 1}, Shape{2, 2})));
  CHECK(part(1).identical(Tensor::of<float>({7, 5})));
  CHECK(part(2).identical(Tensor::of<int64_t>({2, 2})));
  CHECK(map.take({})->shape() == Shape{0, 3});
}

TEST_CASE("a number that is not there, or comes twice, takes nothing", "[bad_input]") {
  Map map;
  REQUIRE(map.insert(rows()).ok());
  CHECK_THAT(map.take({1, 3}).error().str(), Contains("no sparse tensor of 'map' has the handle 3"));
  CHECK_THAT(map.take({1, 1}).error().str(), Contains("the handle 1 a second time"));
  CHECK(map.take({1}).ok());
  CHECK(map.take({1}).error().code == Code::kNotFound);
  CHECK(map.take({0, 2}).ok());
}
