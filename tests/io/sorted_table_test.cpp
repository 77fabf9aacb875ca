// SPDX-License-Identifier: Apache-2.0
// Sorted tables there and back, and damaged; the keys of parts; Snappy.
#include "io/sorted_table.h"

#include <map>

#include "io/crc32c.h"
#include "io/slice_text.h"
#include "io/snappy.h"
#include "io/varint.h"
#include "tests/io/temporary_directory.h"

using namespace troupe;

namespace {

using Entries = std::map<std::string, std::string>;

std::string write_table(const TemporaryDirectory& dir, const Entries& entries) {
  const auto file = make_posix_file_system()->create(dir.file("table"));
  REQUIRE(file.ok());
  SortedTableWriter table(**file);
  for (const auto& [key, value] : entries) REQUIRE(table.add(key, value).ok());
  REQUIRE(table.finish().ok());
  REQUIRE((*file)->close().ok());
  return TemporaryDirectory::read(dir.file("table"));
}

Result<SortedTable> open_table(const std::string& path) {
  return SortedTable::open(*make_posix_file_system()->open(path), path);
}

Result<Entries> read_table(const std::string& path) {
  TROUPE_ASSIGN(SortedTable table, open_table(path));
  Entries out;
  TROUPE_RETURN_IF_ERROR(table.for_each([&](std::string_view key, std::string_view value) -> Status {
    out.emplace(key, value);
    return {};
  }));
  return out;
}

/// A block with its trailer, and a table that consists of it.
std::string table_of(std::string block, char packing = 0) {
  const auto place = [](uint64_t offset, uint64_t size) {
    std::string out;
    put_varint(out, offset);
    put_varint(out, size);
    return out;
  };
  std::string out;
  const auto add = [&out, &place](std::string bytes, char how) {
    const std::string at = place(out.size(), bytes.size());
    bytes += how;
    put_word(bytes, mask_crc(crc32c(bytes.data(), bytes.size())));
    out += bytes;
    return at;
  };
  const std::string whole("\0\0\0\0\1\0\0\0", 8);
  const std::string data = add(std::move(block), packing), about = add(whole, 0);
  const std::string index = std::string("\0\1", 2) + static_cast<char>(data.size()) + "z" + data;
  std::string end = about + add(index + whole, 0);
  end.resize(40, '\0');
  return out + end + std::string("\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8);
}

}  // namespace

TEST_CASE("entries of a sorted table return, in order and by key, over many blocks") {
  const TemporaryDirectory dir;
  Entries entries = {{"", "head"}, {std::string("\0\xff", 2), ""}, {"\xff", std::string(600'000, 'y')}};
  for (int i = 0; i < 30'000; ++i) entries[fmt::format("layer_{:06}/kernel", i * 7)] = std::string(size_t(i % 50), 'v');
  write_table(dir, entries);
  const auto back = read_table(dir.file("table"));
  REQUIRE(back.ok());
  CHECK(*back == entries);
  SortedTable table = *open_table(dir.file("table"));
  for (int i : {0, 7, 14, 70'000, 69'993, 70'000, 3, 209'993, 0}) {
    const std::string key = fmt::format("layer_{:06}/kernel", i);
    CAPTURE(key);
    const auto found = table.find(key);
    REQUIRE(found.ok());
    REQUIRE(found->has_value() == entries.contains(key));
    if (*found) CHECK(**found == entries[key]);
  }
  CHECK(**table.find("") == "head");
  CHECK_FALSE(table.find("\xff\xff")->has_value());
  CHECK_FALSE(table.find("zzz")->has_value());
}

TEST_CASE("keys of a sorted table must come in order; an empty table is one") {
  const TemporaryDirectory dir;
  const auto file = *make_posix_file_system()->create(dir.file("f"));
  SortedTableWriter table(*file);
  REQUIRE(table.add("b", "").ok());
  CHECK(table.add("b", "").error().code == Code::kInternal);
  CHECK(table.add("a", "").error().code == Code::kInternal);
  write_table(dir, {});
  CHECK(read_table(dir.file("table"))->empty());
  CHECK_FALSE(SortedTable::is_one(**make_posix_file_system()->open(dir.write("short", "x"))));
}

TEST_CASE("a sorted table with any byte changed or missing is an error, or the same") {
  const TemporaryDirectory dir;
  Entries entries;
  for (int i = 0; i < 40; ++i) entries["key" + std::to_string(i)] = std::string(size_t(i), 'v');
  const std::string bytes = write_table(dir, entries);
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const char change : {'\1', '\x80', '\xff'}) {
      std::string other = bytes;
      other[i] = static_cast<char>(other[i] ^ change);
      const auto back = read_table(dir.write("bad", other));
      CAPTURE(i);
      if (back.ok()) CHECK(*back == entries);
      else CHECK_THAT(back.error().message, Catch::Contains(dir.file("bad")));
      if (i < bytes.size() - 48) CHECK_FALSE(back.ok());
    }
  for (size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(read_table(dir.write("bad", bytes.substr(0, n))).ok());
}

TEST_CASE("sorted tables with sound sums and wrong insides are refused") {
  const TemporaryDirectory dir;
  const std::string end("\0\0\0\0\1\0\0\0", 8);
  const auto read = [&](const std::string& bytes) { return read_table(dir.write("t", bytes)); };
  const std::string sound("\0\1\1ax\0\1\1by", 10);
  CHECK(*read(table_of(sound + end)) == Entries{{"a", "x"}, {"b", "y"}});
  for (const std::string& entries :
       {std::string("\0\1\1bx\0\1\1ay", 10), std::string("\0\1\1ax\0\1\1ay", 10), std::string("\1\1\1ax", 5),
        std::string("\0\1\2ax", 5), std::string("\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\1", 12), std::string("\0", 1),
        std::string("\0\2\0{{", 5)})
    CHECK(read(table_of(entries + end)).error().code == Code::kDataLoss);
  CHECK(read(table_of(sound + std::string("\0\0\0\0\0\0\0\0", 8))).error().code == Code::kDataLoss);
  CHECK(read(table_of(sound + std::string("\0\0\0\0\xff\0\0\0", 8))).error().code == Code::kDataLoss);
  CHECK(read(table_of("abc")).error().code == Code::kDataLoss);
  CHECK(read(table_of(sound + end, 2)).error().code == Code::kUnimplemented);
  CHECK(read(table_of(sound + end, 1)).error().code == Code::kDataLoss);
  CHECK(read(table_of(std::string(1, 18) + std::string(1, 17 << 2) + sound + end, 1)).value() ==
        Entries{{"a", "x"}, {"b", "y"}});

  // A kilobyte of key that each of many entries shares.
  std::string growing("\0\x80\x08\0", 4);
  growing += std::string(1024, 'k');
  for (int i = 0; i < 50'000; ++i) {
    growing += std::string("\x80\x08\3\0", 4);
    for (int shift : {16, 8, 0}) growing += static_cast<char>(i >> shift & 255);
  }
  const auto large = read(table_of(growing + end));
  REQUIRE_FALSE(large.ok());
  CHECK_THAT(large.error().message, Catch::Contains("cannot stand in its block"));
}

TEST_CASE("keys of parts are TensorFlow's, and in the order of their places") {
  const auto key = [](const std::string& slice) {
    proto::SavedBox box;
    write_box(*TensorSlice::parse(slice), box);
    return key_of_part("w", box);
  };
  CHECK(key("300 4 0,100:-") == std::string("\0w\0\1\1\2\x80\xc0\x64\x80\x7f", 11));
  CHECK(key("300 4 100,200:-") == std::string("\0w\0\1\1\2\xc0\x64\xc0\xc8\x80\x7f", 12));
  std::string before;
  for (const int64_t at : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{8191}, int64_t{8192},
                           int64_t{1} << 20, int64_t{1} << 27, int64_t{1} << 34, int64_t{1} << 41, int64_t{1} << 48,
                           int64_t{1} << 55, int64_t{1} << 62, INT64_MAX}) {
    proto::SavedBox box;
    box.add_extent()->set_start(at);
    box.mutable_extent(0)->set_length(1);
    const std::string next = key_of_part("w", box);
    CHECK(before < next);
    before = next;
  }
  CHECK(key_of_part(std::string("\0\xff", 2), {}) == std::string("\0\0\xff\xff\0\0\1\0", 8));
}

TEST_CASE("Snappy blocks are unpacked, damaged ones are not") {
  CHECK(unpack_snappy(std::string("\0", 1)) == "");
  CHECK(unpack_snappy("\3\x08"
                      "abc") == "abc");
  CHECK(unpack_snappy(std::string("\x0c\x08"
                                  "abc\x15\3",
                                  7)) == "abcabcabcabc");  // one byte of distance
  CHECK(unpack_snappy(std::string("\x0c\x08"
                                  "abc\x22\3\0",
                                  8)) == "abcabcabcabc");  // two
  CHECK(unpack_snappy(std::string("\x0c\x08"
                                  "abc\x23\3\0\0\0",
                                  10)) == "abcabcabcabc");  // four
  CHECK(unpack_snappy(std::string("\x46\xf0\x45", 3) + std::string(70, 'l')) ==
        std::string(70, 'l'));  // a length apart
  for (const std::string& bad : {std::string(), std::string("\3"),
                                 std::string("\3\x08"
                                             "ab"),
                                 std::string("\2\x08"
                                             "abc"),
                                 std::string("\4\x08"
                                             "abc"),
                                 std::string("\x0c\x08"
                                             "abc\x15\4"),
                                 std::string("\x0c\x08"
                                             "abc\x15\0",
                                             7),
                                 std::string("\x0c\x08"
                                             "abc\x22\3"),
                                 std::string("\x46\xf0", 2),
                                 std::string("\xff\xff\xff\xff\x0f\x08"
                                             "abc"),
                                 std::string("\x0b\x08"
                                             "abc\x15\3")})
    CHECK_FALSE(unpack_snappy(bad));
}
