// SPDX-License-Identifier: Apache-2.0
// From a step and devices to a placement, and what is told of it.
#include "plan/placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "graph/passes/expand_collectives.h"
#include "graph/prune.h"
#include "plan/op_costs.h"

namespace troupe {
namespace {

bool same_rates(const DeviceRates& a, const DeviceRates& b) {
  return a.flops == b.flops && a.memory_bandwidth == b.memory_bandwidth && a.launch_ns == b.launch_ns;
}

/// `devices` by what they can do.
std::vector<DeviceClass> classes_of(std::span<const PlacementDevice> devices, const Links& links, Cluster& cluster) {
  std::vector<DeviceClass> classes;
  cluster.take(links);
  for (const PlacementDevice& device : devices) {
    const auto name = DeviceName::parse(device.name);
    const std::string kind = name.ok() ? name->kind.value_or("") : "";
    const auto at = std::ranges::find_if(
        classes, [&](const DeviceClass& c) { return c.kind == kind && same_rates(c.rates, device.rates); });
    cluster.class_of.push_back(static_cast<uint32_t>(at - classes.begin()));
    cluster.memory.push_back(static_cast<double>(device.rates.memory));
    if (at == classes.end()) classes.push_back({kind, device.rates});
  }
  return classes;
}

Assignment by_hand(const StepTasks& tasks, const Cluster& cluster, const Constraints& constraints) {
  Assignment out;
  for (const Node* node : tasks.nodes) out.device_of.push_back(constraints.by_hand(*node));
  Simulator simulator(tasks.graph, cluster);
  out.schedule = simulator.run(out.device_of, Simulator::Detail::kEverything);
  out.ranks = simulator.ranks();
  return out;
}

Status check(const PlacementOptions& options) {
  std::set<std::string> names;
  for (const PlacementDevice& d : options.devices) {
    const DeviceRates& r = d.rates;
    const auto name = DeviceName::parse(d.name);  // a name that cannot be read is refused later
    if (!names.insert(name.ok() ? name->str() : d.name).second)
      return invalid_argument("device '{}' is there twice", d.name);
    if (!(r.flops > 0) || !(r.memory_bandwidth > 0) || !(r.launch_ns >= 0) || r.memory < 0)
      return invalid_argument("device '{}' cannot do {} FLOP/s, {} B/s of memory, launch in {} ns, with {} bytes",
                              d.name, r.flops, r.memory_bandwidth, r.launch_ns, r.memory);
  }
  const Links links = options.links.value_or(Links(options.link));
  for (uint32_t from = 0; from < options.devices.size(); ++from)
    for (uint32_t to = 0; to < options.devices.size(); ++to) {
      const LinkRates& link = links.between(from, to);
      if (!(link.bandwidth > 0) || !(link.latency_ns >= 0))
        return invalid_argument("a link of {} B/s with a latency of {} ns", link.bandwidth, link.latency_ns);
    }
  return {};
}

/// Tells a placement in terms of nodes.
class Teller {
 public:
  Teller(const StepGraph& step, const PlacementOptions& options, const Constraints& constraints,
         const StepPlacement& placed)
      : step_(step), options_(options), constraints_(constraints), placed_(placed) {}

  Placement tell() {
    const Assignment& a = placed_.assignment;
    std::optional<Alternatives> alternatives;
    if (options_.alternatives && placed_.tasks.graph.size() > 0)
      alternatives.emplace(placed_.tasks.graph, placed_.cluster, a);
    for (const Node* node : step_.nodes()) {
      NodePlacement& p = out_.nodes.emplace_back();
      p.node = node;
      p.device = placed_.device_of(*node);
      const uint32_t task = placed_.tasks.task_of[static_cast<size_t>(node->id())];
      if (task == TaskGraph::kNone) {
        p.why = PlacedBy::kCopied;
        continue;
      }
      explain(task, p);
      for (const DeviceClass& kind : placed_.classes)
        if (options_.has_kernel && !options_.has_kernel(*node, kind.kind) &&
            std::ranges::find(p.lacks, kind.kind) == p.lacks.end())
          p.lacks.push_back(kind.kind);
      p.start_ns = a.schedule.start_ns[task];
      p.finish_ns = a.schedule.finish_ns[task];
      const DeviceClass& c = placed_.classes[placed_.cluster.class_of[p.device]];
      p.firings = placed_.tasks.graph.task(task).firings;
      p.estimated_ns = estimated_ns(*node, c.rates);
      if (options_.costs)
        if (const MeasuredCost* cost = options_.costs->find(node->name(), c.kind)) p.measured_ns = cost->ns;
      if (alternatives) {
        p.finish_on = alternatives->finish_ns(task);
        const auto allowed = constraints_.devices(*node);
        for (uint32_t d = 0; d < p.finish_on.size(); ++d)
          if (std::ranges::find(allowed, d) == allowed.end()) p.finish_on[d] = std::numeric_limits<double>::infinity();
      }
    }
    out_.step_ns = a.schedule.step_ns;
    out_.busy_ns = a.schedule.busy_ns;
    out_.peak_bytes = a.schedule.peak_bytes;
    out_.excess_bytes = a.schedule.excess_bytes;
    std::map<std::pair<uint32_t, uint32_t>, LinkUse> links;
    for (const Transfer& t : a.schedule.transfers) {
      LinkUse& use = links.try_emplace({t.from, t.to}, LinkUse{t.from, t.to}).first->second;
      const TaskGraph::Value& value = placed_.tasks.graph.value(t.value);
      const double times = std::max(1.0, placed_.tasks.graph.task(value.producer).firings);
      use.transfers += std::llround(times);
      use.bytes += times * value.bytes;
    }
    for (const auto& [ends, use] : links) out_.links.push_back(use);
    for (const uint32_t t : a.schedule.critical_path()) out_.critical_path.push_back(placed_.tasks.nodes[t]);
    return std::move(out_);
  }

 private:
  void explain(uint32_t task, NodePlacement& p) const {
    const Assignment& a = placed_.assignment;
    if (a.chosen.empty()) {
      if (!p.node->device().empty()) p.why = PlacedBy::kConstraint;
      else if ((p.with = constraints_.asker(*p.node))) p.why = PlacedBy::kColocation;
      return;
    }
    const uint32_t group = placed_.tasks.graph.task(task).group, decided_by = a.decided_by[group];
    switch (a.chosen[group]) {
      case Chosen::kOnly: {
        const Node* asker = constraints_.asker(*p.node);
        const bool other = asker && asker != p.node && p.node->device().empty();
        p.why = other ? PlacedBy::kColocation : PlacedBy::kConstraint;
        if (other) p.with = asker;
        return;
      }
      case Chosen::kSoonest:
      case Chosen::kMoved:
        if (decided_by != task && decided_by != TaskGraph::kNone) {
          p.why = PlacedBy::kColocation;
          p.with = placed_.tasks.nodes[decided_by];
        } else {
          p.why = a.chosen[group] == Chosen::kMoved ? PlacedBy::kMoved : PlacedBy::kSoonest;
        }
        return;
      case Chosen::kWithReader:
        p.why = PlacedBy::kReader;
        p.with = placed_.tasks.nodes[decided_by];
        return;
      case Chosen::kTogether: p.why = PlacedBy::kTogether; return;
    }
  }

  const StepGraph& step_;
  const PlacementOptions& options_;
  const Constraints& constraints_;
  const StepPlacement& placed_;
  Placement out_;
};

}  // namespace

StepPlacement place_step(const StepGraph& step, const Frames& frames, std::span<const PlacementDevice> devices,
                         const Links& links, const CostModel* costs, Placing placing, Constraints& constraints) {
  StepPlacement out;
  out.classes = classes_of(devices, links, out.cluster);
  if (out.cluster.limited()) {
    // A limit that cannot be reached is none.
    const double most = most_bytes(step, out.classes, costs);
    for (double& memory : out.cluster.memory)
      if (memory >= most) memory = 0;
  }
  if (placing == Placing::kByCost)
    join_related(step, frames, out.classes.size() == 1 && !out.cluster.limited(), constraints);
  out.tasks = make_tasks(step, frames, out.classes, costs, constraints);
  if (placing == Placing::kByCost) out.assignment = assign(out.tasks.graph, out.cluster, out.tasks.allowed);
  else out.assignment = by_hand(out.tasks, out.cluster, constraints);

  out.by_id.assign(static_cast<size_t>(step.ids()), TaskGraph::kNone);
  for (uint32_t t = 0; t < out.tasks.nodes.size(); ++t)
    out.by_id[static_cast<size_t>(out.tasks.nodes[t]->id())] = out.assignment.device_of[t];
  for (size_t i = step.nodes().size(); i-- > 0;) {
    const Node& node = *step.nodes()[i];
    uint32_t& own = out.by_id[static_cast<size_t>(node.id())];
    if (own == TaskGraph::kNone) own = constraints.by_hand(node);
    for (const Output& written : node.inputs()) {
      const Node& in = *step.now(written).node;
      uint32_t& device = out.by_id[static_cast<size_t>(in.id())];
      const auto allowed = constraints.devices(in);
      if (device == TaskGraph::kNone && std::ranges::find(allowed, own) != allowed.end()) device = own;
    }
  }
  return out;
}

const char* to_string(PlacedBy why) {
  switch (why) {
    case PlacedBy::kHand: return "by hand";
    case PlacedBy::kConstraint: return "asked for";
    case PlacedBy::kColocation: return "with another";
    case PlacedBy::kSoonest: return "finishes soonest";
    case PlacedBy::kReader: return "with its reader";
    case PlacedBy::kMoved: return "moved, for a shorter step";
    case PlacedBy::kTogether: return "all on one device, for a shorter step";
    case PlacedBy::kCopied: return "constant, wherever it is read";
  }
  return "?";
}

Status check_memory(std::span<const PlacementDevice> devices, std::span<const double> peak_bytes) {
  std::string lacking;
  for (size_t d = 0; d < std::min(devices.size(), peak_bytes.size()); ++d) {
    const auto there = static_cast<double>(devices[d].rates.memory);
    if (there > 0 && peak_bytes[d] > there)
      lacking += fmt::format("{}{} needs {:.0f} bytes and has {:.0f}", lacking.empty() ? "" : "; ", devices[d].name,
                             peak_bytes[d], there);
  }
  if (lacking.empty()) return {};
  return make_error(Code::kResourceExhausted, "the step does not fit the memory: {}", lacking);
}

Result<Placement> place(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
                        std::span<const Node* const> targets, const PlacementOptions& options) {
  TROUPE_RETURN_IF_ERROR(check(options));
  TROUPE_RETURN_IF_ERROR(graph.status());
  std::lock_guard growth(graph.mutex());
  TROUPE_RETURN_IF_ERROR(check_signature(graph, fed, fetches, targets));
  StepGraph step(graph, fed, fetches, targets);
  TROUPE_RETURN_IF_ERROR(expand_collectives(step));
  TROUPE_ASSIGN(const Frames frames, find_frames(step));
  std::vector<std::string> names;
  for (const PlacementDevice& d : options.devices) names.push_back(d.name);
  TROUPE_ASSIGN(const DeviceList devices, DeviceList::make(names));
  TROUPE_ASSIGN(Constraints constraints,
                Constraints::find(graph, step, devices, {.soft = options.soft, .has_kernel = options.has_kernel}));
  const StepPlacement placed = place_step(step, frames, options.devices, options.links.value_or(Links(options.link)),
                                          options.costs, options.placing, constraints);
  Placement out = Teller(step, options, constraints, placed).tell();
  out.made = step.made();
  return out;
}

}  // namespace troupe
