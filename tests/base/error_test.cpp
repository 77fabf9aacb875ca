// SPDX-License-Identifier: Apache-2.0
// Errors as values: printing, copying, the macros.
#include "troupe/error.h"

#include <catch2/catch.hpp>
#include <memory>

#include "tests/aborts.h"

using namespace troupe;

namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return invalid_argument("{} is odd", n);
  return n / 2;
}

Status check_even(int n) {
  TROUPE_RETURN_IF_ERROR(half(n));
  return {};
}

Result<int> quarter(int n) {
  TROUPE_ASSIGN(const int h, half(n));
  TROUPE_ASSIGN(const int q, half(h));
  return q;
}

}  // namespace

TEST_CASE("an error prints its code, op, node, message, device and step") {
  Error e = invalid_argument("inner sizes differ: {} x {}", "[64,784]", "[500,10]");
  CHECK(e.str() == "invalid argument: inner sizes differ: [64,784] x [500,10]");
  e.op = "MatMul";
  CHECK(e.str() == "invalid argument: MatMul: inner sizes differ: [64,784] x [500,10]");
  e.node = "fc1";
  CHECK(e.str() == "invalid argument: MatMul 'fc1': inner sizes differ: [64,784] x [500,10]");
  e.device = "/device:cpu:0";
  e.step = 12;
  CHECK(e.str() ==
        "invalid argument: MatMul 'fc1': inner sizes differ: [64,784] x [500,10] (device /device:cpu:0, step 12)");
  e.device.clear();
  e.op.clear();
  CHECK(e.str() == "invalid argument: 'fc1': inner sizes differ: [64,784] x [500,10] (step 12)");
}

TEST_CASE("every code has a name of its own") {
  std::vector<std::string> names;
  for (int c = 0; c <= static_cast<int>(Code::kInternal); ++c) names.emplace_back(to_string(static_cast<Code>(c)));
  std::sort(names.begin(), names.end());
  CHECK(std::unique(names.begin(), names.end()) == names.end());
  CHECK(std::string(to_string(static_cast<Code>(99))) == "unknown");
}

TEST_CASE("statuses copy and move with their error") {
  Status ok;
  CHECK(ok.ok());
  Status bad = invalid_argument("no");
  Status copy = bad;
  CHECK(copy.error().message == "no");
  ok = copy;
  CHECK(!ok.ok());
  Status moved = std::move(copy);
  CHECK(moved.error().message == "no");
  bad = Status();
  CHECK(bad.ok());
  CHECK(!moved);
}

TEST_CASE("results carry a value or an error through the macros") {
  CHECK(*quarter(12) == 3);
  CHECK(quarter(7).error().message == "7 is odd");
  CHECK(quarter(6).error().message == "3 is odd");
  CHECK(check_even(4).ok());
  CHECK(check_even(5).error().message == "5 is odd");
  CHECK(half(4).status().ok());
  CHECK(half(5).status().error().code == Code::kInvalidArgument);
  Result<std::unique_ptr<int>> owned(std::make_unique<int>(3));
  std::unique_ptr<int> taken = std::move(*owned);
  CHECK(*taken == 3);
  Result<int> from_status = Status(invalid_argument("x"));
  CHECK(!from_status);
}

TEST_CASE("whoever asks for what is not there is told so, and the program ends") {
  const Result<int> bad = invalid_argument("seven is odd");
  CHECK_THAT(words_of_abort([&] { (void)bad.value(); }), Catch::Contains("invalid argument: seven is odd"));
  CHECK_THAT(words_of_abort([&] { (void)*bad; }), Catch::Contains("seven is odd"));
  CHECK_THAT(words_of_abort([&] { (void)*Result<int>(bad); }), Catch::Contains("seven is odd"));
  const Result<std::string> word = invalid_argument("no word");
  CHECK_THAT(words_of_abort([&] { (void)word->size(); }), Catch::Contains("no word"));
  const Result<int> good = 1;
  CHECK_THAT(words_of_abort([&] { (void)good.error(); }), Catch::Contains("the error of a success"));
  CHECK_THAT(words_of_abort([] { (void)Status().error(); }), Catch::Contains("the error of a success"));
}

TEST_CASE("a result from a success without a value is an error that says so") {
  const Result<int> none = Status();
  REQUIRE(!none.ok());
  CHECK(none.error().code == Code::kInternal);
  CHECK(none.error().message.find("a success") != std::string::npos);
}

TEST_CASE("a copied status has an error of its own, also when it is assigned to itself") {
  Status a = invalid_argument("first");
  Status b = a;
  b.error().message = "second";
  CHECK(a.error().message == "first");
  Status& self = a;
  a = self;
  CHECK(a.error().message == "first");
  Error error = a.error();
  error.step = 0;
  Error& same = error;
  error = same;
  CHECK(error.str() == "invalid argument: first (step 0)");
}
