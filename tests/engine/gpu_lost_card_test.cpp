// SPDX-License-Identifier: Apache-2.0
// A kernel that reads where there is no memory loses its card: its step and all later ones there have an error, nothing
// waits, and the engine ends. In a file of its own: on a real card the whole process has lost it then.
#include <catch2/catch.hpp>

#include "gpu/blas.h"
#include "tests/gpu/fake_platform.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe::testing {
namespace {

/// A product of what lies at an address that nobody was given; on the fake the card is lost by itself.
class ReadsNowhere final : public ComputeKernel {
 public:
  explicit ReadsNowhere(std::shared_ptr<gpu::FakeRuntime> fake) : fake_(std::move(fake)) {}
  Status compute(KernelContext& c) override {
    const gpu::Compute& gpu = *c.device().gpu;
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, c.input(0).shape()));
    if (fake_) {
      fake_->lose(0, 0);
    } else {
      gpu::Product p{.m = 64, .n = 64, .k = 64};
      p.a = reinterpret_cast<const void*>(uintptr_t{1} << 20);
      p.b = c.input(0).address();
      p.c = y.mutable_address();
      TROUPE_RETURN_IF_ERROR(gpu.blas->multiply(gpu, p));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const std::shared_ptr<gpu::FakeRuntime> fake_;
};

TEST_CASE("gpu: a kernel that reads where there is no memory loses the card, and nobody waits for it") {
  FakeGpus gpus;
  EngineOptions options = gpus.options();
  options.register_ops = [fake = gpus.runtime](OpRegistry& ops, KernelRegistry& kernels) {
    OpDef op("TestReadsNowhere");
    ops.add(op.input("x: float32").output("y: float32").doc("Reads where there is no memory.").shape(unchanged_shape),
            not_differentiable("it reads nothing"));
    kernels.add("TestReadsNowhere", DeviceKind::kCuda, {},
                KernelFactory([fake](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new ReadsNowhere(fake));
                }));
  };
  auto engine = std::move(*Engine::create(options));
  Graph graph(engine->ops());
  const Scope s(graph), gpu = s.device("/gpu:0");
  const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{64, 64}}});
  const Output good = gpu.op("Neg", {x}), bad = gpu.op("Neg", {gpu.op("TestReadsNowhere", {good})}),
               at_host = s.device("/cpu:0").op("Neg", {x});
  REQUIRE(s.ok());
  Session session(*engine, graph);
  const FeedList feeds{{x, *Tensor::zeros(DType::kFloat32, {64, 64})}};
  REQUIRE(session.run(feeds, {good}).ok());
  for (const Output& fetch : {bad, good, bad}) {
    const auto lost = session.run(feeds, {fetch}, {}, {.deadline = std::chrono::seconds(60)});
    REQUIRE_FALSE(lost.ok());
    INFO(lost.error().str());
    CHECK(lost.error().code == Code::kUnavailable);
    CHECK_THAT(lost.error().str(), Catch::Contains("gpu:0"));
  }
  CHECK(session.run(feeds, {at_host}).ok());
}

}  // namespace
}  // namespace troupe::testing
