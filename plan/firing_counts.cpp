// SPDX-License-Identifier: Apache-2.0
// Iterations loop by loop, outer ones first. What decides whether an iteration goes on runs once more than the rest.
#include "plan/firing_counts.h"

#include <algorithm>
#include <cmath>

#include "graph/constant_value.h"

namespace troupe {
namespace {

/// A value that a loop carries: it begins with `init`, and each iteration adds `step`.
struct Counter {
  double init = 0, step = 0;
};

/// How often "counter `op` bound" holds from the first time on; none: for ever, or it cannot be told.
std::optional<double> times_held(const std::string& op, Counter counter, double bound) {
  if (op == "NotEqual") {
    const double n = (bound - counter.init) / counter.step;
    return std::isfinite(n) && n >= 0 && n == std::floor(n) ? std::optional(n) : std::nullopt;
  }
  const double sign = op.starts_with("Greater") ? -1 : 1;
  const bool with_equal = op.ends_with("Equal");
  const double distance = sign * (bound - counter.init), step = sign * counter.step;
  if (distance < 0 || (distance == 0 && !with_equal)) return 0;
  if (step <= 0) return {};
  return with_equal ? std::floor(distance / step) + 1 : std::ceil(distance / step);
}

/// The comparison with its sides exchanged; empty: it is none.
std::string mirrored(const std::string& op) {
  if (op == "Less") return "Greater";
  if (op == "LessEqual") return "GreaterEqual";
  if (op == "Greater") return "Less";
  if (op == "GreaterEqual") return "LessEqual";
  return op == "NotEqual" ? op : "";
}

std::optional<double> as_number(const Tensor& t) {
  if (t.elements() != 1) return {};
  double number = 0;
  switch (t.dtype()) {
    case DType::kInt32: number = t.data<int32_t>()[0]; break;
    case DType::kInt64: number = static_cast<double>(t.data<int64_t>()[0]); break;
    case DType::kFloat32: number = t.data<float>()[0]; break;
    case DType::kFloat64: number = t.data<double>()[0]; break;
    default: return {};
  }
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

class FiringCounter {
 public:
  FiringCounter(const StepGraph& step, const Frames& frames, const CostModel* costs)
      : step_(step), frames_(frames), costs_(costs), loops_(frames.frames.size()),
        goes_on_(static_cast<size_t>(step.ids()), false) {}

  std::vector<double> count() {
    for (const Node* node : step_.nodes())
      if (flow_of(*node) == ControlFlow::kExit) note_condition(*node);
    for (const Node* node : step_.nodes()) look_at(*node);
    for (size_t f = 1; f < loops_.size(); ++f) count_iterations(f);
    std::vector<double> out(static_cast<size_t>(step_.ids()), 1);
    for (const Node* node : step_.nodes()) {
      const LoopCount& loop = loops_[frame_of(*node)];
      double& own = out[static_cast<size_t>(node->id())];
      if (const auto seen = measured(*node)) own = *seen;
      else if (flow_of(*node) == ControlFlow::kExit) own = loop.entries;
      else own = loop.runs(goes_on(*node));
    }
    return out;
  }

 private:
  /// A loop, or the step itself.
  struct LoopCount {
    Output condition = {};
    bool entered_later = false;         // in iterations of the loop around that go on
    std::optional<double> most, tests;  // measured: of nodes in iterations that go on, and of the others
    std::optional<double> bounds;       // iterations by constants
    double entries = 1, iterations = 0;

    /// Of a node in the iterations that go on, or in all.
    double runs(bool goes_on) const { return entries * (iterations + (goes_on ? 0 : 1)); }
  };

  /// What is fed counts as outside of loops.
  size_t frame_of(const Node& node) const {
    return static_cast<size_t>(std::max(0, frames_.of[static_cast<size_t>(node.id())]));
  }
  bool goes_on(const Node& node) const { return goes_on_[static_cast<size_t>(node.id())]; }
  std::optional<double> measured(const Node& node) const {
    return costs_ ? costs_->firings(node.name()) : std::nullopt;
  }

  void note_condition(const Node& exit) {
    const Node& branch = *step_.now(exit.inputs()[0]).node;
    if (flow_of(branch) == ControlFlow::kSwitch && branch.inputs().size() == 2)
      loops_[frame_of(exit)].condition = step_.now(branch.inputs()[1]);
  }

  /// Whether a node runs in those iterations only that go on: it follows from a Switch by the loop's condition.
  void look_at(const Node& node) {
    bool later = false;
    const auto follow = [&](const Node& before) {
      if (flow_of(before) == ControlFlow::kExit) later |= loops_[frame_of(before)].entered_later;
      else if (flow_of(before) != ControlFlow::kEnter) later |= goes_on(before) || is_by_condition(before);
    };
    for (const Output& written : node.inputs())
      if (const Output in = step_.now(written); !step_.is_fed(in)) follow(*in.node);
    step_.for_each_control(node, [&](const Output& before) { follow(*before.node); });
    goes_on_[static_cast<size_t>(node.id())] = later;
    if (flow_of(node) == ControlFlow::kEnter)
      loops_[static_cast<size_t>(frames_.of_output(node))].entered_later |= later;
    LoopCount& loop = loops_[frame_of(node)];
    if (const auto seen = measured(node)) {
      std::optional<double>& most = later ? loop.most : loop.tests;
      most = std::max(most.value_or(0), *seen);
    }
  }
  bool is_by_condition(const Node& node) const {
    const Output& condition = loops_[frame_of(node)].condition;
    return condition && flow_of(node) == ControlFlow::kSwitch && step_.now(node.inputs()[1]) == condition;
  }

  void count_iterations(size_t frame) {
    LoopCount& loop = loops_[frame];
    loop.entries = loops_[static_cast<size_t>(frames_.frames[frame].parent)].runs(loop.entered_later);
    if (loop.condition) loop.bounds = iterations_by(loop.condition, frame);
    if (loop.most && loop.entries > 0) loop.iterations = *loop.most / loop.entries;
    else if (loop.tests && loop.entries > 0) loop.iterations = std::max(0.0, *loop.tests / loop.entries - 1);
    else loop.iterations = loop.bounds.value_or(kUnknownIterations);
  }

  std::optional<double> iterations_by(Output condition, size_t frame) const {
    const Node& node = *origin(condition).node;
    const std::string& op = node.op().name();
    if (node.inputs().size() != 2) return {};
    if (op == "LogicalAnd") {
      const auto a = iterations_by(node.inputs()[0], frame), b = iterations_by(node.inputs()[1], frame);
      if (!a && !b) return {};
      return std::min(a.value_or(kUnknownIterations), b.value_or(kUnknownIterations));
    }
    if (mirrored(op).empty()) return {};
    for (const size_t side : {0u, 1u}) {
      const auto counter = counter_of(node.inputs()[side], frame);
      const auto bound = number(node.inputs()[1 - side]);
      if (counter && bound) return times_held(side == 0 ? op : mirrored(op), *counter, *bound);
    }
    return {};
  }

  /// Where a value comes from, through nodes that hand it on.
  Output origin(Output o) const {
    for (o = step_.now(o); !step_.is_fed(o); o = step_.now(o.node->inputs()[0]))
      if (o.node->op().name() != "Identity" && o.node->op().name() != "LoopCond") break;
    return o;
  }

  std::optional<double> number(Output o) const {
    o = origin(o);
    if (step_.is_fed(o)) return {};
    if (const auto value = constant_value(o)) return as_number(*value);
    if (flow_of(*o.node) != ControlFlow::kExit) return {};
    // What a counter has come to when its loop ends.
    const LoopCount& loop = loops_[frame_of(*o.node)];
    const Node& branch = *step_.now(o.node->inputs()[0]).node;
    if (!loop.bounds || !is_by_condition(branch)) return {};
    const auto counter = counter_of(branch.inputs()[0], frame_of(branch));
    return counter ? std::optional(counter->init + *loop.bounds * counter->step) : std::nullopt;
  }

  std::optional<Counter> counter_of(Output o, size_t frame) const {
    const Node& merge = *origin(o).node;
    if (flow_of(merge) != ControlFlow::kMerge || frame_of(merge) != frame || merge.inputs().size() != 2) return {};
    std::optional<double> init, step;
    for (const Output& written : merge.inputs()) {
      const Node& in = *step_.now(written).node;
      if (flow_of(in) == ControlFlow::kEnter) init = number(in.inputs()[0]);
      else if (flow_of(in) == ControlFlow::kNextIteration) step = step_of(*origin(in.inputs()[0]).node, merge);
    }
    return init && step ? std::optional(Counter{*init, *step}) : std::nullopt;
  }
  /// What `sum` adds to the value of `merge`.
  std::optional<double> step_of(const Node& sum, const Node& merge) const {
    const std::string& op = sum.op().name();
    if (op != "AddV2" && op != "Add" && op != "Sub") return {};
    for (const size_t side : {0u, 1u}) {
      const Node& branch = *origin(sum.inputs()[side]).node;
      if (!is_by_condition(branch) || step_.now(branch.inputs()[0]).node != &merge) continue;
      const auto added = number(sum.inputs()[1 - side]);
      if (added && op != "Sub") return added;
      if (added && side == 0) return -*added;
    }
    return {};
  }

  const StepGraph& step_;
  const Frames& frames_;
  const CostModel* costs_;
  std::vector<LoopCount> loops_;  // by frame
  std::vector<bool> goes_on_;     // by node id
};

}  // namespace

std::vector<double> firings_of(const StepGraph& step, const Frames& frames, const CostModel* costs) {
  const bool always_once =
      std::ranges::all_of(step.nodes(), [](const Node* node) { return flow_of(*node) == ControlFlow::kNone; });
  if (always_once) return std::vector<double>(static_cast<size_t>(step.ids()), 1);
  return FiringCounter(step, frames, costs).count();
}

}  // namespace troupe
