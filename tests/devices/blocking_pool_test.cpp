// SPDX-License-Identifier: Apache-2.0
// The pool for what may wait: side by side, in order beyond its bound, and over in time whatever a job does.
#include "devices/blocking_pool.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <future>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/long_wait.h"
#include "tests/repeats.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// What a job waits on. Shared with it, since it may outlive the test.
struct Gate {
  std::promise<void> promise;
  std::shared_future<void> opened = promise.get_future().share();
  void open() { promise.set_value(); }
};

bool comes(const std::future<void>& f) { return f.wait_for(20s) == std::future_status::ready; }

}  // namespace

TEST_CASE("jobs that wait do not hold up others, and a thread that is free takes the next") {
  BlockingPool pool;
  const auto gate = std::make_shared<Gate>();
  std::latch waiting(20);
  for (int i = 0; i < 20; ++i)
    REQUIRE(pool.run([&waiting, gate] {
                  waiting.count_down();
                  gate->opened.wait();
                })
                .ok());
  waiting.wait();
  CHECK(pool.threads() == 20);
  std::promise<void> ran;
  std::future<void> done = ran.get_future();
  REQUIRE(pool.run([&] { ran.set_value(); }).ok());
  CHECK(comes(done));
  gate->open();
  CHECK(pool.shutdown(20s));
  CHECK(pool.threads() == 0);
}

TEST_CASE("one job after another shares a thread") {
  BlockingPool pool({.keep_idle = 60s});
  for (int i = 0; i < 50; ++i) {
    std::promise<void> ran;
    std::future<void> done = ran.get_future();
    REQUIRE(pool.run([&] { ran.set_value(); }).ok());
    REQUIRE(comes(done));
    while (pool.idle() == 0) std::this_thread::yield();
  }
  CHECK(pool.threads() == 1);
}

TEST_CASE("beyond the bound jobs wait for threads, first come first served") {
  BlockingPool pool({.most_threads = 1});
  const auto gate = std::make_shared<Gate>();
  std::vector<int> order;
  std::promise<void> last;
  std::future<void> done = last.get_future();
  REQUIRE(pool.run([gate] { gate->opened.wait(); }).ok());
  for (int i = 0; i < 10; ++i)
    REQUIRE(pool.run([&, i] {
                  order.push_back(i);
                  if (i == 9) last.set_value();
                })
                .ok());
  CHECK(pool.threads() == 1);
  gate->open();
  CHECK(comes(done));
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("a thread with nothing to do ends, and another comes when it is needed") {
  BlockingPool pool({.keep_idle = 0ms});
  for (int i = 0; i < repeats(40); ++i) {
    std::promise<void> ran;
    std::future<void> done = ran.get_future();
    REQUIRE(pool.run([&] { ran.set_value(); }).ok());
    REQUIRE(comes(done));
    if (i % 4 == 0)
      while (pool.threads() > 0) std::this_thread::yield();
  }
}

TEST_CASE("what a job throws costs nobody else anything") {
  BlockingPool pool({.most_threads = 1});
  std::promise<void> ran;
  std::future<void> done = ran.get_future();
  REQUIRE(pool.run([] { throw std::runtime_error("from the job"); }).ok());
  REQUIRE(pool.run([] { throw 7; }).ok());
  REQUIRE(pool.run([&] { ran.set_value(); }).ok());
  CHECK(comes(done));
}

TEST_CASE("a pool ends in time though a job hangs, and the job ends by itself later") {
  const auto gate = std::make_shared<Gate>();
  std::promise<void> begun;
  std::promise<int> ended;
  std::future<void> there = begun.get_future();
  std::future<int> back = ended.get_future();
  auto kept = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = kept;
  const auto before = std::chrono::steady_clock::now();
  {
    BlockingPool pool;
    REQUIRE(pool.run([gate, kept = std::move(kept), &begun, &ended] {
                  begun.set_value();
                  gate->opened.wait();
                  ended.set_value(*kept);
                })
                .ok());
    REQUIRE(comes(there));
    std::promise<void> other;
    std::future<void> ran = other.get_future();
    REQUIRE(pool.run([&] { other.set_value(); }).ok());  // one thread comes back, one does not
    REQUIRE(comes(ran));
    CHECK_FALSE(pool.shutdown(10ms));
    CHECK_FALSE(pool.shutdown(10ms));  // a second call does no harm
  }
  CHECK(std::chrono::steady_clock::now() - before < 10s);
  CHECK_FALSE(watched.expired());
  gate->open();
  CHECK(back.get() == 7);
  while (!watched.expired()) std::this_thread::yield();
}

TEST_CASE("jobs that have not begun when the pool ends are destroyed, not called; later ones are refused") {
  const auto gate = std::make_shared<Gate>();
  const auto kept = std::make_shared<int>();
  std::atomic<int> called = 0;
  BlockingPool pool({.most_threads = 1});
  std::promise<void> begun;
  std::future<void> there = begun.get_future();
  REQUIRE(pool.run([gate, &begun] {
                begun.set_value();
                gate->opened.wait();
              })
              .ok());
  REQUIRE(comes(there));
  for (int i = 0; i < 5; ++i) REQUIRE(pool.run([kept, &called] { ++called; }).ok());
  CHECK(kept.use_count() == 6);
  CHECK_FALSE(pool.shutdown(0ns));
  CHECK(kept.use_count() == 1);
  const Status late = pool.run([kept, &called] { ++called; });
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code == Code::kCancelled);
  gate->open();
  CHECK(called == 0);
}

TEST_CASE("where no thread can be had, a job waits for one there is, and is refused where there is none") {
  bool may = false;
  BlockingPool pool({.may_start = [&may] { return may; }});
  const Status refused = pool.run([] {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kResourceExhausted);
  may = true;
  const auto gate = std::make_shared<Gate>();
  REQUIRE(pool.run([gate] { gate->opened.wait(); }).ok());
  may = false;
  std::promise<void> ran;
  std::future<void> done = ran.get_future();
  REQUIRE(pool.run([&] { ran.set_value(); }).ok());
  CHECK(pool.threads() == 1);
  gate->open();
  CHECK(comes(done));
}

TEST_CASE("pools that end while jobs come and go lose nothing and call nothing twice") {
  for (int i = 0; i < repeats(100); ++i) {
    std::atomic<int> called = 0, taken = 0;
    {
      BlockingPool pool({.most_threads = 3, .keep_idle = std::chrono::milliseconds(i % 2)});
      std::vector<std::thread> givers;
      for (int t = 0; t < 3; ++t)
        givers.emplace_back([&] {
          for (int j = 0; j < 50; ++j) taken += pool.run([&] { ++called; }).ok();
        });
      for (std::thread& giver : givers) giver.join();
      CHECK(pool.shutdown(20s));
    }
    CHECK(called <= taken);
    CHECK(taken == 150);
  }
}

TEST_CASE("what a refused job holds may use the pool as it goes") {
  BlockingPool pool({.may_start = [] { return false; }});
  size_t threads = 1;
  std::shared_ptr<void> held(nullptr, [&](void*) { threads = pool.threads(); });
  CHECK(pool.run([held = std::move(held)] {}).error().code == Code::kResourceExhausted);
  CHECK(threads == 0);
}

TEST_CASE("jobs that wait for other jobs do not keep these from a thread") {
  constexpr int kDeep = 5;
  BlockingPool pool({.most_threads = 2});
  struct Nested {
    static void run(BlockingPool& pool, int depth) {
      if (depth == 0) return;
      const auto ran = std::make_shared<std::promise<void>>();
      std::future<void> done = ran->get_future();
      const Status asked = pool.run([&pool, ran, depth] {
        run(pool, depth - 1);
        ran->set_value();
      });
      const LongWait wait;
      if (asked.ok()) done.wait();
    }
  };
  std::vector<std::future<void>> all;
  std::vector<std::promise<void>> ran(10);
  for (std::promise<void>& each : ran) {
    all.push_back(each.get_future());
    REQUIRE(pool.run([&pool, &each] {
                  Nested::run(pool, kDeep);
                  each.set_value();
                })
                .ok());
  }
  for (const std::future<void>& each : all) REQUIRE(comes(each));
  while (pool.threads() > 2) std::this_thread::yield();  // those that came in the place of others end
}

TEST_CASE("jobs that have waited count again") {
  BlockingPool pool({.most_threads = 1});
  const auto back = std::make_shared<Gate>(), go = std::make_shared<Gate>();
  std::promise<void> waited, began;
  std::future<void> first_is_back = waited.get_future(), second_runs = began.get_future();
  REQUIRE(pool.run([&waited, back, go] {
                {
                  const LongWait wait;
                  const LongWait within;
                  back->opened.wait();
                }
                waited.set_value();
                go->opened.wait();
              })
              .ok());
  REQUIRE(pool.run([&began, go] {
                began.set_value();
                go->opened.wait();
              })
              .ok());
  REQUIRE(comes(second_runs));
  back->open();
  REQUIRE(comes(first_is_back));
  CHECK(pool.threads() == 2);
  std::promise<void> third;
  std::future<void> third_runs = third.get_future();
  REQUIRE(pool.run([&third] { third.set_value(); }).ok());
  CHECK(pool.threads() == 2);
  CHECK(third_runs.wait_for(0s) != std::future_status::ready);
  go->open();
  CHECK(comes(third_runs));
}

TEST_CASE("where no thread can be had and all that there are wait for others, a job is refused") {
  bool may = true;
  BlockingPool pool({.may_start = [&may] { return may; }});
  const auto gate = std::make_shared<Gate>();
  std::promise<void> begun;
  std::future<void> waits = begun.get_future();
  REQUIRE(pool.run([gate, &begun] {
                const LongWait wait;
                begun.set_value();
                gate->opened.wait();
              })
              .ok());
  REQUIRE(comes(waits));
  may = false;
  const Status refused = pool.run([] {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kResourceExhausted);
  gate->open();
}
