// SPDX-License-Identifier: Apache-2.0
// Swapping: activations are at the host between forward and backward, so the GPU needs less memory, and results are
// the same bits.
#include <future>

#include "tests/gpu/fake_platform.h"
#include "tests/gpu/parity.h"
#include "tests/repeats.h"
#include "troupe/gradients.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe::testing {
namespace {

constexpr int64_t kColumns = 1 << 14;  // of a row of float32: 64 KiB

/// A chain of layers, whose gradients need what each has made.
struct Chain {
  explicit Chain(gpu::FakeOptions options = {}, int layers = 40, int64_t columns = kColumns) : gpus(options) {
    engine = std::move(*Engine::create(gpus.options()));
    graph.emplace(engine->ops());
    const Scope s(*graph), gpu = s.device("/gpu:0");
    x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, columns}}});
    Output y = x;
    for (int i = 0; i < layers; ++i) y = gpu.op(i % 2 ? "Sigmoid" : "Tanh", {y});
    const auto made = gradients(gpu, {y}, {x});
    REQUIRE(made.ok());
    fetches = {y, (*made)[0]};
    REQUIRE(s.ok());
  }
  std::unique_ptr<Session> session(int64_t after) {
    return std::make_unique<Session>(
        *engine, *graph,
        SessionOptions{.soft_placement = true, .passes = GraphPasses::none(), .swap_to_host_after = after});
  }
  std::vector<Tensor> run(Session& by, const Tensor& value) {
    const auto out = by.run({{x, value}}, fetches);
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    return *out;
  }
  int64_t peak() const { return engine->device_stats()[1].memory.peak; }

  FakeGpus gpus;
  std::unique_ptr<Engine> engine;
  std::optional<Graph> graph;
  Output x;
  std::vector<Output> fetches;
};

}  // namespace

TEST_CASE("swap: a GPU needs a part of the memory, and gives the same bits") {
  for (const uint64_t seed : {1, 2, 3}) {
    const Tensor value = random_values(DType::kFloat32, Shape{4, kColumns}, seed);
    const auto row = static_cast<int64_t>(value.bytes());
    Chain plain({.seed = seed}), swapping({.seed = seed});
    const auto expected = plain.run(*plain.session(0), value);
    const auto session = swapping.session(8);
    for (int i = 0; i < 3; ++i) {
      const auto got = swapping.run(*session, value);
      for (size_t k = 0; k < got.size(); ++k) CHECK(got[k].identical(expected[k]));
    }
    CHECK(plain.peak() >= 40 * row);
    CHECK(swapping.peak() <= 20 * row);
  }
}

TEST_CASE("swap: more fits into a card's memory than without") {
  const Tensor value = random_values(DType::kFloat32, Shape{16, kColumns}, 1);  // 1 MiB
  for (const int64_t after : {0, 6}) {
    Chain chain({.memory = 32 << 20});
    const auto session = chain.session(after);
    const auto out = session->run({{chain.x, value}}, chain.fetches);
    INFO((out.ok() ? "" : out.error().str()));
    CHECK(out.ok() == (after > 0));
    if (!out.ok()) CHECK(out.error().code == Code::kResourceExhausted);
  }
}

TEST_CASE("swap: what is small, near or read by the host as well stays right") {
  Chain small({}, 20, 8);
  const Tensor value = random_values(DType::kFloat32, Shape{3, 8}, 2);
  const auto expected = small.run(*small.session(0), value);
  for (const int64_t after : {1, 2, 5, 1000}) {
    const auto got = small.run(*small.session(after), value);
    for (size_t k = 0; k < got.size(); ++k) CHECK(got[k].identical(expected[k]));
  }
  // Read again and again, at distances; fetched; read on the CPU.
  Chain chain({}, 12);
  const Scope s(*chain.graph), gpu = s.device("/gpu:0");
  const Output first = gpu.op("Exp", {chain.x});
  Output y = first;
  for (int i = 0; i < 30; ++i) y = i % 10 == 9 ? gpu.op("Add", {gpu.op("Tanh", {y}), first}) : gpu.op("Tanh", {y});
  chain.fetches = {y, first, s.op("Neg", {first})};
  const Tensor large = random_values(DType::kFloat32, Shape{1, kColumns}, 3);
  const auto wanted = chain.run(*chain.session(0), large);
  for (const int64_t after : {2, 5, 9}) {
    const auto got = chain.run(*chain.session(after), large);
    for (size_t k = 0; k < got.size(); ++k) CHECK(got[k].identical(wanted[k]));
  }
}

TEST_CASE("swap: many steps at once, steps that are cancelled and cards that are lost end") {
  const Tensor value = random_values(DType::kFloat32, Shape{1, kColumns}, 4);
  for (int round = 0; round < many(8); ++round) {
    Chain chain({.seed = static_cast<uint64_t>(round)}, 20);
    const auto expected = chain.run(*chain.session(0), value);
    const auto session = chain.session(4);
    std::vector<std::future<RunResult>> running;
    for (int i = 0; i < 6; ++i) {
      RunOptions options;
      if (round % 3 == 1) options.deadline = std::chrono::microseconds(300 * i + 1);
      running.push_back(session->run_future({{chain.x, value}}, chain.fetches, {}, options));
    }
    if (round % 3 == 2 && chain.gpus.runtime) chain.gpus.runtime->lose(0, 10 * round);
    for (auto& one : running) {
      const RunResult result = one.get();
      if (result.ok()) CHECK((*result)[1].identical(expected[1]));
      else CHECK((result.error().code == Code::kDeadlineExceeded || result.error().code == Code::kUnavailable));
    }
  }
}

}  // namespace troupe::testing
