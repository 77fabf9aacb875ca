// SPDX-License-Identifier: Apache-2.0
// Counts of floating-point operations by op.
#include "cli/flops.h"

#include <set>

namespace troupe {
namespace {

using Names = std::set<std::string, std::less<>>;

double dim(const PartialShape& shape, int i) {
  if (!shape.has_rank() || i >= shape.rank() || i < -shape.rank()) return 1;
  return static_cast<double>(std::max<int64_t>(shape.dim(i), 1));
}

double input_elements(const Node& n, size_t i) {
  return i < n.inputs().size() ? elements_of(n.inputs()[i].shape()) : 0;
}

/// Of a filter [height, width, in, out]: the taps of one output element, over all `in` where the op sums over them.
double taps(const PartialShape& filter, bool depthwise) {
  return dim(filter, 0) * dim(filter, 1) * (depthwise ? 1 : dim(filter, 2));
}

double product_flops(const Node& n) {
  const bool batch = n.op().name() != "MatMul";
  const bool transposed = n.attrs().get_or<bool>(batch ? "adj_x" : "transpose_a", false);
  return 2 * elements_of(n.shape(0)) * dim(n.inputs()[0].shape(), transposed ? -2 : -1);
}

/// Convolutions forward and backward: 0 when `n` is none.
double convolution_flops(const Node& n) {
  const std::string& op = n.op().name();
  const bool depthwise = op.starts_with("DepthwiseConv2dNative");
  if (!depthwise && !op.starts_with("Conv2D")) return 0;
  if (op.ends_with("BackpropInput")) return 2 * input_elements(n, 2) * taps(n.inputs()[1].shape(), depthwise);
  if (op.ends_with("BackpropFilter")) return 2 * input_elements(n, 2) * taps(n.shape(0), depthwise);
  return 2 * elements_of(n.shape(0)) * taps(n.inputs()[1].shape(), depthwise);
}

double pool_flops(const Node& n) {
  double window = 1;
  if (const auto* sizes = n.attrs().get<std::vector<int64_t>>("ksize"))
    for (const int64_t size : *sizes) window *= static_cast<double>(std::max<int64_t>(size, 1));
  return window *
         (n.op().name().ends_with("Grad") ? input_elements(n, n.inputs().size() - 1) : elements_of(n.shape(0)));
}

const Names kProducts = {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"};
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

}  // namespace

double elements_of(const PartialShape& shape) {
  double n = 1;
  if (shape.has_rank())
    for (const int64_t d : shape.dims()) n *= d < 0 ? 1 : static_cast<double>(d);
  return n;
}

double flops_of(const Node& n) {
  const std::string& op = n.op().name();
  if (kMoves.contains(op)) return 0;
  if (kProducts.contains(op)) return product_flops(n);
  if (const double flops = convolution_flops(n)) return flops;
  if (op.find("Pool") != std::string::npos) return pool_flops(n);
  if (kReductions.contains(op)) return input_elements(n, 0);
  double flops = 0;
  if (op.starts_with("ResourceApply") || op.starts_with("AssignAdd") || op.starts_with("AssignSub")) {
    for (const Output& in : n.inputs())
      if (is_floating(in.dtype())) flops = std::max(flops, elements_of(in.shape()));
    return flops;
  }
  for (int i = 0; i < n.num_outputs(); ++i)
    if (is_floating(n.dtype(i)) || n.dtype(i) == DType::kComplex64) flops = std::max(flops, elements_of(n.shape(i)));
  return flops;
}

}  // namespace troupe
