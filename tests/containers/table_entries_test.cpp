// SPDX-License-Identifier: Apache-2.0
// Buckets of dense tables: where entries lie, how tables grow, what is read back.
#include "containers/table_entries.h"

#include <catch2/catch.hpp>

using namespace troupe;

namespace {

/// Keys are numbers; their last digit is their hash.
BucketEntries buckets(int64_t number, float most_full = 0.5f) {
  return BucketEntries({number, most_full, "empty", "0", "deleted",
                        [](const std::string& key) { return static_cast<uint64_t>(key.back() - '0'); }});
}

std::string rows(const TableEntries& entries) {
  std::string out;
  entries.each_row([&](int64_t, const std::string& key, const std::string& value) {
    out += (key == "empty" ? "-" : key == "deleted" ? "x" : key) + "=" + value + " ";
  });
  return out;
}

void add(TableEntries& entries, const std::string& key, const std::string& value) {
  entries.expect(1);
  entries.put(key, value);
}

}  // namespace

TEST_CASE("an entry takes the first free bucket in steps that grow") {
  BucketEntries t = buckets(8, 0.9f);
  for (const char* key : {"11", "21", "31", "2"}) add(t, key, key);
  CHECK(rows(t) == "-=0 11=11 21=21 2=2 31=31 -=0 -=0 -=0 ");
  add(t, "21", "new");
  CHECK(t.size() == 4);
  CHECK(*t.find("21") == "new");
  CHECK(t.find("41") == nullptr);
}

TEST_CASE("a removed entry leaves its bucket to the next, but not its place in a search") {
  BucketEntries t = buckets(8, 0.9f);
  for (const char* key : {"11", "21", "31"}) add(t, key, key);
  t.erase("21");
  t.erase("51");
  CHECK(rows(t) == "-=0 11=11 x=21 -=0 31=31 -=0 -=0 -=0 ");
  CHECK(t.size() == 2);
  CHECK(*t.find("31") == "31");
  add(t, "31", "same");  // not once more, in the bucket that was left
  CHECK(t.size() == 2);
  add(t, "2", "2");
  CHECK(rows(t) == "-=0 11=11 2=2 -=0 31=same -=0 -=0 -=0 ");
}

TEST_CASE("a table doubles as often as it must and drops what was removed") {
  BucketEntries t = buckets(4);
  add(t, "1", "a");
  add(t, "2", "b");
  t.erase("1");
  t.expect(2);
  CHECK(t.rows() == 8);
  CHECK(rows(t) == "-=0 -=0 2=b -=0 -=0 -=0 -=0 -=0 ");
  t.expect(8);
  CHECK(t.rows() == 32);
}

TEST_CASE("rows that a table showed are taken as they are, others sorted in") {
  BucketEntries t = buckets(4);
  t.assign({{"empty", ""},
            {"11", "a"},
            {"deleted", "b"},
            {"empty", ""},
            {"31", "c"},
            {"empty", ""},
            {"empty", ""},
            {"7", "d"}});
  CHECK(rows(t) == "-=0 11=a x=b -=0 31=c -=0 -=0 7=d ");
  CHECK(t.size() == 3);
  t.assign({{"3", "a"}, {"empty", ""}, {"2", "b"}, {"1", "c"}});  // 3 does not lie where it is looked for
  CHECK(t.size() == 3);
  CHECK(rows(t) == "-=0 1=c 2=b 3=a -=0 -=0 -=0 -=0 ");
  t.assign({{"3", "a"}, {"3", "b"}, {"deleted", ""}});
  CHECK(rows(t) == "-=0 -=0 -=0 3=b ");
  t.assign({});
  CHECK(t.size() == 0);
  CHECK(t.rows() == 4);
}

TEST_CASE("a table with more removed entries than free buckets is searched to its end") {
  BucketEntries t = buckets(4, 0.99f);
  for (const char* key : {"0", "1", "2", "3"}) {
    add(t, key, key);
    t.erase(key);
  }
  CHECK(rows(t) == "x=0 x=1 x=2 x=3 ");
  CHECK(t.find("5") == nullptr);
  add(t, "5", "v");
  CHECK(*t.find("5") == "v");
}

TEST_CASE("numbers of buckets and load factors that cannot be are errors") {
  for (const int64_t number : {-4, 0, 2, 6})
    CHECK(BucketEntries::check(number, 0.5f).error().message.find(std::to_string(number)) != std::string::npos);
  for (const float full : {0.f, 1.f, -1.f}) CHECK_FALSE(BucketEntries::check(8, full).ok());
  CHECK(BucketEntries::check(4, 0.5f).ok());
}
