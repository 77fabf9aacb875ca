// SPDX-License-Identifier: Apache-2.0
// LoopPlaces: on which devices the nodes of loops run, and which devices take part in each loop.
// Source: TensorFlow white paper, section 4.4.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "graph/frames.h"

namespace troupe {

/// A loop may run on several devices. Nodes that name a device run there. Of the others,
///  - what carries a value from iteration to iteration (Enter, Merge, Switch, NextIteration, Exit) is together, where
///    the value is computed: at the node whose output NextIteration takes, or the first of that one's inputs, that
///    names a device;
///  - lists (kVariant) are where they are carried, and with them the nodes that read them; on a device that has kernels
///    for what makes and reads them;
///  - the rest is where the loop is at home: on the device of its first node. What has no kernel there is where it
///    would be outside of loops; so is, where there are GPUs, what uses a resource.
/// A loop that is not as the white paper makes them (below) is at home as a whole, whatever its nodes name, on a device
/// that has kernels for all of it, if there is one:
///  - its Merges join one Enter and one NextIteration, which nobody else reads;
///  - its Exits follow Switches of such Merges, all by one condition, which is computed in each iteration;
///  - that condition, and what NextIterations read, lives whenever the iteration goes on.
class LoopPlaces {
 public:
  /// The device that a node asks for.
  using Find = std::function<Result<uint32_t>(const Node&)>;
  /// Whether it asks for one: only then it is where Find says.
  using Names = std::function<bool(const Node&)>;
  /// Whether a node has a kernel on a device.
  using Serves = std::function<bool(const Node&, uint32_t device)>;
  struct Wishes {
    Find find;
    Names names;
    bool by_resources = false;  // a loop that is at home as a whole is where its first use of a resource asks to be
    Serves serves = {};         // empty: all have kernels everywhere
  };

  /// `nodes` are those of `step`; the first of each loop tells its home. Errors: those of `find`.
  static Result<LoopPlaces> make(const StepGraph& step, const Frames& frames, std::span<const Node* const> nodes,
                                 const Wishes& wishes);

  /// Of a node that is in a loop or enters one.
  uint32_t device(const Node& node) const { return devices_[static_cast<size_t>(node.id())]; }
  /// What a loop that several devices take part in is driven by.
  struct Shared {
    std::set<uint32_t> devices;
    const Node* enter = nullptr;  // one of a carried value: where it is dead, so is the condition, if it reads any
    Output condition = {};        // what its Switches go by
  };
  /// By frame, outer loops first.
  const std::map<int, Shared>& shared() const { return shared_; }

 private:
  std::vector<uint32_t> devices_;  // by node id
  std::map<int, Shared> shared_;
};

}  // namespace troupe
