// SPDX-License-Identifier: Apache-2.0
// Large values are copied to GPUs by a thread beside the actors: results, order, steps that end meanwhile; constants
// are on a device once for all plans of a session.
#include "gpu/staging.h"

#include <future>
#include <thread>

#include "tests/child.h"
#include "tests/gpu/fake_platform.h"
#include "tests/repeats.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe::testing {
namespace {

using gpu::Staging;

/// Larger than what is copied at once.
constexpr int64_t kLargeElements = 3 << 18;

Tensor ramp(float first) {
  Tensor x = *Tensor::make(DType::kFloat32, Shape{kLargeElements});
  for (int64_t i = 0; i < kLargeElements; ++i) x.mutable_data<float>()[i] = first + static_cast<float>(i % 1000);
  return x;
}

struct StagingStage {
  explicit StagingStage(gpu::FakeOptions options = {}, int devices = 1) : gpus(options) {
    engine = std::move(*Engine::create(gpus.options(1, devices)));
    graph.emplace(engine->ops());
    scope.emplace(*graph);
    session.emplace(*engine, *graph, SessionOptions{});
    x = scope->op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1}}});
  }
  FakeGpus gpus;
  std::unique_ptr<Engine> engine;
  std::optional<Graph> graph;
  std::optional<Scope> scope;
  std::optional<Session> session;
  Output x;
};

}  // namespace

TEST_CASE("staging: work is done in order by one other thread, and what is left at the end too") {
  std::vector<int> done;
  std::thread::id by;
  {
    Staging staging;
    for (int i = 0; i < 100; ++i)
      staging.post([&, i] {
        done.push_back(i);
        by = std::this_thread::get_id();
      });
  }
  REQUIRE(done.size() == 100);
  CHECK(std::ranges::is_sorted(done));
  CHECK(by != std::this_thread::get_id());
  { Staging nothing_to_do; }
}

TEST_CASE("child: posts work when there are no threads", "[.child]") {
  if (argument_of_child() < 0) return;
  if (getuid() == 0 && (setgid(65'534) != 0 || setuid(65'534) != 0)) _exit(0);  // nothing binds this user
  Staging staging;
  const auto thread_of_work = [&] {
    std::promise<std::thread::id> done;
    staging.post([&] { done.set_value(std::this_thread::get_id()); });
    return done.get_future().get();
  };
  const auto set_limit = [](rlim_t threads) {
    rlimit limit{};
    getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = std::min(threads, limit.rlim_max);
    setrlimit(RLIMIT_NPROC, &limit);
  };
  set_limit(1);
  if (thread_of_work() != std::this_thread::get_id()) _exit(1);
  set_limit(RLIM_INFINITY);
  _exit(thread_of_work() == std::this_thread::get_id() ? 2 : 0);
}

TEST_CASE("staging: where the system gives no thread whoever posts does the work, and later ones get a thread") {
  const Ended ended = run_child("child: posts work when there are no threads");
  INFO("status " << ended.status << ", signal " << ended.signal << ": " << ended.output);
  CHECK(ended.status == 0);
}

TEST_CASE("staging: work may post more, and what it holds goes when it is done") {
  const auto held = std::make_shared<int>(1);
  std::promise<void> second;
  Staging staging;
  staging.post([&, held] { staging.post([&, held] { second.set_value(); }); });
  second.get_future().wait();
  std::promise<void> third;
  staging.post([&] { third.set_value(); });
  third.get_future().wait();
  CHECK(held.use_count() == 1);
}

TEST_CASE("staging: large feeds come to the GPU whole, in many steps at once and on two devices") {
  for (const uint64_t seed : {1, 2}) {
    StagingStage s({.seed = seed}, 2);
    const Output a = s.scope->device("/gpu:0").op("Neg", {s.x}), b = s.scope->device("/gpu:1").op("Add", {a, s.x});
    REQUIRE(s.scope->ok());
    std::vector<std::future<RunResult>> running;
    for (int i = 0; i < many(6); ++i)
      running.push_back(s.session->run_future({{s.x, ramp(static_cast<float>(i))}}, {a, b}));
    for (size_t i = 0; i < running.size(); ++i) {
      const RunResult out = running[i].get();
      INFO((out.ok() ? "" : out.error().str()));
      REQUIRE(out.ok());
      for (const int64_t at : {int64_t{0}, int64_t{999}, kLargeElements - 1}) {
        CHECK((*out)[0].data<float>()[at] == -static_cast<float>(i) - static_cast<float>(at % 1000));
        CHECK((*out)[1].data<float>()[at] == 0);
      }
    }
  }
}

TEST_CASE("staging: steps that fail, are cancelled or lose their card amid a large copy end, and so do engines") {
  const Tensor large = ramp(0);
  for (int round = 0; round < many(12); ++round) {
    StagingStage s({.seed = static_cast<uint64_t>(round)});
    const Output y = s.scope->device("/gpu:0").op("Neg", {s.x});
    REQUIRE(s.scope->ok());
    std::vector<std::future<RunResult>> running;
    for (int i = 0; i < 4; ++i) {
      RunOptions options;
      if (round % 3 == 0) options.deadline = std::chrono::microseconds(100 * i + 1);
      running.push_back(s.session->run_future({{s.x, large}}, {y}, {}, options));
    }
    if (round % 3 == 1 && s.gpus.runtime) s.gpus.runtime->lose(0, round % 4);
    if (round % 3 == 2) {
      s.session.reset();
      s.engine.reset();
    }
    for (auto& one : running) {
      const RunResult result = one.get();
      if (result.ok()) CHECK((*result)[0].data<float>()[5] == -5);
      else
        CHECK((result.error().code == Code::kDeadlineExceeded || result.error().code == Code::kCancelled ||
               result.error().code == Code::kUnavailable));
    }
  }
}

TEST_CASE("staging: a constant is on a device once, whatever signatures use it, and goes with the last plan") {
  StagingStage s;
  const Scope gpu = s.scope->device("/gpu:0");
  const Output c = gpu.constant(ramp(0)), y = gpu.op("Add", {s.x, c}), z = gpu.op("Mul", {s.x, c});
  REQUIRE(s.scope->ok());
  const auto in_use = [&] { return s.engine->device_stats()[1].memory.in_use; };
  const auto run = [&](std::vector<Output> fetches) {
    const auto out = s.session->run({{s.x, Tensor::of<float>({2})}}, fetches);
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    CHECK((*out)[0].elements() == kLargeElements);
  };
  run({y});
  const int64_t one = in_use();
  CHECK(one >= kLargeElements * 4);
  run({z});
  run({y, z});
  CHECK(in_use() < one + kLargeElements * 2);
  s.session.emplace(*s.engine, *s.graph, SessionOptions{});
  // A device lets go of a step, and of its plan, after the answer.
  while (in_use() >= kLargeElements) std::this_thread::yield();
}

}  // namespace troupe::testing
