// SPDX-License-Identifier: Apache-2.0
// A fused node comes in place of the norm, whose statistics others may read before Relu; so the side input must be
// there by then. That of a gradient comes in place of ReluGrad, whose inputs are all that it reads.
#include "graph/passes/fuse_batch_norm.h"

#include <algorithm>

#include "graph/passes/same_place.h"

namespace troupe {
namespace {

bool is_training(const Node& norm) { return norm.attrs().get_or<bool>("is_training", true); }

bool serves(const PassDevices& devices, const Node& norm, const char* op) {
  Attrs types;
  types.set("T", norm.dtype(0));
  types.set("U", norm.dtype(1));
  return devices.on_gpu(norm) && devices.has_kernel(norm, op, types);
}

}  // namespace

BatchNormFusion::BatchNormFusion(StepGraph& step, const PassDevices& devices)
    : step_(step), readers_(step), places_(static_cast<size_t>(step.ids())) {
  if (!devices.on_gpu || !devices.has_kernel) return;
  const auto& nodes = step.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    places_[static_cast<size_t>(nodes[i]->id())] = i;
    control_flow_ = control_flow_ || nodes[i]->op().control_flow() != ControlFlow::kNone;
  }
  for (const Node* node : nodes) {
    if (node->op().name() == "Relu") find_forward(*node, devices);
    else if (node->op().name() == "FusedBatchNormGradV3") find_backward(*node, devices);
  }
}

bool BatchNormFusion::is_free(const Node& node, const Node& beside) const {
  return node.control_inputs().empty() && !step_.is_fed(node) && same_place(node, beside);
}

bool BatchNormFusion::is_norm(Output output, const Node& beside, const PassDevices& devices) const {
  const Node& norm = *output.node;
  return output.port == 0 && norm.op().name() == "FusedBatchNormV3" && readers_.one_of_first_output(norm) &&
         is_free(norm, beside) && !forward_.contains(norm.id()) && serves(devices, norm, "_FusedBatchNormRelu");
}

void BatchNormFusion::find_forward(const Node& relu, const PassDevices& devices) {
  if (!is_free(relu, relu)) return;
  const Output before = step_.now(relu.inputs()[0]);
  const auto found = [&](Output norm, Output side) {
    forward_.emplace(norm.node->id(), Forward{norm.node, side});
    behind_.emplace(relu.id(), norm.node);
    if (side) behind_.emplace(before.node->id(), norm.node);
    if (is_training(*norm.node)) trained_.emplace(relu.id(), norm.node);
  };
  if (is_norm(before, relu, devices)) return found(before, {});
  const Node& sum = *before.node;
  if ((sum.op().name() != "AddV2" && sum.op().name() != "Add") || control_flow_ || !readers_.one(sum) ||
      !is_free(sum, relu))
    return;
  for (const size_t i : {0, 1}) {
    const Output norm = step_.now(sum.inputs()[i]), side = step_.now(sum.inputs()[1 - i]);
    if (!is_norm(norm, relu, devices) || side.node == norm.node) continue;
    if (places_[static_cast<size_t>(side.node->id())] > places_[static_cast<size_t>(norm.node->id())]) continue;
    const PartialShape a = step_.shape(norm), b = step_.shape(side);
    if (!a.fully_known() || !b.fully_known() || !(a == b)) continue;
    return found(norm, side);
  }
}

void BatchNormFusion::find_backward(const Node& gradient, const PassDevices& devices) {
  const auto input = [&](const Node& node, size_t i) { return step_.now(node.inputs()[i]); };
  const Node& relu = *input(gradient, 0).node;
  if (relu.op().name() != "ReluGrad" || backward_.contains(relu.id()) || readers_.reads(relu) == 0) return;
  const auto forward = trained_.find(input(relu, 1).node->id());
  if (forward == trained_.end()) return;
  const Node& norm = *forward->second;
  for (const auto& [at, port] : {std::pair<size_t, int>{3, 3}, {4, 4}, {5, 5}})
    if (input(gradient, at) != Output{&norm, port}) return;
  if (input(gradient, 1) != input(norm, 0) || input(gradient, 2) != input(norm, 1) || !is_training(gradient)) return;
  if (!is_free(relu, norm) || !is_free(gradient, norm) || data_format(gradient) != data_format(norm)) return;
  if (gradient.attrs().get_or("epsilon", 0.0001f) != norm.attrs().get_or("epsilon", 0.0001f)) return;
  if (!serves(devices, gradient, "_FusedBatchNormReluGrad")) return;
  backward_.emplace(relu.id(), Backward{&gradient, &norm, readers_.reads(relu) > 1});
}

bool BatchNormFusion::visit(const Node& node) {
  if (const auto at = forward_.find(node.id()); at != forward_.end()) return fuse_forward(node, at->second);
  if (const auto at = backward_.find(node.id()); at != backward_.end()) return fuse_backward(node, at->second);
  if (const auto at = behind_.find(node.id()); at != behind_.end()) {
    const auto fused = fused_.find(at->second->id());
    if (fused == fused_.end()) return false;
    const Output y{fused->second, 0};
    step_.replace(node, {&y, 1});
    return true;
  }
  const auto fused = fused_.find(node.id());
  if (fused == fused_.end()) return false;  // else: the gradient of a norm
  const auto empty = step_.add_constant(*Tensor::make(node.dtype(3), {0}), node, Output{fused->second, 0});
  if (!empty.ok()) return false;
  const Output by[] = {{fused->second, 0}, {fused->second, 1}, {fused->second, 2}, *empty, *empty};
  step_.replace(node, by);
  return true;
}

bool BatchNormFusion::fuse_forward(const Node& norm, const Forward& parts) {
  std::vector<Output> inputs = norm.inputs();
  if (parts.side) inputs.push_back(parts.side);
  Attrs attrs = norm.attrs();
  attrs.set("num_side_inputs", static_cast<int64_t>(parts.side ? 1 : 0));
  const Output made = step_.add_like(norm, "_FusedBatchNormRelu", std::move(inputs), std::move(attrs));
  if (!made) return false;
  fused_.emplace(norm.id(), made.node);
  std::vector<Output> by;
  for (int port = 0; port < norm.num_outputs(); ++port) by.push_back({made.node, port});
  step_.replace(norm, by);
  return true;
}

bool BatchNormFusion::fuse_backward(const Node& relu, const Backward& parts) {
  const Node& norm = *parts.norm;
  std::vector<Output> inputs = norm.inputs();
  if (!fused_.contains(parts.forward->id())) return false;
  inputs[0] = relu.inputs()[0];
  Attrs attrs = norm.attrs();
  attrs.set("num_side_inputs", static_cast<int64_t>(parts.side));
  const Output made = step_.add_like(norm, "_FusedBatchNormReluGrad", std::move(inputs), std::move(attrs));
  if (!made) return false;
  fused_.emplace(norm.id(), made.node);
  if (!parts.side) return false;  // nobody else reads it
  const Output rectified{made.node, 3};
  step_.replace(relu, {&rectified, 1});
  return true;
}

}  // namespace troupe
