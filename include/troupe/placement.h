// SPDX-License-Identifier: Apache-2.0
// Placement: which device each node of a step runs on, by a simulated execution with a cost model (white paper, 3.2.1),
// and what the step takes then. Implemented in plan/placement.cpp.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "troupe/cost_model.h"
#include "troupe/export.h"

namespace TROUPE_API troupe {

/// Who chooses among the devices that constraints leave to a node.
enum class Placing {
  kByHand,  // nobody: the default device if it asks for none, else the first that is what it asks for
  kByCost   // the device on which it finishes soonest
};

/// A device to place on.
struct PlacementDevice {
  std::string name;  // full: "/job:localhost/replica:0/task:0/device:cpu:0"
  DeviceRates rates = {};
};

struct PlacementOptions {
  std::vector<PlacementDevice> devices;  // the first is the default
  LinkRates link = {};                   // between any two of them
  std::optional<Links> links = {};       // where they differ, by index into devices: in place of `link`
  /// Measured costs; none: all are estimated. Only read.
  const CostModel* costs = nullptr;
  Placing placing = Placing::kByCost;
  bool soft = false;  // see SessionOptions::soft_placement
  /// Whether a node has a kernel on devices of a kind, "cpu", "gpu"; empty: all have everywhere.
  std::function<bool(const Node&, const std::string& kind)> has_kernel = {};
  /// Tells of each node when it would have finished elsewhere: time and memory for nodes times devices.
  bool alternatives = false;
};

/// Why a node is where it is.
enum class PlacedBy {
  kHand,        // nobody chose
  kConstraint,  // it asks for that device, or no other can run it
  kColocation,  // it is with another node: `with`
  kSoonest,     // it finishes there soonest
  kReader,      // it does no work, and goes where the first node is that reads it: `with`
  kMoved,       // it was moved there after all were placed, which made the step shorter
  kTogether,    // the step is shorter when everything is on one device
  kCopied       // a constant: it is on every device that reads it
};

struct NodePlacement {
  const Node* node = nullptr;
  uint32_t device = 0;  // index into PlacementOptions::devices
  PlacedBy why = PlacedBy::kHand;
  const Node* with = nullptr;
  std::vector<std::string> lacks = {};  // kinds of devices there that have no kernel for it
  double start_ns = 0, finish_ns = 0;   // in the simulated step: of all its firings
  double firings = 1;                   // as measured, else estimated
  double estimated_ns = 0;              // of one, by the rates of its device
  std::optional<double> measured_ns = {};
  /// By device, if asked for: when it would have finished there; infinite where constraints forbid.
  std::vector<double> finish_on = {};
};

/// What goes from one device to another in a step.
struct LinkUse {
  uint32_t from = 0, to = 0;
  int64_t transfers = 0;
  double bytes = 0;
};

/// Where the nodes of a step go, and what the simulation says of the step.
struct Placement {
  std::vector<NodePlacement> nodes;  // inputs first
  double step_ns = 0;
  std::vector<double> busy_ns;     // by device
  std::vector<double> peak_bytes;  // by device: variables, and tensors of the step at most
  double excess_bytes = 0;         // over the devices' memory; > 0: what was found does not fit, see check_memory
  std::vector<LinkUse> links;      // those used, in the order of devices
  std::vector<const Node*> critical_path;
  std::shared_ptr<const void> made;  // keeps nodes that the graph lacks: those that carry collectives out
};

/// An error, kResourceExhausted, where by the simulation a step takes more memory than there is: it names each device
/// that has too little, the bytes it needs and those it has. `peak_bytes` are a Placement's.
Status check_memory(std::span<const PlacementDevice> devices, std::span<const double> peak_bytes);

/// "by hand", "asked for", ...
const char* to_string(PlacedBy why);

/// Places the nodes that the steps of one signature need, without graph passes, and simulates a step: each device runs
/// one node at a time, among those ready the one with the longest way to the end; a tensor goes once to each device
/// that reads it, each device sending and receiving one at a time; a loop's nodes take as long as all their iterations
/// (docs/placement.md says how these are known). The same arguments give the same placement. Takes the graph's mutex.
/// Errors: those of constraints, with all nodes of the group and what they ask for; kNotFound for a device that is not
/// there (those there are are listed); kInvalidArgument for no devices, names that are not full or twice there, rates
/// that are not positive, and for feeds, fetches and targets that are empty or of another graph.
Result<Placement> place(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
                        std::span<const Node* const> targets, const PlacementOptions& options);

}  // namespace troupe
