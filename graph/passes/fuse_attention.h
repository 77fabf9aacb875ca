// SPDX-License-Identifier: Apache-2.0
// Fusing of the nodes of softmax attention.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/passes/readers.h"

namespace troupe {

/// Puts _FusedAttention in place of BatchMatMulV2(Softmax(scores), values) of four dimensions of float32 on CPUs, where
/// scores are BatchMatMulV2(queries, keys) with the keys transposed, in this order perhaps divided or multiplied by a
/// constant, with something added or subtracted, where masks are false replaced by a constant (s mask - c (1 - mask)
/// counts, with a mask of bools as numbers), and with numbers added. Either product may be an Einsum that amounts to
/// it, which broadcasts as little as BatchMatMul: then both do. Transpositions of queries, keys, values and the result
/// between [batch, heads, time, size] and [batch, time, heads, size] go into it too. Left alone: nodes of which what is
/// in between has another reader, is fetched or fed, and nodes with control inputs.
class AttentionFusion {
 public:
  /// Finds what is to be fused in `step`, which must outlive it and change by visit() alone from now on.
  AttentionFusion(StepGraph& step, const PassDevices& devices);
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);
  /// Whether there may be one.
  static bool may_apply(const StepGraph& step);

 private:
  struct Parts {
    Output queries, keys, values;
    Output added = {};               // to the scores; none: empty
    bool subtracted = false;         // in place of that
    std::vector<Output> masks = {};  // all must be true, or 1
    float scale = 1, hidden = 0;
    std::string layouts = "hhhh";
    bool broadcasts = true;  // both products do, batches and heads
  };
  bool is_free(const Node& node) const { return node.control_inputs().empty() && !step_.is_fed(node); }
  /// The node of `o` if `last` may be made without it, which is read once.
  const Node* before(Output o, const Node& last) const;
  /// Whether `node` swaps the middle two of four dimensions.
  bool swaps_heads(const Node& node) const;
  /// The node of the scores s of which `difference` is s mask - c (1 - mask), with a mask of 0 and 1; sets mask and -c.
  const Node* find_blend(const Node& difference, const Node& last, Parts& parts) const;
  /// A mask as bools, by a new node before `node` if need be.
  Output as_bool(const Output& mask, const Node& node);
  bool find_scores(Output o, const Node& last, Parts& parts) const;
  std::optional<Parts> find(const Node& product, const Node& last) const;

  StepGraph& step_;
  const Readers readers_;
  std::unordered_map<int, Parts> found_;  // by id of the last node
};

}  // namespace troupe
