// SPDX-License-Identifier: Apache-2.0
// What the plan of a partial run has beside: a Recv for each feed on each device that reads it, a Send to the caller
// for each fetch, and which feeds each fetch needs. Of a step of several tasks only the client's own has these; feeds
// and fetches of others cross as all values do.
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
  // A loop comes to its end only once all that it is entered with has come.
  std::optional<Frames> frames;
  if (auto found = find_frames(*step_); found.ok()) frames = std::move(*found);  // else the plan will say why
  std::vector<std::vector<const Node*>> enters(frames ? frames->frames.size() : 0);
  if (frames && frames->loops())
    for (const Node* node : step_->nodes())
      if (flow_of(*node) == ControlFlow::kEnter) enters[static_cast<size_t>(frames->of_output(*node))].push_back(node);
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
      if (frames && flow_of(node) == ControlFlow::kExit)
        for (const Node* enter : enters[static_cast<size_t>(frames->of[static_cast<size_t>(node.id())])]) run(*enter);
    }
    std::ranges::sort(needs);
  }
}

void Planner::find_exchange() {
  if (context_.partial && spans_tasks()) exchange_ = partition_of(own_device());
}

Result<Planner::Place> Planner::feed_receiver(uint32_t feed, uint32_t partition) {
  auto [at, fresh] = feed_receivers_.try_emplace({feed, partition}, Place{partition, kNone});
  if (!fresh) return at->second;
  const Output& fed = plan_->feeds[feed];
  if (is_remote(drafts_[partition].plan.device)) {
    // It comes to a task once, as in transfer(), but never compressed.
    auto [first, is_first] =
        first_in_task_.try_emplace({fed.node->id(), fed.port, true, task_of_partition(partition)}, Place{});
    Place from = first->second;
    if (is_first) {
      TROUPE_ASSIGN(from, feed_receiver(feed, exchange_));
    }
    TROUPE_ASSIGN(at->second, add_pair(from, 0, true, partition, fed));
    if (is_first) first->second = at->second;
    return at->second;
  }
  PartitionDraft& draft = drafts_[partition];
  PlanNode recv;
  recv.kind = NodeKind::kRecv;
  recv.num_outputs = 1;
  recv.first_output = draft.add_slots(1);
  at->second.node = draft.add_node(recv, fed.node);
  draft.dependencies[at->second.node] = 1;
  return at->second;
}

Status Planner::send_fetch(uint32_t fetch, const Output& output, Place there, uint32_t slot) {
  int port = output.port;
  if (is_remote(drafts_[there.partition].plan.device)) {
    TROUPE_ASSIGN(there,
                  is_compressed(output) ? add_pair(there, port, true, exchange_) : transfer(output, true, exchange_));
    slot = drafts_[exchange_].plan.nodes[there.node].first_output;
    port = 0;
  }
  if (!constant(*output.node)) {
    TROUPE_ASSIGN(slot, slot_at_host(there, port, slot));
  }
  PartitionDraft& draft = drafts_[there.partition];
  PlanNode send;
  send.kind = NodeKind::kSend;
  send.to = {kCaller, fetch};
  const uint32_t node = draft.add_node(send, output.node);
  read_later(there.partition, node, slot);
  if (!constant(*output.node)) draft.add_edge(there.node, node, port);
  return {};
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
