// SPDX-License-Identifier: Apache-2.0
// Batches of single requests: whose rows are whose, faults of one request, how full batches are, closing.
#include "troupe/batcher.h"

#include <latch>
#include <thread>

#include "tests/nn/fixture.h"
#include "troupe/blocking_kernel.h"

namespace troupe {
namespace {

using nn::Fixture;

Tensor row(float a, float b) { return Tensor::of<float>({a, b}, {1, 2}); }

/// Rows of two numbers, and their sums; of numbers below 0 the square root fails with check_numerics.
struct Sums : Fixture {
  const Output x = s.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, 2}}});
  const Output sum = s.named("sum").op("Sum", {x, s.constant(1)});

  std::unique_ptr<Batcher> batcher(BatcherOptions options = {}) {
    auto made = Batcher::create(*session, {x}, {sum, x}, options);
    INFO((made.ok() ? std::string() : made.error().str()));
    REQUIRE(made.ok());
    return std::move(*made);
  }
};

std::string fault(const RunResult& result) {
  REQUIRE_FALSE(result.ok());
  return result.error().str();
}

TEST_CASE("each request gets the rows that are its own") {
  Sums f;
  const auto batcher = f.batcher({.most_rows = 7});
  std::vector<std::future<RunResult>> answers;
  constexpr int kRequests = 200;
  for (int i = 0; i < kRequests; ++i) {
    std::vector<float> values;
    for (int r = 0; r <= i % 3; ++r) values.insert(values.end(), {static_cast<float>(i), static_cast<float>(r)});
    answers.push_back(batcher->run_future({Tensor::of<float>(values, {i % 3 + 1, 2})}));
  }
  for (int i = 0; i < kRequests; ++i) {
    const RunResult result = answers[static_cast<size_t>(i)].get();
    REQUIRE(result.ok());
    REQUIRE((*result)[0].shape() == Shape{i % 3 + 1});
    for (int r = 0; r <= i % 3; ++r) {
      CHECK((*result)[0].data<float>()[r] == static_cast<float>(i + r));
      CHECK((*result)[1].data<float>()[2 * r] == static_cast<float>(i));
    }
  }
  CHECK(batcher->rows() == kRequests / 3 * 6 + 1 + 2);
  CHECK(batcher->steps() <= kRequests);
}

TEST_CASE("any number of threads may ask") {
  Sums f;
  const auto batcher = f.batcher({.most_rows = 16, .most_batches = 2});
  std::atomic<int> right{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          const RunResult result = batcher->run({row(static_cast<float>(t), static_cast<float>(i))});
          right += result.ok() && (*result)[0].data<float>()[0] == static_cast<float>(t + i);
        }
      });
  }
  CHECK(right == 400);
}

/// Waits in its first step until it is told to go on.
struct Gate {
  std::latch entered{1}, open{1};
  std::atomic<bool> passed{false};
};
class GateKernel final : public BlockingKernel {
 public:
  explicit GateKernel(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    if (!gate_->passed.exchange(true)) {
      gate_->entered.count_down();
      gate_->open.wait();
    }
    return std::vector<Tensor>{request.inputs[0]};
  }

 private:
  const std::shared_ptr<Gate> gate_;
};

/// An engine whose op Gate holds up the first step, so that requests gather meanwhile.
struct Gated {
  const std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  const std::unique_ptr<Engine> engine =
      Engine::create({.cpu_threads = {1},
                      .register_ops =
                          [gate = gate](OpRegistry& ops, KernelRegistry& kernels) {
                            ops.add(OpDef("Gate")
                                        .input("x: float32")
                                        .output("y: float32")
                                        .doc("A test's.")
                                        .shape(unchanged_shape)
                                        .stateful(),
                                    not_differentiable("a test"));
                            const auto make = [gate](const KernelInit&) -> Result<std::unique_ptr<GateKernel>> {
                              return std::make_unique<GateKernel>(gate);
                            };
                            kernels.add("Gate", DeviceKind::kCpu, {}, KernelFactory(make));
                          }})
          .value();
  Graph graph{engine->ops()};
  const Scope s{graph};
  const Output x = s.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, -1}}});
  const Output y = s.op("Gate", {x});
  const Output one = s.named("one").op("Reshape", {y, s.constant(Tensor::of<int32_t>({-1, 2}))});
  Session session{*engine, graph};
};

TEST_CASE("requests gather while a batch is under way, up to the most rows of one") {
  Gated f;
  REQUIRE(f.s.ok());
  const auto batcher = Batcher::create(f.session, {f.x}, {f.one}, {.most_rows = 4, .most_waiting = 10}).value();
  std::vector<std::future<RunResult>> answers;
  answers.push_back(batcher->run_future({row(0, 0)}));
  f.gate->entered.wait();
  for (int i = 1; i <= 10; ++i) answers.push_back(batcher->run_future({row(static_cast<float>(i), 0)}));
  CHECK_THAT(fault(batcher->run({row(11, 0)})), Catch::Contains("10 rows wait already; 10 may"));
  CHECK(batcher->steps() == 1);
  f.gate->open.count_down();
  for (size_t i = 0; i < answers.size(); ++i) {
    const RunResult result = answers[i].get();
    REQUIRE(result.ok());
    CHECK((*result)[0].data<float>()[0] == static_cast<float>(i));
  }
  CHECK(batcher->steps() == 1 + 3);  // of 4, 4 and 2
  CHECK(batcher->rows() == 11);
}

TEST_CASE("requests of other inner shapes, or that fail, cost the others nothing") {
  Gated f;
  const auto batcher = Batcher::create(f.session, {f.x}, {f.one}, {.most_rows = 8}).value();
  std::vector<std::future<RunResult>> answers;
  answers.push_back(batcher->run_future({row(0, 0)}));
  f.gate->entered.wait();
  const Tensor wide = Tensor::of<float>({1, 2, 3, 4}, {1, 4});  // gives two rows for its one
  const Tensor odd = Tensor::of<float>({1, 2, 3}, {1, 3});      // has no rows of two
  for (const Tensor& t : {row(1, 0), odd, odd, wide, row(2, 0), row(3, 0)}) answers.push_back(batcher->run_future({t}));
  f.gate->open.count_down();
  CHECK(answers[0].get().ok());
  CHECK((*answers[1].get())[0].data<float>()[0] == 1);
  // Together they have three rows of two, alone none.
  CHECK_FALSE(answers[2].get().ok());
  CHECK_FALSE(answers[3].get().ok());
  CHECK_THAT(fault(answers[4].get()), Catch::Contains("one:0 of a batch of 1 rows is") && Catch::Contains("[2,2]"));
  CHECK((*answers[5].get())[0].data<float>()[0] == 2);
  CHECK((*answers[6].get())[0].data<float>()[0] == 3);
}

TEST_CASE("what cannot be part of a batch is an error of its request") {
  Sums f;
  const auto batcher = f.batcher({.most_rows = 2});
  const auto refused = [&](std::vector<Tensor> values) { return fault(batcher->run(std::move(values))); };
  CHECK_THAT(refused({}), Catch::Contains("0 values for 1 feeds"));
  CHECK_THAT(refused({Tensor::scalar(1.f)}), Catch::Contains("x:0") && Catch::Contains("must have rows"));
  CHECK_THAT(refused({Tensor::of<int32_t>({1, 2}, {1, 2})}), Catch::Contains("int32[1,2]; the feed has another dtype"));
  CHECK_THAT(refused({Tensor()}), Catch::Contains("cannot be part of a batch"));
  CHECK_THAT(refused({Tensor::of<float>({}, {0, 2})}), Catch::Contains("0 rows; it must have 1 to 2"));
  CHECK_THAT(refused({Tensor::zeros(DType::kFloat32, {3, 2}).value()}), Catch::Contains("3 rows"));
  CHECK_THAT(refused({Tensor::of<float>({1, 2, 3}, {1, 3})}), Catch::Contains("[1,3]"));  // the session's word
  CHECK(batcher->run({row(1, 2)}).ok());
  CHECK_FALSE(Batcher::create(*f.session, {}, {f.sum}).ok());
  CHECK_FALSE(Batcher::create(*f.session, {f.x}, {}).ok());
  CHECK_FALSE(Batcher::create(*f.session, {f.x}, {f.sum}, {.most_rows = 0}).ok());
  CHECK_FALSE(Batcher::create(*f.session, {f.x}, {f.sum}, {.most_batches = 0}).ok());
  const Output scalar = f.s.named("all").op("Sum", {f.x, f.s.constant(Tensor::of<int32_t>({0, 1}))});
  const auto whole = Batcher::create(*f.session, {f.x}, {scalar}).value();
  CHECK_THAT(fault(whole->run({row(1, 2)})), Catch::Contains("all:0 of a batch of 1 rows"));
}

TEST_CASE("requests that wait for a closed batcher are cancelled, those under way are answered") {
  Gated f;
  auto batcher = Batcher::create(f.session, {f.x}, {f.one}).value();
  auto first = batcher->run_future({row(1, 2)});
  f.gate->entered.wait();
  auto second = batcher->run_future({row(3, 4)});
  SECTION("close") { batcher->close(); }
  SECTION("destroy") { batcher.reset(); }
  const RunResult waited = second.get();
  REQUIRE_FALSE(waited.ok());
  CHECK(waited.error().code == Code::kCancelled);
  f.gate->open.count_down();
  CHECK(first.get().ok());
  if (batcher) CHECK(batcher->run({row(1, 2)}).error().code == Code::kCancelled);
}

TEST_CASE("without an engine, and from a callback, requests end with errors") {
  Sums f;
  const auto batcher = f.batcher();
  std::promise<RunResult> within;
  batcher->run_async({row(1, 2)}, [&](const RunResult&) { within.set_value(batcher->run({row(3, 4)})); });
  CHECK(within.get_future().get().error().code == Code::kFailedPrecondition);
  f.session->close();
  CHECK(batcher->run({row(1, 2)}).error().code == Code::kFailedPrecondition);
  std::vector<std::future<RunResult>> answers;
  for (int i = 0; i < 100; ++i) answers.push_back(batcher->run_future({row(1, 2)}));
  for (auto& answer : answers) CHECK(answer.get().error().code == Code::kFailedPrecondition);
  f.engine.reset();
  CHECK(batcher->run({row(1, 2)}).error().code == Code::kFailedPrecondition);
  CHECK(batcher->run_future({row(1, 2)}).get().error().code == Code::kFailedPrecondition);
}

}  // namespace
}  // namespace troupe
