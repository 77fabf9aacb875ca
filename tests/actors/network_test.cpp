// SPDX-License-Identifier: Apache-2.0
// A cluster over sockets, its tasks and its client in one process: what steps give, and the variables of its tasks.
#include <future>
#include <thread>

#include "actors/engine_impl.h"
#include "actors/network.h"
#include "tests/actors/socket_cluster.h"
#include "tests/actors/there_and_back.h"
#include "tests/repeats.h"

using namespace troupe;

TEST_CASE("tensors small and large go from task to task and come back as they were") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  CHECK(engine->devices() == std::vector<std::string>{"/job:localhost/replica:0/task:0/device:cpu:0",
                                                      "/job:worker/replica:0/task:0/device:cpu:0",
                                                      "/job:worker/replica:0/task:1/device:cpu:0"});
  ThereAndBack t(*engine);
  for (const int64_t n : {0, 1, 1000, 20'000, 1 << 20, many(40 << 20)}) {
    const Tensor value = ramp(n);
    const auto result = t.run(value);
    INFO(n << (result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(value));
  }
  // Strings, and what no process can send.
  const Output text = t.second.op(
      "Identity",
      {t.first.op("Identity", {t.scope.constant(Tensor::of<std::string>({"a", "", "long enough to be elsewhere"}))})});
  const auto strings = t.session.run({text});
  REQUIRE(strings.ok());
  CHECK((*strings)[0].data<std::string>()[2] == "long enough to be elsewhere");
}

TEST_CASE("more fetches than a frame has tensors are an error that names the task") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  const std::vector<Output> fetches((1 << 16) + 1, t.negative);
  refused(t.session.run({{t.x, ramp(1)}}, fetches), Code::kResourceExhausted,
          "its fetches cannot be sent from /job:worker/replica:0/task:1: ");
  CHECK(t.run(ramp(1)).ok());
}

TEST_CASE("handles and lists that would be fetched from another task, or fed to one, are an error of their node") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  const Attrs floats = {{"component_types", std::vector<DType>{DType::kFloat32}}};
  const Attrs list_of = {{"element_dtype", DType::kFloat32}, {"shape_type", DType::kInt32}};
  const auto empty_list = [&](const Scope& on, const std::string& name) {
    return on.named(name).op("EmptyTensorList", {on.constant(Tensor::of<int32_t>({2})), on.constant(3)}, list_of);
  };
  const auto names = [&](const RunResult& result, const std::string& node, const std::string& says) {
    refused(result, Code::kUnimplemented, says);
    CHECK(result.error().node == node);
  };
  const Output queue = t.first.named("queue").op("FIFOQueueV2", {}, floats);
  names(t.session.run(queue), "queue", "a resource, which cannot be fetched from /job:worker/replica:0/task:0");
  const Output list = empty_list(t.second, "list");
  names(t.session.run(list), "list", "a variant, which cannot be fetched from /job:worker/replica:0/task:1");
  const auto own = t.session.run({empty_list(t.scope, "own"), t.scope.op("FIFOQueueV2", {}, floats)});
  REQUIRE(own.ok());
  const Output fed_list = t.second.named("fed_list").op("Placeholder", {}, {{"dtype", DType::kVariant}});
  const Output fed_queue = t.first.named("fed_queue").op("Placeholder", {}, {{"dtype", DType::kResource}});
  names(t.session.run({{fed_list, (*own)[0]}}, t.second.op("TensorListLength", {fed_list})), "fed_list",
        "a variant cannot be fed to /job:worker/replica:0/task:1");
  names(t.session.run({{fed_queue, (*own)[1]}}, t.first.op("QueueSizeV2", {fed_queue})), "fed_queue",
        "a resource cannot be fed to /job:worker/replica:0/task:0");
  // To the client's own nodes of a step that other tasks take part in, they can.
  const Output fed_here = t.scope.op("Placeholder", {}, {{"dtype", DType::kResource}});
  const auto size =
      t.session.run({{fed_here, (*own)[1]}, {t.x, ramp(2)}}, {t.scope.op("QueueSizeV2", {fed_here}), t.back});
  INFO((size.ok() ? "" : size.error().str()));
  REQUIRE(size.ok());
  CHECK((*size)[0].identical(Tensor::scalar<int32_t>(0)));
}

TEST_CASE("what comes to a task that is larger than its devices may hold does not end the connection") {
  SocketCluster tasks(2, false);
  tasks.options.memory_limit = 1 << 20;
  for (const int task : {0, 1}) tasks.start(task);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  const Tensor large = ramp(1 << 20);
  const auto result = t.session.run({{t.x, large}}, {t.there});
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK((*result)[0].identical(large));
  // What a device makes itself is its own error.
  const Output filled = t.second.named("filled").op("Fill", {t.second.constant(Tensor::of<int32_t>({1 << 20})), t.x});
  const auto refusal = t.session.run({{t.x, Tensor::scalar(1.f)}}, {filled});
  refused(refusal, Code::kResourceExhausted, "limit 1048576");
  CHECK(refusal.error().node == "filled");
  CHECK(t.run(ramp(4)).ok());
  for (const TaskStatus& task : cluster_status(*engine)) CHECK(task.lives == 1);
}

TEST_CASE("steps of several threads are under way over sockets at once") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < many(150); ++k) {
        const Tensor value = ramp(i == 0 ? 60'000 : 7 + i);
        const auto result = t.run(value);
        wrong += !result.ok() || !(*result)[0].identical(value);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("callbacks are never called on the thread that reads for all") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  std::promise<std::thread::id> reader;
  engine->impl().network->multiplexer().post([&] { reader.set_value(std::this_thread::get_id()); });
  const std::thread::id reads = reader.get_future().get();
  const Tensor value = ramp(3);
  for (int i = 0; i < many(200); ++i) {  // one after the other, so that all are idle when something is read
    std::promise<std::thread::id> called;
    t.session.run_async({{t.x, value}}, {t.back}, {}, [&](RunResult result) {
      called.set_value(result.ok() ? std::this_thread::get_id() : std::thread::id());
    });
    const std::thread::id at = called.get_future().get();
    REQUIRE(at != std::thread::id());
    REQUIRE(at != reads);
  }
}

TEST_CASE("links between tasks are measured, and those within a task are not") {
  SocketCluster tasks(2, false);
  tasks.options.cpu_threads = {1, 1};
  tasks.start(0), tasks.start(1);
  tasks.options.cluster.measure_links = true;
  const auto engine = tasks.client();
  const Links& links = engine->impl().links;  // devices 0 and 1 are the client's
  for (const auto& [a, b] : {std::pair(0u, 2u), std::pair(1u, 5u), std::pair(2u, 4u), std::pair(5u, 3u)}) {
    CHECK(links.between(a, b).bandwidth <= 1e12);
    CHECK(links.between(a, b).bandwidth > 0);
    CHECK(links.between(a, b).latency_ns >= 100);
    CHECK(links.between(a, b).latency_ns == links.between(b, a).latency_ns);
  }
  CHECK(links.between(2, 3).bandwidth == 1e15);
  CHECK(links.between(0, 1).bandwidth == 1e15);
  // A step is placed by them.
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Output sum = scope.op("Add", {scope.constant(Tensor::scalar(1.f)), scope.constant(Tensor::scalar(2.f))});
  Session session(*engine, graph, {.placing = Placing::kByCost});
  CHECK((*session.run({sum}))[0].identical(Tensor::scalar(3.f)));
  // A task that is gone is an error, not a wait.
  tasks.workers[1].reset();
  CHECK_FALSE(measure_links(*engine).ok());
}

TEST_CASE("errors, deadlines and cancelled steps are those of one process") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  const Output queue = t.second.named("queue").op(
      "FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat32}}, {"capacity", int64_t{1}}});
  const Output element =
      t.second.op("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kFloat32}}});
  const Output waits = t.first.op("Neg", {element});
  RunResult late = make_error(Code::kInternal, "not run");
  // On a busy machine a deadline may pass before the second part begins.
  for (std::chrono::milliseconds allowed(30); late.error().node.empty() && allowed.count() < 20'000; allowed *= 2)
    late = t.session.run({}, {waits}, {}, {.deadline = allowed});
  refused(late, Code::kDeadlineExceeded, "ms, passed while it waited for this node");
  CHECK(late.error().node == element.node->name());
  CHECK_THAT(late.error().device, Catch::Contains("task:1"));
  CancelToken token;
  auto cancelled = t.session.run_future({}, {waits}, {}, {.cancel = token});
  token.cancel();
  refused(cancelled.get(), Code::kCancelled);
  // One part fails while another waits for what never comes.
  const Output zero = t.first.named("ratio").op(
      "FloorDiv", {t.first.constant(1), t.scope.op("Cast", {t.x}, {{"DstT", DType::kInt32}})});
  const Output sum = t.first.op("AddV2", {waits, t.first.op("Cast", {zero}, {{"DstT", DType::kFloat32}})});
  const auto failed = t.session.run({{t.x, f(0)}}, {sum});
  refused(failed, Code::kInvalidArgument);
  CHECK(failed.error().node == "ratio");
  CHECK(failed.error().device == "/job:worker/replica:0/task:0/device:cpu:0");
  CHECK(t.run(ramp(3)).ok());
}

TEST_CASE("variables stay with their tasks when a client goes") {
  SocketCluster tasks(2);
  const auto build = [](Engine& engine, auto&& use) {
    Graph graph(engine.ops());
    Scope scope(graph);
    const Scope on = scope.device("/job:worker/task:1");
    const Output v = on.op("VarHandleOp", {},
                           {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", std::string("v")}});
    const Output read = on.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
    on.named("set").op("AssignVariableOp", {v, on.constant(5.f)});
    Session session(engine, graph);
    use(session, read, graph.find("set"));
  };
  build(*tasks.client(), [](Session& s, Output, const Node* set) { REQUIRE(s.run({set}).ok()); });
  build(*tasks.client(), [](Session& s, Output read, const Node*) {
    const auto result = s.run({read});
    REQUIRE(result.ok());
    CHECK(number((*result)[0]) == 5.f);
  });
}

TEST_CASE("of variables that a former client left elsewhere a snapshot has those that the client's steps use") {
  SocketCluster tasks(3);
  const auto with_variable = [&](int task, const auto& then) {
    const auto engine = tasks.client();
    Graph graph(engine->ops());
    const Scope on = Scope(graph).device(fmt::format("/job:worker/task:{}", task));
    const Output v = on.op("VarHandleOp", {},
                           {{"shared_name", std::string("v")}, {"dtype", DType::kInt32}, {"shape", PartialShape{}}});
    Session session(*engine, graph);
    REQUIRE(session.run(on.node("AssignVariableOp", {v, on.constant(task)})).ok());
    then(*engine);
  };
  with_variable(0, [](Engine&) {});
  const auto has = [](int32_t value) {
    return [value](Engine& engine) {
      const auto taken = engine.snapshot().get();
      INFO((taken.ok() ? "" : taken.error().str()));
      REQUIRE(taken.ok());
      CHECK(taken->variables.at("v").identical(Tensor::scalar(value)));
    };
  };
  with_variable(1, has(1));
  with_variable(2, has(2));
  with_variable(0, has(0));
  // Who uses none is told of two.
  const auto of_none = tasks.client()->snapshot().get();
  REQUIRE_FALSE(of_none.ok());
  CHECK(of_none.error().code == Code::kAlreadyExists);
  CHECK(of_none.error().message.find("variable 'v' is on /job:worker/replica:0/task:") != std::string::npos);
}

TEST_CASE("variables that no frame carries are errors of snapshots and restoring that name the task") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Graph graph(engine->ops());
  const Scope on = Scope(graph).device("/job:worker/task:1");
  const auto variable = [&](const std::string& name, DType dtype) {
    return on.op("VarHandleOp", {}, {{"dtype", dtype}, {"shape", PartialShape::scalar()}, {"shared_name", name}});
  };
  const Output list = on.op("EmptyTensorList", {on.constant<int32_t>(-1), on.constant<int32_t>(-1)},
                            {{"element_dtype", DType::kFloat32}});
  const Node* const set = on.node("AssignVariableOp", {variable("list", DType::kVariant), list});
  const Node* const other = on.node("AssignVariableOp", {variable("number", DType::kFloat32), on.constant(1.f)});
  REQUIRE(on.ok());
  Session session(*engine, graph);
  REQUIRE(session.run(other).ok());
  auto taken = engine->snapshot().get();
  REQUIRE(taken.ok());
  REQUIRE(session.run(set).ok());
  const auto refused = engine->snapshot().get();
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, Catch::Contains("cannot be sent from /job:worker/replica:0/task:1: "));
  taken->variables["number"] = *Tensor::make(DType::kVariant, Shape{});
  const Status restored = engine->restore(*taken);
  REQUIRE_FALSE(restored.ok());
  CHECK_THAT(restored.error().message, Catch::Contains("asked of /job:worker/replica:0/task:1: "));
  taken->variables["number"] = Tensor::scalar(2.f);
  CHECK(engine->restore(*taken).ok());
}

TEST_CASE("snapshots, restoring and resets reach the variables of all tasks over sockets") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Graph graph(engine->ops());
  Scope scope(graph);
  std::vector<const Node*> init, add;
  Outputs reads;
  for (int i = 0; i < 2; ++i) {
    const Scope on = scope.device("/job:worker/task:" + std::to_string(i));
    const std::string name = "v" + std::to_string(i);
    const Output v =
        on.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", name}});
    on.named(name + "/set").op("AssignVariableOp", {v, on.constant(0.f)});
    on.named(name + "/add").op("AssignAddVariableOp", {v, on.constant(1.f)});
    init.push_back(graph.find(name + "/set"));
    add.push_back(graph.find(name + "/add"));
    reads.push_back(on.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}}));
  }
  Session session(*engine, graph);
  REQUIRE(session.run(init).ok());
  std::atomic<bool> stop{false};
  std::thread trains([&] {
    while (!stop)
      if (!session.run(add).ok()) std::abort();
  });
  for (int i = 0; i < many(50); ++i) {
    const auto snapshot = engine->snapshot().get();
    INFO((snapshot.ok() ? "" : snapshot.error().str()));
    REQUIRE(snapshot.ok());
    CHECK(number(snapshot->variables.at("v0")) == number(snapshot->variables.at("v1")));
  }
  stop = true;
  trains.join();
  REQUIRE(engine->restore({{{"v0", f(7)}, {"v1", f(8)}}}).ok());
  const auto values = session.run(reads);
  REQUIRE(values.ok());
  CHECK(number((*values)[0]) == 7.f);
  CHECK(number((*values)[1]) == 8.f);
  CHECK_FALSE(engine->restore({{{"v0", Tensor::scalar(1)}}}).ok());
  engine->reset_container("");
  refused(session.run(reads), Code::kFailedPrecondition, "no value yet");
  tasks.workers[1].reset();
  const auto lost = engine->snapshot().get();
  REQUIRE_FALSE(lost.ok());
  CHECK(lost.error().message.find("task:1") != std::string::npos);
}

TEST_CASE("a client's engine may end, and a session outlive it, while steps are under way over sockets") {
  for (int i = 0; i < repeats(8); ++i) {
    SocketCluster tasks(2);
    auto engine = tasks.client();
    ThereAndBack t(*engine);
    std::vector<std::future<RunResult>> steps;
    for (int k = 0; k < 20; ++k) steps.push_back(t.session.run_future({{t.x, ramp(100 * k)}}, {t.back}));
    engine.reset();
    for (auto& step : steps) {
      const RunResult result = step.get();
      CHECK((result.ok() || result.error().code == Code::kCancelled));
    }
    refused(t.run(ramp(1)), Code::kFailedPrecondition);
  }
}

TEST_CASE("the options of a cluster are checked") {
  EngineOptions options;
  options.cpu_threads = {1};
  options.cluster.spec = "{";
  CHECK(Engine::create(options).error().code == Code::kInvalidArgument);
  options.cluster.spec = "{\"cluster\":{\"worker\":[\"127.0.0.1:1\"]}}";
  options.cluster.silence = std::chrono::milliseconds(1);
  CHECK(Engine::create(options).error().code == Code::kInvalidArgument);
  options.cluster.silence = std::chrono::seconds(2);
  EngineOptions long_beat = options;
  long_beat.cluster.heartbeat = std::chrono::nanoseconds::max() / 2 + std::chrono::nanoseconds(1);
  CHECK(Engine::create(long_beat).error().code == Code::kInvalidArgument);
  CHECK(ClusterWorker::start(options).error().code == Code::kInvalidArgument);
  options.cluster.job = "worker";
  options.cluster.task = 1;
  CHECK(ClusterWorker::start(options).error().message.find("worker") != std::string::npos);
}
