// SPDX-License-Identifier: Apache-2.0
// Coroutines that wait for runs: results, threads, long chains, exceptions, and coroutines that are destroyed while
// they wait.
#include "troupe/run_awaitable.h"

#include <coroutine>
#include <exception>
#include <future>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// A coroutine that begins at once; its frame stays until the Task goes. done() tells what it returned or threw.
template <class T> class Task {
 public:
  struct promise_type {
    std::promise<T> result;
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() { return {}; }
    /// The result is told once nothing of the coroutine runs any more.
    struct Final {
      bool await_ready() noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        std::promise<T> result = std::move(self.promise().result);
        if (self.promise().thrown) result.set_exception(self.promise().thrown);
        else result.set_value(std::move(*self.promise().value));
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_value(T v) { value = std::move(v); }
    void unhandled_exception() { thrown = std::current_exception(); }
    std::optional<T> value;
    std::exception_ptr thrown;
  };

  explicit Task(std::coroutine_handle<promise_type> handle)
      : handle_(handle), result_(handle.promise().result.get_future()) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), result_(std::move(other.result_)) {}
  ~Task() {
    if (handle_) handle_.destroy();
  }
  T get() {
    REQUIRE(result_.wait_for(60s) == std::future_status::ready);
    return result_.get();
  }

 private:
  std::coroutine_handle<promise_type> handle_;
  std::future<T> result_;
};

struct Counter : TestEngine {
  explicit Counter(std::vector<int> threads = {1}) : TestEngine(std::move(threads)) {
    REQUIRE(session->run(reset).ok());
    REQUIRE(scope.ok());
  }
  const Output handle = variable("count", DType::kInt32, {});
  const Node* const reset = scope.node("AssignVariableOp", {handle, scope.constant(0)});
  const Node* const add = scope.node("AssignAddVariableOp", {handle, scope.constant(1)});
  const Output count = scope.op("ReadVariableOp", {handle}, {{"dtype", DType::kInt32}});
  const Output x = placeholder(DType::kInt32, {}), twice = scope.op("AddV2", {x, x});
  int counted() { return (*session->run(count))[0].data<int32_t>()[0]; }
};

int number_or_minus_one(const RunResult& r) { return r.ok() ? (*r)[0].data<int32_t>()[0] : -1; }

TEST_CASE("a coroutine waits for runs of each form", "[run_awaitable]") {
  Counter t;
  auto prepared = t.session->prepare({t.x}, {t.twice});
  REQUIRE(prepared.ok());
  const auto body = [&]() -> Task<std::vector<int>> {
    std::vector<int> got;
    auto fed = t.session->run_async({{t.x, Tensor::scalar(3)}}, t.twice);
    got.push_back(number_or_minus_one(co_await fed));
    const std::vector<Tensor> values = {Tensor::scalar(4)};
    got.push_back(number_or_minus_one(co_await t.session->run_async(*prepared, values)));
    got.push_back((co_await t.session->run_async(t.add)).ok());
    auto both = t.session->run_async({t.add, t.add}, {.deadline = 60s});
    got.push_back((co_await both).ok());
    got.push_back(number_or_minus_one(co_await t.session->run_async(t.count)));
    // Begun together, awaited in turn.
    auto first = t.session->run_async({{t.x, Tensor::scalar(5)}}, {t.twice});
    auto second = t.session->run_async({{t.x, Tensor::scalar(6)}}, {t.twice});
    got.push_back(number_or_minus_one(co_await second));
    got.push_back(number_or_minus_one(co_await first));
    co_return got;
  };
  CHECK(body().get() == std::vector<int>{6, 8, 1, 1, 2, 12, 10});
}

TEST_CASE("a coroutine that waited goes on on a thread of the engine", "[run_awaitable]") {
  Counter t;
  const auto caller = std::this_thread::get_id();
  const Output queue = t.queue("q", DType::kInt32);
  const Output got = t.dequeue(queue, DType::kInt32);
  const Node* put = t.scope.node("QueueEnqueueV2", {queue, t.scope.constant(7)},
                                 {{"Tcomponents", std::vector<DType>{DType::kInt32}}});
  const auto body = [&]() -> Task<bool> {
    const int seven = number_or_minus_one(co_await t.session->run_async(got));
    co_return seven == 7 && std::this_thread::get_id() != caller;
  };
  auto task = body();  // it waits: the queue is empty
  REQUIRE(t.session->run(put).ok());
  CHECK(task.get());
}

TEST_CASE("a long chain of awaits takes no stack", "[run_awaitable]") {
  constexpr int kAwaits = repeats(100'000);
  Counter t;
  const auto steps = [&]() -> Task<int> {
    for (int i = 0; i < kAwaits; ++i)
      if (!(co_await t.session->run_async(t.add)).ok()) co_return -1;
    co_return number_or_minus_one(co_await t.session->run_async(t.count));
  };
  CHECK(steps().get() == kAwaits);
  const auto errors = [&]() -> Task<int> {
    int failed = 0;
    for (int i = 0; i < kAwaits; ++i) failed += !(co_await t.session->run_async(Output())).ok();
    co_return failed;
  };
  CHECK(errors().get() == kAwaits);
  const auto nothing_to_do = [&]() -> Task<int> {
    int done = 0;
    for (int i = 0; i < kAwaits; ++i) done += (co_await t.session->run_async(NodeList())).ok();
    co_return done;
  };
  CHECK(nothing_to_do().get() == kAwaits);
}

TEST_CASE("an exception after a run goes to the coroutine's promise", "[run_awaitable]") {
  Counter t;
  const auto body = [&]() -> Task<int> {
    (void)co_await t.session->run_async(t.add);
    throw std::runtime_error("not today");
  };
  auto task = body();
  CHECK_THROWS_WITH(task.get(), "not today");
  CHECK(t.session->run(t.add).ok());
  CHECK(t.counted() == 2);
}

/// A promise that throws on.
struct Thrower {
  struct promise_type {
    Thrower get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { throw; }
  };
  std::coroutine_handle<promise_type> handle;
};

TEST_CASE("an exception that a promise throws on does not reach the engine", "[run_awaitable]") {
  Counter t;
  // A run that cannot have ended before it is awaited, since then the test's own thread would go on.
  const Output queue = t.queue("q", DType::kInt32);
  const Output got = t.dequeue(queue, DType::kInt32);
  const Node* put = t.scope.node("QueueEnqueueV2", {queue, t.scope.constant(1)});
  std::promise<void> about_to;
  const auto body = [&]() -> Thrower {
    (void)co_await t.session->run_async(got);
    about_to.set_value();
    throw std::runtime_error("not today either");
  };
  const Thrower thrower = body();
  REQUIRE(t.session->run(put).ok());
  about_to.get_future().get();
  for (int i = 0; i < 10; ++i) CHECK(t.session->run(t.add).ok());
  CHECK(t.counted() == 10);
  thrower.handle.destroy();
}

TEST_CASE("a coroutine may be destroyed while it waits", "[run_awaitable]") {
  Counter t;
  const Output queue = t.queue("q", DType::kInt32);
  const Output got = t.dequeue(queue, DType::kInt32);
  struct Told {
    std::atomic<int>& count;
    ~Told() { ++count; }
  };
  std::atomic<int> gone{0}, resumed{0};
  CancelToken token;
  for (int i = 0; i < 100; ++i) {
    const auto body = [&]() -> Task<int> {
      const Told told{gone};
      auto run = t.session->run_async({got}, {.cancel = token});
      (void)co_await run;
      ++resumed;
      co_return 0;
    };
    auto task = body();
  }
  CHECK(gone == 100);
  token.cancel();
  // Their runs end; nobody is there to be resumed.
  CHECK(t.session->run(t.add).ok());
  t.session.reset();
  CHECK(resumed == 0);
}

TEST_CASE("a run that is not awaited goes on", "[run_awaitable]") {
  Counter t;
  for (int i = 0; i < 100; ++i) (void)t.session->run_async(t.add);
  const auto begun = t.session->run_async(t.add);
  t.session.reset();
  t.session = std::make_unique<Session>(*t.engine, t.graph);
  CHECK(t.counted() <= 101);
}

TEST_CASE("many coroutines wait at once", "[run_awaitable]") {
  Counter t({1, 1});
  constexpr int kTasks = 64, kSteps = 50;
  std::vector<Task<int>> tasks;
  const auto body = [&](int k) -> Task<int> {
    int right = 0;
    for (int i = 0; i < kSteps; ++i) {
      auto run = t.session->run_async({{t.x, Tensor::scalar(k + i)}}, t.twice);
      right += number_or_minus_one(co_await run) == 2 * (k + i);
    }
    co_return right;
  };
  for (int k = 0; k < kTasks; ++k) tasks.push_back(body(k));
  for (auto& task : tasks) CHECK(task.get() == kSteps);
}

}  // namespace
}  // namespace troupe
