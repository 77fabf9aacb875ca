// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/open_batch_norm.h"

#include <algorithm>

#include "graph/passes/fuse_elementwise.h"
#include "graph/passes/same_place.h"

namespace troupe {

BatchNormOpening::BatchNormOpening(StepGraph& step, const PassDevices& devices) : step_(step) {
  if (!step.ops().find("_BatchNormStatistics")) return;
  std::unordered_set<const Node*> read;
  for (const Node* node : step.nodes())
    if (may_open(*node, devices)) opened_.insert(node);
  for (const Node* node : step.nodes()) {
    for (const Output& input : node->inputs()) {
      const Output now = step.now(input);
      if (now.port != 0 || !opened_.contains(now.node)) continue;
      read.insert(now.node);
      if (!fits(*node, now)) opened_.erase(now.node);
    }
    step.for_each_control(*node, [&](const Output& o) { opened_.erase(o.node); });
  }
  step.for_each_wanted([&](Output o) {
    if (o.port == 0) opened_.erase(o.node);
  });
  std::erase_if(opened_, [&](const Node* norm) { return !read.contains(norm); });
}

bool BatchNormOpening::may_open(const Node& norm, const PassDevices& devices) const {
  if (norm.op().name() != "FusedBatchNormV3" || !norm.attrs().get_or("is_training", true)) return false;
  const DType dtype = norm.dtype(0);
  if (!data_format(norm).ends_with("C") || norm.dtype(1) != dtype ||
      (dtype != DType::kFloat32 && dtype != DType::kFloat64))
    return false;
  if (!norm.control_inputs().empty() || step_.is_fed(norm) || (devices.on_gpu && devices.on_gpu(norm))) return false;
  const PartialShape shape = step_.shape(norm.out());
  if (!shape.has_rank() || shape.rank() < 2 || shape.dim(-1) < 0 || !devices.serves(norm, "_FusedElementwise"))
    return false;
  Attrs types;
  types.set("T", dtype);
  types.set("U", dtype);
  return !devices.has_kernel || devices.has_kernel(norm, "_BatchNormStatistics", types);
}

bool BatchNormOpening::fits(const Node& reader, Output y) const {
  const std::string& op = reader.op().name();
  const bool sum = op == "AddN" && reader.inputs().size() >= 2 && reader.inputs().size() <= 8;
  return (sum || std::ranges::find(fusable_ops(), op) != fusable_ops().end()) && reader.control_inputs().empty() &&
         !step_.is_fed(reader) && same_place(reader, *y.node) && step_.shape(reader.out()) == step_.shape(y);
}

bool BatchNormOpening::visit(const Node& norm) {
  if (!opened_.contains(&norm)) return false;
  const Output batch_mean = step_.add_like(norm, "_BatchNormStatistics", norm.inputs(), norm.attrs());
  const auto empty = step_.add_constant(*Tensor::make(norm.dtype(5), {0}), norm, norm.inputs()[0]);
  if (!batch_mean || !empty.ok()) return false;
  const auto statistic = [&](int port) { return Output{batch_mean.node, port}; };
  const Output shifted = step_.add_like(norm, "Sub", {norm.inputs()[0], statistic(2)});
  const Output scaled = shifted ? step_.add_like(norm, "Mul", {shifted, statistic(4)}) : Output();
  const Output y = scaled ? step_.add_like(norm, "AddV2", {scaled, norm.inputs()[2]}) : Output();
  if (!y) return false;
  const Output by[] = {y, batch_mean, statistic(1), statistic(2), statistic(3), *empty};
  step_.replace(norm, by);
  return true;
}

}  // namespace troupe
