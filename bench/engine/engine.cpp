// SPDX-License-Identifier: Apache-2.0
// What the engine itself costs: a node, an empty step, small variables, large graphs. Prints one Markdown table.
// Medians over repeated runs; "kernel" is the same kernel on the same tensors in a plain loop.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <caf/all.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <random>
#include <thread>

#include "bench/turns.h"
#include "programs/program.h"
#include "troupe/control_flow.h"
#include "troupe/embed.h"
#include "troupe/graph_def.h"
#include "troupe/scope.h"

namespace {

using namespace troupe;
using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point t) { return std::chrono::duration<double, std::nano>(Clock::now() - t).count(); }

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

template <class F> double median_ns(int repeats, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const auto t = Clock::now();
    f();
    times.push_back(ns_since(t));
  }
  return median(std::move(times));
}

/// Ends the program with the error, if there is one.
template <class T> T must(Result<T> r) {
  if (!r.ok()) {
    std::fprintf(stderr, "bench_engine: %s\n", r.error().str().c_str());
    std::exit(1);
  }
  return std::move(r).value();
}

std::unique_ptr<Engine> make_engine(int threads) { return must(Engine::create({.cpu_threads = {threads}})); }

enum class Kind { kChain, kLayers, kRandom };

/// `n` scalar additions; returns what depends on all ends of them.
Output build(const Scope& s, Kind kind, int n, Output x) {
  std::vector<Output> nodes = {x};
  std::mt19937 random(1);
  std::vector<Output> layer(100, x);
  Output last = x;
  for (int i = 0; i < n; ++i) {
    Output a = last, b = x;
    if (kind == Kind::kLayers) {
      if (i % 100 == 0 && i > 0) layer.assign(nodes.end() - 100, nodes.end());
      a = layer[static_cast<size_t>(i % 100)];
      b = layer[static_cast<size_t>((i * 7 + 1) % 100)];
    } else if (kind == Kind::kRandom) {
      a = nodes[random() % nodes.size()];
      b = nodes[random() % nodes.size()];
    }
    last = s.op("AddV2", {a, b});
    nodes.push_back(last);
  }
  return last;
}

/// Every node runs: those nobody reads are targets.
std::vector<const Node*> ends(const Graph& graph, int from) {
  std::vector<char> read(static_cast<size_t>(graph.size()), 0);
  for (int i = 0; i < graph.size(); ++i)
    for (const Output& in : graph.node(i).inputs()) read[static_cast<size_t>(in.node->id())] = 1;
  std::vector<const Node*> out;
  for (int i = from; i < graph.size(); ++i)
    if (!read[static_cast<size_t>(i)]) out.push_back(&graph.node(i));
  return out;
}

Output scalar_placeholder(const Scope& s) {
  return s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
}

/// The same kernel on the same tensors in a plain loop: each sum is made in the order of building and goes when its
/// last reader has run.
double kernel_ns(Engine& engine, const Graph& graph) {
  const Node& first = graph.node(1);
  KernelInit init{first.op().name(),   first.name(),
                  &first.attrs(),      {DType::kFloat32, DType::kFloat32},
                  {DType::kFloat32},   {PartialShape::scalar(), PartialShape::scalar()},
                  {Tensor(), Tensor()}};
  auto kernel = must(engine.kernels().make(init, DeviceKind::kCpu));
  auto* compute = dynamic_cast<ComputeKernel*>(kernel.get());
  DeviceInfo device{"/device:cpu:0", DeviceKind::kCpu, 1, make_caching_allocator()};
  const auto n = static_cast<size_t>(graph.size());
  std::vector<uint32_t> inputs(2 * n);
  std::vector<int32_t> readers(n, 0);
  for (size_t i = 1; i < n; ++i)
    for (size_t k = 0; k < 2; ++k) {
      inputs[2 * i + k] = static_cast<uint32_t>(graph.node(static_cast<int>(i)).inputs()[k].node->id());
      ++readers[inputs[2 * i + k]];
    }
  std::vector<Tensor> values(n);
  std::vector<int32_t> uses;
  return median_ns(21,
                   [&] {
                     uses = readers;
                     values[0] = Tensor::scalar(1.f);
                     for (size_t i = 1; i < n; ++i) {
                       KernelContext context(values.data(), uses.data(), &inputs[2 * i], 2, static_cast<uint32_t>(i), 1,
                                             device, 0);
                       if (!compute->compute(context).ok()) std::exit(1);
                       for (size_t k = 0; k < 2; ++k)
                         if (--uses[inputs[2 * i + k]] == 0) values[inputs[2 * i + k]] = Tensor();
                       if (uses[i] == 0) values[i] = Tensor();
                     }
                   }) /
         static_cast<double>(n - 1);
}

void node_rows(int n) {
  auto engine = make_engine(1);
  for (auto [kind, name] : {std::pair(Kind::kChain, "chain"), std::pair(Kind::kLayers, "layers 100 wide"),
                            std::pair(Kind::kRandom, "random DAG")}) {
    Graph graph(engine->ops());
    const Scope s(graph);
    const Output x = scalar_placeholder(s);
    build(s, kind, n, x);
    const double kernel = kernel_ns(*engine, graph);
    Session session(*engine, graph, {.passes = GraphPasses::none()});  // every node runs as it was written
    auto prepared = must(session.prepare({x}, {}, ends(graph, 1)));
    const Tensor one = Tensor::scalar(1.f);
    for (int i = 0; i < 5; ++i) must(session.run(prepared, {one}));
    const double step = median_ns(21, [&] { must(session.run(prepared, {one})); }) / n;
    std::printf("| node, %s of %dk scalar adds | %.0f ns (step %.0f, kernel alone %.0f) | 100 ns | %s |\n", name,
                n / 1000, step - kernel, step, kernel, step - kernel <= 100 ? "yes" : "NO");
    std::fflush(stdout);
  }
}

void empty_step_rows(int n) {
  auto engine = make_engine(1);
  Graph graph(engine->ops());
  const Node* nothing = Scope(graph).node("NoOp", {});
  Session session(*engine, graph);
  auto prepared = must(session.prepare({}, {}, {nothing}));
  must(session.run(prepared));
  const double thread = median_ns(n, [&] { must(session.run(prepared)); }) / 1000;

  std::promise<double> answer;
  actor_system(*engine).spawn([&](caf::event_based_actor* self) -> caf::behavior {
    const auto me = caf::actor_cast<caf::actor>(self);
    auto begin = std::make_shared<Clock::time_point>(Clock::now());
    auto times = std::make_shared<std::vector<double>>();
    run_step(session, prepared, {}, me);
    return {[&, self, me, begin, times, n](const StepDone&) {
      times->push_back(ns_since(*begin));
      if (static_cast<int>(times->size()) == n) {
        answer.set_value(median(*times) / 1000);
        self->quit();
        return;
      }
      *begin = Clock::now();
      run_step(session, prepared, {}, me);
    }};
  });
  const double actor = answer.get_future().get();
  std::printf("| empty step, called from an actor | %.1f us | 10 us | %s |\n", actor, actor <= 10 ? "yes" : "NO");
  std::printf("| empty step, called from a thread | %.1f us | 150 us | %s |\n", thread, thread <= 150 ? "yes" : "NO");
  std::fflush(stdout);
}

/// Processor time of an engine of two devices that has run a step and now does nothing.
void idle_row(double seconds) {
  auto engine = must(Engine::create({.cpu_threads = {1, 1}}));
  Graph graph(engine->ops());
  const Node* nothing = Scope(graph).node("NoOp", {});
  Session session(*engine, graph);
  must(session.run(std::vector<Feed>{}, {}, {nothing}));
  std::vector<double> shares;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t used = std::clock();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds / 5));
    shares.push_back(100 * static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC / (seconds / 5));
  }
  const double share = median(shares);
  std::printf("| idle engine of two devices | %.2f %% of a core | 0.5 %% | %s |\n", share, share <= 0.5 ? "yes" : "NO");
  std::fflush(stdout);
}

void variable_row(int repeats) {
  constexpr int kVariables = 100, kFloats = 64;
  auto engine = make_engine(1);
  Graph graph(engine->ops());
  const Scope s(graph);
  std::vector<const Node*> init, update;
  // Small, so that no number of steps brings the variables near denormal numbers, which are slow by themselves.
  constexpr float kRate = 1e-6f;
  const Output rate = s.constant(kRate);
  for (int i = 0; i < kVariables; ++i) {
    const Output handle = s.named(fmt::format("v{}", i))
                              .op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{kFloats}}});
    const auto ones = std::vector<float>(kFloats, 1.f);
    init.push_back(s.node("AssignVariableOp", {handle, s.constant(Tensor::of<float>(std::span(ones)))}));
    const Output read = s.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}});
    update.push_back(s.node("AssignSubVariableOp", {handle, s.op("Mul", {read, rate})}));
  }
  Session session(*engine, graph);
  must(session.run(std::vector<Feed>{}, {}, init));
  auto prepared = must(session.prepare({}, {}, update));
  for (int i = 0; i < 20; ++i) must(session.run(prepared));

  // The time inside the engine: steps one after another, each begun by the end of the one before.
  std::promise<double> answer;
  auto begin = Clock::now();
  std::vector<double> times;
  std::function<void(RunResult)> next = [&](RunResult) {
    times.push_back(ns_since(begin));
    if (static_cast<int>(times.size()) == repeats) {
      answer.set_value(median(times) / 1000);
      return;
    }
    begin = Clock::now();
    session.run_async(prepared, {}, next);
  };
  session.run_async(prepared, {}, next);
  const double step = answer.get_future().get();

  std::vector<std::vector<float>> plain(kVariables, std::vector<float>(kFloats, 1.f)), products = plain;
  const double arithmetic = median_ns(201,
                                      [&] {
                                        for (int i = 0; i < kVariables; ++i) {
                                          for (int k = 0; k < kFloats; ++k) products[i][k] = plain[i][k] * kRate;
                                          for (int k = 0; k < kFloats; ++k) plain[i][k] -= products[i][k];
                                        }
                                      }) /
                            1000;
  std::printf(
      "| step that reads and updates %d variables of %d floats | %.1f us over the arithmetic (%.1f us) | 100 us | %s "
      "|\n",
      kVariables, kFloats, step - arithmetic, arithmetic, step - arithmetic <= 100 ? "yes" : "NO");
  std::fflush(stdout);
}

/// A loop that only counts, beside TensorFlow's where `peer`, a shell command, prints its times.
void loop_row(int iterations, const std::string& peer) {
  auto engine = make_engine(1);
  Graph graph(engine->ops());
  const Scope s(graph);
  const Output limit = scalar_placeholder(s);
  const auto last = while_loop(
      s, {s.constant(0.f)},
      [&](const Scope& in, const std::vector<Output>& v) {
        return in.op("Less", {v[0], limit});
      },
      [](const Scope& in, const std::vector<Output>& v) {
        return std::vector<Output>{in.op("AddV2", {v[0], in.constant(1.f)})};
      });
  Session session(*engine, graph);
  auto prepared = must(session.prepare({limit}, {last.at(0)}, {}));
  const Tensor count = Tensor::scalar(static_cast<float>(iterations));
  must(session.run(prepared, {count}));
  const double ns = median_ns(5, [&] { must(session.run(prepared, {count})); }) / iterations;
  const std::vector<double> theirs = bench::measure(fmt::format("{} {}", peer, iterations));
  const std::string beside = theirs.size() < 2 ? "TensorFlow is not installed"
                                               : fmt::format(
                                                     "TensorFlow {:.0f} ns in a graph of the 1.x API, {:.0f} ns in a "
                                                     "tf.function",
                                                     theirs[0], theirs[1]);
  std::printf("| while loop that counts, %d iterations | %.0f ns an iteration (%s) | 300 ns | %s |\n", iterations, ns,
              beside.c_str(), ns <= 300 ? "yes" : "NO");
  std::fflush(stdout);
}

void large_graph_rows(int largest) {
  for (int n = largest / 100; n <= largest; n *= 10) {
    auto engine = make_engine(1);
    Graph graph(engine->ops());
    const Scope s(graph);
    const Output x = scalar_placeholder(s);
    auto t = Clock::now();
    build(s, Kind::kRandom, n, x);
    const double building = ns_since(t);
    const std::string bytes = to_graph_def(graph);
    Graph loaded(engine->ops());
    t = Clock::now();
    if (Status status = from_graph_def(bytes, loaded); !status.ok()) must(Result<int>(std::move(status)));
    const double loading = ns_since(t);
    const auto prepare = [&](Session& session, double& ns) {
      const std::vector<Output> feeds = {must(loaded.output(x.name()))};
      const std::vector<const Node*> targets = ends(loaded, 1);
      t = Clock::now();
      auto prepared = must(session.prepare(feeds, {}, targets));
      ns = ns_since(t);
      return prepared;
    };
    double as_written = 0, planning = 0;
    {
      Session session(*engine, loaded, {.passes = GraphPasses::none()});
      prepare(session, as_written);
    }
    Session session(*engine, loaded);
    auto prepared = prepare(session, planning);
    t = Clock::now();
    must(session.run(prepared, {Tensor::scalar(1.f)}));
    const double first = ns_since(t);
    std::printf(
        "| graph of %d nodes, a node | build %.0f ns, load %.0f ns (%.0f MB of GraphDef), plan %.0f ns (without passes "
        "%.0f), first step %.0f ns | linear | %.2f s in all |\n",
        n, building / n, loading / n, static_cast<double>(bytes.size()) / 1e6, planning / n, as_written / n, first / n,
        (building + loading + planning + first) / 1e9);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures what Troupe's engine costs beside the kernels; prints a Markdown table.");
  int nodes = 100'000, steps = 2'000, largest = 1'000'000;
  app.add_option("--nodes", nodes, "Scalar additions in a step")
      ->capture_default_str()
      ->check(CLI::Range(1000, 10'000'000));
  app.add_option("--steps", steps, "Small steps measured")->capture_default_str()->check(CLI::Range(10, 10'000'000));
  app.add_option("--largest", largest, "Nodes of the largest graph built and loaded")
      ->capture_default_str()
      ->check(CLI::Range(1000, 100'000'000));
  std::string only, python = "python3", peers = bench::peers_folder("engine");
  app.add_option("--python", python, "Python that may have TensorFlow")->capture_default_str();
  app.add_option("--peers", peers, "Folder of the peers' scripts")->capture_default_str();
  app.add_option("--only", only, "One question only [all]")
      ->check(CLI::IsMember({"nodes", "steps", "idle", "variables", "loop", "graphs"}));
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  const auto wanted = [&](const char* question) { return only.empty() || only == question; };
  std::printf("| question | measured (median) | must reach | reached |\n|---|---|---|---|\n");
  if (wanted("nodes")) node_rows(nodes);
  if (wanted("steps")) empty_step_rows(steps);
  if (wanted("idle")) idle_row(10);
  if (wanted("variables")) variable_row(steps);
  if (wanted("loop")) loop_row(1'000'000, fmt::format("'{}' '{}/peer_tensorflow.py'", python, peers));
  if (wanted("graphs")) large_graph_rows(largest);
  return programs::end({});
}
