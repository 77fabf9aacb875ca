// SPDX-License-Identifier: Apache-2.0
// The order of passes, and their names.
#include "graph/passes/passes.h"

#include <algorithm>

#include "base/join.h"
#include "graph/passes/block_images.h"
#include "graph/passes/choose_layout.h"
#include "graph/passes/cse.h"
#include "graph/passes/drop_gates.h"
#include "graph/passes/fold_batch_norm.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_batch_norm.h"
#include "graph/passes/fuse_elementwise.h"
#include "graph/passes/fuse_epilogues.h"
#include "graph/passes/fuse_gelu.h"
#include "graph/passes/fuse_layer_norm.h"
#include "graph/passes/fuse_pointwise_depthwise.h"
#include "graph/passes/fuse_product_gradients.h"
#include "graph/passes/keep_at_host.h"
#include "graph/passes/open_batch_norm.h"
#include "graph/passes/plain_convolutions.h"
#include "graph/passes/plain_products.h"
#include "graph/passes/simplify.h"
#include "graph/passes/sum_products.h"

namespace troupe {
namespace {

bool merge(StepGraph& step, CommonSubexpressions& common, const Node& node) {
  const Node* same = common.find(node);
  if (!same) return false;
  std::vector<Output> by;
  for (int port = 0; port < same->num_outputs(); ++port) by.push_back({same, port});
  step.replace(node, by);
  return true;
}

/// One walk for all that look at a node and what its inputs have become: each finds what the others leave.
void rewrite(StepGraph& step, const GraphPasses& passes, const Evaluate& evaluate) {
  std::optional<ConstantFolding> folding;
  std::optional<Simplification> simplification;
  std::optional<CommonSubexpressions> common;
  if (passes.fold_constants) folding.emplace(step, evaluate);
  if (passes.simplify_arithmetic) simplification.emplace(step);
  if (passes.merge_common) common.emplace(step);
  if (!folding && !simplification && !common) return;
  step.sweep([&](const Node& node) {
    if (folding && folding->visit(node)) return;
    if (simplification && simplification->visit(node)) return;
    if (common) merge(step, *common, node);
  });
  step.drop_unneeded();
}

/// Whether there is a node of one of these ops: where there is none, a pass need not look.
bool has_any(const StepGraph& step, std::initializer_list<const char*> names) {
  std::vector<const OpDef*> ops;
  for (const char* name : names)
    if (const OpDef* op = step.ops().find(name)) ops.push_back(op);
  return std::ranges::any_of(step.nodes(),
                             [&](const Node* n) { return std::ranges::find(ops, &n->op()) != ops.end(); });
}

/// Whether nothing in the step computes gradients. StopGradient and its like are in models as they are exported.
bool is_inference(const StepGraph& step) {
  return std::ranges::none_of(step.nodes(), [](const Node* n) {
    const std::string_view op = n->op().name();
    if (op == "StopGradient" || op == "PreventGradient") return false;
    return op.find("Grad") != std::string_view::npos || op.find("Backprop") != std::string_view::npos;
  });
}

/// Whether convolutions of this processor are faster on images in blocks of channels.
bool likes_blocks() {
#if defined(TROUPE_ONEDNN) && defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

/// Whether it has loops for pairs of convolutions on images that are not in blocks (ops/nn/block_rows.h).
bool likes_pairs() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && !likes_blocks();
#else
  return false;
#endif
}

/// A walk of its own for each pass that must know all readers of a node.
template <class Pass, class... More> void fuse(StepGraph& step, const More&... more) {
  Pass pass(step, more...);
  step.sweep([&](const Node& node) { pass.visit(node); });
  step.drop_unneeded();
}

}  // namespace

Result<GraphPasses> GraphPasses::parse(std::string_view text) {
  if (text == "all") return all();
  if (text == "default") return GraphPasses();
  GraphPasses passes = none();
  if (text == "none") return passes;
  for (size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    const auto* pass = std::ranges::find(kGraphPasses, name, &GraphPass::name);
    if (pass == std::end(kGraphPasses)) {
      std::vector<std::string_view> names;
      for (const GraphPass& known : kGraphPasses) names.push_back(known.name);
      return invalid_argument("no graph pass '{}'; there are {}; or all, none, default", name, join(names, ", "));
    }
    passes.*pass->on = true;
  }
  return passes;
}

void run_general_passes(StepGraph& step, const GraphPasses& passes, const Evaluate& evaluate) {
  rewrite(step, passes, evaluate);
}

void run_device_passes(StepGraph& step, const GraphPasses& passes, const PassDevices& devices) {
  if (devices.at_host && HostLogic::may_apply(step)) fuse<HostLogic>(step, devices);
  if (passes.choose_layout && LayoutChoice::may_apply(step)) fuse<LayoutChoice>(step, devices);
  if (passes.plain_convolutions && has_any(step, {"Conv2D", "DepthwiseConv2dNative"}) &&
      has_any(step, {"Pad", "PadV2", "BatchToSpaceND", "Squeeze"}))
    fuse<PlainConvolutions>(step, devices);
  if (passes.sum_products && has_any(step, {"AddN"})) fuse<ProductSums>(step);
  if (passes.fold_batch_norm && has_any(step, {"Conv2D", "DepthwiseConv2dNative"}) &&
      has_any(step, {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "Mul", "AddV2", "Add"}))
    fuse<BatchNormFolding>(step);
  if (passes.fuse_batch_norm && devices.on_gpu && has_any(step, {"FusedBatchNormV3"}))
    fuse<BatchNormFusion>(step, devices);
  if (passes.fuse_inference && is_inference(step)) {
    if (AttentionFusion::may_apply(step)) fuse<AttentionFusion>(step, devices);
    if (LayerNormFusion::may_apply(step)) fuse<LayerNormFusion>(step, devices);
    if (has_any(step, {"BlockLSTM", "BlockLSTMV2"})) fuse<GateDropping>(step, devices);
    if (has_any(step, {"BatchMatMulV2"})) fuse<PlainProducts>(step, devices);
  }
  const bool gelus = passes.fuse_epilogues && devices.on_gpu && has_any(step, {"Tanh", "Erf", "Erfc"});
  if (gelus) fuse<GeluFusion>(step, devices, GeluFusion::Of::kGradient);
  if ((passes.fuse_epilogues || passes.fuse_inference) &&
      has_any(step, {"MatMul", "Conv2D", "DepthwiseConv2dNative"}) && (passes.fuse_epilogues || is_inference(step)))
    fuse<EpilogueFusion>(step, devices, !passes.fuse_epilogues);
  if (gelus) fuse<GeluFusion>(step, devices, GeluFusion::Of::kForward);
  if (passes.choose_layout && likes_blocks() && has_any(step, {"Conv2D", "_FusedConv2D"}) && is_inference(step)) {
    fuse<ImageBlocks>(step, devices);
    if (has_any(step, {"_BlockedConv2D"}))
      fuse<PointwiseDepthwiseFusion>(step, PointwiseDepthwiseFusion::Images::kBlocked);
  } else if (passes.fuse_inference && likes_pairs() && is_inference(step) &&
             has_any(step, {"DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative"})) {
    fuse<PointwiseDepthwiseFusion>(step, PointwiseDepthwiseFusion::Images::kPlain, devices);
  }
  if (passes.fuse_epilogues && devices.on_gpu && has_any(step, {"ReluGrad", "BiasAddGrad"}))
    fuse<ProductGradientFusion>(step, devices);
  const bool training = passes.fuse_training && !is_inference(step);
  if (training && has_any(step, {"FusedBatchNormV3"})) fuse<BatchNormOpening>(step, devices);
  if (passes.fuse_elementwise || training)
    fuse<ElementwiseFusion>(step, devices,
                            ElementwiseGroups{.cpus_only = !passes.fuse_elementwise, .compute_again = training});
}

bool asks_for_devices(const StepGraph& step, const GraphPasses& passes) {
  return passes.choose_layout || passes.plain_convolutions || passes.fuse_batch_norm || passes.fuse_inference ||
         passes.fuse_training || passes.fuse_epilogues || passes.fuse_elementwise || HostLogic::may_apply(step);
}

void run_passes(StepGraph& step, const GraphPasses& passes, const Evaluate& evaluate) {
  run_general_passes(step, passes, evaluate);
  run_device_passes(step, passes, {});
}

}  // namespace troupe
