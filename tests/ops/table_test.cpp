// SPDX-License-Identifier: Apache-2.0
// Lookup tables: filled, read, changed by nodes; bad input.
#include "tests/io/temporary_directory.h"
#include "tests/ops/state_fixture.h"

using namespace troupe;
using Catch::Contains;

namespace {

Tensor words(std::initializer_list<std::string> v) { return Tensor::of<std::string>(v); }
Tensor longs(std::initializer_list<int64_t> v) { return Tensor::of<int64_t>(v); }

const Attrs kWordToLong{{"key_dtype", DType::kString}, {"value_dtype", DType::kInt64}};
const Attrs kLongToWord{{"key_dtype", DType::kInt64}, {"value_dtype", DType::kString}};
const Tensor kMissing = Tensor::scalar<int64_t>(-1);

Tensor only(const Result<std::vector<Tensor>>& outputs) {
  INFO((outputs.ok() ? "" : outputs.error().str()));
  REQUIRE(outputs.ok());
  return outputs->at(0);
}

}  // namespace

TEST_CASE("a constant table is filled once and then read") {
  StateFixture f;
  const auto table = f.handle("HashTableV2", "t", kWordToLong);
  CHECK(f.run("LookupTableFindV2", {table, words({"a"}), kMissing}).error().code == Code::kFailedPrecondition);
  const auto fill = GENERATE("InitializeTableV2", "LookupTableImportV2");
  REQUIRE(f.run(fill, {table, words({"a", "b", "a"}), longs({1, 2, 1})}).ok());
  CHECK(only(f.run("LookupTableFindV2", {table, Tensor::of<std::string>({"b", "x", "a", ""}, {2, 2}), kMissing}))
            .identical(Tensor::of<int64_t>({2, -1, 1, -1}, {2, 2})));
  CHECK(f.last_node->shape(0) == PartialShape{2, 2});
  CHECK(only(f.run("LookupTableSizeV2", {table})).identical(Tensor::scalar<int64_t>(2)));
  CHECK(f.run(fill, {table, words({"b", "a"}), longs({2, 1})}).ok());  // the same again
  CHECK(f.run(fill, {table, words({"a"}), longs({1})}).error().code == Code::kFailedPrecondition);
  CHECK_THAT(f.run("LookupTableInsertV2", {table, words({"c"}), longs({3})}).error().message, Contains("constant"));
  CHECK_THAT(f.run("LookupTableRemoveV2", {table, words({"a"})}).error().message, Contains("constant"));
  const auto entries = f.run("LookupTableExportV2", {table}, {{"Tkeys", DType::kString}, {"Tvalues", DType::kInt64}});
  CHECK(only(entries).identical(words({"a", "b"})));
  CHECK(entries->at(1).identical(longs({1, 2})));
}

TEST_CASE("a mutable table takes entries, replaces and removes them") {
  StateFixture f;
  const auto table = f.handle("MutableHashTableV2", "t", kLongToWord);
  REQUIRE(f.run("LookupTableInsertV2", {table, longs({1, 2, 3, 2}), words({"a", "b", "c", "B"})}).ok());
  REQUIRE(f.run("LookupTableRemoveV2", {table, longs({1, 9, 1})}).ok());
  const Tensor none = Tensor::scalar<std::string>("?");
  CHECK(only(f.run("LookupTableFindV2", {table, longs({3, 1, 2}), none})).identical(words({"c", "?", "B"})));
  CHECK(only(f.run("LookupTableFindV2", {table, longs({3, 1}), words({"x", "y"})})).identical(words({"c", "y"})));
  CHECK(only(f.run("LookupTableExportV2", {table}, {{"Tkeys", DType::kInt64}, {"Tvalues", DType::kString}}))
            .identical(longs({3, 2})));
  REQUIRE(f.run("LookupTableImportV2", {table, longs({7}), words({"z"})}).ok());
  CHECK(only(f.run("LookupTableSizeV2", {table})).identical(Tensor::scalar<int64_t>(1)));
}

TEST_CASE("values and keys may be tensors") {
  StateFixture f;
  const auto table =
      f.handle("MutableHashTableOfTensorsV2", "t",
               {{"key_dtype", DType::kString}, {"value_dtype", DType::kString}, {"value_shape", PartialShape{2}}});
  REQUIRE(f.run("LookupTableInsertV2", {table, words({"k"}), Tensor::of<std::string>({"", "ab"}, {1, 2})}).ok());
  CHECK(only(f.run("LookupTableFindV2", {table, words({"x", "k"}), words({"0", "1"})}))
            .identical(Tensor::of<std::string>({"0", "1", "", "ab"}, {2, 2})));
  CHECK(f.last_node->shape(0) == PartialShape{2, 2});
}

TEST_CASE("what does not fit a table is an error with the values") {
  StateFixture f;
  const auto table = f.handle("MutableHashTableV2", "t", kWordToLong);
  const auto message = [&](const std::string& op, std::vector<StateFixture::Arg> args, Attrs attrs = {}) {
    const auto got = f.run(op, std::move(args), std::move(attrs));
    REQUIRE_FALSE(got.ok());
    return got.error().message;
  };
  CHECK_THAT(message("LookupTableFindV2", {table, longs({1}), kMissing}), Contains("string") && Contains("int64[1]"));
  CHECK_THAT(message("LookupTableFindV2", {table, words({"a"}), Tensor::scalar(1.f)}), Contains("float32"));
  CHECK_THAT(message("LookupTableInsertV2", {table, words({"a", "b"}), longs({1})}),
             Contains("[2]") && Contains("[1]"));
  CHECK_THAT(message("LookupTableExportV2", {table}, {{"Tkeys", DType::kInt64}, {"Tvalues", DType::kInt64}}),
             Contains("has string, the node expects int64"));
  const auto variable = f.variable("v");
  CHECK_THAT(message("LookupTableSizeV2", {variable}), Contains("needs a table"));
  const auto constant = f.handle("HashTableV2", "c", kWordToLong);
  CHECK_THAT(message("InitializeTableV2", {constant, words({"a", "a"}), longs({1, 2})}), Contains("another value"));
}

TEST_CASE("a constant table is filled from the lines of a file") {
  StateFixture f;
  const TemporaryDirectory directory;
  const Tensor file = Tensor::scalar(directory.write("vocabulary", "head\nred\t7\r\ngreen\t8\nblue\t9"));
  const auto attrs = [](int64_t key, int64_t value, int64_t most) {
    return Attrs{{"key_index", key}, {"value_index", value}, {"vocab_size", most}, {"offset", int64_t{1}}};
  };
  const auto numbered = f.handle("HashTableV2", "numbered", kWordToLong);
  REQUIRE(f.run("InitializeTableFromTextFileV2", {numbered, file}, attrs(0, -1, -1)).ok());
  CHECK(only(f.run("LookupTableFindV2", {numbered, words({"blue", "red"}), kMissing})).identical(longs({2, 0})));
  const auto columns = f.handle("HashTableV2", "columns", kWordToLong);
  REQUIRE(f.run("InitializeTableFromTextFileV2", {columns, file}, attrs(0, 1, 2)).ok());
  CHECK(only(f.run("LookupTableFindV2", {columns, words({"green", "blue"}), kMissing})).identical(longs({8, -1})));
  const auto lines = f.handle("HashTableV2", "lines", kLongToWord);
  REQUIRE(f.run("InitializeTableFromTextFileV2", {lines, file}, attrs(-1, -2, -1)).ok());
  const auto message = [&](const Attrs& a, const Tensor& path) {
    const auto bad = f.run("InitializeTableFromTextFileV2",
                           {f.handle("HashTableV2", f.graph.unique_name("t"), kWordToLong), path}, a);
    REQUIRE_FALSE(bad.ok());
    return bad.error().message;
  };
  CHECK_THAT(message(attrs(1, 0, -1), file), Contains("line 1") && Contains("\"red\" is no int64"));
  CHECK_THAT(message(attrs(0, 2, -1), file), Contains("no column 2"));
  CHECK_THAT(message(attrs(0, -1, 4), file), Contains("3 lines"));
  CHECK_THAT(message(attrs(0, -1, -1), Tensor::scalar<std::string>(directory.file("gone"))), Contains("gone"));
}
