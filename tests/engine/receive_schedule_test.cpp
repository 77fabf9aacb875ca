// SPDX-License-Identifier: Apache-2.0
// Receives on schedule: less memory at the peak, and the same results, bit for bit.
#include <random>

#include "tests/engine/fixtures.h"
#include "tests/op_library.h"
#include "tests/repeats.h"
#include "troupe/control_flow.h"

using namespace troupe;

namespace {

constexpr int32_t kSize = 192;  // of matrices, 144 KiB as float32

/// One device has weights, and another a chain of products with them.
struct ParameterDevice {
  static constexpr int kLayers = 16;

  ParameterDevice(SessionOptions options, bool quantized, bool simulated = false) {
    EngineOptions devices{.cpu_threads = {1, 1}, .op_library = testing::op_library()};
    if (simulated) devices.sim.devices = {DeviceRates{}, DeviceRates{}};
    options.default_device = simulated ? "/sim:0" : "/cpu:0";
    engine = *Engine::create(std::move(devices));
    graph = std::make_unique<Graph>(engine->ops());
    const Scope scope(*graph);
    Session session(*engine, *graph, options);
    const Scope first = scope.device(options.default_device), second = scope.device(simulated ? "/sim:1" : "/cpu:1");
    const DType kept = quantized ? DType::kInt8 : DType::kFloat32;
    const Output sizes = scope.constant(Tensor::of<int32_t>({kSize, kSize}));
    std::vector<const Node*> initial;
    Output x = second.op("Fill", {sizes, second.constant(1.f)});
    for (int i = 0; i < kLayers; ++i) {
      const Output v =
          first.op("VarHandleOp", {},
                   {{"dtype", kept}, {"shape", PartialShape{kSize, kSize}}, {"shared_name", "w" + std::to_string(i)}});
      const Output value = first.op("Fill", {sizes, first.constant(0.01f * static_cast<float>(i % 3 + 1))});
      const Output scaled = quantized ? first.op("Mul", {value, first.constant(300.f)}) : value;
      initial.push_back(
          first.node("AssignVariableOp", {v, quantized ? first.op("Cast", {scaled}, {{"DstT", kept}}) : value}));
      Output w = first.op("ReadVariableOp", {v}, {{"dtype", kept}});
      if (quantized) w = first.op("Cast", {w}, {{"DstT", DType::kFloat32}});
      x = second.op("Tanh", {second.op("MatMul", {x, w})});
    }
    for (const Node* assign : initial) REQUIRE(session.run(std::vector<Feed>{}, {}, {assign}).ok());
    for (const DeviceStats& device : engine->device_stats()) before.push_back(device.memory.in_use);
    const int64_t begin = engine->sim_now_ns();
    std::shared_ptr<void> hold = engine->hold_sim();  // all devices begin at the same time
    auto running = session.run_future({}, {x});
    hold.reset();
    const auto result = running.get();
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    last = (*result)[0];
    took_ns = engine->sim_now_ns() - begin;
  }
  /// Matrices of float32 that a device held at its peak beside its variables; 0: the one that has these.
  double peak(size_t device) const {
    const size_t i = before.size() - 2 + device;
    return static_cast<double>(engine->device_stats()[i].memory.peak - before[i]) / (4. * kSize * kSize);
  }

  std::unique_ptr<Engine> engine;
  std::unique_ptr<Graph> graph;
  std::vector<int64_t> before;
  Tensor last;
  int64_t took_ns = 0;  // virtual
};

/// Values of [kSize, kSize] made of one another, anywhere on three devices, of variables, constants and branches.
class RandomTransfers {
 public:
  RandomTransfers(TestEngine& t, uint32_t seed) : t_(t), random_(seed) {
    const Scope s = t.scope.device("/cpu:0");
    sizes_ = s.constant(Tensor::of<int32_t>({kSize, kSize}));
    for (int i = 0; i < 6; ++i) {
      const Output v = any_device().op("VarHandleOp", {},
                                       {{"dtype", DType::kFloat64},
                                        {"shape", PartialShape{kSize, kSize}},
                                        {"shared_name", "v" + std::to_string(i)}});
      handles_.push_back(v);
      const Output value = s.op("Cast", {s.op("Fill", {sizes_, s.constant(0.125f * static_cast<float>(i + 1))})},
                                {{"DstT", DType::kFloat64}});
      initial_.push_back(s.node("AssignVariableOp", {v, value}));
    }
    values_.push_back(fresh());
    for (int i = 0; i < 30; ++i) values_.push_back(next());
  }
  const std::vector<const Node*>& initial() const { return initial_; }
  Outputs fetches() const { return {values_.end() - 3, values_.end()}; }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  Scope any_device() { return t_.scope.device("/cpu:" + std::to_string(pick(3))); }
  Output any() { return values_[static_cast<size_t>(std::max(0, static_cast<int>(values_.size()) - 1 - pick(5)))]; }
  Output fresh() {
    const Scope s = any_device();
    if (pick(3) == 0) return s.op("Fill", {sizes_, s.constant(0.25f * static_cast<float>(pick(4)))});
    const Output v = handles_[static_cast<size_t>(pick(6))];
    return s.op("Cast", {s.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat64}})}, {{"DstT", DType::kFloat32}});
  }
  Output next() {
    const Scope s = any_device();
    const Output x = any();
    switch (pick(10)) {
      case 0: {
        const Output first = s.op("Sum", {x, s.constant(Tensor::of<int32_t>({0, 1}))});
        const auto side = [&](float by) {
          return [this, x, by](const Scope& in) {
            return Outputs{in.op("Mul", {pick(2) ? x : any(), in.constant(by)})};
          };
        };
        return cond(s, s.op("Less", {first, s.constant(100.f)}), side(0.5f), side(2.f))[0];
      }
      case 1: return s.op("Tanh", {x});
      default: return s.op("Tanh", {s.op("MatMul", {x, pick(2) ? fresh() : any()})});
    }
  }

  TestEngine& t_;
  std::mt19937 random_;
  Output sizes_;
  Outputs handles_, values_;
  std::vector<const Node*> initial_;
};

}  // namespace

TEST_CASE("values that are cheap to make are made when they are needed: the device that makes them needs less memory") {
  const ParameterDevice off({}, true), on({.schedule_receives = true}, true);
  CHECK(on.last.identical(off.last));
  CHECK(off.peak(0) > ParameterDevice::kLayers - 1);
  CHECK(on.peak(0) < ParameterDevice::kLayers / 2.);
}

TEST_CASE("what travels compressed is compressed and expanded when it is needed: both devices need less memory") {
  constexpr auto kBFloat16 = TransferCompression::kBFloat16;
  const ParameterDevice off({.compress_transfers = kBFloat16}, false),
      on({.compress_transfers = kBFloat16, .schedule_receives = true}, false);
  CHECK(on.last.identical(off.last));
  CHECK(off.peak(0) > ParameterDevice::kLayers / 2 - 1);
  CHECK(on.peak(0) < ParameterDevice::kLayers / 4.);
  CHECK(off.peak(1) > ParameterDevice::kLayers - 1);
  CHECK(on.peak(1) < ParameterDevice::kLayers / 2.);
}

TEST_CASE("a schedule of receives does not make a step longer") {
  const ParameterDevice off({}, true, true), on({.schedule_receives = true}, true, true);
  CHECK(on.last.identical(off.last));
  CHECK(on.took_ns > 0);
  CHECK(on.took_ns <= off.took_ns);
  CHECK(on.peak(0) < off.peak(0) / 2);
}

TEST_CASE("random graphs on three devices give the same bits, with receives on schedule or not") {
  int64_t waited = 0;
  for (uint32_t seed = 0; seed < repeats(4); ++seed) {
    INFO("seed " << seed);
    for (const auto compression : {TransferCompression::kOff, TransferCompression::kBFloat16}) {
      std::vector<Tensor> expected;
      int64_t nodes = 0;
      for (const bool scheduled : {false, true}) {
        TestEngine t({1, 1, 1});
        RandomTransfers random(t, seed);
        INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
        REQUIRE(t.scope.ok());
        Session session(*t.engine, t.graph, {.compress_transfers = compression, .schedule_receives = scheduled});
        REQUIRE(session.run(std::vector<Feed>{}, {}, random.initial()).ok());
        for (const DeviceStats& device : t.engine->device_stats()) nodes += scheduled ? -device.nodes : device.nodes;
        const auto result = session.run(std::vector<Feed>{}, random.fetches());
        INFO((result.ok() ? "" : result.error().str()));
        REQUIRE(result.ok());
        for (const DeviceStats& device : t.engine->device_stats()) nodes += scheduled ? device.nodes : -device.nodes;
        for (size_t i = 0; i < result->size(); ++i)
          if (scheduled) CHECK(expected[i].identical((*result)[i]));
        expected = *result;
      }
      waited += nodes;  // signals, more than without
    }
  }
  CHECK(waited > 0);
}

TEST_CASE("a receive waits for what runs, not for the handle of a variable, which the plan has") {
  TestEngine t({1, 1});
  const Scope first = t.scope.device("/cpu:0"), second = t.scope.device("/cpu:1");
  const Output sizes = t.scope.constant(Tensor::of<int32_t>({kSize, kSize}));
  const Output x = t.placeholder(DType::kFloat32, {kSize, kSize}), large = t.placeholder(DType::kFloat32, {512, 512});
  const Output before = second.op("MatMul", {x, x});
  // By the estimate, the last on its device to be there long before the update.
  const Output v =
      second.op("VarHandleOp", {},
                {{"dtype", DType::kFloat32}, {"shape", PartialShape{kSize, kSize}}, {"shared_name", std::string("v")}});
  const Node* set = second.node("AssignVariableOp", {v, second.op("Fill", {sizes, t.scope.constant(1.f)})});
  const Output product = second.op("MatMul", {large, large});
  const Output late = first.op("AddV2", {x, t.scope.constant(2.f)});
  const Node* add = second.after({product}).node("AssignAddVariableOp", {v, late});
  const Output sum = second.after({add}).op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  REQUIRE(t.scope.ok());
  Session session(*t.engine, t.graph, {.schedule_receives = true});
  REQUIRE(session.run(std::vector<Feed>{}, {}, {set}).ok());
  const auto zeros = [](int64_t size) { return *Tensor::zeros(DType::kFloat32, Shape{size, size}); };
  const auto result = session.run({{x, zeros(kSize)}, {large, zeros(512)}}, {before, sum});
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK(number((*result)[1]) == 3);
}

namespace {

/// A matrix that the plan has.
struct Fives final : ComputeKernel {
  Status compute(KernelContext& c) override {
    c.set_output(0, value);
    return {};
  }
  const Tensor* constant() const override { return &value; }
  const Tensor value = [] {
    Tensor out = *Tensor::make(DType::kFloat32, Shape{kSize, kSize});
    std::fill_n(out.mutable_data<float>(), out.elements(), 5.f);
    return out;
  }();
};

}  // namespace

TEST_CASE("what a kernel knows before is not held back, compressed or not, nor is it expanded") {
  const auto engine = Engine::create(
      {.cpu_threads = {1, 1},
       .op_library = testing::op_library(),
       .register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
         ops.add(OpDef("Fives").output("y: float32").doc("A test's.").shape([](ShapeContext& c) -> Status {
           c.set_output(0, PartialShape{kSize, kSize});
           return {};
         }),
                 not_differentiable("a test's"));
         kernels.add<Fives>("Fives", DeviceKind::kCpu, {});
       }});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph), first = scope.device("/cpu:0"), second = scope.device("/cpu:1");
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{kSize, kSize}}});
  Output y = x;
  for (int i = 0; i < 6; ++i) y = second.op("MatMul", {y, x});
  const Output fives = first.op("Fives", {});
  const Output sum = second.op("AddV2", {y, fives}), less = second.op("AddV2", {y, first.op("Neg", {fives})});
  REQUIRE(scope.ok());
  for (const auto compression : {TransferCompression::kOff, TransferCompression::kBFloat16}) {
    Session session(**engine, graph, {.compress_transfers = compression, .schedule_receives = true});
    for (const auto& [fetch, expected] : {std::pair(sum, 5.f), std::pair(less, -5.f)}) {
      const auto result = session.run({{x, *Tensor::zeros(DType::kFloat32, Shape{kSize, kSize})}}, {fetch});
      INFO((result.ok() ? "" : result.error().str()));
      REQUIRE(result.ok());
      CHECK(number((*result)[0]) == expected);
    }
  }
}
