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
/// (ops/fused/elementwise.cpp). AddN may as well, on CPUs: as sums of two, one after the other.
std::span<const std::string_view> fusable_ops();

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
/// so nothing that somebody else reads is computed again; and nothing at all without `compute_again`. Left alone: nodes
/// with control inputs or waited for by a control edge, fetched and fed ones but as a root, and where the device has no
/// kernel for it.
class ElementwiseFusion {
 public:
  static constexpr int kMostNodes = 48;
  /// What takes long to compute, as Tanh, is computed again only for tensors that no cache near a core holds.
  static constexpr int64_t kLarge = int64_t{1} << 16;

  /// Finds the groups in `step`, which must outlive it and change by visit() alone from now on.
  explicit ElementwiseFusion(StepGraph& step, PassDevices devices = {}, ElementwiseGroups groups = {});
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  struct Group {
    std::vector<const Node*> members;  // the root first, then its inputs before theirs
    int functions = 0;                 // of all members
    std::vector<Output> inputs;        // what members read, of which some may be members
  };
  bool fusable(const Node& node) const;
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
  const OpDef* add_n_ = nullptr;
  std::unordered_set<const OpDef*> ops_, quick_;
  std::vector<Group> groups_;
  std::vector<int32_t> group_of_;           // by id of a root; else -1
  std::vector<int32_t> readers_;            // by id: kNobody, kOthers, a group, or kFirstSet - an index in sets_
  std::vector<std::vector<int32_t>> sets_;  // several groups
};

}  // namespace troupe
