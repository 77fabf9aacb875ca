// SPDX-License-Identifier: Apache-2.0
// A child after fork() has none of the engine's threads: every call there is an error at once, and nothing hangs.
#include <caf/all.hpp>

#include <thread>

#include "tests/actors/socket_cluster.h"
#include "tests/child.h"
#include "tests/engine/fixtures.h"
#include "troupe/embed.h"

namespace troupe {
namespace {

bool is_refusal(const Status& s) { return !s.ok() && s.error().code == Code::kFailedPrecondition; }

struct Parts : TestEngine {
  const Output x = placeholder(DType::kInt32, {}), twice = scope.op("AddV2", {x, x});
};

TEST_CASE("a partial run of the parent's gives errors in a child", "[fork]") {
  Parts t;
  auto run = std::make_optional(t.session->partial_run({t.x}, {t.twice}).value());
  const Feed feed = {t.x, Tensor::scalar(4)};
  CHECK(in_child([&] {
          if (!is_refusal(run->run({feed}, t.twice).status())) return 1;
          int told = 0;
          run->run_async({feed}, t.twice, [&](RunResult r) { told += is_refusal(r.status()); });
          run->run_async({}, {}, [](RunResult) { throw 7; });
          if (told != 1) return 2;
          if (!is_refusal(t.session->partial_run({t.x}, {t.twice}).status())) return 3;
          run.reset();
          t.session.reset();
          return 0;
        }) == 0);
  const RunResult r = run->run({feed}, t.twice);
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(8)));
}

class Silent : public caf::event_based_actor {
 public:
  using caf::event_based_actor::event_based_actor;
  caf::behavior make_behavior() override {
    return {[](const ActorRequest&) {}};
  }
};

TEST_CASE("datasets, snapshots, actors and coroutines give errors in a child", "[fork]") {
  Parts t;
  const auto rows = Dataset::from_tensors({Tensor::of<int32_t>({1, 2})});
  REQUIRE(rows.ok());
  REQUIRE(t.engine->add_dataset("there", *rows).ok());
  caf::actor actor;  // made by a thread that does not live on, for whose logger the engine's end would wait
  std::thread([&] { actor = actor_system(*t.engine).spawn<Silent>(); }).join();
  REQUIRE(add_actor(*t.engine, "there", actor).ok());
  auto prepared = t.session->prepare({}, {t.scope.constant(1)});
  REQUIRE(prepared.ok());
  CHECK(in_child([&] {
          if (!is_refusal(t.engine->status())) return 1;
          if (!is_refusal(t.engine->add_dataset("new", *rows)) || !is_refusal(t.engine->remove_dataset("there")))
            return 2;
          if (!is_refusal(add_actor(*t.engine, "new", actor)) || !is_refusal(remove_actor(*t.engine, "there")))
            return 3;
          int told = 0;
          t.engine->snapshot([&](Result<Snapshot> s) { told += is_refusal(s.status()); });
          if (told != 1) return 4;
          if (t.engine->hold_sim()) return 5;
          auto awaited = t.session->run_async(*prepared);
          if (!awaited.await_ready() || !is_refusal(awaited.await_resume().status())) return 6;
          if (!is_refusal(t.session->run_future({}, {}).get().status())) return 7;
          t.engine->reset_container("");
          t.engine->trim_memory();
          t.session->close();
          t.engine.reset();
          return 0;
        }) == 0);
  CHECK(t.session->run(*prepared).ok());
  REQUIRE(remove_actor(*t.engine, "there").ok());
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_CASE("a child that lets go of a worker and of a client leaves the parent's as they are", "[fork]") {
  SocketCluster cluster(1);
  auto client = cluster.client();
  Graph graph(client->ops());
  const Output x = Scope(graph).device("/job:worker/task:0/cpu:0").op("Neg", {Scope(graph).constant(4)});
  auto session = std::make_optional<Session>(*client, graph);
  REQUIRE(session->run(x).ok());
  CHECK(in_child([&] {
          if (!is_refusal(cluster.workers[0]->engine().status()) || !is_refusal(session->run(x).status())) return 1;
          session.reset();
          client.reset();
          cluster.workers[0].reset();
          return 0;
        }) == 0);
  const RunResult r = session->run(x);
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(-4)));
  session.reset();
  client.reset();
  client = cluster.client();  // which finds the worker's socket
  CHECK(cluster_status(*client)[0].up);
}

TEST_CASE("a child makes an engine of its own", "[fork]") {
  Parts t;
  REQUIRE(t.session->run({{t.x, Tensor::scalar(1)}}, t.twice).ok());
#if !defined(__SANITIZE_THREAD__)  // which does not know threads that a child of a program with threads starts
  CHECK(in_child([&] {
          auto engine = Engine::create({.cpu_threads = {1}});
          if (!engine.ok()) return 1;
          Graph graph((*engine)->ops());
          const Scope scope(graph);
          Session session(**engine, graph);
          const RunResult r = session.run(scope.op("AddV2", {scope.constant(4), scope.constant(4)}));
          return r.ok() && (*r)[0].identical(Tensor::scalar(8)) ? 0 : 2;
        }) == 0);
#endif
}

TEST_CASE("a child's engine has a device of several threads, as its parent's had", "[fork]") {
  const auto run = [] {
    auto engine = Engine::create({.cpu_threads = {2}, .op_library = testing::op_library()});
    if (!engine.ok()) return false;
    Graph graph((*engine)->ops());
    const Scope scope(graph);
    const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{400, 400}}});
    const Output y = scope.op("MatMul", {scope.op("Tanh", {x}), x});
    Session session(**engine, graph);
    for (int i = 0; i < 3; ++i)
      if (!session.run({{x, *Tensor::zeros(DType::kFloat32, Shape{400, 400})}}, y).ok()) return false;
    return true;
  };
  REQUIRE(run());                  // OpenMP has made helpers for this thread
#if !defined(__SANITIZE_THREAD__)  // as above
  CHECK(in_child([&] { return run() ? 0 : 1; }) == 0);
#endif
}

}  // namespace
}  // namespace troupe
