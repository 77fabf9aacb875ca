// SPDX-License-Identifier: Apache-2.0
// Groups are found from the last node to the first: a node joins its readers where these are all of one group, or is
// doubled so that they are. So a group can have no way out of itself and back in, and to put one node in its place
// makes no cycle.
#include "graph/passes/fuse_elementwise.h"

#include <algorithm>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

constexpr std::string_view kOps[] = {"Abs",          "Ceil",      "Cos",
                                     "Elu",          "Erf",       "Exp",
                                     "Expm1",        "Floor",     "Log",
                                     "Log1p",        "Neg",       "Reciprocal",
                                     "Relu",         "Relu6",     "Rint",
                                     "Round",        "Rsqrt",     "Selu",
                                     "Sigmoid",      "Sign",      "Sin",
                                     "Softplus",     "Softsign",  "Sqrt",
                                     "Square",       "Tanh",      "_GeluApproximate",
                                     "_GeluExact",   "Add",       "AddV2",
                                     "Div",          "EluGrad",   "Maximum",
                                     "Minimum",      "Mul",       "Pow",
                                     "RealDiv",      "Relu6Grad", "ReluGrad",
                                     "RsqrtGrad",    "SeluGrad",  "SigmoidGrad",
                                     "SoftplusGrad", "SqrtGrad",  "SquaredDifference",
                                     "Sub",          "TanhGrad"};

/// What takes no longer than to read and write memory.
constexpr std::string_view kQuick[] = {
    "Abs", "AddN", "AddV2", "Add",       "BiasAdd",  "Maximum", "Minimum",           "Mul",
    "Neg", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Square",  "SquaredDifference", "Sub"};

constexpr std::string_view kReductions[] = {"Max", "Mean", "Min", "Sum"};

/// How many groups may each compute a node again.
constexpr size_t kMostTimes = 4;

// What is known of the readers of a node: none yet, others than groups or too many of these, or a group, or several.
constexpr int32_t kNobody = -1, kOthers = -2, kFirstSet = -3;

}  // namespace

std::span<const std::string_view> fusable_ops() { return kOps; }
std::span<const std::string_view> fusable_reductions() { return kReductions; }

ElementwiseFusion::ElementwiseFusion(StepGraph& step, PassDevices devices, ElementwiseGroups groups)
    : step_(step), devices_(std::move(devices)), which_(groups), add_n_(step.ops().find("AddN")),
      bias_add_(step.ops().find("BiasAdd")), broadcast_to_(step.ops().find("BroadcastTo")) {
  if (!step.ops().find("_FusedElementwise")) return;
  for (const std::string_view name : kOps)
    if (const OpDef* op = step.ops().find(name)) ops_.insert(op);
  for (const OpDef* op : {add_n_, bias_add_})
    if (op) ops_.insert(op);
  for (const std::string_view name : kReductions)
    if (const OpDef* op = step.ops().find(name)) reductions_.insert(op);
  for (const std::string_view name : kQuick)
    if (const OpDef* op = step.ops().find(name)) quick_.insert(op);
  const auto ids = static_cast<size_t>(step.ids());
  group_of_.assign(ids, -1);
  readers_.assign(ids, kNobody);
  step.for_each_wanted([&](Output o) { note_reader(o, kOthers); });
  const auto& nodes = step.nodes();
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = *nodes[i];
    if (!fusable(node)) {
      for (const Output& input : node.inputs()) note_reader(input, kOthers);
    } else if (std::vector<int32_t> readers = readers_of(node); joins_all(node, readers)) {
      for (const int32_t group : readers) add(node, group);
    } else if (by_rows(node)) {  // never a root
      for (const Output& input : node.inputs()) note_reader(input, kOthers);
    } else {
      group_of_[static_cast<size_t>(node.id())] = static_cast<int32_t>(groups_.size());
      groups_.emplace_back();
      add(node, static_cast<int32_t>(groups_.size()) - 1);
    }
    step.for_each_control(node, [&](const Output& o) { note_reader(o, kOthers); });
  }
}

std::vector<int32_t> ElementwiseFusion::readers_of(const Node& node) const {
  const int32_t readers = readers_[static_cast<size_t>(node.id())];
  if (readers <= kFirstSet) return sets_[static_cast<size_t>(kFirstSet - readers)];
  return readers < 0 ? std::vector<int32_t>() : std::vector<int32_t>{readers};
}

void ElementwiseFusion::note_reader(const Output& input, int32_t group) {
  int32_t& readers = readers_[static_cast<size_t>(step_.now(input).node->id())];
  if (readers == group || readers == kOthers) return;
  if (readers == kNobody || group == kOthers || !which_.compute_again) {
    readers = readers == kNobody ? group : kOthers;
    return;
  }
  if (readers >= 0) {
    sets_.push_back({readers});
    readers = kFirstSet - static_cast<int32_t>(sets_.size() - 1);
  }
  auto& set = sets_[static_cast<size_t>(kFirstSet - readers)];
  if (std::ranges::find(set, group) != set.end()) return;
  if (set.size() < kMostTimes) set.push_back(group);
  else readers = kOthers;
}

bool ElementwiseFusion::fusable(const Node& node) const {
  if (!(ops_.contains(&node.op()) || by_rows(node)) || !node.control_inputs().empty() || step_.is_fed(node))
    return false;
  const bool on_gpu = devices_.on_gpu && devices_.on_gpu(node);
  if (on_gpu && (which_.cpus_only || by_rows(node))) return false;
  if (by_rows(node) && !keeps_rows(node)) return false;
  if (&node.op() == bias_add_ && (on_gpu || !adds_last(node))) return false;
  if (&node.op() == add_n_ && (on_gpu || node.inputs().size() < 2 || node.inputs().size() > 8)) return false;
  return step_.shape(node.out()).has_rank() && devices_.serves(node, "_FusedElementwise");
}

bool ElementwiseFusion::adds_last(const Node& node) const {
  const PartialShape x = step_.shape(node.inputs()[0]), bias = step_.shape(node.inputs()[1]);
  return node.attrs().get_or<std::string>("data_format", "NHWC") != "NCHW" && x.has_rank() && x.rank() >= 2 &&
         bias.fully_known() && bias.rank() == 1 && bias[0] == x.dim(-1) && bias[0] >= kFewestInRow;
}

bool ElementwiseFusion::keeps_rows(const Node& node) const {
  const Tensor* second = step_.constant(node.inputs()[1]);
  if (!second) return false;
  if (&node.op() == broadcast_to_) return true;
  const PartialShape shape = step_.shape(node.inputs()[0]);
  if (second->elements() != 1 || !shape.has_rank() || !node.attrs().get_or("keep_dims", false)) return false;
  const int64_t axis = second->dtype() == DType::kInt32 ? second->data<int32_t>()[0] : second->data<int64_t>()[0];
  return axis == -1 || axis == shape.rank() - 1;
}

bool ElementwiseFusion::is_of_rows(const Output& value, const Node& root) const {
  const PartialShape rows = step_.shape(value), all = step_.shape(root.out());
  if (!all.fully_known() || !rows.fully_known() || all.rank() < 1 || rows.rank() != all.rank()) return false;
  if (devices_.on_gpu && devices_.on_gpu(root)) return false;
  const int64_t n = all.dim(-1);
  return n >= kFewestInRow && n <= kMostInRow && rows.dim(-1) == 1 &&
         std::ranges::equal(rows.dims().first(static_cast<size_t>(rows.rank() - 1)),
                            all.dims().first(static_cast<size_t>(all.rank() - 1)));
}

bool ElementwiseFusion::reduces(const Node& node, int depth) const {
  if (reductions_.contains(&node.op())) return true;
  return depth > 0 && ops_.contains(&node.op()) && std::ranges::any_of(node.inputs(), [&](const Output& input) {
           return reduces(*step_.now(input).node, depth - 1);
         });
}

bool ElementwiseFusion::joins(const Node& node, const Group& group) const {
  const Node& root = *group.members.front();
  if (group.functions + functions(node) > kMostNodes || node.dtype(0) != root.dtype(0) || !same_place(node, root))
    return false;
  // Of what asks for no device, placement by cost may have put one on a GPU and one on a CPU.
  if (devices_.on_gpu && devices_.on_gpu(node) != devices_.on_gpu(root)) return false;
  const PartialShape shape = step_.shape(root.out());
  if (reductions_.contains(&node.op())) return is_of_rows(node.out(), root) && step_.shape(node.inputs()[0]) == shape;
  const bool same = step_.shape(node.out()) == shape;
  if (&node.op() == broadcast_to_) return same && is_of_rows(step_.now(node.inputs()[0]), root);
  return same || (is_of_rows(node.out(), root) && reduces(node));
}

bool ElementwiseFusion::joins_all(const Node& node, const std::vector<int32_t>& groups) const {
  if (groups.empty()) return false;
  for (const int32_t g : groups)
    if (!joins(node, groups_[static_cast<size_t>(g)])) return false;
  if (groups.size() == 1) return true;
  const Node& root = *groups_[static_cast<size_t>(groups.front())].members.front();
  const PartialShape shape = step_.shape(root.out());
  if (!quick_.contains(&node.op()) && !by_rows(node) && !is_of_rows(node.out(), root)) {
    int64_t known = 1;
    for (int d = 0; d < shape.rank(); ++d) known *= std::max<int64_t>(shape.dim(d), 1);
    if (known < kLarge) return false;
  }
  // Each group reads the node's inputs in place of the node.
  for (const int32_t g : groups) {
    const auto& inputs = groups_[static_cast<size_t>(g)].inputs;
    std::vector<Output> more;
    for (const Output& input : operands(node))
      if (const Output now = step_.now(input); step_.shape(now) == shape &&
                                               std::ranges::find(inputs, now) == inputs.end() &&
                                               std::ranges::find(more, now) == more.end())
        more.push_back(now);
    if (more.size() > 1) return false;
  }
  return true;
}

void ElementwiseFusion::add(const Node& node, int32_t group) {
  Group& to = groups_[static_cast<size_t>(group)];
  to.members.push_back(&node);
  to.functions += functions(node);
  to.rows |= by_rows(node);
  for (const Output& input : operands(node)) {
    const Output now = step_.now(input);
    if (std::ranges::find(to.inputs, now) == to.inputs.end()) to.inputs.push_back(now);
    note_reader(input, group);
  }
}

bool ElementwiseFusion::visit(const Node& root) {
  const auto id = static_cast<size_t>(root.id());
  if (id >= group_of_.size() || group_of_[id] < 0) return false;
  const Group& group = groups_[static_cast<size_t>(group_of_[id])];
  if (group.functions < 2 || group.members.size() < 2) return false;
  const std::vector<const Node*> members(group.members.rbegin(), group.members.rend());

  std::vector<Output> inputs;
  const auto is_member = [&](const Output& o) { return std::ranges::find(members, o.node) != members.end(); };
  for (const Node* n : members)
    for (const Output& in : operands(*n))
      if (const Output now = step_.now(in); !is_member(now) && std::ranges::find(inputs, now) == inputs.end())
        inputs.push_back(now);
  // What has the result's shape, for BroadcastTo.
  const auto like = std::ranges::find_if(inputs, [&](Output o) { return step_.shape(o) == step_.shape(root.out()); });
  if (group.rows && like == inputs.end()) return false;
  std::vector<std::string> ops;
  std::vector<int64_t> places;   // of the operands of each function
  std::vector<int64_t> results;  // of members: which value the last of their functions makes
  const auto add = [&](const Node& n, int64_t a, int64_t b) {
    ops.push_back(&n.op() == bias_add_ ? "AddV2" : n.op().name());
    places.insert(places.end(), {a, b});
    return static_cast<int64_t>(inputs.size() + ops.size()) - 1;
  };
  for (const Node* n : members) {
    const std::span<const Output> of = operands(*n);
    const auto operand = [&](size_t i) -> int64_t {
      if (i >= of.size()) return &n->op() == broadcast_to_ ? like - inputs.begin() : -1;
      const Output now = step_.now(of[i]);
      const auto member = std::ranges::find(members, now.node);
      return member != members.end() ? results[static_cast<size_t>(member - members.begin())]
                                     : std::ranges::find(inputs, now) - inputs.begin();
    };
    int64_t result = add(*n, operand(0), operand(1));
    for (size_t i = 2; i < of.size(); ++i) result = add(*n, result, operand(i));
    results.push_back(result);
  }
  const Output fused = step_.add_like(root, "_FusedElementwise", std::move(inputs),
                                      {{"ops", std::move(ops)}, {"operands", std::move(places)}});
  if (!fused) return false;
  step_.replace(root, {&fused, 1});
  return true;
}

}  // namespace troupe
