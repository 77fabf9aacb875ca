// SPDX-License-Identifier: Apache-2.0
// TensorFlow's checkpoints of the second format: there and back, bytes that TensorFlow wrote, damage at every byte, and
// crashes at every step of a save.
#include "io/tensor_bundle.h"

#include <atomic>
#include <set>
#include <thread>

#include "io/bundle_index.h"
#include "io/checkpoint_reader.h"
#include "io/crc32c.h"
#include "io/slice_text.h"
#include "tests/io/saved_samples.h"
#include "tests/io/simulated_files.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;
using Catch::Contains;

namespace {

Result<TensorMap> read_all(const std::string& path, const FileAccess& access = {}) {
  TROUPE_ASSIGN(const CheckpointReader reader, CheckpointReader::open(access, path));
  TensorMap out;
  for (const auto& entry : reader.entries()) {
    TROUPE_ASSIGN(out[std::string(entry.name)], reader.read(std::string(entry.name), {}));
  }
  return out;
}

bool same(const TensorMap& a, const TensorMap& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.first == y.first && x.second.identical(y.second); });
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) out.insert(entry.path().filename().string());
  return out;
}

/// What TensorFlow 2.21 wrote for a = [1.0, 2.0] and s = ["x", "", "hello"].
const std::string kIndexOfTensorFlow = from_hex(
    "00000608011a02080100010f610801120412020802280835593ce5350001117308071204120208032008280d35172c821300000000010000"
    "0000bbced2a2000000000100000000c0f2a1b0000102740039000000000100000000087f72583e084b0e0000000000000000000000000000"
    "0000000000000000000000000000000000000000000057fb808b247547db");
const std::string kDataOfTensorFlow = from_hex("0000803f00000040010005c563d0967868656c6c6f");

TensorMap values_of_tensorflow() {
  return {{"a", Tensor::of<float>({1, 2})}, {"s", Tensor::of<std::string>({"x", "", "hello"})}};
}

/// A bundle whose index says what it is told; the data are zeros.
struct Forged {
  TemporaryDirectory dir;
  BundleEntries entries;
  Forged() { dir.write("m.data-00000-of-00001", std::string(64, '\0')); }
  proto::BundleEntry& add(const std::string& name, int type, std::vector<int64_t> shape, int64_t offset, int64_t size) {
    proto::BundleEntry& entry = entries[name];
    entry.set_dtype(type);
    for (const int64_t n : shape) entry.mutable_shape()->add_dim()->set_size(n);
    entry.set_offset(offset);
    entry.set_size(size);
    const std::string zeros(size > 0 && size < 1000 ? static_cast<size_t>(size) : 0, '\0');
    entry.set_crc32c(mask_crc(crc32c(zeros.data(), zeros.size())));
    return entry;
  }
  Result<TensorMap> read() {
    REQUIRE(replace_index({}, dir.file("m"), entries, 1).ok());
    return read_all(dir.file("m"));
  }
  void refused(const std::string& words) {
    const auto result = read();
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Code::kDataLoss);
    CHECK_THAT(result.error().message, Contains(words) && Contains(dir.file("m")));
  }
};

}  // namespace

TEST_CASE("every dtype and shape returns from a bundle bit for bit") {
  const TemporaryDirectory dir;
  const TensorMap tensors = saved_samples();
  REQUIRE(write_bundle({}, dir.file("new/model.ckpt"), to_save(tensors)).ok());
  CHECK(names_in(dir.file("new")) == std::set<std::string>{"model.ckpt.index", "model.ckpt.data-00000-of-00001"});
  for (const char* path : {"new/model.ckpt", "new/model.ckpt.index"}) {
    const auto back = read_all(dir.file(path));
    REQUIRE(back.ok());
    CHECK(same(*back, tensors));
  }
  const auto data = read_all(dir.file("new/model.ckpt.data-00000-of-00001"));
  CHECK(data.error().code == Code::kInvalidArgument);
  CHECK_THAT(data.error().message, Contains("is opened by '" + dir.file("new/model.ckpt") + "'"));
  REQUIRE(write_bundle({}, dir.file("none"), {}).ok());
  CHECK(read_all(dir.file("none"))->empty());
}

TEST_CASE("bytes that TensorFlow wrote are read, and ours are the same") {
  const TemporaryDirectory dir;
  dir.write("tf.index", kIndexOfTensorFlow);
  dir.write("tf.data-00000-of-00001", kDataOfTensorFlow);
  const auto read = read_all(dir.file("tf"));
  REQUIRE(read.ok());
  CHECK(same(*read, values_of_tensorflow()));
  REQUIRE(write_bundle({}, dir.file("ours"), to_save(values_of_tensorflow())).ok());
  CHECK(TemporaryDirectory::read(dir.file("ours.data-00000-of-00001")) == kDataOfTensorFlow);
  std::map<std::string, std::string> theirs, ours;
  for (auto [prefix, out] : {std::pair(dir.file("tf"), &theirs), std::pair(dir.file("ours"), &ours)})
    REQUIRE(BundleIndex::open({}, prefix)
                ->for_each([&out = *out](std::string_view key, const proto::BundleEntry& entry) -> Status {
                  out[std::string(key)] = entry.SerializeAsString();
                  return {};
                })
                .ok());
  CHECK(theirs == ours);
}

TEST_CASE("a bundle with any byte changed or missing is an error, or the same") {
  const TemporaryDirectory dir;
  const std::string index = dir.file("m.index"), data = dir.file("m.data-00000-of-00001");
  const auto check = [&](size_t i) {
    const auto read = read_all(dir.file("m"));
    CAPTURE(i);
    if (read.ok()) CHECK(same(*read, values_of_tensorflow()));
    return read.ok();
  };
  dir.write("m.data-00000-of-00001", kDataOfTensorFlow);
  for (size_t i = 0; i < kIndexOfTensorFlow.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = kIndexOfTensorFlow;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      dir.write("m.index", bytes);
      CHECK(check(i) == ((i >= 98 && i < 134) || (i == 97 && bit == 7)));  // what is not used, 0 at the end of a number
    }
  for (size_t n = 0; n < kIndexOfTensorFlow.size(); ++n) {
    dir.write("m.index", kIndexOfTensorFlow.substr(0, n));
    CHECK_FALSE(check(n));
  }
  dir.write("m.index", kIndexOfTensorFlow);
  for (size_t i = 0; i < kDataOfTensorFlow.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = kDataOfTensorFlow;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      dir.write("m.data-00000-of-00001", bytes);
      CHECK_FALSE(check(i));
    }
  for (size_t n = 0; n < kDataOfTensorFlow.size(); ++n) {
    dir.write("m.data-00000-of-00001", kDataOfTensorFlow.substr(0, n));
    CHECK_FALSE(check(n));
  }
  std::filesystem::remove(data);
  const auto without = read_all(dir.file("m"));
  CHECK(without.error().code == Code::kNotFound);
  CHECK_THAT(without.error().message, Contains(data));
}

TEST_CASE("a tensor in parts returns whole, and slices that lie across them") {
  const TemporaryDirectory dir;
  const Tensor top = Tensor::of<float>({1, 2, 3}, {1, 3}), left = Tensor::of<float>({4, 7}, {2, 1}),
               right = Tensor::of<float>({5, 6, 8, 9}, {2, 2}), n = Tensor::scalar<int64_t>(5);
  std::vector<TensorToSave> tensors = {part_to_save("w", "3 3 1,2:1,2", right), part_to_save("w", "3 3 0,1:-", top),
                                       part_to_save("w", "3 3 1,2:0,1", left)};
  tensors.push_back(to_save({{"n", n}})[0]);
  REQUIRE(write_bundle({}, dir.file("m"), tensors).ok());
  const auto reader = CheckpointReader::open({}, dir.file("m"));
  REQUIRE(reader.ok());
  REQUIRE(reader->entries().size() == 2);
  CHECK(reader->entries()[1].name == "w");
  CHECK(reader->entries()[1].parts == 3);
  CHECK(reader->entries()[1].bytes == 36);
  CHECK(reader->read("w", {})->identical(Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3})));
  const auto slice = [&](const std::string& text) { return reader->read("w", *TensorSlice::parse(text)); };
  CHECK(slice("3 3 0,2:1,2")->identical(Tensor::of<float>({2, 3, 5, 6}, {2, 2})));
  CHECK(slice("3 3 2,1:-")->identical(Tensor::of<float>({7, 8, 9}, {1, 3})));
  CHECK(slice("3 3 1,0:-")->elements() == 0);
  CHECK_THAT(slice("3 4 0,1:-").error().message, Contains("a slice of [3,4] of a tensor of shape [3,3]"));
  CHECK(reader->read("x", {}).error().code == Code::kNotFound);

  tensors.erase(tensors.begin() + 2);  // what is not asked for may be missing
  REQUIRE(write_bundle({}, dir.file("m"), tensors).ok());
  const auto partly = CheckpointReader::open({}, dir.file("m"));
  CHECK(partly->read("w", *TensorSlice::parse("3 3 -:1,2"))->identical(Tensor::of<float>({2, 3, 5, 6, 8, 9}, {3, 2})));
  const auto whole = partly->read("w", {});
  CHECK(whole.error().code == Code::kDataLoss);
  CHECK_THAT(whole.error().message, Contains("7 of the 9 elements"));
}

TEST_CASE("what a bundle cannot hold is refused, and what was there stays") {
  const TemporaryDirectory dir;
  const TensorMap before = {{"a", Tensor::scalar(1.f)}};
  REQUIRE(write_bundle({}, dir.file("m"), to_save(before)).ok());
  const auto files = names_in(dir.path());
  const Tensor row = Tensor::of<float>({1, 2}, {1, 2});
  const auto refused = [&](const std::vector<TensorToSave>& tensors, const std::string& words) {
    const Status status = write_bundle({}, dir.file("m"), tensors);
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().message, Contains(words));
    CHECK(names_in(dir.path()) == files);
    CHECK(same(*read_all(dir.file("m")), before));
  };
  const auto one = [](const std::string& name, const Tensor& t) { return to_save({{name, t}})[0]; };
  refused({one("a", row), one("a", row)}, "'a' is given twice");
  refused({one("", row)}, "without a name");
  refused({one("r", *Tensor::zeros(DType::kResource, {}))}, "tensor 'r' is resource[]");
  refused({part_to_save("w", "2 2 0,1:-", row), one("w", row)}, "'w' is given twice");
  refused({one("w", row), part_to_save("w", "2 2 0,1:-", row)}, "'w' is given twice");
  refused({part_to_save("w", "2 2 0,1:-", row), part_to_save("w", "2 2 0,1:-", row)}, "overlap");
  refused({part_to_save("w", "2 2 0,1:-", row), part_to_save("w", "3 2 1,1:-", row)},
          "a part of float32 [2,2] and one of float32 [3,2]");
  auto failing = one("late", row);
  failing.value = []() -> Result<Tensor> { return make_error(Code::kDataLoss, "no more"); };
  refused({one("first", row), failing}, "no more");
  failing.value = []() -> Result<Tensor> { return Tensor::scalar(1.f); };
  refused({failing}, "not the float32[1,2]");
}

TEST_CASE("an index that lies is refused") {
  SECTION("places beyond the file, and those of two tensors") {
    Forged f;
    SECTION("beyond") { f.add("a", 1, {2}, 60, 8), f.refused("ends before"); }
    SECTION("far") { f.add("a", 1, {2}, INT64_MAX - 8, 8), f.refused("ends before"); }
    SECTION("negative") { f.add("a", 1, {2}, -8, 8), f.refused("8 bytes at offset -8"); }
    SECTION("more than numbers") { f.add("a", 1, {2}, INT64_MAX, 8), f.refused("tensor 'a' has 8 bytes"); }
    SECTION("in common") {
      f.add("a", 1, {2}, 0, 8), f.add("b", 1, {2}, 4, 8);
      f.refused("'a' and 'b' have bytes in common");
    }
    SECTION("another shard") { f.add("a", 1, {2}, 0, 8).set_shard_id(1), f.refused("shard 1 of 1"); }
    SECTION("another size") { f.add("a", 1, {3}, 0, 8), f.refused("float32[3] in 8 bytes"); }
    SECTION("a huge shape") { f.add("a", 1, {int64_t{1} << 40}, 0, 8), f.refused("in 8 bytes"); }
    SECTION("many texts") { f.add("a", 7, {int64_t{1} << 40}, 0, 8), f.refused("in 8 bytes"); }
    SECTION("a negative shape") { f.add("a", 1, {-2}, 0, 8), f.refused("'a'"); }
    SECTION("an overflowing shape") { f.add("a", 1, {INT64_MAX, 4}, 0, 8), f.refused("'a'"); }
    SECTION("texts without a sum") { f.add("a", 7, {8}, 0, 8), f.refused("check sum of the lengths"); }
  }
  SECTION("parts") {
    Forged f;
    const auto box = [](int64_t start, int64_t length) {
      proto::SavedBox out;
      out.add_extent()->set_start(start);
      out.mutable_extent(0)->set_length(length);
      return out;
    };
    proto::BundleEntry& w = f.add("w", 1, {4}, 0, 0);
    SECTION("without an entry") { *w.add_slices() = box(0, 2), f.refused("without an entry"); }
    SECTION("beyond the shape") { *w.add_slices() = box(3, 2), f.refused("not within the shape [4]"); }
    SECTION("twice") {
      *w.add_slices() = box(0, 4), *w.add_slices() = box(0, 4);
      f.add(key_of_part("w", box(0, 4)), 1, {4}, 0, 16);
      f.refused("given twice");
    }
    SECTION("of another shape") {
      *w.add_slices() = box(0, 4);
      f.add(key_of_part("w", box(0, 4)), 1, {3}, 0, 12);
      f.refused("that is float32[3]");
    }
    SECTION("overlapping") {
      *w.add_slices() = box(0, 3), *w.add_slices() = box(2, 1);
      f.add(key_of_part("w", box(0, 3)), 1, {3}, 0, 12), f.add(key_of_part("w", box(2, 1)), 1, {1}, 12, 4);
      f.refused("overlap");
    }
    SECTION("in a huge tensor") {
      w.mutable_shape()->mutable_dim(0)->set_size(int64_t{1} << 40);
      for (const int64_t at : {0, 1}) {
        *w.add_slices() = box(at << 39, int64_t{1} << 39);
        f.add(key_of_part("w", box(at << 39, int64_t{1} << 39)), 1, {int64_t{1} << 39}, at * 8, 8);
      }
      f.refused("in 8 bytes");
    }
  }
  SECTION("a bool that is not one") {
    Forged f;
    f.dir.write("m.data-00000-of-00001", "\2");
    f.add("a", 10, {1}, 0, 1).set_crc32c(mask_crc(crc32c("\2", 1)));
    f.refused("2 is not a bool");
  }
}

TEST_CASE("types that are not ours fail where they are read, and no others do") {
  Forged f;
  f.add("a", 1, {2}, 0, 8), f.add("z", 24, {16}, 8, 16), f.add("q", 11, {4}, 24, 4);
  REQUIRE(replace_index({}, f.dir.file("m"), f.entries, 1).ok());
  const auto reader = CheckpointReader::open({}, f.dir.file("m"));
  REQUIRE(reader.ok());
  CHECK(reader->entries().size() == 3);
  CHECK(reader->read("a", {})->identical(Tensor::of<float>({0, 0})));
  CHECK(reader->read("q", {})->identical(Tensor::of<int8_t>({0, 0, 0, 0})));
  const auto tiny = reader->read("z", {});
  CHECK(tiny.error().code == Code::kUnimplemented);
  CHECK_THAT(tiny.error().message, Contains("float8_e5m2") && Contains("'z'"));
}

TEST_CASE("a save over another that dies at any step leaves the one before, or the new one") {
  const auto tensors = [](float x) { return TensorMap{{"a", Tensor::of<float>({x, x})}, {"n", Tensor::scalar(x)}}; };
  const auto started = [&] {
    auto files = std::make_shared<SimulatedFiles>();
    for (const float x : {1.f, 2.f}) REQUIRE(write_bundle({files, {}}, "d/m", to_save(tensors(x))).ok());
    return files;
  };
  const auto whole = started();
  CHECK(whole->now.contains("d/m.data-00000-of-00001"));
  CHECK(whole->now.size() == 2);
  whole->spent = 0;
  REQUIRE(write_bundle({whole, {}}, "d/m", to_save(tensors(3))).ok());
  CHECK(whole->now.size() == 2);
  bool old_seen = false, new_seen = false;
  for (int64_t budget = 1; budget <= whole->spent; ++budget) {
    const auto files = started();
    files->budget = budget;
    (void)write_bundle({files, {}}, "d/m", to_save(tensors(3)));
    for (const auto& left : {files->after_kill(), files->after_power_cut()}) {
      CAPTURE(budget);
      const auto back = read_all("d/m", {left, {}});
      REQUIRE(back.ok());
      const bool old = same(*back, tensors(2));
      CHECK((old || same(*back, tensors(3))));
      (old ? old_seen : new_seen) = true;
      REQUIRE(write_bundle({left, {}}, "d/m", to_save(tensors(4))).ok());
      CHECK(same(*read_all("d/m", {left, {}}), tensors(4)));
      CHECK(left->now.size() == 2);  // what the crash left is gone
    }
  }
  CHECK((old_seen && new_seen));

  const auto without = started();  // of second names
  without->no_links = true;
  for (const float x : {5.f, 6.f}) REQUIRE(write_bundle({without, {}}, "d/m", to_save(tensors(x))).ok());
  CHECK(same(*read_all("d/m", {without, {}}), tensors(6)));
  CHECK(without->now.size() == 2);
}

TEST_CASE("of saves at once one is left, whole, and loads meanwhile find one of them") {
  const TemporaryDirectory dir;
  const std::string prefix = dir.file("m");
  const auto tensors = [](int x) {
    return TensorMap{{"a", Tensor::of<int32_t>({x, x})}, {"n", Tensor::scalar(x)}, {"t", Tensor::scalar(x)}};
  };
  REQUIRE(write_bundle({}, prefix, to_save(tensors(0))).ok());
  constexpr int kSaves = 40, kSavers = 3;
  std::vector<std::string> faults;  // of the loads; one thread's
  std::atomic<int> failed = 0, left = kSavers;
  const auto load = [&] {
    const auto back = read_all(prefix);
    if (!back.ok()) faults.push_back(back.error().message);
    else if (!same(*back, tensors(back->at("n").data<int32_t>()[0]))) faults.push_back("two saves in one");
  };
  std::vector<std::thread> savers;
  for (int s = 1; s <= kSavers; ++s)
    savers.emplace_back([&, s] {
      for (int n = 0; n < kSaves; ++n) failed += !write_bundle({}, prefix, to_save(tensors(1000 * s + n))).ok();
      --left;
    });
  while (left > 0) load();
  for (std::thread& saver : savers) saver.join();
  load();
  INFO((faults.empty() ? "" : faults[0]));
  CHECK(faults.empty());
  CHECK(failed == 0);
  CHECK(names_in(dir.path()) == std::set<std::string>{"m.data-00000-of-00001", "m.index"});
}

TEST_CASE("a full disk and failing operations leave the bundle that was there") {
  const auto before = TensorMap{{"a", Tensor::scalar(1.f)}};
  for (const char* operation : {"append", "sync", "rename", "create", "sync_directory"}) {
    CAPTURE(operation);
    auto files = std::make_shared<SimulatedFiles>();
    REQUIRE(write_bundle({files, {}}, "d/m", to_save(before)).ok());
    files->fail = operation;
    CHECK_FALSE(write_bundle({files, {}}, "d/m", to_save({{"a", Tensor::scalar(2.f)}})).ok());
    CHECK(same(*read_all("d/m", {files, {}}), before));
    CHECK(files->now.size() == 2);
  }
  for (int64_t space = 0; space < 140; ++space) {
    auto files = std::make_shared<SimulatedFiles>();
    REQUIRE(write_bundle({files, {}}, "d/m", to_save(before)).ok());
    files->space = space;
    const Status full = write_bundle({files, {}}, "d/m", to_save({{"a", Tensor::scalar(2.f)}}));
    if (full.ok()) continue;
    CHECK(full.error().code == Code::kResourceExhausted);
    CHECK(same(*read_all("d/m", {files, {}}), before));
    CHECK(files->now.size() == 2);
  }
}

TEST_CASE("bundles merge: shards are kept, parts come together") {
  const TemporaryDirectory dir;
  const auto write = [&](const std::string& prefix, std::vector<TensorToSave> tensors) {
    REQUIRE(write_bundle({}, dir.file(prefix), tensors).ok());
  };
  const auto merge = [&](std::vector<std::string> names, bool may_miss = false) {
    for (std::string& name : names) name = dir.file(name);
    return merge_bundles({}, names, dir.file("m"), may_miss);
  };
  const Tensor first = Tensor::of<float>({1, 2}, {1, 2}), second = Tensor::of<float>({3, 4}, {1, 2});
  const auto fill = [&] {
    write("t/0", {part_to_save("w", "2 2 0,1:-", first), to_save({{"a", Tensor::scalar(1.f)}})[0]});
    write("t/1", {part_to_save("w", "2 2 1,1:-", second), to_save({{"s", Tensor::of<std::string>({"x"})}})[0]});
  };
  const TensorMap all = {{"a", Tensor::scalar(1.f)},
                         {"s", Tensor::of<std::string>({"x"})},
                         {"w", Tensor::of<float>({1, 2, 3, 4}, {2, 2})}};
  fill();
  CHECK(merge({"t/0", "t/1", "t/2"}).error().code == Code::kNotFound);
  CHECK(merge({"t/3"}, true).error().code == Code::kNotFound);
  CHECK(names_in(dir.file("t")).size() == 4);
  CHECK(names_in(dir.path()) == std::set<std::string>{"t"});
  REQUIRE(merge({"t/0", "t/1", "t/2"}, true).ok());
  CHECK(names_in(dir.file("t")).empty());
  CHECK(names_in(dir.path()) ==
        std::set<std::string>{"t", "m.index", "m.data-00000-of-00002", "m.data-00001-of-00002"});
  CHECK(same(*read_all(dir.file("m")), all));
  CHECK(CheckpointReader::open({}, dir.file("m"))->shards() == 2);

  fill();  // over the former one
  REQUIRE(merge({"t/0", "t/1"}).ok());
  CHECK(same(*read_all(dir.file("m")), all));
  CHECK(names_in(dir.path()).size() == 4);
  CHECK(names_in(dir.path()).contains("m.data-00001-of-00002"));

  write("t/0", to_save({{"b", Tensor::scalar(2.f)}}));  // its former self is one of them
  REQUIRE(merge({"m", "t/0"}).ok());
  CHECK(read_all(dir.file("m"))->size() == 4);
  CHECK(names_in(dir.path()).size() == 5);

  write("t/0", to_save({{"b", Tensor::scalar(3.f)}}));
  CHECK_THAT(merge({"m", "t/0"}).error().message, Contains("tensor 'b'"));
  write("t/0", {part_to_save("w", "2 2 0,1:-", first)});
  CHECK_THAT(merge({"m", "t/0"}).error().message, Contains("a part of tensor 'w' of"));
  write("t/0", {part_to_save("w", "3 2 2,1:-", first)});
  CHECK_THAT(merge({"m", "t/0"}).error().message, Contains("different types or shapes"));
  CHECK(read_all(dir.file("m"))->size() == 4);
}

TEST_CASE("bundles of machines and versions that are not known are told") {
  const TemporaryDirectory dir;
  const auto read = [&](proto::BundleHeader header) {
    const auto file = *make_posix_file_system()->create(dir.file("m.index"));
    SortedTableWriter table(*file);
    REQUIRE(table.add("", header.SerializeAsString()).ok());
    REQUIRE(table.finish().ok());
    return read_all(dir.file("m"));
  };
  proto::BundleHeader header;
  header.set_num_shards(1);
  CHECK(read(header).ok());
  header.set_endianness(1);
  CHECK_THAT(read(header).error().message, Contains("big-endian"));
  header.set_endianness(0);
  header.mutable_version()->set_min_consumer(2);
  CHECK_THAT(read(header).error().message, Contains("version 2"));
}
