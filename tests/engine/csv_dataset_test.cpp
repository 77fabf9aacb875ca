// SPDX-License-Identifier: Apache-2.0
// Datasets of text between commas: what is wrong with a record costs that record alone and is told with its place. The
// golden case datasets_of_csv holds the rest to TensorFlow's results.
#include <filesystem>
#include <fstream>

#include "tests/engine/fixtures.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// Records of a file with a number and a text, through an iterator.
struct CsvRecords : TestEngine {
  CsvRecords(const std::string& text, bool header, std::vector<int64_t> columns = {}, bool v2 = false) {
    std::string name = (std::filesystem::temp_directory_path() / "troupe_csv_XXXXXX").string();
    const int file = mkstemp(name.data());
    REQUIRE(file >= 0);
    close(file);
    std::ofstream(name) << text;
    path = name;
    const auto word = [&](const std::string& s) { return scope.constant(Tensor::scalar<std::string>(s)); };
    const auto numbers = [&](const std::vector<int64_t>& v) {
      Tensor t = *Tensor::make(DType::kInt64, Shape{static_cast<int64_t>(v.size())});
      std::ranges::copy(v, t.mutable_data<int64_t>());
      return scope.constant(t);
    };
    const std::vector<DType> types = {DType::kInt32, DType::kString};
    const std::vector<PartialShape> shapes(2, PartialShape::scalar());
    std::vector<Output> inputs = {scope.constant(Tensor::of<std::string>({path})),
                                  word(""),
                                  scope.constant(Tensor::scalar<int64_t>(0)),
                                  scope.constant(Tensor::scalar(header)),
                                  word(","),
                                  scope.constant(Tensor::scalar(true)),
                                  word("NA"),
                                  numbers(columns),
                                  scope.constant(Tensor::of<int32_t>({})),
                                  scope.constant(Tensor::of<std::string>({"none"}))};
    if (v2) inputs.push_back(numbers({0}));
    const Attrs attrs = {{"output_types", types}, {"output_shapes", shapes}};
    const Output dataset = scope.op(v2 ? "CSVDatasetV2" : "CSVDataset", inputs, attrs);
    const Output iterator = scope.op("Iterator", {},
                                     {{"shared_name", std::string("records")},
                                      {"container", std::string()},
                                      {"_dataset_comes_later", true},
                                      {"output_types", types},
                                      {"output_shapes", shapes}});
    begin = scope.node("_SetIteratorDataset", {iterator, dataset});
    const Node* node = scope.node("IteratorGetNext", {iterator}, attrs);
    REQUIRE(scope.ok());
    next = {node->out(0), node->out(1)};
  }
  ~CsvRecords() { std::filesystem::remove(path); }

  Status start() {
    auto result = session->run({}, {}, {begin});
    if (result.ok()) return {};
    UNSCOPED_INFO(result.error().message);
    return std::move(result.error());
  }
  /// "number text" or the error's message.
  std::string record() {
    auto result = session->run({}, next);
    if (!result.ok()) return result.error().message;
    return fmt::format("{} {}", (*result)[0].data<int32_t>()[0], (*result)[1].data<std::string>()[0]);
  }

  std::string path;
  const Node* begin = nullptr;
  std::vector<Output> next;
};

}  // namespace

TEST_CASE("a bad record of a file of text costs that record") {
  CsvRecords t("1,a\nx,b\n3\n4,c,d\n,e\n6,\"f\"g\"\n7,h\"\n\n2147483648,i\n-9,NA\n", false);
  REQUIRE(t.start().ok());
  CHECK(t.record() == "1 a");
  CHECK_THAT(t.record(), Contains(t.path + ", record 2: field 0: \"x\" cannot be read as int32"));
  CHECK_THAT(t.record(), Contains("record 3: 1 fields where 2 are expected"));
  CHECK_THAT(t.record(), Contains("record 4: more than the 2 fields that are expected"));
  CHECK_THAT(t.record(), Contains("record 5: field 0 is required but missing"));
  CHECK_THAT(t.record(), Contains("record 6: \"f\" has a quote that is not there twice"));
  CHECK_THAT(t.record(), Contains("record 7: \"h\" is not in quotes but has some"));
  CHECK_THAT(t.record(), Contains("record 8: field 0 is required but missing"));
  CHECK_THAT(t.record(), Contains("record 9: field 0: \"2147483648\" cannot be read as int32"));
  CHECK(t.record() == "-9 none");
  CHECK_THAT(t.record(), Contains("end"));
}

TEST_CASE("quotes that do not end are an error at the end of the file") {
  CsvRecords t("h,h\r\n1,\"a\n\"\"b\"\r\n2,\"c,\n", true, {0, 1});
  REQUIRE(t.start().ok());
  CHECK(t.record() == "1 a\n\"b");
  CHECK_THAT(t.record(), Contains("record 2: the file ends within quotes"));
  CHECK_THAT(t.record(), Contains("end"));
}

TEST_CASE("a file without the header that it should have is an error") {
  CsvRecords t("", true);
  REQUIRE(t.start().ok());
  CHECK_THAT(t.record(), Contains("has no header: it is empty"));
}

TEST_CASE("columns of files of text must ascend and be chosen or left out", "[bad_input]") {
  const auto refusal = [](std::vector<int64_t> columns, bool v2 = false) {
    CsvRecords t("1,a\n", false, std::move(columns), v2);
    const Status status = t.start();
    REQUIRE_FALSE(status.ok());
    return status.error().message;
  };
  CHECK_THAT(refusal({1, 1}), Contains("select_cols must ascend from at least 0: number 1 is 1"));
  CHECK_THAT(refusal({-1, 1}), Contains("select_cols must ascend from at least 0: number 0 is -1"));
  CHECK_THAT(refusal({1}), Contains("1 select_cols, but 2 fields"));
  CHECK_THAT(refusal({0, 1}, true), Contains("select_cols and exclude_cols are both given"));
}
