// SPDX-License-Identifier: Apache-2.0
// What the ends of sessions and engines wait for: each callback of a run that was begun before, whether its step ran,
// could not begin, was one in parts or had a coroutine wait for it.
#include <coroutine>
#include <future>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// A callback that has begun when close() is called and takes long to return: close() must not have returned before.
class Lingering {
 public:
  RunCallback callback() {
    return [this](RunResult r) {
      code_ = r.ok() ? Code::kInternal : r.error().code;
      while (!closing_) std::this_thread::yield();
      for (int i = 0; i < repeats(100); ++i) std::this_thread::yield();
      returned_ = true;
    };
  }
  /// Whether the callback had returned when `close` did.
  template <class F> bool outlasts(F&& close) {
    closing_ = true;
    close();
    return returned_;
  }
  /// The error that the callback was given; kInternal for none.
  Code code() const { return code_; }

 private:
  std::atomic<bool> closing_{false}, returned_{false};
  std::atomic<Code> code_{Code::kInternal};
};

/// A dequeue that waits for ever, and a feed that a step in parts waits for.
struct Waiting : TestEngine {
  Waiting() : TestEngine({1, 1}) { REQUIRE(scope.ok()); }
  const Output x = placeholder(DType::kInt32, {}), twice = scope.op("AddV2", {x, x});
  const Output got = dequeue(queue("q", DType::kInt32), DType::kInt32), sum = scope.op("AddV2", {got, x});
};

TEST_CASE("close waits for the callbacks of runs that could not begin", "[closing]") {
  Waiting t;
  Lingering of_fetch, of_value;
  t.session->run_async({}, Output(), {}, of_fetch.callback());
  CHECK(of_fetch.outlasts([&] { t.session->close(); }));
  CHECK(of_fetch.code() == Code::kInvalidArgument);

  t.session = std::make_unique<Session>(*t.engine, t.graph);
  auto prepared = t.session->prepare({t.x}, {t.twice});
  REQUIRE(prepared.ok());
  t.session->run_async(*prepared, {}, of_value.callback());
  CHECK(of_value.outlasts([&] { t.session.reset(); }));
  CHECK(of_value.code() == Code::kInvalidArgument);
}

TEST_CASE("close waits for the callbacks of steps that it cancels, whole or in parts", "[closing]") {
  Waiting t;
  Lingering whole, in_parts;
  t.session->run_async({}, t.got, {}, whole.callback());
  CHECK(whole.outlasts([&] { t.session.reset(); }));
  CHECK(whole.code() == Code::kCancelled);

  t.session = std::make_unique<Session>(*t.engine, t.graph);
  auto run = t.session->partial_run({t.x}, {t.sum});
  REQUIRE(run.ok());
  run->run_async({{t.x, Tensor::scalar(1)}}, t.sum, in_parts.callback());
  CHECK(in_parts.outlasts([&] { t.session.reset(); }));
  CHECK(in_parts.code() == Code::kCancelled);
}

TEST_CASE("the end of an engine waits for callbacks of every kind", "[closing]") {
  for (int kind = 0; kind < 3; ++kind) {
    Waiting t;
    Lingering lingering;
    std::optional<PartialRun> run;
    if (kind == 0) t.session->run_async({}, Output(), {}, lingering.callback());
    if (kind == 1) t.session->run_async({}, t.got, {}, lingering.callback());
    if (kind == 2) {
      run.emplace(t.session->partial_run({t.x}, {t.sum}).value());
      run->run_async({{t.x, Tensor::scalar(1)}}, t.sum, lingering.callback());
    }
    CHECK(lingering.outlasts([&] { t.engine.reset(); }));
    CHECK(lingering.code() == (kind == 0 ? Code::kInvalidArgument : Code::kCancelled));
    t.session->close();
  }
}

TEST_CASE("close waits for callbacks although the engine is ending on another thread", "[closing]") {
  for (int round = 0; round < repeats(8); ++round) {
    Waiting t;
    Lingering lingering;
    t.session->run_async({}, t.got, {}, lingering.callback());
    std::thread ender([&] { t.engine.reset(); });
    // As soon as the engine has begun to end, runs are refused; the callback keeps it from ending wholly.
    while (t.session->run(NodeList()).ok()) std::this_thread::yield();
    CHECK(lingering.outlasts([&] { t.session->close(); }));
    ender.join();
  }
}

TEST_CASE("several threads may close a session; none returns before the callbacks", "[closing]") {
  Waiting t;
  Lingering lingering;
  t.session->run_async({}, t.got, {}, lingering.callback());
  std::atomic<int> early{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { early += !lingering.outlasts([&] { t.session->close(); }); });
  for (std::thread& thread : threads) thread.join();
  CHECK(early == 0);
}

TEST_CASE("close does not wait for runs that callbacks begin afterwards, which are refused", "[closing]") {
  Waiting t;
  std::atomic<bool> stop{false};
  std::promise<void> stopped;
  std::atomic<int> refused{0};
  std::function<void(RunResult)> next = [&](RunResult r) {
    if (stop) return stopped.set_value();
    refused += !r.ok() && r.error().code == Code::kFailedPrecondition;
    t.session->run_async({}, t.got, {}, next);
  };
  t.session->run_async({}, t.got, {}, next);
  t.session->close();
  while (refused < 10) std::this_thread::yield();
  stop = true;
  REQUIRE(stopped.get_future().wait_for(60s) == std::future_status::ready);
}

/// A coroutine that begins at once and nobody waits for.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

TEST_CASE("a coroutine goes on before the end of its session or engine returns", "[closing]") {
  for (const bool of_engine : {false, true}) {
    for (int round = 0; round < repeats(8); ++round) {
      Waiting t;
      std::atomic<bool> went_on{false};
      Code code = Code::kInternal;
      const auto wait = [&](Output fetch) -> Detached {
        const RunResult r = co_await t.session->run_async(fetch);
        for (int i = 0; i < 20; ++i) std::this_thread::yield();
        if (!r.ok()) code = r.error().code;
        went_on = true;
      };
      const bool begins = round % 2 == 0;
      wait(begins ? t.got : Output());
      if (of_engine) t.engine.reset();
      else t.session.reset();
      REQUIRE(went_on);
      CHECK(code == (begins ? Code::kCancelled : Code::kInvalidArgument));
    }
  }
}

TEST_CASE("a partial run that outlives its session or engine gives their end as its error", "[closing]") {
  for (const bool of_engine : {false, true}) {
    Waiting t;
    PartialRun run = t.session->partial_run({t.x}, {t.sum}).value();
    PartialRun done = t.session->partial_run({t.x}, {t.twice}).value();
    REQUIRE(done.run({{t.x, Tensor::scalar(2)}}, t.twice).ok());
    if (of_engine) t.engine.reset();
    else t.session.reset();
    std::promise<RunResult> later;
    run.run_async({}, {}, [&](RunResult r) { later.set_value(std::move(r)); });
    for (const RunResult& r : {run.run({{t.x, Tensor::scalar(1)}}, t.sum), later.get_future().get()}) {
      REQUIRE_FALSE(r.ok());
      CHECK(r.error().code == Code::kCancelled);
    }
    CHECK(done.run({}).ok());  // it had ended
  }
}

}  // namespace
}  // namespace troupe
