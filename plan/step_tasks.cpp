// SPDX-License-Identifier: Apache-2.0
// Which nodes of a step are tasks, what they read and what they take.
#include "plan/step_tasks.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "plan/firing_counts.h"
#include "plan/op_costs.h"

namespace troupe {
namespace {

/// What plans make no node of: constants but those that a Merge may choose.
std::vector<bool> copied_constants(const StepGraph& step) {
  std::vector<bool> out(static_cast<size_t>(step.ids()), false);
  for (const Node* node : step.nodes())
    if (node->op().name() == "Const") out[static_cast<size_t>(node->id())] = true;
  for (const Node* node : step.nodes())
    if (node->op().control_flow() == ControlFlow::kMerge)
      for (const Output& in : node->inputs()) out[static_cast<size_t>(step.now(in).node->id())] = false;
  return out;
}

bool asks_resource(const Node& node) { return !node.inputs().empty() && node.inputs()[0].dtype() == DType::kResource; }

/// Whether where it runs matters only for what it reads and who reads it.
bool is_light(const Node& node) {
  if (node.op().does_update_variable()) return false;
  if (asks_resource(node) || node.op().control_flow() != ControlFlow::kNone) return true;
  const NodeCost cost = cost_of(node);
  return cost.flops == 0 && cost.bytes == 0;
}

/// Calls data(Output) for each tensor that a node gets from another that runs, and waits(Node) for each other node
/// that it waits for. What constants wait for their readers do.
template <class D, class W>
void for_each_source(const StepGraph& step, const std::vector<bool>& constants, const Node& node, D&& data, W&& waits) {
  const auto controls = [&](const auto& self, const Node& of) -> void {
    step.for_each_control(of, [&](const Output& before) {
      if (constants[static_cast<size_t>(before.node->id())]) self(self, *before.node);
      else waits(*before.node);
    });
  };
  for (const Output& written : node.inputs()) {
    const Output in = step.now(written);
    if (step.is_fed(in)) continue;
    if (constants[static_cast<size_t>(in.node->id())]) controls(controls, *in.node);
    else data(in);
  }
  controls(controls, node);
}

const MeasuredCost* measured(const Node& node, std::span<const DeviceClass> classes, const CostModel* costs) {
  if (costs)
    for (const DeviceClass& c : classes)
      if (const MeasuredCost* cost = costs->find(node.name(), c.kind)) return cost;
  return nullptr;
}

double output_bytes(const StepGraph& step, const Node& node, int port, const MeasuredCost* cost) {
  const PartialShape shape = step.shape(node.out(port));
  if (shape.fully_known() || !cost || !(cost->bytes > 0)) return bytes_of(node.dtype(port), shape);
  return cost->bytes / node.num_outputs();
}

double variable_bytes(const Node& handle) {
  const auto* shape = handle.attrs().get<PartialShape>("shape");
  const auto* dtype = handle.attrs().get<DType>("dtype");
  return handle.op().name() == "VarHandleOp" && shape && dtype ? bytes_of(*dtype, *shape) : 0;
}

}  // namespace

double most_bytes(const StepGraph& step, std::span<const DeviceClass> classes, const CostModel* costs) {
  double bytes = 0;
  for (const Node* node : step.nodes()) {
    bytes += variable_bytes(*node);
    const MeasuredCost* cost = measured(*node, classes, costs);
    for (int port = 0; port < node->num_outputs(); ++port) bytes += output_bytes(step, *node, port, cost);
  }
  return bytes;
}

void join_related(const StepGraph& step, const Frames& frames, bool alike, Constraints& constraints) {
  const std::vector<bool> constants = copied_constants(step);
  const auto ids = static_cast<size_t>(step.ids());
  struct Ends {
    const Node* reader = nullptr;  // the only one
    bool many_readers = false;
    bool source = false;  // light, and so is all that it follows from
    bool seen = false;
  };
  std::vector<Ends> ends(ids);
  std::vector<const Node*> chained(ids, nullptr);  // by node: the only one that it follows from beside sources
  std::unordered_map<int, const Node*> loops;      // first node of each

  for (const Node* node : step.nodes()) {
    if (constants[static_cast<size_t>(node->id())]) continue;
    Ends& own = ends[static_cast<size_t>(node->id())];
    own.seen = true;
    own.source = is_light(*node);
    const bool asks = asks_resource(*node), light = own.source;
    const Node* only = nullptr;
    bool first = true, many = false;
    const auto follow = [&](const Node& from) {
      Ends& other = ends[static_cast<size_t>(from.id())];
      if (!other.seen) return;  // a loop's way back
      other.many_readers |= other.reader && other.reader != node;
      other.reader = node;
      if (other.source) return;
      own.source = false;
      many |= only && only != &from;
      only = &from;
    };
    for_each_source(
        step, constants, *node,
        [&](const Output& in) {
          follow(*in.node);
          if (in.dtype() == DType::kResource ||
              (light && !asks && first && ends[static_cast<size_t>(in.node->id())].seen))
            constraints.join(*node, *in.node);
          first = false;
        },
        follow);
    if (!many && !asks) chained[static_cast<size_t>(node->id())] = only;
    if (const int frame = std::max(frames.of[static_cast<size_t>(node->id())], frames.of_output(*node)); frame > 0) {
      const auto [at, fresh] = loops.try_emplace(frames.outermost(frame), node);
      if (!fresh) constraints.join(*at->second, *node);
    }
  }
  if (!alike) return;
  for (const Node* node : step.nodes())
    if (const Node* from = chained[static_cast<size_t>(node->id())]; from && !asks_resource(*from))
      if (const Ends& e = ends[static_cast<size_t>(from->id())]; !e.many_readers) constraints.join(*from, *node);
}

namespace {

class TaskMaker {
 public:
  TaskMaker(const StepGraph& step, const Frames& frames, std::span<const DeviceClass> classes, const CostModel* costs,
            const Constraints& constraints)
      : step_(step), classes_(classes), costs_(costs), constraints_(constraints), constants_(copied_constants(step)),
        firings_(firings_of(step, frames, costs)) {}

  StepTasks make() {
    out_.task_of.assign(static_cast<size_t>(step_.ids()), kNone);
    groups_.assign(static_cast<size_t>(step_.ids()), kNone);
    for (const Node* node : step_.nodes())
      if (!constants_[static_cast<size_t>(node->id())]) add(*node);
    step_.for_each_wanted([this](const Output& o) {
      if (const uint32_t t = task_of(*o.node); t != kNone && o.node->num_outputs() > 0) keep_.push_back({t, o.port});
    });
    for (const auto& [task, port] : keep_) out_.graph.keep(first_value_[task] + static_cast<uint32_t>(port));
    out_.graph.close();
    return std::move(out_);
  }

 private:
  static constexpr uint32_t kNone = TaskGraph::kNone;

  uint32_t task_of(const Node& node) const { return out_.task_of[static_cast<size_t>(node.id())]; }

  uint32_t group_of(const Node& node) {
    uint32_t& group = groups_[constraints_.group(node)];
    if (group == kNone) {
      group = static_cast<uint32_t>(out_.allowed.size());
      const auto devices = constraints_.devices(node);
      out_.allowed.emplace_back(devices.begin(), devices.end());
    }
    return group;
  }

  double resident(const Node& node) {
    if (node.op().name() != "VarHandleOp") return 0;
    const auto name = node.attrs().get_or<std::string>("shared_name", "");
    const auto container = node.attrs().get_or<std::string>("container", "");
    return variables_.emplace(container, name.empty() ? node.name() : name).second ? variable_bytes(node) : 0;
  }

  void add(const Node& node) {
    const MeasuredCost* cost = measured(node, classes_, costs_);
    const double firings = firings_[static_cast<size_t>(node.id())];
    TaskGraph::Task task{{}, resident(node), group_of(node), is_light(node), firings};
    for (const DeviceClass& c : classes_)
      task.ns.push_back(costs_ ? costs_->time_ns(node, c.kind, c.rates) : estimated_ns(node, c.rates));
    for (double& ns : task.ns) ns *= firings;
    const uint32_t t = out_.graph.add_task(std::move(task));
    out_.task_of[static_cast<size_t>(node.id())] = t;
    out_.nodes.push_back(&node);
    read_by_.push_back(kNone);

    uint32_t first = kNone;  // the first value that it reads
    std::vector<uint32_t> waits;
    for_each_source(
        step_, constants_, node,
        [&](const Output& in) {
          const uint32_t from = task_of(*in.node);
          if (from == kNone) return;  // a loop's way back
          const uint32_t value = first_value_[from] + static_cast<uint32_t>(in.port);
          if (first == kNone) first = value;
          out_.graph.add_input(value);
          read_by_[from] = t;
        },
        [&](const Node& before) {
          if (const uint32_t from = task_of(before); from != kNone) waits.push_back(from);
        });
    // A node that reads another need not wait for it as well.
    for (const uint32_t from : waits)
      if (read_by_[from] != t) out_.graph.add_input(ended(from));

    first_value_.push_back(out_.graph.num_values());
    const bool hands_on = out_.graph.task(t).light && first != kNone && !asks_resource(node);
    for (int port = 0; port < node.num_outputs(); ++port) {
      const double size = output_bytes(step_, node, port, cost);
      if (node.op().name() == "ReadVariableOp") out_.graph.add_value(size, kNone);
      else if (hands_on && size == out_.graph.value(first).bytes) out_.graph.add_value(size, first);
      else out_.graph.add_value(size);
    }
    out_.graph.add_value(0, kNone);  // the fact that it has ended
  }

  uint32_t ended(uint32_t task) const {
    return first_value_[task] + static_cast<uint32_t>(out_.nodes[task]->num_outputs());
  }

  const StepGraph& step_;
  std::span<const DeviceClass> classes_;
  const CostModel* costs_;
  const Constraints& constraints_;
  const std::vector<bool> constants_;
  const std::vector<double> firings_;  // by node id
  StepTasks out_;
  std::vector<uint32_t> groups_;       // by number of Constraints
  std::vector<uint32_t> first_value_;  // by task
  std::vector<uint32_t> read_by_;      // by task: the last that reads it
  std::vector<std::pair<uint32_t, int>> keep_;
  std::set<std::pair<std::string, std::string>> variables_;
};

}  // namespace

StepTasks make_tasks(const StepGraph& step, const Frames& frames, std::span<const DeviceClass> classes,
                     const CostModel* costs, const Constraints& constraints) {
  return TaskMaker(step, frames, classes, costs, constraints).make();
}

}  // namespace troupe
