// SPDX-License-Identifier: Apache-2.0
// Placement by cost: what it must respect on any graph, and what it finds on some.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "plan/assignment.h"
#include "tests/graph/passes/pass_fixture.h"
#include "troupe/control_flow.h"
#include "troupe/placement.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// Groups of a random graph: most of one task, some of several.
struct RandomStep {
  RandomStep(uint32_t seed, uint32_t size, uint32_t device_count, uint32_t classes, double limit) : random(seed) {
    for (uint32_t d = 0; d < device_count; ++d) {
      cluster.class_of.push_back(d % classes);
      cluster.memory.push_back(limit);
    }
    cluster.take(LinkRates{.bandwidth = 1e9, .latency_ns = 20});
    uint32_t groups = 0;
    std::vector<uint32_t> values;
    for (uint32_t t = 0; t < size; ++t) {
      const uint32_t group = groups > 0 && draw(5) == 0 ? draw(groups) : groups++;
      TaskGraph::Task task{{}, draw(10) == 0 ? 100.0 * draw(10) : 0, group, draw(6) == 0};
      for (uint32_t c = 0; c < classes; ++c) task.ns.push_back(draw(8) == 0 ? 0 : draw(1000));
      tasks.add_task(std::move(task));
      uint32_t read = UINT32_MAX;
      for (uint32_t i = draw(4); i > 0 && !values.empty(); --i) {
        read = values[values.size() - 1 - draw(std::min<uint32_t>(20, static_cast<uint32_t>(values.size())))];
        tasks.add_input(read);
      }
      for (uint32_t i = 1 + draw(2); i > 0; --i) {
        const bool shared = draw(5) == 0 && read != UINT32_MAX;  // as of an Identity
        values.push_back(shared ? tasks.add_value(tasks.value(read).bytes, read) : tasks.add_value(draw(500)));
      }
    }
    tasks.keep(values.back());
    tasks.close();
    for (uint32_t g = 0; g < groups; ++g) {
      std::vector<uint32_t>& devices = allowed.emplace_back();
      for (uint32_t d = 0; d < device_count; ++d)
        if (draw(4) > 0) devices.push_back(d);
      if (devices.empty() || draw(3) == 0) {
        devices.clear();
        for (uint32_t d = 0; d < device_count; ++d) devices.push_back(d);
      }
      if (draw(10) == 0) devices = {devices[draw(static_cast<uint32_t>(devices.size()))]};
    }
  }
  uint32_t draw(uint32_t below) { return static_cast<uint32_t>(random() % below); }

  std::mt19937 random;
  TaskGraph tasks;
  Cluster cluster;
  std::vector<std::vector<uint32_t>> allowed;
};

/// Everything on `device` that may be there, the rest on the first that it may be on.
std::vector<uint32_t> together(const RandomStep& s, uint32_t device) {
  std::vector<uint32_t> out;
  for (uint32_t t = 0; t < s.tasks.size(); ++t) {
    const auto& devices = s.allowed[s.tasks.task(t).group];
    out.push_back(std::ranges::find(devices, device) != devices.end() ? device : devices[0]);
  }
  return out;
}

const char* const kNames[] = {
    "/job:localhost/replica:0/task:0/device:sim:0", "/job:localhost/replica:0/task:0/device:sim:1",
    "/job:localhost/replica:0/task:0/device:sim:2", "/job:localhost/replica:0/task:0/device:sim:3"};

PlacementOptions devices(int count, DeviceRates rates = {}) {
  PlacementOptions out;
  for (int i = 0; i < count; ++i) out.devices.push_back({kNames[i], rates});
  return out;
}

struct Placed : test::PassFixture {
  Output matrix(const std::string& name, int64_t n = 256) { return placeholder(name, PartialShape{n, n}); }
  Output product(const Scope& scope, Output a, Output b) { return scope.op("MatMul", {a, b}); }
  Placement run(std::vector<Output> fetches, const PlacementOptions& options, std::vector<Output> fed = {}) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    auto placed = place(graph, fed, fetches, {}, options);
    INFO((placed.ok() ? "" : placed.error().str()));
    REQUIRE(placed.ok());
    return std::move(*placed);
  }
  static const NodePlacement& of(const Placement& p, Output o) {
    const auto at = std::ranges::find(p.nodes, o.node, &NodePlacement::node);
    REQUIRE(at != p.nodes.end());
    return *at;
  }
};

}  // namespace

TEST_CASE("placement by cost respects constraints and groups, is the same each time, and never worse than one device") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const uint32_t device_count = 1 + seed % 5, classes = 1 + seed % std::min(3u, device_count);
    const double limit = seed % 4 == 3 ? 20'000 : 0;
    const RandomStep s(seed, 10 + 3 * seed, device_count, classes, limit);
    INFO("seed " << seed);
    const Assignment a = assign(s.tasks, s.cluster, s.allowed, 20'000);
    std::vector<uint32_t> device_of_group(s.allowed.size(), UINT32_MAX);
    for (uint32_t t = 0; t < s.tasks.size(); ++t) {
      const uint32_t group = s.tasks.task(t).group, device = a.device_of[t];
      CHECK(std::ranges::count(s.allowed[group], device) == 1);
      CHECK((device_of_group[group] == UINT32_MAX || device_of_group[group] == device));
      device_of_group[group] = device;
    }
    CHECK(assign(s.tasks, s.cluster, s.allowed, 20'000).device_of == a.device_of);
    Simulator simulator(s.tasks, s.cluster);
    CHECK(simulator.run(a.device_of).step_ns == a.schedule.step_ns);
    // One device of each class stands for the others of it; where groups are bound, for that with most of them.
    const bool bound = std::ranges::any_of(s.allowed, [&](const auto& d) { return d.size() < device_count; });
    for (uint32_t d = 0; d < (bound ? 0 : device_count); ++d)
      CHECK_FALSE(simulator.run(together(s, d)).better_than(a.schedule));
    // Schedules are possible ones.
    double ends = 0, works = 0;
    for (uint32_t t = 0; t < s.tasks.size(); ++t) {
      ends = std::max(ends, a.schedule.finish_ns[t]);
      works += s.tasks.task(t).ns[s.cluster.class_of[a.device_of[t]]];
      for (const uint32_t v : s.tasks.inputs(t))
        CHECK(a.schedule.start_ns[t] >= a.schedule.finish_ns[s.tasks.value(v).producer]);
    }
    CHECK(a.schedule.step_ns >= ends);
    CHECK(works == Approx(std::accumulate(a.schedule.busy_ns.begin(), a.schedule.busy_ns.end(), 0.0)));
  }
}

TEST_CASE("branches without a common input go to devices of their own") {
  Placed p;
  std::vector<Output> fetches;
  for (int i = 0; i < 4; ++i) {
    Output x = p.matrix(fmt::format("x{}", i));
    for (int k = 0; k < 3; ++k) x = p.product(p.s, x, x);
    fetches.push_back(x);
  }
  std::vector<Output> fed;
  for (size_t i = 0; i < fetches.size(); ++i) fed.push_back(p.graph.find(fmt::format("x{}", i))->out());
  const PlacementOptions four = devices(4);
  const Placement placed = p.run(fetches, four, fed);
  std::set<uint32_t> used;
  for (const Output& f : fetches) {
    used.insert(Placed::of(placed, f).device);
    const Node* from = f.node->inputs()[0].node;
    CHECK(Placed::of(placed, from->out()).device == Placed::of(placed, f).device);
  }
  CHECK(used.size() == 4);
  CHECK(placed.links.empty());
  CHECK(placed.step_ns == Approx(p.run(fetches, devices(1), fed).step_ns / 4));
  CHECK(placed.critical_path.size() == 3);
}

TEST_CASE("a chain stays on one device, with its variable and what costs nothing") {
  Placed p;
  const Output x = p.matrix("x");
  const Output handle = p.s.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{256, 256}}});
  const Output read = p.s.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}});
  const Output y = p.product(p.s, x, p.s.op("Identity", {read}));
  const Output z = p.product(p.s, p.s.op("Reshape", {y, p.s.constant(Tensor::of<int32_t>({-1, 256}))}), read);
  const Node* update = p.s.node("ResourceApplyGradientDescent", {handle, p.s.constant(0.1f), z});
  REQUIRE(p.s.ok());
  auto placed = place(p.graph, std::span(&x, 1), {}, std::span(&update, 1), devices(4));
  REQUIRE(placed.ok());
  for (const NodePlacement& n : placed->nodes) {
    INFO(n.node->name());
    CHECK(n.device == placed->nodes[0].device);
    CHECK(n.why != PlacedBy::kHand);
  }
  CHECK(placed->links.empty());
  CHECK(placed->peak_bytes[placed->nodes[0].device] ==
        Approx(3 * 256 * 256 * 4).epsilon(1e-3));  // the variable, y and z
}

TEST_CASE("placement keeps to what nodes ask for and says why each is where it is") {
  Placed p;
  const Output x = p.matrix("x"), w = p.s.constant(Tensor::zeros(DType::kFloat32, {256, 256}).value());
  const Output a = p.product(p.s.device("/sim:2"), x, w);
  const Output b = p.product(p.s.colocate(a.node), a, w);
  const Output c = p.product(p.s, x, w), d = p.product(p.s.device("/sim:*"), c, c);
  PlacementOptions options = devices(4);
  options.alternatives = true;
  const Placement placed = p.run({b, d}, options, {x});
  CHECK(Placed::of(placed, a).device == 2);
  CHECK(Placed::of(placed, a).why == PlacedBy::kConstraint);
  CHECK(Placed::of(placed, b).device == 2);
  CHECK(Placed::of(placed, b).why == PlacedBy::kColocation);
  CHECK(Placed::of(placed, b).with == a.node);
  CHECK(std::isinf(Placed::of(placed, b).finish_on[0]));
  CHECK(Placed::of(placed, w).why == PlacedBy::kCopied);
  const NodePlacement& free = Placed::of(placed, c);
  CHECK(free.device != 2);
  CHECK(free.why == PlacedBy::kSoonest);
  REQUIRE(free.finish_on.size() == 4);
  CHECK(free.finish_on[free.device] == free.finish_ns);
  for (const double other : free.finish_on) CHECK(other >= free.finish_ns);
  CHECK(Placed::of(placed, d).why == PlacedBy::kColocation);  // a chain
  CHECK(Placed::of(placed, d).with == c.node);
  CHECK(free.finish_on[2] > free.finish_ns);  // a and b are there
}

TEST_CASE("what has no kernel on a kind of device is placed elsewhere, and says so") {
  Placed p;
  const Output x = p.matrix("x");
  const Scope gpu = p.s.device("/gpu:0");
  const Output a = p.product(gpu, x, x), b = gpu.op("Relu", {a}), c = p.product(gpu, b, x);
  PlacementOptions options = devices(2);
  options.devices[0].name = "/job:localhost/replica:0/task:0/device:cpu:0";
  options.devices[1].name = "/job:localhost/replica:0/task:0/device:gpu:0";
  options.placing = GENERATE(Placing::kByHand, Placing::kByCost);
  options.soft = true;
  options.has_kernel = [](const Node& node, const std::string& kind) {
    return kind != "gpu" || node.op().name() != "Relu";
  };
  const Placement placed = p.run({c}, options, {x});
  CHECK(Placed::of(placed, a).device == 1);
  CHECK(Placed::of(placed, a).lacks.empty());
  CHECK(Placed::of(placed, b).device == 0);
  CHECK(Placed::of(placed, b).lacks == std::vector<std::string>{"gpu"});
  CHECK(Placed::of(placed, c).device == 1);
}

TEST_CASE("by hand, placement simulates what the nodes ask for") {
  Placed p;
  const Output x = p.matrix("x");
  const Output a = p.product(p.s, x, x), b = p.product(p.s.device("/sim:1"), a, a);
  PlacementOptions options = devices(2);
  options.placing = Placing::kByHand;
  options.link = {.bandwidth = 1e9, .latency_ns = 1000};
  const Placement placed = p.run({b}, options, {x});
  CHECK(Placed::of(placed, a).device == 0);
  CHECK(Placed::of(placed, a).why == PlacedBy::kHand);
  CHECK(Placed::of(placed, b).why == PlacedBy::kConstraint);
  REQUIRE(placed.links.size() == 1);
  CHECK(placed.links[0].from == 0);
  CHECK(placed.links[0].to == 1);
  CHECK(placed.links[0].transfers == 1);
  CHECK(placed.links[0].bytes == 256 * 256 * 4);
  const double product = Placed::of(placed, a).estimated_ns;
  CHECK(product == Approx(500 + 2.0 * 256 * 256 * 256 / 50e9 * 1e9));
  CHECK(placed.step_ns == Approx(2 * product + 1000 + 256 * 256 * 4));
  CHECK(placed.critical_path == std::vector<const Node*>{a.node, b.node});
}

TEST_CASE("links are between groups of devices, and as one mean") {
  const LinkRates near = {.bandwidth = 4e9, .latency_ns = 10}, far = {.bandwidth = 1e9, .latency_ns = 1000};
  const Links alike(near);
  CHECK(alike.all_alike());
  CHECK(alike.between(0, 7).latency_ns == 10);
  CHECK(alike.mean().bandwidth == 4e9);
  Links links({0, 0, 1}, near);
  links.set(0, 1, far);
  links.set(0, 9, {});  // no device is there
  CHECK_FALSE(links.all_alike());
  CHECK(links.between(0, 1).latency_ns == 10);
  CHECK(links.between(1, 2).latency_ns == 1000);
  CHECK(links.between(2, 1).latency_ns == 10);  // the other way was not told
  CHECK(links.between(5, 2).bandwidth == 1e9);
  // Of six pairs two are far.
  CHECK(links.mean().latency_ns == Approx((4 * 10 + 2 * 1000) / 6.0));
  CHECK(links.mean().bandwidth == Approx(6 / (4 / 4e9 + 2 / 1e9)));
}

TEST_CASE("work goes to the device over the faster link, and none over a link that is too slow") {
  Placed p;
  const Output x = p.matrix("x");
  const Output a = p.product(p.s.device("/sim:0"), x, x);
  const Output b = p.product(p.s, a, x), c = p.product(p.s, x, a), d = p.s.op("AddV2", {b, c});
  PlacementOptions options = devices(3);
  const LinkRates fast = {.bandwidth = 1e12, .latency_ns = 10}, slow = {.bandwidth = 1e6, .latency_ns = 10};
  const auto with = [&](const LinkRates& to_1, const LinkRates& to_2) {
    Links links({0, 1, 2}, fast);
    for (const auto& [group, rates] : {std::pair(1u, to_1), std::pair(2u, to_2)})
      links.set(0, group, rates), links.set(group, 0, rates);
    links.set(1, 2, slow), links.set(2, 1, slow);
    options.links = links;
    return p.run({d}, options, {x});
  };
  const auto used = [&](const Placement& placed, uint32_t device) {
    return std::ranges::any_of(placed.nodes, [&](const NodePlacement& n) { return n.device == device; });
  };
  const Placement first = with(fast, slow), second = with(slow, fast), neither = with(slow, slow);
  CHECK((used(first, 1) && !used(first, 2)));
  CHECK((used(second, 2) && !used(second, 1)));
  CHECK((!used(neither, 1) && !used(neither, 2)));
  CHECK(first.step_ns == Approx(second.step_ns));
  CHECK(neither.step_ns > first.step_ns);
}

TEST_CASE("measured costs count before estimates") {
  Placed p;
  const Output x = p.matrix("x", 8);
  const Output a = p.product(p.s.named("a"), x, x), b = p.product(p.s.named("b"), x, x);
  CostModel costs;
  PlacementOptions options = devices(2);
  options.costs = &costs;
  // By the estimates a transfer is dearer than another product.
  CHECK(Placed::of(p.run({p.s.op("AddN", {a, b})}, options, {x}), a).device ==
        Placed::of(p.run({p.s.op("AddN", {a, b})}, options, {x}), b).device);
  costs.add("a", "sim", 1e6, 256);
  costs.add("b", "sim", 1e6, 256);
  const Placement placed = p.run({p.s.op("AddN", {a, b})}, options, {x});
  CHECK(Placed::of(placed, a).device != Placed::of(placed, b).device);
  CHECK(Placed::of(placed, a).measured_ns == 1e6);
  CHECK(placed.step_ns < 1.1e6);
  CostModel of_cpu;  // which counts for simulated devices too, and is told
  of_cpu.add("a", "cpu", 2e6, 256);
  options.costs = &of_cpu;
  const Placement by_cpu = p.run({a}, options, {x});
  CHECK(Placed::of(by_cpu, a).measured_ns == 2e6);
  CHECK(by_cpu.step_ns == Approx(2e6));
}

TEST_CASE("placement respects the memory of devices") {
  Placed p;
  std::vector<Output> parts;
  for (int i = 0; i < 4; ++i) {
    const Output handle = p.s.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{512, 512}}});
    parts.push_back(p.s.op("Sum", {p.s.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}}),
                                   p.s.constant(Tensor::of<int32_t>({0, 1}))}));
  }
  const Output sum = p.s.op("AddN", parts);
  PlacementOptions options = devices(4);
  options.link.latency_ns = 1e9;  // so that time is for one device
  CHECK(p.run({sum}, options).links.empty());
  for (PlacementDevice& d : options.devices) d.rates.memory = 512 * 512 * 4 + 1000;  // one variable each
  const Placement placed = p.run({sum}, options);
  CHECK(placed.excess_bytes == 0);
  std::set<uint32_t> used;
  for (const Output& part : parts) used.insert(Placed::of(placed, part).device);
  CHECK(used.size() == 4);
  CHECK(check_memory(options.devices, placed.peak_bytes).ok());
  for (PlacementDevice& d : options.devices) d.rates.memory = 1000;
  const Placement too_large = p.run({sum}, options);
  CHECK(too_large.excess_bytes > 0);
  const Status fits = check_memory(options.devices, too_large.peak_bytes);
  REQUIRE_FALSE(fits.ok());
  CHECK(fits.error().code == Code::kResourceExhausted);
  for (size_t d = 0; d < options.devices.size(); ++d) {
    const std::string lack = fmt::format("{} needs {:.0f} bytes and has 1000", kNames[d], too_large.peak_bytes[d]);
    CHECK((fits.error().message.find(lack) != std::string::npos) == (too_large.peak_bytes[d] > 1000));
  }
}

TEST_CASE("a loop is on one device, and a graph with branches can be placed") {
  Placed p;
  const Output x = p.matrix("x", 64), n = p.s.constant(3.f);
  const Outputs out = while_loop(
      p.s, {p.s.constant(0.f), x},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], n});
      },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), s.op("MatMul", {v[1], v[1]})};
      });
  const Output branch = cond(
      p.s, p.s.op("Less", {n, p.s.constant(4.f)}), [&](const Scope& s) { return Outputs{s.op("Neg", {out[1]})}; },
      [&](const Scope& s) { return Outputs{s.op("Square", {out[1]})}; })[0];
  const Placement placed = p.run({branch, p.product(p.s, x, x)}, devices(3), {x});
  std::set<uint32_t> used;
  for (const NodePlacement& node : placed.nodes)
    if (node.node->op().name() == "MatMul" && node.node->inputs()[0] != x) used.insert(node.device);
    else if (node.node->op().control_flow() == ControlFlow::kNextIteration) used.insert(node.device);
  CHECK(used.size() == 1);
}

TEST_CASE("placement refuses what makes no sense, by name and value") {
  Placed p;
  const Output x = p.matrix("x"), y = p.product(p.s, x, x);
  const auto error = [&](const PlacementOptions& options, Output fetch) {
    auto placed = place(p.graph, std::span(&x, 1), std::span(&fetch, 1), {}, options);
    REQUIRE_FALSE(placed.ok());
    return placed.error().str();
  };
  CHECK_THAT(error({}, y), Contains("no devices"));
  PlacementOptions options = devices(2);
  options.devices[1].name = options.devices[0].name;
  CHECK_THAT(error(options, y), Contains("twice") && Contains("sim:0"));
  options = devices(2);
  options.devices[1].name = "/cpu:1";
  CHECK_THAT(error(options, y), Contains("/cpu:1") && Contains("full"));
  options = devices(2, {.flops = 0});
  CHECK_THAT(error(options, y), Contains("FLOP/s"));
  options = devices(2);
  options.link.bandwidth = -1;
  CHECK_THAT(error(options, y), Contains("link"));
  options.links = Links({0, 1}, {});
  options.links->set(1, 0, {.bandwidth = 0});
  CHECK_THAT(error(options, y), Contains("a link of 0 B/s"));
  options.links.reset();
  CHECK_THAT(error(devices(2), p.product(p.s.device("/gpu:0").named("far"), x, x)),
             Contains("far") && Contains("sim:1"));
}

TEST_CASE("placement refuses what is empty or of another graph") {
  Placed p, other;
  const Output x = p.matrix("x"), y = p.product(p.s, x, x), theirs = other.matrix("x"), none, beyond = {y.node, 7};
  const Node *target = y.node, *their_target = theirs.node, *no_target = nullptr;
  const auto error = [&](const Output& fed, const Output& fetch, const Node* const& node) {
    const auto placed = place(p.graph, std::span(&fed, 1), std::span(&fetch, 1), std::span(&node, 1), devices(2));
    return placed.ok() ? std::string("placed") : placed.error().str();
  };
  CHECK(error(x, y, target) == "placed");
  CHECK_THAT(error(none, y, target), Contains("an empty output cannot be fed"));
  CHECK_THAT(error(x, none, target), Contains("an empty output cannot be fetched"));
  CHECK_THAT(error(x, y, no_target), Contains("an empty node cannot be a target"));
  CHECK_THAT(error(theirs, y, target), Contains("cannot be fed: it is of another graph"));
  CHECK_THAT(error(x, theirs, target), Contains("cannot be fetched: it is of another graph"));
  CHECK_THAT(error(x, y, their_target), Contains("cannot be a target: it is of another graph"));
  CHECK_THAT(error(x, beyond, target), Contains("no number 7 to be fetched"));
}

TEST_CASE("placement refuses rates that are not numbers, wherever they are, and a device written in two ways") {
  Placed p;
  const Output x = p.matrix("x"), y = p.product(p.s, x, x);
  const auto refused = [&](const PlacementOptions& options) {
    const auto placed = place(p.graph, std::span(&x, 1), std::span(&y, 1), {}, options);
    return !placed.ok() && placed.error().code == Code::kInvalidArgument;
  };
  REQUIRE_FALSE(refused(devices(2)));
  for (const double bad : {std::nan(""), -1., -std::numeric_limits<double>::infinity()}) {
    for (double DeviceRates::*rate : {&DeviceRates::flops, &DeviceRates::memory_bandwidth, &DeviceRates::launch_ns}) {
      PlacementOptions options = devices(2);
      options.devices[1].rates.*rate = bad;
      CHECK(refused(options));
    }
    for (double LinkRates::*rate : {&LinkRates::bandwidth, &LinkRates::latency_ns}) {
      PlacementOptions options = devices(2);
      options.link.*rate = bad;
      CHECK(refused(options));
    }
  }
  PlacementOptions options = devices(2);
  options.devices[1].rates.memory = -1;
  CHECK(refused(options));
  for (const char* name : {"", "/", "/job:localhost/replica:0/task:0/device:SIM:0"}) {
    options = devices(2);
    options.devices[1].name = name;
    INFO(name);
    CHECK(refused(options));
  }
}

TEST_CASE("memory is checked as far as there are devices and peaks") {
  const PlacementOptions options = devices(2, {.memory = 10});
  const double peaks[] = {11, 10, 99};
  const Status lacks = check_memory(options.devices, peaks);
  REQUIRE_FALSE(lacks.ok());
  CHECK_THAT(lacks.error().message, Contains("sim:0 needs 11 bytes and has 10") && !Contains("sim:1"));
  CHECK(check_memory(options.devices, std::span(peaks).subspan(1, 1)).ok());
  CHECK(check_memory({}, peaks).ok());
  const double unknown[] = {std::nan(""), std::numeric_limits<double>::infinity()};
  CHECK_THAT(check_memory(options.devices, unknown).error().message, Contains("sim:1") && !Contains("sim:0"));
}
