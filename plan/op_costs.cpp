// SPDX-License-Identifier: Apache-2.0
// Counts of floating-point operations and bytes by op.
#include "plan/op_costs.h"

#include <set>
#include <string_view>

namespace troupe {
namespace {

using Names = std::set<std::string, std::less<>>;

double dim(const PartialShape& shape, int i) {
  if (!shape.has_rank() || i >= shape.rank() || i < -shape.rank()) return 1;
  return static_cast<double>(std::max<int64_t>(shape.dim(i), 1));
}

double input_elements(const NodeShapes& s, size_t i) { return i < s.inputs.size() ? elements_of(s.inputs[i]) : 0; }

/// Of a filter [height, width, in, out]: the taps of one output element, over all `in` where the op sums over them.
double taps(const PartialShape& filter, bool depthwise) {
  return dim(filter, 0) * dim(filter, 1) * (depthwise ? 1 : dim(filter, 2));
}

double product_flops(const Node& n, const NodeShapes& s) {
  const bool batch = n.op().name().starts_with("Batch");
  const bool transposed = n.attrs().get_or<bool>(batch ? "adj_x" : "transpose_a", false);
  return 2 * elements_of(s.outputs[0]) * dim(s.inputs[0], transposed ? -2 : -1);
}

/// Convolutions forward and backward: 0 when `n` is none.
double convolution_flops(const Node& n, const NodeShapes& s) {
  std::string_view op = n.op().name();
  for (const std::string_view form : {"_Fused", "_Blocked"})
    if (op.starts_with(form)) op.remove_prefix(form.size());
  const bool depthwise = op.starts_with("DepthwiseConv2dNative") || n.attrs().get_or<bool>("depthwise", false);
  if (!depthwise && !op.starts_with("Conv2D")) return 0;
  if (op.ends_with("BackpropInput")) return 2 * input_elements(s, 2) * taps(s.inputs[1], depthwise);
  if (op.ends_with("BackpropFilter")) return 2 * input_elements(s, 2) * taps(s.outputs[0], depthwise);
  return 2 * elements_of(s.outputs[0]) * taps(s.inputs[1], depthwise);
}

/// The products of each query with the keys, and of its weights with the values.
double attention_flops(const Node& n, const NodeShapes& s) {
  const auto layouts = n.attrs().get_or<std::string>("layouts", "hhhh");
  const double keys = dim(s.inputs[1], layouts[1] == 'h' ? -2 : -3);
  return 2 * keys * (input_elements(s, 0) + elements_of(s.outputs[0]));
}

/// The products of [x, h] of every step with the weights [inputs + units, 4 * units]; backward there are two as large,
/// by the weights and by [x, h].
double lstm_flops(const Node& n, const NodeShapes& s) {
  const double steps = dim(s.inputs[1], 0) * dim(s.inputs[1], 1);
  const bool backward = n.op().name().starts_with("BlockLSTMGrad");
  return (backward ? 4 : 2) * steps * elements_of(s.inputs[4]);
}

double pool_flops(const Node& n, const NodeShapes& s) {
  double window = 1;
  if (const auto* sizes = n.attrs().get<std::vector<int64_t>>("ksize"))
    for (const int64_t size : *sizes) window *= static_cast<double>(std::max<int64_t>(size, 1));
  return window *
         (n.op().name().ends_with("Grad") ? input_elements(s, s.inputs.size() - 1) : elements_of(s.outputs[0]));
}

const Names kProducts = {"MatMul",
                         "BatchMatMul",
                         "BatchMatMulV2",
                         "BatchMatMulV3",
                         "_FusedMatMul",
                         "_FusedMatMulBiasAddGrad",
                         "_FusedMatMulReluGrad"};
const Names kReductions = {
    "All",        "Any",         "ArgMax",     "ArgMin",     "BiasAddGrad", "EuclideanNorm",
    "L2Loss",     "Max",         "Mean",       "Min",        "Prod",        "Sum",
    "SegmentMax", "SegmentMean", "SegmentSum", "SegmentMin", "SegmentProd", "UnsortedSegmentSum"};
const Names kMoves = {"Bitcast",
                      "BroadcastTo",
                      "Cast",
                      "CheckNumerics",
                      "Concat",
                      "ConcatV2",
                      "Const",
                      "DeepCopy",
                      "DynamicPartition",
                      "DynamicStitch",
                      "EnsureShape",
                      "Enter",
                      "Exit",
                      "ExpandDims",
                      "Fill",
                      "Gather",
                      "GatherNd",
                      "GatherV2",
                      "Identity",
                      "IdentityN",
                      "IteratorGetNext",
                      "Merge",
                      "MirrorPad",
                      "NextIteration",
                      "OneHot",
                      "OnesLike",
                      "Pack",
                      "Pad",
                      "PadV2",
                      "ParallelDynamicStitch",
                      "Placeholder",
                      "PlaceholderWithDefault",
                      "PreventGradient",
                      "QueueDequeueManyV2",
                      "QueueDequeueUpToV2",
                      "QueueDequeueV2",
                      "RandomShuffle",
                      "ReadVariableOp",
                      "Reshape",
                      "ResourceGather",
                      "ResourceGatherNd",
                      "RestoreV2",
                      "Reverse",
                      "ReverseSequence",
                      "ReverseV2",
                      "Roll",
                      "ScatterNd",
                      "Select",
                      "SelectV2",
                      "Slice",
                      "Snapshot",
                      "SpaceToBatchND",
                      "BatchToSpaceND",
                      "SpaceToDepth",
                      "DepthToSpace",
                      "Split",
                      "SplitV",
                      "Squeeze",
                      "StopGradient",
                      "StridedSlice",
                      "StridedSliceGrad",
                      "Switch",
                      "TensorArrayReadV3",
                      "Tile",
                      "Transpose",
                      "Unpack",
                      "Where",
                      "ZerosLike"};

/// Nothing is moved: outputs share memory with inputs, or are known beforehand.
const Names kHandOn = {
    "Const",           "EnsureShape",    "Identity",   "IdentityN",   "NoOp",   "Placeholder", "PlaceholderWithDefault",
    "PreventGradient", "ReadVariableOp", "Reshape",    "Shape",       "ShapeN", "Size",        "Rank",
    "Snapshot",        "Squeeze",        "ExpandDims", "StopGradient"};

/// They take some elements of input 0.
const Names kPicks = {"Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd", "Slice", "StridedSlice"};

bool is_handle(const Node& n) { return n.inputs().empty() && n.num_outputs() == 1 && n.dtype(0) == DType::kResource; }

}  // namespace

double elements_of(const PartialShape& shape) {
  double n = 1;
  if (shape.has_rank())
    for (const int64_t d : shape.dims()) n *= d < 0 ? 1 : static_cast<double>(d);
  return n;
}

double bytes_of(DType dtype, const PartialShape& shape) {
  return elements_of(shape) * static_cast<double>(size_of(dtype));
}

double flops_of(const Node& n, const NodeShapes& s) {
  const std::string& op = n.op().name();
  if (kMoves.contains(op)) return 0;
  if (kProducts.contains(op)) return product_flops(n, s);
  if (const double flops = convolution_flops(n, s)) return flops;
  if (op == "_FusedAttention") return attention_flops(n, s);
  if (op.starts_with("BlockLSTM")) return lstm_flops(n, s);
  if (op.find("Pool") != std::string::npos) return pool_flops(n, s);
  if (kReductions.contains(op)) return input_elements(s, 0);
  double flops = 0;
  if (op.starts_with("ResourceApply") || op.starts_with("AssignAdd") || op.starts_with("AssignSub")) {
    for (size_t i = 0; i < s.inputs.size(); ++i)
      if (is_floating(n.inputs()[i].dtype())) flops = std::max(flops, elements_of(s.inputs[i]));
    return flops;
  }
  for (int i = 0; i < n.num_outputs(); ++i)
    if (is_floating(n.dtype(i)) || n.dtype(i) == DType::kComplex64)
      flops = std::max(flops, elements_of(s.outputs[static_cast<size_t>(i)]));
  return flops;
}

NodeCost cost_of(const Node& n, const NodeShapes& s) {
  NodeCost cost;
  if (n.op().control_flow() != ControlFlow::kNone || kHandOn.contains(n.op().name()) || is_handle(n)) return cost;
  cost.flops = flops_of(n, s);
  // Of a table as much is read as is put out.
  const bool picks = kPicks.contains(n.op().name());
  if (picks) cost.bytes += bytes_of(n.dtype(0), s.outputs[0]);
  for (size_t i = picks ? 1 : 0; i < s.inputs.size(); ++i) cost.bytes += bytes_of(n.inputs()[i].dtype(), s.inputs[i]);
  for (size_t i = 0; i < s.outputs.size(); ++i) cost.bytes += bytes_of(n.dtype(static_cast<int>(i)), s.outputs[i]);
  return cost;
}

namespace {

/// f(shapes) with those that were inferred.
template <class F> auto with_inferred(const Node& n, F&& f) {
  std::vector<PartialShape> inputs, outputs;
  for (const Output& in : n.inputs()) inputs.push_back(in.shape());
  for (int i = 0; i < n.num_outputs(); ++i) outputs.push_back(n.shape(i));
  return f(NodeShapes{inputs, outputs});
}

}  // namespace

double flops_of(const Node& node) {
  return with_inferred(node, [&](const NodeShapes& s) { return flops_of(node, s); });
}

NodeCost cost_of(const Node& node) {
  return with_inferred(node, [&](const NodeShapes& s) { return cost_of(node, s); });
}

bool updates_variable(const Node& node) {
  const std::string& op = node.op().name();
  return op.starts_with("ResourceApply") || op.starts_with("ResourceSparseApply") ||
         op.starts_with("ResourceScatter") || op == "AssignAddVariableOp" || op == "AssignSubVariableOp";
}

double estimated_ns(const Node& node, const DeviceRates& rates) {
  static const Names kNone = {"Const", "NoOp", "Placeholder"};
  if (node.op().control_flow() != ControlFlow::kNone || kNone.contains(node.op().name())) return 0;
  const bool asks = !node.inputs().empty() && node.inputs()[0].dtype() == DType::kResource;
  if (asks && !updates_variable(node)) return 0;
  return cost_of(node).time_ns(rates);
}

}  // namespace troupe
