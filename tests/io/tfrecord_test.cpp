// SPDX-License-Identifier: Apache-2.0
// CRC-32C against published values, TFRecord files there, back, and damaged.
#include "io/tfrecord.h"

#include <zlib.h>

#include "io/crc32c.h"
#include "tests/io/temporary_directory.h"
#include "troupe/dataset.h"

using namespace troupe;

TEST_CASE("crc32c agrees with RFC 3720 and with its portable form") {
  CHECK(crc32c("123456789", 9) == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0').data(), 32) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff').data(), 32) == 0x62a8ab43);
  std::string data;
  for (int i = 0; i < 300; ++i) data += static_cast<char>(i * i);
  for (size_t begin = 0; begin < 20; ++begin)
    for (size_t n = 0; n + begin <= data.size(); n += 7) {
      const uint32_t whole = crc32c(data.data() + begin, n);
      CHECK(whole == crc32c_portable(data.data() + begin, n));
      CHECK(whole == crc32c(data.data() + begin + n / 3, n - n / 3, crc32c(data.data() + begin, n / 3)));
    }
}

TEST_CASE("a record has TensorFlow's bytes") {
  // tf.io.TFRecordWriter on b"x".
  const std::string record = encode_record("x");
  REQUIRE(record.size() == 17);
  CHECK(record.substr(0, 8) == std::string("\1\0\0\0\0\0\0\0", 8));
  CHECK(record[12] == 'x');
  CHECK(mask_crc(0) == 0xa282ead8);
}

TEST_CASE("records return, from plain and gzip files, one file after another") {
  TemporaryDirectory dir;
  const auto files = make_posix_file_system();
  auto writer = RecordWriter::create(*files, dir.file("a"));
  REQUIRE(writer.ok());
  const std::string big(200000, 'z');
  for (const std::string& s : {std::string("one"), std::string(), big}) REQUIRE(writer->write(s).ok());
  REQUIRE(writer->close().ok());
  gzFile gz = gzopen(dir.file("b").c_str(), "wb");
  const std::string packed = encode_record("two");
  gzwrite(gz, packed.data(), static_cast<unsigned>(packed.size()));
  gzclose(gz);
  auto dataset = Dataset::from_records({dir.file("a"), dir.file("b")});
  REQUIRE(dataset.ok());
  auto it = std::move(*dataset->iterate());
  for (const std::string& expected : {std::string("one"), std::string(), big, std::string("two")}) {
    auto next = it->next();
    REQUIRE(next.ok());
    REQUIRE(*next);
    CHECK((**next)[0].identical(Tensor::scalar(expected)));
  }
  CHECK(!(*it->next()).has_value());
}

TEST_CASE("of a gzip file that is cut off the records before the cut return, then an error") {
  const TemporaryDirectory dir;
  const auto files = make_posix_file_system();
  std::string noise;  // that gzip does not make smaller
  for (uint32_t i = 1, x = 1; i <= 500; ++i, x = x * 1664525 + 1013904223) noise += static_cast<char>(x >> 24);
  auto writer = RecordWriter::create(*files, dir.file("whole"), RecordPacking::kGzip);
  REQUIRE(writer.ok());
  for (int i = 0; i < 10; ++i) REQUIRE(writer->write(noise.substr(static_cast<size_t>(i) * 50, 50)).ok());
  REQUIRE(writer->close().ok());
  const std::string whole = TemporaryDirectory::read(dir.file("whole"));
  size_t most = 0;
  for (size_t size = 20; size < whole.size(); size += 10) {
    CAPTURE(size);
    const std::string cut = dir.write("cut", whole.substr(0, size));
    auto it = std::move(*Dataset::from_records({cut, dir.file("whole")})->iterate());
    size_t before = 0;
    auto next = it->next();
    for (; next.ok() && *next; next = it->next())
      CHECK((**next)[0].identical(Tensor::scalar(noise.substr(50 * before++, 50))));
    REQUIRE_FALSE(next.ok());
    CHECK(next.error().code == Code::kDataLoss);
    CHECK(next.error().message.find(cut) != std::string::npos);
    CHECK(before >= most);
    most = before;
    size_t behind = 0;
    for (next = it->next(); next.ok() && *next; next = it->next()) ++behind;
    CHECK((next.ok() && behind == 10));
  }
  CHECK(most >= 9);
}

TEST_CASE("a record's length, rightly summed, is not believed beyond the file") {
  TemporaryDirectory dir;
  for (const int byte : {3, 5, 7}) {  // 32 MiB; more than there is memory; more than there are addresses
    std::string bytes = encode_record("x");
    bytes[static_cast<size_t>(byte)] = 2;
    const uint32_t sum = mask_crc(crc32c(bytes.data(), 8));
    for (size_t i = 0; i < 4; ++i) bytes[8 + i] = static_cast<char>(sum >> (8 * i));
    auto reader = RecordReader::open(dir.write("r", bytes));
    REQUIRE(reader.ok());
    auto record = reader->next();
    REQUIRE(!record.ok());
    CHECK(record.error().code == Code::kDataLoss);
    CHECK_THAT(record.error().message, Catch::Contains("offset 0") && Catch::Contains("truncated"));
  }
}

TEST_CASE("every cut and every flipped byte of a record file is a data loss that names file and offset") {
  TemporaryDirectory dir;
  const std::string good = encode_record("first") + encode_record("second");
  auto outcome = [&](const std::string& bytes) {
    auto reader = RecordReader::open(dir.write("r", bytes));
    REQUIRE(reader.ok());
    size_t read = 0;
    for (;;) {
      auto record = reader->next();
      if (!record.ok()) {
        CHECK(record.error().code == Code::kDataLoss);
        CHECK_THAT(record.error().message, Catch::Contains(dir.file("r")) && Catch::Contains("offset"));
        return read;
      }
      if (!*record) return read;
      CHECK(**record == (read == 0 ? "first" : "second"));
      ++read;
    }
  };
  CHECK(outcome(good) == 2);
  for (size_t n = 0; n < good.size(); ++n) CHECK(outcome(good.substr(0, n)) == (n < 21 ? 0 : 1));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    CHECK(outcome(bad) == (i < 21 ? 0 : 1));
  }
}
