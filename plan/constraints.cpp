// SPDX-License-Identifier: Apache-2.0
// Union-find over colocation; sets of devices are kept once.
#include "plan/constraints.h"

#include <algorithm>
#include <deque>

#include "graph/near_names.h"

namespace troupe {
namespace {

constexpr size_t kMostMembersNamed = 50;

/// The names in a node's attribute _class.
std::vector<std::string_view> places_of(const Node& node) {
  std::vector<std::string_view> out;
  if (const auto* texts = node.attrs().get<std::vector<std::string>>("_class"))
    for (const std::string_view text : *texts)
      if (text.starts_with("loc:@")) out.push_back(text.substr(5));
  return out;
}

}  // namespace

// -- devices ----------------------------------------------------------------------------------------------------------

Result<DeviceList> DeviceList::make(std::span<const std::string> names) {
  DeviceList out;
  for (const std::string& name : names) {
    TROUPE_ASSIGN(DeviceName parsed, DeviceName::parse(name));
    if (!parsed.full()) return invalid_argument("device name '{}' is not full: {} at most", name, parsed.str());
    out.names_.push_back(name);
    out.parsed_.push_back(std::move(parsed));
  }
  if (out.names_.empty()) return invalid_argument("there are no devices to place nodes on");
  return out;
}

std::vector<uint32_t> DeviceList::matching(const DeviceName& wanted) const {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < size(); ++i)
    if (wanted.matches(parsed_[i])) out.push_back(i);
  return out;
}

std::string DeviceList::str() const {
  std::string out;
  for (const std::string& name : names_) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// -- finding them -----------------------------------------------------------------------------------------------------

class Constraints::Finder {
 public:
  Finder(const Graph& graph, const StepGraph& step, const DeviceList& devices, const ConstraintOptions& options)
      : graph_(graph), step_(step), devices_(devices), options_(options) {
    out_.all_ = devices.size();
    out_.default_ = options.default_device;
    for (uint32_t i = 0; i < devices.size(); ++i)
      if (std::ranges::find(kinds_, devices.kind(i)) == kinds_.end()) kinds_.push_back(devices.kind(i));
  }

  Result<Constraints> find() {
    const auto ids = static_cast<uint32_t>(step_.ids());
    out_.parent_.resize(ids);
    for (uint32_t i = 0; i < ids; ++i) out_.parent_[i] = i;
    out_.groups_.resize(ids);
    asked_.resize(ids, false);
    for (const Node* node : step_.nodes()) TROUPE_RETURN_IF_ERROR(take(*node));
    while (!waiting_.empty()) {
      const Node* node = waiting_.front();
      waiting_.pop_front();
      TROUPE_RETURN_IF_ERROR(take(*node));
    }
    for (const Node* node : step_.nodes()) {
      Group& group = out_.groups_[out_.root(node->id())];
      if (group.set == 0) TROUPE_RETURN_IF_ERROR(choose(*node, group));
    }
    return std::move(out_);
  }

 private:
  uint32_t add_name(DeviceName name) {
    const auto at = std::ranges::find(names_, name);
    if (at != names_.end()) return static_cast<uint32_t>(at - names_.begin());
    names_.push_back(std::move(name));
    return static_cast<uint32_t>(names_.size()) - 1;
  }
  Result<uint32_t> merge(uint32_t a, uint32_t b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    TROUPE_ASSIGN(DeviceName both, DeviceName::merge(names_[a], names_[b]));
    return add_name(std::move(both));
  }

  /// The node as written that a made one stands for.
  const Node& written(const Node& node) const {
    if (!step_.is_made(node)) return node;
    const Node* original = find_written(node.name());
    return original ? *original : node;
  }
  /// A node that the graph had when the step's nodes were found; it may have grown since.
  const Node* find_written(std::string_view name) const {
    const Node* node = graph_.find(name);
    return node && !step_.is_made(*node) ? node : nullptr;
  }

  Error at_node(Error error, const Node& node) const {
    error.node = node.name();
    error.op = written(node).op().name();
    return error;
  }

  /// Takes in what one node asks for.
  Status take(const Node& node) {
    const auto id = static_cast<size_t>(node.id());
    if (asked_[id]) return {};
    asked_[id] = true;
    Group& group = out_.groups_[out_.root(node.id())];
    if (!node.device().empty() && !options_.any_device) {
      auto known = parsed_.find(node.device());
      if (known == parsed_.end()) {
        auto name = DeviceName::parse(node.device());
        if (!name.ok()) return at_node(std::move(name.error()), node);
        known = parsed_.emplace(node.device(), add_name(std::move(*name))).first;
      }
      if (const uint32_t name = known->second) {
        askers_.push_back(&node);
        auto merged = merge(group.name, name);
        const bool first = !group.asker || node.id() < group.asker->id();
        if (merged.ok()) group.name = *merged;
        else if (!options_.soft) return conflict(node, node, merged.error().message);
        else if (first) group.name = name;
        if (first) group.asker = &node;
      }
    }
    if (kinds_.size() > 1 && options_.has_kernel) {
      uint32_t kinds = 0;
      for (size_t k = 0; k < kinds_.size() && k < 32; ++k)
        if (options_.has_kernel(node, kinds_[k])) kinds |= 1u << k;
      if (kinds) {
        if (!(group.kinds & kinds)) return kernels_conflict(node, node);
        group.kinds &= kinds;
      }
    }
    for (const std::string_view name : places_of(written(node))) TROUPE_RETURN_IF_ERROR(put_with(node, name));
    if (options_.resources_together)
      for (const Output& in : node.inputs())
        if (const Output handle = step_.now(in); handle.dtype() == DType::kResource && !step_.is_fed(handle)) {
          waiting_.push_back(handle.node);
          TROUPE_RETURN_IF_ERROR(unite(node, *handle.node, true));
        }
    return {};
  }

  Status put_with(const Node& node, std::string_view name) {
    const Node* other = find_written(name);
    if (!other) {
      if (!options_.soft) {
        NearNames near(name);
        for (int i = 0; i < graph_.size(); ++i) near.offer(graph_.node(i).name());
        return at_node(make_error(Code::kNotFound, "is to be on the device of '{}', which is not a node of the graph{}",
                                  name, near.hint()),
                       node);
      }
      // Those that ask for the same are together all the same.
      const auto [at, fresh] = missing_.try_emplace(std::string(name), &node);
      if (!fresh) return unite(node, *at->second);
      return {};
    }
    waiting_.push_back(other);
    return unite(node, *other);
  }

  /// `gives_way`: what does not agree is no error. Where no kind of device has kernels for both they stay apart.
  Status unite(const Node& node, const Node& other, bool gives_way = false) {
    const uint32_t a = out_.root(node.id()), b = out_.root(other.id());
    if (a == b) return {};
    Group& first = out_.groups_[a];
    Group& second = out_.groups_[b];
    const auto merged = merge(first.name, second.name);
    if (!merged.ok() && !options_.soft && !gives_way) return conflict(node, other, merged.error().message);
    if (!(first.kinds & second.kinds)) return gives_way ? Status() : kernels_conflict(node, other);
    // Of two that do not agree, the earlier node's counts.
    const bool second_first = second.asker && (!first.asker || second.asker->id() < first.asker->id());
    const uint32_t name = merged.ok() ? *merged : second_first ? second.name : first.name;
    const Node* asker = second_first ? second.asker : first.asker;
    const uint32_t kinds = first.kinds & second.kinds;
    Group& group = out_.groups_[out_.unite(a, b)];
    group.name = name;
    group.asker = asker;
    group.kinds = kinds;
    return {};
  }

  /// The nodes of the groups of a and b, with what they ask for.
  std::string members(const Node& a, const Node& b) const {
    const uint32_t first = out_.root(a.id()), second = out_.root(b.id());
    std::string out;
    size_t count = 0;
    const auto tell = [&](const Node& node) {
      const uint32_t root = out_.root(node.id());
      if ((root != first && root != second) || ++count > kMostMembersNamed) return;
      out += fmt::format("{}'{}'", out.empty() ? "" : ", ", node.name());
      if (!node.device().empty()) out += " asks for " + node.device();
      std::string with;
      for (const std::string_view place : places_of(written(node)))
        with += fmt::format("{}'{}'", with.empty() ? "" : " and ", place);
      if (!with.empty()) out += (node.device().empty() ? " is with " : " and is with ") + with;
    };
    for (int id = 0; id < step_.ids(); ++id)
      if (asked_[static_cast<size_t>(id)] || id == b.id()) tell(step_.has(id) ? step_.node(id) : graph_.node(id));
    if (count > kMostMembersNamed) out += fmt::format(" and {} more", count - kMostMembersNamed);
    return out;
  }

  Error conflict(const Node& a, const Node& b, const std::string& why) const {
    return at_node(invalid_argument("these nodes are to be on one device, but {}: {}", why, members(a, b)), a);
  }

  Error kernels_conflict(const Node& a, const Node& b) const {
    return at_node(
        invalid_argument("these nodes are to be on one device, but no kind of device has kernels for all of them: {}",
                         members(a, b)),
        a);
  }

  std::vector<uint32_t> with_kernels(std::vector<uint32_t> devices, uint32_t kinds) const {
    std::erase_if(devices, [&](uint32_t d) {
      const auto kind = static_cast<uint32_t>(std::ranges::find(kinds_, devices_.kind(d)) - kinds_.begin());
      return kind < 32 && !(kinds >> kind & 1);
    });
    return devices;
  }

  /// The set of a group that `node` is of.
  Status choose(const Node& node, Group& group) {
    const auto [at, fresh] = chosen_.try_emplace({group.name, group.kinds}, 0);
    if (!fresh) {
      group.set = at->second;
      return {};
    }
    const DeviceName& name = names_[group.name];
    std::vector<uint32_t> matching = devices_.matching(name);
    if (matching.empty() && !options_.soft) {
      chosen_.erase(at);
      return nowhere(node);
    }
    std::vector<uint32_t> devices = with_kernels(matching, group.kinds);
    bool named = !name.empty();
    if (devices.empty() && options_.soft) {
      devices = with_kernels(devices_.matching({.kind = name.kind, .index = name.index}), group.kinds);
      if (devices.empty() || !(name.index || name.kind)) {
        devices = with_kernels(devices_.matching({}), group.kinds);
        named = false;
      }
    }
    if (!named && options_.is_general) {
      std::vector<uint32_t> general = devices;
      std::erase_if(general, [&](uint32_t d) { return !options_.is_general(devices_.kind(d)); });
      if (!general.empty()) devices = std::move(general);
    }
    // What has no kernel where it asks to be is the kernels' error.
    if (devices.empty()) devices = std::move(matching);
    group.set = at->second = out_.add_set({named, std::move(devices)});
    return {};
  }

  /// No device is what a group asks for: one of its nodes asks for what is not there, or all together do.
  Error nowhere(const Node& node) const {
    const uint32_t root = out_.root(node.id());
    for (const Node* asker : askers_)
      if (out_.root(asker->id()) == root && devices_.matching(names_[parsed_.find(asker->device())->second]).empty())
        return at_node(
            make_error(Code::kNotFound, "no device is \"{}\"; there are: {}", asker->device(), devices_.str()), *asker);
    return at_node(make_error(Code::kNotFound, "no device is {}, which these nodes together ask for: {}; there are: {}",
                              names_[out_.groups_[root].name].str(), members(node, node), devices_.str()),
                   node);
  }

  const Graph& graph_;
  const StepGraph& step_;
  const DeviceList& devices_;
  const ConstraintOptions& options_;
  Constraints out_;
  std::vector<std::string> kinds_;
  std::vector<bool> asked_;               // by node id: was taken
  std::deque<const Node*> waiting_;       // named by others
  std::vector<const Node*> askers_;       // by name of a device
  std::vector<DeviceName> names_ = {{}};  // asked for, alone or together; 0: nothing
  std::map<std::string, uint32_t, std::less<>> parsed_;
  std::map<std::string, const Node*> missing_;                // of names that no node has, the first that asks
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> chosen_;  // sets, by name and kinds
};

Result<Constraints> Constraints::find(const Graph& graph, const StepGraph& step, const DeviceList& devices,
                                      const ConstraintOptions& options) {
  return Finder(graph, step, devices, options).find();
}

// -- what was found ---------------------------------------------------------------------------------------------------

uint32_t Constraints::unite(uint32_t a, uint32_t b) {
  if (groups_[a].size < groups_[b].size) std::swap(a, b);
  parent_[b] = a;
  groups_[a].size += groups_[b].size;
  return a;
}

uint32_t Constraints::add_set(Set set) {
  if (sets_.empty()) sets_.emplace_back();  // 0: not chosen yet
  const auto [at, fresh] = known_.try_emplace({set.named, set.devices}, static_cast<uint32_t>(sets_.size()));
  if (fresh) sets_.push_back(std::move(set));
  return at->second;
}

uint32_t Constraints::by_hand(const Node& node) const {
  const Set& set = sets_[groups_[root(node.id())].set];
  if (!set.named && std::ranges::find(set.devices, default_) != set.devices.end()) return default_;
  return set.devices[0];
}

bool Constraints::join(const Node& a, const Node& b) {
  const uint32_t first = root(a.id()), second = root(b.id());
  if (first == second) return true;
  uint32_t set = groups_[first].set;
  if (set != groups_[second].set) {
    const Set& one = sets_[set];
    const Set& other = sets_[groups_[second].set];
    Set both{one.named || other.named, {}};
    std::ranges::set_intersection(one.devices, other.devices, std::back_inserter(both.devices));
    if (both.devices.empty()) return false;
    set = add_set(std::move(both));
  }
  const Node* asker = groups_[first].asker ? groups_[first].asker : groups_[second].asker;
  Group& group = groups_[unite(first, second)];
  group.set = set;
  group.asker = asker;
  return true;
}

}  // namespace troupe
