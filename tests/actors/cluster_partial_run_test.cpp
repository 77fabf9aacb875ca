// SPDX-License-Identifier: Apache-2.0
// Partial runs of several tasks: cut anywhere and split anyhow, they give what one engine gives, bit for bit, with its
// errors, and end as other steps do.
#include <future>
#include <numeric>
#include <thread>

#include "tests/actors/fake_cluster.h"
#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"
#include "tests/engine/random_graph.h"
#include "tests/engine/random_loops.h"
#include "tests/repeats.h"
#include "troupe/gradients.h"
#include "troupe/partial_run.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr const char* kTask0 = "/job:worker/replica:0/task:0";
constexpr const char* kTask1 = "/job:worker/replica:0/task:1";

float one(const RunResult& result) {
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  REQUIRE(result->size() == 1);
  return number((*result)[0]);
}

PartialRun begin(Session& session, const OutputList& feeds, const OutputList& fetches, const NodeList& targets = {},
                 const RunOptions& options = {}) {
  auto run = session.partial_run(feeds, fetches, targets, options);
  INFO((run.ok() ? "" : run.error().str()));
  REQUIRE(run.ok());
  return std::move(*run);
}

std::future<RunResult> later(PartialRun& run, const FeedList& feeds, const OutputList& fetches = {}) {
  auto promise = std::make_shared<std::promise<RunResult>>();
  run.run_async(feeds, fetches, [promise](RunResult r) { promise->set_value(std::move(r)); });
  return promise->get_future();
}

/// Gives the feeds to a partial run of several tasks and to one of one engine, in an order and a split drawn from
/// `random`, and takes the fetches one by one, each as soon as it comes. What the calls return is the same.
void split(Both& both, const Named& values, const NameList& wanted, std::mt19937& random,
           const RunOptions& options = {}) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const auto outputs = [](const Graph& graph, const auto& names) {
    Outputs out;
    for (const auto& name : names) out.push_back(*graph.output(name));
    return out;
  };
  std::vector<std::string> feed_names;
  for (const auto& [name, value] : values) feed_names.push_back(name);
  std::vector<std::string> fetch_names;  // each once
  for (const std::string& name : wanted.names)
    if (std::ranges::find(fetch_names, name) == fetch_names.end()) fetch_names.push_back(name);
  const Outputs cut_feeds = outputs(both.cut_graph, feed_names), cut_fetches = outputs(both.cut_graph, fetch_names);
  const Outputs feeds = outputs(both.whole_graph, feed_names), fetches = outputs(both.whole_graph, fetch_names);
  PartialRun cut = begin(*both.cut, cut_feeds, cut_fetches, {}, options);
  PartialRun whole = begin(*both.whole, feeds, fetches, {}, options);
  std::vector<size_t> unfed(feeds.size()), left(fetches.size());
  std::iota(unfed.begin(), unfed.end(), size_t{0});
  std::iota(left.begin(), left.end(), size_t{0});
  std::ranges::shuffle(unfed, random);
  std::ranges::shuffle(left, random);
  while (!left.empty()) {
    FeedList cut_given, given;
    while (!unfed.empty() && below(2)) {
      cut_given.outputs.push_back(cut_feeds[unfed.back()]);
      given.outputs.push_back(feeds[unfed.back()]);
      cut_given.values.push_back(values[unfed.back()].second);
      given.values.push_back(values[unfed.back()].second);
      unfed.pop_back();
    }
    check_same(cut.run(cut_given), whole.run(given));
    std::vector<size_t> missing;
    for (const size_t i : left) {
      const RunResult expected = whole.run({}, fetches[i]);
      check_same(cut.run({}, cut_fetches[i]), expected);
      if (!expected.ok()) missing.push_back(i);
    }
    if (unfed.empty()) REQUIRE(missing.empty());
    left = missing;
  }
  for (const size_t i : unfed)
    check_same(cut.run({{cut_feeds[i], values[i].second}}), whole.run({{feeds[i], values[i].second}}));
  check_same(cut.run({}), whole.run({}));
}

/// doubled = x + x on task 0; sum = doubled + y on task 1; product = sum * z with the client.
struct Chain {
  explicit Chain(Engine& engine, SessionOptions options = {})
      : graph(engine.ops()), scope(graph), first(scope.device("/job:worker/task:0")),
        second(scope.device("/job:worker/task:1")), session(std::make_unique<Session>(engine, graph, options)) {
    x = placeholder("x"), y = placeholder("y"), z = placeholder("z");
    doubled = first.named("doubled").op("AddV2", {x, x});
    sum = second.named("sum").op("AddV2", {doubled, y});
    product = scope.named("product").op("Mul", {sum, z});
    constant = second.named("constant").constant(7.f);
  }
  Output placeholder(const char* name, PartialShape shape = PartialShape::scalar(), DType dtype = DType::kFloat32) {
    return scope.named(name).op("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}});
  }
  /// What nobody puts into a queue of task 1.
  Output never() const {
    const Output queue = second.op(
        "FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat32}}, {"capacity", int64_t{1}}});
    return second.op("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kFloat32}}});
  }
  Graph graph;
  Scope scope, first, second;
  std::unique_ptr<Session> session;
  Output x, y, z, doubled, sum, product, constant;
};

size_t running(FakeCluster& cluster) {
  return cluster.worker(kTask0).running() + cluster.worker(kTask1).running() +
         cluster.worker(std::string(Engine::Impl::kAlone)).running();
}

}  // namespace

TEST_CASE("a partial run of several tasks gives what one run gives, call by call") {
  FakeCluster cluster;
  Chain t(*cluster.client);
  for (int round = 0; round < 20; ++round) {
    PartialRun run = begin(*t.session, {t.x, t.y, t.z}, {t.doubled, t.sum, t.product, t.constant, t.x});
    CHECK(one(run.run({}, t.constant)) == 7);
    refused(run.run({}, t.doubled), Code::kInvalidArgument, "'doubled:0' needs feeds that were not given yet: 'x:0'");
    CHECK(one(run.run({{t.x, f(3)}}, t.doubled)) == 6);
    CHECK(one(run.run({}, t.x)) == 3);
    const auto mid = run.run({{t.y, f(4)}}, t.sum);
    CHECK(one(mid) == 10);
    refused(run.run({{t.z, Tensor::scalar(1)}}), Code::kInvalidArgument, "float32 expected, int32 given");
    refused(run.run({{t.z, Tensor::of<float>({1, 2})}}), Code::kInvalidArgument, "shape");
    CHECK(one(run.run({{t.z, f(number((*mid)[0]))}}, t.product)) == 100);
    refused(run.run({}, t.product), Code::kInvalidArgument, "'product:0' was fetched before");
    refused(run.run({{t.x, f(1)}}), Code::kInvalidArgument, "'x:0' was fed before");
    CHECK(run.run({}).ok());
  }
  // All at once, in the other order, and where the client has no node of its own.
  PartialRun run = begin(*t.session, {t.y, t.x}, {t.sum});
  CHECK(run.run({{t.y, f(1)}}).ok());
  CHECK(one(run.run({{t.x, f(2)}}, t.sum)) == 5);
  CHECK(one(begin(*t.session, {t.x, t.y, t.z}, {t.product}).run({{t.z, f(2)}, {t.x, f(1)}, {t.y, f(1)}}, t.product)) ==
        6);
  // Nothing to be fed, nothing to be fetched, a constant alone, what nobody reads.
  CHECK(one(begin(*t.session, {}, {t.constant}).run({}, t.constant)) == 7);
  CHECK(begin(*t.session, {t.x}, {}, {t.doubled.node}).run({{t.x, f(1)}}).ok());
  CHECK(begin(*t.session, {}, {}, {t.constant.node}).run({}).ok());
  run = begin(*t.session, {t.x, t.y}, {t.doubled, t.y});
  CHECK(one(run.run({{t.x, f(1)}}, t.doubled)) == 2);
  CHECK(one(run.run({{t.y, f(1)}}, t.y)) == 1);
  // What a node on a task puts out may be fed as well.
  run = begin(*t.session, {t.doubled, t.y}, {t.sum});
  CHECK(one(run.run({{t.doubled, f(1)}, {t.y, f(1)}}, t.sum)) == 2);
  while (running(cluster) > 0) std::this_thread::yield();
}

TEST_CASE("any split of a random graph cut at random gives what one engine gives") {
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(30)); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    RandomGraph random(t, seed);
    const Outputs fetches = random.build();
    REQUIRE(t.scope.ok());
    FakeCluster cluster(seed);
    std::mt19937 order(seed);
    Both both(cluster, t.graph, seed,
              {.compress_transfers = seed % 3 == 0 ? TransferCompression::kBFloat16 : TransferCompression::kOff});
    for (const auto& feeds : {by_name(random.feeds()), by_name(random.odd_feeds())})
      split(both, feeds, names(fetches), order, {.random_step = 5});
  }
}

TEST_CASE("loops and branches cut at random run in parts") {
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(30)); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    RandomLoops random(t.scope, seed, false);
    REQUIRE(t.scope.ok());
    Outputs fetches = random.outputs;
    if (const auto dx = gradients(t.scope, {random.outputs.back()}, {random.inputs[0]}); dx.ok() && (*dx)[0])
      fetches.push_back((*dx)[0]);
    FakeCluster cluster(seed);
    Both both(cluster, t.graph, seed);
    std::mt19937 order(seed);
    const Named feeds{{random.inputs[0].name(), Tensor::of<float>({-1, 0.25f, 2})},
                      {random.inputs[1].name(), Tensor::of<float>({3, -0.5f, 1})}};
    split(both, feeds, names(fetches), order);
  }
}

TEST_CASE("what comes out of a loop of another task needs all that the loop is entered with") {
  FakeCluster cluster;
  Chain t(*cluster.client);
  const Outputs last = while_loop(
      t.second, {t.x, t.y},
      [](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], s.constant(4.f)});
      },
      [](const Scope& s, const Outputs& v) {
        return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), s.op("AddV2", {v[1], v[1]})};
      });
  REQUIRE(t.scope.ok());
  PartialRun run = begin(*t.session, {t.x, t.y}, last, {}, {.deadline = 20s});
  refused(run.run({{t.x, f(1)}}, last[0]), Code::kInvalidArgument, "'y:0'");
  CHECK(one(run.run({{t.x, f(1)}, {t.y, f(1)}}, last[0])) == 4);
  CHECK(one(run.run({}, last[1])) == 8);
}

TEST_CASE("a fetch of another task that is dead is an error with its name") {
  FakeCluster cluster;
  Chain t(*cluster.client);
  const Output p = t.placeholder("p", {}, DType::kBool);
  const auto chosen = cond(
      t.second, p,
      [&](const Scope& s) {
        return Outputs{s.named("taken").op("AddV2", {t.doubled, t.x})};
      },
      [&](const Scope& s) { return Outputs{s.op("Neg", {t.doubled})}; });
  REQUIRE(t.scope.ok());
  const Output dead{t.graph.find("cond/then/taken"), 0};
  REQUIRE(dead);
  for (const bool taken : {true, false}) {
    PartialRun run = begin(*t.session, {p, t.x}, {chosen[0], t.doubled});
    CHECK(one(run.run({{t.x, f(1)}}, t.doubled)) == 2);
    CHECK(one(run.run({{p, Tensor::scalar(taken)}}, chosen[0])) == (taken ? 3 : -2));
    run = begin(*t.session, {p, t.x}, {dead});
    const auto result = run.run({{p, Tensor::scalar(taken)}, {t.x, f(1)}}, dead);
    if (taken) CHECK(one(result) == 3);
    else {
      refused(result, Code::kInvalidArgument, "cond/then/taken:0 is dead");
      CHECK(result.error().node == "cond/then/taken");
      CHECK(result.error().op == "AddV2");
      CHECK(result.error().device == std::string(kTask1) + "/device:cpu:0");
    }
  }
}

TEST_CASE("feeds and fetches cross as they are, where transfers are compressed") {
  FakeCluster cluster;
  Chain t(*cluster.client, {.compress_transfers = TransferCompression::kBFloat16});
  const Output far = t.second.op("Neg", {t.x}), near = t.scope.op("Abs", {far});
  for (int i = 0; i < 3; ++i) {
    PartialRun run = begin(*t.session, {t.x}, {far, near});
    CHECK(one(run.run({{t.x, f(1.2345678f)}}, far)) == -1.2345678f);
    CHECK(one(run.run({}, near)) != 1.2345678f);  // what goes from node to node is
  }
}

TEST_CASE("a feed comes to a task once, whichever of its devices read it") {
  FakeCluster cluster;
  Chain t(*cluster.client);
  Outputs fetches;
  for (const char* device : {"/job:worker/task:0/cpu:0", "/job:worker/task:0/cpu:1", "/job:worker/task:1/cpu:1",
                             "/job:localhost/cpu:0", "/job:localhost/cpu:1"})
    fetches.push_back(t.scope.device(device).op("Square", {t.x}));
  PartialRun run = begin(*t.session, {t.x}, fetches);
  const auto result = run.run({{t.x, f(3)}}, fetches);
  REQUIRE(result.ok());
  for (const Tensor& value : *result) CHECK(number(value) == 9);
}

TEST_CASE("the last call of a partial run waits for the targets of all tasks") {
  FakeCluster cluster;
  Chain t(*cluster.client);
  const auto variable = [&](const Scope& on, const char* name) {
    return on.op("VarHandleOp", {},
                 {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", std::string(name)}});
  };
  const Output v = variable(t.first, "v"), w = variable(t.second, "w");
  const Node* put = t.first.node("AssignVariableOp", {v, t.doubled});
  const Node* put_too = t.second.node("AssignVariableOp", {w, t.sum});
  const Output read = t.first.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  const Output read_too = t.second.op("ReadVariableOp", {w}, {{"dtype", DType::kFloat32}});
  for (float i = 1; i < static_cast<float>(many(100)); ++i) {
    PartialRun run = begin(*t.session, {t.x, t.y}, {t.doubled}, {put, put_too});
    CHECK(one(run.run({{t.x, f(i)}}, t.doubled)) == 2 * i);
    REQUIRE(run.run({{t.y, f(1)}}).ok());
    REQUIRE(one(t.session->run(read)) == 2 * i);
    REQUIRE(one(t.session->run(read_too)) == 2 * i + 1);
  }
  // A snapshot has a run that is under way wholly: it waits for it, and nobody else does.
  PartialRun run = begin(*t.session, {t.x, t.y}, {t.doubled}, {put, put_too});
  CHECK(one(run.run({{t.x, f(500)}}, t.doubled)) == 1000);
  auto snapshot = cluster.client->snapshot();
  CHECK(t.session->run(read).ok());
  CHECK(one(begin(*t.session, {t.x}, {t.doubled}).run({{t.x, f(1)}}, t.doubled)) == 2);
  REQUIRE(run.run({{t.y, f(1)}}).ok());
  const auto taken = snapshot.get();
  REQUIRE(taken.ok());
  CHECK(number(taken->variables.at("v")) == 1000);
  CHECK(number(taken->variables.at("w")) == 1001);
}

TEST_CASE("where one task fails a partial run while others wait, its error is that of all calls from then on") {
  FakeCluster cluster;
  Chain t(*cluster.client);
  const Output n = t.placeholder("n", PartialShape::scalar(), DType::kInt32);
  const Output ratio = t.first.named("ratio").op("FloorDiv", {t.first.constant(1), n});
  const Output waits = t.second.op("AddV2", {t.never(), t.y});
  for (int i = 0; i < many(50); ++i) {
    PartialRun run = begin(*t.session, {t.x, t.y, n}, {t.doubled, waits, ratio, t.y});
    auto waiting = later(run, {{t.y, f(1)}}, waits);
    const auto failed = run.run({{n, Tensor::scalar(0)}}, ratio);
    refused(failed, Code::kInvalidArgument);
    CHECK(failed.error().node == "ratio");
    CHECK(failed.error().op == "FloorDiv");
    CHECK(failed.error().device == std::string(kTask0) + "/device:cpu:0");
    CHECK(waiting.get().error().node == "ratio");
    CHECK(run.run({{t.x, f(1)}}, t.doubled).error().node == "ratio");
    CHECK(run.run({}).error().node == "ratio");
  }
  CHECK(one(begin(*t.session, {t.x}, {t.doubled}).run({{t.x, f(4)}}, t.doubled)) == 8);
  while (running(cluster) > 0) std::this_thread::yield();
}

TEST_CASE("a partial run of several tasks ends by deadline, token, drop, and with its session and engine") {
  auto cluster = std::make_unique<FakeCluster>();
  auto t = std::make_unique<Chain>(*cluster->client);
  Output waits = t->second.op("AddV2", {t->never(), t->y});
  for (int i = 0; i < 5; ++i) {
    {
      PartialRun run = begin(*t->session, {t->y}, {waits}, {}, {.deadline = 20ms});
      refused(run.run({{t->y, f(1)}}, waits), Code::kDeadlineExceeded, "deadline");
      refused(run.run({}), Code::kDeadlineExceeded, "deadline");
      // One that waits for its caller alone.
      run = begin(*t->session, {t->x, t->y}, {t->sum}, {}, {.deadline = 20ms});
      RunResult result = run.run({{t->x, f(1)}});
      while (result.ok()) result = run.run({});
      refused(result, Code::kDeadlineExceeded, "deadline");
      run = begin(*t->session, {t->y}, {waits}, {}, {.deadline = std::chrono::nanoseconds(-1)});
      refused(later(run, {{t->y, f(1)}}, waits).get(), Code::kDeadlineExceeded, "before the step");
    }
    CancelToken token;
    PartialRun run = begin(*t->session, {t->y}, {waits}, {}, {.cancel = token});
    auto cancelled = later(run, {{t->y, f(1)}}, waits);
    token.cancel();
    refused(cancelled.get(), Code::kCancelled, "the caller cancelled");
    run = begin(*t->session, {t->y}, {waits}, {}, {.cancel = token});
    refused(later(run, {{t->y, f(1)}}, waits).get(), Code::kCancelled);

    run = begin(*t->session, {t->y}, {waits});
    auto dropped = later(run, {{t->y, f(1)}}, waits);
    run = PartialRun();
    refused(dropped.get(), Code::kCancelled, "dropped");
    (void)begin(*t->session, {t->x, t->y}, {t->sum});  // before any call
    { PartialRun half = begin(*t->session, {t->x, t->y}, {t->doubled, t->sum}), moved = std::move(half); }
  }
  while (running(*cluster) > 0) std::this_thread::yield();

  PartialRun run = begin(*t->session, {t->y}, {waits}), idle = begin(*t->session, {t->x, t->y}, {t->sum});
  CHECK(idle.run({{t->x, f(1)}}).ok());
  auto closed = later(run, {{t->y, f(1)}}, waits);
  t->session->close();
  refused(closed.get(), Code::kCancelled, "session was closed");
  refused(idle.run({{t->y, f(1)}}, t->sum), Code::kCancelled, "session was closed");
  run = PartialRun();
  idle = PartialRun();
  t = std::make_unique<Chain>(*cluster->client);
  waits = t->second.op("AddV2", {t->never(), t->y});
  run = begin(*t->session, {t->y}, {waits});
  idle = begin(*t->session, {t->x, t->y}, {t->sum});
  auto ended = later(run, {{t->y, f(1)}}, waits);
  cluster.reset();
  refused(ended.get(), Code::kCancelled);
  RunResult after = std::vector<Tensor>();
  idle.run_async({{t->x, f(1)}}, {}, [&](RunResult r) { after = std::move(r); });
  refused(after, Code::kCancelled);
  t.reset();  // the handles outlive the session as well
}

TEST_CASE("a task that is lost ends the partial runs that need it, and no others") {
  FakeCluster cluster;
  Chain t(*cluster.client);
  for (int i = 0; i < many(30); ++i) {
    PartialRun run = begin(*t.session, {t.x, t.y}, {t.doubled, t.sum}), other = begin(*t.session, {t.x}, {t.doubled});
    CHECK(one(run.run({{t.x, f(1)}}, t.doubled)) == 2);
    cluster.worker(std::string(Engine::Impl::kAlone))
        .lost_task(kTask1, make_error(Code::kUnavailable, "{} was lost", kTask1));
    refused(run.run({{t.y, f(1)}}, t.sum), Code::kUnavailable, "task:1 was lost");
    CHECK(one(other.run({{t.x, f(2)}}, t.doubled)) == 4);
  }
}

TEST_CASE("numbers are checked, and traces kept, in partial runs of several tasks") {
  FakeCluster cluster;
  Chain t(*cluster.client);
  PartialRun run = begin(*t.session, {t.x, t.y}, {t.doubled, t.sum}, {}, {.check_numerics = true});
  CHECK(one(run.run({{t.x, f(1)}}, t.doubled)) == 2);
  auto bad = run.run({{t.y, f(INFINITY)}}, t.sum);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().node == "sum");
  const auto trace = std::make_shared<Trace>();
  run = begin(*t.session, {t.x, t.y}, {t.doubled, t.sum}, {}, {.trace = trace});
  CHECK(one(run.run({{t.x, f(1)}}, t.doubled)) == 2);
  CHECK(one(run.run({{t.y, f(1)}}, t.sum)) == 3);
  std::set<std::string> seen;
  for (const TraceEvent& event : trace->take()) seen.insert(event.node->name());
  CHECK(seen.contains("doubled"));
  CHECK(seen.contains("sum"));
}

TEST_CASE("partial runs of several threads are under way at once, and are dropped while others run") {
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(4)); ++seed) {
    FakeCluster cluster(seed);
    Chain t(*cluster.client);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int k = 0; k < 4; ++k)
      threads.emplace_back([&, k] {
        for (int i = 0; i < many(100); ++i) {
          auto run = t.session->partial_run({t.x, t.y, t.z}, {t.doubled, t.sum, t.product});
          if (!run.ok()) {
            ++wrong;
            continue;
          }
          const auto x = static_cast<float>(i + k);
          if (i % 4 == 0) continue;  // dropped before any call
          // The calls of one run, from two threads.
          std::thread gives([&] { wrong += !run->run({{t.z, f(2)}}).ok(); });
          const auto first = run->run({{t.x, f(x)}}, t.doubled);
          wrong += !first.ok() || number((*first)[0]) != 2 * x;
          gives.join();
          if (i % 4 == 1) continue;  // dropped half way
          const auto last = run->run({{t.y, f(1)}}, {t.product, t.sum});
          wrong += !last.ok() || number((*last)[0]) != 2 * (2 * x + 1) || number((*last)[1]) != 2 * x + 1;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    while (running(cluster) > 0) std::this_thread::yield();
  }
}

// -- over sockets -----------------------------------------------------------------------------------------------------

TEST_CASE("partial runs go over sockets, with feeds small and large") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Chain t(*engine);
  const Output x = t.placeholder("rows", PartialShape::unknown()), y = t.placeholder("more", PartialShape::unknown());
  const Output there = t.first.op("Neg", {x}), sum = t.second.op("AddV2", {there, y});
  for (const int64_t n : {0, 3, 60'000, 1 << 20}) {
    Tensor value = *Tensor::make(DType::kFloat32, Shape{n});
    std::iota(static_cast<float*>(value.mutable_raw()), static_cast<float*>(value.mutable_raw()) + n, 0.f);
    PartialRun run = begin(*t.session, {x, y}, {there, sum});
    const auto back = run.run({{x, value}}, there);
    INFO((back.ok() ? "" : back.error().str()));
    REQUIRE(back.ok());
    CHECK((*back)[0].identical((*t.session->run({{x, value}}, {there}))[0]));
    const auto zero = run.run({{y, value}}, sum);
    REQUIRE(zero.ok());
    const auto whole = t.session->run({{x, value}, {y, value}}, {sum});
    REQUIRE(whole.ok());
    CHECK((*zero)[0].identical((*whole)[0]));
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      for (int i = 0; i < many(100); ++i) {
        auto run = t.session->partial_run({t.x, t.y}, {t.doubled, t.sum});
        if (!run.ok() || i % 3 == 0) {
          wrong += !run.ok();
          continue;
        }
        const auto v = static_cast<float>(i + k);
        const auto first = run->run({{t.x, f(v)}}, t.doubled);
        wrong += !first.ok() || number((*first)[0]) != 2 * v;
        const auto last = run->run({{t.y, f(1)}}, t.sum);
        wrong += !last.ok() || number((*last)[0]) != 2 * v + 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a task that goes ends the partial runs that need it over sockets, and new ones begin when it is back") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Chain t(*engine);
  for (int round = 0; round < 3; ++round) {
    PartialRun run = begin(*t.session, {t.x, t.y}, {t.doubled, t.sum}), idle = begin(*t.session, {t.x, t.y}, {t.sum});
    PartialRun other = begin(*t.session, {t.x}, {t.doubled});
    CHECK(one(run.run({{t.x, f(1)}}, t.doubled)) == 2);
    tasks.workers[1].reset();
    refused(run.run({{t.y, f(1)}}, t.sum), Code::kUnavailable, "task:1");
    RunResult result = idle.run({{t.x, f(1)}});
    while (result.ok()) result = idle.run({});
    refused(result, Code::kUnavailable, "task:1");
    CHECK(one(other.run({{t.x, f(2)}}, t.doubled)) == 4);
    tasks.start(1);
    for (;;) {
      PartialRun again = begin(*t.session, {t.x, t.y}, {t.sum});
      const auto sum = again.run({{t.x, f(1)}, {t.y, f(2)}}, t.sum);
      if (!sum.ok() && sum.error().code == Code::kUnavailable) continue;  // the client dials again by itself
      CHECK(one(sum) == 4);
      break;
    }
  }
}

TEST_CASE("a client's engine may end while partial runs are under way over sockets") {
  for (int i = 0; i < repeats(6); ++i) {
    SocketCluster tasks(2);
    auto engine = tasks.client();
    Chain t(*engine);
    std::vector<PartialRun> runs;
    std::vector<std::future<RunResult>> calls;
    for (int k = 0; k < 10; ++k) {
      runs.push_back(begin(*t.session, {t.x, t.y}, {t.doubled, t.sum}));
      calls.push_back(later(runs.back(), {{t.x, f(1)}}, t.doubled));
      if (k % 2) calls.push_back(later(runs.back(), {{t.y, f(1)}}, t.sum));
    }
    engine.reset();
    for (auto& call : calls) {
      const RunResult result = call.get();
      CHECK((result.ok() || result.error().code == Code::kCancelled));
    }
    CHECK(t.session->partial_run({t.x}, {t.doubled}).error().code == Code::kFailedPrecondition);
  }
}
