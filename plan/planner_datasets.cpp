// SPDX-License-Identifier: Apache-2.0
// Datasets of the graph, locks of its mutexes and lists of handles, in steps of several tasks. They are variants that
// hold handles, which mean something to their own task alone, so what reads one runs where it was made. Where a reader
// uses a resource of another task, as what gives an iterator its dataset does, the dataset is made there instead.
#include <algorithm>

#include "base/device_name.h"
#include "plan/cut.h"
#include "plan/planner.h"

namespace troupe {

const Node* Planner::maker_of(Output value) const {
  constexpr int kMostPassed = 100;
  for (int i = 0; i < kMostPassed && value.dtype() == DType::kVariant && !step_->is_fed(value); ++i) {
    const OpDef& op = value.node->op();
    if (op.name().find("Dataset") != std::string::npos || op.name() == "MutexLock") return value.node;
    if ((op.name() != "Identity" && op.control_flow() == ControlFlow::kNone) || value.node->inputs().empty()) break;
    value = step_->now(value.node->inputs()[0]);
  }
  return nullptr;
}

Result<std::optional<uint32_t>> Planner::place_reader(const Node& node, const Node* holder) {
  std::vector<Output> values;
  for (const Output& in : node.inputs())
    if (const Output value = step_->now(in); maker_of(value)) values.push_back(value);
  std::vector<uint32_t> places;
  if (holder) places.push_back(device_of(*holder));
  if (values.empty()) return holder ? std::optional(places[0]) : std::nullopt;
  const bool named = !node.device().empty() && !context_.soft_placement && !context_.scatter;
  if (!holder && named) places.push_back(device_of(node));
  for (const Output& value : values)
    if (!holder) places.push_back(device_of(*value.node));
  for (const uint32_t place : places) {
    std::vector<const Node*> moves;
    if (!std::ranges::all_of(values, [&](Output value) { return may_go(value, place, moves); })) continue;
    for (const Node* moved : moves) moved_[moved->id()] = place;
    brings_ = brings_ || !moves.empty();
    return std::optional(place);
  }
  for (const Output& value : values)
    if (tasks_[device_of(*value.node)] != tasks_[places[0]]) return does_not_go(value, node, places[0]);
  return std::optional(places[0]);
}

Error Planner::does_not_go(Output value, const Node& reader, uint32_t device) const {
  const Node& maker = *maker_of(value);
  return at_node(
      invalid_argument("is on {} and reads '{}', which is on {}: a {} does not go from task to task", tasks_[device],
                       maker.name(), tasks_[device_of(maker)], maker.op().name() == "MutexLock" ? "lock" : "dataset"),
      reader);
}

Status Planner::check_readers() const {
  for (const Node* node : step_->nodes())
    for (const Output& in : node->inputs())
      if (const Output value = step_->now(in); maker_of(value))
        if (tasks_[device_of(*value.node)] != tasks_[device_of(*node)])
          return does_not_go(value, *node, device_of(*node));
  return {};
}

bool Planner::may_go(Output value, uint32_t device, std::vector<const Node*>& moves) const {
  const Node* const maker = maker_of(value);
  if (!maker || tasks_[device_of(*value.node)] == tasks_[device]) return true;
  for (;; value = step_->now(value.node->inputs()[0])) {
    if (!leaves_open(*value.node, device)) return false;
    moves.push_back(value.node);
    if (value.node == maker) break;
  }
  return std::ranges::all_of(maker->inputs(), [&](const Output& in) {
    const Output from = step_->now(in);
    if (from.dtype() != DType::kResource || step_->is_fed(from)) return may_go(from, device, moves);
    return tasks_[device_of(*from.node)] == tasks_[device];
  });
}

bool Planner::leaves_open(const Node& node, uint32_t device) const {
  if (node.device().empty() || context_.soft_placement || context_.scatter) return true;
  const auto wanted = DeviceName::parse(node.device()), full = DeviceName::parse(context_.devices[device].name);
  return wanted.ok() && full.ok() && wanted->matches(*full);
}

const Node& Planner::first_holder(const Node& holder) const {
  const Node* maker = &holder;
  while (!maker->inputs().empty()) {
    const Output from = step_->now(maker->inputs()[0]);
    if (from.dtype() != DType::kResource || step_->is_fed(from)) break;
    maker = from.node;
  }
  return *maker;
}

void Planner::place_list(const Node& adds, const Node& holder) {
  if (!adds.op().name().starts_with("TensorList")) return;
  const Node& maker = first_holder(holder);
  const bool named = !maker.device().empty() || moved_.contains(maker.id());
  std::unordered_map<const Node*, std::vector<const Node*>> others;  // of one variant
  for (const Node* node : step_->nodes())
    for (const Output& in : node->inputs())
      if (const Output value = step_->now(in); value.dtype() == DType::kVariant && !step_->is_fed(value)) {
        others[value.node].push_back(node);
        others[node].push_back(value.node);
      }
  const uint32_t device = device_of(maker);
  std::vector<const Node*>& list = lists_[maker.id()];
  std::vector<const Node*> waiting = {&adds};
  std::unordered_set<const Node*> seen = {&adds};
  while (!waiting.empty()) {
    const Node* const node = waiting.back();
    waiting.pop_back();
    list.push_back(node);
    if (named) moved_[node->id()] = device;
    for (const Node* other : others[node])
      if (seen.insert(other).second) waiting.push_back(other);
  }
}

bool Planner::bring_lists() {
  bool moved = false;
  for (const auto& [id, list] : std::exchange(lists_, {})) {
    const Node& maker = step_->node(id);
    const uint32_t made = place(maker);
    const bool obeys = tasks_[made] == tasks_[device_of(maker)];
    const auto elsewhere = [&, made](const Node* node) { return tasks_[place(*node)] != tasks_[made]; };
    const auto at = std::ranges::find_if(list, elsewhere);
    if ((at == list.end() && obeys) || !resource_key(maker).empty()) continue;
    // What does not go where it is to be is of a loop that is at home as a whole.
    moved_[id] = obeys ? place(**at) : made;
    moved = true;
  }
  return moved;
}

}  // namespace troupe
