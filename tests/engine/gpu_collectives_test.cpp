// SPDX-License-Identifier: Apache-2.0
// Collectives among cards in an engine, on the fake of NCCL: many steps and sessions at once, loops and branches, ranks
// that do not come, and what hangs, breaks down, loses a card or cannot be ended.
#include <catch2/catch.hpp>

#include <future>
#include <thread>

#include "tests/gpu/fake_platform.h"
#include "tests/repeats.h"
#include "troupe/collectives.h"
#include "troupe/control_flow.h"
#include "troupe/session.h"
#include "troupe/tensor_parallel.h"

namespace troupe::testing {
namespace {

using Catch::Contains;
using gpu::FakeCollectiveCall;
using namespace std::chrono_literals;

/// Cards, and a sum over them of what is fed to each.
struct Cards {
  explicit Cards(int n, uint64_t seed = 1, std::chrono::nanoseconds timeout = 60s, int per_card = 1, int64_t memory = 0)
      : gpus({.seed = seed, .cards = n}) {
    if (!gpus.runtime) return;
    EngineOptions options = gpus.options(n, per_card);
    options.gpus.collective_timeout = timeout;
    options.gpus.memory_limit = memory;
    auto made = Engine::create(options);
    INFO((made.ok() ? "" : made.error().str()));
    REQUIRE(made.ok());
    engine = std::move(*made);
    graph.emplace(engine->ops());
    scope.emplace(*graph);
    for (int i = 0; i < n; ++i) {
      names.push_back(fmt::format("/gpu:{}", i));
      xs.push_back(
          scope->device(names.back()).op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1}}}));
    }
    sums = nn::all_reduce(*scope, names, xs);
    session.emplace(*engine, *graph, SessionOptions{.soft_placement = true});
  }
  /// On a real GPU nothing fails on demand.
  bool there() const { return engine != nullptr; }
  std::vector<Feed> feeds(float from = 1, int64_t size = 3) const {
    std::vector<Feed> out;
    for (const Output& x : xs)
      out.push_back({x, Tensor::of<float>(std::vector<float>(static_cast<size_t>(size), from++), Shape{size})});
    return out;
  }
  /// 1 + 2 + ...
  float total() const { return static_cast<float>(xs.size() * (xs.size() + 1)) / 2; }
  void check_works() {
    const auto result = session->run(feeds(), sums);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    for (const Tensor& sum : *result) CHECK(sum.data<float>()[2] == total());
  }
  Error check_fails(Code code) {
    const auto result = session->run(feeds(), sums);
    REQUIRE_FALSE(result.ok());
    INFO(result.error().str());
    CHECK(result.error().code == code);
    CHECK_THAT(result.error().node, Contains("all_reduce"));
    CHECK(result.error().op == "_AllReduce");
    CHECK_THAT(result.error().device, Contains("gpu:"));
    CHECK(result.error().step > 0);
    return result.error();
  }
  gpu::FakeCollectives& library() { return *gpus.collectives; }

  FakeGpus gpus;
  std::unique_ptr<Engine> engine;
  std::optional<Graph> graph;
  std::optional<Scope> scope;
  std::vector<std::string> names;
  std::vector<Output> xs, sums;
  std::optional<Session> session;
};

}  // namespace

TEST_CASE("gpu collectives: the library is asked where each device is on a card of its own, and made once") {
  Cards c(3);
  if (!c.there()) return;
  for (int i = 0; i < 5; ++i) c.check_works();
  CHECK(c.library().counts().launched == 5);
  CHECK(c.library().counts().made == 1);
  // Twice the same card: a ring.
  Cards shared(2, 1, 60s, 2);
  const auto ring = nn::all_reduce(*shared.scope, {"/gpu:0", "/gpu:1"}, {shared.xs[0], shared.xs[1]});
  REQUIRE(shared.session->run(shared.feeds(), ring).ok());
  CHECK(shared.library().counts().launched == 0);
  const auto apart = nn::all_reduce(*shared.scope, {"/gpu:1", "/gpu:2"}, {shared.xs[0], shared.xs[1]});
  REQUIRE(shared.session->run(shared.feeds(), apart).ok());
  CHECK(shared.library().counts().launched == 1);
}

TEST_CASE("gpu collectives: without a library devices of several cards take rings") {
  FakeGpus gpus({.cards = 2});
  if (!gpus.runtime) return;
  const bool fails = GENERATE(true, false);
  auto platform = std::make_shared<GpuPlatform>(*gpus.platform);
  if (fails) platform->make_collectives = [] { return make_error(Code::kUnavailable, "NCCL: it is not there"); };
  else platform->make_collectives = {};
  gpus.platform = platform;
  auto engine = Engine::create(gpus.options(2, 1));
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope s(graph);
  const auto sums = nn::all_reduce(s, {"/gpu:0", "/gpu:1"}, {s.constant(1.f), s.constant(2.f)});
  const auto result = Session(**engine, graph, {.soft_placement = true}).run({}, sums);
  REQUIRE(result.ok());
  CHECK((*result)[1].data<float>()[0] == 3);
  CHECK(gpus.collectives->counts().made == 0);
}

TEST_CASE("gpu collectives: many steps of several sessions at once, over cards that they share") {
  Cards c(3, 7);
  if (!c.there()) return;
  Session other(*c.engine, *c.graph, {.soft_placement = true});
  const auto pairs = nn::all_reduce(*c.scope, {c.names[2], c.names[0]}, {c.xs[0], c.xs[1]});
  REQUIRE(c.scope->ok());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < many(20); ++i) {
        const auto from = static_cast<float>(100 * t + i);
        const std::vector<Feed> feeds = c.feeds(from);
        auto result = (t % 2 ? other : *c.session).run(feeds, t == 3 ? pairs : c.sums);
        const float expected = t == 3 ? 2 * from + 1 : 3 * from + 3;
        if (!result.ok()) ++wrong;
        else
          for (const Tensor& sum : *result) wrong += sum.data<float>()[0] != expected;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("gpu collectives: iterations of loops that overlap are told apart, and ranks die together") {
  Cards c(2, 3);
  if (!c.there()) return;
  const Scope& s = *c.scope;
  const Output yes = s.op("Placeholder", {}, {{"dtype", DType::kBool}, {"shape", PartialShape{}}});
  const auto loop = while_loop(
      s, {s.constant(0.f), c.xs[0], c.xs[1], s.constant(Tensor::of<float>({0, 0, 0}))},
      [](const Scope& scope, const std::vector<Output>& v) {
        return scope.op("Less", {v[0], scope.constant(6.f)});
      },
      [&](const Scope& scope, const std::vector<Output>& v) {
        // Nothing of one iteration waits for the sums of the one before it.
        const auto sums = nn::all_reduce(scope, c.names, {v[1], v[2]});
        const Scope first = scope.device(c.names[0]), second = scope.device(c.names[1]);
        return std::vector{scope.op("Add", {v[0], scope.constant(1.f)}), first.op("Add", {v[1], v[1]}),
                           second.op("Add", {v[2], v[2]}), second.op("Add", {v[3], sums[1]})};
      },
      {.shapes = {PartialShape{}, PartialShape{-1}, PartialShape{-1}, PartialShape{-1}}});
  // Which of two inputs lives depends on the step: where one is dead, so are both sums, and none waits for ever.
  const auto branch = cond(
      s, yes, [&](const Scope&) { return std::vector{c.xs[0]}; },
      [&](const Scope& scope) {
        return std::vector{nn::all_reduce(scope, c.names, {c.xs[0], c.xs[1]})[0]};
      });
  REQUIRE(s.ok());
  for (int round = 0; round < many(8); ++round) {
    std::vector<Feed> feeds = c.feeds();
    feeds.push_back({yes, Tensor::scalar(round % 2 == 0)});
    const auto result = c.session->run(feeds, {loop[3], branch[0]});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].data<float>()[1] == 3 * 63);
    CHECK((*result)[1].data<float>()[1] == (round % 2 == 0 ? 1 : 3));
  }
}

TEST_CASE("gpu collectives: what hangs is an error in time, and the next step has another communicator") {
  const bool old = GENERATE(false, true);
  Cards c(3, 2, 100ms);
  if (!c.there()) return;
  if (old) c.library().be_old();
  c.check_works();
  c.library().hang(1, 1);
  const Error error = c.check_fails(Code::kDeadlineExceeded);
  CHECK_THAT(error.message, Contains("all-reduce of 3 devices was not done in 0.1 s") && Contains("gpu:1"));
  c.check_works();
  CHECK(c.library().counts().made == 2);
  CHECK(c.library().counts().revoked == (old ? 0 : 1));
}

TEST_CASE("gpu collectives: what breaks down is an error, wherever it does") {
  Cards c(2);
  if (!c.there()) return;
  c.check_works();
  c.library().break_down(1, Code::kInternal);
  CHECK_THAT(c.check_fails(Code::kInternal).message, Contains("Communicator::ready"));
  c.check_works();
  c.library().fail(FakeCollectiveCall::kLaunch, 1, Code::kInternal);
  CHECK_THAT(c.check_fails(Code::kInternal).message, Contains("Communicator::launch"));
  c.check_works();
  c.library().break_down(1, Code::kInternal);
  c.library().fail(FakeCollectiveCall::kRevoke, 1, Code::kInternal);
  c.check_fails(Code::kInternal);
  c.library().fail(FakeCollectiveCall::kMake, 1, Code::kUnavailable);
  CHECK_THAT(c.check_fails(Code::kUnavailable).message, Contains("Collectives::make"));
  c.library().be_slow(5);
  c.check_works();
}

TEST_CASE("gpu collectives: when a card is lost its steps end, and the others go on by what is left") {
  const bool at_work = GENERATE(true, false);
  Cards c(3, 5);
  if (!c.there()) return;
  const auto rest = nn::all_reduce(*c.scope, {c.names[0], c.names[2]}, {c.xs[0], c.xs[2]});
  REQUIRE(c.scope->ok());
  c.check_works();
  c.gpus.runtime->lose(1, at_work ? 2 : 0);
  const auto lost = c.session->run(c.feeds(), c.sums);
  REQUIRE_FALSE(lost.ok());
  INFO(lost.error().str());
  CHECK(lost.error().code == Code::kUnavailable);
  const auto again = c.session->run(c.feeds(), c.sums);
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().code == Code::kUnavailable);
  const auto result = c.session->run(c.feeds(), rest);
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK((*result)[1].data<float>()[0] == 4);
}

TEST_CASE("gpu collectives: of a communicator whose card is lost amid a collective the others make one of their own") {
  Cards c(3);
  if (!c.there()) return;
  const auto rest = nn::all_reduce(*c.scope, {c.names[0], c.names[2]}, {c.xs[0], c.xs[2]});
  REQUIRE(c.scope->ok());
  c.check_works();
  c.library().hang(1, 1);
  auto running = c.session->run_future(c.feeds(), c.sums);
  while (c.library().counts().launched < 2) std::this_thread::yield();
  c.gpus.runtime->lose(1, 0);
  const auto lost = running.get();
  REQUIRE_FALSE(lost.ok());
  CHECK(lost.error().code == Code::kUnavailable);
  for (int i = 0; i < 3; ++i) {
    const auto result = c.session->run(c.feeds(), rest);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].data<float>()[0] == 4);
  }
  CHECK(c.library().counts().shrunk == 1);
  CHECK(c.library().counts().made == 1);
}

TEST_CASE("gpu collectives: a rank that does not come holds its own step up, until that ends") {
  Cards c(2);
  if (!c.there()) return;
  const Scope& s = *c.scope;
  const Output queue = s.op("FIFOQueueV2", {},
                            {{"component_types", std::vector{DType::kFloat32}},
                             {"shapes", std::vector<PartialShape>{PartialShape{3}}},
                             {"shared_name", std::string("late")}});
  const Node* put = s.node("QueueEnqueueV2", {queue, s.constant(Tensor::of<float>({5, 5, 5}))});
  const Output late = s.op("QueueDequeueV2", {queue}, {{"component_types", std::vector{DType::kFloat32}}});
  const auto sums = nn::all_reduce(s, c.names, {c.xs[0], late});
  REQUIRE(s.ok());
  for (int round = 0; round < many(6); ++round) {
    const auto waits = c.session->run(c.feeds(), sums, {}, {.deadline = 20ms});
    REQUIRE_FALSE(waits.ok());
    CHECK(waits.error().code == Code::kDeadlineExceeded);
    auto running = c.session->run_future(c.feeds(), sums);
    c.check_works();  // others go on
    REQUIRE(c.session->run({}, {}, {put}).ok());
    const auto result = running.get();
    REQUIRE(result.ok());
    CHECK((*result)[0].data<float>()[2] == 6);
  }
  // A rank whose own input fails.
  const Output bad = s.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{-1}}});
  const auto failing = nn::all_reduce(
      s, c.names, {c.xs[0], s.device("/cpu:0").op("Reshape", {s.device("/cpu:0").op("Neg", {c.xs[1]}), bad})});
  REQUIRE(s.ok());
  std::vector<Feed> feeds = c.feeds();
  feeds.push_back({bad, Tensor::of<int32_t>({7})});
  const auto failed = c.session->run(feeds, failing);
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().op == "Reshape");
  c.check_works();
}

TEST_CASE("gpu collectives: layers split over cards add their parts by the library") {
  Cards c(3);
  if (!c.there()) return;
  nn::Spread parts{c.names, {}};
  for (size_t i = 0; i < 3; ++i)
    parts.parts.push_back(
        c.scope->device(c.names[i]).op("Reshape", {c.xs[i], c.scope->constant(Tensor::of<int32_t>({2, 4}))}));
  const nn::Spread sums = nn::all_reduce(*c.scope, parts);
  REQUIRE(c.scope->ok());
  const auto result = c.session->run(c.feeds(1, 8), sums.parts);
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  for (const Tensor& sum : *result) CHECK(sum.data<float>()[7] == 6);
  CHECK(c.library().counts().launched == 1);
}

TEST_CASE("gpu collectives: tensors that do not agree are an error that names their devices") {
  Cards c(2);
  if (!c.there()) return;
  std::vector<Feed> feeds = c.feeds();
  feeds[1].value = Tensor::of<float>({1, 2});
  const auto result = c.session->run(feeds, c.sums);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Code::kInvalidArgument);
  CHECK(result.error().op == "_AllReduce");
  CHECK_THAT(result.error().message, Contains("gpu:0 (float32[3])") && Contains("gpu:1 (float32[2])"));
  c.check_works();
}

TEST_CASE("gpu collectives: a communicator that cannot be ended holds up its devices, but no step and no engine") {
  Cards c(3, 1, 50ms);
  if (!c.there()) return;
  const auto others = nn::all_reduce(*c.scope, {c.names[0], c.names[2]}, {c.xs[0], c.xs[2]});
  REQUIRE(c.scope->ok());
  c.check_works();
  c.library().be_old();
  c.library().block_aborts();
  c.library().hang(2, 1);
  c.check_fails(Code::kDeadlineExceeded);
  CHECK_THAT(c.check_fails(Code::kUnavailable).message, Contains("could not be ended"));
  CHECK_FALSE(c.session->run(c.feeds(), others).ok());
  if (GENERATE(true, false)) {
    c.library().block_aborts(false);
    bool works = false;
    for (int i = 0; i < 100'000 && !works; ++i) works = c.session->run(c.feeds(), c.sums).ok();
    CHECK(works);
  } else {
    c.session.reset();
    c.engine.reset();
    CHECK(c.library().counts().alive == 1);
    c.library().block_aborts(false);
    while (c.library().counts().alive > 0) std::this_thread::yield();
  }
}

TEST_CASE("gpu collectives: steps that are cancelled and engines that end amid work") {
  for (int round = 0; round < many(16); ++round) {
    Cards c(2, static_cast<uint64_t>(round), 1s);
    if (!c.there()) return;
    if (round % 3 == 0) c.library().be_slow(3);
    if (round % 4 == 3) c.library().hang(0, 2);
    std::vector<std::future<RunResult>> running;
    for (int i = 0; i < 6; ++i) {
      RunOptions options;
      if (i % 2) options.deadline = std::chrono::microseconds(200 * i);
      running.push_back(c.session->run_future(c.feeds(), c.sums, {}, options));
    }
    if (round % 2) {
      c.session.reset();
      c.engine.reset();
    }
    for (auto& one : running)
      if (const RunResult result = one.get(); result.ok()) CHECK((*result)[1].data<float>()[0] == 3);
      else CHECK((result.error().code == Code::kDeadlineExceeded || result.error().code == Code::kCancelled));
  }
}

TEST_CASE("gpu collectives: memory that runs out is an error that names the device") {
  Cards c(2, 1, 60s, 1, 8 << 20);
  if (!c.there()) return;
  const auto gathered = nn::all_gather(*c.scope, c.names, c.xs);
  REQUIRE(c.scope->ok());
  const auto failed = c.session->run(c.feeds(1, 1 << 20), gathered);
  REQUIRE_FALSE(failed.ok());
  INFO(failed.error().str());
  CHECK(failed.error().code == Code::kResourceExhausted);
  CHECK_THAT(failed.error().device, Contains("gpu:"));
  const auto result = c.session->run(c.feeds(1, 1 << 10), gathered);
  REQUIRE(result.ok());
  CHECK((*result)[0].data<float>()[1 << 10] == 2);
}

TEST_CASE("gpu collectives: graphs have no ranks of their own, and no time limit is 0") {
  Cards c(2);
  if (!c.there()) return;
  const Output group = c.scope->device(c.names[0])
                           .op("_CollectiveGroup", {}, {{"devices", std::vector<std::string>{c.names[0], c.names[1]}}});
  REQUIRE(c.scope->ok());
  const auto refused = c.session->run({}, {}, {group.node});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kInvalidArgument);
  CHECK(refused.error().node == group.node->name());
  EngineOptions options = c.gpus.options(2, 1);
  options.gpus.collective_timeout = 0s;
  CHECK(Engine::create(options).error().code == Code::kInvalidArgument);
}

}  // namespace troupe::testing
