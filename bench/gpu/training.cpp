// SPDX-License-Identifier: Apache-2.0
// Training on one GPU: ResNet-50 and two LSTMs in float32 with TF32 and in bfloat16, beside PyTorch, as it is and
// compiled, on the same card; and how much of its time a GPU waits for the queue that feeds it images. Each measurement
// is a process of its own; ours and PyTorch's take turns. Prints Markdown tables.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>

#include "bench/gpu/platform.h"
#include "bench/networks/networks.h"
#include "bench/training/networks.h"
#include "bench/turns.h"
#include "programs/program.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"
#include "troupe/trace.h"
#include "troupe/train.h"

namespace {

using namespace troupe;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string self, python = "python3", one, dtype = "float32";
  int repeats = 3, batch = 0, steps = 50, threads = 0;
  int64_t size = 0;
  bool fake = false, ops = false;
};

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

Result<std::unique_ptr<Engine>> engine_of(const Settings& s) {
  TROUPE_ASSIGN(auto platform, bench::platform_of(s.fake));
  return Engine::create({.cpu_threads = {1},
                         .scheduler_threads = s.threads,
                         .gpus = {.cards = 1, .tf32 = true, .platform = std::move(platform)}});
}

/// Steps before any is measured: by then cuDNN's plans are chosen (CudnnOptions::timed).
int first_steps(const Settings& s) { return s.fake ? 1 : 20; }

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

/// Seconds of a step, of so many after the first `first`.
Result<double> seconds_per_step(Session& session, const std::shared_ptr<Session::Prepared>& prepared, const Settings& s,
                                int first) {
  for (int i = 0; i < first; ++i) TROUPE_RETURN_IF_ERROR(session.run(prepared, {}));
  const auto begun = Clock::now();
  for (int i = 0; i < s.steps; ++i) TROUPE_RETURN_IF_ERROR(session.run(prepared, {}));
  return seconds_since(begun) / s.steps;
}

/// Prints what a step's nodes took of the card's time, by op, and how long the host took to put them in.
Status print_ops(Session& session, const std::shared_ptr<Session::Prepared>& prepared) {
  RunOptions options;
  options.trace = std::make_shared<Trace>();
  TROUPE_RETURN_IF_ERROR(session.run(prepared, {}, options).status());
  struct Spent {
    int nodes = 0;
    double card_us = 0, host_us = 0;
  };
  std::map<std::string, Spent> by_op;
  Spent all;
  for (const TraceEvent& e : options.trace->take()) {
    const bool launch = e.kind == TraceEvent::Kind::kLaunch;
    if (!e.node || (e.kind != TraceEvent::Kind::kRun && !launch)) continue;
    for (Spent* spent : {&by_op[e.node->op().name()], &all}) {
      spent->nodes += !launch;
      (launch ? spent->host_us : spent->card_us) += static_cast<double>(e.end_ns - e.begin_ns) / 1000;
    }
  }
  std::vector<std::pair<std::string, Spent>> rows(by_op.begin(), by_op.end());
  std::ranges::sort(rows, std::greater(), [](const auto& row) { return row.second.card_us; });
  rows.emplace_back("all", all);
  programs::print("| op | nodes | of the card, us | to put in, us |\n|---|---|---|---|\n");
  for (const auto& [op, spent] : rows)
    programs::print("| {} | {} | {:.0f} | {:.0f} |\n", op, spent.nodes, spent.card_us, spent.host_us);
  return {};
}

/// A batch that lies in the card's memory: a variable with random values below `limit`.
struct Resident {
  Output value;
  const Node* init = nullptr;

  Resident(const Scope& scope, const std::string& name, const Shape& shape, float limit,
           DType dtype = DType::kFloat32) {
    const std::vector<int64_t> sizes(shape.begin(), shape.end());
    const Output v = scope.op("VarHandleOp", {},
                              {{"dtype", dtype}, {"shape", PartialShape(shape)}, {"shared_name", "data/" + name}});
    const Output draw = scope.op("RandomUniform", {scope.constant(Tensor::of<int64_t>(sizes))},
                                 {{"dtype", DType::kFloat32}, {"seed", int64_t{1}}});
    init = scope.node("AssignVariableOp", {v, nn::cast(scope, scope.op("Mul", {draw, scope.constant(limit)}), dtype)});
    value = scope.op("Reshape",
                     {scope.op("ReadVariableOp", {v}, {{"dtype", dtype}}), scope.constant(Tensor::of<int64_t>(sizes))});
  }
};

/// Examples a second of "resnet" or "lstm"; `size`: of an image's side, or the units of the LSTM.
Result<double> train(const Settings& s) {
  TROUPE_ASSIGN(auto engine, engine_of(s));
  const DType dtype = dtype_from_string(s.dtype).value_or(DType::kFloat32);
  Graph graph(engine->ops());
  const Scope scope = Scope(graph).device("/gpu:0");
  nn::Variables variables;
  const Shape shape = s.one == "lstm" ? Shape{s.batch, 32, s.size} : Shape{s.batch, s.size, s.size, 3};
  const Resident x(scope, "x", shape, 1), y(scope, "y", {s.batch}, 10);
  const Output logits = bench::network(s.one, scope, variables, nn::cast(scope, x.value, dtype), /*training=*/true);
  const Output loss = nn::sparse_softmax_cross_entropy(scope, logits, nn::cast(scope, y.value, DType::kInt32));
  const Node* const update = nn::minimize(scope, variables, nn::momentum(nn::constant_rate(0.01f)), loss);
  TROUPE_RETURN_IF_ERROR(scope.status());
  Session session(*engine, graph, {.soft_placement = true});
  std::vector<const Node*> begin = variables.initializers();
  begin.insert(begin.end(), {x.init, y.init});
  TROUPE_RETURN_IF_ERROR(session.run(std::vector<Feed>{}, {}, begin));
  TROUPE_ASSIGN(const auto prepared, session.prepare({}, {}, {update}));
  TROUPE_ASSIGN(const double seconds, seconds_per_step(session, prepared, s, first_steps(s)));
  if (s.ops) TROUPE_RETURN_IF_ERROR(print_ops(session, prepared));
  return s.batch / seconds;
}

/// Random images, as the image example's.
Result<Dataset> images(int batch) {
  const int64_t count = 16 * batch;
  TROUPE_ASSIGN(Tensor x, Tensor::make(DType::kUInt8, Shape{count, 28, 28, 1}));
  TROUPE_ASSIGN(Tensor y, Tensor::make(DType::kInt32, Shape{count}));
  for (int64_t i = 0; i < x.elements(); ++i) x.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i * 7919 >> 3);
  for (int64_t i = 0; i < count; ++i) y.mutable_data<int32_t>()[i] = static_cast<int32_t>(i % 10);
  TROUPE_ASSIGN(Dataset all, Dataset::from_tensors({x, y}));
  return all.shuffle(count, 1).repeat(-1).batch(batch, true);
}

/// The share of a step's time for which the card waits for its images: that by which a step that is fed through a
/// queue takes longer than one whose batch lies in the card's memory, of the medians of rounds in turns.
/// Percent; below 0 where noise is larger.
Result<double> idle(const Settings& s) {
  TROUPE_ASSIGN(auto engine, engine_of(s));
  const auto model = [](const Scope& scope, nn::Variables& v, const std::vector<Output>& batch, bool) {
    const Output logits = bench::network("convnet", scope, v, nn::pixels_to_float(scope, batch[0]));
    return nn::ModelOutputs{nn::sparse_softmax_cross_entropy(scope, logits, batch[1]), {}};
  };
  TROUPE_ASSIGN(Dataset data, images(s.batch));
  nn::TrainerOptions options;
  options.devices = {"/gpu:0"};
  options.optimizer = nn::sgd(nn::constant_rate(0.01f));
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(*engine, model, std::move(data), options));
  TROUPE_RETURN_IF_ERROR(trainer->initialise());

  // The same step, what the trainer reports of it too.
  Graph graph(engine->ops());
  const Scope scope = Scope(graph).device("/gpu:0");
  nn::Variables variables("resident");
  const Resident x(scope, "x", {s.batch, 28, 28, 1}, 255, DType::kUInt8), y(scope, "y", {s.batch}, 10, DType::kInt32);
  const nn::ModelOutputs made = model(scope, variables, {x.value, y.value}, true);
  const auto ints = [&](int32_t i) { return scope.constant(Tensor::of<int32_t>({i})); };
  const Output examples = scope.op("Slice", {scope.op("Shape", {x.value}), ints(0), ints(1)});
  const Node* const update = nn::minimize(scope, variables, options.optimizer, made.loss);
  TROUPE_RETURN_IF_ERROR(scope.status());
  Session session(*engine, graph, {.soft_placement = true});
  std::vector<const Node*> begin = variables.initializers();
  begin.insert(begin.end(), {x.init, y.init});
  TROUPE_RETURN_IF_ERROR(session.run(std::vector<Feed>{}, {}, begin));
  TROUPE_ASSIGN(const auto prepared, session.prepare({}, {made.loss, scope.constant(0.f), examples}, {update}));

  std::vector<double> fed, resident;
  const int rounds = s.fake ? 1 : 21;
  for (int round = 0; round <= rounds; ++round) {
    const auto begun = Clock::now();
    TROUPE_RETURN_IF_ERROR(trainer->run(s.steps));
    fed.push_back(seconds_since(begun) / s.steps);
    TROUPE_ASSIGN(resident.emplace_back(), seconds_per_step(session, prepared, s, 0));
    // The first: by its end cuDNN's plans are chosen.
    if (round == 0) fed.clear(), resident.clear();
  }
  return 100 * (1 - median(resident) / median(fed));
}

struct Row {
  const char *title, *net;
  int batch;
  int64_t size;
};
constexpr Row kRows[] = {{"ResNet-50, batch 256", "resnet", 256, 224}, {"LSTM 2 x 1024, batch 128", "lstm", 128, 1024}};

Status tables(const Settings& s) {
  std::string failed;
  const std::string peer = fmt::format("'{}' '{}/peer_training.py'", s.python, bench::peers_folder("gpu"));
  programs::print(
      "| training, examples/s | type | Troupe | PyTorch | Troupe / PyTorch | at least 1.0 | PyTorch compiled "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const Row& row : kRows)
    for (const char* dtype : {"float32", "bfloat16"}) {
      const int batch = s.batch ? s.batch : row.batch;
      const std::string what =
          fmt::format("--batch {} --size {} --dtype {} --steps {}", batch, s.size ? s.size : row.size, dtype, s.steps);
      std::vector<std::string> commands = {
          fmt::format("'{}' --one {} {}{}", s.self, row.net, what, s.fake ? " --fake" : "")};
      if (!s.fake)
        for (const char* flag : {"", " --compile"})
          commands.push_back(fmt::format("{} --net {} {}{}", peer, row.net, what, flag));
      auto n = bench::rounds(s.repeats, 1, commands);
      n.resize(3, {0});
      if (n[0][0] == 0) failed += fmt::format(" {} {}", row.net, dtype);
      programs::print("| {} | {} | {} | {} {} {} |\n", row.title, *dtype == 'f' ? "float32 (TF32)" : dtype,
                      n[0][0] > 0 ? bench::show(n[0][0]) : "failed", bench::show(n[1][0]),
                      bench::verdict(n[0][0], n[1][0], 0), bench::show(n[2][0]));
    }
  const auto n = bench::rounds(s.repeats, 1,
                               {fmt::format("'{}' --one idle --batch {} --steps {}{}", s.self, s.batch ? s.batch : 256,
                                            s.steps, s.fake ? " --fake" : "")});
  programs::print("\n| the image example's convnet, fed by a queue | | must be below |\n|---|---|---|\n");
  programs::print("| of its time the GPU waits | {:.1f} % | 3 % |\n", n[0][0]);
  if (failed.empty()) return {};
  return make_error(Code::kInternal, "ours failed:{}; the file TROUPE_BENCH_LOG has what they said", failed);
}

Status measure_one(const Settings& s) {
  TROUPE_ASSIGN(const double number, s.one == "idle" ? idle(s) : train(s));
  std::printf("%f\n", number);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  s.self = argv[0];
  CLI::App app("Training on a GPU beside PyTorch; prints Markdown tables.");
  app.add_option("--python", s.python, "Python that may have PyTorch")->capture_default_str();
  app.add_option("--repeats", s.repeats, "Rounds; medians are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--batch", s.batch, "Examples in a batch; 0: as in the tables' titles")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  app.add_option("--size", s.size, "Side of the images, units of the LSTM; 0: 224 and 1024")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--steps", s.steps, "Steps of one measurement")->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--dtype", s.dtype, "With --one")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->capture_default_str();
  app.add_option("--one", s.one, "One measurement in this process, by the other options: prints its number")
      ->check(CLI::IsMember({"resnet", "lstm", "idle"}));
  app.add_option("--threads", s.threads, "Scheduler threads, with --one; 0: as an engine chooses")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--ops", s.ops, "With --one resnet or lstm: what the ops of a step took, before the number");
  app.add_flag("--fake", s.fake, "Run on what stands in for CUDA, to try the program");
  return programs::run(app, argc, argv, [&]() -> Status {
    if (s.one.empty()) return tables(s);
    if (s.batch == 0) s.batch = s.one == "lstm" ? 128 : 256;
    if (s.size == 0) s.size = s.one == "lstm" ? 1024 : 224;
    return measure_one(s);
  });
}
