// SPDX-License-Identifier: Apache-2.0
// Sessions that actors of other nodes ask, over CAF's network: what they are answered, and what becomes of steps when
// somebody goes.
#include <caf/all.hpp>
#include <caf/io/middleman.hpp>

#include <thread>

#include "actors/engine_impl.h"
#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "tests/system/program.h"
#include "troupe/embed.h"

namespace troupe {
namespace {

using std::chrono::minutes;

/// A node of CAF's network.
struct CafNode {
  explicit CafNode(size_t threads = 1) : config(make(threads)), system(*config) {}
  static std::unique_ptr<caf::actor_system_config> make(size_t threads) {
    auto out = std::make_unique<caf::actor_system_config>();
    out->set("scheduler.max-threads", threads);
    out->load<caf::io::middleman>().add_message_types<caf::id_block::troupe_embed>();
    return out;
  }
  uint16_t publish(const caf::actor& actor) {
    const auto port = system.middleman().publish(actor, 0, "127.0.0.1", true);
    REQUIRE(port);
    return *port;
  }
  caf::actor connect(uint16_t port) {
    const auto actor = system.middleman().remote_actor("127.0.0.1", port);
    INFO((actor ? "" : caf::to_string(actor.error())));
    REQUIRE(actor);
    return *actor;
  }
  std::unique_ptr<caf::actor_system_config> config;
  caf::actor_system system;
};

/// Ends an actor, and waits until it has ended.
void end_actor(const caf::actor& actor) {
  caf::scoped_actor self{actor->home_system()};
  self->send_exit(actor, caf::exit_reason::user_shutdown);
  self->wait_for(actor);
}

/// x + x, and a dequeue that waits for ever, of an engine in the node's system.
struct ServedGraph {
  explicit ServedGraph(caf::actor_system& system) : engine(make(system)), graph(engine->ops()), scope(graph) {
    x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
    y = scope.named("y").op("AddV2", {x, x});
    queue = scope.named("queue").op("FIFOQueueV2", {}, {{"component_types", std::vector{DType::kFloat32}}});
    waits = scope.op("QueueDequeueV2", {queue}, {{"component_types", std::vector{DType::kFloat32}}});
    REQUIRE(scope.ok());
    session = std::make_unique<Session>(*engine, graph);
  }
  static std::unique_ptr<Engine> make(caf::actor_system& system) {
    auto out = create_engine(system, {.cpu_threads = {1}});
    REQUIRE(out.ok());
    return std::move(*out);
  }
  std::shared_ptr<Session::Prepared> prepare(std::vector<Output> feeds, std::vector<Output> fetches) {
    auto out = session->prepare(feeds, fetches);
    REQUIRE(out.ok());
    return *out;
  }
  size_t running() const { return engine->impl().directory->steps.running().size(); }
  void wait_until_running(size_t steps) const {
    while (running() != steps) std::this_thread::yield();
  }

  std::unique_ptr<Engine> engine;
  Graph graph;
  Scope scope;
  std::unique_ptr<Session> session;
  Output x, y, queue, waits;
};

/// What a server answers; an error of CAF's is kUnavailable with its text.
RunAnswer ask(caf::scoped_actor& self, const caf::actor& server, RunRequest request) {
  RunAnswer out;
  self->request(server, minutes(2), std::move(request))
      .receive(
          [&](RunAnswer& answer) { out = std::move(answer); },
          [&](const caf::error& error) { out.result = make_error(Code::kUnavailable, "{}", caf::to_string(error)); });
  return out;
}

}  // namespace

TEST_CASE("an actor of another node cannot be a node of a graph itself") {
  CafNode near, far;
  ServedGraph g(near.system);
  const caf::actor server = serve(near.system, g.prepare({}, {g.waits}));
  const caf::actor there = far.connect(near.publish(server));
  const auto engine = create_engine(far.system, {.cpu_threads = {1}, .register_ops = register_actor_ops});
  REQUIRE(engine.ok());
  refused(add_actor(**engine, "far", there).error(), Code::kInvalidArgument, "'far' is of another process");
  CHECK(add_actor(*g.engine, "near", server).ok());
  end_actor(server);
}

TEST_CASE("an actor of another node feeds a session and gets its results") {
  CafNode near, far;
  ServedGraph g(near.system);
  std::vector<Tensor> values = {
      f(1.5f),
      Tensor::of<float>({std::numeric_limits<float>::infinity(), std::nanf(""), -0.f}),
      Tensor::of<bool>({true, false}),
      Tensor::of<std::string>({"", std::string(100'000, 's')}),
      *Tensor::make(DType::kInt64, Shape{0, 4}),
      *Tensor::zeros(DType::kUInt8, Shape{16 << 20}),
  };
  auto* const large = values.back().mutable_data<uint8_t>();
  for (int i = 0; i < 16 << 20; ++i) large[i] = static_cast<uint8_t>(i * 7 + (i >> 8));
  std::vector<Output> feeds, fetches;
  for (const Tensor& value : values) {
    feeds.push_back(g.scope.op("Placeholder", {}, {{"dtype", value.dtype()}, {"shape", PartialShape::unknown()}}));
    fetches.push_back(g.scope.op("Identity", {feeds.back()}));
  }
  const caf::actor server = serve(near.system, g.prepare(feeds, fetches));
  {
    caf::scoped_actor self{far.system};
    const caf::actor there = far.connect(near.publish(server));
    for (int round = 0; round < 3; ++round) {
      const RunAnswer answer = ask(self, there, {static_cast<uint64_t>(round), values});
      INFO((answer.result.ok() ? "" : answer.result.error().str()));
      REQUIRE(answer.result.ok());
      CHECK(answer.tag == static_cast<uint64_t>(round));
      for (size_t i = 0; i < values.size(); ++i) CHECK((*answer.result)[i].identical(values[i]));
    }
    // By send() the answer is a message too.
    self->send(there, RunRequest{77, values});
    self->receive([](const RunAnswer& answer) {
      CHECK(answer.tag == 77);
      CHECK(answer.result.ok());
    });
  }
  end_actor(server);
}

TEST_CASE("errors of a step come to an actor of another node as they are") {
  CafNode near, far;
  ServedGraph g(near.system);
  const Output quotient =
      g.scope.named("quotient")
          .op("FloorDiv", {g.scope.constant(1), g.scope.op("Cast", {g.x}, {{"DstT", DType::kInt32}})});
  const caf::actor server = serve(near.system, g.prepare({g.x}, {quotient}));
  const caf::actor handles = serve(near.system, g.prepare({}, {g.queue}));
  const caf::actor waiting = serve(near.system, g.prepare({}, {g.waits}), {.deadline = std::chrono::milliseconds(20)});
  {
    caf::scoped_actor self{far.system};
    const caf::actor there = far.connect(near.publish(server));
    CHECK(ask(self, there, {1, {f(1)}}).result.ok());
    const RunAnswer zero = ask(self, there, {2, {f(0)}});
    refused(zero.result, Code::kInvalidArgument);
    CHECK(zero.tag == 2);
    CHECK(zero.result.error().node == "quotient");
    CHECK(zero.result.error().device == "/job:localhost/replica:0/task:0/device:cpu:0");
    refused(ask(self, there, {3, {}}).result, Code::kInvalidArgument, "0 values for 1 feeds");
    refused(ask(self, there, {3, {Tensor::scalar(1)}}).result, Code::kInvalidArgument);
    refused(ask(self, there, {3, {Tensor()}}).result, Code::kInvalidArgument);
    refused(ask(self, far.connect(near.publish(handles)), {}).result, Code::kInvalidArgument, "fetch 0 is a resource");
    refused(ask(self, far.connect(near.publish(waiting)), {}).result, Code::kDeadlineExceeded);
  }
  for (const caf::actor& actor : {server, handles, waiting}) end_actor(actor);
}

TEST_CASE("a server has a bound, answers each request once, and cancels its steps when it ends") {
  CafNode near(2);
  ServedGraph g(near.system);
  const caf::actor server = serve(near.system, g.prepare({}, {g.waits}), {.most_steps = 2});
  caf::scoped_actor self{near.system};
  self->send(server, RunRequest{1, {}});
  caf::anon_send(server, RunRequest{2, {}});
  self->send(server, RunRequest{3, {}});
  self->receive([](const RunAnswer& answer) {
    CHECK(answer.tag == 3);
    refused(answer.result, Code::kResourceExhausted, "2 steps are under way");
  });
  g.wait_until_running(2);
  end_actor(server);
  g.wait_until_running(0);
  self->receive([](const RunAnswer& answer) {
    CHECK(answer.tag == 1);
    refused(answer.result, Code::kCancelled, "has ended");
  });
}

TEST_CASE("who asked a server that ends while the step runs is answered, on its own node and on another") {
  CafNode near(2), far;
  ServedGraph g(near.system);
  const caf::actor server = serve(near.system, g.prepare({}, {g.waits}));
  caf::scoped_actor self{near.system}, other{far.system};
  const caf::actor there = far.connect(near.publish(server));
  self->send(server, RunRequest{1, {}});
  other->send(there, RunRequest{2, {}});
  g.wait_until_running(2);
  end_actor(server);
  for (caf::scoped_actor* const asker : {&self, &other})
    (*asker)->receive([&](const RunAnswer& answer) {
      CHECK(answer.tag == (asker == &self ? 1 : 2));
      refused(answer.result, Code::kCancelled, "has ended");
    });
}

TEST_CASE("the steps of an asker that ends are cancelled, others go on") {
  CafNode near(2);
  ServedGraph g(near.system);
  const caf::actor server = serve(near.system, g.prepare({}, {g.waits}));
  caf::scoped_actor other{near.system};
  other->send(server, RunRequest{9, {}});
  g.wait_until_running(1);
  {
    CafNode far;
    caf::scoped_actor self{far.system};
    const caf::actor there = far.connect(near.publish(server));
    for (uint64_t i = 0; i < 5; ++i) self->send(there, RunRequest{i, {}});
    g.wait_until_running(6);
  }  // the node goes too
  g.wait_until_running(1);
  const Node* put = g.scope.node("QueueEnqueueV2", {g.queue, g.scope.constant(4.f)});
  REQUIRE(g.session->run(put).ok());
  other->receive([](const RunAnswer& answer) {
    CHECK(answer.tag == 9);
    REQUIRE(answer.result.ok());
    CHECK(number((*answer.result)[0]) == 4);
  });
  end_actor(server);
}

TEST_CASE("requests race with the end of their session and engine, and each is answered once") {
  for (int i = 0; i < repeats(20); ++i) {
    CafNode near(2);
    auto g = std::make_unique<ServedGraph>(near.system);
    const caf::actor server = serve(near.system, g->prepare({g->x}, {g->y}), {.most_steps = 1000});
    caf::scoped_actor self{near.system};
    constexpr int kRequests = 100;
    std::thread asking([&] {
      for (int k = 0; k < kRequests; ++k) self->send(server, RunRequest{static_cast<uint64_t>(k), {f(1)}});
    });
    if (i % 2) g->session.reset();
    g.reset();  // session, graph, engine
    asking.join();
    std::set<uint64_t> tags;
    for (int k = 0; k < kRequests; ++k)
      self->receive([&](const RunAnswer& answer) {
        tags.insert(answer.tag);
        if (!answer.result.ok())
          CHECK((answer.result.error().code == Code::kFailedPrecondition ||
                 answer.result.error().code == Code::kCancelled));
      });
    CHECK(tags.size() == kRequests);
    const RunAnswer late = ask(self, server, {1, {f(1)}});
    refused(late.result, Code::kFailedPrecondition, "the session is closed");
    end_actor(server);
  }
  // Nothing was prepared.
  CafNode near;
  const caf::actor server = serve(near.system, nullptr);
  {
    caf::scoped_actor self{near.system};
    CHECK_FALSE(ask(self, server, {}).result.ok());
  }
  end_actor(server);
}

// -- with another process ---------------------------------------------------------------------------------------------

namespace {

constexpr const char* kPort = "TROUPE_TEST_PORT";

/// This program as another process that carries out a test case, which is told `port`; in this one it does nothing.
struct OtherProcess : testing::Program {
  explicit OtherProcess(const std::string& test, int port = 0) : testing::Program(with(port), {test}) {
    ::unsetenv(kPort);
  }
  static std::string with(int port) {
    ::setenv(kPort, std::to_string(port).c_str(), 1);
    return "/proc/self/exe";
  }
};

void say(const std::string& text) {
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

TEST_CASE("run server: asks for ever", "[.]") {
  const char* const port = std::getenv(kPort);
  if (!port) return;
  CafNode node;
  const caf::actor server = node.connect(static_cast<uint16_t>(std::atoi(port)));
  caf::scoped_actor self{node.system};
  (void)ask(self, server, {});
}

TEST_CASE("run server: serves for ever", "[.]") {
  if (!std::getenv(kPort)) return;
  CafNode node;
  ServedGraph g(node.system);
  const caf::actor sum = serve(node.system, g.prepare({g.x}, {g.y}));
  const caf::actor waits = serve(node.system, g.prepare({}, {g.waits}));
  say(fmt::format("ports {} {} .", node.publish(sum), node.publish(waits)));
  for (;;) ::pause();
}

TEST_CASE("the steps of an asker whose process is killed are cancelled") {
  CafNode near(2);
  ServedGraph g(near.system);
  const caf::actor server = serve(near.system, g.prepare({}, {g.waits}));
  const uint16_t port = near.publish(server);
  for (int i = 0; i < 3; ++i) {
    OtherProcess asker("run server: asks for ever", port);
    g.wait_until_running(1);
    asker.signal(SIGKILL);
    g.wait_until_running(0);
  }
  end_actor(server);
}

TEST_CASE("who monitors a server hears that its process was killed") {
  OtherProcess server("run server: serves for ever");
  REQUIRE(server.read_for(minutes(2), " ."));
  int sum_port = 0, waits_port = 0;
  REQUIRE(std::sscanf(server.out().c_str() + server.out().find("ports"), "ports %d %d", &sum_port, &waits_port) == 2);
  CafNode near;
  caf::scoped_actor self{near.system};
  const caf::actor sum = near.connect(static_cast<uint16_t>(sum_port)),
                   waits = near.connect(static_cast<uint16_t>(waits_port));
  const RunAnswer six = ask(self, sum, {1, {f(3)}});
  REQUIRE(six.result.ok());
  CHECK(number((*six.result)[0]) == 6);
  self->monitor(waits);
  self->send(waits, RunRequest{2, {}});
  server.signal(SIGKILL);
  self->receive([&](const caf::down_msg& down) { CHECK(down.source == waits); });
}

}  // namespace troupe
