// SPDX-License-Identifier: Apache-2.0
// A shared object that uses Troupe, to be loaded into a program that does too; see plugin_host.cpp.
#include "troupe/graph_def.h"
#include "troupe/scope.h"
#include "troupe/session.h"

/// 1 + 2 by an engine of its own, from a graph that was written and read; -1: it failed.
extern "C" __attribute__((visibility("default"))) int add_up() {
  using namespace troupe;
  auto engine = Engine::create({.cpu_threads = {1}});
  if (!engine.ok()) return -1;
  Graph written((*engine)->ops()), graph((*engine)->ops());
  const Scope scope(written);
  (void)scope.named("sum").op("AddV2", {scope.constant(int32_t{1}), scope.constant(int32_t{2})});
  if (!scope.ok() || !from_graph_def(to_graph_def(written), graph).ok()) return -1;
  Session session(**engine, graph);
  const auto out = session.run(std::vector<std::pair<std::string, Tensor>>(), {"sum"});
  return out.ok() ? out->front().data<int32_t>()[0] : -1;
}
