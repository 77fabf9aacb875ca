// SPDX-License-Identifier: Apache-2.0
// Which pairs of convolutions become one node.
#include "graph/passes/fuse_pointwise_depthwise.h"

#include <algorithm>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

using Integers = std::vector<int64_t>;
using Names = std::vector<std::string>;

constexpr int64_t kChannelsAtOnce = 16;  // ops/nn/block_rows.h
/// Of images that are not in blocks: floats between the two from which one node is faster whatever the activations.
/// Two are otherwise, unless there is a Swish, which the loops of one take half the time for.
constexpr double kLargeBetween = 2 << 20;

bool all_ones(const Node& node, const char* attr) {
  const auto* values = node.attrs().get<Integers>(attr);
  return !values || std::ranges::all_of(*values, [](int64_t v) { return v == 1; });
}

bool has_swish(const Node& node) {
  const Names ops = node.attrs().get_or("fused_ops", Names());
  return std::ranges::find(ops, "Swish") != ops.end();
}

bool fits_loops(const Node& node) {
  if (!node.control_inputs().empty() || !all_ones(node, "dilations")) return false;
  const Names ops = node.attrs().get_or("fused_ops", Names());
  return std::ranges::all_of(
      ops, [](const std::string& op) { return op == "BiasAdd" || op == "Relu" || op == "Relu6" || op == "Swish"; });
}

}  // namespace

bool PointwiseDepthwiseFusion::is_half(const Node& node, bool depthwise) const {
  if (!fits_loops(node) || step_.is_fed(node)) return false;
  if (images_ == Images::kBlocked)
    return node.op().name() == "_BlockedConv2D" && node.attrs().get_or("depthwise", false) == depthwise &&
           node.attrs().get_or("blocked", true);
  const std::string_view plain = depthwise ? "DepthwiseConv2dNative" : "Conv2D";
  std::string_view op = node.op().name();
  if (op.starts_with("_Fused")) op.remove_prefix(6);
  return op == plain && node.dtype(0) == DType::kFloat32 && data_format(node) == "NHWC" &&
         step_.constant(node.inputs()[1]) && !(devices_.on_gpu && devices_.on_gpu(node));
}

bool PointwiseDepthwiseFusion::fits(const Node& pointwise, const Node& depthwise, const PartialShape& filter) const {
  if (images_ == Images::kBlocked) return pointwise.attrs().get_or<int64_t>("channels", 0) == filter[2];
  const PartialShape in = step_.shape(pointwise.inputs()[0]), deep = step_.shape(depthwise.inputs()[1]);
  if (!in.has_rank() || in.rank() != 4 || in[3] != filter[2] || filter[3] % kChannelsAtOnce != 0 || !deep.has_rank() ||
      deep.rank() != 4 || deep[2] != filter[3] || deep[3] != 1)
    return false;
  if (has_swish(pointwise) || has_swish(depthwise)) return true;
  double between = static_cast<double>(filter[3]);
  for (const int i : {0, 1, 2}) between *= static_cast<double>(std::max<int64_t>(in[i], 1));
  return between >= kLargeBetween;
}

bool PointwiseDepthwiseFusion::visit(const Node& node) {
  if (!is_half(node, true)) return false;
  const auto* strides = node.attrs().get<Integers>("strides");
  const Output image = step_.now(node.inputs()[0]);
  const Node& before = *image.node;
  if (!strides || strides->size() != 4 || (*strides)[2] > 2 || !is_half(before, false) || !readers_.one(before) ||
      !same_place(node, before))
    return false;
  const PartialShape filter = step_.shape(before.inputs()[1]);
  if (!filter.has_rank() || filter.rank() != 4 || filter[0] != 1 || filter[1] != 1 || filter[2] <= 0 ||
      filter[3] <= 0 || !all_ones(before, "strides") ||
      before.attrs().get_or<std::string>("padding", "VALID") == "EXPLICIT" || !fits(before, node, filter))
    return false;
  std::vector<Output> inputs = {before.inputs()[0], before.inputs()[1], node.inputs()[1]};
  for (const Node* half : {&before, &node})
    inputs.insert(inputs.end(), half->inputs().begin() + 2, half->inputs().end());
  Attrs attrs{{"blocked", images_ == Images::kBlocked},
              {"channels", filter[2]},
              {"middle", filter[3]},
              {"num_args", static_cast<int64_t>(inputs.size()) - 3},
              {"pointwise_ops", before.attrs().get_or("fused_ops", Names())},
              {"depthwise_ops", node.attrs().get_or("fused_ops", Names())}};
  for (const char* name : {"strides", "padding", "explicit_paddings"})
    if (const AttrValue* value = node.attrs().find(name)) attrs.set(name, *value);
  const Output by = step_.add_like(node, "_PointwiseDepthwise", std::move(inputs), std::move(attrs));
  if (!by) return false;
  step_.replace(node, {&by, 1});
  return true;
}

}  // namespace troupe
