// SPDX-License-Identifier: Apache-2.0
// Constraints: the devices on which each node of a step may run (white paper, 3.2.1 and 4.3). Nodes that must be
// together form a group, by union-find; a group may run where what all of its nodes ask for agrees.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/device_name.h"
#include "graph/step_graph.h"

namespace troupe {

/// The devices there are, by their full names.
class DeviceList {
 public:
  /// Errors: kInvalidArgument for a name that is not full.
  static Result<DeviceList> make(std::span<const std::string> names);

  uint32_t size() const { return static_cast<uint32_t>(names_.size()); }
  const std::string& name(uint32_t i) const { return names_[i]; }
  const std::string& kind(uint32_t i) const { return *parsed_[i].kind; }
  /// In the order of the list.
  std::vector<uint32_t> matching(const DeviceName& wanted) const;
  /// All names, with commas.
  std::string str() const;

 private:
  std::vector<std::string> names_;
  std::vector<DeviceName> parsed_;
};

struct ConstraintOptions {
  /// Nodes whose device is not there, or has no kernel for them, go to the one of that kind and number in any job and
  /// task, else to the default or another that has a kernel; where nodes that must be together ask for different
  /// devices, the first of them counts. Without it these are errors.
  bool soft = false;
  /// What uses a resource goes where its handle is made, whatever it asks for.
  bool resources_together = false;
  /// The devices that nodes ask for do not count.
  bool any_device = false;
  uint32_t default_device = 0;
  /// Whether devices of a kind ("cpu") have a kernel for a node; none: all have. A node that no device has a kernel
  /// for may be anywhere: who makes its kernel reports it.
  std::function<bool(const Node&, const std::string& kind)> has_kernel = {};
  /// Whether nodes that ask for no device may be on devices of a kind; none: on all.
  std::function<bool(const std::string& kind)> is_general = {};
};

/// A value; it refers to the graph and the devices it was found for. One thread at a time.
class Constraints {
 public:
  /// A node asks by its device name, full or partial, and, by its attribute _class, a list of "loc:@name", to be with
  /// the nodes of these names, needed or not. A node that a pass made asks for what the node of its name asks for.
  /// The caller holds the graph's mutex.
  /// Errors, for each with the nodes of the group and what each asks for: kInvalidArgument for a name that is none, for
  /// nodes that must be together and ask for different devices or have kernels on different kinds; kNotFound for a
  /// device (those there are are listed) or a node to be with that is not there.
  static Result<Constraints> find(const Graph& graph, const StepGraph& step, const DeviceList& devices,
                                  const ConstraintOptions& options);

  /// Where a node may run, in the order of the devices; never empty.
  std::span<const uint32_t> devices(const Node& node) const { return sets_[groups_[root(node.id())].set].devices; }
  /// Where it goes when nothing else speaks for a device: the default one if its group asks for none, else the first.
  uint32_t by_hand(const Node& node) const;
  /// Whether what it asks for leaves fewer devices than there are.
  bool constrained(const Node& node) const { return devices(node).size() < all_; }
  /// A node of its group that asks for a device by name; nullptr: none.
  const Node* asker(const Node& node) const { return groups_[root(node.id())].asker; }
  /// Nodes of one group have the same number.
  uint32_t group(const Node& node) const { return root(node.id()); }
  /// A wish, no constraint: makes one group of those of a and b if some device suits both. Returns whether they are
  /// one.
  bool join(const Node& a, const Node& b);

 private:
  struct Group {
    uint32_t name = 0;            // into the Finder's names
    const Node* asker = nullptr;  // the first that asks by name
    uint32_t set = 0;
    uint32_t size = 1;
    uint32_t kinds = UINT32_MAX;  // with kernels, bits
  };
  struct Set {
    bool named = false;
    std::vector<uint32_t> devices;
  };
  class Finder;

  uint32_t root(int id) const { return root(static_cast<uint32_t>(id)); }
  uint32_t root(uint32_t at) const {
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }
  uint32_t unite(uint32_t a, uint32_t b);
  uint32_t add_set(Set set);

  mutable std::vector<uint32_t> parent_;  // by node id; shortened on the way
  std::vector<Group> groups_;             // by root
  std::vector<Set> sets_;
  std::map<std::pair<bool, std::vector<uint32_t>>, uint32_t> known_;  // sets
  uint32_t all_ = 0, default_ = 0;
};

}  // namespace troupe
