// SPDX-License-Identifier: Apache-2.0
// Datasets of the tasks of a cluster over sockets: what iterators on a task find by name, from which element on, and
// the errors of one process.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "actors/engine_impl.h"
#include "actors/network.h"
#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"

using namespace troupe;
using Catch::Contains;

namespace {

const std::string kOnTask0 = "/job:worker/task:0/cpu:0", kOnTask1 = "/job:worker/task:1/cpu:0";

/// 10 numbers from `first` on.
Dataset ten_from(int32_t first) {
  std::vector<int32_t> values;
  for (int32_t i = 0; i < 10; ++i) values.push_back(first + i);
  return *Dataset::from_tensors({Tensor::of<int32_t>(std::span<const int32_t>(values))});
}

/// The next element of a dataset of int32 scalars.
Output next_of(const Scope& scope, const std::string& name) {
  const std::vector<DType> dtypes = {DType::kInt32};
  const std::vector<PartialShape> shapes = {PartialShape::scalar()};
  const Output iterator =
      scope.op("IteratorV2", {}, {{"shared_name", name}, {"output_types", dtypes}, {"output_shapes", shapes}});
  return scope.named("next").op("IteratorGetNext", {iterator}, {{"output_types", dtypes}, {"output_shapes", shapes}});
}

/// Reads one dataset on one device.
struct Reader {
  Reader(Engine& engine, const std::string& device, const std::string& name = "numbers", SessionOptions options = {})
      : graph(engine.ops()), next(next_of(Scope(graph).device(device), name)), session(engine, graph, options) {}
  RunResult run(RunOptions options = {}) { return session.run({}, {next}, {}, options); }
  /// -1: an error, which the test's output has.
  int read() {
    const auto result = run();
    if (!result.ok()) UNSCOPED_INFO(result.error().str());
    return result.ok() ? (*result)[0].data<int32_t>()[0] : -1;
  }
  Graph graph;
  Output next;
  Session session;
};

/// Lets elements through up to a number; shared with what waits for it.
class ElementGate {
 public:
  explicit ElementGate(int32_t open) : open_(open) {}
  void wait_for(int32_t element) {
    std::unique_lock lock(mutex_);
    if (element >= open_) ++waiting_, changed_.notify_all();
    changed_.wait(lock, [&] { return element < open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = INT32_MAX;
    changed_.notify_all();
  }
  void await_waiting(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= n; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t open_;
  int waiting_ = 0;
};

/// ten_from(0), of which those from `open` on wait.
Dataset gated(const std::shared_ptr<ElementGate>& gate) {
  return ten_from(0).map([gate](Element e) -> Result<Element> {
    gate->wait_for(e[0].data<int32_t>()[0]);
    return e;
  });
}

/// A cluster whose tasks have these datasets.
struct Tasks : SocketCluster {
  explicit Tasks(std::vector<std::map<std::string, Dataset>> datasets)
      : SocketCluster(static_cast<int>(datasets.size()), false) {
    of_task = [datasets](ClusterOptions& own, int task) { own.datasets = datasets[static_cast<size_t>(task)]; };
    for (int i = 0; i < static_cast<int>(datasets.size()); ++i) start(i);
  }
};

}  // namespace

TEST_CASE("an iterator reads the dataset of its own task, though others have one of that name") {
  Tasks tasks({{{"numbers", ten_from(0)}}, {{"numbers", ten_from(100)}}});
  const auto engine = tasks.client();
  REQUIRE(engine->add_dataset("numbers", ten_from(1000)).ok());
  int read = 0;
  for (const SessionOptions& options :
       {SessionOptions{}, SessionOptions{.soft_placement = true}, SessionOptions{.placing = Placing::kByCost}}) {
    Graph graph(engine->ops());
    const Scope scope(graph);
    const Outputs all = {next_of(scope.scope("a").device(kOnTask0), "numbers"),
                         next_of(scope.scope("b").device(kOnTask1), "numbers"), next_of(scope.scope("c"), "numbers")};
    Session session(*engine, graph, options);
    for (int i = 0; i < 2; ++i, ++read) {
      const auto result = session.run(all);
      INFO((result.ok() ? "" : result.error().str()));
      REQUIRE(result.ok());
      for (size_t k = 0; k < 3; ++k) CHECK((*result)[k].data<int32_t>()[0] == std::vector{0, 100, 1000}[k] + read);
    }
  }
}

TEST_CASE("iterators without a device are where the session's default device is") {
  Tasks tasks({{{"numbers", ten_from(0)}}, {{"numbers", ten_from(100)}}});
  const auto engine = tasks.client();
  CHECK(Reader(*engine, "", "numbers", {.default_device = kOnTask1}).read() == 100);
  CHECK(Reader(*engine, "", "numbers", {.default_device = kOnTask0}).read() == 0);
  refused(Reader(*engine, "").run(), Code::kNotFound, "there is no dataset 'numbers'");
}

TEST_CASE("each client finds the datasets of tasks at their first element, and so does a reset") {
  Tasks tasks({{{"numbers", ten_from(0)}, {"more", ten_from(50)}}});
  for (int client = 0; client < 3; ++client) {
    const auto engine = tasks.client();
    Reader reader(*engine, kOnTask0), more(*engine, kOnTask0, "more");
    CHECK(reader.read() == 0);
    CHECK(reader.read() == 1);
    CHECK(more.read() == 50);
    engine->reset_container("other");
    CHECK(reader.read() == 2);
    engine->reset_container("");
    CHECK(reader.read() == 0);
    CHECK(more.read() == 50);
  }
}

TEST_CASE("datasets that a task adds to its engine keep their place for the next client, and a reset drops them") {
  Tasks tasks({{{"numbers", ten_from(0)}}});
  Engine& own = tasks.workers[0]->engine();
  REQUIRE(own.add_dataset("added", ten_from(10)).ok());
  CHECK(own.add_dataset("numbers", ten_from(10)).error().code == Code::kAlreadyExists);
  {
    const auto engine = tasks.client();
    Reader reader(*engine, kOnTask0, "added");
    CHECK(reader.read() == 10);
    CHECK(reader.read() == 11);
    REQUIRE(own.remove_dataset("numbers").ok());
    refused(Reader(*engine, kOnTask0).run(), Code::kNotFound, "'numbers'");
  }
  const auto engine = tasks.client();
  Reader reader(*engine, kOnTask0, "added"), numbers(*engine, kOnTask0);
  CHECK(reader.read() == 12);
  CHECK(numbers.read() == 0);
  CHECK(numbers.read() == 1);
  engine->reset_container("");
  refused(reader.run(), Code::kNotFound, "'added'");
  CHECK(numbers.read() == 0);
  own.reset_container("");
  CHECK(numbers.read() == 0);
}

TEST_CASE("a step that waits for an element when its client goes ends, and the next client gets that element") {
  const auto gate = std::make_shared<ElementGate>(2);
  Tasks tasks({{{"numbers", gated(gate)}}});
  {
    auto engine = tasks.client();
    auto reader = std::make_unique<Reader>(*engine, kOnTask0);
    CHECK(reader->read() == 0);
    CHECK(reader->read() == 1);
    auto waits = reader->session.run_future({}, {reader->next});
    gate->await_waiting(1);
    engine.reset();
    refused(waits.get(), Code::kCancelled);
  }
  const auto engine = tasks.client();
  Reader reader(*engine, kOnTask0);
  CHECK(reader.read() == 0);
  CHECK(reader.read() == 1);
  auto waits = reader.session.run_future({}, {reader.next});
  gate->open();
  const auto result = waits.get();
  REQUIRE(result.ok());
  CHECK((*result)[0].data<int32_t>()[0] == 2);
  CHECK(reader.read() == 3);
}

TEST_CASE("a step of a client that has gone, at work when the next one comes, takes none of its elements") {
  static ElementGate* gate = nullptr;  // of the kernel
  ElementGate own(0);
  gate = &own;
  struct Holds final : ComputeKernel {
    Status compute(KernelContext& c) override {
      gate->wait_for(0);
      c.set_output(0, Tensor::scalar<int32_t>(0));
      return {};
    }
  };
  SocketCluster tasks(1, false);
  tasks.options.register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
    ops.add(OpDef("Holds").output("y: int32").doc("A test's.").shape(scalar_shape).stateful(),
            not_differentiable("a test's"));
    kernels.add<Holds>("Holds", DeviceKind::kCpu, {});
  };
  tasks.of_task = [](ClusterOptions& options, int) { options.datasets = {{"numbers", ten_from(0)}}; };
  tasks.start(0);
  const auto& task = tasks.workers[0]->engine().impl();
  {
    const auto engine = tasks.client();
    Graph graph(engine->ops());
    const Scope far = Scope(graph).device(kOnTask0);
    const Node* const holds = far.node("Holds", {});
    const Output next = next_of(far.after({holds}), "numbers");
    Session session(*engine, graph);
    auto waits = session.run_future({}, {next});
    gate->await_waiting(1);
    engine->impl().network->stop("the test ends it");  // an engine's own end would wait for the kernel
    CHECK_FALSE(waits.get().ok());
  }
  const auto engine = tasks.client();
  Reader reader(*engine, kOnTask0);
  auto first = reader.session.run_future({}, {reader.next});
  // Until the next one's step is at the task, which knows that the first one has gone.
  const auto gone = [&] {
    return std::ranges::any_of(task.directory->steps.running(), [](const StepRef& s) { return s->failed(); });
  };
  while (task.worker->running() < 2 || !gone()) std::this_thread::yield();
  gate->open();
  const auto result = first.get();
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK((*result)[0].data<int32_t>()[0] == 0);
  CHECK(reader.read() == 1);
}

TEST_CASE("errors of a task's dataset are those of one process, with the task's device") {
  const auto gate = std::make_shared<ElementGate>(1);
  const auto waiting = [&] { return gated(gate); };
  const Dataset failing = ten_from(0).map([](Element e) -> Result<Element> {
    if (e[0].data<int32_t>()[0] == 1) return invalid_argument("one is bad");
    return e;
  });
  const Dataset throwing = ten_from(0).map([](Element) -> Result<Element> { throw std::runtime_error("thrown"); });
  const std::map<std::string, Dataset> datasets = {{"two", ten_from(0).take(2)},
                                                   {"failing", failing},
                                                   {"throwing", throwing},
                                                   {"waiting", waiting()},
                                                   {"vectors", ten_from(0).batch(2)}};
  Tasks tasks({{}, datasets});
  const auto far = tasks.client();
  const auto alone = Engine::create({.cpu_threads = {1}});
  REQUIRE(alone.ok());
  for (const auto& [name, dataset] : datasets) REQUIRE((*alone)->add_dataset(name, dataset).ok());

  const auto check = [&](const std::string& name, int before, Code code, const std::string& text,
                         RunOptions options = {}) {
    INFO(name);
    Reader here(**alone, "/cpu:0", name), there(*far, kOnTask1, name);
    for (int i = 0; i < before; ++i) CHECK(here.read() == there.read());
    const auto expected = here.run(options), got = there.run(options);
    refused(expected, code, text);
    refused(got, code, text);
    CHECK(got.error().message == expected.error().message);
    CHECK(got.error().op == expected.error().op);
    CHECK(got.error().node == expected.error().node);
    if (code != Code::kDeadlineExceeded && code != Code::kCancelled) {
      CHECK(got.error().op == "IteratorGetNext");
      CHECK(got.error().node == "next");
      CHECK(got.error().device == "/job:worker/replica:0/task:1/device:cpu:0");
    }
  };
  check("two", 2, Code::kOutOfRange, "end of the dataset");
  check("two", 0, Code::kOutOfRange, "end of the dataset");
  check("failing", 1, Code::kInvalidArgument, "one is bad");
  check("throwing", 0, Code::kInternal, "thrown");
  check("vectors", 0, Code::kInvalidArgument, "int32[2]");
  check("none", 0, Code::kNotFound, "there is no dataset 'none'");
  check("waiting", 1, Code::kDeadlineExceeded, "", {.deadline = std::chrono::milliseconds(30)});
  Reader failed(*far, kOnTask1, "failing"), waits(*far, kOnTask1, "waiting");
  CHECK(failed.read() == 2);  // the bad element cost itself alone
  CancelToken token;
  auto cancelled = waits.session.run_future({}, {waits.next}, {}, {.cancel = token});
  token.cancel();
  refused(cancelled.get(), Code::kCancelled);
  gate->open();
  CHECK(waits.read() == 1);  // neither the deadline nor the cancelled step took it
}

TEST_CASE("a client restarts the datasets of a name everywhere, and those who wait go on waiting") {
  const auto gate = std::make_shared<ElementGate>(2);
  Tasks tasks(
      {{{"numbers", ten_from(0)}, {"first", ten_from(20)}}, {{"numbers", ten_from(100)}, {"gated", gated(gate)}}});
  const auto engine = tasks.client();
  REQUIRE(engine->add_dataset("numbers", ten_from(1000)).ok());
  Reader a(*engine, kOnTask0), b(*engine, kOnTask1), c(*engine, ""), first(*engine, kOnTask0, "first");
  for (int i = 0; i < 2; ++i) {
    for (Reader* const reader : {&a, &b, &c}) CHECK(reader->read() < 1001);
    CHECK(first.read() == 20 + i);
    CHECK(engine->restart_dataset("numbers").ok());
    CHECK(a.read() == 0);
    CHECK(b.read() == 100);
    CHECK(c.read() == 1000);
    CHECK(engine->restart_dataset("numbers").ok());
  }
  CHECK(engine->restart_dataset("first").ok());
  CHECK(first.read() == 20);
  const Status none = engine->restart_dataset("none");
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == Code::kNotFound);
  CHECK_THAT(none.error().message, Contains("'none'"));

  Reader waits(*engine, kOnTask1, "gated");
  CHECK(waits.read() == 0);
  CHECK(waits.read() == 1);
  auto third = waits.session.run_future({}, {waits.next});
  gate->await_waiting(1);
  CHECK(engine->restart_dataset("gated").ok());
  const auto result = third.get();
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK((*result)[0].data<int32_t>()[0] == 0);
  gate->open();

  // A task that is lost has nothing to restart, and may have had what nobody else has.
  tasks.workers[1].reset();
  CHECK(engine->restart_dataset("numbers").ok());
  CHECK(a.read() == 0);
  CHECK(c.read() == 1000);
  const Status unknown = engine->restart_dataset("gated");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().code == Code::kUnavailable);
  CHECK_THAT(unknown.error().str(), Contains("task:1"));
  tasks.start(1);
}

TEST_CASE("datasets are a task's alone, with a name, and one that throws keeps the task from starting") {
  struct Throws final : Dataset::Stage {
    Result<std::unique_ptr<DatasetIterator>> iterate() const override { return invalid_argument("never"); }
    std::vector<DType> dtypes() const override { return {DType::kInt32}; }
    std::vector<PartialShape> shapes() const override { return {PartialShape::scalar()}; }
    bool may_wait() const override { throw std::runtime_error("no idea"); }
  };
  SocketCluster cluster(1, false);
  EngineOptions options = cluster.options;
  options.cluster.datasets = {{"numbers", ten_from(0)}};
  const auto words = [](const auto& status) { return status.ok() ? std::string() : status.error().str(); };
  CHECK_THAT(words(Engine::create(options)),
             Contains("invalid argument") && Contains("'numbers'") && Contains("client") && Contains("add_dataset"));
  CHECK_THAT(words(check_cluster(options.cluster)), Contains("'numbers'"));
  options.cluster.job = "worker";
  CHECK(check_cluster(options.cluster).ok());
  options.cluster.datasets = {{"", ten_from(0)}};
  CHECK_THAT(words(check_cluster(options.cluster)), Contains("must have a name"));
  CHECK_THAT(words(ClusterWorker::start(options)), Contains("must have a name"));
  options.cluster.datasets = {{"odd", Dataset(std::make_shared<Throws>())}};
  CHECK_THAT(words(ClusterWorker::start(options)), Contains("dataset 'odd': ") && Contains("no idea"));
  EngineOptions alone{.cpu_threads = {1}};
  alone.cluster.datasets = {{"numbers", ten_from(0)}};
  CHECK_THAT(words(Engine::create(alone)), Contains("'numbers'"));
}
