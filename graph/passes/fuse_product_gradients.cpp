// SPDX-License-Identifier: Apache-2.0
// A fused node comes in place of the first of its parts; all that it reads is before that.
#include "graph/passes/fuse_product_gradients.h"

#include <algorithm>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

bool transposes(const Node& product, const char* attr) { return product.attrs().get_or<bool>(attr, false); }

/// Whether the last dimension of both is known to be the same.
bool same_columns(const PartialShape& a, const PartialShape& b) {
  const auto last = [](const PartialShape& s) { return s.has_rank() && s.rank() > 0 ? s[s.rank() - 1] : -1; };
  return last(a) >= 0 && last(a) == last(b);
}

}  // namespace

ProductGradientFusion::ProductGradientFusion(StepGraph& step, const PassDevices& devices)
    : step_(step), readers_(step), places_(static_cast<size_t>(step.ids())), taken_(places_.size()) {
  if (!devices.on_gpu) return;
  const auto& nodes = step.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    places_[static_cast<size_t>(nodes[i]->id())] = i;
    if (nodes[i]->op().name() == "BiasAddGrad" && data_format(*nodes[i]) == "NHWC")
      sums_.emplace(step.now(nodes[i]->inputs()[0]).node->id(), nodes[i]);
  }
  const bool all_live =
      std::ranges::all_of(nodes, [](const Node* n) { return n->op().control_flow() == ControlFlow::kNone; });
  find_activation_gradients(devices, all_live);
  if (all_live) find_pairs(devices);
}

bool ProductGradientFusion::is_free(const Node& node, const Node& beside) const {
  return !taken_[static_cast<size_t>(node.id())] && node.control_inputs().empty() && !step_.is_fed(node) &&
         same_place(node, beside);
}

void ProductGradientFusion::find_activation_gradients(const PassDevices& devices, bool all_live) {
  for (const Node* node : step_.nodes()) {
    const std::string& name = node->op().name();
    const char* const fused = name == "ReluGrad"               ? "_FusedMatMulReluGrad"
                              : name == "_GeluApproximateGrad" ? "_FusedMatMulGeluGrad"
                                                               : nullptr;
    if (!fused || !is_free(*node, *node)) continue;
    const auto goes_along = [&](const Node& n) { return readers_.one(n) && is_free(n, *node); };
    const Node *product = step_.now(node->inputs()[0]).node, *reshape = nullptr;
    if (product->op().name() == "Reshape" && goes_along(*product) &&
        (all_live || step_.constant(product->inputs()[1]))) {
      reshape = product;
      product = step_.now(reshape->inputs()[0]).node;
    }
    if (product->op().name() != "MatMul" || !goes_along(*product)) continue;
    if (!devices.on_gpu(*node) || !devices.serves(*node, fused)) continue;
    ActivationGradient found{fused, product, nullptr};
    if (!reshape || same_columns(reshape->shape(0), product->shape(0))) {
      const auto [begin, end] = sums_.equal_range(node->id());
      for (auto at = begin; at != end && !found.sums; ++at)
        if (is_free(*at->second, *node)) found.sums = at->second;
    }
    for (const Node* part : {node, product, reshape, found.sums})
      if (part) taken_[static_cast<size_t>(part->id())] = true;
    gradients_.emplace(node->id(), found);
  }
}

void ProductGradientFusion::find_pairs(const PassDevices& devices) {
  for (const Node* node : step_.nodes()) {
    if (node->op().name() != "MatMul" || !is_free(*node, *node)) continue;
    if (!devices.on_gpu(*node) || !devices.serves(*node, "_FusedMatMulBiasAddGrad")) continue;
    for (const size_t i : {0, 1}) {
      if (transposes(*node, i == 0 ? "transpose_a" : "transpose_b") != (i == 0)) continue;
      const Output d = step_.now(node->inputs()[i]), other = step_.now(node->inputs()[1 - i]);
      const auto [begin, end] = sums_.equal_range(d.node->id());
      const auto sums = std::find_if(begin, end, [&](const auto& entry) {
        const Node& n = *entry.second;
        return step_.now(n.inputs()[0]) == d && is_free(n, *node) &&
               places_[static_cast<size_t>(other.node->id())] < places_[static_cast<size_t>(n.id())];
      });
      if (sums == end) continue;
      const Pair pair{node, sums->second, i == 0 ? "a" : "b"};
      for (const Node* part : {pair.product, pair.sums}) taken_[static_cast<size_t>(part->id())] = true;
      const bool sums_first =
          places_[static_cast<size_t>(pair.sums->id())] < places_[static_cast<size_t>(pair.product->id())];
      pairs_.emplace((sums_first ? pair.sums : pair.product)->id(), pair);
      break;
    }
  }
}

bool ProductGradientFusion::visit(const Node& node) {
  if (const auto at = second_.find(node.id()); at != second_.end()) {
    step_.replace(node, {&at->second, 1});
    return true;
  }
  if (const auto at = gradients_.find(node.id()); at != gradients_.end()) return fuse_activation(node, at->second);
  if (const auto at = pairs_.find(node.id()); at != pairs_.end()) return fuse_pair(node, at->second);
  return false;
}

bool ProductGradientFusion::fuse_activation(const Node& gradient, const ActivationGradient& parts) {
  const auto& factors = parts.product->inputs();
  const Output made = step_.add_like(gradient, parts.fused, {factors[0], factors[1], gradient.inputs()[1]},
                                     {{"transpose_a", transposes(*parts.product, "transpose_a")},
                                      {"transpose_b", transposes(*parts.product, "transpose_b")},
                                      {"num_sums", static_cast<int64_t>(parts.sums != nullptr)}});
  if (!made) return false;
  if (parts.sums) second_.emplace(parts.sums->id(), Output{made.node, 1});
  step_.replace(gradient, {&made, 1});
  return true;
}

bool ProductGradientFusion::fuse_pair(const Node& first, const Pair& pair) {
  const Output made = step_.add_like(*pair.product, "_FusedMatMulBiasAddGrad", pair.product->inputs(),
                                     {{"transpose_a", transposes(*pair.product, "transpose_a")},
                                      {"transpose_b", transposes(*pair.product, "transpose_b")},
                                      {"summed", std::string(pair.of)}});
  if (!made) return false;
  const Output sums{made.node, 1};
  const bool sums_first = &first == pair.sums;
  second_.emplace((sums_first ? pair.product : pair.sums)->id(), sums_first ? made : sums);
  step_.replace(first, {sums_first ? &sums : &made, 1});
  return true;
}

}  // namespace troupe
