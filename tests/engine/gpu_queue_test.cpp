// SPDX-License-Identifier: Apache-2.0
// Queues whose elements are in a GPU's memory, on a fake of CUDA: what is put in is copied before it is taken, they
// wait and close as queues of the host do, and what asks from elsewhere is refused.
#include <catch2/catch.hpp>

#include <future>

#include "tests/gpu/fake_platform.h"
#include "troupe/control_flow.h"
#include "troupe/scope.h"
#include "troupe/session.h"
#include "troupe/trace.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

/// A queue of one float32 vector of `size` and one string, on a device, and what uses it.
struct QueueStage {
  explicit QueueStage(FakeGpus& gpus, EngineOptions options, const char* device = "/gpu:0", int64_t size = 4)
      : engine(Engine::create(std::move(options)).value()), graph(engine->ops()), at(scope.device(device)) {
    (void)gpus;
    handle = at.named("q").op("_DeviceQueue", {}, queue_attrs(size));
    x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{size}}});
    text = scope.op("Placeholder", {}, {{"dtype", DType::kString}, {"shape", PartialShape::scalar()}});
    put = at.named("put").node("QueueEnqueueV2", {handle, x, text});
    const Node* taken = at.named("take").node("QueueDequeueV2", {handle}, {{"component_types", types()}});
    REQUIRE(scope.ok());
    twice = at.op("Add", {taken->out(0), taken->out(0)});
    name = taken->out(1);
    close = at.node("QueueCloseV2", {handle});
    count = at.op("QueueSizeV2", {handle});
    closed = at.op("QueueIsClosedV2", {handle});
    REQUIRE(scope.ok());
    session.emplace(*engine, graph, SessionOptions{.soft_placement = true});
  }
  static std::vector<DType> types() { return {DType::kFloat32, DType::kString}; }
  static Attrs queue_attrs(int64_t size, const char* shared = "q") {
    return {{"component_types", types()},
            {"shapes", std::vector<PartialShape>{PartialShape{size}, PartialShape::scalar()}},
            {"capacity", int64_t{2}},
            {"shared_name", std::string(shared)}};
  }
  /// A run under way: its result.
  std::future<RunResult> begin(const FeedList& feeds, const OutputList& fetches, const NodeList& targets = {}) {
    const auto promise = std::make_shared<std::promise<RunResult>>();
    session->run_async(feeds, fetches, targets, [promise](RunResult result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
  FeedList element(float first) const {
    Tensor values = Tensor::zeros(DType::kFloat32, Shape{x.shape().dim(0)}).value();
    values.mutable_data<float>()[0] = first;
    return {{x, values}, {text, Tensor::scalar<std::string>(fmt::format("e{}", first))}};
  }
  std::unique_ptr<Engine> engine;
  Graph graph;
  Scope scope{graph}, at;
  Output handle, x, text, twice, name, count, closed;
  const Node *put = nullptr, *close = nullptr;
  std::optional<Session> session;
};

}  // namespace

TEST_CASE("gpu queue: elements are copied into the GPU's memory before they are taken") {
  FakeGpus gpus;
  // From 1 MiB on another thread copies.
  const int64_t size = GENERATE(int64_t{4}, int64_t{300'000});
  QueueStage s(gpus, gpus.options(), "/gpu:0", size);
  const auto copies = [](const std::vector<TraceEvent>& events) {
    return std::ranges::count_if(events, [](const TraceEvent& e) {
      return e.kind == TraceEvent::Kind::kCopyIn && e.node->dtype(0) == DType::kFloat32;
    });
  };
  for (float i = 0; i < 5; ++i) {
    const auto putting = std::make_shared<Trace>(), taking = std::make_shared<Trace>();
    REQUIRE(s.session->run(s.element(i), {}, {s.put}, {.trace = putting}).ok());
    const auto taken = s.session->run({}, {s.twice, s.name, s.count}, {}, {.trace = taking});
    INFO((taken.ok() ? "" : taken.error().str()));
    REQUIRE(taken.ok());
    CHECK((*taken)[0].data<float>()[0] == 2 * i);
    CHECK((*taken)[0].data<float>()[size - 1] == 0);
    CHECK((*taken)[1].data<std::string>()[0] == fmt::format("e{}", i));
    CHECK(copies(putting->take()) > 0);
    CHECK(copies(taking->take()) == 0);
  }
}

TEST_CASE("gpu queue: it waits when it is full or empty, closes, and its elements outlive their steps") {
  FakeGpus gpus({.seed = 3});
  QueueStage s(gpus, gpus.options());
  for (float i : {1.f, 2.f}) REQUIRE(s.session->run(s.element(i), OutputList{}, {s.put}).ok());
  CHECK((*s.session->run(s.count))[0].data<int32_t>()[0] == 2);
  CHECK(!(*s.session->run(s.closed))[0].data<bool>()[0]);
  auto third = s.begin(s.element(3), OutputList{}, {s.put});
  for (float i : {1.f, 2.f, 3.f}) CHECK((*s.session->run(s.twice))[0].data<float>()[0] == 2 * i);
  CHECK(third.get().ok());
  auto empty = s.begin({}, {s.twice});
  REQUIRE(s.session->run(s.close).ok());
  const auto end = empty.get();
  REQUIRE(!end.ok());
  CHECK(end.error().code == Code::kOutOfRange);
  CHECK(end.error().node == "take");
  const auto late = s.session->run(s.element(4), {}, {s.put});
  REQUIRE(!late.ok());
  CHECK(late.error().code == Code::kCancelled);
  CHECK((*s.session->run(s.closed))[0].data<bool>()[0]);
}

TEST_CASE("gpu queue: an engine ends with elements in it and with steps that wait") {
  FakeGpus gpus({.seed = 5});
  std::future<RunResult> waits;
  {
    QueueStage s(gpus, gpus.options());
    for (float i : {1.f, 2.f}) REQUIRE(s.session->run(s.element(i), OutputList{}, {s.put}).ok());
    waits = s.begin(s.element(3), OutputList{}, {s.put});
  }
  CHECK(!waits.get().ok());
}

TEST_CASE("gpu queue: what is on another device is refused") {
  FakeGpus gpus({.cards = 2});
  QueueStage s(gpus, gpus.options(2));
  REQUIRE(s.session->run(s.element(1), {}, {s.put}).ok());
  const char* const device = GENERATE("/gpu:1", "/cpu:0");
  // A second handle to the same queue.
  const Scope far = s.scope.device(device);
  const Output handle = far.named("far").op("_DeviceQueue", {}, QueueStage::queue_attrs(4));
  const Node* taken =
      far.named("far_take").node("QueueDequeueV2", {handle}, {{"component_types", QueueStage::types()}});
  REQUIRE(s.scope.ok());
  Session session(*s.engine, s.graph, SessionOptions{.soft_placement = true});
  const auto got = session.run(far.op("Add", {taken->out(0), taken->out(0)}));
  REQUIRE(!got.ok());
  CHECK(got.error().code == Code::kFailedPrecondition);
  CHECK(got.error().node == "far_take");
  CHECK_THAT(got.error().message, Contains("in the memory of another device"));
}

TEST_CASE("gpu queue: a queue of the host serves a loop whose other nodes are on a GPU") {
  FakeGpus gpus;
  auto engine = std::move(*Engine::create(gpus.options()));
  Graph graph(engine->ops());
  const Scope scope(graph);
  const std::vector<DType> types{DType::kFloat32};
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}});
  const Output queue = scope.op("FIFOQueueV2", {}, {{"component_types", types}, {"capacity", 10}});
  const auto take = [&](const Scope& s) { return s.op("QueueDequeueV2", {queue}, {{"component_types", types}}); };
  const std::vector<Output> loop = while_loop(
      scope, {scope.constant(0), x},
      [](const Scope& s, const std::vector<Output>& v) {
        return s.op("Less", {v[0], s.constant(3)});
      },
      [&](const Scope& s, const std::vector<Output>& v) {
        const Node* first = s.node("QueueEnqueueV2", {queue, s.op("AddV2", {v[1], v[1]})});
        const Node* second = s.after({first}).node("QueueEnqueueV2", {queue, s.op("Neg", {v[1]})});
        return std::vector{s.op("AddV2", {v[0], s.constant(1)}), take(s.after({second}))};
      },
      {.shapes = {PartialShape::scalar(), PartialShape::unknown()}});
  INFO((scope.ok() ? "" : scope.status().error().str()));
  REQUIRE(scope.ok());
  const Output rest = take(scope.after({loop[1]}));
  Session session(*engine, graph, {.default_device = "/gpu:0", .soft_placement = true});
  const auto got = session.run({{x, Tensor::of<float>({1, 2})}}, {loop[1], rest});
  INFO((got.ok() ? "" : got.error().str()));
  REQUIRE(got.ok());
  CHECK((*got)[0].data<float>()[1] == 8);
  CHECK((*got)[1].data<float>()[1] == -4);
}

TEST_CASE("gpu queue: without a GPU it is a queue of the host") {
  FakeGpus gpus;
  QueueStage s(gpus, EngineOptions{.cpu_threads = {1}}, "/gpu:0");
  REQUIRE(s.session->run(s.element(7), {}, {s.put}).ok());
  const auto taken = s.session->run({s.twice, s.name});
  REQUIRE(taken.ok());
  CHECK((*taken)[0].data<float>()[0] == 14);
}

}  // namespace troupe::testing
