// SPDX-License-Identifier: Apache-2.0
// Completions: each function is called once, in the order of its stream, whatever fails or ends before.
#include "gpu/completions.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <mutex>
#include <thread>

#include "gpu/fake/fake_runtime.h"
#include "tests/repeats.h"

namespace troupe::gpu {
namespace {

/// Keeps what functions were told, by number.
struct Told {
  std::function<void(Status)> as(int number) {
    return [this, number](Status status) {
      std::lock_guard guard(mutex);
      order.push_back(number);
      codes.push_back(status.ok() ? "ok" : to_string(status.error().code));
    };
  }
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::string> codes;
};

CompletionsOptions passive() { return {.passive = true}; }

}  // namespace

TEST_CASE("completions: by hand, functions are called for what is done, in the order of each stream") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto fake = std::make_shared<FakeRuntime>(FakeOptions{.seed = seed});
    auto a = fake->make_stream(0).value(), b = fake->make_stream(0).value();
    Completions completions(fake, passive());
    Told in_a, in_b;
    int done_a = 0;
    std::vector<int> seen;
    for (int i = 0; i < 5; ++i) {
      a->enqueue([&] { ++done_a; });
      b->enqueue([] {});
      CHECK(completions.watch(*a, in_a.as(i)) == static_cast<uint64_t>(2 * i + 1));
      completions.watch(*b, in_b.as(i));
    }
    CHECK(completions.poll() == 0);
    size_t told = 0;
    while (fake->step()) {
      told += static_cast<size_t>(completions.poll());
      CHECK(static_cast<int>(in_a.order.size()) <= done_a);
      CHECK(told == in_a.order.size() + in_b.order.size());
    }
    CHECK(in_a.order == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(in_b.order == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(in_a.codes == std::vector<std::string>(5, "ok"));
    CHECK(completions.poll() == 0);
  }
}

TEST_CASE("completions: a function may watch more, and its stream may go") {
  auto fake = std::make_shared<FakeRuntime>();
  auto a = fake->make_stream(0).value(), b = fake->make_stream(0).value();
  Completions completions(fake, passive());
  Told told;
  a->enqueue([] {});
  completions.watch(*a, [&](Status status) {
    told.as(0)(status);
    completions.watch(*b, told.as(1));
  });
  completions.watch(*a, told.as(2));
  a.reset();
  while (told.order.size() < 3) {
    completions.poll();
    fake->step();
  }
  CHECK(told.order[0] == 0);
}

TEST_CASE("completions: what cannot be watched fails in its turn, what fails to be looked at is looked at again") {
  auto fake = std::make_shared<FakeRuntime>();
  auto a = fake->make_stream(0).value();
  Completions completions(fake, passive());
  Told told;
  a->enqueue([] {});
  completions.watch(*a, told.as(0));
  fake->fail(FakeCall::kRecord, 1, Code::kInternal);
  completions.watch(*a, told.as(1));
  fake->fail(FakeCall::kMakeEvent, 1, Code::kResourceExhausted);
  completions.watch(*a, told.as(2));
  completions.watch(*a, told.as(3));
  CHECK(completions.poll() == 0);  // not before the first
  fake->drain();
  fake->fail(FakeCall::kEventDone, 1, Code::kInternal);
  CHECK(completions.poll() == 0);
  CHECK(completions.poll() == 4);
  CHECK(told.order == std::vector<int>{0, 1, 2, 3});
  CHECK(told.codes == std::vector<std::string>{"ok", "internal", "resource exhausted", "ok"});
}

TEST_CASE("completions: a lost card fails all that is watched, and what is watched later") {
  for (const bool by_hand : {true, false}) {
    auto fake = std::make_shared<FakeRuntime>(FakeOptions{.by_hand = by_hand});
    auto a = fake->make_stream(0).value(), b = fake->make_stream(0).value();
    Told told;
    {
      Completions completions(fake, {.passive = by_hand});
      fake->hold(*a);
      a->enqueue([] {});
      b->enqueue([] {});
      completions.watch(*a, told.as(0));
      completions.watch(*b, told.as(1));
      fake->lose(0, 0);
      completions.watch(*b, told.as(2));
    }
    CHECK(told.order.size() == 3);
    for (const std::string& code : told.codes) CHECK((code == "unavailable" || code == "ok"));
    CHECK(std::count(told.codes.begin(), told.codes.end(), "unavailable") >= 2);
  }
}

TEST_CASE("completions: destroyed by hand, what is left is cancelled when its work is done, or fails if it cannot be") {
  auto fake = std::make_shared<FakeRuntime>();
  auto a = fake->make_stream(0).value(), b = fake->make_stream(0).value();
  Told told;
  bool ran = false;
  {
    Completions completions(fake, passive());
    a->enqueue([&] { ran = true; });
    completions.watch(*a, [&](Status status) {
      CHECK(ran);
      told.as(0)(status);
    });
    completions.watch(*a, told.as(1));
  }
  CHECK(told.order == std::vector<int>{0, 1});
  CHECK(told.codes == std::vector<std::string>(2, "cancelled"));
  {
    Completions completions(fake, passive());
    b->enqueue([] {});
    fake->hold(*b);
    completions.watch(*b, told.as(2));
  }
  CHECK(told.order.size() == 3);
  CHECK(told.codes[2] == "internal");
  auto c = fake->make_stream(0).value();
  auto gone = std::make_unique<Completions>(fake, passive());
  gone->watch(*a, [&](Status status) {
    told.as(3)(status);
    gone.reset();  // in poll()
  });
  gone->watch(*c, told.as(4));
  fake->drain();
  CHECK(gone->poll() == 1);
  CHECK(told.order.size() == 5);
}

TEST_CASE("completions: threads tell of many streams, each in its order, whoever watches") {
  auto fake = std::make_shared<FakeRuntime>(FakeOptions{.seed = 3, .by_hand = false});
  for (const int spin_us : {0, 30}) {
    constexpr int kStreams = 3, kWatchers = 3;
    const int each = repeats(200);
    std::vector<std::unique_ptr<Stream>> streams;
    for (int s = 0; s < kStreams; ++s) streams.push_back(fake->make_stream(0).value());
    std::atomic<int> told{0}, wrong{0};
    std::atomic<int> last[kStreams][kWatchers] = {};
    std::promise<void> all;
    {
      Completions completions(fake, {.spin = std::chrono::microseconds(spin_us)});
      std::vector<std::thread> watchers;
      for (int w = 0; w < kWatchers; ++w)
        watchers.emplace_back([&, w] {
          for (int i = 1; i <= each; ++i)
            for (int s = 0; s < kStreams; ++s) {
              auto ran = std::make_shared<std::atomic<bool>>(false);
              streams[s]->enqueue([ran] { *ran = true; });
              completions.watch(*streams[s], [&, ran, s, w, i](Status status) {
                wrong += !status.ok() || !*ran || last[s][w].exchange(i) != i - 1;
                if (++told == kStreams * kWatchers * each) all.set_value();
              });
            }
        });
      for (std::thread& watcher : watchers) watcher.join();
      all.get_future().wait();
    }
    CHECK(told == kStreams * kWatchers * each);
    CHECK(wrong == 0);
  }
}

TEST_CASE("completions: work that lasts in one stream does not keep another's from being told of") {
  auto fake = std::make_shared<FakeRuntime>(FakeOptions{.by_hand = false});
  auto collective = fake->make_stream(0).value(), send = fake->make_stream(0).value();
  Completions completions(fake, {.spin = std::chrono::microseconds(0)});
  std::promise<void> first, second;
  fake->hold(*collective);  // until the other is told of
  collective->enqueue([] {});
  completions.watch(*collective, [&](Status) { first.set_value(); });
  send->enqueue([] {});
  completions.watch(*send, [&](Status) { fake->hold(*collective, false), second.set_value(); });
  second.get_future().wait();
  first.get_future().wait();
}

TEST_CASE("completions: destroyed while threads wait, or by one of its functions, all are called") {
  for (int seed = 0; seed < repeats(20); ++seed) {
    auto fake = std::make_shared<FakeRuntime>(FakeOptions{.seed = static_cast<uint64_t>(seed), .by_hand = false});
    auto a = fake->make_stream(0).value(), b = fake->make_stream(0).value();
    std::atomic<int> told{0};
    std::promise<void> last;
    auto completions = std::make_unique<Completions>(fake, CompletionsOptions{});
    const auto count = [&](Status) {
      if (++told == 8) last.set_value();
    };
    fake->hold(*a);
    for (int i = 0; i < 3; ++i) {
      a->enqueue([] {});
      b->enqueue([] {});
      completions->watch(*b, count);
      if (i == 0 && seed % 2)
        completions->watch(*a, [&](Status status) {
          completions.reset();
          count(status);
        });
      else completions->watch(*a, count);
    }
    completions->watch(*b, count);
    completions->watch(*a, count);
    if (seed % 2) {
      fake->hold(*a, false);
    } else {
      std::thread lets_go([&] { fake->hold(*a, false); });
      completions.reset();
      lets_go.join();
    }
    last.get_future().wait();
    CHECK(told == 8);
  }
}

}  // namespace troupe::gpu
