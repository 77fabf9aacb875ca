// SPDX-License-Identifier: Apache-2.0
// Lives of engines and sessions: made, used and destroyed by any thread, in any order, while steps run or wait; and
// what callbacks may do.
#include <caf/all.hpp>

#include <future>
#include <latch>
#include <thread>

#include "tests/child.h"
#include "tests/engine/fixtures.h"
#include "tests/op_library.h"
#include "tests/repeats.h"
#include "troupe/embed.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// Ends the program where there is none: also for threads, whose assertions Catch cannot count.
std::unique_ptr<Engine> make_engine(std::vector<int> threads = {1}) {
  return Engine::create({.cpu_threads = std::move(threads), .op_library = testing::op_library()}).value();
}

/// A graph with a sum, and with a dequeue that waits for ever.
struct Program {
  explicit Program(Engine& engine) : graph(engine.ops()), scope(graph) {
    sum = scope.op("AddV2", {scope.constant(1.f), scope.constant(2.f)});
    const Output queue =
        scope.op("FIFOQueueV2", {}, {{"component_types", std::vector{DType::kFloat32}}, {"capacity", 4}});
    waits = scope.op("QueueDequeueV2", {queue}, {{"component_types", std::vector{DType::kFloat32}}});
    if (!scope.ok()) detail::abort_with(scope.status().error());
  }
  Graph graph;
  Scope scope;
  Output sum, waits;
};

bool works(Engine& engine) {
  Program p(engine);
  Session session(engine, p.graph);
  const auto r = session.run(std::vector<Feed>{}, {p.sum});
  return r.ok() && (*r)[0].data<float>()[0] == 3;
}
void check_works(Engine& engine) { CHECK(works(engine)); }

TEST_CASE("an engine is made, used and destroyed on three threads that live on") {
  std::latch all_done(3);
  std::unique_ptr<Engine> engine;
  std::promise<void> made, used, gone;
  std::thread maker([&] {
    engine = make_engine();
    made.set_value();
    all_done.arrive_and_wait();
  });
  std::thread user([&] {
    made.get_future().wait();
    check_works(*engine);
    used.set_value();
    all_done.arrive_and_wait();
  });
  std::thread destroyer([&] {
    used.get_future().wait();
    engine.reset();
    gone.set_value();
    all_done.arrive_and_wait();
  });
  gone.get_future().wait();
  for (std::thread* t : {&maker, &user, &destroyer}) t->join();
}

TEST_CASE("engines come and go, several at once, from several threads") {
  std::vector<std::thread> threads;
  std::atomic<bool> all_work = true;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < repeats(24); ++i) {
        auto first = make_engine(), second = make_engine({1, 1});
        if (!works(*second)) all_work = false;
        if (i % 2) first.reset();
        else second.reset();
      }
    });
  for (auto& t : threads) t.join();
  CHECK(all_work);
}

TEST_CASE("a thread that had a scoped actor of the engine's system, and lives on, does not hold up its end") {
  auto engine = make_engine();
  std::promise<void> had_actor, may_go;
  std::thread other([&] {
    { caf::scoped_actor self{actor_system(*engine)}; }
    had_actor.set_value();
    may_go.get_future().wait();  // CAF's logger of that system is still in this thread's memory
  });
  had_actor.get_future().wait();
  engine.reset();
  may_go.set_value();
  other.join();
}

TEST_CASE("a session that is destroyed cancels what waits") {
  auto engine = make_engine();
  Program p(*engine);
  std::promise<RunResult> result;
  {
    Session session(*engine, p.graph);
    session.run_async({}, {p.waits}, {}, [&](RunResult r) { result.set_value(std::move(r)); });
  }
  const RunResult r = result.get_future().get();
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kCancelled);
}

TEST_CASE("a closed session refuses runs, and ends those of other threads") {
  auto engine = make_engine();
  Program p(*engine);
  Session session(*engine, p.graph);
  auto waiting = session.run_future({}, {p.waits});
  session.close();
  session.close();
  const RunResult ended = waiting.get();
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Code::kCancelled);
  const RunResult refused = session.run(std::vector<Feed>{}, {p.sum});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kFailedPrecondition);
  CHECK_THAT(refused.error().message, Catch::Contains("closed"));
}

TEST_CASE("an engine that is destroyed answers the steps that wait, and its sessions give errors") {
  auto engine = make_engine();
  Program p(*engine);
  Session session(*engine, p.graph);
  auto waiting = session.run_future({}, {p.waits});
  auto prepared = session.prepare({}, {p.sum});
  REQUIRE(prepared.ok());
  engine.reset();
  CHECK(waiting.get().error().code == Code::kCancelled);
  CHECK(session.run(std::vector<Feed>{}, {p.sum}).error().code == Code::kFailedPrecondition);
  CHECK(session.run(*prepared).error().code == Code::kFailedPrecondition);
  bool called = false;
  session.run_async(*prepared, {}, [&](RunResult r) { called = !r.ok(); });
  CHECK(called);
}

TEST_CASE("engines are destroyed while many threads run steps") {
  for (int round = 0; round < repeats(20); ++round) {
    auto engine = make_engine({1, 1});
    Program p(*engine);
    Session session(*engine, p.graph);
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        while (!stop) {
          const RunResult r = session.run(std::vector<Feed>{}, {p.sum});
          if (!r.ok()) break;
        }
      });
    auto waiting = session.run_future({}, {p.waits});
    while (engine->device_stats()[0].steps < 20) std::this_thread::yield();
    engine.reset();
    CHECK_FALSE(waiting.get().ok());
    stop = true;
    for (auto& t : threads) t.join();
  }
}

TEST_CASE("a callback may destroy its session, and its engine") {
  std::promise<void> done;
  auto engine = make_engine();
  auto p = std::make_unique<Program>(*engine);
  auto session = std::make_unique<Session>(*engine, p->graph);
  session->run_async({}, {p->sum}, {}, [&](RunResult r) {
    CHECK(r.ok());
    session.reset();
    engine.reset();
    done.set_value();
  });
  done.get_future().wait();
}

TEST_CASE("calls that would wait for themselves are errors in a callback") {
  auto engine = make_engine();
  Program p(*engine);
  Session session(*engine, p.graph);
  std::promise<void> done;
  std::vector<Status> refused;
  session.run_async({}, {p.sum}, {}, [&](RunResult) {
    refused.push_back(session.run(std::vector<Feed>{}, {p.sum}).status());
    refused.push_back(engine->restore({}));
    refused.push_back(engine->restart_dataset("none"));
    refused.push_back(engine->snapshot().get().status());
    done.set_value();
  });
  done.get_future().wait();
  for (const Status& s : refused) {
    REQUIRE_FALSE(s.ok());
    CHECK(s.error().code == Code::kFailedPrecondition);
  }
  CHECK_FALSE(engine->on_engine_thread());
}

TEST_CASE("callbacks come by a thread of the engine, for early errors and empty steps too") {
  auto engine = make_engine();
  Program p(*engine);
  Session session(*engine, p.graph);
  const Output x = p.scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}});
  const auto here = std::this_thread::get_id();
  const auto check = [&](std::vector<Feed> feeds, std::vector<Output> fetches, bool ok) {
    std::promise<std::pair<bool, bool>> done;
    session.run_async(feeds, fetches, {}, [&](RunResult r) {
      done.set_value({r.ok(), std::this_thread::get_id() != here && engine->on_engine_thread()});
    });
    CHECK(done.get_future().get() == std::pair(ok, true));
  };
  check({}, {p.sum}, true);
  check({{x, Tensor::scalar(1.f)}}, {x}, true);  // a fed fetch: nothing to run
  check({{x, Tensor::scalar(1)}}, {x}, false);   // a wrong dtype
  check({}, {Output()}, false);
  check({}, {}, true);
}

TEST_CASE("long chains of callbacks do not grow the stack") {
  auto engine = make_engine();
  Program p(*engine);
  Session session(*engine, p.graph);
  for (const Output& fetch : {p.sum, Output()}) {
    std::promise<void> done;
    int left = repeats(100'000);
    std::function<void(RunResult)> next = [&](RunResult) {
      if (--left == 0) return done.set_value();
      session.run_async({}, {fetch}, {}, next);
    };
    session.run_async({}, {fetch}, {}, next);
    done.get_future().wait();
  }
}

TEST_CASE("what a callback throws is dropped, and the engine goes on") {
  auto engine = make_engine();
  Program p(*engine);
  Session session(*engine, p.graph);
  for (const Output& fetch : {p.sum, Output()})
    session.run_async({}, {fetch}, {}, [](RunResult) { throw std::runtime_error("from a callback"); });
  session.run_async({}, {p.sum}, {}, RunCallback());
  engine->snapshot([](Result<Snapshot>) { throw 7; });
  CHECK(engine->snapshot().get().ok());
  check_works(*engine);
}

TEST_CASE("deadlines: the longest is none, a negative one has passed") {
  auto engine = make_engine();
  Program p(*engine);
  Session session(*engine, p.graph);
  const auto run = [&](std::chrono::nanoseconds deadline) {
    return session.run(std::vector<Feed>{}, {p.sum}, {}, {.deadline = deadline});
  };
  CHECK(run(std::chrono::nanoseconds::max()).ok());
  CHECK(run(std::chrono::nanoseconds::max() - 1s).ok());
  for (const auto deadline : {-1ns, std::chrono::nanoseconds::min()}) {
    const RunResult late = run(deadline);
    REQUIRE_FALSE(late.ok());
    CHECK(late.error().code == Code::kDeadlineExceeded);
  }
  const RunResult waited = session.run(std::vector<Feed>{}, {p.waits}, {}, {.deadline = 1ms});
  REQUIRE_FALSE(waited.ok());
  CHECK(waited.error().code == Code::kDeadlineExceeded);
}

TEST_CASE("a child after fork gets an error from every call, and ends") {
  auto engine = make_engine();
  Program p(*engine);
  Session session(*engine, p.graph);
  auto prepared = session.prepare({}, {p.sum});
  REQUIRE(prepared.ok());
  CHECK(session.run(*prepared).ok());
  const auto live = [&] {
    const auto refused = [](const Status& s) { return !s.ok() && s.error().code == Code::kFailedPrecondition; };
    bool told = false;
    session.run_async(*prepared, {}, [&](RunResult r) { told = refused(r.status()); });
    bool ok = refused(engine->status()) && refused(session.run(*prepared).status()) && told &&
              refused(session.run(std::vector<Feed>{}, {p.sum}).status()) &&
              refused(engine->snapshot().get().status()) && refused(engine->restore({})) &&
              refused(engine->restart_dataset("x")) && refused(engine->remove_dataset("x"));
    session.close();
    engine.reset();
    return ok ? 0 : 1;
  };
  CHECK(in_child(live) == 0);
  CHECK(session.run(*prepared).ok());
}

TEST_CASE("an engine lives in an actor system of its embedder's") {
  caf::actor_system_config config;
  config.set("scheduler.max-threads", size_t{2});
  caf::actor_system system(config);
  for (int i = 0; i < repeats(20); ++i) {
    auto first = create_engine(system, {.cpu_threads = {1, 1}}), second = create_engine(system, {.cpu_threads = {1}});
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    CHECK(&actor_system(**first) == &system);
    check_works(**first);
    check_works(**second);
    Program p(**first);
    Session session(**first, p.graph);
    auto waiting = session.run_future({}, {p.waits});
    first->reset();
    CHECK_FALSE(waiting.get().ok());
    check_works(**second);
  }
  // The system is still its owner's.
  caf::scoped_actor self{system};
  auto echo = system.spawn([](caf::event_based_actor*) -> caf::behavior { return {[](int x) { return x + 1; }}; });
  self->request(echo, caf::infinite, 41)
      .receive([](int x) { CHECK(x == 42); }, [](const caf::error&) { CHECK(false); });
  caf::anon_send_exit(echo, caf::exit_reason::user_shutdown);
  CHECK_FALSE(create_engine(system, {.cpu_threads = {0}}).ok());
}

TEST_CASE("nodes, prepared runs and tokens of elsewhere") {
  auto one = make_engine(), two = make_engine();
  Program p(*one), q(*two);
  Session session(*one, p.graph), sibling(*one, p.graph), other(*two, q.graph);
  const auto refused = [](const RunResult& r) {
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().code == Code::kInvalidArgument);
  };
  refused(session.run(std::vector<Feed>{}, {q.sum}));
  refused(session.run(std::vector<Feed>{}, std::vector<Output>{}, {q.sum.node}));
  refused(session.run({{q.sum, Tensor::scalar(1.f)}}, {p.sum}));
  refused(session.run(std::vector<Feed>{}, std::vector<Output>{}, {nullptr}));
  refused(session.run({{p.sum, Tensor()}}, {p.sum}));
  CHECK_FALSE(p.scope.op("Neg", {q.sum}));
  auto prepared = other.prepare({}, {q.sum});
  REQUIRE(prepared.ok());
  refused(session.run(*prepared));
  auto of_sibling = sibling.prepare({}, {p.sum});
  REQUIRE_FALSE(of_sibling.ok());  // the graph has failed by now: its error comes first, with the line that made it
  CHECK_THAT(of_sibling.error().message, Catch::Contains("lifetimes_test.cpp"));
  refused(session.run(std::shared_ptr<Session::Prepared>()));
}

TEST_CASE("one token cancels runs of two engines") {
  auto one = make_engine(), two = make_engine();
  Program p(*one), q(*two);
  Session first(*one, p.graph), second(*two, q.graph);
  CancelToken token;
  std::promise<Code> codes[2];
  const auto into = [](std::promise<Code>& code) {
    return [&code](RunResult r) { code.set_value(r.ok() ? Code::kInternal : r.error().code); };
  };
  first.run_async({}, {p.waits}, {}, into(codes[0]), {.cancel = token});
  second.run_async({}, {q.waits}, {}, into(codes[1]), {.cancel = token});
  token.cancel();
  for (auto& code : codes) CHECK(code.get_future().get() == Code::kCancelled);
}

TEST_CASE("writing to what was fed or fetched changes no variable") {
  TestEngine t;
  const Output v = t.variable("v", DType::kFloat32, {2});
  const Output x = t.placeholder(DType::kFloat32, {2});
  const Node* set = t.scope.node("AssignVariableOp", {v, x});
  const Output read = t.scope.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  Tensor fed = Tensor::of<float>({1, 2});
  REQUIRE(t.session->run({{x, fed}}, std::vector<Output>{}, {set}).ok());
  fed.mutable_data<float>()[0] = 50;
  CHECK(t.value({}, read).identical(Tensor::of<float>({1, 2})));
  Tensor fetched = t.value({}, read);
  fetched.mutable_data<float>()[1] = 60;
  CHECK(t.value({}, read).identical(Tensor::of<float>({1, 2})));
  Snapshot snapshot = t.engine->snapshot().get().value();
  snapshot.variables.at("v").mutable_data<float>()[0] = 70;
  CHECK(t.value({}, read).identical(Tensor::of<float>({1, 2})));
  Tensor restored = Tensor::of<float>({3, 4});
  REQUIRE(t.engine->restore({{{"v", restored}}}).ok());
  restored.mutable_data<float>()[0] = 80;
  CHECK(t.value({}, read).identical(Tensor::of<float>({3, 4})));
  Tensor value = Tensor::of<float>({5, 6});
  const Output constant = t.scope.constant(value);
  value.mutable_data<float>()[0] = 90;
  CHECK(t.value({}, constant).identical(Tensor::of<float>({5, 6})));
  CHECK(value.identical(Tensor::of<float>({90, 6})));
}

}  // namespace
}  // namespace troupe
