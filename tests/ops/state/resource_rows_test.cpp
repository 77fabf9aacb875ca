// SPDX-License-Identifier: Apache-2.0
// Parts of variables: gathered rows and slices, scattered updates of every kind, assigned slices, counting.
#include "tests/ops/state_fixture.h"

using namespace troupe;

namespace {

struct Rows : StateFixture {
  Rows() { assign(v, Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2})); }
  Tensor value(const std::string& op, std::vector<Arg> args, Attrs attrs = {}) {
    auto out = run(op, std::move(args), std::move(attrs));
    if (!out.ok()) FAIL(out.error().str());
    return out->at(0);
  }
  std::string error(const std::string& op, std::vector<Arg> args, Attrs attrs = {}) {
    const auto out = run(op, std::move(args), std::move(attrs));
    REQUIRE_FALSE(out.ok());
    return out.error().str();
  }
  Arg v = variable("v", {3, 2});
};

const Attrs kFloat = {{"dtype", DType::kFloat32}};

}  // namespace

TEST_CASE("rows of a variable are gathered by indices of any shape") {
  Rows f;
  CHECK(f.value("ResourceGather", {f.v, Tensor::of<int32_t>({2, 0, 2, 1}, {2, 2})}, kFloat)
            .identical(Tensor::of<float>({5, 6, 1, 2, 5, 6, 3, 4}, {2, 2, 2})));
  CHECK(f.last_node->shape(0) == PartialShape{2, 2, 2});
  CHECK(f.value("ResourceGather", {f.v, Tensor::scalar<int64_t>(1)}, kFloat).identical(Tensor::of<float>({3, 4})));
  CHECK(f.value("ResourceGather", {f.v, Tensor::of<int32_t>({})}, kFloat).shape() == Shape{0, 2});
  CHECK(f.value("ResourceGather", {f.v, Tensor::of<int32_t>({1, 0, 1}, {3, 1})},
                {{"dtype", DType::kFloat32}, {"batch_dims", int64_t{1}}})
            .identical(Tensor::of<float>({2, 3, 6}, {3, 1})));
  CHECK_THAT(f.error("ResourceGather", {f.v, Tensor::of<int32_t>({0, 3})}, kFloat), Catch::Contains("index 3"));
  CHECK_THAT(f.error("ResourceGather", {f.v, Tensor::of<int32_t>({-1})}, kFloat), Catch::Contains("index -1"));
  CHECK_THAT(f.error("ResourceGather", {f.v, Tensor::of<int32_t>({1})},
                     {{"dtype", DType::kFloat32}, {"batch_dims", int64_t{2}}}),
             Catch::Contains("batch_dims 2"));
}

TEST_CASE("slices of a variable are gathered by rows of indices") {
  Rows f;
  CHECK(f.value("ResourceGatherNd", {f.v, Tensor::of<int32_t>({2, 1, 0, 0}, {2, 2})}, kFloat)
            .identical(Tensor::of<float>({6, 1})));
  CHECK(f.value("ResourceGatherNd", {f.v, Tensor::of<int64_t>({1}, {1, 1})}, kFloat)
            .identical(Tensor::of<float>({3, 4}, {1, 2})));
  CHECK_THAT(f.error("ResourceGatherNd", {f.v, Tensor::of<int32_t>({0, 2}, {1, 2})}, kFloat),
             Catch::Contains("index 2"));
  CHECK_THAT(f.error("ResourceGatherNd", {f.v, Tensor::of<int32_t>({0, 2, 1}, {1, 3})}, kFloat),
             Catch::Contains("[1,3]"));
}

TEST_CASE("rows are changed one after the other, twice where they are named twice") {
  const Tensor indices = Tensor::of<int32_t>({2, 0, 2}), updates = Tensor::of<float>({2, 4, 1, 8, 10, 0.5}, {3, 2});
  const std::pair<const char*, Tensor> expected[] = {{"Update", Tensor::of<float>({1, 8, 3, 4, 10, 0.5}, {3, 2})},
                                                     {"Add", Tensor::of<float>({2, 10, 3, 4, 17, 10.5}, {3, 2})},
                                                     {"Sub", Tensor::of<float>({0, -6, 3, 4, -7, 1.5}, {3, 2})},
                                                     {"Mul", Tensor::of<float>({1, 16, 3, 4, 100, 12}, {3, 2})},
                                                     {"Div", Tensor::of<float>({1, 0.25, 3, 4, 0.25, 3}, {3, 2})},
                                                     {"Min", Tensor::of<float>({1, 2, 3, 4, 2, 0.5}, {3, 2})},
                                                     {"Max", Tensor::of<float>({1, 8, 3, 4, 10, 6}, {3, 2})}};
  for (const auto& [kind, after] : expected) {
    INFO(kind);
    Rows f;
    const Tensor before = f.read(f.v);
    REQUIRE(f.run(std::string("ResourceScatter") + kind, {f.v, indices, updates}).ok());
    CHECK(f.read(f.v).identical(after));
    CHECK(before.identical(Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2})));
    if (std::string_view(kind) == "Mul" || std::string_view(kind) == "Div") continue;
    f.assign(f.v, before);
    REQUIRE(
        f.run(std::string("ResourceScatterNd") + kind, {f.v, Tensor::of<int64_t>({2, 0, 2}, {3, 1}), updates}).ok());
    CHECK(f.read(f.v).identical(after));
  }
}

TEST_CASE("one number, single elements, strings and wrapping integers are scattered") {
  Rows f;
  REQUIRE(f.run("ResourceScatterAdd", {f.v, Tensor::of<int64_t>({0, 1}), Tensor::scalar(10.F)}).ok());
  CHECK(f.read(f.v).identical(Tensor::of<float>({11, 12, 13, 14, 5, 6}, {3, 2})));
  REQUIRE(
      f.run("ResourceScatterNdSub", {f.v, Tensor::of<int32_t>({0, 1, 2, 0}, {2, 2}), Tensor::of<float>({1, 2})}).ok());
  CHECK(f.read(f.v).identical(Tensor::of<float>({11, 11, 13, 14, 3, 6}, {3, 2})));
  const auto words = f.variable("words", {2}, DType::kString);
  f.assign(words, Tensor::of<std::string>({"a", "b"}));
  REQUIRE(f.run("ResourceScatterUpdate", {words, Tensor::of<int32_t>({1}), Tensor::of<std::string>({"c"})}).ok());
  CHECK(f.read(words).identical(Tensor::of<std::string>({"a", "c"})));
  const auto bytes = f.variable("bytes", {1}, DType::kInt8);
  f.assign(bytes, Tensor::of<int8_t>({-128}));
  const Tensor at = Tensor::of<int32_t>({0});
  REQUIRE(f.run("ResourceScatterDiv", {bytes, at, Tensor::of<int8_t>({-1})}).ok());
  CHECK(f.read(bytes).identical(Tensor::of<int8_t>({-128})));
  REQUIRE(f.run("ResourceScatterSub", {bytes, at, Tensor::of<int8_t>({1})}).ok());
  CHECK(f.read(bytes).identical(Tensor::of<int8_t>({127})));
  CHECK_THAT(f.error("ResourceScatterDiv", {bytes, at, Tensor::of<int8_t>({0})}), Catch::Contains("zero"));
}

TEST_CASE("updates that do not fit are refused and change nothing") {
  Rows f;
  const Tensor before = f.read(f.v), row = Tensor::of<float>({1, 2}, {1, 2});
  CHECK_THAT(f.error("ResourceScatterAdd", {f.v, Tensor::of<int32_t>({3}), row}), Catch::Contains("index 3"));
  CHECK_THAT(f.error("ResourceScatterAdd", {f.v, Tensor::of<int32_t>({0, 1}), row}), Catch::Contains("[2,2]"));
  CHECK_THAT(f.error("ResourceScatterNdAdd", {f.v, Tensor::of<int32_t>({0, 9}, {1, 2}), Tensor::of<float>({1})}),
             Catch::Contains("index 9"));
  CHECK_THAT(f.error("ResourceScatterNdAdd", {f.v, Tensor::of<int32_t>({0, 1}, {1, 2}), row}), Catch::Contains("[1]"));
  const auto scalar = f.variable("scalar", {});
  f.assign(scalar, Tensor::scalar(1.F));
  CHECK_THAT(f.error("ResourceScatterAdd", {scalar, Tensor::of<int32_t>({0}), row}), Catch::Contains("scalar"));
  const auto open = f.variable("open", PartialShape::unknown());
  f.assign(open, Tensor::scalar(1.F));
  CHECK_THAT(f.error("ResourceScatterAdd", {open, Tensor::of<int32_t>({0}), row}), Catch::Contains("scalar"));
  CHECK(f.read(f.v).identical(before));
}

TEST_CASE("a slice of a variable is assigned") {
  Rows f;
  const auto ints = [](std::initializer_list<int32_t> v) { return Tensor::of<int32_t>(v); };
  REQUIRE(f.run("ResourceStridedSliceAssign",
                {f.v, ints({2, 1}), ints({0, 2}), ints({-2, 1}), Tensor::of<float>({7, 8})},
                {{"shrink_axis_mask", int64_t{2}}, {"end_mask", int64_t{1}}})
              .ok());
  CHECK(f.read(f.v).identical(Tensor::of<float>({1, 8, 3, 4, 5, 7}, {3, 2})));
  REQUIRE(f.run("ResourceStridedSliceAssign", {f.v, ints({0}), ints({2}), ints({1}), Tensor::of<float>({2, 9})}).ok());
  CHECK(f.read(f.v).identical(Tensor::of<float>({2, 9, 2, 9, 5, 7}, {3, 2})));
  CHECK_THAT(
      f.error("ResourceStridedSliceAssign", {f.v, ints({0}), ints({2}), ints({1}), Tensor::of<float>({7, 8, 9})}),
      Catch::Contains("[3] does not broadcast to [2,2]"));
  CHECK_THAT(f.error("ResourceStridedSliceAssign", {f.v, ints({0}), ints({2}), ints({0}), Tensor::of<float>({7, 8})}),
             Catch::Contains("stride"));
}

TEST_CASE("a variable counts up to its limit") {
  Rows f;
  const auto n = f.variable("n", {}, DType::kInt64);
  f.assign(n, Tensor::scalar<int64_t>(3));
  const Attrs attrs = {{"limit", int64_t{5}}, {"T", DType::kInt64}};
  CHECK(f.value("ResourceCountUpTo", {n}, attrs).identical(Tensor::scalar<int64_t>(3)));
  CHECK(f.value("ResourceCountUpTo", {n}, attrs).identical(Tensor::scalar<int64_t>(4)));
  CHECK(f.run("ResourceCountUpTo", {n}, attrs).error().code == Code::kOutOfRange);
  CHECK(f.read(n).identical(Tensor::scalar<int64_t>(5)));
}
