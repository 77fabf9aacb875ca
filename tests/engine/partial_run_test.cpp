// SPDX-License-Identifier: Apache-2.0
// Partial runs: the fetches of several calls are those of one run, whatever the split, device or control flow; and what
// a call may not do is an error that leaves the step as it was.
#include "troupe/partial_run.h"

#include <future>
#include <random>
#include <thread>

#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

float one(const RunResult& result) {
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  REQUIRE(result->size() == 1);
  return number((*result)[0]);
}

PartialRun begin(TestEngine& t, const OutputList& feeds, const OutputList& fetches, const NodeList& targets = {},
                 const RunOptions& options = {}) {
  auto run = t.session->partial_run(feeds, fetches, targets, options);
  INFO((run.ok() ? "" : run.error().str()));
  REQUIRE(run.ok());
  return std::move(*run);
}

/// x -> double --+-> sum = double + y -> product = sum * z
struct SumChain : TestEngine {
  explicit SumChain(std::vector<int> threads = {1}, std::string last = "") : TestEngine(std::move(threads)) {
    const Scope far = last.empty() ? scope : scope.device(last);
    x = placeholder(DType::kFloat32, PartialShape::scalar(), "x"), y = placeholder(DType::kFloat32, {}, "y");
    z = placeholder(DType::kFloat32, {}, "z");
    doubled = scope.named("doubled").op("AddV2", {x, x});
    sum = far.named("sum").op("AddV2", {doubled, y});
    product = scope.named("product").op("Mul", {sum, z});
    constant = scope.named("constant").constant(7.f);
  }
  Output x, y, z, doubled, sum, product, constant;
};

TEST_CASE("a partial run gives what one run gives, call by call", "[partial_run]") {
  for (const char* device : {"", "/cpu:1"}) {
    SumChain t({1, 1}, device);
    for (int round = 0; round < 3; ++round) {  // the plan and its states are used again
      PartialRun run = begin(t, {t.x, t.y, t.z}, {t.doubled, t.sum, t.product, t.constant, t.x});
      CHECK(one(run.run({}, t.constant)) == 7);
      CHECK(one(run.run({{t.x, f(3)}}, t.doubled)) == 6);
      CHECK(one(run.run({}, t.x)) == 3);
      auto mid = run.run({{t.y, f(4)}}, t.sum);
      CHECK(one(mid) == 10);
      CHECK(one(run.run({{t.z, f(number((*mid)[0]))}}, t.product)) == 100);
      refused(run.run({}, t.product), Code::kInvalidArgument, "'product:0' was fetched before");
      refused(run.run({{t.x, f(1)}}), Code::kInvalidArgument, "'x:0' was fed before");
      CHECK(run.run({}).ok());
    }
  }
}

TEST_CASE("a fetch that needs feeds not given yet is an error that names them", "[partial_run]") {
  SumChain t;
  PartialRun run = begin(t, {t.x, t.y, t.z}, {t.doubled, t.sum, t.product});
  refused(run.run({}, t.doubled), Code::kInvalidArgument, "'doubled:0' needs feeds that were not given yet: 'x:0'");
  refused(run.run({{t.z, f(2)}}, t.product), Code::kInvalidArgument, "not given yet: 'x:0', 'y:0'");
  // What was refused has given nothing.
  CHECK(run.run({{t.z, f(5)}}).ok());
  CHECK(one(run.run({{t.x, f(1)}, {t.y, f(1)}}, t.product)) == 15);
  CHECK(one(run.run({}, t.doubled)) == 2);
  CHECK(one(run.run({}, t.sum)) == 3);
}

TEST_CASE("what was not announced, is given twice or does not fit is refused", "[partial_run]") {
  SumChain t;
  PartialRun run = begin(t, {t.x, t.y}, {t.sum});
  refused(run.run({{t.z, f(1)}}), Code::kInvalidArgument, "'z:0' is not a feed of this partial run");
  refused(run.run({}, t.doubled), Code::kInvalidArgument, "'doubled:0' is not a fetch of this partial run");
  refused(run.run({{t.x, f(1)}, {t.x, f(1)}}), Code::kInvalidArgument, "'x:0' is fed twice");
  refused(run.run({{t.x, Tensor::scalar(1)}}), Code::kInvalidArgument, "float32 expected, int32 given");
  refused(run.run({{t.x, Tensor::of<float>({1, 2})}}), Code::kInvalidArgument, "shape");
  refused(run.run({{Output(), f(1)}}), Code::kInvalidArgument, "empty");
  refused(run.run({}, Output()), Code::kInvalidArgument, "empty");
  refused(run.run({{t.x, f(1)}, {t.y, f(1)}}, {t.sum, t.sum}), Code::kInvalidArgument, "'sum:0' is fetched twice");
  CHECK(one(run.run({{t.x, f(1)}, {t.y, f(1)}}, t.sum)) == 3);
  refused(PartialRun().run({}), Code::kFailedPrecondition, "empty");

  CHECK(t.session->partial_run({t.x}, {t.sum}).error().message.find("needs a value") != std::string::npos);
  CHECK(t.session->partial_run({t.x, t.x}, {t.doubled}).error().message == "'x:0' is fed twice");
  CHECK(t.session->partial_run({t.x}, {t.doubled, t.doubled}).error().message == "'doubled:0' is fetched twice");
  CHECK(t.session->partial_run({t.x}, {Output()}).error().code == Code::kInvalidArgument);
}

TEST_CASE("the last call waits for the targets", "[partial_run]") {
  SumChain t({1, 1}, "/cpu:1");
  const Output v = t.variable("v", DType::kFloat32, {});
  const Node* put = t.scope.device("/cpu:1").node("AssignVariableOp", {v, t.sum});
  const Output read = t.scope.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  for (float i = 1; i < 100; ++i) {
    PartialRun run = begin(t, {t.x, t.y}, {t.doubled}, {put});
    CHECK(one(run.run({{t.x, f(i)}}, t.doubled)) == 2 * i);
    REQUIRE(run.run({{t.y, f(1)}}).ok());
    REQUIRE(one(t.session->run(read)) == 2 * i + 1);
  }
  // Without fetches, without feeds, with neither.
  CHECK(begin(t, {t.x, t.y}, {}, {put}).run({{t.x, f(1)}, {t.y, f(1)}}).ok());
  CHECK(one(begin(t, {}, {t.constant}).run({}, t.constant)) == 7);
  CHECK(begin(t, {}, {}, {t.constant.node}).run({}).ok());
  CHECK(one(begin(t, {t.x}, {t.x}).run({{t.x, f(9)}}, t.x)) == 9);
}

TEST_CASE("the step's error is that of all calls from then on", "[partial_run]") {
  SumChain t;
  const Output rows = t.placeholder(DType::kFloat32, PartialShape::unknown(), "rows");
  const Output bad = t.scope.named("bad").op("MatMul", {rows, rows});
  PartialRun run = begin(t, {t.x, rows}, {t.doubled, bad});
  auto waiting = run.run({{rows, Tensor::of<float>({1, 2}, {1, 2})}}, bad);
  REQUIRE_FALSE(waiting.ok());
  CHECK(waiting.error().node == "bad");
  CHECK(run.run({{t.x, f(1)}}, t.doubled).error().node == "bad");
  CHECK(run.run({}).error().node == "bad");
  CHECK(t.value({{t.x, f(1)}}, t.doubled).identical(f(2)));
}

TEST_CASE("a partial run ends by deadline, token or when it is dropped", "[partial_run]") {
  SumChain t;
  const Output got = t.dequeue(t.queue("q", DType::kFloat32), DType::kFloat32);
  const Output sum = t.scope.op("AddV2", {got, t.x});
  {
    PartialRun run = begin(t, {t.x}, {sum}, {}, {.deadline = 20ms});
    refused(run.run({{t.x, f(1)}}, sum), Code::kDeadlineExceeded, "deadline");
    refused(run.run({}), Code::kDeadlineExceeded, "deadline");
  }
  CancelToken token;
  PartialRun run = begin(t, {t.x}, {sum}, {}, {.cancel = token});
  std::promise<RunResult> result;
  run.run_async({{t.x, f(1)}}, sum, [&](RunResult r) { result.set_value(std::move(r)); });
  token.cancel();
  refused(result.get_future().get(), Code::kCancelled, "cancelled");

  run = begin(t, {t.x}, {sum});
  std::promise<RunResult> dropped;
  run.run_async({{t.x, f(1)}}, sum, [&](RunResult r) { dropped.set_value(std::move(r)); });
  run = PartialRun();
  refused(dropped.get_future().get(), Code::kCancelled, "dropped");
  // One that waits for nobody but its caller is cancelled too, so that the session can go.
  PartialRun open = begin(t, {t.x}, {t.doubled});
  PartialRun moved = std::move(open);
  moved = begin(t, {t.x}, {t.doubled});
  CHECK(one(moved.run({{t.x, f(2)}}, t.doubled)) == 4);
}

TEST_CASE("branches and loops run in parts", "[partial_run]") {
  for (const char* device : {"", "/cpu:1"}) {
    TestEngine t({1, 1});
    const Scope far = *device ? t.scope.device(device) : t.scope;
    const Output p = t.placeholder(DType::kBool, {}, "p"), x = t.placeholder(DType::kFloat32, {}, "x");
    const Output n = t.placeholder(DType::kInt32, {}, "n"), y = t.placeholder(DType::kFloat32, {}, "y");
    const auto chosen = cond(
        far, p,
        [&](const Scope& s) {
          return std::vector{s.op("AddV2", {x, x})};
        },
        [&](const Scope& s) { return std::vector{s.op("Neg", {x})}; });
    REQUIRE(t.scope.ok());
    const auto looped = while_loop(
        far, {t.scope.constant(0), chosen[0]},
        [&](const Scope& s, const std::vector<Output>& v) {
          return s.op("Less", {v[0], n});
        },
        [&](const Scope& s, const std::vector<Output>& v) {
          return std::vector{s.op("AddV2", {v[0], s.constant(1)}), s.op("AddV2", {v[1], y})};
        });
    REQUIRE(t.scope.ok());
    for (const bool taken : {true, false}) {
      PartialRun run = begin(t, {p, x, n, y}, {chosen[0], looped[1]});
      refused(run.run({{p, Tensor::scalar(taken)}}, chosen[0]), Code::kInvalidArgument, "'x:0'");
      CHECK(one(run.run({{x, f(5)}, {p, Tensor::scalar(taken)}}, chosen[0])) == (taken ? 10 : -5));
      CHECK(run.run({{n, Tensor::scalar(4)}}).ok());
      CHECK(one(run.run({{y, f(2)}}, looped[1])) == (taken ? 18 : 3));
    }
    const Output dead = {t.graph.find("cond/then/AddV2"), 0};
    REQUIRE(dead);
    PartialRun run = begin(t, {p, x}, {dead});
    refused(run.run({{p, Tensor::scalar(false)}, {x, f(1)}}, dead), Code::kInvalidArgument, "is dead");
  }
}

TEST_CASE("what comes out of a loop needs all that the loop is entered with", "[partial_run]") {
  TestEngine t;
  const Output n = t.placeholder(DType::kInt32, {}, "n"), x = t.placeholder(DType::kFloat32, {}, "x");
  const Output y = t.placeholder(DType::kFloat32, {}, "y");
  const auto last = while_loop(
      t.scope, {t.scope.constant(0), x, y},
      [&](const Scope& s, const std::vector<Output>& v) {
        return s.op("Less", {v[0], n});
      },
      [&](const Scope& s, const std::vector<Output>& v) {
        return std::vector{s.op("AddV2", {v[0], s.constant(1)}), s.op("Neg", {v[1]}), s.op("AddV2", {v[2], v[1]})};
      });
  const Output doubled = t.scope.op("AddV2", {last[1], last[1]});
  REQUIRE(t.scope.ok());
  for (const int times : {0, 3, 30}) {  // more than may overlap
    PartialRun run = begin(t, {n, x, y}, {doubled, last[2]}, {}, {.deadline = std::chrono::seconds(20)});
    refused(run.run({{n, Tensor::scalar(times)}, {x, f(1)}}, doubled), Code::kInvalidArgument, "'y:0'");
    CHECK(one(run.run({{n, Tensor::scalar(times)}, {x, f(1)}, {y, f(5)}}, doubled)) == (times % 2 ? -2 : 2));
    CHECK(one(run.run({}, last[2])) == 5 + times % 2);
  }
}

TEST_CASE("any split of a random graph gives what one run gives", "[partial_run]") {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int round = 0; round < 60; ++round) {
    TestEngine t({1, 1});
    std::vector<Output> feeds, all;
    for (int i = 0; i < 4; ++i) feeds.push_back(t.placeholder(DType::kFloat32, {}, "x"));
    all = feeds;
    all.push_back(t.scope.constant(2.f));
    const char* const ops[] = {"AddV2", "Sub", "Mul", "Maximum"};
    for (int i = 0; i < 30; ++i) {
      const Scope s = t.scope.device(below(2) ? "/cpu:0" : "/cpu:1");
      all.push_back(s.op(ops[below(4)], {all[below(all.size())], all[below(all.size())]}));
    }
    std::vector<Output> fetches;
    for (const Output& o : all)
      if (below(3) == 0) fetches.push_back(o);
    if (fetches.empty()) fetches.push_back(all.back());
    std::vector<Feed> values;
    for (const Output& x : feeds) values.push_back({x, f(static_cast<float>(below(5)))});
    auto whole = t.session->run(values, fetches);
    REQUIRE(whole.ok());

    PartialRun run = begin(t, feeds, fetches);
    std::vector<size_t> left(fetches.size());
    std::iota(left.begin(), left.end(), size_t{0});
    std::ranges::shuffle(left, random);
    std::ranges::shuffle(values, random);
    while (!left.empty()) {
      std::vector<Feed> given;
      while (!values.empty() && below(2)) given.push_back(values.back()), values.pop_back();
      REQUIRE(run.run(given).ok());
      std::vector<size_t> later;
      for (const size_t i : left) {
        auto got = run.run({}, fetches[i]);
        if (got.ok()) CHECK((*got)[0].identical((*whole)[i]));
        else later.push_back(i);
      }
      if (values.empty()) REQUIRE(later.empty());
      left = later;
    }
    REQUIRE(run.run(values).ok());
  }
}

TEST_CASE("calls come from several threads at once", "[partial_run]") {
  TestEngine t({1, 1});
  constexpr int kLanes = 8;
  std::vector<Output> feeds, fetches;
  for (int i = 0; i < kLanes; ++i) {
    feeds.push_back(t.placeholder(DType::kFloat32, {}, "x"));
    fetches.push_back(t.scope.device(i % 2 ? "/cpu:0" : "/cpu:1").op("Square", {feeds.back()}));
  }
  for (int round = 0; round < 200; ++round) {
    PartialRun run = begin(t, feeds, fetches);
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int i = 0; i < kLanes; ++i)
      threads.emplace_back([&, i] {
        auto got =
            run.run({{feeds[static_cast<size_t>(i)], f(static_cast<float>(i))}}, fetches[static_cast<size_t>(i)]);
        right += got.ok() && number((*got)[0]) == static_cast<float>(i * i);
      });
    for (std::thread& thread : threads) thread.join();
    REQUIRE(right == kLanes);
  }
}

TEST_CASE("partial runs begin and are dropped while others run", "[partial_run]") {
  SumChain t({1, 1}, "/cpu:1");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      for (int i = 0; i < 200; ++i) {
        auto run = t.session->partial_run({t.x, t.y}, {t.doubled, t.sum});
        if (!run.ok()) {
          ++wrong;
          continue;
        }
        const auto x = static_cast<float>(i + k);
        if (i % 3 == 0) {
          { const PartialRun dropped = std::move(*run); }
          continue;  // dropped before any call
        }
        auto first = run->run({{t.x, f(x)}}, t.doubled);
        wrong += !first.ok() || number((*first)[0]) != 2 * x;
        if (i % 3 == 1) continue;  // dropped half way
        auto last = run->run({{t.y, f(1)}}, t.sum);
        wrong += !last.ok() || number((*last)[0]) != 2 * x + 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("simulated devices run in parts", "[partial_run]") {
  auto engine = Engine::create({.sim = {.devices = std::vector(2, DeviceRates{.flops = 1e9})}});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const auto placeholder = [&](const char* name) {
    return scope.named(name).op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  };
  const Output x = placeholder("x"), y = placeholder("y");
  const Output doubled = scope.device("/sim:1").op("AddV2", {x, x}), sum = scope.op("AddV2", {doubled, y});
  Session session(**engine, graph, {.default_device = "/sim:0"});
  for (int i = 0; i < 20; ++i) {
    auto run = session.partial_run({x, y}, {doubled, sum});
    REQUIRE(run.ok());
    CHECK(one(run->run({{x, f(2)}}, doubled)) == 4);
    CHECK(one(run->run({{y, f(3)}}, sum)) == 7);
  }
}

TEST_CASE("numbers are checked in partial runs too", "[partial_run]") {
  SumChain t;
  PartialRun run = begin(t, {t.x, t.y}, {t.doubled, t.sum}, {}, {.check_numerics = true});
  CHECK(one(run.run({{t.x, f(1)}}, t.doubled)) == 2);
  auto bad = run.run({{t.y, f(INFINITY)}}, t.sum);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().node == "sum");
}

}  // namespace
}  // namespace troupe
