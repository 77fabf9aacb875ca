// SPDX-License-Identifier: Apache-2.0
// tf.Example records that lack features, have others than promised, or are none; the golden case `examples` has the
// rest.
#include "io/example.pb.h"
#include "tests/ops/check_op.h"
#include "tests/ops/text/string_cases.h"

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

TEST_CASE("sequences of features that are not as promised are errors", "[examples][bad_input]") {
  // Steps of one, two and no numbers under "n".
  proto::SequenceExample record;
  auto* entry = record.mutable_feature_lists()->add_feature_list();
  entry->set_key("n");
  for (int step = 0; step < 3; ++step) {
    auto* numbers = entry->mutable_value()->add_feature()->mutable_int64_list();
    for (int k = 0; k < (step + 1) % 3; ++k) numbers->add_value(10 * step + k);
  }
  const Tensor bytes = S({record.SerializeAsString()});
  const auto parse = [](const Tensor& serialized, const char* key, DType dtype, bool dense, const Tensor& may_miss,
                        int port) {
    const char* number = dense ? "Nfeature_list_dense" : "Nfeature_list_sparse";
    Attrs attrs = {{number, int64_t{1}},
                   {dense ? "feature_list_dense_types" : "feature_list_sparse_types", std::vector<DType>{dtype}}};
    if (dense) attrs.set("feature_list_dense_shapes", std::vector<PartialShape>{PartialShape{1}});
    for (const char* count : {"Ncontext_sparse", "Ncontext_dense", "Nfeature_list_sparse", "Nfeature_list_dense"})
      if (!attrs.has(count)) attrs.set(count, int64_t{0});
    return apply("ParseSingleSequenceExample", {serialized, may_miss, S(key), S("")}, attrs, port);
  };
  const Tensor one = *bytes.reshape(Shape{}), none = S({});
  REQUIRE(parse(one, "n", DType::kInt64, false, none, 0).ok());
  CHECK(parse(one, "n", DType::kInt64, false, none, 0)->identical(L({0, 0, 1, 0, 1, 1}, {3, 2})));
  CHECK(parse(one, "n", DType::kInt64, false, none, 1)->identical(L({0, 10, 11})));
  CHECK(parse(one, "n", DType::kInt64, false, none, 2)->identical(L({3, 2})));
  CHECK(parse(one, "x", DType::kInt64, false, none, 2)->identical(L({0, 0})));
  CHECK(parse(one, "x", DType::kInt64, true, S({"x"}), 0)->identical(L({}, {0, 1})));
  const auto fails = [&](const Tensor& serialized, const char* key, DType dtype, bool dense, const char* words) {
    CHECK_THAT(parse(serialized, key, dtype, dense, none, 0).error().message, Contains(words));
  };
  fails(one, "n", DType::kInt64, true, "record 0: 'n' has 2 values");
  fails(one, "n", DType::kString, false, "feature list 'n' is int64, not string");
  fails(one, "x", DType::kInt64, true, "feature list 'x' is required");
  fails(S("\xff\xff"), "n", DType::kInt64, false, "2 bytes are not a tf.SequenceExample");
  CHECK_FALSE(parse(bytes, "n", DType::kInt64, false, none, 0).ok());
}

}  // namespace troupe::testing
