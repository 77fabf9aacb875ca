// SPDX-License-Identifier: Apache-2.0
// TensorFlow's checkpoints of the first format: there and back, bytes that TensorFlow wrote, damage at every byte,
// parts in several files.
#include "io/slice_checkpoint.h"

#include "io/checkpoint_reader.h"
#include "io/saved_tensors.pb.h"
#include "io/slice_text.h"
#include "tests/io/saved_samples.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;
using Catch::Contains;

namespace {

Result<TensorMap> values_in(const std::string& path) {
  TROUPE_ASSIGN(const CheckpointReader reader, CheckpointReader::open({}, path, true));
  TensorMap out;
  for (const auto& entry : reader.entries()) {
    TROUPE_ASSIGN(out[std::string(entry.name)], reader.read(std::string(entry.name), {}));
  }
  return out;
}

bool are_same(const TensorMap& a, const TensorMap& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.first == y.first && x.second.identical(y.second); });
}

/// What TensorFlow 2.21 wrote for a = [1.0, 2.0] and s = ["x", "", "hello"].
const std::string kFileOfTensorFlow = from_hex(
    "0000280a260a0f0a0161120412020802180122020a000a0f0a0173120412020803180722020a0012020801000815006100010101807f1213"
    "0a016112020a001a0a2a080000803f000000400107177300010101807f12150a017312020a001a0c4201784200420568656c6c6f00000000"
    "0100000000a08f2d12000000000100000000c0f2a1b000010201007400000000010000000013b004b0790886010e00000000000000000000"
    "0000000000000000000000000000000000000000000000000057fb808b247547db");

TensorMap values_of_the_file() {
  return {{"a", Tensor::of<float>({1, 2})}, {"s", Tensor::of<std::string>({"x", "", "hello"})}};
}

/// Writes a file that says of one tensor what `meta` says, and has `values` for its only part.
std::string forge(const TemporaryDirectory& dir, const proto::SavedSliceMeta& meta, const proto::SavedValues& values) {
  const auto file = *make_posix_file_system()->create(dir.file("forged"));
  SortedTableWriter table(*file);
  proto::SavedTensorSlices head, part;
  *head.mutable_meta()->add_tensor() = meta;
  part.mutable_data()->set_name(meta.name());
  *part.mutable_data()->mutable_data() = values;
  REQUIRE(table.add("", head.SerializeAsString()).ok());
  REQUIRE(table.add(key_of_part(meta.name(), meta.slice(0)), part.SerializeAsString()).ok());
  REQUIRE(table.finish().ok());
  return dir.file("forged");
}

}  // namespace

TEST_CASE("every dtype that TensorFlow reads returns from a file of the first format") {
  const TemporaryDirectory dir;
  TensorMap tensors = saved_samples();
  for (const char* none : {"bfloat16", "uint32", "uint64"}) {
    const Status status = write_slice_checkpoint({}, dir.file("m"), to_save({{none, tensors.at(none)}}));
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().message, Contains(none) && Contains("(V1) cannot hold that dtype"));
    CHECK_FALSE(std::filesystem::exists(dir.file("m")));
    tensors.erase(none);
  }
  REQUIRE(write_slice_checkpoint({}, dir.file("new/m"), to_save(tensors)).ok());
  REQUIRE(write_slice_checkpoint({}, dir.file("new/m"), to_save(tensors)).ok());  // over the old one
  CHECK(std::distance(std::filesystem::directory_iterator(dir.file("new")), {}) == 1);
  const auto back = values_in(dir.file("new/m"));
  REQUIRE(back.ok());
  CHECK(are_same(*back, tensors));
  REQUIRE(write_slice_checkpoint({}, dir.file("none"), {}).ok());
  CHECK(values_in(dir.file("none"))->empty());
}

TEST_CASE("a file that TensorFlow wrote is read, and ours says the same") {
  const TemporaryDirectory dir;
  const auto read = values_in(dir.write("tf", kFileOfTensorFlow));
  REQUIRE(read.ok());
  CHECK(are_same(*read, values_of_the_file()));
  REQUIRE(write_slice_checkpoint({}, dir.file("ours"), to_save(values_of_the_file())).ok());
  const auto entries = [](const std::string& path) {
    std::map<std::string, std::string> out;
    SortedTable table = *SortedTable::open(*make_posix_file_system()->open(path), path);
    REQUIRE(table
                .for_each([&out](std::string_view key, std::string_view value) -> Status {
                  out.emplace(key, value);
                  return {};
                })
                .ok());
    return out;
  };
  CHECK(entries(dir.file("ours")) == entries(dir.file("tf")));
}

TEST_CASE("a file of the first format with any byte changed or missing is an error, or the same") {
  const TemporaryDirectory dir;
  size_t sound = 0;
  for (size_t i = 0; i < kFileOfTensorFlow.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = kFileOfTensorFlow;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      const auto read = values_in(dir.write("m", bytes));
      CAPTURE(i);
      if (!read.ok()) continue;
      CHECK(are_same(*read, values_of_the_file()));
      ++sound;
    }
  CHECK(sound == 8 * 35 + 1);  // of the end, what is not used, and 0 at the end of a number
  for (size_t n = 0; n < kFileOfTensorFlow.size(); ++n) {
    const auto read = values_in(dir.write("m", kFileOfTensorFlow.substr(0, n)));
    REQUIRE_FALSE(read.ok());
    CHECK_THAT(read.error().message, Contains("'" + dir.file("m") + "'"));
  }
}

TEST_CASE("the parts of a tensor may be in several files, which a pattern names") {
  const TemporaryDirectory dir;
  const Tensor top = Tensor::of<float>({1, 2, 3}, {1, 3}), rest = Tensor::of<float>({4, 5, 6, 7, 8, 9}, {2, 3});
  const auto write = [&](const std::string& file, const std::vector<TensorToSave>& tensors) {
    REQUIRE(write_slice_checkpoint({}, dir.file(file), tensors).ok());
  };
  write("m-00000-of-00002", {part_to_save("w", "3 3 0,1:-", top), to_save({{"a", Tensor::scalar(1.f)}})[0]});
  write("m-00001-of-00002", {part_to_save("w", "3 3 1,2:-", rest), to_save({{"b", Tensor::scalar(2.f)}})[0]});
  const auto reader = CheckpointReader::open({}, dir.file("m-0000?-of-00002"), true);
  REQUIRE(reader.ok());
  CHECK(reader->shards() == 2);
  CHECK(reader->read("w", {})->identical(Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3})));
  CHECK(reader->read("w", *TensorSlice::parse("3 3 0,2:2,1"))->identical(Tensor::of<float>({3, 6}, {2, 1})));
  CHECK(reader->read("b", {})->identical(Tensor::scalar(2.f)));
  CHECK(CheckpointReader::open({}, dir.file("x-*"), true).error().code == Code::kNotFound);

  write("m-00002-of-00002", {part_to_save("w", "4 3 1,2:-", rest)});
  CHECK_THAT(values_in(dir.file("m-*")).error().message, Contains("float32[3,3] in") && Contains("float32[4,3] in"));
  write("m-00002-of-00002", {to_save({{"a", Tensor::scalar(1.f)}})[0]});
  CHECK_THAT(values_in(dir.file("m-*")).error().message, Contains("tensor 'a' comes twice"));
  write("m-00002-of-00002", {part_to_save("w", "3 3 0,1:-", top)});
  CHECK_THAT(values_in(dir.file("m-*")).error().message, Contains("tensor 'w'") && Contains("overlap"));
}

TEST_CASE("values that are not what the head says are refused") {
  const TemporaryDirectory dir;
  proto::SavedSliceMeta meta;
  meta.set_name("w");
  meta.set_type(1);
  meta.mutable_shape()->add_dim()->set_size(2);
  meta.add_slice()->add_extent();
  proto::SavedValues values;
  const auto refused = [&](const std::string& words) {
    const auto read = values_in(forge(dir, meta, values));
    REQUIRE_FALSE(read.ok());
    CHECK_THAT(read.error().message, Contains(words) && Contains("'w'") && Contains("forged"));
  };
  refused("0 values for the shape [2]");
  for (int i = 0; i < 3; ++i) values.add_float_val(1);
  refused("3 values for the shape [2]");
  meta.set_type(6);
  for (const int v : {1, 128}) values.add_int_val(v);
  refused("128 for a int8");
  meta.set_type(19);
  for (const int v : {1, 65536}) values.add_half_val(v);
  refused("65536 for the bits of a float16");
  meta.set_type(8);
  values.add_scomplex_val(1);
  refused("values for the shape [2]");
  meta.set_type(18);
  for (int i = 0; i < 3; ++i) values.add_dcomplex_val(1);
  refused("values for the shape [2]");
  meta.set_type(24);
  refused("float8_e5m2");
  meta.set_type(1);
  meta.mutable_shape()->mutable_dim(0)->set_size(int64_t{1} << 40);
  refused("3 values for the shape [1099511627776]");
  meta.mutable_slice(0)->mutable_extent(0)->set_length(1);
  meta.mutable_slice(0)->mutable_extent(0)->set_start(int64_t{1} << 40);
  refused("not within the shape");
  meta.mutable_slice(0)->clear_extent();
  refused("not within the shape");
}

TEST_CASE("a tensor of more than a message holds is refused before its values are asked for") {
  const TemporaryDirectory dir;
  const TensorToSave large{"w", DType::kFloat32, {int64_t{1} << 30}, {}, []() -> Result<Tensor> {
                             FAIL("asked for");
                             return Tensor();
                           }};
  const Status status = write_slice_checkpoint({}, dir.file("m"), std::vector{large});
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().message, Contains("float32[1073741824]") && Contains("2 GiB"));
}
