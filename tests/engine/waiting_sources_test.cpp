// SPDX-License-Identifier: Apache-2.0
// Sources that wait, on an engine with one thread: other steps, devices, deadlines and snapshots go on; a step that
// asks ends by its deadline; session and engine end in time; and what comes late harms nobody.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/io/temporary_directory.h"
#include "tests/op_library.h"
#include "tests/repeats.h"
#include "troupe/blocking_kernel.h"
#include "troupe/checkpoint.h"
#include "troupe/dataset_queue.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// What a source waits on. Shared with it, since it may outlive engine and test.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    --waiting_;
    changed_.notify_all();
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Until so many wait, or more.
  bool await(int n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return waiting_ >= n; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};
using GateRef = std::shared_ptr<Gate>;

/// Its input, once the gate is open.
struct WaitKernel final : BlockingKernel {
  explicit WaitKernel(GateRef gate) : gate(std::move(gate)) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    gate->wait();
    return request.inputs;
  }
  const GateRef gate;
};

/// One device with one thread, unless `devices` says otherwise, and one thread for all actors.
struct OneThread {
  explicit OneThread(int devices = 1, SimOptions sim = {}) {
    EngineOptions options{.op_library = testing::op_library()};
    options.cpu_threads.assign(static_cast<size_t>(devices), 1);
    options.scheduler_threads = 1;
    options.sim = std::move(sim);
    options.register_ops = [gate = gate](OpRegistry& ops, KernelRegistry& kernels) {
      ops.add(OpDef("Wait")
                  .input("x: int32")
                  .output("y: int32")
                  .stateful()
                  .doc("x, late.")
                  .shape([](ShapeContext& c) -> Status {
                    c.set_output(0, c.input(0));
                    return {};
                  }),
              not_differentiable("a test"));
      kernels.add("Wait", DeviceKind::kCpu, {}, [gate](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
        return std::unique_ptr<Kernel>(std::make_unique<WaitKernel>(gate));
      });
    };
    engine = *Engine::create(std::move(options));
    graph.emplace(engine->ops());
    scope.emplace(*graph);
    session.emplace(*engine, *graph);
    x = scope->op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}});
  }
  ~OneThread() { gate->open(); }

  Output wait() { return scope->op("Wait", {x}); }
  Output next(const std::string& name, DType dtype = DType::kInt32) {
    const Attrs attrs{{"output_types", std::vector{dtype}},
                      {"output_shapes", std::vector<PartialShape>{PartialShape::scalar()}}};
    Attrs named = attrs;
    named.set("shared_name", name);
    named.set("container", std::string());
    return scope->op("IteratorGetNext", {scope->op("IteratorV2", {}, named)}, attrs);
  }
  std::future<RunResult> start(Output fetch, const RunOptions& options = {}) {
    INFO((scope->ok() ? "" : scope->status().error().str()));
    REQUIRE(scope->ok());
    return session->run_future({{x, Tensor::scalar(7)}}, {fetch}, {}, options);
  }
  /// Everything else works, and in time.
  void check_alive() {
    for (size_t i = 0; i < engine->devices().size(); ++i) {
      auto step = start(scope->device(engine->devices()[i]).op("Neg", {x}));
      REQUIRE(step.wait_for(20s) == std::future_status::ready);
      CHECK((*step.get())[0].identical(Tensor::scalar(-7)));
    }
    auto snapshot = engine->snapshot();
    REQUIRE(snapshot.wait_for(20s) == std::future_status::ready);
    CHECK(snapshot.get().ok());
    const Output empty =
        scope->op("QueueDequeueV2", {scope->op("FIFOQueueV2", {}, {{"component_types", std::vector{DType::kInt32}}})},
                  {{"component_types", std::vector{DType::kInt32}}});
    auto timed = start(empty, {.deadline = 1ms});
    REQUIRE(timed.wait_for(20s) == std::future_status::ready);
    CHECK(timed.get().error().code == Code::kDeadlineExceeded);
  }
  /// Ends session and engine; how long that took.
  Clock::duration end() {
    const auto before = Clock::now();
    session.reset();
    engine.reset();
    return Clock::now() - before;
  }

  const GateRef gate = std::make_shared<Gate>();
  std::unique_ptr<Engine> engine;
  std::optional<Graph> graph;
  std::optional<Scope> scope;
  std::optional<Session> session;
  Output x;  // fed with 7
};

/// The code of a step that must end by itself.
Code code_of(std::future<RunResult> step) {
  REQUIRE(step.wait_for(20s) == std::future_status::ready);
  const RunResult result = step.get();
  REQUIRE_FALSE(result.ok());
  return result.error().code;
}

Dataset numbers() { return *Dataset::from_tensors({Tensor::of<int32_t>({1, 2, 3})}); }

Dataset map_that_waits(const GateRef& gate) {
  return numbers().map([gate](Element e) -> Result<Element> {
    gate->wait();
    return e;
  });
}

Dataset function_that_waits(const GateRef& gate) {
  return *Dataset::from_function(
      [gate]() -> Result<std::optional<Element>> {
        gate->wait();
        return std::optional<Element>({Tensor::scalar(1)});
      },
      {DType::kInt32}, {PartialShape::scalar()});
}

/// A stage of a user's own, which knows nothing of waiting.
struct StageThatWaits final : Dataset::Stage {
  explicit StageThatWaits(GateRef gate) : gate(std::move(gate)) {}
  struct Iterator final : DatasetIterator {
    explicit Iterator(GateRef gate) : gate(std::move(gate)) {}
    ~Iterator() override { gate->wait(); }  // even its end waits
    Result<std::optional<Element>> next() override {
      gate->wait();
      return std::optional<Element>({Tensor::scalar(1)});
    }
    const GateRef gate;
  };
  Result<std::unique_ptr<DatasetIterator>> iterate() const override {
    return std::unique_ptr<DatasetIterator>(std::make_unique<Iterator>(gate));
  }
  std::vector<DType> dtypes() const override { return {DType::kInt32}; }
  std::vector<PartialShape> shapes() const override { return {PartialShape::scalar()}; }
  const GateRef gate;
};

TEST_CASE("a step that ends by its deadline, or is cancelled, names the node that it waited for") {
  OneThread t;
  const auto types = std::vector{DType::kInt32};
  const Output queue = t.scope->op("FIFOQueueV2", {}, {{"component_types", types}});
  const Output element = t.scope->named("element").op("QueueDequeueV2", {queue}, {{"component_types", types}});
  const Output late = t.scope->named("late").op("Wait", {t.x});
  const auto check = [&t](const RunResult& result, Code code, const char* op, const char* node, const char* text) {
    REQUIRE_FALSE(result.ok());
    const Error& error = result.error();
    CHECK(error.code == code);
    CHECK(error.op == op);
    CHECK(error.node == node);
    CHECK(error.device == t.engine->devices()[0]);
    CHECK(error.message == text);
  };
  for (const auto& [fetch, op, node] :
       {std::tuple(t.scope->op("Neg", {element}), "QueueDequeueV2", "element"), std::tuple(late, "Wait", "late")}) {
    std::chrono::milliseconds allowed = 5ms;  // on a busy machine it may pass before the step begins
    RunResult result = t.start(fetch, {.deadline = allowed}).get();
    while (result.error().node.empty() && allowed < 20s) result = t.start(fetch, {.deadline = allowed *= 2}).get();
    const auto text =
        fmt::format("the deadline of the step, {} ms, passed while it waited for this node", allowed.count());
    check(result, Code::kDeadlineExceeded, op, node, text.c_str());
  }
  CancelToken token;
  auto cancelled = t.start(element, {.cancel = token});
  t.check_alive();  // so it waits by now
  token.cancel();
  check(cancelled.get(), Code::kCancelled, "QueueDequeueV2", "element",
        "the caller cancelled while it waited for this node");
  // What fails by itself names what failed.
  const Output ratio = t.scope->named("ratio").op("FloorDiv", {t.x, t.scope->constant(0)});
  const RunResult failed = t.session->run({{t.x, Tensor::scalar(7)}}, {ratio, element}, {}, {.deadline = 20s});
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().node == "ratio");
}

TEST_CASE("a dataset that waits stops nobody, whatever part of it waits") {
  for (const int kind : {0, 1, 2}) {
    OneThread t(2);
    const Dataset dataset = kind == 0   ? map_that_waits(t.gate)
                            : kind == 1 ? function_that_waits(t.gate)
                                        : Dataset(std::make_shared<StageThatWaits>(t.gate));
    REQUIRE(t.engine->add_dataset("slow", dataset).ok());
    REQUIRE(t.engine->add_dataset("quick", numbers()).ok());
    REQUIRE(t.gate->await(1));
    t.check_alive();
    const Output slow = t.next("slow");
    CHECK(code_of(t.start(slow, {.deadline = 1ms})) == Code::kDeadlineExceeded);
    CancelToken token;
    auto cancelled = t.start(slow, {.cancel = token});
    auto waiting = t.start(slow);
    t.check_alive();
    token.cancel();
    CHECK(code_of(std::move(cancelled)) == Code::kCancelled);
    auto quick = t.start(t.next("quick"));
    REQUIRE(quick.wait_for(20s) == std::future_status::ready);
    CHECK((*quick.get())[0].identical(Tensor::scalar(1)));
    CHECK(waiting.wait_for(0s) == std::future_status::timeout);
    t.gate->open();
    REQUIRE(waiting.wait_for(20s) == std::future_status::ready);
    CHECK((*waiting.get())[0].identical(Tensor::scalar(1)));  // steps that ended took nothing
  }
}

TEST_CASE("a dataset that hangs can be restarted and removed, and its late element finds nobody") {
  OneThread t;
  REQUIRE(t.engine->add_dataset("slow", map_that_waits(t.gate)).ok());
  const Output slow = t.next("slow");
  auto waiting = t.start(slow);
  REQUIRE(t.gate->await(1));
  REQUIRE(t.engine->restart_dataset("slow").ok());
  REQUIRE(t.gate->await(2));  // the new one hangs beside the old one
  t.check_alive();
  REQUIRE(t.engine->remove_dataset("slow").ok());
  CHECK(code_of(std::move(waiting)) == Code::kCancelled);
  t.check_alive();
  REQUIRE(t.engine->add_dataset("slow", numbers()).ok());
  t.gate->open();
  auto step = t.start(slow);
  REQUIRE(step.wait_for(20s) == std::future_status::ready);
  CHECK((*step.get())[0].identical(Tensor::scalar(1)));
}

TEST_CASE("kernels that wait stop nobody, not even one another, and their steps end by their deadlines") {
  OneThread t(2);
  auto one = t.start(t.wait());
  auto two = t.start(t.wait());
  REQUIRE(t.gate->await(2));
  t.check_alive();
  CHECK(code_of(t.start(t.wait(), {.deadline = 1ms})) == Code::kDeadlineExceeded);
  CancelToken token;
  auto three = t.start(t.wait(), {.cancel = token});
  REQUIRE(t.gate->await(3));  // the deadline may have passed before its kernel began
  token.cancel();
  CHECK(code_of(std::move(three)) == Code::kCancelled);
  t.check_alive();
  t.gate->open();
  for (auto* step : {&one, &two}) {
    REQUIRE(step->wait_for(20s) == std::future_status::ready);
    CHECK((*step->get())[0].identical(Tensor::scalar(7)));
  }
  t.check_alive();
}

TEST_CASE("an error elsewhere ends a step at once though a kernel of it waits") {
  OneThread t(2);
  const Scope there = t.scope->device("/cpu:1");
  const Output wrong = there.op("FloorDiv", {t.x, there.op("Sub", {t.x, t.x})});
  auto step = t.session->run_future({{t.x, Tensor::scalar(7)}}, {t.wait(), wrong});
  CHECK(code_of(std::move(step)) == Code::kInvalidArgument);
}

TEST_CASE("a named pipe that nobody writes to holds up neither steps nor datasets nor the end") {
  const TemporaryDirectory d;
  const std::string pipe = d.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  {
    OneThread t;
    REQUIRE(t.engine->add_dataset("lines", *Dataset::from_text_lines({pipe})).ok());
    const Output contents = t.scope->op("ReadFile", {t.scope->constant(Tensor::scalar(pipe))});
    (void)code_of(t.start(contents, {.deadline = 1ms}));  // too late, or not a file: but it ends
    CHECK(code_of(t.start(t.next("lines", DType::kString), {.deadline = 1ms})) == Code::kDeadlineExceeded);
    t.check_alive();
    CHECK(t.end() < 10s);
  }
  // Those left behind end now, one after the other.
  std::thread([pipe] { std::ofstream(pipe) << "late\n"; }).join();
}

TEST_CASE("a slow reader of the named pipe that PrintV2 writes to holds up its step only") {
  const TemporaryDirectory d;
  const std::string pipe = d.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  REQUIRE(::fcntl(reader, F_SETFL, 0) == 0);  // reads wait
  OneThread t;
  const std::string text(size_t{1} << 21, 'x');  // more than a pipe holds
  const Node* print = t.scope->node("PrintV2", {t.scope->constant(Tensor::scalar(text))},
                                    {{"output_stream", "file://" + pipe}, {"end", std::string()}});
  auto printed = t.session->run_future({}, {}, {print});
  t.check_alive();
  CHECK(printed.wait_for(0s) == std::future_status::timeout);
  std::string got(text.size(), ' ');
  for (size_t n = 0; n < got.size();) {
    const ssize_t more = ::read(reader, got.data() + n, got.size() - n);
    if (more == 0 && n == 0) continue;  // it has not been opened yet
    REQUIRE(more > 0);
    n += static_cast<size_t>(more);
  }
  CHECK(got == text);
  REQUIRE(printed.wait_for(20s) == std::future_status::ready);
  CHECK(printed.get().ok());
  ::close(reader);
}

TEST_CASE("every op on files waits for a thread where it may wait, and meanwhile devices and resources go on") {
  constexpr int kThreads = 256;  // of an engine, for what waits
  const TemporaryDirectory d;
  OneThread t;
  const Scope& s = *t.scope;
  const auto text = [&](const std::string& word) { return s.constant(Tensor::scalar(word)); };
  const auto texts = [&](const std::string& word) { return s.constant(Tensor::of<std::string>({word})); };
  const std::string words = d.write("words", "a,1\nb,2\n"), saved = d.file("saved");
  REQUIRE(write_safetensors(saved, {{"v", Tensor::scalar(1.f)}}).ok());
  const Output table = s.op("HashTableV2", {}, {{"key_dtype", DType::kString}, {"value_dtype", DType::kInt64}});
  const std::vector<const Node*> touching = {
      s.node("ReadFile", {text(words)}),
      s.node("WriteFile", {text(d.file("written")), text("x")}),
      s.node("MatchingFiles", {texts(d.file("w*"))}),
      s.node("PrintV2", {text("x")}, {{"output_stream", "file://" + d.file("printed")}}),
      s.node("InitializeTableFromTextFileV2", {table, text(words)},
             {{"key_index", int64_t{-2}}, {"value_index", int64_t{-1}}}),
      s.node("SaveV2", {text(d.file("new")), texts("v"), texts(""), s.constant(1.f)}),
      s.node("RestoreV2", {text(saved), texts("v"), texts("")}, {{"dtypes", std::vector{DType::kFloat32}}}),
      s.node("FixedUnigramCandidateSampler", {s.constant(Tensor::of<int64_t>({1}, {1, 1}))},
             {{"num_true", int64_t{1}},
              {"num_sampled", int64_t{2}},
              {"unique", false},
              {"range_max", int64_t{2}},
              {"vocab_file", words}})};
  const Output size = s.op("LookupTableSizeV2", {table});
  std::vector<Output> waits;
  for (int i = 0; i < kThreads; ++i) waits.push_back(t.wait());
  INFO((s.ok() ? "" : s.status().error().str()));
  REQUIRE(s.ok());

  auto taken = t.session->run_future({{t.x, Tensor::scalar(7)}}, waits);
  REQUIRE(t.gate->await(kThreads));
  std::vector<std::future<RunResult>> steps;
  for (const Node* node : touching) steps.push_back(t.session->run_future({}, {}, {node}));
  t.check_alive();
  auto asked = t.start(size);
  REQUIRE(asked.wait_for(20s) == std::future_status::ready);
  CHECK((*asked.get())[0].identical(Tensor::scalar<int64_t>(0)));
  for (size_t i = 0; i < steps.size(); ++i) {
    INFO(touching[i]->op().name());
    CHECK(steps[i].wait_for(0s) == std::future_status::timeout);
  }
  t.gate->open();
  for (size_t i = 0; i < steps.size(); ++i) {
    INFO(touching[i]->op().name());
    REQUIRE(steps[i].wait_for(20s) == std::future_status::ready);
    const RunResult result = steps[i].get();
    INFO((result.ok() ? "" : result.error().str()));
    CHECK(result.ok());
  }
  REQUIRE(taken.wait_for(20s) == std::future_status::ready);
  CHECK((*t.session->run({}, {size}))[0].identical(Tensor::scalar<int64_t>(2)));
}

TEST_CASE("session and engine end in time while sources and kernels hang") {
  for (const int kind : {0, 1, 2, 3}) {
    OneThread t;
    if (kind == 0) REQUIRE(t.engine->add_dataset("slow", map_that_waits(t.gate)).ok());
    if (kind == 1) REQUIRE(t.engine->add_dataset("slow", Dataset(std::make_shared<StageThatWaits>(t.gate))).ok());
    if (kind < 2) CHECK(code_of(t.start(t.next("slow"), {.deadline = 1ms})) == Code::kDeadlineExceeded);
    if (kind == 2) CHECK(code_of(t.start(t.wait(), {.deadline = 20ms})) == Code::kDeadlineExceeded);
    std::optional<DatasetQueue> queue;
    if (kind == 3) {
      queue = *DatasetQueue::create({DType::kInt32}, {PartialShape::scalar()});
      REQUIRE(t.engine->add_dataset("slow", Dataset::from_queue(*queue)).ok());
      CHECK(code_of(t.start(t.next("slow"), {.deadline = 1ms})) == Code::kDeadlineExceeded);
    }
    CHECK(t.end() < 10s);
  }
}

TEST_CASE("engines end while their sources come back, again and again") {
  for (int i = 0; i < repeats(40); ++i) {
    OneThread t;
    REQUIRE(t.engine->add_dataset("slow", map_that_waits(t.gate).repeat()).ok());
    CHECK(code_of(t.start(t.next("slow"), {.deadline = 1ns})) == Code::kDeadlineExceeded);
    CHECK(code_of(t.start(t.wait(), {.deadline = 1ns})) == Code::kDeadlineExceeded);
    std::thread opener([gate = t.gate] { gate->open(); });
    if (i % 2) std::this_thread::yield();
    t.end();
    opener.join();
  }
}

TEST_CASE("steps end by deadline while their kernels answer, and each ends once") {
  OneThread t;
  t.gate->open();
  const auto prepared = t.session->prepare({t.x}, {t.wait()});
  REQUIRE(prepared.ok());
  int in_time = 0;
  for (int i = 0; i < repeats(400); ++i) {
    const RunResult result =
        t.session->run(*prepared, {Tensor::scalar(7)}, {.deadline = std::chrono::microseconds(5 * (i % 40) + 1)});
    if (result.ok()) ++in_time;
    else CHECK(result.error().code == Code::kDeadlineExceeded);
  }
  INFO(in_time);
  CHECK(t.session->run(*prepared, {Tensor::scalar(7)}).ok());
}

TEST_CASE("a queue feeds steps from a thread, from callbacks, and tells both of its end") {
  OneThread t;
  const auto queue = *DatasetQueue::create({DType::kInt32}, {PartialShape::scalar()}, 2);
  REQUIRE(t.engine->add_dataset("pushed", Dataset::from_queue(queue)).ok());
  const Output pushed = t.next("pushed");
  std::thread pusher([&] {
    for (int i = 0; i < 50; ++i) (void)queue.push({Tensor::scalar(i)}).ok();
  });
  for (int i = 0; i < 50; ++i) {
    auto step = t.start(pushed);
    REQUIRE(step.wait_for(20s) == std::future_status::ready);
    CHECK((*step.get())[0].identical(Tensor::scalar(i)));
  }
  pusher.join();
  auto step = t.start(pushed);
  t.session->run_async({{t.x, Tensor::scalar(7)}}, {t.scope->op("Neg", {t.x})}, {},
                       [queue](RunResult result) { (void)queue.try_push(std::move(*result)).ok(); });
  REQUIRE(step.wait_for(20s) == std::future_status::ready);
  CHECK((*step.get())[0].identical(Tensor::scalar(-7)));

  queue.fail(make_error(Code::kDataLoss, "the line broke"));
  CHECK(code_of(t.start(pushed)) == Code::kDataLoss);
  CHECK(code_of(t.start(pushed)) == Code::kOutOfRange);
}

TEST_CASE("a callback pushes while there is room; where it would wait it is refused") {
  OneThread t;
  const auto queue = *DatasetQueue::create({DType::kInt32}, {PartialShape::scalar()}, 1);
  std::promise<std::pair<Status, Status>> pushed;
  t.session->run_async({{t.x, Tensor::scalar(7)}}, {t.scope->op("Neg", {t.x})}, {}, [&](RunResult) {
    Status first = queue.push({Tensor::scalar(1)});
    pushed.set_value({std::move(first), queue.push({Tensor::scalar(2)})});
  });
  auto both = pushed.get_future();
  REQUIRE(both.wait_for(20s) == std::future_status::ready);
  const auto [first, second] = both.get();
  CHECK(first.ok());
  REQUIRE(second.error().code == Code::kFailedPrecondition);
  CHECK_THAT(second.error().message, Catch::Contains("try_push"));
  CHECK(queue.size() == 1);
}

TEST_CASE("pushers that wait are told when the engine ends, or the dataset is removed") {
  for (const bool whole : {false, true}) {
    OneThread t;
    const auto queue = *DatasetQueue::create({DType::kInt32}, {PartialShape::scalar()}, 1);
    const Dataset dataset = Dataset::from_queue(queue);  // kept: it is iterators that count
    REQUIRE(t.engine->add_dataset("pushed", dataset).ok());
    Status status;
    std::promise<void> second;  // for which there was no room until an iterator took the first
    std::thread pusher([&] {
      for (int i = 0; status.ok(); ++i) {
        status = queue.push({Tensor::scalar(1)});
        if (i == 1) second.set_value();
      }
    });
    second.get_future().wait();
    t.check_alive();
    if (whole) t.end();
    else REQUIRE(t.engine->remove_dataset("pushed").ok());
    pusher.join();
    CHECK(status.error().code == Code::kCancelled);
  }
}

TEST_CASE("deadlines: none, beyond the clock, zero and negative") {
  using std::chrono::nanoseconds;
  OneThread t;
  const std::vector<Feed> fed = {{t.x, Tensor::scalar(7)}};
  const Output fine = t.scope->op("Neg", {t.x});
  for (const nanoseconds d : {nanoseconds::max(), nanoseconds::max() - 1s, nanoseconds::max() / 2, nanoseconds(0)})
    CHECK(t.session->run(fed, {fine}, {}, {.deadline = d}).ok());
  const Node* count = t.scope->node(
      "QueueEnqueueV2",
      {t.scope->op("FIFOQueueV2", {}, {{"component_types", std::vector{DType::kInt32}}, {"shared_name", "began"}}),
       t.x});
  for (const nanoseconds d : {nanoseconds(-1), nanoseconds(-1s), nanoseconds::min()}) {
    const RunResult late = t.session->run(fed, {fine}, {count}, {.deadline = d});
    REQUIRE_FALSE(late.ok());
    CHECK(late.error().code == Code::kDeadlineExceeded);
  }
  const Output size = t.scope->op(
      "QueueSizeV2",
      {t.scope->op("FIFOQueueV2", {}, {{"component_types", std::vector{DType::kInt32}}, {"shared_name", "began"}})});
  CHECK((*t.session->run(std::vector<Feed>{}, {size}))[0].identical(Tensor::scalar(0)));  // none of them began

  for (const auto& [of_session, of_run, code] :
       {std::tuple{nanoseconds(-1), nanoseconds(0), std::optional(Code::kDeadlineExceeded)},
        std::tuple{nanoseconds(-1), nanoseconds::max(), std::optional<Code>()},
        std::tuple{nanoseconds::max(), nanoseconds(0), std::optional<Code>()},
        std::tuple{nanoseconds::max(), nanoseconds(-1), std::optional(Code::kDeadlineExceeded)}}) {
    Session session(*t.engine, *t.graph, {.deadline = of_session});
    const RunResult result = session.run(fed, {fine}, {}, {.deadline = of_run});
    CHECK(result.ok() == !code);
    if (code && !result.ok()) CHECK(result.error().code == *code);
  }
}

TEST_CASE("a deadline ends a step on simulated devices though their clock is held, or its kernel waits") {
  OneThread t(1, {.devices = std::vector<DeviceRates>(2)});
  const Scope sim = t.scope->device("/sim:0");
  const Output y = sim.op("Neg", {sim.op("AddV2", {t.x, t.x})});
  {
    const auto hold = t.engine->hold_sim();
    for (int i = 0; i < 3; ++i) CHECK(code_of(t.start(y, {.deadline = 1ms})) == Code::kDeadlineExceeded);
  }
  auto again = t.start(y);
  REQUIRE(again.wait_for(20s) == std::future_status::ready);
  CHECK(again.get().ok());
  const Output late = sim.op("ReadFile", {sim.constant(Tensor::scalar<std::string>("/no/such/file"))});
  CHECK(code_of(t.start(late)) == Code::kNotFound);
  const Output waits = sim.op("Wait", {t.x});
  CHECK(code_of(t.start(waits, {.deadline = 1ms})) == Code::kDeadlineExceeded);
  t.check_alive();
}

}  // namespace
}  // namespace troupe
