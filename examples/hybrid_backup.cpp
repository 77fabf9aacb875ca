// SPDX-License-Identifier: Apache-2.0
// Backup replicas: of N replicas one is slow, and an update takes the gradients of the first N - k to come. With k = 0
// every update waits for the slow one; with k = 1 none does, and its late gradients are dropped.
//
//   queue -> replica 0   --gradients--+
//         -> replica 1   --gradients--+--> accumulators: N - k of them --> update --> tokens: the next step may begin
//         -> replica N-1 --pause------+    (late ones are dropped)
//
// Source: Chen, Monga, Bengio, Jozefowicz, "Revisiting distributed synchronous SGD", 2016.
#include <CLI/CLI.hpp>
#include <chrono>
#include <thread>

#include "device_choice.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/blocking_kernel.h"
#include "troupe/idx.h"
#include "troupe/train.h"

using namespace troupe;

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist", devices = "cpu";
  int replicas = 3, backups = 1, batch = 32, pause_ms = 20;
  int64_t updates = 100;
  programs::ClusterFlags cluster;
};

// Its input, after a while: a machine that is slow without taking the others' cores.
struct Pause final : BlockingKernel {
  explicit Pause(const KernelInit& init) : ms(init.attr<int64_t>("ms")) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return request.inputs;
  }
  const int64_t ms;
};

void register_pause(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("Pause")
              .input("x: T")
              .output("y: T")
              .attr("T: type")
              .attr("ms: int >= 0")
              .stateful()
              .doc("x, after so many milliseconds.")
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, c.input(0));
                return {};
              }),
          gradient([](GradientContext& c) -> Status {
            c.set_dx(0, c.dy(0));
            return {};
          }));
  kernels.add<Pause>("Pause", DeviceKind::kCpu, {});
}

struct Figures {
  double seconds = 0, first_loss = 0, last_loss = 0;
  int64_t gradients = 0, of_slow = 0;
};

Result<Figures> train(const Options& o, const ImageData& images, int backups) {
  const bool simulated = o.devices == "sim";
  EngineOptions engine_options = o.cluster.engine();
  engine_options.register_ops = register_pause;
  engine_options.cpu_threads.assign(o.devices == "cpu" ? static_cast<size_t>(o.replicas) : 1, 1);
  if (simulated) {
    engine_options.sim.devices.assign(static_cast<size_t>(o.replicas), {.flops = 10e9});
    engine_options.sim.devices.back() = {.flops = 0.5e9, .memory_bandwidth = 0.5e9, .launch_ns = 10'000};
  }
  TROUPE_ASSIGN(auto engine,
                o.devices == "gpu" ? engine_with_gpus(engine_options, o.replicas) : Engine::create(engine_options));
  o.cluster.forget_former_client(*engine);
  const auto now = [&] {
    const auto real = std::chrono::steady_clock::now().time_since_epoch();
    return simulated ? std::chrono::nanoseconds(engine->sim_now_ns()) : std::chrono::nanoseconds(real);
  };
  const auto network = [&](const Scope& s, nn::Variables& v, const std::vector<Output>& batch, bool training) {
    Output x = nn::flatten(s, nn::pixels_to_float(s, batch[0]));
    const bool slow = !simulated && training && s.prefix().starts_with(fmt::format("replica_{}/", o.replicas - 1));
    if (slow) x = s.op("Pause", {x}, {{"ms", int64_t{o.pause_ms}}});
    const Output logits = nn::dense(s, v, nn::relu(s, nn::dense(s, v, x, 64, "hidden")), 10, "logits");
    const Output labels = s.op("Cast", {batch[1]}, {{"DstT", DType::kInt32}});
    return nn::ModelOutputs{nn::sparse_softmax_cross_entropy(s, logits, labels), {}};
  };
  nn::TrainerOptions options;
  options.mode = nn::ReplicaMode::kHybrid;
  for (int i = 0; i < o.replicas; ++i) options.devices.push_back(fmt::format("/{}:{}", o.devices, i));
  options.input_device = "/cpu:0";
  options.backups = backups;
  options.optimizer = nn::momentum(nn::constant_rate(0.05f));
  TROUPE_ASSIGN(const Dataset all, Dataset::from_tensors({images.train_images, images.train_labels}));
  const Dataset batches = all.shuffle(10000, 1).repeat(-1).batch(o.batch, true);
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(*engine, network, batches, options));
  TROUPE_RETURN_IF_ERROR(trainer->initialise());
  TROUPE_ASSIGN(const Dataset tests, Dataset::from_tensors({images.test_images, images.test_labels}));
  Figures figures;
  TROUPE_ASSIGN(const nn::Metrics before, trainer->evaluate(tests.batch(500)));
  const auto begun = now();
  TROUPE_RETURN_IF_ERROR(trainer->run(o.updates, [&](const nn::StepReport& report) {
    ++figures.gradients;
    figures.of_slow += report.replica == o.replicas - 1;
  }));
  figures.seconds = std::chrono::duration<double>(now() - begun).count();
  TROUPE_ASSIGN(const nn::Metrics after, trainer->evaluate(tests.batch(500)));
  figures.first_loss = before.loss;
  figures.last_loss = after.loss;
  return figures;
}

Status run(const Options& o) {
  TROUPE_RETURN_IF_ERROR(check_devices(o.devices, o.cluster));
  TROUPE_ASSIGN(const ImageData images, read_mnist(o.data));
  for (const int backups : {0, o.backups}) {
    TROUPE_ASSIGN(const Figures f, train(o, images, backups));
    // Each update waited for N - k gradients; those beyond came late, and were dropped, or were not needed.
    const int64_t waited_for = o.updates * (o.replicas - backups);
    programs::print(
        "{} backups: {:.0f} updates/s, {} gradients dropped or spare, {} of {} from the slow replica, test loss "
        "{:.4f}\n",
        backups, static_cast<double>(o.updates) / f.seconds, std::max<int64_t>(0, f.gradients - waited_for), f.of_slow,
        f.gradients, f.last_loss);
    if (!(f.last_loss < f.first_loss))
      return make_error(Code::kInternal, "the test loss went from {:.4f} to {:.4f}", f.first_loss, f.last_loss);
  }
  programs::print("test loss fell in every run\n");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Trains with one slow replica, without backups and with some: updates need not wait for it.");
  app.option_defaults()->always_capture_default();
  app.add_option("--devices", o.devices,
                 "Kind of the devices; sim: simulated ones, the last of them slow, in virtual time")
      ->check(CLI::IsMember({"cpu", "sim", "gpu"}));
  app.add_option("--replicas", o.replicas, "Replicas, the last of them slow")->check(CLI::Range(2, 64));
  app.add_option("--backups", o.backups, "Replicas that updates of the second run do not wait for")
      ->check(CLI::Range(1, 63));
  app.add_option("--pause", o.pause_ms, "Milliseconds that each step of the slow one takes longer (cpu)")
      ->check(CLI::Range(0, 60000));
  app.add_option("--batch", o.batch, "Images in a batch of one replica")->check(CLI::Range(1, 10000));
  app.add_option("--updates", o.updates, "Updates of each run")->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--data", o.data, "Directory with the four idx files of MNIST or Fashion-MNIST");
  o.cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(o); });
}
