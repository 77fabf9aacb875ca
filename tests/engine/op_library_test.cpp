// SPDX-License-Identifier: Apache-2.0
// Engines that share the built-in ops.
#include <thread>

#include "tests/engine/fixtures.h"

using namespace troupe;

namespace {

class Doubled : public ComputeKernel {
  Status compute(KernelContext& c) override {
    c.set_output(0, Tensor::scalar(2 * c.input(0).data<float>()[0]));
    return {};
  }
};

void register_doubled(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Doubled").input("x: float32").output("y: float32").doc("Twice x.").shape(unchanged_shape),
          not_differentiable("a test's"));
  kernels.add<Doubled>("Doubled", DeviceKind::kCpu, {});
}

std::unique_ptr<Engine> engine_of(std::shared_ptr<const OpLibrary> library,
                                  std::function<void(OpRegistry&, KernelRegistry&)> register_ops = {}) {
  auto made =
      Engine::create({.cpu_threads = {1}, .op_library = std::move(library), .register_ops = std::move(register_ops)});
  INFO((made.ok() ? "" : made.error().str()));
  REQUIRE(made.ok());
  return std::move(*made);
}

float run_one(Engine& engine, const std::string& op, float x) {
  Graph graph(engine.ops());
  const Scope scope(graph);
  const Output y = scope.op(op, {scope.constant(x)});
  INFO((scope.ok() ? "" : scope.status().error().str()));
  REQUIRE(scope.ok());
  auto got = Session(engine, graph).run({}, {y});
  INFO((got.ok() ? "" : got.error().str()));
  REQUIRE(got.ok());
  return (*got)[0].data<float>()[0];
}

}  // namespace

TEST_CASE("what one engine registers beside a shared library is its own") {
  auto library = make_op_library();
  const size_t built_in = library->ops.all().size();
  const auto with = engine_of(library, register_doubled), without = engine_of(library);
  auto other = engine_of(library, register_doubled);  // the name is free there
  CHECK(library->ops.all().size() == built_in);
  CHECK(without->ops().all().size() == built_in);
  CHECK(with->ops().all().size() == built_in + 1);
  CHECK(without->ops().find("Doubled") == nullptr);
  CHECK(with->ops().find("Neg") == without->ops().find("Neg"));
  // Each lives as long as it is used, whatever it was made of.
  library.reset();
  other.reset();
  CHECK(run_one(*with, "Doubled", 3) == 6);
  CHECK(run_one(*without, "Neg", 3) == -3);
}

TEST_CASE("a shared library has the ops that an engine makes of its own, and refuses the same names") {
  const auto alone = engine_of(nullptr), sharing = engine_of(make_op_library());
  REQUIRE(alone->ops().all().size() == sharing->ops().all().size());
  for (const auto& [name, op] : alone->ops().all()) {
    INFO(name);
    REQUIRE(sharing->ops().find(name) != nullptr);
    CHECK(alone->kernels().kernels(name) == sharing->kernels().kernels(name));
  }
}

TEST_CASE("engines of one library may be made, run and destroyed by several threads") {
  const auto library = make_op_library();
  std::vector<std::thread> threads;
  std::vector<float> got(4);
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        auto made = Engine::create({.cpu_threads = {1}, .op_library = library, .register_ops = register_doubled});
        if (!made.ok()) return;
        Graph graph((*made)->ops());
        const Scope scope(graph);
        const Output y = scope.op("Doubled", {scope.constant(static_cast<float>(i + 1))});
        const auto result = Session(**made, graph).run({}, {y});
        if (result.ok()) got[i] += (*result)[0].data<float>()[0];
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(got == std::vector<float>{6, 12, 18, 24});
}
