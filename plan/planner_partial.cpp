// SPDX-License-Identifier: Apache-2.0
// What the plan of a partial run has beside: a Recv for each feed on each device that reads it, a Send to the caller
// for each fetch, and which feeds each fetch needs.
#include <algorithm>

#include "plan/planner.h"

namespace troupe {

void Planner::find_needs() {
  const auto feed_of = [this](const Output& o) {
    const auto at = std::ranges::find(plan_->feeds, o);
    return at == plan_->feeds.end() ? kNone : static_cast<uint32_t>(at - plan_->feeds.begin());
  };
  const auto wholly_fed = [this](const Node& node) {
    int port = 0;
    while (port < node.num_outputs() && step_->is_fed({&node, port})) ++port;
    return port > 0 && port == node.num_outputs();
  };
  PartialPlan& partial = *plan_->partial;
  partial.needs.resize(plan_->fetches.size());
  for (size_t i = 0; i < plan_->fetches.size(); ++i) {
    std::vector<uint32_t>& needs = partial.needs[i];
    std::vector<const Node*> waiting;
    std::vector<bool> seen(static_cast<size_t>(step_->ids()));
    const auto run = [&](const Node& node) {
      if (!seen[static_cast<size_t>(node.id())]) waiting.push_back(&node);
      seen[static_cast<size_t>(node.id())] = true;
    };
    const auto read = [&](Output o) {
      o = step_->now(o);
      if (!step_->is_fed(o)) return run(*o.node);
      const uint32_t feed = feed_of(o);
      if (std::ranges::find(needs, feed) == needs.end()) needs.push_back(feed);
    };
    read(plan_->fetches[i]);
    while (!waiting.empty()) {
      const Node& node = *waiting.back();
      waiting.pop_back();
      for (const Output& in : node.inputs())
        if (in) read(in);
      step_->for_each_control(node, [&](const Output& before) {
        if (!wholly_fed(*before.node)) run(*before.node);
      });
    }
    std::ranges::sort(needs);
  }
}

uint32_t Planner::receive_feed(uint32_t feed, Place here) {
  PartitionDraft& draft = drafts_[here.partition];
  auto [at, fresh] = feed_receivers_.try_emplace({feed, here.partition}, Place{here.partition, kNone});
  if (fresh) {
    PlanNode recv;
    recv.kind = NodeKind::kRecv;
    recv.num_outputs = 1;
    recv.first_output = draft.add_slots(1);
    at->second.node = draft.add_node(recv, plan_->feeds[feed].node);
    draft.dependencies[at->second.node] = 1;
  }
  draft.add_edge(at->second.node, here.node, 0);
  return draft.plan.nodes[at->second.node].first_output;
}

void Planner::send_fetch(uint32_t fetch, const Output& output, Place there, uint32_t slot) {
  PartitionDraft& draft = drafts_[there.partition];
  PlanNode send;
  send.kind = NodeKind::kSend;
  send.to = {kCaller, fetch};
  const uint32_t node = draft.add_node(send, output.node);
  read_later(there.partition, node, slot);
  if (!constant(*output.node)) draft.add_edge(there.node, node, output.port);
}

void Planner::number_receivers(const std::vector<std::vector<uint32_t>>& renumbered) {
  plan_->partial->receivers.resize(plan_->feeds.size());
  for (const auto& [key, recv] : feed_receivers_) {
    const std::vector<uint32_t>& numbers = renumbered[recv.partition];
    const uint32_t node = numbers.empty() ? recv.node : numbers[recv.node];
    plan_->partial->receivers[key.first].push_back({recv.partition, node});
  }
}

}  // namespace troupe
