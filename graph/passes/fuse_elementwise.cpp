// SPDX-License-Identifier: Apache-2.0
// Groups are found from the last node to the first: a node joins its readers where these are all of one group. So a
// group can have no way out of itself and back in, and to put one node in its place makes no cycle.
#include "graph/passes/fuse_elementwise.h"

#include <algorithm>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

constexpr std::string_view kOps[] = {"Abs",
                                     "Ceil",
                                     "Cos",
                                     "Elu",
                                     "Erf",
                                     "Exp",
                                     "Expm1",
                                     "Floor",
                                     "Log",
                                     "Log1p",
                                     "Neg",
                                     "Reciprocal",
                                     "Relu",
                                     "Relu6",
                                     "Rint",
                                     "Round",
                                     "Rsqrt",
                                     "Selu",
                                     "Sigmoid",
                                     "Sign",
                                     "Sin",
                                     "Softplus",
                                     "Softsign",
                                     "Sqrt",
                                     "Square",
                                     "Tanh",
                                     "Add",
                                     "AddV2",
                                     "Div",
                                     "EluGrad",
                                     "Maximum",
                                     "Minimum",
                                     "Mul",
                                     "Pow",
                                     "RealDiv",
                                     "Relu6Grad",
                                     "ReluGrad",
                                     "RsqrtGrad",
                                     "SeluGrad",
                                     "SigmoidGrad",
                                     "SoftplusGrad",
                                     "SqrtGrad",
                                     "SquaredDifference",
                                     "Sub",
                                     "TanhGrad"};

// What is known of the readers of a node: none yet, several groups or other nodes, or the root of one group.
constexpr int32_t kNobody = -1, kOthers = -2;

}  // namespace

std::span<const std::string_view> fusable_ops() { return kOps; }

ElementwiseFusion::ElementwiseFusion(StepGraph& step, PassDevices devices) : step_(step), devices_(std::move(devices)) {
  if (!step.ops().find("_FusedElementwise")) return;
  for (const std::string_view name : kOps)
    if (const OpDef* op = step.ops().find(name)) ops_.insert(op);
  const auto ids = static_cast<size_t>(step.ids());
  next_.assign(ids, -1);
  size_.assign(ids, 0);
  std::vector<int32_t> readers(ids, kNobody);
  step.for_each_wanted([&](Output o) { readers[static_cast<size_t>(o.node->id())] = kOthers; });
  const auto& nodes = step.nodes();
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = *nodes[i];
    const auto id = static_cast<size_t>(node.id());
    int32_t root = kOthers;
    if (fusable(node)) {
      root = readers[id] >= 0 && joins(node, readers[id]) ? readers[id] : node.id();
      // A group is a ring from the root to its members, the latest found first.
      next_[id] = root == node.id() ? root : std::exchange(next_[static_cast<size_t>(root)], node.id());
      ++size_[static_cast<size_t>(root)];
    }
    for (const Output& input : node.inputs()) {
      int32_t& of_input = readers[static_cast<size_t>(step.now(input).node->id())];
      of_input = of_input == kNobody || of_input == root ? root : kOthers;
    }
    step.for_each_control(node, [&](const Output& o) { readers[static_cast<size_t>(o.node->id())] = kOthers; });
  }
}

bool ElementwiseFusion::fusable(const Node& node) const {
  if (!ops_.contains(&node.op()) || !node.control_inputs().empty() || step_.is_fed(node)) return false;
  return step_.shape(node.out()).has_rank() && devices_.serves(node, "_FusedElementwise");
}

bool ElementwiseFusion::joins(const Node& node, int root_id) const {
  const Node& root = step_.node(root_id);
  return size_[static_cast<size_t>(root_id)] < kMostNodes && node.dtype(0) == root.dtype(0) && same_place(node, root) &&
         step_.shape(node.out()) == step_.shape(root.out());
}

bool ElementwiseFusion::visit(const Node& root) {
  const auto id = static_cast<size_t>(root.id());
  if (id >= size_.size() || size_[id] < 2) return false;
  std::vector<const Node*> members;
  for (int32_t at = next_[id]; at != root.id(); at = next_[static_cast<size_t>(at)]) members.push_back(&step_.node(at));
  members.push_back(&root);

  std::vector<Output> inputs;
  const auto is_member = [&](const Output& o) { return std::ranges::find(members, o.node) != members.end(); };
  for (const Node* n : members)
    for (const Output& in : n->inputs())
      if (const Output now = step_.now(in); !is_member(now) && std::ranges::find(inputs, now) == inputs.end())
        inputs.push_back(now);
  std::vector<std::string> ops;
  std::vector<int64_t> operands;
  for (const Node* n : members) {
    ops.push_back(n->op().name());
    for (size_t i = 0; i < 2; ++i) {
      if (i >= n->inputs().size()) {
        operands.push_back(-1);
        continue;
      }
      const Output now = step_.now(n->inputs()[i]);
      const auto member = std::ranges::find(members, now.node);
      operands.push_back(member != members.end() ? static_cast<int64_t>(inputs.size()) + (member - members.begin())
                                                 : std::ranges::find(inputs, now) - inputs.begin());
    }
  }
  const Output fused = step_.add_like(root, "_FusedElementwise", std::move(inputs),
                                      {{"ops", std::move(ops)}, {"operands", std::move(operands)}});
  if (!fused) return false;
  step_.replace(root, {&fused, 1});
  return true;
}

}  // namespace troupe
