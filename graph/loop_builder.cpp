// SPDX-License-Identifier: Apache-2.0
#include "graph/loop_builder.h"

#include <unordered_set>

namespace troupe {

namespace {

Output add_enter(const Scope& outer, const std::string& frame, int64_t parallel, Output value, bool every_iteration) {
  return outer.named("enter").op(
      "Enter", {value}, {{"frame_name", frame}, {"is_constant", every_iteration}, {"parallel_iterations", parallel}});
}

std::string without_slash(const std::string& prefix) { return prefix.substr(0, prefix.size() - 1); }

}  // namespace

Output size_vector(const Scope& scope, const PartialShape& shape) {
  if (!shape.has_rank()) return scope.constant<int32_t>(-1);
  const std::vector<int32_t> sizes(shape.dims().begin(), shape.dims().end());
  return scope.constant(Tensor::of<int32_t>(std::span<const int32_t>(sizes)));
}

LoopBuilder::LoopBuilder(const Scope& outer, int64_t parallel_iterations)
    : outer_(outer), context_(std::make_shared<FlowContext>(
                         outer.flow(), nullptr,
                         [outer, parallel_iterations](Output outside) {
                           return add_enter(outer, without_slash(outer.prefix()), parallel_iterations, outside, true);
                         },
                         true)),
      inside_(outer.within(context_)), frame_(without_slash(outer.prefix())), parallel_(parallel_iterations) {}

LoopBuilder::LoopBuilder(const Scope& outer, const Node& enter, Output condition)
    : outer_(outer), context_(std::make_shared<FlowContext>(
                         nullptr, nullptr, [](Output inside) { return inside; }, true)),
      inside_(outer.within(context_)), frame_(*enter.attrs().get<std::string>("frame_name")),
      parallel_(enter.attrs().get_or<int64_t>("parallel_iterations", 10)), condition_(condition) {}

Output LoopBuilder::enter(Output value, bool every_iteration) const {
  return add_enter(outer_, frame_, parallel_, value, every_iteration);
}

Output LoopBuilder::open(Output init, const PartialShape& shape) const {
  const Output entered = enter(init, false);
  if (!entered) return {};
  context_->add(entered.node);
  const Node* merge = inside_.open_merge(entered, shape);
  return merge ? merge->out() : Output{};
}

LoopValue LoopBuilder::split(Output merge) const {
  const Node* branch = inside_.named("switch").node("Switch", {merge, condition_});
  if (!branch) return {};
  const Output value = inside_.named("value").op("Identity", {branch->out(1)});
  // The Enters have waited for what the loop waits for, and an Exit, whose inputs are in the loop, cannot.
  const Scope leaving = Scope::beside(*branch)->within(outer_.flow());
  return {merge, value, leaving.named("exit").op("Exit", {branch->out(0)})};
}

bool LoopBuilder::ends_with_condition(Output output) const {
  std::vector<const Node*> waiting = {output.node};
  std::unordered_set<const Node*> seen = {output.node};
  const auto look = [&](const Node* node) {
    if (seen.insert(node).second) waiting.push_back(node);
  };
  while (!waiting.empty()) {
    const Node& node = *waiting.back();
    waiting.pop_back();
    const ControlFlow flow = node.op().control_flow();
    if (flow == ControlFlow::kSwitch && node.inputs()[1] == condition_) return true;
    if (flow == ControlFlow::kEnter && node.attrs().get_or<std::string>("frame_name", {}) == frame_) continue;
    for (const Output& in : node.inputs())
      if (in) look(in.node);
    for (const Node* before : node.control_inputs()) look(before);
  }
  return false;
}

void LoopBuilder::close(const LoopValue& value, Output next) const {
  if (!next) return;
  // What is the same in every iteration is there in the last one too, and would begin another.
  const Scope scope = ends_with_condition(next) ? inside_ : inside_.after({value.value});
  const Output back = scope.named("next").op("NextIteration", {next});
  if (!back) return;
  if (Status closed = inside_.graph().close_loop(*value.merge.node, back); !closed) inside_.fail(closed.error());
}

}  // namespace troupe
