// SPDX-License-Identifier: Apache-2.0
// CostModel: how long a node takes on a device, and a tensor over a link: estimated from op, shapes and rates at first,
// then measured. The white paper's section 3.2.1. Implemented in plan/cost_model.cpp.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/device_rates.h"
#include "troupe/export.h"
#include "troupe/graph.h"
#include "troupe/op_cost.h"

namespace TROUPE_API troupe {

/// What was seen of one node on one kind of device.
struct MeasuredCost {
  double ns = 0;       // a running mean
  int64_t steps = 0;   // measured
  double bytes = 0;    // of its outputs
  double firings = 1;  // in a step, on the average
};

/// Measured costs by node name and kind of device ("cpu", "sim", "gpu"), kept in a file between runs. A value; one
/// thread at a time.
class CostModel {
 public:
  /// Takes one measurement in: the mean of the first 20, from then on the newest counts a twentieth.
  /// `steps` > 1: so many at once, of which the values are the means. `firings`: how often the node ran in a step.
  /// Does nothing for less than one step, and where a value is not a number from 0 to 1e18.
  void add(const std::string& node, std::string_view kind, double ns, double output_bytes, int64_t steps = 1,
           double firings = 1);
  /// The same with each measurement of another.
  void add(const CostModel& other);
  /// What was measured of that node, for "sim" else of "cpu"; nullptr: nothing.
  const MeasuredCost* find(std::string_view node, std::string_view kind) const;
  /// How often the node was seen to run in a step, where it was measured most; none: it was not.
  std::optional<double> firings(std::string_view node) const;
  /// Nanoseconds that a device of that kind is at work when `node` runs once: measured, else the estimate by `rates`
  /// and the inferred shapes.
  double time_ns(const Node& node, std::string_view kind, const DeviceRates& rates) const;
  bool empty() const { return measured_.empty(); }
  size_t size() const { return measured_.size(); }

  /// A JSON file, written beside and renamed. Errors: kNotFound where it cannot be written or read; kDataLoss for a
  /// file that is not a cost model, with what is wrong.
  Status save(const std::string& path) const;
  static Result<CostModel> load(const std::string& path);

 private:
  std::map<std::string, std::map<std::string, MeasuredCost, std::less<>>, std::less<>> measured_;
};

}  // namespace troupe
