// SPDX-License-Identifier: Apache-2.0
// Inference and training steps of networks (networks.h) beside PyTorch, as it is and compiled, TensorFlow, with XLA
// too, ONNX Runtime and OpenVINO; the peak of memory of ResNet-50; how long a process takes to its first answer from a
// file; and graphs that TensorFlow wrote beside the same networks built here. Each measurement is a process of its own;
// ours and the peers' take turns. Prints Markdown tables.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "bench/networks/networks.h"
#include "bench/turns.h"
#include "programs/program.h"
#include "troupe/graph_def.h"
#include "troupe/graph_file.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace {

using namespace troupe;
using Clock = std::chrono::steady_clock;

constexpr int kUncounted = 10;  // steps: a kernel keeps weights that stay the same after some

struct Settings {
  std::string self, python = "python3", peers = bench::peers_folder("networks");
  int repeats = 3, threads = 1;
  double seconds = 3;
  std::string passes = "default";
  bool frozen = false;
  std::string graph;  // a file to run in place of the network
  bool cold = false;  // only once
  std::string write;  // a file for the frozen network
};

/// Some values for an input: floats in [0, 1), words.
Result<Tensor> value_for(const Output& input) {
  TROUPE_ASSIGN(const Shape shape, Shape::make(input.shape().dims()));
  TROUPE_ASSIGN(Tensor value, Tensor::make(input.dtype(), shape));
  for (int64_t i = 0; i < value.elements(); ++i) {
    const int64_t n = i * 7919 % 1000;
    if (input.dtype() == DType::kInt32) value.mutable_data<int32_t>()[i] = static_cast<int32_t>(n);
    else if (input.dtype() == DType::kFloat32) value.mutable_data<float>()[i] = static_cast<float>(n) * 1e-3f;
    else return invalid_argument("input {} is {}", input.name(), to_string(input.dtype()));
  }
  return value;
}

const auto kBegun = Clock::now();

/// Examples a second, after steps that are not counted, for about as long as asked; cold: milliseconds from the
/// beginning of the process to the first answer.
Result<double> speed(Session& session, const std::vector<Output>& inputs, const std::vector<Output>& fetches,
                     const std::vector<const Node*>& targets, int64_t batch, const Settings& s) {
  std::vector<Tensor> values;
  for (const Output& input : inputs) {
    TROUPE_ASSIGN(Tensor value, value_for(input));
    values.push_back(std::move(value));
  }
  TROUPE_ASSIGN(auto prepared, session.prepare(inputs, fetches, targets));
  if (s.cold) {
    TROUPE_RETURN_IF_ERROR(session.run(prepared, values));
    return std::chrono::duration<double, std::milli>(Clock::now() - kBegun).count();
  }
  for (int i = 0; i < kUncounted; ++i) TROUPE_RETURN_IF_ERROR(session.run(prepared, values));
  int64_t steps = 0;
  const auto begin = Clock::now();
  double passed = 0;
  for (; passed < s.seconds; passed = std::chrono::duration<double>(Clock::now() - begin).count(), ++steps)
    TROUPE_RETURN_IF_ERROR(session.run(prepared, values));
  return static_cast<double>(steps * batch) / passed;
}

/// Measures the graph in a file: feeds its Placeholders, fetches what no node reads.
Result<double> run_file(int64_t batch, const Settings& s, const GraphPasses& passes) {
  TROUPE_ASSIGN(auto engine, Engine::create({.cpu_threads = {s.threads}}));
  Graph graph(engine->ops());
  TROUPE_RETURN_IF_ERROR(read_graph_def(s.graph, graph));
  std::vector<Output> inputs, fetches;
  std::set<const Node*> read;
  for (int id = 0; id < graph.size(); ++id)
    for (const Output& input : graph.node(id).inputs()) read.insert(input.node);
  for (int id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op().name() == "Placeholder") inputs.push_back(node.out());
    else if (!read.contains(&node) && node.num_outputs() > 0) fetches.push_back(node.out());
  }
  Session session(*engine, graph, {.passes = passes});
  return speed(session, inputs, fetches, {}, batch, s);
}

/// Makes `frozen` of what `fetches` need, with constants in place of the variables, which then go; writes it to the
/// file `write` too unless that is empty.
Status freeze(Engine& engine, const Graph& graph, const std::vector<Output>& fetches, const std::string& write,
              Graph& frozen) {
  std::string bytes;
  {
    TROUPE_ASSIGN(const Snapshot weights, engine.snapshot().get());
    TROUPE_ASSIGN(bytes, freeze_graph(graph, fetches, weights.variables));
  }
  engine.reset_container("");
  if (!write.empty() && !(std::ofstream(write, std::ios::binary) << bytes).flush())
    return make_error(Code::kUnavailable, "cannot write {}", write);
  return from_graph_def(bytes, frozen);
}

/// Makes a network and measures it.
Result<double> run(const std::string& net, bool training, int64_t batch, const Settings& s) {
  TROUPE_ASSIGN(const GraphPasses passes, GraphPasses::parse(s.passes));
  if (!s.graph.empty()) return run_file(batch, s, passes);
  TROUPE_ASSIGN(auto engine, Engine::create({.cpu_threads = {s.threads}}));
  Graph graph(engine->ops());
  const Scope scope(graph);
  nn::Variables variables;
  const bench::Network made = bench::make_network(net, scope, variables, batch, training);
  TROUPE_RETURN_IF_ERROR(scope.status());
  std::vector<Output> fetches = {made.logits};
  std::vector<const Node*> targets;
  if (training) {
    TROUPE_ASSIGN(const Tensor labels, Tensor::zeros(DType::kInt32, {made.logits.shape().dim(0)}));
    fetches = {nn::sparse_softmax_cross_entropy(scope, made.logits, scope.constant(labels))};
    targets.push_back(nn::minimize(scope, variables, nn::sgd(nn::constant_rate(0.01f)), fetches[0]));
  }
  TROUPE_RETURN_IF_ERROR(scope.status());
  Session session(*engine, graph, {.passes = passes});
  TROUPE_RETURN_IF_ERROR(session.run(std::vector<Feed>{}, {}, variables.initializers()));
  if (s.frozen && !training) {
    Graph frozen(engine->ops());
    TROUPE_RETURN_IF_ERROR(freeze(*engine, graph, fetches, s.write, frozen));
    Session other(*engine, frozen, {.passes = passes});
    const auto at = [&](const Output& o) { return frozen.find(o.node->name())->out(o.port); };
    std::vector<Output> inputs;
    for (const Output& input : made.inputs) inputs.push_back(at(input));
    return speed(other, inputs, {at(made.logits)}, {}, batch, s);
  }
  return speed(session, made.inputs, fetches, targets, batch, s);
}

std::string ours(const Settings& s, const std::string& net, const std::string& mode, int batch) {
  return fmt::format("'{}' --one {} --mode {} --batch {} --threads {} --seconds {} --passes {}{}", s.self, net, mode,
                     batch, s.threads, s.seconds, s.passes,
                     (s.frozen ? " --frozen" : "") + (s.graph.empty() ? "" : fmt::format(" --graph '{}'", s.graph)));
}

/// 1 and 32; of transformers 1 and 8, of the next word 1.
std::vector<int> batches(const std::string& net) {
  if (net == "gpt2_next") return {1};
  return {1, net == "bert" || net == "gpt2" ? 8 : 32};
}

/// A rival: its script, without .py, and what is given to that beside the measurement.
struct Peer {
  const char *name, *script, *flags;
  bool trains;
};
constexpr Peer kPeers[] = {
    {"PyTorch", "peer_pytorch", "", true},           {"compiled", "peer_pytorch", " --compiled", true},
    {"TensorFlow", "peer_tensorflow", "", true},     {"XLA", "peer_tensorflow", " --compiled", true},
    {"ONNX Runtime", "peer_onnxruntime", "", false}, {"OpenVINO", "peer_openvino", "", false}};

/// The numbers of ours, then of each peer; zeros where it is not installed or cannot do that.
std::vector<std::vector<double>> measure_all(const Settings& s, const std::string& net, const std::string& mode,
                                             int batch) {
  std::vector<std::string> commands = {ours(s, net, mode, batch)};
  for (const Peer& peer : kPeers)
    commands.push_back(!peer.trains && mode == "train"
                           ? "false"
                           : fmt::format("'{}' '{}/{}.py' {} {} {} {} {}{}", s.python, s.peers, peer.script, net, mode,
                                         batch, s.threads, s.seconds, peer.flags));
  return bench::rounds(s.repeats, 2, commands);
}

void speed_table(const Settings& s, const std::vector<std::string>& nets) {
  programs::print("| examples/s, {} thread{} | batch | Troupe", s.threads, s.threads == 1 ? "" : "s");
  for (const Peer& peer : kPeers) programs::print(" | {}", peer.name);
  programs::print(" | Troupe / fastest peer | at least 1.0 |\n|---|---|---");
  for (size_t i = 0; i < std::size(kPeers); ++i) programs::print("|---");
  programs::print("|---|---|\n");
  for (const char* mode : {"infer", "train"})
    for (const std::string& net : nets)
      for (const int batch : batches(net)) {
        if (std::string(mode) == "train" && batch == 1) continue;
        const auto n = measure_all(s, net, mode, batch);
        programs::print("| {}, {} | {}", net, mode, batch);
        double best = 0;
        for (const auto& numbers : n) {
          programs::print(" | {}", numbers[0] > 0 ? bench::show(numbers[0]) : "-");
          if (&numbers != n.data()) best = std::max(best, numbers[0]);
        }
        programs::print(" {}\n", bench::verdict(n[0][0], best, 0));
        std::fflush(stdout);
      }
}

/// Graphs that TensorFlow writes beside the same networks, as they are built here and frozen.
void imported_table(Settings s, const std::vector<std::string>& nets) {
  programs::print("\n| examples/s, {} thread{} | batch | imported | built | imported / built | at least 0.95 |\n",
                  s.threads, s.threads == 1 ? "" : "s");
  programs::print("|---|---|---|---|---|---|\n");
  s.frozen = true;
  const auto file = std::filesystem::temp_directory_path() / fmt::format("bench_networks_{}.pb", getpid());
  for (const std::string& net : nets)
    for (const int batch : batches(net)) {
      const std::string write = fmt::format("'{}' '{}/peer_tensorflow.py' {} infer {} {} 0 --graph '{}'", s.python,
                                            s.peers, net, batch, s.threads, file.string());
      bench::measure(write);
      Settings imported = s;
      imported.graph = file.string();
      const auto n = bench::rounds(s.repeats, 1, {ours(imported, net, "infer", batch), ours(s, net, "infer", batch)});
      programs::print("| {} | {} | {} | {} {}\n", net, batch, bench::show(n[0][0]), bench::show(n[1][0]),
                      bench::verdict(n[0][0], n[1][0], 0, 0.95));
      std::fflush(stdout);
      std::filesystem::remove(file);
    }
}

void memory_table(Settings s) {
  s.repeats = 1;
  programs::print("\n| ResNet-50, peak MiB | Troupe");
  for (const Peer& peer : kPeers) programs::print(" | {}", peer.name);
  programs::print(" |\n|---|---");
  for (size_t i = 0; i < std::size(kPeers); ++i) programs::print("|---");
  programs::print("|\n");
  for (const auto& [title, mode, batch] :
       {std::tuple("inference, batch 1", "infer", 1), {"training, batch 16", "train", 16}}) {
    programs::print("| {}", title);
    for (const auto& numbers : measure_all(s, "resnet", mode, batch))
      programs::print(" | {}", numbers.size() > 1 && numbers[1] > 0 ? bench::show(numbers[1]) : "-");
    programs::print(" |\n");
    std::fflush(stdout);
  }
}

/// Processes that read ResNet-50 from a file and answer once. The peer's time begins with the reading of its file: what
/// its interpreter takes does not count.
void cold_table(Settings s) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::string mine = (folder / fmt::format("bench_networks_{}.pb", getpid())).string();
  const std::string theirs = (folder / fmt::format("bench_networks_{}.onnx", getpid())).string();
  const std::string peer =
      fmt::format("'{}' '{}/peer_onnxruntime.py' resnet infer 1 {} 0", s.python, s.peers, s.threads);
  s.frozen = true;
  s.seconds = 0.1;
  bench::measure(ours(s, "resnet", "infer", 1) + fmt::format(" --write '{}'", mine));
  bench::measure(peer + fmt::format(" --graph '{}'", theirs));
  s.graph = mine;
  const auto n = bench::rounds(s.repeats, 2,
                               {ours(s, "resnet", "infer", 1) + " --cold", peer + fmt::format(" --cold '{}'", theirs)});
  programs::print(
      "\n| ResNet-50 from a file, one answer, {} thread{} | ms | peak MiB | at most the peer's |\n|---|---|---|---|\n",
      s.threads, s.threads == 1 ? "" : "s");
  const auto row = [&](const char* name, const std::vector<double>& numbers, const char* verdict) {
    const bool there = numbers.size() > 1 && numbers[0] > 0;
    programs::print("| {} | {} | {} | {} |\n", name, there ? bench::show(numbers[0]) : "-",
                    there ? bench::show(numbers[1]) : "-", verdict);
  };
  row("Troupe", n[0], n[1][0] <= 0 ? "-" : n[0][0] <= n[1][0] ? "yes" : "no");
  row("ONNX Runtime", n[1], "");
  std::filesystem::remove(mine);
  std::filesystem::remove(theirs);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures networks beside other engines; prints Markdown tables.");
  Settings s;
  s.self = argv[0];
  const std::vector<std::string> nets = {"lenet", "mobilenet", "resnet", "efficientnet",
                                         "lstm",  "bert",      "gpt2",   "gpt2_next"};
  std::string one, only, mode = "infer";
  std::vector<std::string> chosen = nets;
  int batch = 1;
  app.add_option("--python", s.python,
                 "Python that may have PyTorch, TensorFlow, ONNX Runtime (with onnx) and OpenVINO")
      ->capture_default_str();
  app.add_option("--peers", s.peers, "Folder of the peers' scripts")->capture_default_str();
  app.add_option("--repeats", s.repeats, "Rounds; medians are shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", s.seconds, "Time of one measurement")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--threads", s.threads, "Threads a kernel may use")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--passes", s.passes, "all, none or NAME,...: graph passes of ours [those on by default]")
      ->check([](const std::string& text) {
        const auto passes = GraphPasses::parse(text);
        return passes.ok() ? std::string() : passes.error().message;
      });
  app.add_flag("--frozen", s.frozen, "Ours infers from a frozen graph, whose variables are constants");
  app.add_option("--only", only, "One table only")->check(CLI::IsMember({"speed", "memory", "cold", "imported"}));
  app.add_option("--graph", s.graph, "With --one: run the graph in this file, a frozen GraphDef, in place of ours");
  app.add_option("--write", s.write, "With --one and --frozen: write the frozen graph to this file too");
  app.add_flag("--cold", s.cold, "With --one: one step only; prints the ms from the process's beginning to its answer");
  app.add_option("--nets", chosen, "Networks of the first table")->delimiter(',')->check(CLI::IsMember(nets));
  app.add_option("--one", one, "Measure one network in this process and print examples/s and peak MiB")
      ->check(CLI::IsMember(nets));
  app.add_option("--mode", mode, "With --one")->capture_default_str()->check(CLI::IsMember({"infer", "train"}));
  app.add_option("--batch", batch, "With --one")->capture_default_str()->check(CLI::Range(1, 10000));
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  if (one.empty()) {
    if (only.empty() || only == "speed") speed_table(s, chosen);
    if (only.empty() || only == "memory") memory_table(s);
    if (only.empty() || only == "cold") cold_table(s);
    if (only.empty() || only == "imported") imported_table(s, chosen);
    return programs::end({});
  }
  const auto examples = run(one, mode == "train", batch, s);
  if (!examples.ok()) {
    std::fprintf(stderr, "bench_networks: %s\n", examples.error().str().c_str());
    return programs::kFailed;
  }
  std::printf("%f %f\n", *examples, bench::memory_mib("VmHWM"));
  return programs::end({});
}
