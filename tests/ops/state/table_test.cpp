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
  CHECK_THAT(message(attrs(1, 0, -1), file), Contains("line 1") && Contains("\"red\" cannot be read as int64"));
  CHECK_THAT(message(attrs(0, 2, -1), file), Contains("no column 2"));
  CHECK_THAT(message(attrs(0, -1, 4), file), Contains("3 lines"));
  CHECK_THAT(message(attrs(0, -1, -1), Tensor::scalar<std::string>(directory.file("gone"))), Contains("gone"));
}

TEST_CASE("a file is read by a job, and until it has been the table answers as before") {
  StateFixture f;
  const TemporaryDirectory directory;
  const auto table = f.handle("HashTableV2", "t", kWordToLong);
  const std::string path = directory.file("vocabulary");
  const Attrs attrs{{"key_index", int64_t{-2}}, {"value_index", int64_t{-1}}};
  const auto fill = [&](int64_t step) {
    return *f.ask("InitializeTableFromTextFileV2", {table, Tensor::scalar(path)}, attrs, step);
  };
  const auto size = [&] { return only(f.run("LookupTableSizeV2", {table})).data<int64_t>()[0]; };
  const uint32_t one = fill(1), other = fill(2);
  CHECK(f.host.jobs.size() == 2);
  CHECK_FALSE(f.sink.answered(one));
  CHECK(f.run("LookupTableFindV2", {table, words({"a"}), kMissing}).error().code == Code::kFailedPrecondition);

  HostedResource& host = f.hosted(table.value);
  (void)directory.write("vocabulary", "a\nb\nc\n");  // nothing was read before
  f.host.run_job(host);
  CHECK(f.sink.ok(other));
  CHECK(size() == 3);
  (void)directory.write("vocabulary", "a\nb\n");
  f.host.run_job(host);
  CHECK(f.sink.error(one).code == Code::kFailedPrecondition);  // it holds others already
  CHECK(size() == 3);
}

TEST_CASE("a table whose file comes after the step has ended stays as it is") {
  StateFixture f;
  const TemporaryDirectory directory;
  const auto table = f.handle("HashTableV2", "t", kWordToLong);
  const Tensor path = Tensor::scalar(directory.write("vocabulary", "a\n"));
  const Attrs attrs{{"key_index", int64_t{-2}}, {"value_index", int64_t{-1}}};
  const uint32_t cancelled = *f.ask("InitializeTableFromTextFileV2", {table, path}, attrs, 4);
  const uint32_t refused = *f.ask("InitializeTableFromTextFileV2", {table, path}, attrs, 5);
  HostedResource& host = f.hosted(table.value);
  host.cancel(1, 4);
  CHECK(f.sink.error(cancelled).code == Code::kCancelled);
  host.answered(f.host.jobs.back().question, make_error(Code::kResourceExhausted, "no thread"));
  CHECK(f.sink.error(refused).code == Code::kResourceExhausted);
  while (!f.host.jobs.empty()) f.host.run_job(host);
  CHECK(only(f.run("LookupTableSizeV2", {table})).identical(Tensor::scalar<int64_t>(0)));
}

TEST_CASE("a dense table shows its buckets and takes them back") {
  StateFixture f;
  const auto table = [&](const char* name) {
    return f.handle("MutableDenseHashTableV2", name,
                    {{"value_dtype", DType::kFloat32}, {"initial_num_buckets", int64_t{8}}},
                    {Tensor::scalar<int64_t>(-1), Tensor::scalar<int64_t>(-2)});
  };
  const auto first = table("first");
  REQUIRE(f.run("LookupTableInsertV2", {first, longs({3, 11, 6}), Tensor::of<float>({1, 2, 3})}).ok());
  REQUIRE(f.run("LookupTableRemoveV2", {first, longs({3, 5})}).ok());
  const Attrs types{{"Tkeys", DType::kInt64}, {"Tvalues", DType::kFloat32}};
  const auto shown = f.run("LookupTableExportV2", {first}, types);
  CHECK(only(shown).identical(Tensor::of<int64_t>({-1, -1, -1, -2, 11, -1, 6, -1}, {8, 1})));
  CHECK(shown->at(1).identical(Tensor::of<float>({0, 0, 0, 1, 2, 0, 3, 0}, {8, 1})));
  const auto second = table("second");
  REQUIRE(f.run("LookupTableImportV2", {second, shown->at(0), shown->at(1)}).ok());
  CHECK(only(f.run("LookupTableSizeV2", {second})).identical(Tensor::scalar<int64_t>(2)));
  CHECK(only(f.run("LookupTableFindV2", {second, longs({11, 3}), Tensor::scalar(9.f)}))
            .identical(Tensor::of<float>({2, 9})));
  CHECK(f.last_node->shape(0) == PartialShape{2});
  CHECK(only(f.run("LookupTableExportV2", {second}, types)).identical(shown->at(0)));
}

TEST_CASE("keys and values of a dense table may be vectors") {
  StateFixture f;
  const auto table =
      f.handle("MutableDenseHashTableV2", "t", {{"value_dtype", DType::kInt64}, {"value_shape", PartialShape{2}}},
               {words({"", "e"}), words({"", "d"})});
  const Tensor keys = Tensor::of<std::string>({"a", "bc", "ab", "c"}, {2, 2});
  REQUIRE(f.run("LookupTableInsertV2", {table, keys, Tensor::of<int64_t>({1, 2, 3, 4}, {2, 2})}).ok());
  CHECK(only(f.run("LookupTableFindV2", {table, Tensor::of<std::string>({"ab", "c", "x", "y"}, {2, 2}), longs({8, 9})}))
            .identical(Tensor::of<int64_t>({3, 4, 8, 9}, {2, 2})));
  CHECK(f.last_node->shape(0) == PartialShape{2, 2});
}

TEST_CASE("what a dense table cannot be or take is an error with the values") {
  StateFixture f;
  const auto refused = [&](const std::vector<Tensor>& reserved, Attrs attrs = {}) {
    attrs.set("value_dtype", DType::kInt64);
    const auto made = f.try_handle("MutableDenseHashTableV2", f.graph.unique_name("t"), attrs, reserved);
    REQUIRE_FALSE(made.ok());
    return made.error().message;
  };
  const Tensor empty = Tensor::scalar<int64_t>(-1), deleted = Tensor::scalar<int64_t>(-2);
  CHECK_THAT(refused({empty, empty}), Contains("-1") && Contains("must differ"));
  CHECK_THAT(refused({empty, longs({-2})}), Contains("one shape"));
  CHECK_THAT(refused({Tensor::of<int64_t>({1}, {1, 1}), Tensor::of<int64_t>({2}, {1, 1})}), Contains("[1,1]"));
  CHECK_THAT(refused({empty, deleted}, {{"value_shape", PartialShape{2, 2}}}), Contains("[2,2]"));
  CHECK_THAT(refused({empty, deleted}, {{"initial_num_buckets", int64_t{6}}}), Contains("not 6"));
  CHECK_THAT(refused({empty, deleted}, {{"initial_num_buckets", int64_t{0}}}), Contains("not 0"));
  CHECK_THAT(refused({empty, deleted}, {{"max_load_factor", 1.f}}), Contains("max_load_factor"));

  const auto table =
      f.handle("MutableDenseHashTableV2", "large",
               {{"value_dtype", DType::kInt64}, {"initial_num_buckets", int64_t{1} << 62}}, {empty, deleted});
  const auto message = [&](const std::string& op, std::vector<StateFixture::Arg> args, Attrs attrs = {}) {
    const auto got = f.run(op, std::move(args), std::move(attrs));
    REQUIRE_FALSE(got.ok());
    return got.error().message;
  };
  CHECK_THAT(message("LookupTableInsertV2", {table, longs({5, -1}), longs({1, 2})}), Contains("key 1"));
  CHECK(only(f.run("LookupTableSizeV2", {table})).identical(Tensor::scalar<int64_t>(0)));
  CHECK_THAT(message("LookupTableRemoveV2", {table, longs({-2})}), Contains("key 0"));
  CHECK_THAT(message("LookupTableFindV2", {table, longs({-1}), kMissing}), Contains("key 0"));
  CHECK_THAT(message("LookupTableInsertV2", {table, longs({5}), longs({1, 2})}), Contains("[1]") && Contains("[2]"));
  CHECK_THAT(message("LookupTableImportV2", {table, longs({5}), longs({1})}), Contains("int64[1]"));
  CHECK_THAT(message("LookupTableExportV2", {table}, {{"Tkeys", DType::kInt64}, {"Tvalues", DType::kInt64}}),
             Contains("4611686018427387904"));
}
