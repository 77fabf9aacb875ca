// SPDX-License-Identifier: Apache-2.0
// Which pairs of convolutions become one node.
#include "graph/passes/fuse_pointwise_depthwise.h"

#include <algorithm>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

using Integers = std::vector<int64_t>;
using Names = std::vector<std::string>;

bool all_ones(const Node& node, const char* attr) {
  const auto* values = node.attrs().get<Integers>(attr);
  return !values || std::ranges::all_of(*values, [](int64_t v) { return v == 1; });
}

/// Whether a _BlockedConv2D that may be one of the two.
bool is_half(const Node& node, bool depthwise) {
  if (node.op().name() != "_BlockedConv2D" || node.attrs().get_or("depthwise", false) != depthwise ||
      !node.attrs().get_or("blocked", true) || !node.control_inputs().empty() || !all_ones(node, "dilations"))
    return false;
  const Names ops = node.attrs().get_or("fused_ops", Names());
  return std::ranges::all_of(
      ops, [](const std::string& op) { return op == "BiasAdd" || op == "Relu" || op == "Relu6" || op == "Swish"; });
}

}  // namespace

bool PointwiseDepthwiseFusion::visit(const Node& node) {
  if (!is_half(node, true) || step_.is_fed(node)) return false;
  const auto* strides = node.attrs().get<Integers>("strides");
  const Output image = step_.now(node.inputs()[0]);
  const Node& before = *image.node;
  if (!strides || strides->size() != 4 || (*strides)[2] > 2 || !is_half(before, false) || step_.is_fed(before) ||
      !readers_.one(before) || !same_place(node, before))
    return false;
  const PartialShape filter = step_.shape(before.inputs()[1]);
  if (!filter.has_rank() || filter.rank() != 4 || filter[0] != 1 || filter[1] != 1 || filter[2] <= 0 ||
      filter[3] <= 0 || !all_ones(before, "strides") ||
      before.attrs().get_or<std::string>("padding", "VALID") == "EXPLICIT" ||
      before.attrs().get_or<int64_t>("channels", 0) != filter[2])
    return false;
  std::vector<Output> inputs = {before.inputs()[0], before.inputs()[1], node.inputs()[1]};
  for (const Node* half : {&before, &node})
    inputs.insert(inputs.end(), half->inputs().begin() + 2, half->inputs().end());
  Attrs attrs{{"channels", filter[2]},
              {"middle", filter[3]},
              {"num_args", static_cast<int64_t>(inputs.size()) - 3},
              {"pointwise_ops", before.attrs().get_or("fused_ops", Names())},
              {"depthwise_ops", node.attrs().get_or("fused_ops", Names())}};
  for (const char* name : {"strides", "padding", "explicit_paddings"})
    if (const AttrValue* value = node.attrs().find(name)) attrs.set(name, *value);
  const Output by = step_.add_like(node, "_BlockedPointwiseDepthwise", std::move(inputs), std::move(attrs));
  if (!by) return false;
  step_.replace(node, {&by, 1});
  return true;
}

}  // namespace troupe
