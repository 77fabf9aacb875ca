// SPDX-License-Identifier: Apache-2.0
// Exceptions of every kind become errors.
#include "troupe/guarded.h"

#include <catch2/catch.hpp>
#include <string>

#include "troupe/version.h"

using namespace troupe;

namespace {

struct Mute : std::exception {
  const char* what() const noexcept override { return nullptr; }
};

template <class E> Error caught(E thrown) {
  const Status status = guarded_call([&] { throw thrown; });
  REQUIRE(!status.ok());
  const Result<int> result = guarded([&]() -> Result<int> { throw thrown; });
  REQUIRE(!result.ok());
  CHECK(result.error().str() == status.error().str());
  return status.error();
}

}  // namespace

TEST_CASE("what is thrown becomes an error, for memory kResourceExhausted and else kInternal") {
  CHECK(caught(std::bad_alloc()).code == Code::kResourceExhausted);
  CHECK(caught(std::bad_array_new_length()).code == Code::kResourceExhausted);
  CHECK(caught(std::length_error("long")).code == Code::kResourceExhausted);
  CHECK(caught(std::runtime_error("a word {} {0:9}")).code == Code::kInternal);
  CHECK(caught(std::runtime_error("a word {} {0:9}")).message.find("a word {} {0:9}") != std::string::npos);
  CHECK(caught(7).code == Code::kInternal);
  CHECK(caught("text").code == Code::kInternal);
  CHECK(caught(Mute()).code == Code::kInternal);
}

TEST_CASE("what does not throw is passed on, and a barrier may stand in another") {
  CHECK(*guarded([]() -> Result<int> { return 3; }) == 3);
  CHECK(guarded([]() -> Status { return invalid_argument("mine"); }).error().message == "mine");
  CHECK(guarded_call([] {}).ok());
  const Status outer = guarded([]() -> Status {
    const Status inner = guarded_call([] { throw std::bad_alloc(); });
    if (inner.error().code != Code::kResourceExhausted) return inner;
    throw std::runtime_error("outer");
  });
  CHECK(outer.error().message.find("outer") != std::string::npos);
}

TEST_CASE("the version that runs is that of its headers, the same at every call") {
  CHECK(std::string(version()) == TROUPE_VERSION);
  CHECK(version() == version());
}
