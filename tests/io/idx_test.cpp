// SPDX-License-Identifier: Apache-2.0
// idx files: good ones of each type, and each way a file can be bad.
#include "troupe/idx.h"

#include <zlib.h>

#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

std::string idx(unsigned char type, std::vector<uint32_t> sizes, const std::string& data) {
  std::string out = {0, 0, static_cast<char>(type), static_cast<char>(sizes.size())};
  for (uint32_t s : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(s >> shift);
  return out + data;
}

std::string gzip(const TemporaryDirectory& dir, const std::string& bytes) {
  const std::string path = dir.file("packing.gz");
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return TemporaryDirectory::read(path);
}

void check_damaged(const std::string& path, const std::string& what) {
  const auto result = read_idx(path);
  REQUIRE(!result.ok());
  CHECK(result.error().code == Code::kDataLoss);
  CHECK_THAT(result.error().message, Catch::Contains(path) && Catch::Contains(what));
}

}  // namespace

TEST_CASE("read_idx reads every element type, plain and gzip") {
  TemporaryDirectory dir;
  auto t = read_idx(dir.write("u8", idx(8, {2, 3}, "\1\2\3\4\5\6")));
  REQUIRE(t.ok());
  CHECK(t->identical(Tensor::of<uint8_t>({1, 2, 3, 4, 5, 6}, {2, 3})));
  CHECK(read_idx(dir.write("i8", idx(9, {1}, "\xff")))->identical(Tensor::of<int8_t>({-1})));
  CHECK(read_idx(dir.write("i16", idx(11, {1}, "\x01\x02")))->identical(Tensor::of<int16_t>({0x102})));
  CHECK(read_idx(dir.write("i32", idx(12, {1}, "\x01\x02\x03\x04")))->identical(Tensor::of<int32_t>({0x1020304})));
  CHECK(read_idx(dir.write("f32", idx(13, {1}, std::string("\x3f\x80\0\0", 4))))->identical(Tensor::of<float>({1})));
  CHECK(read_idx(dir.write("f64", idx(14, {1}, std::string("\x3f\xf0\0\0\0\0\0\0", 8))))
            ->identical(Tensor::of<double>({1})));
  CHECK(read_idx(dir.write("scalar", idx(8, {}, "\7")))->identical(Tensor::scalar<uint8_t>(7)));
  CHECK(read_idx(dir.write("none", idx(8, {0, 5}, "")))->shape() == Shape{0, 5});
  CHECK(read_idx(dir.write("packed", gzip(dir, idx(8, {2, 3}, "\1\2\3\4\5\6"))))->identical(*t));
}

TEST_CASE("read_idx names the file and what is wrong with it") {
  TemporaryDirectory dir;
  const auto missing = read_idx(dir.file("missing"));
  REQUIRE(!missing.ok());
  CHECK(missing.error().code == Code::kNotFound);
  CHECK_THAT(missing.error().message, Catch::Contains("missing"));
  CHECK(!read_idx(dir.path()).ok());

  check_damaged(dir.write("empty", ""), "truncated");
  check_damaged(dir.write("magic", "hello, world"), "not an idx file");
  check_damaged(dir.write("type", idx(0x42, {1}, "x")), "unknown element type 0x42");
  check_damaged(dir.write("header", std::string("\0\0\10\2\0\0", 6)), "truncated");
  check_damaged(dir.write("short", idx(8, {7}, "123456")), "6 of 7 bytes");
  check_damaged(dir.write("long", idx(8, {5}, "123456")), "more data");
  check_damaged(dir.write("huge", idx(8, {0xffffffff, 0xffffffff, 0xffffffff}, "1")), "declares");
  const auto rank = read_idx(dir.write("rank", idx(8, std::vector<uint32_t>(kMaxRank + 1, 1), "1")));
  REQUIRE(!rank.ok());
  CHECK(rank.error().code == Code::kInvalidArgument);
}

TEST_CASE("read_idx refuses every cut and every flipped byte of a gzip stream") {
  TemporaryDirectory dir;
  std::string data(1000, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i % 251);
  const std::string good = gzip(dir, idx(8, {1000}, data));
  const Tensor expected = *read_idx(dir.write("good", good));
  for (size_t n = 0; n < good.size(); ++n) CHECK(!read_idx(dir.write("cut", good.substr(0, n))).ok());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x20);
    const auto result = read_idx(dir.write("flipped", bad));
    if (result.ok()) CHECK(result->identical(expected));  // flags and time stamp of gzip's header carry no data
  }
  check_damaged(dir.write("cut", good.substr(0, good.size() - 20)), "truncated gzip stream");
}

TEST_CASE("read_mnist finds, reads and checks the four files") {
  TemporaryDirectory dir;
  dir.write("train-images-idx3-ubyte", idx(8, {2, 1, 2}, "abcd"));
  dir.write("train-labels-idx1-ubyte.gz", gzip(dir, idx(8, {2}, "\1\11")));
  dir.write("t10k-images-idx3-ubyte", idx(8, {1, 1, 2}, "xy"));
  auto missing = read_mnist(dir.path());
  REQUIRE(!missing.ok());
  CHECK(missing.error().code == Code::kNotFound);
  CHECK_THAT(missing.error().message, Catch::Contains("t10k-labels-idx1-ubyte") && Catch::Contains(dir.path()));

  dir.write("t10k-labels-idx1-ubyte", idx(8, {1}, std::string(1, '\0')));
  auto data = read_mnist(dir.path());
  REQUIRE(data.ok());
  CHECK(data->train_images.shape() == Shape{2, 1, 2});
  CHECK(data->train_labels.identical(Tensor::of<uint8_t>({1, 9})));
  CHECK(data->test_labels.identical(Tensor::of<uint8_t>({0})));

  dir.write("t10k-labels-idx1-ubyte", idx(8, {1}, "\12"));
  CHECK_THAT(read_mnist(dir.path()).error().message, Catch::Contains("label 10 of element 0"));
  dir.write("t10k-labels-idx1-ubyte", idx(8, {2}, "\1\1"));
  CHECK_THAT(read_mnist(dir.path()).error().message, Catch::Contains("1 images") && Catch::Contains("2 labels"));
  dir.write("t10k-labels-idx1-ubyte", idx(8, {1}, "\1"));
  dir.write("t10k-images-idx3-ubyte", idx(8, {1, 2, 1}, "xy"));
  CHECK_THAT(read_mnist(dir.path()).error().message, Catch::Contains("[2,1,2]") && Catch::Contains("[1,2,1]"));
}

TEST_CASE("read_mnist refuses files of other types, ranks and sizes, whichever of the four it is") {
  TemporaryDirectory dir;
  const auto images = [](uint32_t n, uint32_t h, uint32_t w) { return idx(8, {n, h, w}, std::string(n * h * w, 'i')); };
  const auto labels = [](uint32_t n) { return idx(8, {n}, std::string(n, '\1')); };
  const auto write_good = [&] {
    dir.write("train-images-idx3-ubyte", images(2, 3, 4));
    dir.write("train-labels-idx1-ubyte", labels(2));
    dir.write("t10k-images-idx3-ubyte", images(1, 3, 4));
    dir.write("t10k-labels-idx1-ubyte", labels(1));
  };
  for (const std::string set : {"train", "t10k"})
    for (const auto& [name, bytes] :
         {std::pair{set + "-images-idx3-ubyte", idx(9, {1, 1, 1}, "x")},
          {set + "-images-idx3-ubyte", idx(8, {4}, "abcd")},
          {set + "-images-idx3-ubyte", idx(8, {2, 2, 1, 1}, "abcd")},
          {set + "-images-idx3-ubyte", images(5, 3, 4)},
          {set + "-images-idx3-ubyte", images(set == "train" ? 2 : 1, 4, 3)},
          {set + "-labels-idx1-ubyte", idx(9, {1}, "\1")},
          {set + "-labels-idx1-ubyte", idx(8, {1, 1}, "\1")},
          {set + "-labels-idx1-ubyte", idx(8, {}, "\1")},
          {set + "-labels-idx1-ubyte", labels(7)},
          {set + "-labels-idx1-ubyte", idx(8, {set == "train" ? 2u : 1u}, set == "train" ? "\1\xff" : "\xff")},
          {set + "-labels-idx1-ubyte", ""}}) {
      INFO(name << ", " << bytes.size() << " bytes");
      write_good();
      REQUIRE(read_mnist(dir.path()).ok());
      dir.write(name, bytes);
      const auto data = read_mnist(dir.path());
      REQUIRE(!data.ok());
      CHECK(data.error().code == Code::kDataLoss);
      CHECK_THAT(data.error().message, Catch::Contains(dir.path()));
    }
  write_good();
  dir.write("train-images-idx3-ubyte", images(0, 3, 4));
  dir.write("train-labels-idx1-ubyte", labels(0));
  CHECK(read_mnist(dir.path())->train_images.shape() == Shape{0, 3, 4});
  CHECK(read_mnist(dir.file("nowhere")).error().code == Code::kNotFound);
  CHECK(read_mnist("").error().code == Code::kNotFound);
}
