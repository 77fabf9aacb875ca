// SPDX-License-Identifier: Apache-2.0
// Threads that wait for a step and run its devices meanwhile.
#include <omp.h>
#include <pthread.h>

#include <barrier>
#include <semaphore>
#include <thread>

#include "tests/engine/fixtures.h"

using namespace troupe;

namespace {

/// An engine whose op Calls gives back its input after a call of `body`.
struct Caller {
  struct Calls : ComputeKernel {
    explicit Calls(const Caller& caller) : caller(caller) {}
    Status compute(KernelContext& c) override {
      caller.body();
      c.set_output(0, c.input(0));
      return {};
    }
    const Caller& caller;
  };
  explicit Caller(std::vector<int> threads = {1}) {
    auto made = Engine::create(
        {.cpu_threads = std::move(threads),
         .op_library = testing::op_library(),
         .register_ops = [this](OpRegistry& ops, KernelRegistry& kernels) {
           ops.add(
               OpDef("Calls").input("x: float32").output("y: float32").doc("Calls.").shape(unchanged_shape).stateful(),
               not_differentiable("a test's"));
           kernels.add("Calls", DeviceKind::kCpu, {}, [this](const KernelInit&) -> Result<std::unique_ptr<Calls>> {
             return std::make_unique<Calls>(*this);
           });
         }});
    REQUIRE(made.ok());
    engine = std::move(*made);
    graph = std::make_unique<Graph>(engine->ops());
    const Scope scope(*graph);
    for (size_t i = 0; i < engine->devices().size(); ++i)
      calls.push_back(scope.device(fmt::format("/cpu:{}", i)).op("Calls", {scope.constant(static_cast<float>(i))}));
    REQUIRE(scope.ok());
    session = std::make_unique<Session>(*engine, *graph);
    (void)run().ok();  // an actor begins where it was spawned
  }
  Result<std::vector<Tensor>> run() const { return session->run({}, calls); }
  /// Whether a step's kernels ran on the thread that asked, of so many steps at least once.
  bool ran_here(int steps = 200) {
    std::atomic<int> here = 0;
    body = [&here, own = std::this_thread::get_id()] { here += std::this_thread::get_id() == own; };
    for (int i = 0; i < steps && here == 0; ++i) (void)run();
    body = [] {};
    return here > 0;
  }

  std::function<void()> body = [] {};
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Graph> graph;
  std::vector<Output> calls;
  std::unique_ptr<Session> session;
};

/// In a thread with a stack of so many bytes.
void in_thread(size_t stack, std::function<void()> f) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, stack) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, &attributes,
              [](void* f) -> void* { return (*static_cast<std::function<void()>*>(f))(), nullptr; }, &f) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

TEST_CASE("a thread that waits for a step runs its device, with enough of a stack") {
  Caller one;
  CHECK(one.ran_here());
  bool large = false, small = true;
  in_thread(size_t{8} << 20, [&] { large = one.ran_here(); });
  in_thread(size_t{512} << 10, [&] { small = one.ran_here(); });
  CHECK(large);
  CHECK_FALSE(small);
}

TEST_CASE("of a device of several threads one thread that waits is the leader") {
  Caller two({2});
  CHECK(two.ran_here());
  bool other = true, beside = true;
  std::thread([&] { other = two.ran_here(20); }).join();
  CHECK_FALSE(other);
#pragma omp parallel num_threads(2)
#pragma omp master
  beside = two.ran_here(20);
  if (omp_get_thread_limit() > 1) CHECK_FALSE(beside);
}

TEST_CASE("a thread that helped has as many threads of OpenMP as before") {
  Caller one;
  const int before = omp_get_max_threads();
  omp_set_num_threads(3);
  const int wanted = omp_get_max_threads();
  CHECK(one.ran_here());
  CHECK(omp_get_max_threads() == wanted);
  omp_set_num_threads(before);
}

TEST_CASE("devices of one step run at once where its caller helps") {
  Caller three({1, 1, 1});
  std::barrier all(3);
  three.body = [&all] { all.arrive_and_wait(); };
  for (int i = 0; i < 20; ++i) {
    const auto got = three.run();
    REQUIRE(got.ok());
    CHECK((*got)[2].data<float>()[0] == 2);
  }
  three.body = [] {};
}

TEST_CASE("a kernel on the thread that asked may not wait for its engine") {
  Caller one;
  std::string said;
  one.body = [&] {
    const auto inner = one.session->run({}, std::vector<Output>{});
    said = inner.ok() ? "it ran" : inner.error().message;
  };
  REQUIRE(one.run().ok());
  CHECK_THAT(said, Catch::Contains("would wait for itself"));
  one.body = [] {};
}

TEST_CASE("callbacks of other steps do not run on a thread that helps") {
  Caller one;
  REQUIRE(one.ran_here());
  for (int i = 0; i < 50; ++i) {
    std::binary_semaphore begun(0), go(0);
    std::atomic<int> firings = 0;
    one.body = [&] {
      if (firings++ > 0) return;
      begun.release();
      go.acquire();
    };
    std::thread::id helping;
    std::thread helper([&] {
      helping = std::this_thread::get_id();
      CHECK(one.run().ok());
    });
    begun.acquire();
    std::promise<std::thread::id> called;
    one.session->run_async({}, one.calls, {}, [&](RunResult) { called.set_value(std::this_thread::get_id()); });
    go.release();
    const std::thread::id where = called.get_future().get();
    helper.join();
    CHECK(where != helping);
  }
  one.body = [] {};
}

TEST_CASE("an engine ends when the threads that help it have") {
  for (int i = 0; i < 20; ++i) {
    Caller one;
    std::binary_semaphore begun(0), go(0);
    one.body = [&] {
      begun.release();
      go.acquire();
    };
    std::atomic<bool> answered = false;
    std::thread helper([&] {
      (void)one.run();
      answered = true;
    });
    begun.acquire();
    std::thread opener([&] { go.release(); });
    one.engine.reset();
    CHECK(one.session->run({}, one.calls).error().code == Code::kFailedPrecondition);
    helper.join();
    opener.join();
    CHECK(answered);
  }
}

TEST_CASE("many threads help one engine") {
  Caller two({1, 2});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const auto got = two.run();
        if (!got.ok() || (*got)[0].data<float>()[0] != 0 || (*got)[1].data<float>()[0] != 1) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
