// SPDX-License-Identifier: Apache-2.0
// An asynchronous pipeline (PipeDream): nothing waits between batches. Each micro-batch updates the weights as soon as
// its gradients are there, and its backward pass takes those that its forward pass read.
//
//   images -> stage 0 -> stage 1 -> stage 2 -> loss       forward: reads the newest weights of each stage
//                ^          ^          ^         |
//                +----------+----------+---------+        backward: the same tensors; then the update of the stage
#include <CLI/CLI.hpp>

#include "device_choice.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "train_images/images.h"
#include "train_images/models.h"
#include "troupe/pipeline.h"

using namespace troupe;

static Status run(const Options& input, const std::string& devices, int stages, int batches,
                  const programs::ClusterFlags& cluster) {
  TROUPE_ASSIGN(const ChosenDevices chosen, choose_devices(devices, stages, cluster));
  TROUPE_ASSIGN(const Images images, load_images(input));
  TROUPE_ASSIGN(const Dataset data, training_batches(images, input, 0));

  nn::PipelineOptions options;
  options.devices = chosen.names;
  options.micro_batches = 8;
  options.asynchronous = true;
  options.optimizer = nn::momentum(nn::constant_rate(0.01f));
  // LeNet as train_images has it, a function that knows nothing of stages: the cost model cuts it.
  TROUPE_ASSIGN(auto pipeline, nn::Pipeline::create(*chosen.engine, make_model("lenet"), data, options));
  for (const nn::PipelineStage& stage : pipeline->stages())
    programs::print("{}: {:.0f} us by the cost model, {}\n", stage.device, stage.cost_ns / 1000,
                    fmt::join(stage.variables, " "));
  TROUPE_RETURN_IF_ERROR(pipeline->initialise());

  float first = 0, last = 0;
  const int64_t begun = chosen.now_ns();
  TROUPE_RETURN_IF_ERROR(pipeline->run(batches, [&](const nn::StepReport& r) {
    if (first == 0) first = r.loss;
    last = r.loss;
    if (r.step % 160 == 0) programs::print("update {:4}: loss {:.4f}\n", r.step, r.loss);
  }));
  programs::print("{:.3f} s of {} time\n", static_cast<double>(chosen.now_ns() - begun) / 1e9,
                  chosen.simulated ? "virtual" : "real");
  TROUPE_ASSIGN(const Dataset tests, test_batches(images));
  TROUPE_ASSIGN(const nn::Metrics metrics, pipeline->evaluate(tests));
  programs::print("{} updates: loss {:.4f} -> {:.4f}, test accuracy {:.1f} %\n", pipeline->step(), first, last,
                  100 * metrics.accuracy);
  if (batches > 1 && !(last < first)) return make_error(Code::kInternal, "the loss did not fall");
  return {};
}

int main(int argc, char** argv) {
  Options input;
  input.batch = 256;
  int stages = 3, batches = 60;
  std::string devices = "cpu";
  CLI::App app("Trains LeNet on Fashion-MNIST as an asynchronous pipeline.");
  app.add_option("--devices", devices,
                 "cpu, sim (simulated: one machine stands for many), gpu or workers (of a cluster)")
      ->check(CLI::IsMember({"cpu", "sim", "gpu", "workers"}))
      ->capture_default_str();
  app.add_option("--stages", stages, "Stages, each on a device of its own")
      ->check(CLI::Range(1, 5))
      ->capture_default_str();
  app.add_option("--batches", batches, "Of 8 x 32 images")->check(CLI::Range(1, 1'000'000'000))->capture_default_str();
  app.add_option("--data", input.data, "Folder of the four files")->capture_default_str();
  programs::ClusterFlags cluster;
  cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(input, devices, stages, batches, cluster); });
}
