// SPDX-License-Identifier: Apache-2.0
// Fusing of element-wise nodes: chains and trees of them become one node, whose kernel keeps what is in between in the
// cache.
#pragma once
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// Ops that may be part of a _FusedElementwise as they are, which must have a loop for each
/// (ops/fused/elementwise.cpp). On CPUs AddN may as well, as sums of two, one after the other, and BiasAdd along the
/// last dimension.
std::span<const std::string_view> fusable_ops();
/// Reductions that may be part of one on CPUs where they are over the last dimension and keep it, as size 1.
std::span<const std::string_view> fusable_reductions();

/// Which groups are found.
struct ElementwiseGroups {
  bool cpus_only = false;
  /// A node that only several groups read becomes part of each, and so is computed again in each, where no group then
  /// reads more memory than before: what a forward pass leaves for the gradients is often made of what they read
  /// anyway.
  bool compute_again = false;
};

/// Finds groups of element-wise nodes of which all but the last, the root, are read within the group alone, and puts
/// one _FusedElementwise in place of each root. Within a group all have the same float type, device and inferred shape,
/// so nothing that somebody else reads is computed again; and nothing at all without `compute_again`. On CPUs, if the
/// root's shape is known and its rows (along the last dimension) are of kFewestInRow to kMostInRow elements, these join
/// too: reductions of a row to one element, functions of such elements, and BroadcastTo to the root's shape. Left
/// alone: nodes with control inputs or waited for by a control edge, fetched and fed ones but as a root, and where the
/// device has no kernel for it.
class ElementwiseFusion {
 public:
  static constexpr int kMostNodes = 48;
  /// What takes long to compute, as Tanh, is computed again only for tensors that no cache near a core holds.
  static constexpr int64_t kLarge = int64_t{1} << 16;
  static constexpr int64_t kFewestInRow = 64, kMostInRow = 8192;

  /// Finds the groups in `step`, which must outlive it and change by visit() alone from now on.
  explicit ElementwiseFusion(StepGraph& step, PassDevices devices = {}, ElementwiseGroups groups = {});
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  struct Group {
    std::vector<const Node*> members;  // the root first, then its inputs before theirs
    int functions = 0;                 // of all members
    std::vector<Output> inputs;        // what members read, of which some may be members
    bool rows = false;                 // whether a member is a reduction or BroadcastTo
  };
  bool fusable(const Node& node) const;
  /// Whether the op is one of the reductions or BroadcastTo.
  bool by_rows(const Node& node) const { return &node.op() == broadcast_to_ || reductions_.contains(&node.op()); }
  /// Whether a BiasAdd is what AddV2 is, and the bias is long: a short one is repeated faster by BiasAdd itself.
  bool adds_last(const Node& node) const;
  /// Whether a reduction is of the last dimension to size 1, or the shape of a BroadcastTo is constant.
  bool keeps_rows(const Node& node) const;
  /// What of a node's inputs is read element by element.
  std::span<const Output> operands(const Node& node) const {
    return std::span(node.inputs()).first(by_rows(node) ? 1 : node.inputs().size());
  }
  /// Whether `value` has one element for each row of the root, which are neither short nor long.
  bool is_of_rows(const Output& value, const Node& root) const;
  /// Whether a reduction is among what is, row by row, computed to `node`.
  bool reduces(const Node& node, int depth = 4) const;
  /// How many functions stand for a node.
  int functions(const Node& node) const {
    return &node.op() == add_n_ ? static_cast<int>(node.inputs().size()) - 1 : 1;
  }
  bool joins(const Node& node, const Group& group) const;
  /// Whether the node may be computed again in each of these.
  bool joins_all(const Node& node, const std::vector<int32_t>& groups) const;
  void add(const Node& node, int32_t group);
  /// The groups that read the node; empty where somebody else does, or nobody.
  std::vector<int32_t> readers_of(const Node& node) const;
  /// Also `group`, or others if that is kOthers, reads what `input` stands for.
  void note_reader(const Output& input, int32_t group);

  StepGraph& step_;
  const PassDevices devices_;
  const ElementwiseGroups which_;
  const OpDef *add_n_ = nullptr, *bias_add_ = nullptr, *broadcast_to_ = nullptr;
  std::unordered_set<const OpDef*> ops_, quick_, reductions_;
  std::vector<Group> groups_;
  std::vector<int32_t> group_of_;           // by id of a root; else -1
  std::vector<int32_t> readers_;            // by id: kNobody, kOthers, a group, or kFirstSet - an index in sets_
  std::vector<std::vector<int32_t>> sets_;  // several groups
};

}  // namespace troupe
