// SPDX-License-Identifier: Apache-2.0
// What session.h promises of options and tokens where they are at their limits: priorities, kept plans, devices that
// are not there, random steps, tokens that are used by many threads.
#include <climits>
#include <future>
#include <limits>
#include <map>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/cost_model.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a session asks once for the priority of each node of a plan, and takes any number") {
  TestEngine t({1, 1});
  const Output x = t.placeholder(DType::kInt32, {});
  const Output a = t.scope.named("a").op("Neg", {x}), b = t.scope.device("/cpu:1").named("b").op("Neg", {a});
  std::map<std::string, int> asked;
  Session session(*t.engine, t.graph, {.passes = GraphPasses::none(), .priority = [&asked](const Node& n) {
                                         ++asked[n.name()];
                                         return n.name() == "a" ? INT_MAX : INT_MIN;
                                       }});
  for (int i = 0; i < 3; ++i) {
    const RunResult r = session.run({{x, Tensor::scalar(i)}}, b);
    REQUIRE(r.ok());
    CHECK((*r)[0].identical(Tensor::scalar(i)));
  }
  CHECK(asked["a"] == 1);
  CHECK(asked["b"] == 1);
  REQUIRE(session.run({{x, Tensor::scalar(1)}}, {a, b}).ok());  // another plan
  CHECK(asked["a"] == 2);
}

TEST_CASE("of plans and their bytes less than there can be counts as the least") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output folded = t.scope.op("Fill", {t.scope.constant(Tensor::of<int32_t>({100})), t.scope.constant(2.f)});
  const Output y = t.scope.op("AddV2", {x, folded}), z = t.scope.op("Neg", {x});
  for (const int64_t least : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    Session session(*t.engine, t.graph, {.plans = least, .plan_bytes = least});
    auto held = session.prepare({x}, {y});
    REQUIRE(held.ok());
    for (int i = 0; i < 3; ++i) {
      for (const Output& fetch : {y, z}) {
        REQUIRE(session.run({{x, Tensor::scalar(1.f)}}, fetch).ok());
        const auto newest = session.prepare({x}, {fetch});
        CHECK(*session.prepare({x}, {fetch}) == *newest);
      }
      const RunResult r = session.run(*held, {Tensor::scalar(1.f)});
      REQUIRE(r.ok());
      CHECK((*r)[0].data<float>()[99] == 3);
    }
  }
}

TEST_CASE("a default device that is not there is an error of each run, which names it") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {}), y = t.scope.op("Neg", {x});
  for (const char* device : {"/cpu:1", "/gpu:0", "nonsense", "/job:x"}) {
    Session session(*t.engine, t.graph, {.default_device = device, .soft_placement = true});
    const RunResult r = session.run({{x, Tensor::scalar(1.f)}}, y);
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().str(), Catch::Contains(device));
    CHECK_FALSE(session.prepare({x}, {y}).ok());
    CHECK_FALSE(session.partial_run({x}, {y}).ok());
  }
}

TEST_CASE("a link that there cannot be is an error of each run, which tells its numbers") {
  TestEngine t({1, 1});
  const Output x = t.placeholder(DType::kFloat32, {}), y = t.scope.op("Neg", {x});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const LinkRates link : {LinkRates{nan, 1}, LinkRates{1, nan}, LinkRates{0, 1}, LinkRates{1e9, -5}}) {
    Session session(*t.engine, t.graph, {.placing = Placing::kByCost, .link = link});
    refused(session.run({{x, Tensor::scalar(1.f)}}, y), Code::kInvalidArgument, "a link's bandwidth must be positive");
    CHECK_FALSE(session.prepare({x}, {y}).ok());
  }
}

TEST_CASE("what a random step draws is the same in every session and engine, and other in another step") {
  const auto draw = [](int64_t random_step, int times) {
    TestEngine t({1, 1});
    const auto drawn = [&](int64_t seed) {
      return t.scope.op("RandomUniform", {t.scope.constant(Tensor::of<int32_t>({4}))},
                        {{"dtype", DType::kFloat32}, {"seed", seed}, {"seed2", int64_t{7}}});
    };
    const Output a = drawn(5), b = drawn(6);
    std::vector<Tensor> out;
    for (int i = 0; i < times; ++i) {
      const RunResult r = t.session->run({a, b}, {.random_step = random_step});
      REQUIRE(r.ok());
      for (const Tensor& value : *r) out.push_back(value);
    }
    return out;
  };
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  for (const int64_t step : {int64_t{0}, int64_t{3}, kLast}) {
    const auto once = draw(step, 1), twice = draw(step, 2);
    for (size_t i = 0; i < twice.size(); ++i) CHECK(twice[i].identical(once[i % 2]));
    CHECK_FALSE(once[0].identical(once[1]));
  }
  CHECK_FALSE(draw(0, 1)[0].identical(draw(1, 1)[0]));
  CHECK_FALSE(draw(kLast, 1)[0].identical(draw(kLast - 1, 1)[0]));
  for (const int64_t none : {int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    const auto counted = draw(none, 2);
    CHECK_FALSE(counted[0].identical(counted[2]));
  }
}

TEST_CASE("many threads cancel and use one token at once; each run ends, and later ones are refused") {
  TestEngine one({1, 1}), two;
  for (TestEngine* t : {&one, &two}) t->scope.named("y").op("Neg", {t->placeholder(DType::kInt32, {})});
  for (int round = 0; round < repeats(20); ++round) {
    CancelToken token;
    const CancelToken copy = token;
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (TestEngine* t : {&one, &two})
      for (int k = 0; k < 2; ++k)
        threads.emplace_back([&, t] {
          const Output x = {t->graph.find("x"), 0}, y = {t->graph.find("y"), 0};
          for (int i = 0; i < 20; ++i) {
            const RunResult r = t->session->run({{x, Tensor::scalar(1)}}, y, {}, {.cancel = copy});
            wrong += !r.ok() && r.error().code != Code::kCancelled;
            if (i == 10) CancelToken(copy).cancel();
          }
          const RunResult refused = t->session->run(NodeList(), {.cancel = copy});
          wrong += refused.ok() || refused.error().code != Code::kCancelled;
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(token.cancelled());
    token.cancel();
  }
}

TEST_CASE("a token that was moved is still one") {
  CancelToken token;
  const CancelToken other = std::move(token);
  token.cancel();  // NOLINT(bugprone-use-after-move)
  CHECK(other.cancelled());
}

TEST_CASE("a token may be cancelled in the callback of its run, and go before the run does") {
  TestEngine t;
  const Output got = t.dequeue(t.queue("q", DType::kInt32), DType::kInt32);
  std::promise<Code> second;
  {
    CancelToken token;
    std::promise<void> first;
    t.session->run_async({}, got, {}, [&](RunResult r) { second.set_value(r.ok() ? Code::kInternal : r.error().code); },
                         {.cancel = token});
    t.session->run_async({}, {}, {},
                         [&first, token](RunResult) mutable {
                           token.cancel();
                           token.cancel();
                           first.set_value();
                         },
                         {.cancel = token});
    first.get_future().wait();
  }
  auto code = second.get_future();
  REQUIRE(code.wait_for(60s) == std::future_status::ready);
  CHECK(code.get() == Code::kCancelled);
  auto dropped = t.session->run_future({}, got, {}, {.cancel = CancelToken()});  // nobody else has it
  t.session.reset();
  CHECK(dropped.get().error().code == Code::kCancelled);
}

TEST_CASE("a run's values are those of its start, whatever becomes of the caller's tensors") {
  TestEngine t;
  const Output x = t.placeholder(DType::kInt32, {-1});
  const Output got = t.dequeue(t.queue("q", DType::kInt32), DType::kInt32), y = t.scope.op("AddV2", {x, got});
  const Node* put = t.scope.node("QueueEnqueueV2", {t.graph.find("q")->out(), t.scope.constant(10)});
  REQUIRE(t.scope.ok());
  Tensor whole = Tensor::of<int32_t>({1, 2}), in_parts = Tensor::of<int32_t>({3, 4});
  auto run = t.session->run_future({{x, whole}}, y);
  whole.mutable_data<int32_t>()[0] = -1;
  REQUIRE(t.session->run(put).ok());
  CHECK((*run.get())[0].identical(Tensor::of<int32_t>({11, 12})));
  PartialRun part = t.session->partial_run({x}, {y, x}).value();
  std::promise<RunResult> result;
  part.run_async({{x, in_parts}}, {y, x}, [&](RunResult r) { result.set_value(std::move(r)); });
  in_parts.mutable_data<int32_t>()[0] = -1;
  REQUIRE(t.session->run(put).ok());
  const RunResult r = result.get_future().get();
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::of<int32_t>({13, 14})));
  CHECK((*r)[1].identical(Tensor::of<int32_t>({3, 4})));
}

TEST_CASE("a partial run is refused where it would wait for itself, and goes on by callbacks there") {
  TestEngine t;
  const Output x = t.placeholder(DType::kInt32, {}), y = t.scope.op("Neg", {x});
  PartialRun run = t.session->partial_run({x}, {y}).value();
  std::promise<RunResult> refused, done;
  t.session->run_async({}, {}, {}, [&](RunResult) {
    refused.set_value(run.run({{x, Tensor::scalar(1)}}, y));
    run.run_async({{x, Tensor::scalar(2)}}, y, [&](RunResult r) { done.set_value(std::move(r)); });
  });
  const RunResult no = refused.get_future().get(), yes = done.get_future().get();
  REQUIRE_FALSE(no.ok());
  CHECK(no.error().code == Code::kFailedPrecondition);
  CHECK_THAT(no.error().message, Catch::Contains("run_async"));
  REQUIRE(yes.ok());
  CHECK((*yes)[0].identical(Tensor::scalar(-2)));
}

TEST_CASE("costs may be asked for while steps run, and of a closed session") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output y = t.scope.named("y").op("Exp", {x});
  std::atomic<bool> stop{false};
  std::thread runs([&] {
    for (int i = 0; !stop; ++i) (void)t.session->run({{x, Tensor::scalar(1.f)}}, y).ok();
  });
  while (!t.session->costs().find("y", "cpu")) std::this_thread::yield();
  stop = true;
  runs.join();
  t.session->close();
  const CostModel costs = t.session->costs();
  REQUIRE(costs.find("y", "cpu"));
  CHECK(costs.find("y", "cpu")->bytes == 4);
  CHECK(costs.find("y", "cpu")->firings == 1);
}

TEST_CASE("nodes are timed in as many steps as asked for, from the second on, and in every 64th") {
  struct {
    int64_t timed_steps;
    int runs;
    int64_t measured;
  } const cases[] = {{0, 64, 0}, {-5, 64, 0}, {0, 65, 1},  {3, 1, 0},
                     {3, 2, 1},  {3, 20, 3},  {3, 129, 5}, {1000, 100, 99}};
  for (const auto& k : cases) {
    TestEngine t;
    const Output x = t.placeholder(DType::kFloat32, {});
    const Output y = t.scope.named("y").op("Exp", {x});
    Session session(*t.engine, t.graph, {.timed_steps = k.timed_steps});
    for (int i = 0; i < k.runs; ++i) REQUIRE(session.run({{x, Tensor::scalar(1.f)}}, y).ok());
    const CostModel costs = session.costs();
    const MeasuredCost* measured = costs.find("y", "cpu");
    INFO(k.timed_steps << " of " << k.runs);
    CHECK((measured ? measured->steps : 0) == k.measured);
  }
}

}  // namespace
}  // namespace troupe
