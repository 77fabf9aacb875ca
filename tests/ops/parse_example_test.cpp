// SPDX-License-Identifier: Apache-2.0
// tf.Example records that lack features, have others than promised, or are none; the golden case `examples` has the
// rest.
#include "io/example.pb.h"
#include "tests/ops/check_op.h"
#include "tests/ops/string_cases.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

/// A record with the numbers `n`, the texts `s` and the reals `f`.
std::string record(std::initializer_list<int64_t> n, std::initializer_list<std::string> s,
                   std::initializer_list<float> f = {}) {
  proto::Example example;
  const auto add = [&](const char* key) {
    auto* entry = example.mutable_features()->add_feature();
    entry->set_key(key);
    return entry->mutable_value();
  };
  auto* numbers = add("n")->mutable_int64_list();
  for (const int64_t v : n) numbers->add_value(v);
  auto* texts = add("s")->mutable_bytes_list();
  for (const std::string& v : s) texts->add_value(v);
  if (f.size() == 0) return example.SerializeAsString();
  auto* reals = add("f")->mutable_float_list();
  for (const float v : f) reals->add_value(v);
  return example.SerializeAsString();
}

Attrs types(std::vector<DType> sparse, std::vector<DType> dense, std::vector<PartialShape> shapes) {
  const auto n = static_cast<int64_t>(sparse.size());
  return {{"num_sparse", n},
          {"sparse_types", std::move(sparse)},
          {"Tdense", std::move(dense)},
          {"dense_shapes", std::move(shapes)},
          {"ragged_value_types", std::vector<DType>{DType::kInt64}},
          {"ragged_split_types", std::vector<DType>{DType::kInt32}}};
}

Result<Tensor> parse(const Tensor& records, PartialShape shape, const Tensor& otherwise, int port) {
  return apply("ParseExampleV2", {records, S({}), S({"s"}), S({"f"}), S({"n"}), otherwise},
               types({DType::kString}, {DType::kFloat32}, {std::move(shape)}), port);
}

const Tensor kNone = F({}, {0});

}  // namespace

TEST_CASE("features become sparse, dense and ragged tensors", "[examples]") {
  const Tensor records = S({record({1, 2}, {"a"}, {0.5f, 1}), record({}, {"b", "c"}, {2, 3})});
  CHECK(parse(records, {2}, kNone, 0)->identical(L({0, 0, 1, 0, 1, 1}, {3, 2})));
  CHECK(parse(records, {2}, kNone, 1)->identical(S({"a", "b", "c"})));
  CHECK(parse(records, {2}, kNone, 2)->identical(L({2, 2})));
  CHECK(parse(records, {2}, kNone, 3)->identical(F({0.5f, 1, 2, 3}, {2, 2})));
  CHECK(parse(records, {2}, kNone, 4)->identical(L({1, 2})));
  CHECK(parse(records, {2}, kNone, 5)->identical(I({0, 2, 2})));
}

TEST_CASE("records without a feature get its default", "[examples]") {
  const Tensor records = S({record({}, {}, {1, 2, 3, 4}), record({}, {}), record({}, {}, {5, 6})});
  CHECK(parse(records, {-1, 2}, F({9}, {}), 3)->identical(F({1, 2, 3, 4, 9, 9, 9, 9, 5, 6, 9, 9}, {3, 2, 2})));
  CHECK(parse(S({record({}, {})}), {2}, F({7, 8}, {2}), 3)->identical(F({7, 8}, {1, 2})));
  CHECK_THAT(parse(S({record({}, {})}), {2}, kNone, 3).error().str(), Contains("record 0: feature 'f' is required"));
}

TEST_CASE("records that are wrong are errors", "[examples]") {
  CHECK_THAT(parse(S({record({}, {}, {1}), "\xff"}), {1}, kNone, 3).error().str(),
             Contains("record 1: 1 bytes are no"));
  CHECK_THAT(parse(S({record({}, {}, {1, 2, 3})}), {2}, kNone, 3).error().str(),
             Contains("3 values") && Contains("[2]"));
  CHECK_THAT(parse(S({record({}, {}, {1, 2, 3})}), {-1, 2}, kNone, 3).error().str(), Contains("3 values"));
  CHECK_THAT(parse(S({record({}, {}, {1})}), {1}, F({1, 2}, {2}), 3).error().str(), Contains("default"));
  CHECK_THAT(parse(S({record({}, {}, {1})}), PartialShape::unknown(), kNone, 3).error().str(), Contains("<unknown>"));
  const auto typed = apply("ParseSingleExample", {Tensor::scalar(record({1}, {})), kNone},
                           {{"num_sparse", int64_t{0}},
                            {"sparse_keys", std::vector<std::string>{}},
                            {"dense_keys", std::vector<std::string>{"n"}},
                            {"sparse_types", std::vector<DType>{}},
                            {"Tdense", std::vector<DType>{DType::kFloat32}},
                            {"dense_shapes", std::vector<PartialShape>{PartialShape{1}}}});
  CHECK_THAT(typed.error().str(), Contains("feature 'n' is int64, not float32"));
}

}  // namespace troupe::testing
