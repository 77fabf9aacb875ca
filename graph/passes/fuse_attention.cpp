// SPDX-License-Identifier: Apache-2.0
// Looks up from the product with the values: softmax, masks, what is added, the factor, the product with the keys.
#include "graph/passes/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

/// Three times four letters.
struct Equation {
  std::string a, b, out;

  static std::optional<Equation> of(const Node& einsum) {
    std::string text = einsum.attrs().get_or("equation", std::string());
    std::erase(text, ' ');
    if (text.size() != 15 || text[4] != ',' || text.substr(9, 2) != "->") return {};
    Equation e{text.substr(0, 4), text.substr(5, 4), text.substr(11)};
    for (const std::string& part : {e.a, e.b, e.out})
      for (size_t i = 0; i < part.size(); ++i)
        if (part[i] == '.' || part.find(part[i]) != i) return {};
    return e;
  }
};

/// How a tensor lies whose letters are `letters`: 'h' as [batch, heads, time, size], 't' as [batch, time, heads, size];
/// 0: otherwise.
char layout_of(std::string_view letters, char batch, char head, char time, char size) {
  if (letters[0] != batch || letters[3] != size) return 0;
  if (letters[1] == head && letters[2] == time) return 'h';
  return letters[1] == time && letters[2] == head ? 't' : 0;
}

/// A product of heads: which of its inputs are the two factors, and how these and the result lie.
struct HeadProduct {
  size_t left = 0, right = 1;
  char left_layout = 'h', right_layout = 'h', layout = 'h';
  bool broadcasts = false;  // batches and heads
};

bool is_batch_product(const Node& node, bool transposed) {
  const std::string& op = node.op().name();
  return (op == "BatchMatMulV2" || op == "BatchMatMul") && !node.attrs().get_or("adj_x", false) &&
         node.attrs().get_or("adj_y", false) == transposed && node.dtype(0) == DType::kFloat32;
}

bool broadcasts(const Node& product) { return product.op().name() == "BatchMatMulV2"; }

std::optional<Equation> equation_of(const Node& node) {
  if (node.op().name() != "Einsum" || node.inputs().size() != 2 || node.dtype(0) != DType::kFloat32) return {};
  return Equation::of(node);
}

/// Scores [batch, heads, queries, keys] of queries and keys.
std::optional<HeadProduct> scores_of(const Node& node) {
  if (is_batch_product(node, true)) return HeadProduct{.broadcasts = broadcasts(node)};
  const auto e = equation_of(node);
  if (!e) return {};
  const char batch = e->out[0], head = e->out[1], query = e->out[2], key = e->out[3];
  for (const bool swapped : {false, true}) {
    const std::string &q = swapped ? e->b : e->a, &k = swapped ? e->a : e->b;
    const char size = q[3];
    if (e->out.find(size) != std::string::npos) continue;
    const char of_q = layout_of(q, batch, head, query, size), of_k = layout_of(k, batch, head, key, size);
    if (of_q && of_k) return HeadProduct{swapped ? 1U : 0U, swapped ? 0U : 1U, of_q, of_k};
  }
  return {};
}

/// Values by weights [batch, heads, queries, keys].
std::optional<HeadProduct> weighting_of(const Node& node) {
  if (is_batch_product(node, false)) return HeadProduct{.broadcasts = broadcasts(node)};
  const auto e = equation_of(node);
  if (!e) return {};
  for (const bool swapped : {false, true}) {
    const std::string &w = swapped ? e->b : e->a, &v = swapped ? e->a : e->b;
    const char size = v[3];
    if (w.find(size) != std::string::npos) continue;
    const char of_v = layout_of(v, w[0], w[1], w[3], size), of_y = layout_of(e->out, w[0], w[1], w[2], size);
    if (of_v && of_y) return HeadProduct{swapped ? 1U : 0U, swapped ? 0U : 1U, 'h', of_v, of_y};
  }
  return {};
}

/// Whether `value` is a bool as a number, 0 or 1, perhaps of another shape.
bool is_of_bool(const StepGraph& step, const Output& value) {
  const Node& node = *value.node;
  if (node.op().name() == "Reshape") return is_of_bool(step, step.now(node.inputs()[0]));
  return node.op().name() == "Cast" && node.inputs()[0].dtype() == DType::kBool;
}

char other(char layout) { return layout == 'h' ? 't' : 'h'; }

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

const Node* AttentionFusion::find_blend(const Node& difference, const Node& last, Parts& parts) const {
  const Node *kept = before(difference.inputs()[0], last), *hidden = before(difference.inputs()[1], last);
  if (!kept || !hidden || kept->op().name() != "Mul" || hidden->op().name() != "Mul") return nullptr;
  for (const size_t i : {0, 1}) {
    const auto number = float_number(step_, hidden->inputs()[i]);
    const Node* rest = number ? before(hidden->inputs()[1 - i], last) : nullptr;
    if (!rest || rest->op().name() != "Sub" || float_number(step_, rest->inputs()[0]) != 1.0f) continue;
    const Output mask = step_.now(rest->inputs()[1]);
    for (const size_t j : {0, 1}) {
      if (step_.now(kept->inputs()[j]) != mask || !is_of_bool(step_, mask)) continue;
      parts.hidden = -*number;
      parts.masks.push_back(mask);
      return before(kept->inputs()[1 - j], last);
    }
  }
  return nullptr;
}

bool AttentionFusion::find_scores(Output o, const Node& last, Parts& parts) const {
  const Node* node = before(o, last);
  // A number added to all scores changes no weight.
  while (node && (node->op().name() == "AddV2" || node->op().name() == "Add")) {
    const auto is_finite = [&](size_t i) {
      const auto number = float_number(step_, node->inputs()[i]);
      return number && std::isfinite(*number);
    };
    if (!is_finite(0) && !is_finite(1)) break;
    node = before(node->inputs()[is_finite(0) ? 1 : 0], last);
  }
  while (node && node->op().name() == "SelectV2") {
    const auto hidden = float_number(step_, node->inputs()[2]);
    if (!hidden || (!parts.masks.empty() && *hidden != parts.hidden)) return false;
    parts.hidden = *hidden;
    parts.masks.push_back(step_.now(node->inputs()[0]));
    node = before(node->inputs()[1], last);
  }
  if (node && node->op().name() == "Sub" && parts.masks.empty())
    if (const Node* kept = find_blend(*node, last, parts)) node = kept;
  const bool difference = node && node->op().name() == "Sub";
  if (difference || (node && (node->op().name() == "AddV2" || node->op().name() == "Add"))) {
    const Node* sum = node;
    node = nullptr;
    for (const size_t i : {0, 1}) {
      if (difference && i == 1) break;
      const Node* side = before(sum->inputs()[i], last);
      if (!side) continue;
      const std::string& op = side->op().name();
      if (!scores_of(*side) && op != "Mul" && op != "RealDiv" && op != "Div") continue;
      node = side;
      parts.added = step_.now(sum->inputs()[1 - i]);
      parts.subtracted = difference;
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
  const auto scores = node ? scores_of(*node) : std::nullopt;
  if (!scores) return false;
  parts.queries = step_.now(node->inputs()[scores->left]);
  parts.keys = step_.now(node->inputs()[scores->right]);
  parts.layouts[0] = scores->left_layout;
  parts.layouts[1] = scores->right_layout;
  return scores->broadcasts == parts.broadcasts;
}

std::optional<AttentionFusion::Parts> AttentionFusion::find(const Node& product, const Node& last) const {
  const auto weighting = weighting_of(product);
  if (!weighting || !is_free(product)) return {};
  const Node* softmax = before(product.inputs()[weighting->left], last);
  if (!softmax || softmax->op().name() != "Softmax") return {};
  Parts parts;
  parts.values = step_.now(product.inputs()[weighting->right]);
  parts.layouts[2] = weighting->right_layout;
  parts.layouts[3] = weighting->layout;
  parts.broadcasts = weighting->broadcasts;
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
      parts.layouts[i] = other(parts.layouts[i]);
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
    if (swapped) parts->layouts[3] = other(parts->layouts[3]);
    taken[static_cast<size_t>(product->id())] = true;
    found_.emplace(last.id(), std::move(*parts));
  }
}

Output AttentionFusion::as_bool(const Output& mask, const Node& node) {
  if (mask.dtype() == DType::kBool) return mask;
  const Output of = step_.now(mask.node->inputs()[0]);
  if (mask.node->op().name() == "Cast") return of;
  const Output inner = as_bool(of, node);
  return inner ? step_.add_like(node, "Reshape", {inner, mask.node->inputs()[1]}) : Output{};
}

bool AttentionFusion::visit(const Node& node) {
  const auto at = found_.find(node.id());
  if (at == found_.end()) return false;
  const Parts& parts = at->second;
  std::vector<Output> inputs = {parts.queries, parts.keys, parts.values};
  if (parts.added) inputs.push_back(parts.subtracted ? step_.add_like(node, "Neg", {parts.added}) : parts.added);
  if (!inputs.back()) return false;
  Output mask;
  for (const Output& of : parts.masks) {
    const Output next = as_bool(of, node);
    if (!next) return false;
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
  attrs.set("broadcasts", parts.broadcasts);
  const Output fused = step_.add_like(node, "_FusedAttention", std::move(inputs), std::move(attrs));
  if (!fused) return false;
  step_.replace(node, {&fused, 1});
  return true;
}

}  // namespace troupe
