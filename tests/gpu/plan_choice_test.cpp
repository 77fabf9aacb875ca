// SPDX-License-Identifier: Apache-2.0
// The quickest of several ways, found by timing them in the calls that come, without a wait.
#include "gpu/plan_choice.h"

#include <catch2/catch.hpp>

#include "gpu/fake/fake_runtime.h"

namespace troupe::gpu {
namespace {

/// Ways that take so many pieces of work each; a piece takes 1 to 16 microseconds of the fake's clock.
struct Ways {
  explicit Ways(std::vector<int> pieces, FakeOptions options = {})
      : pieces(std::move(pieces)), runtime(std::make_shared<FakeRuntime>(options)),
        stream(runtime->make_stream(0).value()), events(std::make_shared<TimedEvents>(runtime, 0)) {}
  Status call(PlanChoice& choice, bool may_time = true) {
    return choice.call(
        *stream,
        [&](size_t way) -> Status {
          called.push_back(way);
          if (std::ranges::find(failing, way) != failing.end())
            return make_error(Code::kResourceExhausted, "no memory");
          for (int i = 0; i < pieces[way]; ++i) stream->enqueue([] {});
          return {};
        },
        may_time);
  }

  std::vector<int> pieces;
  std::shared_ptr<FakeRuntime> runtime;
  std::unique_ptr<Stream> stream;
  std::shared_ptr<TimedEvents> events;
  std::vector<size_t> called, failing;
};

using Calls = std::vector<size_t>;

}  // namespace

TEST_CASE("plan choice: each way is called twice and timed once, then the quickest is taken") {
  Ways ways({40, 1, 60});
  PlanChoice choice(3, ways.events);
  for (int i = 0; i < 6; ++i) {
    CHECK_FALSE(choice.chosen());
    REQUIRE(ways.call(choice).ok());
    ways.runtime->drain();
  }
  REQUIRE(ways.call(choice).ok());
  CHECK(ways.called == Calls{0, 0, 1, 1, 2, 2, 1});
  CHECK(choice.chosen() == 1);
  CHECK(ways.runtime->timed_records() == 6);
  CHECK(ways.runtime->timed_events() == 2);
  for (int i = 0; i < 5; ++i) REQUIRE(ways.call(choice).ok());
  CHECK(ways.called.back() == 1);
  CHECK(ways.runtime->timed_records() == 6);
}

TEST_CASE("plan choice: nobody waits; until the times are there the first way is taken") {
  Ways ways({40, 1});
  PlanChoice choice(2, ways.events);
  for (int i = 0; i < 8; ++i) REQUIRE(ways.call(choice).ok());
  CHECK(ways.runtime->work_done() == 0);  // by hand: a call that waited would have done work
  CHECK(ways.called == Calls{0, 0, 1, 1, 0, 0, 0, 0});
  CHECK_FALSE(choice.chosen());
  ways.runtime->drain();
  REQUIRE(ways.call(choice).ok());
  CHECK(ways.called.back() == 1);
  CHECK(choice.chosen() == 1);
}

TEST_CASE("plan choice: a way that fails is left out, but for the last one") {
  Ways ways({1, 2, 3});
  PlanChoice choice(3, ways.events);
  ways.failing = {0, 2};
  for (int i = 0; i < 4; ++i) REQUIRE(ways.call(choice).ok());
  CHECK(ways.called == Calls{0, 1, 1, 2, 1, 1});
  CHECK(choice.chosen() == 1);
  ways.failing = {1};
  CHECK(ways.call(choice).error().code == Code::kResourceExhausted);
  ways.failing = {};
  CHECK(ways.call(choice).ok());
  CHECK(ways.called.back() == 1);
}

TEST_CASE("plan choice: one way, none who times, or a moment without events takes what is thought best") {
  Ways ways({3, 1});
  PlanChoice one(1, ways.events), untimed(2, nullptr), sometimes(2, ways.events);
  CHECK(one.chosen() == 0);
  CHECK(untimed.chosen() == 0);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(ways.call(one).ok());
    REQUIRE(ways.call(untimed).ok());
    REQUIRE(ways.call(sometimes, false).ok());
  }
  CHECK(ways.called == Calls(9, 0));
  CHECK_FALSE(sometimes.chosen());
  for (int i = 0; i < 4; ++i) REQUIRE(ways.call(sometimes).ok());
  ways.runtime->drain();
  REQUIRE(ways.call(sometimes).ok());
  CHECK(sometimes.chosen() == 1);
}

TEST_CASE("plan choice: where a card gives no events the first way stays, and nobody waits for a lost card") {
  Ways ways({40, 1});
  PlanChoice choice(2, ways.events);
  for (int i = 0; i < 4; ++i) {
    ways.runtime->fail(FakeCall::kMakeEvent, 1, Code::kResourceExhausted);
    REQUIRE(ways.call(choice).ok());
    ways.runtime->drain();
  }
  REQUIRE(ways.call(choice).ok());
  CHECK(choice.chosen() == 0);

  Ways lost({40, 1});
  PlanChoice other(2, lost.events);
  for (int i = 0; i < 4; ++i) REQUIRE(lost.call(other).ok());
  lost.runtime->lose(0, 0);
  (void)lost.call(other).ok();
  CHECK(other.chosen() == 0);
}

}  // namespace troupe::gpu
