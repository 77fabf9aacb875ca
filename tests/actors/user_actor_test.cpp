// SPDX-License-Identifier: Apache-2.0
// Actors of an embedder as ops, queues and sources: answers from any thread, late, twice or never, the end of an actor,
// steps that do not wait for one.
#include <caf/all.hpp>

#include <atomic>
#include <deque>
#include <latch>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/op_library.h"
#include "troupe/control_flow.h"
#include "troupe/embed.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// Calls a function for each request. (A class: see embed_test.cpp.)
class Answerer : public caf::event_based_actor {
 public:
  using Function = std::function<void(Answerer&, const ActorRequest&)>;
  Answerer(caf::actor_config& config, Function function)
      : caf::event_based_actor(config), function_(std::move(function)) {}
  caf::behavior make_behavior() override {
    return {[this](const ActorRequest& request) { function_(*this, request); }};
  }

 private:
  const Function function_;
};

struct ActorEngine {
  explicit ActorEngine(std::vector<int> threads = {1}) {
    auto made = Engine::create(
        {.cpu_threads = std::move(threads), .op_library = testing::op_library(), .register_ops = register_actor_ops});
    REQUIRE(made.ok());
    engine = std::move(*made);
    graph = std::make_unique<Graph>(engine->ops());
    scope.emplace(*graph);
    session = std::make_unique<Session>(*engine, *graph);
  }
  caf::actor add(const std::string& name, Answerer::Function function) {
    const caf::actor actor = actor_system(*engine).spawn<Answerer>(std::move(function));
    const Status added = add_actor(*engine, name, actor);
    INFO((added.ok() ? "" : added.error().str()));
    REQUIRE(added.ok());
    return actor;
  }
  Output call(const std::string& actor, const std::string& what, std::vector<Output> inputs) {
    const Node* node = actor_call(*scope, actor, what, std::move(inputs), {{DType::kInt32, PartialShape::scalar()}});
    REQUIRE(node);
    return node->out();
  }
  Output placeholder() { return scope->op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{}}}); }

  std::unique_ptr<Engine> engine;
  std::unique_ptr<Graph> graph;
  std::optional<Scope> scope;
  std::unique_ptr<Session> session;
};

Tensor n(int v) { return Tensor::scalar(v); }
int integer(const Tensor& t) { return t.data<int32_t>()[0]; }
int integer(const RunResult& r) {
  INFO((r.ok() ? "" : r.error().str()));
  REQUIRE(r.ok());
  return integer((*r)[0]);
}
TEST_CASE("an actor is an op", "[user_actor]") {
  ActorEngine t({1, 1});
  t.add("twice", [](Answerer&, const ActorRequest& request) {
    if (request.call == "double") request.reply(std::vector{n(2 * integer(request.inputs[0]))});
    else request.reply(invalid_argument("'{}' is not what I can", request.call));
  });
  const Output x = t.placeholder(), y = t.call("twice", "double", {x}), z = t.call("twice", "double", {y});
  CHECK(integer(t.session->run({{x, n(3)}}, z)) == 12);
  // Many in flight, of one step and of many.
  std::vector<Output> many;
  for (int i = 0; i < 50; ++i)
    many.push_back(t.call("twice", "double", {t.scope->op("AddV2", {x, t.scope->constant(i)})}));
  std::vector<std::future<RunResult>> runs;
  for (int i = 0; i < 20; ++i) runs.push_back(t.session->run_future({{x, n(i)}}, many));
  for (int i = 0; i < 20; ++i) {
    const RunResult result = runs[static_cast<size_t>(i)].get();
    REQUIRE(result.ok());
    for (int k = 0; k < 50; ++k) REQUIRE(integer((*result)[static_cast<size_t>(k)]) == 2 * (i + k));
  }
  const RunResult wrong = t.session->run({{x, n(3)}}, t.call("twice", "halve", {x}));
  refused(wrong, Code::kInvalidArgument, "'halve' is not what I can");
  CHECK(wrong.error().op == "ActorCall");
}

TEST_CASE("an actor is a queue and a source", "[user_actor]") {
  ActorEngine t({1, 1});
  auto elements = std::make_shared<std::deque<Tensor>>();
  auto takers = std::make_shared<std::deque<ActorReply>>();
  t.add("line", [=](Answerer&, const ActorRequest& request) {
    if (request.call == "put") elements->push_back(request.inputs[0]), request.reply(std::vector<Tensor>());
    else takers->push_back(request.reply);
    while (!elements->empty() && !takers->empty()) {
      if (takers->front().wanted()) takers->front()(std::vector{elements->front()}), elements->pop_front();
      takers->pop_front();
    }
  });
  t.add("numbers", [next = 0](Answerer&, const ActorRequest& request) mutable {
    if (next == 100) request.reply(make_error(Code::kOutOfRange, "no more"));
    else request.reply(std::vector{n(next++)});
  });
  const Node* put = actor_call(*t.scope, "line", "put", {t.call("numbers", "next", {})}, {});
  const Output take = t.call("line", "take", {});
  std::vector<std::future<RunResult>> taken;
  for (int i = 0; i < 100; ++i) taken.push_back(t.session->run_future({}, take));
  // One that gave up takes nothing away.
  CHECK(t.session->run(take, {.deadline = 5ms}).error().code == Code::kDeadlineExceeded);
  RunResult end = std::vector<Tensor>();
  std::thread producer([&] {
    while ((end = t.session->run(put)).ok()) {
    }
  });
  std::vector<int> got;
  for (auto& run : taken) got.push_back(integer(run.get()));
  producer.join();
  CHECK(end.error().code == Code::kOutOfRange);
  std::ranges::sort(got);
  for (int i = 0; i < 100; ++i) CHECK(got[static_cast<size_t>(i)] == i);
}

/// Threads that an actor starts, joined at the end: declared before the ActorEngine, they outlive its engine.
class Threads {
 public:
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
  }
  void start(std::function<void()> function) {
    const std::lock_guard lock(mutex_);
    threads_.emplace_back(std::move(function));
  }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

TEST_CASE("answers come from any thread; the first counts", "[user_actor]") {
  std::atomic<int> still_wanted = 0;
  {
    Threads threads;
    ActorEngine t;
    t.add("slow", [&](Answerer&, const ActorRequest& request) {
      for (int k = 0; k < 2; ++k)
        threads.start([request, k, &still_wanted] {
          std::this_thread::yield();
          request.reply(std::vector{n(integer(request.inputs[0]))});
          still_wanted += request.reply.wanted();
          request.reply(std::vector{n(-1)});
          request.reply(make_error(Code::kInternal, "too late {}", k));
        });
    });
    const Output x = t.placeholder(), y = t.call("slow", "", {x});
    for (int i = 0; i < 100; ++i) REQUIRE(integer(t.session->run({{x, n(i)}}, y)) == i);
  }
  CHECK(still_wanted == 0);
}

TEST_CASE("a request that is dropped, or answered with what the node does not expect, ends its step", "[user_actor]") {
  ActorEngine t;
  t.add("odd", [](Answerer&, const ActorRequest& request) {
    if (request.call == "none") request.reply(std::vector<Tensor>());
    if (request.call == "float") request.reply(std::vector{Tensor::scalar(1.f)});
    if (request.call == "empty") request.reply(std::vector{Tensor()});
    if (request.call == "vector") request.reply(std::vector{Tensor::of<int32_t>({1, 2})});
    if (request.call == "throws") throw std::runtime_error("not today");
  });
  refused(t.session->run(t.call("odd", "dropped", {})), Code::kCancelled, "'odd' dropped the request");
  CHECK_FALSE(t.session->run(t.call("odd", "none", {})).ok());
  CHECK_FALSE(t.session->run(t.call("odd", "float", {})).ok());
  CHECK_FALSE(t.session->run(t.call("odd", "empty", {})).ok());
  CHECK_FALSE(t.session->run(t.call("odd", "vector", {})).ok());
  refused(t.session->run(t.call("odd", "throws", {})), Code::kFailedPrecondition, "the actor 'odd' has ended: ");
}

TEST_CASE("steps do not wait for an actor longer than they may", "[user_actor]") {
  ActorEngine t({1, 1});
  auto kept = std::make_shared<std::vector<ActorReply>>();
  auto mutex = std::make_shared<std::mutex>();
  t.add("silent", [=](Answerer&, const ActorRequest& request) {
    std::lock_guard lock(*mutex);
    kept->push_back(request.reply);
  });
  const Output y = t.call("silent", "", {});
  refused(t.session->run(y, {.deadline = 5ms}), Code::kDeadlineExceeded, "deadline");
  CancelToken token;
  auto run = t.session->run_future({}, y, {}, {.cancel = token});
  token.cancel();
  refused(run.get(), Code::kCancelled, "cancelled");
  // Late answers are dropped; the next step is not confused by them.
  t.add("quick", [](Answerer&, const ActorRequest& request) { request.reply(std::vector{n(1)}); });
  const Output quick = t.call("quick", "", {});
  for (int i = 0; i < 50; ++i) {
    refused(t.session->run(y, {.deadline = 1ms}), Code::kDeadlineExceeded, "deadline");
    std::lock_guard lock(*mutex);
    for (const ActorReply& reply : *kept) {
      CHECK_FALSE(reply.wanted());
      reply(std::vector{n(5)});
    }
    kept->clear();
    CHECK(integer(t.session->run(quick)) == 1);
  }
}

TEST_CASE("the end of an actor is an error of those who wait and of those who come", "[user_actor]") {
  ActorEngine t({1, 1});
  std::latch asked(3);
  auto kept = std::make_shared<std::vector<ActorReply>>();
  const caf::actor actor = t.add("mortal", [kept, &asked](Answerer& self, const ActorRequest& request) {
    if (request.call == "quit") return self.quit(caf::exit_reason::user_shutdown);
    kept->push_back(request.reply);
    asked.count_down();
  });
  const Output y = t.call("mortal", "", {});
  std::vector<std::future<RunResult>> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(t.session->run_future({}, y));
  asked.wait();
  auto last = t.session->run_future({}, t.call("mortal", "quit", {}));
  for (auto& run : runs) refused(run.get(), Code::kFailedPrecondition, "the actor 'mortal' has ended: ");
  CHECK(last.get().error().message.find("ended") != std::string::npos);
  // What reaches the actor as it ends is dropped; soon its end is known.
  RunResult later = t.session->run(y);
  while (!later.ok() && later.error().code == Code::kCancelled) later = t.session->run(y);
  refused(later, Code::kFailedPrecondition, "the actor 'mortal' has ended: ");
  // Another takes its place.
  CHECK(add_actor(*t.engine, "mortal", actor).error().code == Code::kAlreadyExists);
  REQUIRE(remove_actor(*t.engine, "mortal").ok());
  CHECK(remove_actor(*t.engine, "mortal").error().code == Code::kNotFound);
  t.add("mortal", [](Answerer&, const ActorRequest& request) { request.reply(std::vector{n(8)}); });
  CHECK(integer(t.session->run(y)) == 8);
  REQUIRE(remove_actor(*t.engine, "mortal").ok());
  REQUIRE(add_actor(*t.engine, "mortal", actor).ok());  // it is dead from the start
  later = t.session->run(y);
  while (!later.ok() && later.error().code == Code::kCancelled) later = t.session->run(y);
  refused(later, Code::kFailedPrecondition, "has ended");
}

TEST_CASE("an actor that is not there is an error, and one that is taken out lets nobody wait", "[user_actor]") {
  ActorEngine t({1, 1});
  refused(t.session->run(t.call("nobody", "", {})), Code::kNotFound, "'nobody'");
  CHECK(add_actor(*t.engine, "x", caf::actor()).error().code == Code::kInvalidArgument);
  std::latch asked(1);
  auto kept = std::make_shared<std::vector<ActorReply>>();
  t.add("silent", [kept, &asked](Answerer&, const ActorRequest& request) {
    kept->push_back(request.reply);
    asked.count_down();
  });
  auto run = t.session->run_future({}, t.call("silent", "", {}));
  asked.wait();
  REQUIRE(remove_actor(*t.engine, "silent").ok());
  CHECK_FALSE(run.get().ok());
}

TEST_CASE("answers race with the end of their steps", "[user_actor]") {
  Threads answers;  // the last of them come when the engine is gone
  ActorEngine t({1, 1});
  t.add("some", [&answers, i = 0](Answerer&, const ActorRequest& request) mutable {
    answers.start([reply = request.reply, late = ++i % 3] {
      for (int k = 0; k < late * 50; ++k) std::this_thread::yield();
      reply(std::vector{n(1)});
    });
  });
  const Output y = t.call("some", "", {});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const RunResult result = t.session->run(y, {.deadline = std::chrono::microseconds(50 + 20 * i)});
        wrong += result.ok() ? integer((*result)[0]) != 1 : result.error().code != Code::kDeadlineExceeded;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("of a loop as many iterations overlap as it may, and no more") {
  constexpr int kTimes = 20;
  for (const int parallel : {1, 2, 7, 100}) {
    struct Held {
      std::deque<ActorRequest> requests;
      size_t most = 0;
      int left = kTimes;
    };
    const auto held = std::make_shared<Held>();
    ActorEngine t;
    // Answers when as many requests wait as may, the oldest first.
    t.add("holder", [held, parallel](Answerer&, const ActorRequest& request) {
      held->requests.push_back(request);
      held->most = std::max(held->most, held->requests.size());
      while (!held->requests.empty() && held->requests.size() >= static_cast<size_t>(std::min(parallel, held->left))) {
        held->requests.front().reply(std::vector{held->requests.front().inputs[0]});
        held->requests.pop_front();
        --held->left;
      }
    });
    const Outputs out = while_loop(
        *t.scope, {t.scope->constant(0), t.scope->constant(0)},
        [](const Scope&, const Outputs& v) { return v[0] < kTimes; },
        [&](const Scope& s, const Outputs& v) -> Outputs {
          const Node* call = actor_call(s, "holder", "", {v[0]}, {{DType::kInt32, PartialShape::scalar()}});
          return {v[0] + 1, v[1] + call->out()};
        },
        {.parallel_iterations = parallel});
    REQUIRE(t.scope->ok());
    CHECK(integer(t.session->run(out[1])) == kTimes * (kTimes - 1) / 2);
    CHECK(held->most == static_cast<size_t>(std::min(parallel, kTimes)));
  }
}

}  // namespace
}  // namespace troupe
