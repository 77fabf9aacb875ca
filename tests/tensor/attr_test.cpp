// SPDX-License-Identifier: Apache-2.0
// Attributes: the sorted list, typed access, printing, equality.
#include "troupe/attr.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

using namespace troupe;

namespace {
std::vector<AttrValue> one_of_each() {
  return {int64_t{3},
          1.5f,
          true,
          std::string("SAME"),
          DType::kFloat32,
          PartialShape{-1, 2},
          Tensor::scalar(1.f),
          std::vector<int64_t>{1, 2},
          std::vector<float>{0.5f},
          std::vector<bool>{true, false},
          std::vector<std::string>{"a"},
          std::vector<DType>{DType::kInt32},
          std::vector<PartialShape>{PartialShape{1}}};
}
}  // namespace

TEST_CASE("attributes stay sorted, replace, and are read by type") {
  Attrs attrs{{"b", int64_t{2}}, {"a", std::string("x")}};
  attrs.set("c", true);
  attrs.set("b", int64_t{5});
  CHECK(attrs.size() == 3);
  std::string names;
  for (const auto& [name, value] : attrs) names += name;
  CHECK(names == "abc");
  CHECK(*attrs.get<int64_t>("b") == 5);
  CHECK(attrs.get<float>("b") == nullptr);
  CHECK(attrs.get<int64_t>("z") == nullptr);
  CHECK(attrs.get_or<int64_t>("z", 9) == 9);
  CHECK(attrs.get_or("c", false));
  CHECK(attrs.has("a"));
  CHECK(!attrs.has(""));
}

TEST_CASE("type names and printing of all alternatives") {
  const std::vector<std::string> types = {"int",          "float",      "bool",       "string",      "type",
                                          "shape",        "tensor",     "list(int)",  "list(float)", "list(bool)",
                                          "list(string)", "list(type)", "list(shape)"};
  const std::vector<std::string> texts = {"3",       "1.5",         "true",  "\"SAME\"", "float32",
                                          "[?,2]",   "float32[] 1", "[1,2]", "[0.5]",    "[true,false]",
                                          "[\"a\"]", "[int32]",     "[[1]]"};
  const auto values = one_of_each();
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(attr_type_name(values[i]) == types[i]);
    CHECK(to_string(values[i]) == texts[i]);
  }
}

TEST_CASE("same compares type and value") {
  const auto a = one_of_each(), b = one_of_each();
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k) CHECK(same(a[i], b[k]) == (i == k));
  CHECK(!same(Tensor::scalar(1.f), Tensor::scalar(2.f)));
  CHECK(!same(int64_t{1}, int64_t{2}));
}

TEST_CASE("same looks at floats bit by bit, in lists too") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(same(nan, nan));
  CHECK(same(std::vector<float>{1, nan}, std::vector<float>{1, nan}));
  CHECK(!same(0.F, -0.F));
  CHECK(!same(std::vector<float>{0.F}, std::vector<float>{-0.F}));
  CHECK(!same(std::vector<float>{1}, std::vector<float>{1, 1}));
  CHECK(!same(Tensor(), Tensor::scalar(0.F)));
  CHECK(same(Tensor(), Tensor()));
  CHECK(!same(PartialShape::unknown(), PartialShape::scalar()));
  CHECK(!same(std::vector<bool>{true}, std::vector<bool>{false}));
}

TEST_CASE("the last of two values of one name counts, and a value may come from the list itself") {
  Attrs attrs{{"a", int64_t{1}}, {"b", std::string("text")}, {"a", int64_t{2}}};
  CHECK(attrs.size() == 2);
  CHECK(*attrs.get<int64_t>("a") == 2);
  for (char c = 'c'; c < 'z'; ++c) attrs.set(std::string_view(attrs.begin()[1].first), *attrs.find("a"));
  CHECK(*attrs.get<int64_t>("b") == 2);
  for (int i = 0; i < 100; ++i) attrs.set(std::to_string(i), *attrs.find("b"));  // the list grows meanwhile
  CHECK(attrs.size() == 102);
  CHECK(*attrs.get<int64_t>("99") == 2);
  CHECK(std::ranges::is_sorted(attrs, {}, &Attrs::Entry::first));
  Attrs& self = attrs;
  attrs = self;
  CHECK(attrs.size() == 102);
  const Attrs taken = std::move(attrs);
  CHECK(taken.size() == 102);
  attrs = taken;
  CHECK(attrs.has("a"));
}
