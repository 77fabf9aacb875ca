// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "actors/engine_impl.h"
#include "troupe/cluster.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe {
namespace {

constexpr int kRuns = 5;
constexpr int64_t kSmall = 1, kLarge = 1 << 20;  // elements of 4 bytes
constexpr int kSmallTrips = 20, kLargeTrips = 4;
/// Faster ones are taken for that: a difference of two times may come to nothing.
constexpr double kMostBandwidth = 1e12, kLeastLatencyNs = 100;

/// The least time of a step in which so many elements go there and back so often.
Result<double> trips_ns(Engine& engine, const std::string& from, const std::string& to, int64_t elements, int trips) {
  Graph graph(engine.ops());
  const Scope scope(graph);
  const Scope here = scope.device(from), there = scope.device(to);
  const Output size = here.constant(Tensor::of<int32_t>({static_cast<int32_t>(elements)}));
  Output x = here.op("Fill", {size, here.op("Placeholder", {}, {{"dtype", DType::kFloat32}})});
  const Output value = x.node->inputs()[1];
  for (int i = 0; i < trips; ++i) x = here.op("Identity", {there.op("Identity", {x})});
  const Output last = here.op("Size", {x});
  TROUPE_RETURN_IF_ERROR(scope.status());
  Session session(engine, graph, {.passes = GraphPasses::none()});
  double least = 0;
  for (int i = 0; i <= kRuns; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const RunResult result = session.run({{value, Tensor::scalar(1.f)}}, {last});
    if (!result.ok()) return result.error();
    const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    if (i == 1 || (i > 1 && ns < least)) least = ns;  // the first one plans
  }
  return least;
}

/// A way of so many elements: what a trip more makes a step longer by, halved.
Result<double> way_ns(Engine& engine, const std::string& from, const std::string& to, int64_t elements, int trips) {
  TROUPE_ASSIGN(const double once, trips_ns(engine, from, to, elements, 1));
  TROUPE_ASSIGN(const double more, trips_ns(engine, from, to, elements, 1 + trips));
  return (more - once) / (2 * trips);
}

Result<LinkRates> measure(Engine& engine, const std::string& from, const std::string& to) {
  TROUPE_ASSIGN(const double small, way_ns(engine, from, to, kSmall, kSmallTrips));
  TROUPE_ASSIGN(const double large, way_ns(engine, from, to, kLarge, kLargeTrips));
  LinkRates out;
  out.latency_ns = std::max(small, kLeastLatencyNs);
  out.bandwidth = std::min(4.0 * kLarge / std::max(large - out.latency_ns, 1.0) * 1e9, kMostBandwidth);
  return out;
}

}  // namespace

Result<Links> measure_links(Engine& engine) {
  const std::vector<std::string> devices = engine.devices();
  std::vector<std::string> tasks, firsts;  // by group
  std::vector<uint32_t> group_of;
  for (const std::string& device : devices) {
    const std::string task = device.substr(0, device.rfind("/device:"));
    const auto at = std::ranges::find(tasks, task);
    group_of.push_back(static_cast<uint32_t>(at - tasks.begin()));
    if (at == tasks.end()) tasks.push_back(task), firsts.push_back(device);
  }
  Links out(std::move(group_of), engine.impl().links.between(0, 0));
  for (uint32_t a = 0; a < firsts.size(); ++a)
    for (uint32_t b = a + 1; b < firsts.size(); ++b) {
      TROUPE_ASSIGN(const LinkRates rates, measure(engine, firsts[a], firsts[b]));
      out.set(a, b, rates);
      out.set(b, a, rates);
    }
  return out;
}

}  // namespace troupe
