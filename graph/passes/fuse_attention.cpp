// SPDX-License-Identifier: Apache-2.0
// Looks up from the product with the values: softmax, masks, what is added, the factor, the product with the keys.
#include "graph/passes/fuse_attention.h"

#include <algorithm>
#include <optional>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

bool is_batch_product(const Node& node, bool transposed) {
  const std::string& op = node.op().name();
  return (op == "BatchMatMulV2" || op == "BatchMatMul") && !node.attrs().get_or("adj_x", false) &&
         node.attrs().get_or("adj_y", false) == transposed && node.dtype(0) == DType::kFloat32;
}

bool has_rank_4(const StepGraph& step, const Output& o) {
  const PartialShape shape = step.shape(o);
  return shape.has_rank() && shape.rank() == 4;
}

std::optional<float> float_number(const StepGraph& step, const Output& o) {
  const Tensor* value = step.constant(o);
  if (!value || value->dtype() != DType::kFloat32 || value->elements() != 1 || value->rank() > 4) return {};
  return value->data<float>()[0];
}

}  // namespace

const Node* AttentionFusion::before(Output o, const Node& last) const {
  const Node& node = *step_.now(o).node;
  return readers_.reads(node) == 1 && is_free(node) && same_place(node, last) ? &node : nullptr;
}

bool AttentionFusion::swaps_heads(const Node& node) const {
  if (node.op().name() != "Transpose" || !is_free(node)) return false;
  const Tensor* perm = step_.constant(node.inputs()[1]);
  if (!perm || perm->elements() != 4) return false;
  const auto is = [&](auto values) { return values[0] == 0 && values[1] == 2 && values[2] == 1 && values[3] == 3; };
  return perm->dtype() == DType::kInt64 ? is(perm->data<int64_t>())
                                        : perm->dtype() == DType::kInt32 && is(perm->data<int32_t>());
}

bool AttentionFusion::find_scores(Output o, const Node& last, Parts& parts) const {
  const PartialShape shape = step_.shape(o);
  const Node* node = before(o, last);
  while (node && node->op().name() == "SelectV2") {
    const auto hidden = float_number(step_, node->inputs()[2]);
    if (!hidden || (!parts.masks.empty() && *hidden != parts.hidden)) return false;
    parts.hidden = *hidden;
    parts.masks.push_back(step_.now(node->inputs()[0]));
    node = before(node->inputs()[1], last);
  }
  if (node && (node->op().name() == "AddV2" || node->op().name() == "Add")) {
    const Node* sum = node;
    node = nullptr;
    for (const size_t i : {0, 1}) {
      const Node* side = before(sum->inputs()[i], last);
      if (!side) continue;
      const std::string& op = side->op().name();
      if (!is_batch_product(*side, true) && op != "Mul" && op != "RealDiv" && op != "Div") continue;
      node = side;
      parts.added = step_.now(sum->inputs()[1 - i]);
      break;
    }
  }
  if (!node) return false;
  const std::string& op = node->op().name();
  if (op == "Mul" || op == "RealDiv" || op == "Div") {
    const bool product = op == "Mul";
    const size_t at = product && float_number(step_, node->inputs()[0]) ? 0 : 1;
    const auto number = float_number(step_, node->inputs()[at]);
    if (!number || (!product && *number == 0)) return false;
    parts.scale = product ? *number : 1 / *number;
    node = before(node->inputs()[1 - at], last);
  }
  if (!node || !is_batch_product(*node, true)) return false;
  // What was added or hid something must not have made more of them.
  const PartialShape scores = step_.shape(node->out());
  if (!shape.has_rank() || !scores.has_rank() || shape.rank() != 4 || scores.rank() != 4) return false;
  for (int i = 0; i < 4; ++i)
    if (scores[i] != shape[i] && scores[i] >= 0) return false;
  parts.queries = step_.now(node->inputs()[0]);
  parts.keys = step_.now(node->inputs()[1]);
  return true;
}

std::optional<AttentionFusion::Parts> AttentionFusion::find(const Node& product, const Node& last) const {
  if (!is_batch_product(product, false) || !is_free(product)) return {};
  const Node* softmax = before(product.inputs()[0], last);
  if (!softmax || softmax->op().name() != "Softmax") return {};
  Parts parts;
  parts.values = step_.now(product.inputs()[1]);
  if (!find_scores(softmax->inputs()[0], last, parts)) return {};
  const auto rank_up_to_4 = [&](const Output& o) {
    const PartialShape shape = step_.shape(o);
    return shape.has_rank() && shape.rank() <= 4;
  };
  if (parts.added && !rank_up_to_4(parts.added)) return {};
  if (!std::ranges::all_of(parts.masks, rank_up_to_4)) return {};
  size_t i = 0;
  for (Output* o : {&parts.queries, &parts.keys, &parts.values}) {
    if (!has_rank_4(step_, *o)) return {};
    if (swaps_heads(*o->node)) {
      *o = step_.now(o->node->inputs()[0]);
      parts.layouts[i] = 't';
    }
    ++i;
  }
  return parts;
}

bool AttentionFusion::may_apply(const StepGraph& step) {
  const OpDef *softmax = step.ops().find("Softmax"), *fused = step.ops().find("_FusedAttention");
  return fused && std::ranges::any_of(step.nodes(), [&](const Node* n) { return &n->op() == softmax; });
}

AttentionFusion::AttentionFusion(StepGraph& step, const PassDevices& devices) : step_(step), readers_(step) {
  const auto& nodes = step.nodes();
  std::vector<bool> taken(static_cast<size_t>(step.ids()));
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& last = *nodes[i];
    if (taken[static_cast<size_t>(last.id())] || !is_free(last) || (devices.on_gpu && devices.on_gpu(last))) continue;
    const Node* product = &last;
    const bool swapped = swaps_heads(last);
    if (swapped) product = before(last.inputs()[0], last);
    if (!product || last.num_outputs() != 1) continue;
    auto parts = find(*product, last);
    if (!parts || (devices.has_kernel && !devices.has_kernel(last, "_FusedAttention", {}))) continue;
    if (swapped) parts->layouts[3] = 't';
    taken[static_cast<size_t>(product->id())] = true;
    found_.emplace(last.id(), std::move(*parts));
  }
}

bool AttentionFusion::visit(const Node& node) {
  const auto at = found_.find(node.id());
  if (at == found_.end()) return false;
  const Parts& parts = at->second;
  std::vector<Output> inputs = {parts.queries, parts.keys, parts.values};
  if (parts.added) inputs.push_back(parts.added);
  Output mask;
  for (const Output& next : parts.masks) {
    mask = mask ? step_.add_like(node, "LogicalAnd", {mask, next}) : next;
    if (!mask) return false;
  }
  if (mask) inputs.push_back(mask);
  Attrs attrs;
  attrs.set("num_added", static_cast<int64_t>(static_cast<bool>(parts.added)));
  attrs.set("num_masks", static_cast<int64_t>(static_cast<bool>(mask)));
  attrs.set("scale", parts.scale);
  attrs.set("hidden", parts.hidden);
  attrs.set("layouts", parts.layouts);
  const Output fused = step_.add_like(node, "_FusedAttention", std::move(inputs), std::move(attrs));
  if (!fused) return false;
  step_.replace(node, {&fused, 1});
  return true;
}

}  // namespace troupe
