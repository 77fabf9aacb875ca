// SPDX-License-Identifier: Apache-2.0
// Inference and training steps of LeNet, MobileNetV2, ResNet-50 and an LSTM beside PyTorch, as it is and compiled,
// TensorFlow, with XLA too, ONNX Runtime and OpenVINO, and the peak of memory while ResNet-50 is trained. Each
// measurement is a process of its own; ours and the peers' take turns. Prints Markdown tables.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "bench/networks/networks.h"
#include "bench/turns.h"
#include "programs/program.h"
#include "troupe/graph_def.h"
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
};

/// Examples a second, after steps that are not counted, for about as long as asked.
Result<double> speed(Session& session, const Output& x, const std::vector<Output>& fetches,
                     const std::vector<const Node*>& targets, const Settings& s) {
  TROUPE_ASSIGN(const Shape shape, Shape::make(x.shape().dims()));
  TROUPE_ASSIGN(Tensor value, Tensor::make(DType::kFloat32, shape));
  for (int64_t i = 0; i < value.elements(); ++i)
    value.mutable_data<float>()[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f;
  TROUPE_ASSIGN(auto prepared, session.prepare({x}, fetches, targets));
  for (int i = 0; i < kUncounted; ++i) TROUPE_RETURN_IF_ERROR(session.run(prepared, {value}));
  int64_t steps = 0;
  const auto begin = Clock::now();
  double passed = 0;
  for (; passed < s.seconds; passed = std::chrono::duration<double>(Clock::now() - begin).count(), ++steps)
    TROUPE_RETURN_IF_ERROR(session.run(prepared, {value}));
  return static_cast<double>(steps * shape[0]) / passed;
}

/// Makes a network and measures it.
Result<double> run(const std::string& net, bool training, int64_t batch, const Settings& s) {
  TROUPE_ASSIGN(auto engine, Engine::create({.cpu_threads = {s.threads}}));
  Graph graph(engine->ops());
  const Scope scope(graph);
  nn::Variables variables;
  const Shape shape = bench::input_shape(net, batch);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(shape)}});
  const Output logits = bench::network(net, scope, variables, x, training);
  std::vector<Output> fetches = {logits};
  std::vector<const Node*> targets;
  if (training) {
    TROUPE_ASSIGN(const Tensor labels, Tensor::zeros(DType::kInt32, {batch}));
    fetches = {nn::sparse_softmax_cross_entropy(scope, logits, scope.constant(labels))};
    targets.push_back(nn::minimize(scope, variables, nn::sgd(nn::constant_rate(0.01f)), fetches[0]));
  }
  TROUPE_RETURN_IF_ERROR(scope.status());
  TROUPE_ASSIGN(const GraphPasses passes, GraphPasses::parse(s.passes));
  Session session(*engine, graph, {.passes = passes});
  TROUPE_RETURN_IF_ERROR(session.run(std::vector<Feed>{}, {}, variables.initializers()));
  if (s.frozen && !training) {
    TROUPE_ASSIGN(const Snapshot weights, engine->snapshot().get());
    TROUPE_ASSIGN(const std::string bytes, freeze_graph(graph, fetches, weights.variables));
    Graph frozen(engine->ops());
    TROUPE_RETURN_IF_ERROR(from_graph_def(bytes, frozen));
    Session other(*engine, frozen, {.passes = passes});
    const auto at = [&](const Output& o) { return frozen.find(o.node->name())->out(o.port); };
    return speed(other, at(x), {at(logits)}, {}, s);
  }
  return speed(session, x, fetches, targets, s);
}

std::string ours(const Settings& s, const std::string& net, const std::string& mode, int batch) {
  return fmt::format("'{}' --one {} --mode {} --batch {} --threads {} --seconds {} --passes {}{}", s.self, net, mode,
                     batch, s.threads, s.seconds, s.passes, s.frozen ? " --frozen" : "");
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
      for (const int batch : {1, 32}) {
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

void memory_table(Settings s) {
  s.repeats = 1;
  const auto n = measure_all(s, "resnet", "train", 16);
  programs::print("\n| ResNet-50, training, batch 16 | peak MiB |\n|---|---|\n| Troupe | {} |\n", bench::show(n[0][1]));
  for (size_t i = 0; i < std::size(kPeers); ++i)
    if (kPeers[i].trains) programs::print("| {} | {} |\n", kPeers[i].name, bench::show(n[i + 1][1]));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures networks beside other engines; prints Markdown tables.");
  Settings s;
  s.self = argv[0];
  const std::vector<std::string> nets = {"lenet", "mobilenet", "resnet", "lstm"};
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
  app.add_option("--only", only, "One table only")->check(CLI::IsMember({"speed", "memory"}));
  app.add_option("--nets", chosen, "Networks of the first table")->delimiter(',')->check(CLI::IsMember(nets));
  app.add_option("--one", one, "Measure one network in this process and print examples/s and peak MiB")
      ->check(CLI::IsMember(nets));
  app.add_option("--mode", mode, "With --one")->capture_default_str()->check(CLI::IsMember({"infer", "train"}));
  app.add_option("--batch", batch, "With --one")->capture_default_str()->check(CLI::Range(1, 10000));
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  if (one.empty()) {
    if (only != "memory") speed_table(s, chosen);
    if (only != "speed") memory_table(s);
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
