// SPDX-License-Identifier: Apache-2.0
// As soon as possible by list scheduling; as late as possible backwards from the readers on the other device.
#include "plan/receive_schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <unordered_set>

#include "plan/op_costs.h"

namespace troupe {
namespace {

constexpr double kLeastBytes = 64 * 1024;
/// Nodes looked at for one that a reader waits for.
constexpr size_t kMostAncestors = 10'000;
constexpr double kForever = std::numeric_limits<double>::infinity();

struct ValueReader {
  const Node* node;
  int port;  // of what it reads; -1: a control edge
};

/// What is known of one node.
struct Estimate {
  uint32_t position = 0;  // in the step; 0: it is no node of it
  double ns = 0, start = 0, finish = 0;
  std::vector<ValueReader> readers;  // but those along back edges
  // Of what may be made late:
  bool light = false;            // made of constants, fed values and variables, without effect
  bool late = false;             // for one other device alone
  bool held = false;             // is held back, or follows from what is
  uint32_t to = 0;               // that
  double needed = 0;             // when it has to be done at the latest
  double bytes = 0;              // that cross, its own and of what follows from it
  const Node* reader = nullptr;  // there, the first
};

class Scheduler {
 public:
  explicit Scheduler(const ReceiveEstimates& in) : in_(in), all_(static_cast<size_t>(in.step.ids())) {
    uint32_t position = 0;
    for (const Node* node : in.step.nodes()) of(*node).position = ++position;
    for (const Node* node : in.step.nodes()) {
      if (!is_constant(*node)) of(*node).ns = in.node_ns(*node);
      for_each_input(*node, [&](const Output& from) { of(*from.node).readers.push_back({node, from.port}); });
      if (device_of(*node) >= longest_.size()) longest_.resize(device_of(*node) + 1);
      longest_[device_of(*node)] = std::max(longest_[device_of(*node)], of(*node).ns);
    }
    in.step.for_each_wanted([&](const Output& o) { wanted_.insert(o.node); });
  }

  ReceiveSchedule run() {
    estimate_starts();
    find_writers();
    for (const Node* node : in_.step.nodes()) of(*node).light = is_light(*node);
    do {
      find_late();
    } while (drop_those_that_keep_more());
    ReceiveSchedule out;
    for (const Node* node : in_.step.nodes()) hold_back(*node, out);
    for (const Node* node : in_.step.nodes())
      for (int port = 0; port < node->num_outputs(); ++port) hold_expansions({node, port}, out);
    return out;
  }

 private:
  Estimate& of(const Node& node) { return all_[static_cast<size_t>(node.id())]; }
  uint32_t device_of(const Node& node) const { return in_.devices[static_cast<size_t>(node.id())]; }
  bool is_constant(const Node& node) const {
    const auto id = static_cast<size_t>(node.id());
    return node.op().name() == "Const" || (id < in_.constants.size() && in_.constants[id]);
  }
  bool is_outside_of_loops(const Node& node) const {
    return in_.frames.of[static_cast<size_t>(node.id())] == 0 && in_.frames.of_output(node) == 0;
  }
  double transfer_ns(const Output& what, uint32_t to) const {
    return link(*what.node, to).time_ns(bytes_of(what.dtype(), in_.step.shape(what)));
  }
  const LinkRates& link(const Node& from, uint32_t to) const { return in_.links.between(device_of(from), to); }

  /// f(Output) for all that `node` waits for, port -1 of a control input, but what is fed and along back edges.
  template <class F> void for_each_input(const Node& node, F f) {
    const auto look = [&](const Output& from) {
      const uint32_t position = of(*from.node).position;
      if (position > 0 && position < of(node).position) f(from);
    };
    for (const Output& in : node.inputs())
      if (const Output now = in_.step.now(in); !in_.step.is_fed(now)) look(now);
    in_.step.for_each_control(node, [&](const Output& before) { look({before.node, -1}); });
  }

  /// As soon as possible: first come, first served.
  void estimate_starts() {
    using Ready = std::pair<double, uint32_t>;  // when, position
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    std::vector<uint32_t> waits(in_.step.nodes().size() + 1);
    std::vector<double> arrived(waits.size()), free(longest_.size());
    for (const Node* node : in_.step.nodes()) {
      uint32_t& count = waits[of(*node).position];
      for_each_input(*node, [&](const Output&) { ++count; });
      if (count == 0) ready.emplace(0, of(*node).position);
    }
    while (!ready.empty()) {
      const auto [at, position] = ready.top();
      ready.pop();
      const Node& node = *in_.step.nodes()[position - 1];
      Estimate& e = of(node);
      double& device_free = free[device_of(node)];
      e.start = is_constant(node) ? at : std::max(at, device_free);
      e.finish = e.start + e.ns;
      if (!is_constant(node)) device_free = e.finish;
      for (const ValueReader& reader : e.readers) {
        const bool crosses = !is_constant(node) && device_of(*reader.node) != device_of(node);
        const uint32_t there = device_of(*reader.node), to = of(*reader.node).position;
        const double took = !crosses          ? 0
                            : reader.port < 0 ? link(node, there).time_ns(0)
                                              : transfer_ns({&node, reader.port}, there);
        arrived[to] = std::max(arrived[to], e.finish + took);
        if (--waits[to] == 0) ready.emplace(arrived[to], to);
      }
    }
  }

  // -- variables ------------------------------------------------------------------------------------------------------

  /// Names the variable of a handle; empty: not known.
  std::string variable(Output handle) const {
    for (handle = in_.step.now(handle); !in_.step.is_fed(handle); handle = in_.step.now(handle.node->inputs()[0])) {
      const Node& node = *handle.node;
      if (node.op().name() == "VarHandleOp") {
        const auto shared = node.attrs().get_or<std::string>("shared_name", "");
        return node.attrs().get_or<std::string>("container", "") + "/" + (shared.empty() ? node.name() : shared);
      }
      if (node.op().name() != "Enter" && node.op().name() != "Identity") break;
    }
    return {};
  }
  /// Not the handle of a queue or the like.
  bool may_be_variable(Output handle) const {
    handle = in_.step.now(handle);
    return in_.step.is_fed(handle) || !handle.node->inputs().empty() || handle.node->op().name() == "VarHandleOp";
  }
  static bool only_reads(const Node& node) {
    return node.op().name() == "ReadVariableOp" || node.op().name() == "VariableShape" ||
           node.op().control_flow() != ControlFlow::kNone || node.op().name() == "Identity";
  }
  void find_writers() {
    for (const Node* node : in_.step.nodes())
      for (const Output& in : node->inputs())
        if (in.dtype() == DType::kResource && !only_reads(*node) && may_be_variable(in))
          writers_[variable(in)].push_back(node);
  }
  /// Whether every node that may change the variable waits for `read`.
  bool is_before_writers(const Node& read) {
    const std::string name = variable(read.inputs()[0]);
    if (name.empty()) return false;
    std::vector<const Node*> writers = writers_[name];
    writers.insert(writers.end(), writers_[""].begin(), writers_[""].end());
    if (writers.empty()) return true;
    std::unordered_set<const Node*> after = {&read};
    std::vector<const Node*> found = {&read};
    while (!found.empty()) {
      const Node* node = found.back();
      found.pop_back();
      for (const ValueReader& reader : of(*node).readers)
        if (after.insert(reader.node).second) found.push_back(reader.node);
    }
    return std::ranges::all_of(writers, [&](const Node* writer) { return after.contains(writer); });
  }

  // -- what may be late -----------------------------------------------------------------------------------------------

  bool is_light(const Node& node) {
    if (is_constant(node) || !is_outside_of_loops(node) || node.op().control_flow() != ControlFlow::kNone) return false;
    if (node.num_outputs() == 0 || node.dtype(0) == DType::kResource || wanted_.contains(&node)) return false;
    const bool reads = node.op().name() == "ReadVariableOp";
    if (node.op().is_stateful() && !reads) return false;
    bool light = true;
    in_.step.for_each_control(node, [&](const Output&) { light = false; });
    for (const Output& written : node.inputs()) {
      const Output in = in_.step.now(written);
      if (in_.step.is_fed(in) || in.dtype() == DType::kResource) continue;
      if (is_constant(*in.node)) light = light && in.node->control_inputs().empty();
      else light = light && of(*in.node).light && device_of(*in.node) == device_of(node);
    }
    return light && (!reads || is_before_writers(node));
  }

  /// From the last node to the first: which serve one other device alone, and when that needs them.
  void find_late() {
    const auto& nodes = in_.step.nodes();
    for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
      const Node& node = **at;
      Estimate& e = of(node);
      e.late = e.light && !e.readers.empty();
      if (!e.late) continue;
      e.needed = kForever;
      e.bytes = 0;
      e.reader = nullptr;
      std::unordered_set<int> crossing;
      for (const ValueReader& reader : e.readers) {
        const Estimate& r = of(*reader.node);
        const bool crosses = device_of(*reader.node) != device_of(node);
        if (crosses ? reader.port < 0 || in_.frames.of[static_cast<size_t>(reader.node->id())] != 0 : !r.late) {
          e.late = false;
          break;
        }
        const uint32_t to = crosses ? device_of(*reader.node) : r.to;
        if (e.reader && e.to != to) e.late = false;
        e.to = to;
        const double needed = crosses ? r.start - transfer_ns({&node, reader.port}, to) : r.needed - r.ns;
        const Node* first = crosses ? reader.node : r.reader;
        if (!crosses) e.bytes += r.bytes;
        else if (crossing.insert(reader.port).second)
          e.bytes += bytes_of(node.dtype(reader.port), in_.step.shape({&node, reader.port}));
        if (!e.reader || needed < e.needed) e.reader = first;
        e.needed = std::min(e.needed, needed);
      }
    }
  }

  /// What is made of a value that others need early would keep that value. True if there was such.
  bool drop_those_that_keep_more() {
    bool dropped = false;
    for (const Node* node : in_.step.nodes()) {
      if (!of(*node).late) continue;
      for_each_input(*node, [&](const Output& in) {
        if (is_constant(*in.node) || in.dtype() == DType::kResource) return;
        if (of(*in.node).late || in.node->op().name() == "ReadVariableOp") return;
        of(*node).light = of(*node).late = false;
        dropped = true;
      });
    }
    return dropped;
  }

  // -- until when -----------------------------------------------------------------------------------------------------

  /// Of what `reader` waits for, the last node of `device` that is done by then; nullptr: there is none.
  const Node* last_done(const Node& reader, uint32_t device, double by) {
    const Node* best = nullptr;
    std::unordered_set<const Node*> seen = {&reader};
    std::vector<const Node*> found = {&reader};
    while (!found.empty() && seen.size() < kMostAncestors) {
      const Node* node = found.back();
      found.pop_back();
      for_each_input(*node, [&](const Output& in) {
        if (of(*in.node).late || !seen.insert(in.node).second) return;
        const bool fits = device_of(*in.node) == device && !is_constant(*in.node) && is_outside_of_loops(*in.node) &&
                          of(*in.node).finish <= by;
        if (!fits) found.push_back(in.node);
        else if (!best || of(*in.node).finish > of(*best).finish) best = in.node;
      });
    }
    return best;
  }

  void hold_back(const Node& node, ReceiveSchedule& out) {
    const Estimate& e = of(node);
    if (!e.late) return;
    bool first = true;  // of what is late
    for_each_input(node, [&](const Output& in) {
      first = first && !of(*in.node).late;
      of(node).held = of(node).held || of(*in.node).held;
    });
    if (!first || e.bytes < kLeastBytes) return;
    const double begin = e.needed - e.ns;              // at the latest
    const double ahead = of(*e.reader).start - begin;  // of the reader
    const double signal = link(*e.reader, device_of(node)).time_ns(0);
    const double by = begin - ahead - signal - longest_[device_of(node)];
    const Node* until = last_done(*e.reader, e.to, by);
    if (!until || of(*until).finish + signal <= e.start) return;
    out.made.push_back({&node, until});
    of(node).held = true;
  }

  void hold_expansions(const Output& what, ReceiveSchedule& out) {
    if (is_constant(*what.node) || of(*what.node).held || bytes_of(what.dtype(), in_.step.shape(what)) < kLeastBytes)
      return;
    const double took = in_.expand_ns(what);
    if (took <= 0) return;
    std::map<uint32_t, const Node*> first;  // reader, by device; nullptr: one is in a loop
    for (const ValueReader& reader : of(*what.node).readers) {
      const uint32_t device = device_of(*reader.node);
      if (reader.port != what.port || device == device_of(*what.node)) continue;
      const auto [at, fresh] = first.try_emplace(device, reader.node);
      if (in_.frames.of[static_cast<size_t>(reader.node->id())] != 0) at->second = nullptr;
      else if (at->second && of(*reader.node).start < of(*at->second).start) at->second = reader.node;
    }
    for (const auto& [device, reader] : first) {
      if (!reader) continue;
      const Node* until = last_done(*reader, device, of(*reader).start - 2 * took);
      if (until && of(*until).finish > of(*what.node).finish + transfer_ns(what, device))
        out.expanded.push_back({what, device, until});
    }
  }

  const ReceiveEstimates& in_;
  std::vector<Estimate> all_;    // by node id
  std::vector<double> longest_;  // node, by device
  std::unordered_set<const Node*> wanted_;
  std::map<std::string, std::vector<const Node*>> writers_;  // by variable
};

}  // namespace

ReceiveSchedule schedule_receives(const ReceiveEstimates& estimates) { return Scheduler(estimates).run(); }

}  // namespace troupe
