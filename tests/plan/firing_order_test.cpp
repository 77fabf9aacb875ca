// SPDX-License-Identifier: Apache-2.0
// The order of firing against a run queue that is walked step by step.
#include "plan/firing_order.h"

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <random>

#include "tests/graph/fake_ops.h"

using namespace troupe;

namespace {

/// Fires `nodes` by counts of dependencies from one queue.
std::vector<const Node*> fired(const std::vector<const Node*>& nodes) {
  std::map<const Node*, int> pending;
  std::map<const Node*, std::vector<const Node*>> readers;
  for (const Node* n : nodes) pending[n] = 0;
  for (const Node* n : nodes) {
    std::vector<const Node*> before(n->control_inputs().begin(), n->control_inputs().end());
    for (const Output& in : n->inputs()) before.push_back(in.node);
    for (const Node* b : before)
      if (pending.contains(b)) {
        ++pending[n];
        readers[b].push_back(n);
      }
  }
  std::deque<const Node*> queue;
  for (const Node* n : nodes)
    if (pending[n] == 0) queue.push_back(n);
  std::vector<const Node*> order;
  while (!queue.empty()) {
    const Node* n = queue.front();
    queue.pop_front();
    order.push_back(n);
    for (const Node* r : readers[n])
      if (--pending[r] == 0) queue.push_back(r);
  }
  return order;
}

}  // namespace

TEST_CASE("the order of firing is that of a first-in, first-out run queue") {
  std::mt19937 random(3);
  for (int graph = 0; graph < 20; ++graph) {
    test::Fixture f;
    std::vector<Output> all = {f.placeholder("x", {}), f.placeholder("y", {})};
    for (int i = 0; i < 100; ++i) {
      const auto any = [&] { return all[random() % all.size()]; };
      const Scope s = i % 7 == 0 ? f.scope.after({any()}) : f.scope;
      all.push_back(s.op("Mul", {any(), any()}));
    }
    std::vector<const Node*> nodes;  // some inputs are not among them, since they are fed
    for (int i = graph % 2; i < f.graph.size(); ++i) nodes.push_back(&f.graph.node(i));
    const StepGraph step(f.graph, std::span(all).first(static_cast<size_t>(graph % 2)), {}, nodes);
    CHECK(firing_order(step) == fired(nodes));
  }
}

TEST_CASE("no nodes have an order too") {
  test::Fixture f;
  CHECK(firing_order(StepGraph(f.graph, {}, {}, {})).empty());
}
