// SPDX-License-Identifier: Apache-2.0
#include "plan/placer.h"

#include "base/log.h"
#include "plan/node_kernels.h"
#include "plan/scatter.h"

namespace troupe {

Status Placer::find(const Graph& graph, const StepGraph& step, const Frames& frames, bool warns) {
  std::vector<std::string> names;
  for (const DeviceInfo& device : context_.devices) names.push_back(device.name);
  TROUPE_ASSIGN(const DeviceList devices, DeviceList::make(names));
  ConstraintOptions options{.soft = context_.soft_placement, .default_device = context_.default_device};
  // Variables may be in the memory of their device.
  options.resources_together =
      std::ranges::any_of(context_.devices, [](const DeviceInfo& device) { return device.kind == DeviceKind::kCuda; });
  options.any_device = context_.scatter != 0 && !context_.task.empty() && !context_.part;
  options.has_kernel = [this](const Node& node, const std::string& kind) { return serves(node, kernels_for(kind)); };
  // Where only some devices are simulated, a step is on those or on the others.
  const bool simulated = context_.devices[context_.default_device].kind == DeviceKind::kSim;
  options.is_general = [simulated](const std::string& kind) { return (kind == "sim") == simulated; };
  {
    const std::lock_guard growth(graph.mutex());
    TROUPE_ASSIGN(constraints_, Constraints::find(graph, step, devices, options));
    if (options.any_device) scattered_ = scatter(graph, step, *constraints_, devices, context_.task, context_.scatter);
  }
  if (context_.placing == Placing::kByHand || options.any_device) return {};
  std::vector<PlacementDevice> placed_on;
  for (const DeviceInfo& device : context_.devices) placed_on.push_back({device.name, device.rates});
  placed_ = place_step(step, frames, placed_on, context_.links, context_.costs, Placing::kByCost, *constraints_);
  if (const Status fits = check_memory(placed_on, placed_->assignment.schedule.peak_bytes); warns && !fits.ok())
    log_warning("{}", fits.error().message);
  for (const double rank : placed_->assignment.ranks) longest_ = std::max(longest_, rank);
  return {};
}

bool Placer::serves(const Node& node, DeviceKind kind) const {
  if (kind_of_ && node.id() >= first_kept_)
    if (const std::optional<DeviceKind> kept = kind_of_(node); kept && that_runs(*kept) != that_runs(kind))
      return false;
  return context_.kernels.serves(node.op().name(), that_runs(kind), node.attrs());
}

int Placer::priority(const Node& node) const {
  const uint32_t task = placed_->tasks.task_of[static_cast<size_t>(node.id())];
  if (task == UINT32_MAX || longest_ == 0) return 0;
  return static_cast<int>(placed_->assignment.ranks[task] / longest_ * 2000) - 1000;
}

DeviceKind Placer::kernels_for(const std::string& kind) const {
  for (const DeviceInfo& device : context_.devices)
    if (device.name.find("/device:" + kind + ":") != std::string::npos) return that_runs(device.kind);
  return DeviceKind::kCpu;
}

}  // namespace troupe
