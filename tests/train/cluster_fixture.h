// SPDX-License-Identifier: Apache-2.0
// Devices of tasks, values of variables wherever they are, and where a graph's resources live.
#pragma once
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/actors/fake_cluster.h"
#include "troupe/nn.h"

namespace troupe::nn {

/// Those of a FakeCluster's tasks, task by task.
inline std::vector<std::string> worker_devices(int tasks, int devices) {
  std::vector<std::string> out;
  for (int t = 0; t < tasks; ++t)
    for (int d = 0; d < devices; ++d) out.push_back(fmt::format("/job:worker/replica:0/task:{}/device:cpu:{}", t, d));
  return out;
}

/// The values of all variables, read by a step.
inline std::map<std::string, Tensor> values_of(Engine& engine, const Variables& variables) {
  Graph graph(engine.ops());
  const Scope s(graph);
  std::vector<Output> reads;
  for (const Variable& v : variables.all())
    reads.push_back(s.op("ReadVariableOp",
                         {s.op("VarHandleOp", {},
                               {{"container", variables.container()},
                                {"shared_name", v.name},
                                {"dtype", v.dtype},
                                {"shape", PartialShape(v.shape)}})},
                         {{"dtype", v.dtype}}));
  Session session(engine, graph);
  const auto found = session.run(std::vector<Feed>{}, reads);
  INFO((found.ok() ? std::string() : found.error().str()));
  REQUIRE(found.ok());
  std::map<std::string, Tensor> out;
  for (size_t i = 0; i < reads.size(); ++i) out[variables.all()[i].name] = (*found)[i];
  return out;
}

inline void check_values(const std::map<std::string, Tensor>& got, const std::map<std::string, Tensor>& expected) {
  CHECK(got.size() == expected.size());
  for (const auto& [name, value] : expected) {
    INFO(name);
    REQUIRE(got.contains(name));
    CHECK(got.at(name).identical(value));
  }
}

/// Checks that each resource of a name has handles in one task alone, and that no handle leaves it.
inline void check_homes(const Graph& graph) {
  std::map<std::string, std::string> homes;
  Graph names(graph.ops());
  const auto task = [&](const Node& node) { return Scope(names).device(node.device()).task_name(); };
  for (int id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    INFO(node.name());
    for (const Output& in : node.inputs()) {
      INFO("reads " << in.name());
      if (in.dtype() == DType::kResource) CHECK(task(node) == task(*in.node));
    }
    const auto* name = node.attrs().get<std::string>("shared_name");
    if (!name || node.num_outputs() == 0 || node.dtype(0) != DType::kResource) continue;
    const std::string key =
        fmt::format("{} {}/{}", node.op().name(), node.attrs().get_or<std::string>("container", {}), *name);
    CHECK(homes.try_emplace(key, task(node)).first->second == task(node));
  }
}

}  // namespace troupe::nn
