// SPDX-License-Identifier: Apache-2.0
// Datasets in files: what is written and read, in which packing, and what is left after errors.
#include "io/element_files.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "ops/parts/tensor_bytes.h"
#include "tests/io/simulated_files.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// Elements [i], "text i"; number `wrong` is an error.
StagePtr counted_elements(int64_t n, int64_t wrong = -1) {
  const PassFn fn = [wrong](const Pass&, Element element) -> Result<Element> {
    const int64_t i = element[0].data<int64_t>()[0];
    if (i == wrong) return invalid_argument("wrong");
    return Element{Tensor::of<int64_t>({i}), Tensor::scalar<std::string>("text " + std::to_string(i))};
  };
  return make_pass_map_stage(*make_range_stage(0, n, 1, DType::kInt64), fn, {DType::kInt64, DType::kString},
                             {PartialShape{1}, PartialShape::scalar()});
}

ElementFiles element_files(const std::string& folder, RecordPacking packing = RecordPacking::kNone) {
  ElementFiles files;
  files.folder = folder;
  files.packing = packing;
  files.coding = {tensor_bytes, tensor_of_bytes};
  files.dtypes = {DType::kInt64, DType::kString};
  files.shapes = {PartialShape{1}, PartialShape::scalar()};
  return files;
}

/// The numbers of the elements, in order. Error: the first one.
Result<std::vector<int64_t>> numbers_of(const StagePtr& stage) {
  TROUPE_ASSIGN(auto iterator, stage->iterate());
  for (std::vector<int64_t> out;;) {
    TROUPE_ASSIGN(const std::optional<Element> element, iterator->next());
    if (!element) return out;
    out.push_back((*element)[0].data<int64_t>()[0]);
    CHECK((*element)[1].identical(Tensor::scalar<std::string>("text " + std::to_string(out.back()))));
  }
}

Result<std::vector<int64_t>> first_shard(const ElementFiles& files) {
  TROUPE_ASSIGN(const auto shards, saved_shards(files));
  if (!shards || shards->size() != 1) return invalid_argument("not one shard");
  return numbers_of(shards->front());
}

std::string message_of(const ElementFiles& files) {
  const auto got = first_shard(files);
  REQUIRE_FALSE(got.ok());
  return got.error().message;
}

/// The only file of elements.
std::string file_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".snapshot") return entry.path();
  return "";
}

const std::vector<int64_t> kThree{0, 1, 2};

}  // namespace

TEST_CASE("elements in files are those that a whole pass wrote last, in each packing") {
  for (const RecordPacking packing : {RecordPacking::kNone, RecordPacking::kGzip, RecordPacking::kSnappy}) {
    const TemporaryDirectory directory;
    const ElementFiles files = element_files(directory.file("a/b"), packing);
    CHECK_FALSE(saved_shards(files)->has_value());
    CHECK(*numbers_of(make_saving_stage(counted_elements(3), files, nullptr)) == kThree);
    CHECK(*first_shard(files) == kThree);
    CHECK(numbers_of(make_saving_stage(counted_elements(5000), files, nullptr))->size() == 5000);  // several pieces
    const auto many = first_shard(files);
    REQUIRE(many.ok());
    CHECK(many->size() == 5000);
    CHECK(many->back() == 4999);
    CHECK(numbers_of(make_saving_stage(counted_elements(0), files, nullptr))->empty());
    CHECK((*saved_shards(files))->empty());
  }
}

TEST_CASE("elements go into the shards of their numbers") {
  const TemporaryDirectory directory;
  const ElementFiles files = element_files(directory.file("saved"));
  const ShardFn odd = [](const Pass&, const Element& e) -> Result<int64_t> { return e[0].data<int64_t>()[0] % 2; };
  CHECK(numbers_of(make_saving_stage(counted_elements(5), files, odd))->size() == 5);
  const auto shards = saved_shards(files);
  REQUIRE((*shards)->size() == 2);
  CHECK(*numbers_of((**shards)[0]) == std::vector<int64_t>{0, 2, 4});
  CHECK(*numbers_of((**shards)[1]) == std::vector<int64_t>{1, 3});
}

TEST_CASE("a pass that ends early or fails leaves what was saved before") {
  const TemporaryDirectory directory;
  const ElementFiles files = element_files(directory.file("saved"));
  CHECK(*numbers_of(make_saving_stage(counted_elements(3), files, nullptr)) == kThree);
  {
    auto iterator = make_saving_stage(counted_elements(9), files, nullptr)->iterate();
    REQUIRE((*iterator)->next().ok());
  }
  CHECK(numbers_of(make_saving_stage(counted_elements(9, 4), files, nullptr)).error().message == "wrong");
  const ShardFn none = [](const Pass&, const Element&) -> Result<int64_t> { return invalid_argument("no shard"); };
  CHECK(numbers_of(make_saving_stage(counted_elements(9), files, none)).error().message == "no shard");
  CHECK(*first_shard(files) == kThree);
  size_t left = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path()))
    left += entry.path().extension() == ".snapshot";
  CHECK(left == 1);
}

TEST_CASE("elements that cannot be written are an error of the pass") {
  for (const char* operation : {"append", "sync", "rename", "create"}) {
    const auto simulated = std::make_shared<SimulatedFiles>();
    simulated->fail = operation;
    ElementFiles files = element_files("saved");
    files.access.files = simulated;
    INFO(operation);
    CHECK_FALSE(numbers_of(make_saving_stage(counted_elements(4), files, nullptr)).ok());
    CHECK_FALSE(saved_shards(files)->has_value());
    CHECK(*numbers_of(make_saving_stage(counted_elements(3), files, nullptr)) == kThree);
  }
}

TEST_CASE("damaged files of elements are an error that names the file") {
  const TemporaryDirectory directory;
  const ElementFiles files = element_files(directory.file("saved"), RecordPacking::kSnappy);
  CHECK(*numbers_of(make_saving_stage(counted_elements(3), files, nullptr)) == kThree);
  ElementFiles others = files;
  others.dtypes = {DType::kFloat32};
  CHECK_THAT(message_of(others), Contains("has elements of int64, string, the node reads float32"));
  others = files;
  others.packing = RecordPacking::kNone;
  CHECK_THAT(message_of(others), Contains("is damaged: wrong check sum of its length"));
  const std::string path = file_in(files.folder);
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  CHECK_THAT(message_of(files), Contains("00000000.snapshot': the block that holds offset 0 is truncated"));
  std::filesystem::resize_file(path, 3);
  CHECK_THAT(message_of(files), Contains("the block that holds offset 0 is truncated"));

  const auto posix = make_posix_file_system();
  const auto records = [&](std::initializer_list<std::string> values) {
    auto out = RecordWriter::create(*posix, path, RecordPacking::kSnappy);
    for (const std::string& value : values) REQUIRE(out->write(value).ok());
    REQUIRE(out->close().ok());
  };
  records({"no tensor"});
  CHECK_THAT(message_of(files), Contains("the record before offset 25: 9 bytes are not a TensorProto"));
  records({*tensor_bytes(Tensor::of<int64_t>({0}))});
  CHECK_THAT(message_of(files), Contains("ends with 1 of 2 components of an element"));
  records({*tensor_bytes(Tensor::scalar(1.f)), *tensor_bytes(Tensor::scalar(1.f))});
  CHECK_THAT(message_of(files), Contains("the saved dataset"));

  directory.write("saved/snapshot.metadata", "no metadata");
  CHECK_THAT(message_of(files), Contains("snapshot.metadata' is damaged"));
  directory.write("saved/snapshot.metadata", "\x12\x02..");  // a run outside the folder
  CHECK_THAT(message_of(files), Contains("snapshot.metadata' is damaged"));
  directory.write("saved/snapshot.metadata",
                  "\x12\x01"
                  "5 \x01");
  CHECK_THAT(message_of(files), Contains("version 1 of the format; 2 is read"));
}
