// SPDX-License-Identifier: Apache-2.0
// Steps that several tasks run: cut anywhere, they give what one engine gives, bit for bit, and end as they do there.
#include <array>
#include <future>

#include "tests/actors/fake_cluster.h"
#include "tests/engine/fixtures.h"
#include "tests/engine/random_graph.h"
#include "tests/engine/random_loops.h"
#include "tests/repeats.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

constexpr const char* kOwn = "/job:localhost/replica:0/task:0";

}  // namespace

TEST_CASE("a step runs on the devices of three tasks") {
  FakeCluster cluster;
  Graph graph(cluster.client->ops());
  Scope scope(graph);
  const Scope first = scope.device("/job:worker/task:0/cpu:1"), second = scope.device("/job:worker/task:1");
  const Output x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}});
  const Output doubled = first.op("Mul", {x, first.constant(2.f)});
  const Output sum = second.op("AddV2", {doubled, x});
  Session session(*cluster.client, graph);
  for (int i = 0; i < 3; ++i) {
    const auto result = session.run({{x, Tensor::of<float>({1.f, static_cast<float>(i)})}}, {sum, doubled});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(Tensor::of<float>({3.f, 3.f * static_cast<float>(i)})));
    CHECK((*result)[1].identical(Tensor::of<float>({2.f, 2.f * static_cast<float>(i)})));
  }
}

TEST_CASE("random graphs cut at random give what one engine gives") {
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(40)); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    RandomGraph random(t, seed);
    const Outputs fetches = random.build();
    REQUIRE(t.scope.ok());
    FakeCluster cluster(seed);
    Both both(cluster, t.graph, seed);
    for (const auto& feeds : {by_name(random.feeds()), by_name(random.odd_feeds())})
      check_same(both.cut->run(feeds, names(fetches)), both.whole->run(feeds, names(fetches)));
  }
}

TEST_CASE("loops and branches cut at random give what one engine gives") {
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(40)); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    RandomLoops random(t.scope, seed, false);
    REQUIRE(t.scope.ok());
    Outputs fetches = random.outputs;
    if (const auto dx = gradients(t.scope, {random.outputs.back()}, {random.inputs[0]}); dx.ok() && (*dx)[0])
      fetches.push_back((*dx)[0]);
    FakeCluster cluster(seed);
    const SessionOptions options{.schedule_receives = seed % 2 == 0};
    Both both(cluster, t.graph, seed, options);
    check_same(both.cut->run(Named(), names(fetches)), both.whole->run(Named(), names(fetches)));
  }
}

namespace {

/// The gradient by x of what `kinds` says, from the outside in: loops (L), branches (C), and a value that goes through
/// an array of tensors which is made there (A). `devices` are those of the loops, of the arrays, of all else.
class LoopOfArrays {
 public:
  LoopOfArrays(const Scope& scope, const std::array<std::string, 3>& devices, std::string kinds)
      : devices_(devices), kinds_(std::move(kinds)) {
    x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}});
    const auto made = gradients(scope, {build(scope, x, 0)}, {x});
    INFO((made.ok() ? "" : made.error().str()));
    REQUIRE(made.ok());
    dx = (*made)[0];
  }
  Output x, dx;

 private:
  Output build(const Scope& scope, Output value, size_t at) const {
    if (kinds_[at] == 'L') return loop(scope.device(devices_[0]), value, at + 1);
    if (kinds_[at] == 'C') return branches(scope.device(devices_[2]), value, at + 1);
    return through_array(scope.device(devices_[2]), value);
  }
  Output loop(const Scope& scope, Output init, size_t at) const {
    return while_loop(
        scope, {scope.constant<int32_t>(0), init},
        [](const Scope& s, const std::vector<Output>& v) {
          return s.op("Less", {v[0], s.constant<int32_t>(3)});
        },
        [&](const Scope& s, const std::vector<Output>& v) {
          const Output next = s.op("EnsureShape", {build(s, v[1], at)}, {{"shape", PartialShape{2}}});
          return std::vector<Output>{s.op("AddV2", {v[0], s.constant<int32_t>(1)}), next};
        })[1];
  }
  Output branches(const Scope& scope, Output value, size_t at) const {
    const Output less = scope.op("Less", {scope.op("Sum", {value, scope.constant<int32_t>(0)}), scope.constant(.5f)});
    const auto taken = [&](const Scope& s) { return std::vector<Output>{build(s, value, at)}; };
    const auto other = [&](const Scope& s) { return std::vector<Output>{s.op("Neg", {value})}; };
    return cond(scope, less, taken, other)[0];
  }
  Output through_array(const Scope& scope, Output value) const {
    const Scope there = scope.device(devices_[1]);
    const Node* array = there.node("TensorArrayV3", {there.constant<int32_t>(1)},
                                   {{"dtype", DType::kFloat32}, {"element_shape", PartialShape{2}}});
    const Output index = there.constant<int32_t>(0);
    const Output flow =
        there.op("TensorArrayWriteV3", {array->out(0), index, scope.op("Tanh", {value}), array->out(1)});
    return scope.op("Sin", {there.op("TensorArrayReadV3", {array->out(0), index, flow}, {{"dtype", DType::kFloat32}})});
  }

  const std::array<std::string, 3> devices_;
  const std::string kinds_;
};

}  // namespace

TEST_CASE("gradients of arrays that iterations make go back on the tasks of these arrays") {
  const std::array<std::string, 3> places = {"/job:localhost/cpu:0", "/job:worker/task:0/cpu:0",
                                             "/job:worker/task:1/cpu:0"};
  FakeCluster cluster;
  unsigned number = 0;
  for (const char* kinds : {"LA", "LCA", "LLA", "LLCA", "LCLA", "CLA", "LCLCA"}) {
    const auto run = [&](const std::array<std::string, 3>& devices) {
      Graph graph(cluster.client->ops());
      const Scope scope(graph);
      const LoopOfArrays made(scope, devices, kinds);
      REQUIRE(scope.ok());
      Session session(*cluster.client, graph, {.passes = GraphPasses::none()});
      return session.run({{made.x, Tensor::of<float>({.2f, .4f})}}, {made.dx});
    };
    const auto expected = run({places[0], places[0], places[0]});
    INFO(kinds << (expected.ok() ? "" : expected.error().str()));
    REQUIRE(expected.ok());
    for (size_t i = 0; i < 27; ++i) {
      if (!runs_case(++number)) continue;
      const std::array<std::string, 3> devices = {places[i % 3], places[i / 3 % 3], places[i / 9]};
      INFO("loops on " << devices[0] << ", arrays on " << devices[1] << ", all else on " << devices[2]);
      check_same(run(devices), expected);
      if (i < 3) check_same(run({devices[0], "", ""}), expected);
    }
  }
}

TEST_CASE("a variable lives on one task, and what uses it runs there") {
  FakeCluster cluster;
  Graph graph(cluster.client->ops());
  Scope scope(graph);
  const Scope first = scope.device("/job:worker/task:0"), second = scope.device("/job:worker/task:1");
  const Output v = first.op("VarHandleOp", {},
                            {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", std::string("v")}});
  const Node* init = first.op("AssignVariableOp", {v, first.constant(1.f)}).node;
  (void)init;
  const Output read = second.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  const Output sum = second.op("AddV2", {read, read});
  auto added = graph.add({"AssignAddVariableOp", "add", {v, sum}, {{"dtype", DType::kFloat32}}, {read.node}});
  REQUIRE(added.ok());
  Session session(*cluster.client, graph);
  const Node* assign = graph.find("AssignVariableOp");
  REQUIRE(assign);
  REQUIRE(session.run({assign}).ok());
  for (const float expected : {1.f, 3.f, 9.f}) {
    const auto result = session.run({read}, {*added});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK(number((*result)[0]) == expected);
  }
}

TEST_CASE("transfers of 16 bits, numbers checked and several signatures are those of one engine") {
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(8)); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    RandomGraph random(t, seed);
    const Outputs fetches = random.build();
    FakeCluster cluster(seed);
    Both both(cluster, t.graph, seed, {.compress_transfers = TransferCompression::kBFloat16});
    for (size_t first = 0; first < fetches.size(); first += 3) {
      const Outputs some(fetches.begin() + static_cast<ptrdiff_t>(first), fetches.end());
      check_same(both.cut->run(by_name(random.feeds()), names(some)),
                 both.whole->run(by_name(random.feeds()), names(some)));
    }
    const RunOptions checked{.check_numerics = true};
    const auto got = both.cut->run(by_name(random.odd_feeds()), names(fetches), {}, checked);
    const auto expected = both.whole->run(by_name(random.odd_feeds()), names(fetches), {}, checked);
    CHECK(got.ok() == expected.ok());
  }
}

TEST_CASE("random numbers of a cut step go on as those of one engine") {
  TestEngine t;
  const Output shape = t.scope.constant(Tensor::of<int32_t>({4}));
  const auto draw = [&](int64_t seed) {
    return t.scope.op("RandomUniform", {shape}, {{"dtype", DType::kFloat32}, {"seed", seed}, {"seed2", int64_t{3}}});
  };
  const Output a = draw(5), b = draw(6), sum = t.scope.op("AddV2", {a, b});
  FakeCluster cluster;
  Both both(cluster, t.graph, 3);
  for (const Outputs& fetches : {Outputs{a, sum}, Outputs{sum, b}, Outputs{a, b}, Outputs{a, sum}})
    check_same(both.cut->run(Named(), names(fetches)), both.whole->run(Named(), names(fetches)));
  const RunOptions numbered{.random_step = 9};
  check_same(both.cut->run(Named(), names({sum}), {}, numbered), both.whole->run(Named(), names({sum}), {}, numbered));
}

namespace {

/// A queue on task 1 that nothing is put into, and an op on task 0 that fails where it is asked to.
struct Waits {
  explicit Waits(FakeCluster& cluster)
      : graph(cluster.client->ops()), scope(graph), first(scope.device("/job:worker/task:0")),
        second(scope.device("/job:worker/task:1")), session(*cluster.client, graph) {
    const Output queue = second.named("queue").op(
        "FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat32}}, {"capacity", int64_t{4}}});
    element = second.op("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kFloat32}}});
    put = second.op("QueueEnqueueV2", {queue, second.constant(1.f)}).node;
    if (!put) put = graph.find("QueueEnqueueV2");
    x = first.named("x").op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{}}});
    ratio = first.named("ratio").op("FloorDiv", {first.constant(1), x});
    waited = first.op("AddV2", {element, first.op("Cast", {ratio}, {{"DstT", DType::kFloat32}})});
    both = scope.op("Neg", {waited});
  }
  Graph graph;
  Scope scope, first, second;
  Session session;
  Output element, x, ratio, waited, both;
  const Node* put = nullptr;
};

}  // namespace

TEST_CASE("where one part fails the others end, and the session goes on") {
  FakeCluster cluster;
  Waits w(cluster);
  REQUIRE(w.scope.ok());
  for (int i = 0; i < 3; ++i) {
    const auto result = w.session.run({{w.x, Tensor::scalar(0)}}, {w.both});
    refused(result, Code::kInvalidArgument);
    CHECK(result.error().node == "ratio");
    CHECK(result.error().op == "FloorDiv");
    CHECK(result.error().device == "/job:worker/replica:0/task:0/device:cpu:0");
    CHECK(result.error().step > 0);
  }
  REQUIRE(w.session.run(NodeList(w.put)).ok());
  const auto result = w.session.run({{w.x, Tensor::scalar(1)}}, {w.both});
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK(number((*result)[0]) == -2.f);
}

TEST_CASE("deadlines, cancel tokens, a closed session and the end of an engine end a cut step") {
  auto cluster = std::make_unique<FakeCluster>();
  auto w = std::make_unique<Waits>(*cluster);
  const FeedList feeds{{w->x, Tensor::scalar(1)}};
  refused(w->session.run(feeds, {w->both}, {}, {.deadline = std::chrono::milliseconds(20)}), Code::kDeadlineExceeded);
  refused(w->session.run(feeds, {w->both}, {}, {.deadline = std::chrono::nanoseconds(-1)}), Code::kDeadlineExceeded);
  CancelToken token;
  auto cancelled = w->session.run_future(feeds, {w->both}, {}, {.cancel = token});
  token.cancel();
  refused(cancelled.get(), Code::kCancelled);
  refused(w->session.run(feeds, {w->both}, {}, {.cancel = token}), Code::kCancelled);
  auto closed = w->session.run_future(feeds, {w->both});
  w->session.close();
  refused(closed.get(), Code::kCancelled);
  w.reset();
  w = std::make_unique<Waits>(*cluster);
  auto ended = w->session.run_future({{w->x, Tensor::scalar(1)}}, {w->both});
  cluster.reset();
  refused(ended.get(), Code::kCancelled);
}

TEST_CASE("steps of several threads are at work at once, and a task that is lost ends those that need it") {
  FakeCluster cluster;
  Waits w(cluster);
  const Output other = w.second.op("Square", {w.first.op("Cast", {w.x}, {{"DstT", DType::kFloat32}})});
  std::vector<std::future<RunResult>> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(w.session.run_future({{w.x, Tensor::scalar(1)}}, {w.both}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < many(200); ++i) {
        const auto result = w.session.run({{w.x, Tensor::scalar(t)}}, {other});
        if (!result.ok() || number((*result)[0]) != static_cast<float>(t * t)) std::abort();
      }
    });
  for (std::thread& thread : threads) thread.join();
  const std::string task = "/job:worker/replica:0/task:1";
  // A step that has not begun there hears nothing: what it is sent to has the task's dequeue, so it has.
  while (cluster.worker("/job:worker/replica:0/task:0").running() < waiting.size()) std::this_thread::yield();
  cluster.worker("/job:worker/replica:0/task:0").lost_task(task, make_error(Code::kUnavailable, "{} was lost", task));
  for (auto& step : waiting) refused(step.get(), Code::kUnavailable, "was lost");
  CHECK(w.session.run({{w.x, Tensor::scalar(3)}}, {other}).ok());
}

TEST_CASE("one name on two tasks is an error with both") {
  FakeCluster cluster;
  Graph graph(cluster.client->ops());
  Scope scope(graph);
  const auto read = [&](const std::string& device) {
    const Scope on = scope.device(device);
    const Output v = on.op("VarHandleOp", {},
                           {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", std::string("v")}});
    return on.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  };
  const Output first = read("/job:worker/task:0"), again = read("/job:worker/task:0/cpu:1"),
               second = read("/job:worker/task:1");
  Session session(*cluster.client, graph);
  refused(session.run({first}), Code::kFailedPrecondition, "no value yet");
  refused(session.run({again}), Code::kFailedPrecondition, "no value yet");
  const auto result = session.run({second});
  refused(result, Code::kInvalidArgument, "/job:worker/replica:0/task:0");
  CHECK(result.error().message.find("/job:worker/replica:0/task:1") != std::string::npos);
  Session other(*cluster.client, graph);
  refused(other.run({second}), Code::kInvalidArgument, "/job:worker/replica:0/task:0");
}

TEST_CASE("a value that is not as the plan says fails its step, and what is for no step is dropped") {
  FakeCluster cluster;
  Waits w(cluster);
  const std::string first = "/job:worker/replica:0/task:0";
  Worker& worker = cluster.worker(first);
  int64_t step = 0;  // that the client begins next
  /// What becomes of steps into which such a value comes, by each edge there may be: one is the queue's element.
  const auto errors = [&](const std::function<void(EdgeValue&)>& change) {
    std::string out;
    for (uint32_t edge = 0; edge < 4; ++edge) {
      ++step;
      auto waiting = w.session.run_future({{w.x, Tensor::scalar(1)}}, {w.waited});
      EdgeValue value{FakeCluster::kClient, step, edge, f(1)};
      change(value);
      worker.received(std::move(value));
      const RunResult result = waiting.get();
      REQUIRE_FALSE(result.ok());
      CHECK(result.error().code == Code::kInvalidArgument);
      out += result.error().message + "\n";
    }
    return out;
  };
  using Catch::Contains;
  CHECK_THAT(errors([](EdgeValue& v) { v.value = Tensor::scalar(1); }),
             Contains("brings float32") && Contains("nothing here receives edge"));
  CHECK_THAT(errors([](EdgeValue& v) { v.dead = true; }), Contains("is in no branch"));
  CHECK_THAT(errors([](EdgeValue& v) { v.iterations = {3}; }), Contains("is in 0 loops"));
  CHECK_THAT(errors([](EdgeValue& v) { v.value = Tensor(); }), Contains("brings a tensor, but none came"));
  // For steps that ended, or will never be: dropped.
  for (int64_t other = 0; other < step; ++other) worker.received({FakeCluster::kClient, other, 1, f(1)});
  CHECK(worker.running() == 0);
}

namespace {

/// Three variables on three tasks; each step adds 1 to all of them.
struct Counters {
  explicit Counters(Engine& engine) : graph(engine.ops()), scope(graph), session(engine, graph) {
    for (const std::string device : {"/job:localhost/task:0", "/job:worker/task:0", "/job:worker/task:1"}) {
      const Scope on = scope.device(device);
      const std::string name = "v" + std::to_string(reads.size());
      const Output v =
          on.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", name}});
      on.named(name + "/set").op("AssignVariableOp", {v, on.constant(0.f)});
      on.named(name + "/add").op("AssignAddVariableOp", {v, on.constant(1.f)});
      init.push_back(graph.find(name + "/set"));
      add.push_back(graph.find(name + "/add"));
      reads.push_back(on.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}}));
    }
  }
  Graph graph;
  Scope scope;
  Session session;
  std::vector<const Node*> init, add;
  Outputs reads;
};

}  // namespace

TEST_CASE("a snapshot over tasks has each step wholly or not at all, and holds up none") {
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(8)); ++seed) {
    INFO("seed " << seed);
    FakeCluster cluster(seed);
    Counters c(*cluster.client);
    REQUIRE(c.session.run(c.init).ok());
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        while (!stop) {
          std::vector<std::future<RunResult>> steps;
          for (int k = 0; k < 3; ++k) steps.push_back(c.session.run_future({}, {}, c.add));
          for (auto& step : steps)
            if (!step.get().ok()) std::abort();
        }
      });
    float last = 0;
    for (int i = 0; i < many(40); ++i) {
      const auto snapshot = cluster.client->snapshot().get();
      INFO((snapshot.ok() ? "" : snapshot.error().str()));
      REQUIRE(snapshot.ok());
      REQUIRE(snapshot->variables.size() == 3);
      const float first = number(snapshot->variables.at("v0"));
      CHECK(number(snapshot->variables.at("v1")) == first);
      CHECK(number(snapshot->variables.at("v2")) == first);
      CHECK(first >= last);
      last = first;
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("a snapshot over tasks does not wait for steps that wait and change nothing") {
  FakeCluster cluster;
  Counters c(*cluster.client);
  REQUIRE(c.session.run(c.init).ok());
  Waits w(cluster);
  // It reads a variable too.
  const Output v = w.second.op(
      "VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", std::string("v2")}});
  const Output read = w.second.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  auto waiting = w.session.run_future({{w.x, Tensor::scalar(1)}}, {w.both, read});
  while (cluster.worker("/job:worker/replica:0/task:1").running() == 0) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) REQUIRE(cluster.client->snapshot().get().ok());
  REQUIRE(w.session.run(NodeList(w.put)).ok());
  CHECK(waiting.get().ok());
}

TEST_CASE("what is restored is where a step uses it, in any number of tasks, and a reset empties all") {
  Snapshot taken;
  {
    FakeCluster cluster;
    Counters c(*cluster.client);
    REQUIRE(c.session.run(c.init).ok());
    for (int i = 0; i < 5; ++i) REQUIRE(c.session.run(c.add).ok());
    taken = *cluster.client->snapshot().get();
    // Of variables that are somewhere.
    for (int i = 0; i < 2; ++i) REQUIRE(c.session.run(c.add).ok());
    REQUIRE(cluster.client->restore(taken).ok());
    const auto values = c.session.run(c.reads);
    REQUIRE(values.ok());
    for (const Tensor& value : *values) CHECK(number(value) == 5.f);
    cluster.client->reset_container("");
    refused(c.session.run(c.reads), Code::kFailedPrecondition, "no value yet");
    // Where steps find it that were planned before the reset.
    REQUIRE(cluster.client->restore(taken).ok());
    const auto again = c.session.run(c.reads);
    INFO((again.ok() ? "" : again.error().str()));
    REQUIRE(again.ok());
    for (const Tensor& value : *again) CHECK(number(value) == 5.f);
  }
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    FakeCluster cluster(seed);
    REQUIRE(cluster.client->restore(taken).ok());  // nothing has been used yet
    const auto same = cluster.client->snapshot().get();
    REQUIRE(same.ok());
    CHECK(same->variables.size() == 3);
    for (const auto& [name, value] : same->variables) CHECK(number(value) == 5.f);
    Counters c(*cluster.client);
    REQUIRE(c.session.run(c.add).ok());
    const auto values = c.session.run(c.reads);
    REQUIRE(values.ok());
    for (const Tensor& value : *values) CHECK(number(value) == 6.f);
  }
}

TEST_CASE("a step that waits on a task is told that the client has reset the container") {
  FakeCluster cluster;
  Waits w(cluster);
  const Output size = w.second.op("QueueSizeV2", {w.element.node->inputs()[0]});
  REQUIRE(w.session.run(NodeList(w.put)).ok());
  REQUIRE(w.session.run({{w.x, Tensor::scalar(1)}}, {w.waited}).ok());
  auto waiting = w.session.run_future({{w.x, Tensor::scalar(1)}}, {w.waited});
  REQUIRE(w.session.run(size).ok());  // once it is answered the other one waits
  cluster.client->reset_container("");
  refused(waiting.get(), Code::kCancelled, "the default container was reset by the client");
}

TEST_CASE("after a reset what a container had may be on other tasks") {
  for (const std::string container : {"", "c", "a/b\\c"}) {
    INFO("container '" << container << "'");
    FakeCluster cluster;
    Graph graph(cluster.client->ops());
    const Scope scope(graph);
    const auto made = [&](const std::string& container, const std::string& device) {
      const Scope on = scope.device(device);
      const Output v = on.op("VarHandleOp", {},
                             {{"container", container},
                              {"dtype", DType::kFloat32},
                              {"shape", PartialShape{}},
                              {"shared_name", std::string("v")}});
      return NodeList(on.node("AssignVariableOp", {v, on.constant(1.f)}));
    };
    const NodeList first = made(container, "/job:worker/task:0"), second = made(container, "/job:worker/task:1"),
                   other = made(container + "c", "/job:worker/task:0"),
                   moved = made(container + "c", "/job:worker/task:1");
    Session session(*cluster.client, graph);
    for (const NodeList& node : {first, other}) REQUIRE(session.run(node).ok());
    refused(session.run(second), Code::kInvalidArgument, "would be another one of the same name");
    cluster.client->reset_container(container);
    const auto result = session.run(second);
    INFO((result.ok() ? "" : result.error().str()));
    CHECK(result.ok());
    refused(session.run(moved), Code::kInvalidArgument, "would be another one of the same name");
    // What was planned before the reset does not make a second one.
    refused(session.run(first), Code::kInvalidArgument, "since its container was reset");
    CHECK(session.run(other).ok());
  }
}

TEST_CASE("what only the parts of cut steps have is an error elsewhere") {
  TestEngine t;
  const Output received = t.scope.op("_Recv", {}, {{"edge", int64_t{0}}, {"tensor_type", DType::kFloat32}});
  refused(t.session->run({received}), Code::kInvalidArgument, "parts of steps");
  auto sends = t.graph.add({"_Send", "sends", {t.scope.constant(1.f)}, {{"edge", int64_t{0}}}});
  REQUIRE(sends.ok());
  refused(t.session->run({*sends}), Code::kInvalidArgument, "parts of steps");
}
