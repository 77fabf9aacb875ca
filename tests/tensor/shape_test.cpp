// SPDX-License-Identifier: Apache-2.0
// Shapes: checks of sizes from outside, partial shapes, merging, broadcasting.
#include "troupe/shape.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/aborts.h"

using namespace troupe;

namespace {
Result<Shape> made(std::vector<int64_t> dims) { return Shape::make(dims); }
}  // namespace

TEST_CASE("Shape::make refuses what no tensor can have, naming the values") {
  CHECK(*made({}) == Shape{});
  CHECK(made({})->elements() == 1);
  CHECK(made({2, 0, 3})->elements() == 0);
  CHECK(made(std::vector<int64_t>(kMaxRank, 1)).ok());
  CHECK_THAT(made(std::vector<int64_t>(kMaxRank + 1, 1)).error().message, Catch::Contains("rank 17"));
  CHECK_THAT(made({2, -1}).error().message, Catch::Contains("-1"));
  CHECK(!made({INT64_MAX}).ok());
  CHECK(!made({int64_t{1} << 32, int64_t{1} << 32}).ok());
  CHECK(!made({INT64_MAX, INT64_MAX, INT64_MAX}).ok());
  CHECK(made({int64_t{1} << 32, int64_t{1} << 24}).ok());
}

TEST_CASE("sizes that overflow are refused beside a size of 0 too, and where broadcasting would make them") {
  CHECK(!made({INT64_MAX, INT64_MAX, 0}).ok());
  CHECK(made({1000, 0, 1000})->elements() == 0);
  const int64_t big = int64_t{1} << 40;
  CHECK(!broadcast(Shape{big, 1, 0}, Shape{1, big, 0}).ok());
  CHECK(!PartialShape::make(std::vector<int64_t>{INT64_MAX}).ok());
}

TEST_CASE("sizes are read from both ends, inserted and erased") {
  Shape s{2, 3, 4};
  CHECK(s.dim(-1) == 4);
  CHECK(s.dim(0) == 2);
  s.insert(0, 9);
  CHECK(s == Shape{9, 2, 3, 4});
  s.insert(4, 7);
  CHECK(s == Shape{9, 2, 3, 4, 7});
  s.erase(1);
  CHECK(s == Shape{9, 3, 4, 7});
  s.push_back(1);
  CHECK(s.str() == "[9,3,4,7,1]");
  CHECK(Shape{}.str() == "[]");
  CHECK(!(Shape{2} == Shape{2, 1}));
}

TEST_CASE("partial shapes merge to the more exact, or fail with both printed") {
  const auto unknown = PartialShape::unknown();
  CHECK(!unknown.has_rank());
  CHECK(unknown.rank() == -1);
  CHECK(unknown.str() == "<unknown>");
  CHECK(PartialShape{-1, 784}.str() == "[?,784]");
  CHECK(PartialShape::scalar().fully_known());
  CHECK(!PartialShape{-1}.fully_known());
  CHECK(*PartialShape::merge({-1, 3}, {2, -1}) == PartialShape{2, 3});
  CHECK(*PartialShape::merge(unknown, {2, -1}) == PartialShape{2, -1});
  CHECK(*PartialShape::merge({2}, unknown) == PartialShape{2});
  CHECK_THAT(PartialShape::merge({2}, {3}).error().message, Catch::Contains("[2]") && Catch::Contains("[3]"));
  CHECK(!PartialShape::merge({2}, {2, 1}).ok());
  CHECK(PartialShape{-1}.compatible(Shape{5}));
  CHECK(!PartialShape{4}.compatible(Shape{5}));
  CHECK(unknown.compatible(PartialShape{1, 2}));
  CHECK(!PartialShape::make(std::vector<int64_t>{-2}).ok());
  CHECK(!PartialShape::make(std::vector<int64_t>{-1, INT64_MAX, 2}).ok());
  CHECK(!PartialShape::make(std::vector<int64_t>(kMaxRank + 1, -1)).ok());
  CHECK(PartialShape::make(std::vector<int64_t>{-1, 3}).ok());
}

TEST_CASE("broadcasting follows NumPy, known or not") {
  CHECK(*broadcast(Shape{2, 1, 4}, Shape{3, 1}) == Shape{2, 3, 4});
  CHECK(*broadcast(Shape{}, Shape{5}) == Shape{5});
  CHECK(*broadcast(Shape{0}, Shape{1}) == Shape{0});
  CHECK_THAT(broadcast(Shape{2}, Shape{3}).error().message, Catch::Contains("[2]") && Catch::Contains("[3]"));
  CHECK(!broadcast(Shape{0}, Shape{2}).ok());
  CHECK(*broadcast(PartialShape{-1, 4}, PartialShape{3, 1}) == PartialShape{3, 4});
  CHECK(*broadcast(PartialShape{-1}, PartialShape{1}) == PartialShape{-1});
  CHECK(*broadcast(PartialShape{-1}, PartialShape{-1}) == PartialShape{-1});
  CHECK(!broadcast(PartialShape::unknown(), PartialShape{1})->has_rank());
}

TEST_CASE("more sizes than a shape has end the program; an error of broadcasting or merging never does") {
  const std::vector<int64_t> many(kMaxRank + 1, 1);
  CHECK_THAT(words_of_abort([&] { Shape(std::span<const int64_t>(many)); }), Catch::Contains("kMaxRank"));
  Shape full(std::span<const int64_t>(many).first(kMaxRank));
  CHECK_THAT(words_of_abort([&] { full.push_back(1); }), Catch::Contains("kMaxRank"));
  CHECK_THAT(words_of_abort([&] { full.insert(0, 1); }), Catch::Contains("kMaxRank"));
  CHECK_THAT(words_of_abort([&] { full.erase(kMaxRank); }), Catch::Contains("check failed"));
  CHECK(broadcast(full, full).ok());
  Shape& self = full;
  full = self;
  CHECK(full.rank() == kMaxRank);
  CHECK(full.dim(-kMaxRank) == 1);
}

TEST_CASE("broadcasting to unknown sizes keeps what is known, and a 1 gives way to 0") {
  CHECK(*broadcast(PartialShape{-1}, PartialShape{5}) == PartialShape{5});
  CHECK(*broadcast(PartialShape{-1, 0}, PartialShape{1}) == PartialShape{-1, 0});
  CHECK(*broadcast(Shape{1, 0, 1}, Shape{2, 1, 3}) == Shape{2, 0, 3});
  CHECK(!broadcast(PartialShape{0}, PartialShape{2, 3}).ok());
  CHECK_THAT(broadcast(PartialShape{-1, 2}, PartialShape{3}).error().message,
             Catch::Contains("[?,2]") && Catch::Contains("[3]"));
  CHECK(PartialShape::unknown() == PartialShape());
  CHECK(!(PartialShape::unknown() == PartialShape::scalar()));
  CHECK(PartialShape::unknown().dims().empty());
  CHECK(!PartialShape::unknown().fully_known());
  CHECK(PartialShape{2, -1}.dim(-1) == -1);
}
