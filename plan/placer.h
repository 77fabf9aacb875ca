// SPDX-License-Identifier: Apache-2.0
// Placer: the devices of a step's nodes, by hand or by cost, and by cost their priorities.
#pragma once
#include <functional>
#include <optional>

#include "plan/constraints.h"
#include "plan/placement.h"
#include "plan/plan.h"

namespace troupe {

class Placer {
 public:
  explicit Placer(const PlanContext& context) : context_(context) {}

  /// Has nodes whose ids are from `first` on, which passes made for the kind of device that `kind_of` tells, stay on
  /// such: they may be of what others do not have. Before find.
  void keep(int first, std::function<std::optional<DeviceKind>(const Node&)> kind_of) {
    first_kept_ = first;
    kind_of_ = std::move(kind_of);
  }
  /// Whether devices of a kind have a kernel for a node, and may.
  bool serves(const Node& node, DeviceKind kind) const;
  /// Before the others; takes the graph's mutex for a while. `warns`: whether it is logged that the step does not fit
  /// the memory. Errors: those of Constraints::find.
  Status find(const Graph& graph, const StepGraph& step, const Frames& frames, bool warns = true);
  uint32_t device_of(const Node& node) const {
    if (!scattered_.empty()) return scattered_[static_cast<size_t>(node.id())];
    return placed_ ? placed_->device_of(node) : constraints_->by_hand(node);
  }
  /// Where it would be by hand, whatever cost or scattering say.
  uint32_t by_hand(const Node& node) const { return constraints_->by_hand(node); }
  bool by_cost() const { return placed_.has_value(); }
  /// By cost: by the way that is left from the node to the end of the step, from -1000 to 1000.
  int priority(const Node& node) const;

 private:
  /// The kind of kernels that devices of that name have.
  DeviceKind kernels_for(const std::string& kind) const;

  const PlanContext& context_;
  int first_kept_ = 0;
  std::function<std::optional<DeviceKind>(const Node&)> kind_of_ = {};
  std::optional<Constraints> constraints_;
  std::optional<StepPlacement> placed_;
  std::vector<uint32_t> scattered_;  // by node id; empty: they are not
  double longest_ = 0;               // way to the end, nanoseconds
};

}  // namespace troupe
