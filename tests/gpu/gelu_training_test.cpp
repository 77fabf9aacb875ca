// SPDX-License-Identifier: Apache-2.0
// A transformer's block learns on a GPU what it learns on a CPU, and there its GELU is one node and the gradient of
// that goes with it.
#include <map>

#include "tests/gpu/fake_platform.h"
#include "tests/gpu/parity.h"
#include "troupe/nn.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"
#include "troupe/trace.h"
#include "troupe/transformer.h"

namespace troupe::testing {
namespace {

struct Learnt {
  std::map<std::string, Tensor> variables;
  std::vector<double> losses;
  std::map<std::string, int> ran;  // how many nodes of each op the last step ran
};

/// Some steps of a block that is on `device`, of a batch whose size is known or not.
Learnt learn(Engine& engine, const std::string& device, bool approximate, bool sized, const GraphPasses& passes) {
  Graph graph(engine.ops());
  const Scope s = Scope(graph).device(device);
  nn::Variables variables;
  const auto fed = [&] {
    return s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{sized ? 3 : -1, 5, 8}}});
  };
  const Output x = fed(), target = fed();
  Output h = x;
  for (const char* name : {"first", "second"}) {
    const auto norm = [&](const char* of) { return nn::layer_norm(s, variables, h, std::string(name) + of); };
    h = h + nn::multi_head_attention(s, variables, norm("_1"), 2, name, {}).outputs;
    const Output up = nn::dense(s, variables, norm("_2"), 16, std::string(name) + "_up");
    h = h + nn::dense(s, variables, nn::gelu(s, up, approximate), 8, std::string(name) + "_down");
  }
  const Output loss =
      s.op("Mean", {s.op("Square", {s.op("Sub", {h, target})}), s.constant(Tensor::of<int32_t>({0, 1, 2}))});
  const Node* update = nn::minimize(s, variables, nn::sgd(nn::constant_rate(0.1f)), loss);
  INFO((s.ok() ? "" : s.status().error().str()));
  REQUIRE(s.ok());
  REQUIRE(update);
  Session session(engine, graph, {.passes = passes});
  REQUIRE(session.run({}, {}, variables.initializers()).ok());
  Learnt out;
  for (uint64_t step = 0; step < 8; ++step) {
    RunOptions options;
    options.trace = std::make_shared<Trace>();
    const auto got = session.run(
        {{x, random_values(DType::kFloat32, {3, 5, 8}, 1)}, {target, random_values(DType::kFloat32, {3, 5, 8}, 2)}},
        {loss}, {update}, options);
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    out.losses.push_back((*got)[0].data<float>()[0]);
    out.ran.clear();
    for (const TraceEvent& e : options.trace->take())
      if (e.kind == TraceEvent::Kind::kRun && e.node) ++out.ran[e.node->op().name()];
  }
  auto snapshot = engine.snapshot().get();
  REQUIRE(snapshot.ok());
  for (const auto& [name, value] : snapshot->variables) out.variables.emplace(name, value);
  return out;
}

TEST_CASE(
    "a transformer's block learns on a GPU what it learns on a CPU, with GELU one node, and its gradient one or in a "
    "product's") {
  for (const bool approximate : {true, false})
    for (const bool sized : {true, false}) {
      INFO(approximate << sized);
      auto cpu = std::move(*Engine::create({.cpu_threads = {1}, .op_library = op_library()}));
      const Learnt expected = learn(*cpu, "/cpu:0", approximate, sized, GraphPasses::none());
      FakeGpus gpus;
      auto engine = std::move(*Engine::create(gpus.options()));
      Learnt got = learn(*engine, "/gpu:0", approximate, sized, GraphPasses::all());
      CHECK(got.losses.back() < 0.9 * got.losses.front());
      REQUIRE(got.losses.size() == expected.losses.size());
      for (size_t i = 0; i < got.losses.size(); ++i) CHECK(got.losses[i] == Approx(expected.losses[i]).epsilon(1e-3));
      REQUIRE(got.variables.size() == expected.variables.size());
      for (const auto& [name, value] : got.variables) {
        INFO(name);
        const Tensor& other = expected.variables.at(name);
        for (int64_t i = 0; value.dtype() == DType::kFloat32 && i < value.elements(); ++i)
          CHECK(value.data<float>()[i] == Approx(other.data<float>()[i]).epsilon(2e-3).margin(2e-4));
      }
      const std::string gelu = approximate ? "_GeluApproximate" : "_GeluExact";
      CHECK(got.ran[gelu] == 2);
      CHECK(got.ran[approximate ? "_FusedMatMulGeluGrad" : "_GeluExactGrad"] == 2);
      for (const char* op : {"Tanh", "TanhGrad", "Erf", "Exp", "Pow"}) CHECK(got.ran[op] == 0);
    }
}

}  // namespace
}  // namespace troupe::testing
