// SPDX-License-Identifier: Apache-2.0
// Tasks and clients of a cluster in actor systems of the program's own.
#include <caf/all.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/network/test_multiplexer.hpp>

#include <future>

#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/embed.h"

namespace troupe {
namespace {

/// A program's own actor system with CAF's network.
struct OwnSystem {
  explicit OwnSystem(size_t threads = 2) : config(make(threads)), system(*config) {}
  static std::unique_ptr<caf::actor_system_config> make(size_t threads) {
    auto out = std::make_unique<caf::actor_system_config>();
    out->set("scheduler.max-threads", threads);
    out->load<caf::io::middleman>();
    return out;
  }
  std::unique_ptr<caf::actor_system_config> config;
  caf::actor_system system;
};

/// Tasks and a client, all in `system`.
struct HostedCluster {
  HostedCluster(caf::actor_system& system, int count) : tasks(count, false) {
    for (int i = 0; i < count; ++i) {
      EngineOptions own = tasks.options;
      own.cluster.job = "worker";
      own.cluster.task = i;
      auto worker = start_worker(system, own);
      INFO((worker.ok() ? "" : worker.error().str()));
      REQUIRE(worker.ok());
      CHECK(&actor_system((*worker)->engine()) == &system);
      tasks.workers[static_cast<size_t>(i)] = std::move(*worker);
    }
    auto made = create_engine(system, tasks.options);
    INFO((made.ok() ? "" : made.error().str()));
    REQUIRE(made.ok());
    client = std::move(*made);
  }
  SocketCluster tasks;
  std::unique_ptr<Engine> client;
};

/// x, added to itself on one task and negated on the other.
struct SumThere {
  explicit SumThere(Engine& engine) : graph(engine.ops()), scope(graph), session(engine, graph) {
    x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
    const Output sum = scope.device("/job:worker/task:0").op("AddV2", {x, x});
    y = scope.device("/job:worker/task:1").op("Neg", {sum});
    REQUIRE(scope.ok());
  }
  Graph graph;
  Scope scope;
  Session session;
  Output x, y;
};

class PlusOne : public caf::event_based_actor {
 public:
  using caf::event_based_actor::event_based_actor;
  caf::behavior make_behavior() override {
    return {[](int x) { return x + 1; }};
  }
};

bool adds_one(caf::actor_system& system, const caf::actor& echo) {
  caf::scoped_actor self{system};
  bool right = false;
  self->request(echo, std::chrono::seconds(60), 41).receive([&](int x) { right = x == 42; }, [](const caf::error&) {});
  return right;
}

/// Asks for steps 0, 1, ..., each when the last one has answered, and keeps the sum of what they give.
class StepChain : public caf::event_based_actor {
 public:
  StepChain(caf::actor_config& config, Session& session, std::shared_ptr<Session::Prepared> prepared, int steps,
            std::promise<float>& sum)
      : caf::event_based_actor(config), session_(session), prepared_(std::move(prepared)), steps_(steps), sum_(sum) {}
  caf::behavior make_behavior() override {
    ask(0);
    return {[this](const StepDone& done) {
      total_ += done.result->ok() ? number((**done.result)[0]) : std::nanf("");
      const int next = static_cast<int>(done.tag) + 1;
      if (next < steps_) return ask(next);
      sum_.set_value(total_);
      quit();
    }};
  }

 private:
  void ask(int i) {
    run_step(session_, prepared_, {f(static_cast<float>(i))}, caf::actor_cast<caf::actor>(this),
             static_cast<uint64_t>(i));
  }
  Session& session_;
  const std::shared_ptr<Session::Prepared> prepared_;
  const int steps_;
  std::promise<float>& sum_;
  float total_ = 0;
};

}  // namespace

TEST_CASE("two tasks and their client live in one actor system of the program's, with one thread and with several") {
  for (const size_t threads : {1, 3}) {
    OwnSystem own(threads);
    const caf::actor echo = own.system.spawn<PlusOne>();
    {
      HostedCluster h(own.system, 2);
      SumThere p(*h.client);
      const auto prepared = p.session.prepare({p.x}, {p.y});
      REQUIRE(prepared.ok());
      std::promise<float> sum;
      constexpr int kSteps = 50;
      own.system.spawn<StepChain>(std::ref(p.session), *prepared, kSteps, std::ref(sum));
      CHECK(sum.get_future().get() == -2.f * kSteps * (kSteps - 1) / 2);
      CHECK(adds_one(own.system, echo));
      CHECK(h.tasks.workers[0]->connected().size() == 2);
    }
    CHECK(adds_one(own.system, echo));
    caf::anon_send_exit(echo, caf::exit_reason::user_shutdown);
  }
}

TEST_CASE("tasks, client, session and the program's actors end in any order while steps wait") {
  std::vector<int> order{0, 1, 2, 3};
  int tried = 0;
  do {
    if (++tried > repeats(24)) break;
    OwnSystem own;
    caf::actor echo = own.system.spawn<PlusOne>();
    HostedCluster h(own.system, 2);
    auto p = std::make_unique<SumThere>(*h.client);
    const std::vector<DType> types{DType::kFloat32};
    const Output queue = p->scope.device("/job:worker/task:1")
                             .op("FIFOQueueV2", {}, {{"component_types", types}, {"capacity", int64_t{1}}});
    const Output element =
        p->scope.device("/job:worker/task:1").op("QueueDequeueV2", {queue}, {{"component_types", types}});
    const Output waits = p->scope.device("/job:worker/task:0").op("Neg", {element});
    REQUIRE(p->scope.ok());
    REQUIRE(p->session.run({{p->x, f(1)}}, {p->y}).ok());
    auto waiting = p->session.run_future({}, {waits});
    for (const int what : order) {
      if (what < 2) h.tasks.workers[static_cast<size_t>(what)].reset();
      else if (what == 2) h.client.reset();
      else caf::anon_send_exit(std::exchange(echo, nullptr), caf::exit_reason::user_shutdown);
    }
    CHECK_FALSE(waiting.get().ok());
    CHECK_FALSE(p->session.run({{p->x, f(1)}}, {p->y}).ok());
    p.reset();
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a task in a program's actor system ends and comes back, and the session goes on") {
  OwnSystem own;
  HostedCluster h(own.system, 2);
  SumThere p(*h.client);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(p.session.run({{p.x, f(3)}}, {p.y}).ok());
    h.tasks.workers[1].reset();
    refused(p.session.run({{p.x, f(3)}}, {p.y}), Code::kUnavailable, "task:1");
    EngineOptions options = h.tasks.options;
    options.cluster.job = "worker";
    options.cluster.task = 1;
    auto again = start_worker(own.system, options);
    REQUIRE(again.ok());
    h.tasks.workers[1] = std::move(*again);
    RunResult result = p.session.run({{p.x, f(3)}}, {p.y});
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
         !result.ok() && std::chrono::steady_clock::now() < end;)
      result = p.session.run({{p.x, f(3)}}, {p.y});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK(number((*result)[0]) == -6);
  }
}

TEST_CASE("tasks may have actors of one name, and a node asks that of its device") {
  SocketCluster tasks(2, false);
  tasks.options.register_ops = register_actor_ops;
  for (const int task : {0, 1}) tasks.start(task);
  const auto engine = tasks.client();
  const auto add = [](Engine& to, float factor) {
    const caf::actor actor = actor_system(to).spawn([factor](caf::event_based_actor*) -> caf::behavior {
      return {[factor](const ActorRequest& request) {
        request.reply(std::vector{Tensor::scalar(factor * request.inputs[0].data<float>()[0])});
      }};
    });
    REQUIRE(add_actor(to, "scale", actor).ok());
    return actor;
  };
  const caf::actor actors[] = {add(tasks.workers[0]->engine(), 2), add(tasks.workers[1]->engine(), 3), add(*engine, 5)};
  {
    Graph graph(engine->ops());
    const Scope scope(graph);
    Output y = scope.constant(1.f);
    for (const std::string device : {"/job:worker/task:0", "/job:worker/task:1", ""}) {
      const Node* call = actor_call(scope.device(device), "scale", "", {y}, {{DType::kFloat32, PartialShape{}}});
      REQUIRE(call);
      y = call->out();
    }
    Session session(*engine, graph);
    const auto result = session.run(y);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(Tensor::scalar(30.f)));
  }
  for (const caf::actor& actor : actors) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_CASE("an actor system that cannot carry a cluster is an error that says what it lacks") {
  SocketCluster tasks(1);
  EngineOptions task = tasks.options;
  task.cluster.job = "worker";
  const auto refuses = [&](caf::actor_system& system, std::string_view text) {
    const auto says = [&](const Error& error) {
      INFO(error.str());
      CHECK(error.code == Code::kFailedPrecondition);
      CHECK(error.message.find(text) != std::string::npos);
    };
    const auto client = create_engine(system, tasks.options);
    REQUIRE_FALSE(client.ok());
    says(client.error());
    const auto worker = start_worker(system, task);
    REQUIRE_FALSE(worker.ok());
    says(worker.error());
    CHECK(create_engine(system, {.cpu_threads = {1}}).ok());
  };
  {
    caf::actor_system_config config;
    config.set("scheduler.max-threads", size_t{1});
    caf::actor_system system(config);
    refuses(system, "load<caf::io::middleman>()");
  }
  {
    caf::actor_system_config config;
    config.set("scheduler.max-threads", size_t{1});
    config.load<caf::io::middleman, caf::io::network::test_multiplexer>();
    caf::actor_system system(config);
    refuses(system, "default_multiplexer");
  }
  OwnSystem own;
  task.cluster.task = 7;
  CHECK_FALSE(start_worker(own.system, task).ok());
}

/// Makes a client within its handler.
class Making : public caf::event_based_actor {
 public:
  Making(caf::actor_config& config, const EngineOptions& options, std::promise<Status>& made)
      : caf::event_based_actor(config), options_(options), made_(made) {}
  caf::behavior make_behavior() override {
    made_.set_value(create_engine(system(), options_).status());
    return {};
  }

 private:
  const EngineOptions& options_;
  std::promise<Status>& made_;
};

TEST_CASE("an actor may not make a client in its system, which would wait for its thread") {
  const SocketCluster tasks(1, false);
  OwnSystem own(1);
  std::promise<Status> made;
  own.system.spawn<Making>(std::cref(tasks.options), std::ref(made));
  const Status status = made.get_future().get();
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == Code::kFailedPrecondition);
  CHECK(status.error().message.find("an actor") != std::string::npos);
}

}  // namespace troupe
