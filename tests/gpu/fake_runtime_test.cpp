// SPDX-License-Identifier: Apache-2.0
// The fake of CUDA: order of streams, events, memory, faults on demand, and that nobody hangs.
#include "gpu/fake/fake_runtime.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

#include "tests/repeats.h"

namespace troupe::gpu {
namespace {

/// Mapped memory of card 0 that goes with the test.
struct CardMemory {
  CardMemory(FakeRuntime& fake, size_t bytes, int card = 0) : fake(fake), bytes(bytes) {
    at = fake.reserve(card, bytes).value();
    REQUIRE(fake.map(card, at, bytes).ok());
  }
  ~CardMemory() {
    fake.unmap(at, bytes);
    fake.unreserve(at, bytes);
  }
  char* bytes_at(size_t offset) const { return static_cast<char*>(at) + offset; }
  FakeRuntime& fake;
  size_t bytes;
  void* at = nullptr;
};

struct Pinned {
  Pinned(FakeRuntime& fake, size_t bytes) : fake(fake), bytes(bytes), at(static_cast<char*>(fake.pin(bytes).value())) {}
  ~Pinned() { fake.unpin(at, bytes); }
  FakeRuntime& fake;
  size_t bytes;
  char* at;
};

constexpr size_t kUnit = size_t{2} << 20;

}  // namespace

TEST_CASE("fake: nothing is done before a step, and then in the order of the stream") {
  FakeRuntime fake;
  auto stream = fake.make_stream(0).value();
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) stream->enqueue([&order, i] { order.push_back(i); });
  CHECK(stream->check_launch("count").ok());
  CHECK(order.empty());
  CHECK(fake.pending() == 5);
  CHECK(fake.step());
  CHECK(order == std::vector<int>{0});
  fake.drain();
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
  CHECK_FALSE(fake.step());
  CHECK(fake.work_done() == 5);
}

TEST_CASE("fake: the seed draws which stream goes next, and draws the same again") {
  const auto order_of = [](uint64_t seed) {
    FakeRuntime fake({.seed = seed});
    auto a = fake.make_stream(0).value(), b = fake.make_stream(0).value();
    std::string order;
    for (int i = 0; i < 6; ++i) {
      a->enqueue([&] { order += 'a'; });
      b->enqueue([&] { order += 'b'; });
    }
    fake.drain();
    return order;
  };
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    orders.insert(order_of(seed));
    CHECK(order_of(seed) == order_of(seed));
  }
  CHECK(orders.size() > 10);
}

TEST_CASE("fake: a stream waits for what an event marked when it was told to, whatever is recorded later") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FakeRuntime fake({.seed = seed, .cards = 2});
    auto a = fake.make_stream(0).value(), b = fake.make_stream(1).value();
    auto event = fake.make_event(0).value();
    int before = 0, after = 0, seen_before = -1;
    CHECK(b->wait(*event).ok());  // never recorded: nothing to wait for
    a->enqueue([&] { ++before; });
    CHECK(a->record(*event).ok());
    CHECK(b->wait(*event).ok());
    fake.hold(*a, seed % 2 == 1);
    a->enqueue([&] { ++after; });
    CHECK(a->record(*event).ok());  // again: b does not wait for this
    b->enqueue([&] { seen_before = before; });
    if (seed % 2 == 1) {  // all of `a` but the last two is done, and b is done
      CHECK(fake.step(*b) == false);
      fake.hold(*a, false);
      CHECK(fake.step(*a));
      CHECK(fake.step(*a));
      fake.hold(*a);
      fake.drain();
      CHECK(after == 0);
      CHECK(seen_before == 1);
      CHECK_FALSE(event->done().value());
      fake.hold(*a, false);
    }
    fake.drain();
    CHECK(seen_before == 1);
    CHECK(after == 1);
    CHECK(event->done().value());
  }
}

TEST_CASE("fake: an event that was never recorded is done; one may go while a stream waits for it") {
  FakeRuntime fake;
  auto a = fake.make_stream(0).value(), b = fake.make_stream(0).value();
  auto event = fake.make_event(0).value();
  CHECK(event->done().value());
  CHECK(event->wait().ok());
  std::string order;
  a->enqueue([&] { order += 'a'; });
  CHECK(a->record(*event).ok());
  CHECK(b->wait(*event).ok());
  b->enqueue([&] { order += 'b'; });
  CHECK_FALSE(event->done().value());
  event.reset();
  fake.drain();
  CHECK(order == "ab");
}

TEST_CASE("fake: by hand, waiting does the work, and is an error where none can be done") {
  FakeRuntime fake;
  auto a = fake.make_stream(0).value(), b = fake.make_stream(0).value();
  auto first = fake.make_event(0).value(), second = fake.make_event(0).value();
  bool ran = false;
  a->enqueue([&] { ran = true; });
  CHECK(a->record(*first).ok());
  CHECK(b->wait(*first).ok());
  CHECK(b->record(*second).ok());
  fake.hold(*a);
  const Status stuck = second->wait();
  REQUIRE_FALSE(stuck.ok());
  CHECK(stuck.error().message == "Event::wait on card 0: nothing can be done any more");
  CHECK_FALSE(ran);
  fake.hold(*a, false);
  CHECK(second->wait().ok());
  CHECK(ran);
  Status within;
  a->enqueue([&] { within = first->wait(); });
  CHECK(a->record(*first).ok());
  CHECK(first->wait().ok());
  REQUIRE_FALSE(within.ok());
  CHECK(within.error().code == Code::kInternal);
}

TEST_CASE("fake: a stream that goes does its work first, even behind one that is held") {
  FakeRuntime fake;
  auto a = fake.make_stream(0).value();
  auto b = fake.make_stream(0).value();
  auto event = fake.make_event(0).value();
  std::string order;
  a->enqueue([&] { order += 'a'; });
  CHECK(a->record(*event).ok());
  CHECK(b->wait(*event).ok());
  b->enqueue([&] { order += 'b'; });
  fake.hold(*a);
  b.reset();
  CHECK(order == "ab");
}

TEST_CASE("fake: memory is reserved, mapped full of NaN, and counted; none is given beyond the card's") {
  FakeRuntime fake({.cards = 2, .memory = int64_t{3} << 21});
  CHECK(fake.cards().size() == 2);
  CHECK(fake.granularity(0) == kUnit);
  CHECK_FALSE(fake.reserve(0, kUnit + 1).ok());
  CHECK_FALSE(fake.reserve(2, kUnit).ok());
  char* const at = static_cast<char*>(fake.reserve(0, 16 * kUnit).value());
  CHECK(reinterpret_cast<uintptr_t>(at) % kUnit == 0);
  CHECK(fake.free_memory(0).value() == int64_t{3} << 21);
  REQUIRE(fake.map(0, at, 2 * kUnit).ok());
  CHECK(fake.free_memory(0).value() == int64_t{1} << 21);
  CHECK(fake.free_memory(1).value() == int64_t{3} << 21);
  float first;
  std::memcpy(&first, at, sizeof first);
  CHECK(std::isnan(first));
  CHECK(fake.map(0, at + kUnit, kUnit).error().code == Code::kInternal);      // mapped already
  CHECK(fake.map(1, at + 4 * kUnit, kUnit).error().code == Code::kInternal);  // of another card
  CHECK(fake.map(0, at + 15 * kUnit, 2 * kUnit).error().code == Code::kInternal);
  CHECK(fake.map(0, at + 4 * kUnit, 2 * kUnit).error().code == Code::kResourceExhausted);
  REQUIRE(fake.map(0, at + 4 * kUnit, kUnit).ok());
  CHECK(fake.mapped(0) == int64_t{3} << 21);
  fake.unmap(at, 2 * kUnit);
  fake.unmap(at + 4 * kUnit, kUnit);
  CHECK(fake.mapped(0) == 0);
  fake.unreserve(at, 16 * kUnit);
  CHECK(fake.faults().empty());
}

TEST_CASE("fake: copies and fills go between hosts and cards; unpinned memory is copied before the call returns") {
  FakeRuntime fake({.cards = 2});
  auto stream = fake.make_stream(0).value();
  const CardMemory here(fake, kUnit), there(fake, kUnit, 1);
  const Pinned from(fake, 100), to(fake, 100);
  std::memset(from.at, 7, 100);
  CHECK(stream->copy(here.at, from.at, 100).ok());
  CHECK(stream->fill(here.bytes_at(10), 9, 10).ok());
  CHECK(stream->copy(there.at, here.at, 100).ok());
  CHECK(stream->copy(to.at, there.at, 100).ok());
  CHECK(stream->copy(to.at, there.at, 0).ok());
  CHECK(static_cast<unsigned char>(to.at[0]) == 0xff);
  fake.drain();
  CHECK(to.at[9] == 7);
  CHECK(to.at[10] == 9);
  CHECK(to.at[19] == 9);
  CHECK(to.at[20] == 7);
  CHECK(fake.unpinned_copies() == 0);

  char plain[100] = {3};
  CHECK(stream->copy(here.at, plain, 100).ok());
  CHECK(fake.pending() == 0);
  CHECK(*here.bytes_at(0) == 3);
  plain[0] = 4;
  CHECK(stream->copy(plain, here.at, 100).ok());
  CHECK(plain[0] == 3);
  const Access read{plain, 100, false};
  fake.host_uses({&read, 1});  // the host knows that it is done
  CHECK(fake.unpinned_copies() == 2);
  CHECK(fake.faults().empty());
}

TEST_CASE("fake: a copy that does not finish leaves the caller's memory alone") {
  FakeRuntime fake;
  auto stream = fake.make_stream(0).value();
  CardMemory memory(fake, kUnit);
  fake.hold(*stream);
  char plain[8] = {};
  const Status stuck = stream->copy(plain, memory.at, 8);
  REQUIRE_FALSE(stuck.ok());
  fake.hold(*stream, false);
  fake.drain();
  CHECK(plain[0] == 0);
}

TEST_CASE("fake: races between streams, with the host and on freed addresses are found whatever the seed") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    FakeRuntime fake({.seed = seed});
    auto a = fake.make_stream(0).value(), b = fake.make_stream(0).value();
    auto event = fake.make_event(0).value();
    const CardMemory memory(fake, kUnit);
    const Pinned host(fake, 64);
    const Access write{memory.at, 64, true}, read{memory.at, 64, false}, host_read{host.at, 64, false};
    a->uses({&write, 1});
    a->enqueue([] {});
    CHECK(a->check_launch("first").ok());
    CHECK(a->record(*event).ok());
    CHECK(b->wait(*event).ok());
    b->uses({&read, 1});
    b->enqueue([] {});
    CHECK(b->check_launch("second").ok());
    CHECK(fake.faults().empty());

    fake.poison(memory.at, 64, *a);  // b may read yet
    REQUIRE(fake.faults().size() == 1);
    CHECK(fake.faults()[0].find("poison (work 2 of stream 1 (card 0)) writes 64 bytes") == 0);
    CHECK(fake.faults()[0].find("second (work 1 of stream 2 (card 0)) reads") != std::string::npos);
    CHECK(b->copy(host.at, memory.at, 64).ok());
    fake.host_uses({&host_read, 1});
    CHECK(fake.faults().size() == 3);
    CHECK(b->record(*event).ok());
    CHECK(event->wait().ok());
    fake.host_uses({&host_read, 1});
    CHECK(fake.faults().size() == 3);
    fake.drain();
    CHECK(static_cast<unsigned char>(*memory.bytes_at(0)) == 0xff);
  }
}

TEST_CASE("fake: memory that is unmapped under work is a fault, and loses the card rather than crash") {
  FakeRuntime fake;
  auto stream = fake.make_stream(0).value();
  void* const at = fake.reserve(0, kUnit).value();
  REQUIRE(fake.map(0, at, kUnit).ok());
  CHECK(stream->fill(at, 1, 8).ok());
  fake.unmap(at, kUnit);
  CHECK(fake.faults().size() == 1);
  fake.drain();
  const Status after = stream->fill(at, 1, 8);
  REQUIRE_FALSE(after.ok());
  CHECK(after.error().code == Code::kUnavailable);
  CHECK(after.error().message ==
        "Stream::fill on card 0: the card is lost: a fill of stream 1 (card 0) used an illegal address");
  fake.unreserve(at, kUnit);
}

TEST_CASE("fake: the n-th call of a kind fails as asked, and the next works") {
  FakeRuntime fake;
  fake.fail(FakeCall::kMakeStream, 2, Code::kResourceExhausted);
  auto stream = fake.make_stream(0).value();
  const auto refused = fake.make_stream(0);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kResourceExhausted);
  CHECK(refused.error().message == "Runtime::make_stream on card 0: failed as the test asked");
  CHECK(fake.make_stream(0).ok());
  fake.fail(FakeCall::kPin, 1, Code::kResourceExhausted);
  CHECK(fake.pin(8).error().code == Code::kResourceExhausted);

  fake.fail(FakeCall::kLaunch, 2, Code::kInternal);
  int ran = 0;
  for (int i = 0; i < 3; ++i) stream->enqueue([&ran, i] { ran += 1 << i; });
  const Status launch = stream->check_launch("softmax");
  REQUIRE_FALSE(launch.ok());
  CHECK(launch.error().message.find("softmax on card 0") == 0);
  CHECK(stream->check_launch("softmax").ok());  // said once
  fake.drain();
  CHECK(ran == 5);
}

TEST_CASE("fake: a lost card refuses every call by name, drops its work, and hangs nobody") {
  FakeRuntime fake({.cards = 2});
  auto lost = fake.make_stream(0).value(), other = fake.make_stream(1).value();
  auto event = fake.make_event(0).value(), theirs = fake.make_event(1).value();
  auto timed = fake.make_event(0, true).value();
  int ran = 0, ran_there = 0;
  fake.lose(0, 3);
  for (int i = 0; i < 5; ++i) lost->enqueue([&] { ++ran; });
  CHECK(lost->record(*event).ok());
  CHECK(other->wait(*event).ok());
  other->enqueue([&] { ++ran_there; });
  CHECK(other->record(*theirs).ok());
  CHECK(theirs->wait().ok());
  CHECK(ran == 2);
  CHECK(ran_there == 1);
  const auto expect = [](const Status& status, const char* call) {
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Code::kUnavailable);
    CHECK(status.error().message.find(std::string(call) + " on card 0: the card is lost") == 0);
  };
  expect(event->done().status(), "Event::done");
  expect(event->wait(), "Event::wait");
  expect(timed->us_since(*timed).status(), "Event::us_since");
  expect(lost->record(*event), "Stream::record");
  expect(lost->wait(*theirs), "Stream::wait");
  expect(lost->copy(&ran, &ran_there, 4), "Stream::copy");
  expect(lost->fill(&ran, 0, 4), "Stream::fill");
  expect(lost->check_launch("relu"), "relu");
  expect(fake.make_stream(0).status(), "Runtime::make_stream");
  expect(fake.make_event(0).status(), "Runtime::make_event");
  expect(fake.connect(0, 1).status(), "Runtime::connect");
  expect(fake.reserve(0, kUnit).status(), "Runtime::reserve");
  expect(fake.map(0, nullptr, kUnit), "Runtime::map");
  expect(fake.free_memory(0).status(), "Runtime::free_memory");
  lost->enqueue([&] { ++ran; });
  fake.drain();
  CHECK(ran == 2);
  CHECK(fake.make_stream(1).ok());
}

TEST_CASE("fake: a card's kernels use the memory of those that it is connected to, copies that of all") {
  for (const bool peers : {true, false}) {
    FakeRuntime fake({.cards = 2, .peers = peers});
    CHECK(fake.connect(0, 1).value() == peers);
    CHECK(fake.connect(0, 0).error().code == Code::kInternal);
    auto stream = fake.make_stream(0).value();
    const CardMemory there(fake, kUnit, 1), here(fake, kUnit);
    CHECK(stream->copy(here.at, there.at, 8).ok());
    CHECK(fake.faults().empty());
    const Access read{there.at, 8, false};
    stream->uses({&read, 1});
    stream->enqueue([] {});
    CHECK(fake.faults().size() == (peers ? 0u : 1u));
    stream.reset();
  }
}

TEST_CASE("fake: streams have names of their own, and nothing is checked where it is not asked for") {
  for (const bool checked : {true, false}) {
    FakeRuntime fake({.checked = checked});
    auto first = fake.make_stream(0).value(), second = fake.make_stream(0).value();
    first.reset();
    auto third = fake.make_stream(0).value();
    const CardMemory memory(fake, kUnit);
    CHECK(second->fill(memory.at, 0, 8).ok());
    CHECK(third->fill(memory.at, 0, 8).ok());
    REQUIRE(fake.faults().size() == (checked ? 1u : 0u));
    if (checked) {
      CHECK(fake.faults()[0].find("of stream 2 (card 0)") != std::string::npos);
      CHECK(fake.faults()[0].find("of stream 3 (card 0)") != std::string::npos);
    }
    fake.drain();
  }
}

TEST_CASE("fake: what work throws loses the card") {
  FakeRuntime fake;
  auto stream = fake.make_stream(0).value();
  auto event = fake.make_event(0).value();
  stream->enqueue([] { throw std::runtime_error("a bug"); });
  CHECK(stream->record(*event).ok());
  const Status after = event->wait();
  REQUIRE_FALSE(after.ok());
  CHECK(after.error().message.find("threw: a bug") != std::string::npos);
}

TEST_CASE("fake: timed events tell the time between them, by a clock that the seed decides") {
  FakeRuntime fake({.cards = 2});
  auto stream = fake.make_stream(0).value();
  auto start = fake.make_event(0, true).value(), end = fake.make_event(0, true).value();
  auto plain = fake.make_event(0).value(), foreign = fake.make_event(1).value();
  CHECK(stream->record(*start).ok());
  for (int i = 0; i < 3; ++i) stream->enqueue([] {});
  CHECK(stream->record(*end).ok());
  CHECK_FALSE(end->us_since(*start).ok());
  fake.drain();
  const double took = end->us_since(*start).value();
  CHECK((took >= 3 && took <= 48 && took == std::floor(took)));
  CHECK_FALSE(end->us_since(*plain).ok());
  CHECK(stream->record(*foreign).error().code == Code::kInternal);
}

TEST_CASE("fake: the clock is the same for a seed, another for others, and never goes back in a stream") {
  const auto times = [](uint64_t seed) {
    FakeRuntime fake({.seed = seed});
    auto stream = fake.make_stream(0).value();
    std::vector<std::unique_ptr<Event>> events;
    for (int i = 0; i < 20; ++i) {
      events.push_back(fake.make_event(0, true).value());
      CHECK(stream->record(*events.back()).ok());
      stream->enqueue([] {});
    }
    CHECK(fake.timed_events() == 20);
    CHECK(fake.timed_records() == 20);
    fake.drain();
    std::vector<double> out;
    for (const auto& event : events) out.push_back(event->us_since(*events[0]).value());
    CHECK(std::is_sorted(out.begin(), out.end()));
    events.clear();
    CHECK(fake.timed_events() == 0);
    return out;
  };
  CHECK(times(3) == times(3));
  CHECK(times(3) != times(4));
}

TEST_CASE("fake: with a thread, work of many streams and threads is done in its order, and waits end") {
  FakeRuntime fake({.seed = 7, .cards = 2, .by_hand = false});
  constexpr int kThreads = 4;
  const int kPieces = repeats(200);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto a = fake.make_stream(t % 2).value(), b = fake.make_stream((t + 1) % 2).value();
      auto event = fake.make_event(t % 2).value(), back = fake.make_event((t + 1) % 2).value();
      int value = 0;
      for (int i = 0; i < kPieces; ++i) {
        a->enqueue([&value, &wrong, i] { wrong += std::exchange(value, 2 * i + 1) != 2 * i; });
        wrong += !a->record(*event).ok() + !b->wait(*event).ok();
        b->enqueue([&value, &wrong, i] { wrong += std::exchange(value, 2 * i + 2) != 2 * i + 1; });
        wrong += !b->record(*back).ok() + !a->wait(*back).ok();
        if (i % 16 == 0) wrong += !back->wait().ok() || value != 2 * i + 2;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(fake.pending() == 0);
}

TEST_CASE("fake: with a thread, the loss of a card ends all waits for it") {
  for (int seed = 0; seed < repeats(20); ++seed) {
    FakeRuntime fake({.seed = static_cast<uint64_t>(seed), .by_hand = false});
    auto stream = fake.make_stream(0).value();
    auto event = fake.make_event(0).value();
    fake.hold(*stream);
    stream->enqueue([] {});
    REQUIRE(stream->record(*event).ok());
    std::thread waiter([&] { CHECK(event->wait().error().code == Code::kUnavailable); });
    fake.lose(0, seed % 2);
    fake.hold(*stream, false);
    waiter.join();
  }
}

TEST_CASE("fake: the runtime may go while streams are left, and from its own work") {
  auto fake = std::make_shared<FakeRuntime>(FakeOptions{.by_hand = false});
  auto stream = fake->make_stream(0).value();
  fake->hold(*stream);
  std::atomic<bool> ran{false};
  stream->enqueue([&ran, kept = fake] { ran = true; });
  std::weak_ptr<FakeRuntime> gone = fake;
  fake->hold(*stream, false);
  fake.reset();
  stream.reset();  // waits for the work, in which the last of the runtime goes
  CHECK(ran);
  CHECK(gone.expired());
}

}  // namespace troupe::gpu
