// SPDX-License-Identifier: Apache-2.0
// What embed.h promises of actors and their replies where things go otherwise: tensors written after the answer,
// containers reset, engines that end, actors of other systems, names and receivers that are none.
#include <caf/all.hpp>

#include <future>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/op_library.h"
#include "tests/repeats.h"
#include "troupe/embed.h"
#include "troupe/trace.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// Calls a function for each request. (A class: see embed_test.cpp.)
class PlainAnswerer : public caf::event_based_actor {
 public:
  using Function = std::function<void(const ActorRequest&)>;
  PlainAnswerer(caf::actor_config& config, Function function)
      : caf::event_based_actor(config), function_(std::move(function)) {}
  caf::behavior make_behavior() override {
    return {[this](const ActorRequest& request) { function_(request); }};
  }

 private:
  const Function function_;
};

struct Asking {
  Asking() {
    auto made = Engine::create(
        {.cpu_threads = {1, 1}, .op_library = testing::op_library(), .register_ops = register_actor_ops});
    REQUIRE(made.ok());
    engine = std::move(*made);
    graph = std::make_unique<Graph>(engine->ops());
    scope.emplace(*graph);
    session = std::make_unique<Session>(*engine, *graph);
    x = scope->op("Placeholder", {}, {{"dtype", DType::kInt32}});
  }
  /// On a thread of its own: a thread that has spawned in an engine's system makes its end take a second.
  void add(const std::string& name, PlainAnswerer::Function function) {
    Status added;
    std::thread([&] {
      added = add_actor(*engine, name, actor_system(*engine).spawn<PlainAnswerer>(std::move(function)));
    }).join();
    REQUIRE(added.ok());
  }
  Output call(const std::string& actor, std::vector<Output> inputs, PartialShape shape = PartialShape::unknown()) {
    const Node* node = actor_call(*scope, actor, "", std::move(inputs), {{DType::kInt32, std::move(shape)}});
    INFO((scope->ok() ? "" : scope->status().error().str()));
    REQUIRE(node);
    return node->out();
  }

  std::unique_ptr<Engine> engine;
  std::unique_ptr<Graph> graph;
  std::optional<Scope> scope;
  std::unique_ptr<Session> session;
  Output x;
};

TEST_CASE("an actor may write to what it answered with as soon as it has answered", "[user_actor]") {
  Asking t;
  t.add("writes", [](const ActorRequest& request) {
    Tensor answer = Tensor::of<int32_t>({1, 2, 3});
    request.reply(std::vector{answer});
    for (int i = 0; i < 3; ++i) answer.mutable_data<int32_t>()[i] = -1;
  });
  const Output y = t.call("writes", {}), z = t.scope->op("Neg", {y});
  for (int i = 0; i < repeats(100); ++i) {
    const RunResult r = t.session->run({y, z});
    REQUIRE(r.ok());
    REQUIRE((*r)[0].identical(Tensor::of<int32_t>({1, 2, 3})));
    REQUIRE((*r)[1].identical(Tensor::of<int32_t>({-1, -2, -3})));
  }
}

TEST_CASE("an actor that writes to its inputs changes no tensor of the caller's", "[user_actor]") {
  Asking t;
  t.add("writes", [](const ActorRequest& request) {
    Tensor mine = request.inputs[0];
    mine.mutable_data<int32_t>()[0] = -1;
    request.reply(std::vector{mine});
  });
  const Tensor fed = Tensor::of<int32_t>({1, 2});
  const Output y = t.call("writes", {t.x}), same = t.scope->op("Identity", {t.x});
  const RunResult r = t.session->run({{t.x, fed}}, {y, same});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::of<int32_t>({-1, 2})));
  CHECK((*r)[1].identical(Tensor::of<int32_t>({1, 2})));
  CHECK(fed.identical(Tensor::of<int32_t>({1, 2})));
}

TEST_CASE("requests of many steps come in the order in which their device sent them", "[user_actor]") {
  Asking t;
  std::vector<int64_t> came, sent;  // steps
  t.add("notes", [&came](const ActorRequest& request) {
    came.push_back(request.step);
    request.reply(request.inputs);
  });
  const Output y = t.call("notes", {t.x});
  const auto trace = std::make_shared<Trace>();
  auto prepared = t.session->prepare({t.x}, {y});
  REQUIRE(prepared.ok());
  const int count = repeats(400);
  std::promise<void> all;
  std::atomic<int> answered{0};
  for (int i = 0; i < count; ++i)
    t.session->run_async(*prepared, {Tensor::scalar(i)},
                         [&](RunResult) {
                           if (++answered == count) all.set_value();
                         },
                         {.trace = trace});
  REQUIRE(all.get_future().wait_for(60s) == std::future_status::ready);
  for (const TraceEvent& event : trace->take())
    if (event.kind == TraceEvent::Kind::kAsk && event.node == y.node) sent.push_back(event.step);
  CHECK(sent.size() == static_cast<size_t>(count));
  CHECK((came == sent));
}

TEST_CASE("an actor is kept when containers are reset", "[user_actor]") {
  Asking t;
  t.add("one", [](const ActorRequest& request) { request.reply(std::vector{Tensor::scalar(1)}); });
  const Output y = t.call("one", {});
  REQUIRE(t.session->run(y).ok());
  for (const char* container : {"", "one", "actor"}) t.engine->reset_container(container);
  CHECK(t.session->run(y).ok());
  CHECK(remove_actor(*t.engine, "one").ok());
}

/// Tells, when it is sent a number, how much is attached to it.
class Counting : public caf::event_based_actor {
 public:
  using caf::event_based_actor::event_based_actor;
  caf::behavior make_behavior() override {
    return {[](const ActorRequest& request) { request.reply(request.inputs); }, [this](int) { return attached(); }};
  }

 private:
  int attached() {
    const std::lock_guard guard(mtx_);
    int out = 0;
    for (const caf::attachable* at = attachables_head_.get(); at; at = at->next.get()) ++out;
    return out;
  }
};

TEST_CASE("an engine leaves nothing behind with an actor that is taken out", "[user_actor]") {
  caf::actor_system_config config;
  caf::actor_system system(config);
  const caf::actor actor = system.spawn<Counting>();
  caf::scoped_actor self(system);
  const auto attached = [&] {
    int out = -1;
    self->request(actor, caf::infinite, 0).receive([&](int n) { out = n; }, [](const caf::error&) {});
    return out;
  };
  const int before = attached();
  {
    Asking t;
    for (int i = 0; i < 20; ++i) {
      REQUIRE(add_actor(*t.engine, "echo", actor).ok());
      if (i == 0) REQUIRE(t.session->run({{t.x, Tensor::scalar(1)}}, t.call("echo", {t.x})).ok());
      REQUIRE(remove_actor(*t.engine, "echo").ok());
    }
    REQUIRE(add_actor(*t.engine, "stays", actor).ok());
  }
  CHECK(attached() == before);
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_CASE("requests that wait for an actor that is taken out are cancelled, and their replies not wanted",
          "[user_actor]") {
  Asking t;
  std::promise<ActorReply> kept;
  t.add("silent", [&](const ActorRequest& request) { kept.set_value(request.reply); });
  auto run = t.session->run_future({}, t.call("silent", {}));
  const ActorReply reply = kept.get_future().get();
  CHECK(reply.wanted());
  REQUIRE(remove_actor(*t.engine, "silent").ok());
  refused(run.get(), Code::kCancelled);
  CHECK_FALSE(reply.wanted());
  reply(std::vector{Tensor::scalar(1)});
}

TEST_CASE("a reply may outlive its engine, and an empty one answers nobody", "[user_actor]") {
  ActorReply kept;
  CHECK_FALSE(kept.wanted());
  kept(std::vector<Tensor>());
  {
    Asking t;
    std::promise<ActorReply> came;
    t.add("silent", [&](const ActorRequest& request) { came.set_value(request.reply); });
    auto run = t.session->run_future({}, t.call("silent", {}));
    kept = came.get_future().get();
    t.engine.reset();
    refused(run.get(), Code::kCancelled);
  }
  CHECK_FALSE(kept.wanted());
  kept(std::vector{Tensor::scalar(1)});
  kept(make_error(Code::kInternal, "late"));
}

TEST_CASE("replies given on many threads race with the end of their engine", "[user_actor]") {
  for (int round = 0; round < repeats(20); ++round) {
    Asking t;
    std::mutex mutex;
    std::vector<ActorReply> replies;
    std::atomic<size_t> came{0};
    t.add("silent", [&](const ActorRequest& request) {
      const std::lock_guard lock(mutex);
      replies.push_back(request.reply);
      came = replies.size();
    });
    const Output y = t.call("silent", {});
    std::vector<std::future<RunResult>> runs;
    for (int i = 0; i < 16; ++i) runs.push_back(t.session->run_future({}, y));
    while (came < runs.size()) std::this_thread::yield();
    std::vector<std::thread> threads;
    for (size_t k = 0; k < 4; ++k)
      threads.emplace_back([&, k] {
        for (size_t i = k; i < replies.size(); i += 4) replies[i](std::vector{Tensor::scalar(1)});
      });
    t.engine.reset();
    for (auto& run : runs) {
      const RunResult r = run.get();
      if (!r.ok()) REQUIRE(r.error().code == Code::kCancelled);
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("an actor may be of another actor system, and end with it", "[user_actor]") {
  Asking t;
  caf::actor_system_config config;
  config.set("scheduler.max-threads", size_t{1});
  caf::actor_system other(config);
  const caf::actor actor =
      other.spawn<PlainAnswerer>([](const ActorRequest& request) { request.reply(request.inputs); });
  REQUIRE(add_actor(*t.engine, "far", actor).ok());
  const Output y = t.call("far", {t.x});
  const RunResult r = t.session->run({{t.x, Tensor::scalar(5)}}, y);
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(5)));
  caf::anon_send_exit(actor, caf::exit_reason::kill);
  RunResult later = t.session->run({{t.x, Tensor::scalar(5)}}, y);
  while (later.ok() || later.error().code == Code::kCancelled) later = t.session->run({{t.x, Tensor::scalar(5)}}, y);
  refused(later, Code::kFailedPrecondition);
  REQUIRE(remove_actor(*t.engine, "far").ok());
  t.engine.reset();  // it lets go of the actor before the actor's system ends
}

TEST_CASE("an actor has any name, and a request any size of answer that its node expects", "[user_actor]") {
  Asking t;
  const std::string long_name(10'000, 'n');
  for (const std::string& name :
       {std::string("two words: \"ä\"\n"), std::string("/a//b-c"), std::string("-"), long_name}) {
    t.add(name, [](const ActorRequest& request) {
      request.reply(std::vector{Tensor::zeros(DType::kInt32, {0, 3}).value()});
    });
    INFO(name.substr(0, 40));
    const RunResult r = t.session->run(t.call(name, {}, {-1, 3}));
    REQUIRE(r.ok());
    CHECK((*r)[0].shape() == Shape{0, 3});
    REQUIRE(remove_actor(*t.engine, name).ok());
  }
}

TEST_CASE("an actor without a name, and no actor, are refused", "[user_actor]") {
  Asking t;
  const caf::actor actor = actor_system(*t.engine).spawn<PlainAnswerer>([](const ActorRequest&) {});
  CHECK(add_actor(*t.engine, "", actor).error().code == Code::kInvalidArgument);
  CHECK(add_actor(*t.engine, "a", {}).error().code == Code::kInvalidArgument);
  CHECK(remove_actor(*t.engine, "").error().code == Code::kNotFound);
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_CASE("faults of an actor call stick to the scope", "[user_actor]") {
  {
    Asking t;
    CHECK_FALSE(actor_call(*t.scope, "a", "", {Output()}, {}));
    CHECK_FALSE(t.scope->ok());
    CHECK_FALSE(actor_call(*t.scope, "a", "", {}, {}));
  }
  Asking t;
  CHECK_FALSE(actor_call(*t.scope, "a", "", {}, {{DType::kInvalid}}));
  CHECK_FALSE(t.scope->ok());
}

TEST_CASE("an actor call in an engine without its op says how to register it", "[user_actor]") {
  TestEngine t;
  CHECK_FALSE(actor_call(t.scope, "tokenizer", "split", {}, {}));
  const Error error = t.scope.status().error();
  CHECK(error.code == Code::kFailedPrecondition);
  CHECK_THAT(error.message, Catch::Contains("user_actor_promises_test.cpp") && Catch::Contains("'tokenizer'") &&
                                Catch::Contains("register_ops = register_actor_ops"));
}

TEST_CASE("a step runs whoever is to hear of it: nobody, an actor that has ended", "[embed]") {
  TestEngine t;
  const Output v = t.variable("v", DType::kInt32, {});
  REQUIRE(t.session->run(t.scope.node("AssignVariableOp", {v, t.scope.constant(0)})).ok());
  auto add = t.session->prepare({}, {}, {t.scope.node("AssignAddVariableOp", {v, t.scope.constant(1)})});
  REQUIRE(add.ok());
  const caf::actor ended = actor_system(*t.engine).spawn<PlainAnswerer>([](const ActorRequest&) {});
  caf::anon_send_exit(ended, caf::exit_reason::kill);
  run_step(*t.session, *add, {}, caf::actor());
  run_step(*t.session, *add, {}, ended);
  t.session.reset();  // waits for both or cancels them
  t.session = std::make_unique<Session>(*t.engine, t.graph);
  const Tensor count = t.value({}, t.scope.op("ReadVariableOp", {v}, {{"dtype", DType::kInt32}}));
  CHECK(count.data<int32_t>()[0] <= 2);
  caf::scoped_actor self(actor_system(*t.engine));
  run_step(*t.session, nullptr, {}, caf::actor_cast<caf::actor>(self), UINT64_MAX);
  self->receive([&](const StepDone& done) {
    CHECK(done.tag == UINT64_MAX);
    CHECK(done.result->error().code == Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace troupe
