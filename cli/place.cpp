// SPDX-License-Identifier: Apache-2.0
// The subcommand place: which device each node of a graph would go to, and why, without running it.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/device_name.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/read_graph.h"
#include "ops/gpu_kernels.h"
#include "programs/cluster_flags.h"
#include "troupe/cluster.h"
#include "troupe/op_library.h"

namespace troupe {
namespace {

struct PlaceArguments {
  programs::ClusterFlags cluster;
  std::string graph, devices = "cpu=1", link, costs;
  std::vector<std::string> fetches, targets;
  bool explain = false, by_hand = false, strict = false;
};

/// 1234567 ns as "1234.6 us".
std::string time(double ns) { return fmt::format("{:.1f} us", ns / 1e3); }

std::string bytes(double n) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; n >= 1024 && unit + 1 < std::size(kUnits); ++unit) n /= 1024;
  return fmt::format("{:.{}f} {}", n, unit ? 1 : 0, kUnits[unit]);
}

/// "sim:3" of full names, or these where several have that end.
std::vector<std::string> short_names(const std::vector<PlacementDevice>& devices) {
  std::vector<std::string> out;
  std::set<std::string> ends;
  for (const PlacementDevice& d : devices) ends.insert(out.emplace_back(d.name.substr(d.name.rfind('/') + 8)));
  if (ends.size() < out.size())
    for (size_t i = 0; i < out.size(); ++i) out[i] = devices[i].name;
  return out;
}

bool is_placeholder(const Node& n) { return n.op().name() == "Placeholder"; }

struct Wanted {
  std::vector<Output> fed, fetches;
  std::vector<const Node*> targets;
};

/// What is asked for; without anything all that nobody reads or waits for. Placeholders count as fed.
Result<Wanted> look_up(const Graph& graph, const PlaceArguments& o) {
  Wanted out;
  for (int id = 0; id < graph.size(); ++id)
    if (is_placeholder(graph.node(id))) out.fed.push_back(graph.node(id).out());
  for (const std::string& name : o.fetches) {
    TROUPE_ASSIGN(const Output output, graph.output(name));
    if (output.port >= output.node->num_outputs())
      return invalid_argument("fetch '{}': '{}' has {} outputs", name, output.node->name(), output.node->num_outputs());
    out.fetches.push_back(output);
  }
  for (const std::string& name : o.targets) {
    TROUPE_ASSIGN(const Output output, graph.output(name));
    out.targets.push_back(output.node);
  }
  if (!out.fetches.empty() || !out.targets.empty()) return out;
  std::vector<bool> read(static_cast<size_t>(graph.size()), false);
  for (int id = 0; id < graph.size(); ++id) {
    for (const Output& in : graph.node(id).inputs()) read[static_cast<size_t>(in.node->id())] = true;
    for (const Node* c : graph.node(id).control_inputs()) read[static_cast<size_t>(c->id())] = true;
  }
  for (int id = 0; id < graph.size(); ++id)
    if (!read[static_cast<size_t>(id)] && !is_placeholder(graph.node(id))) out.targets.push_back(&graph.node(id));
  return out;
}

bool has_gpu(const std::vector<PlacementDevice>& devices) {
  return std::ranges::any_of(devices,
                             [](const PlacementDevice& d) { return d.name.find("device:gpu:") != std::string::npos; });
}

void print_nodes(const Placement& placed, const PlacementOptions& options, const std::vector<std::string>& devices) {
  fmt::print("\nnodes: device, begin and end in the simulated step, why\n");
  size_t width = 0, middle = 0;
  for (const NodePlacement& n : placed.nodes) width = std::max(width, n.node->name().size());
  for (const NodePlacement& n : placed.nodes) middle = std::max(middle, n.node->op().name().size());
  for (const NodePlacement& n : placed.nodes) {
    std::string line = fmt::format("  {:<{}}  {:<{}}  ", n.node->name(), width, n.node->op().name(), middle);
    if (n.why == PlacedBy::kCopied) {
      fmt::print("{}{}\n", printable(line), to_string(n.why));
      continue;
    }
    line += fmt::format("{}  {} - {}  {}", devices[n.device], time(n.start_ns), time(n.finish_ns), to_string(n.why));
    if (n.with) line += fmt::format(" '{}'", n.with->name());
    if (const std::string& asked = n.node->device(); !asked.empty()) {
      const auto wanted = DeviceName::parse(asked), got = DeviceName::parse(options.devices[n.device].name);
      if (wanted.ok() && got.ok() && !wanted->matches(*got)) line += "; " + asked + " is not there";
      else if (n.why == PlacedBy::kConstraint) line += " (" + asked + ")";
    }
    for (const std::string& kind : n.lacks) line += fmt::format("; no kernel on {}", kind);
    if (n.firings != 1) line += fmt::format("; {:.4g} times", n.firings);
    line += "; estimated " + time(n.estimated_ns);
    if (n.measured_ns) line += ", measured " + time(*n.measured_ns);
    std::vector<std::pair<double, std::string>> elsewhere;
    for (size_t d = 0; d < n.finish_on.size(); ++d)
      if (d != n.device && std::isfinite(n.finish_on[d])) elsewhere.emplace_back(n.finish_on[d], devices[d]);
    std::ranges::stable_sort(elsewhere, {}, &std::pair<double, std::string>::first);
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(elsewhere.size(), kShown); ++i)
      line += fmt::format("{}{} {}", i ? ", " : "; would end on ", elsewhere[i].second, time(elsewhere[i].first));
    if (elsewhere.size() > kShown) line += fmt::format(", {} more later", elsewhere.size() - kShown);
    fmt::print("{}\n", printable(line));
  }
}

void print_path(const Placement& placed, const std::vector<std::string>& devices) {
  std::map<const Node*, const NodePlacement*> by_node;
  for (const NodePlacement& n : placed.nodes) by_node[n.node] = &n;
  fmt::print("\ncritical path: {} nodes\n", placed.critical_path.size());
  for (const Node* node : placed.critical_path) {
    const NodePlacement& n = *by_node[node];
    fmt::print("  {} - {}  {}  {}\n", time(n.start_ns), time(n.finish_ns), devices[n.device], printable(node->name()));
  }
}

void print_summary(const Placement& placed, const PlacementOptions& options, const std::vector<std::string>& devices) {
  std::vector<size_t> counts(devices.size(), 0);
  for (const NodePlacement& n : placed.nodes)
    if (n.why != PlacedBy::kCopied) ++counts[n.device];
  fmt::print("\ndevices: nodes, share of the step at work, memory at most\n");
  for (size_t d = 0; d < devices.size(); ++d) {
    const auto limit = static_cast<double>(options.devices[d].rates.memory);
    fmt::print(
        "  {}  {}  {:.1f} %  {}{}\n", devices[d], counts[d],
        placed.step_ns > 0 ? 100 * placed.busy_ns[d] / placed.step_ns : 0, bytes(placed.peak_bytes[d]),
        limit > 0 ? fmt::format(" of {}{}", bytes(limit), placed.peak_bytes[d] > limit ? ": too much" : "") : "");
  }
  fmt::print("\nlinks: tensors and signals, bytes{}\n", placed.links.empty() ? ": none used" : "");
  for (const LinkUse& l : placed.links)
    fmt::print("  {} -> {}  {}  {}\n", devices[l.from], devices[l.to], l.transfers, bytes(l.bytes));
  if (options.costs)
    fmt::print("\nmeasured: {} of {} nodes\n",
               std::ranges::count_if(placed.nodes, [](const NodePlacement& n) { return n.measured_ns.has_value(); }),
               std::ranges::count_if(placed.nodes, [](const NodePlacement& n) { return n.why != PlacedBy::kCopied; }));
  fmt::print("\npredicted step: {}\n", time(placed.step_ns));
}

/// The devices of a cluster and the links between its tasks, which it prints.
Status ask_cluster(const PlaceArguments& o, PlacementOptions& options) {
  TROUPE_ASSIGN(const auto engine, Engine::create(o.cluster.engine({.cpu_threads = {1}})));
  const std::vector<std::string> devices = engine->devices();
  for (const std::string& name : devices) options.devices.push_back({name});
  if (!o.link.empty()) return {};
  TROUPE_ASSIGN(options.links, measure_links(*engine));
  std::vector<uint32_t> firsts;  // of tasks
  const auto task = [&](uint32_t d) { return devices[d].substr(0, devices[d].rfind("/device:")); };
  for (uint32_t d = 0; d < devices.size(); ++d)
    if (d == 0 || task(d) != task(d - 1)) firsts.push_back(d);
  fmt::print("links as measured: latency, bytes a second\n");
  for (size_t i = 0; i < firsts.size(); ++i)
    for (size_t j = i + 1; j < firsts.size(); ++j) {
      const LinkRates& link = options.links->between(firsts[i], firsts[j]);
      fmt::print("  {} - {}  {}  {}/s\n", task(firsts[i]), task(firsts[j]), time(link.latency_ns),
                 bytes(link.bandwidth));
    }
  fmt::print("\n");
  return {};
}

/// What is wrong with the command line, as far as it tells without a file.
Status check(const PlaceArguments& o) {
  TROUPE_RETURN_IF_ERROR(read_devices(o.devices));
  if (!o.link.empty()) TROUPE_RETURN_IF_ERROR(read_link(o.link));
  return {};
}

Status place_graph(const PlaceArguments& o) {
  PlacementOptions options;
  if (o.cluster.given()) {
    TROUPE_RETURN_IF_ERROR(ask_cluster(o, options));
  } else {
    TROUPE_ASSIGN(options.devices, read_devices(o.devices));
  }
  if (!o.link.empty()) {
    TROUPE_ASSIGN(options.link, read_link(o.link));
  }
  CostModel costs;
  if (!o.costs.empty()) {
    TROUPE_ASSIGN(costs, CostModel::load(o.costs));
    options.costs = &costs;
  }
  options.placing = o.by_hand ? Placing::kByHand : Placing::kByCost;
  options.soft = !o.strict;
  options.alternatives = o.explain && !o.by_hand;
  auto [ops, kernels] = *make_op_library();
  const bool knows_gpus = add_cuda_kernels(kernels);
  if (knows_gpus)
    options.has_kernel = [&](const Node& node, const std::string& kind) {
      return kernels.serves(node.op().name(), kind == "gpu" ? DeviceKind::kCuda : DeviceKind::kCpu, node.attrs());
    };
  Graph graph(ops);
  TROUPE_RETURN_IF_ERROR(read_graph(o.graph, {}, graph));
  TROUPE_ASSIGN(const Wanted wanted, look_up(graph, o));
  TROUPE_ASSIGN(const Placement placed, place(graph, wanted.fed, wanted.fetches, wanted.targets, options));
  const std::vector<std::string> devices = short_names(options.devices);
  fmt::print("{}: {} nodes on {} devices\n", o.graph, placed.nodes.size(), devices.size());
  if (o.explain) {
    if (!knows_gpus && has_gpu(options.devices))
      fmt::print("this build is without CUDA: all nodes are taken to have kernels on GPUs\n");
    print_nodes(placed, options, devices);
    print_path(placed, devices);
  }
  print_summary(placed, options, devices);
  return check_memory(options.devices, placed.peak_bytes);
}

}  // namespace

void add_place(CLI::App& app, Job& job) {
  const auto o = std::make_shared<PlaceArguments>();
  CLI::App& place_app =
      *app.add_subcommand("place", "Tells where the nodes of a graph would go, and how long a step would take");
  place_app.add_option("GRAPH", o->graph, "A GraphDef, binary or text; its Placeholders count as fed")->required();
  const CLI::Option* const devices =
      place_app
          .add_option(
              "--devices", o->devices,
              "cpu=N, gpu=N or sim=N:flops=F,bandwidth=B,launch=NS,memory=M, several with +: per second and "
              "bytes; k, M, G, T may follow a number. /job:NAME/task:N/ in front: of another machine. Not with a "
              "cluster, which has its own")
          ->capture_default_str();
  place_app.add_option("--link", o->link,
                       "bandwidth=B,latency=NS: of the links between devices [10e9, 1000; with --cluster as measured]");
  o->cluster.add_to(place_app);
  place_app.add_option("--costs", o->costs, "A file of measured costs, as run --costs writes it [estimates]");
  place_app.add_option("--fetch", o->fetches, "NAME:PORT,...: tensors wanted [all that nobody reads]")
      ->delimiter(',')
      ->allow_extra_args(false);
  place_app.add_option("--target", o->targets, "NODE,...: run in each step")->delimiter(',')->allow_extra_args(false);
  place_app.add_flag("--explain", o->explain, "Tell of each node where it goes and why, and the critical path");
  place_app.add_flag("--by-hand", o->by_hand, "Leave nodes where they ask to be, all others on the first device");
  place_app.add_flag("--strict", o->strict, "Refuse devices that are not there [the nearest is taken]");
  place_app.callback([o, devices, &job] {
    if (o->cluster.given() && devices->count() > 0)
      throw CLI::ValidationError("--devices",
                                 "a cluster has its own devices: leave out either that or --cluster and "
                                 "TROUPE_CLUSTER");
    if (const Status status = check(*o); !status.ok()) throw CLI::ValidationError("place", status.error().message);
    job = [o] { return place_graph(*o); };
  });
}

}  // namespace troupe
