// SPDX-License-Identifier: Apache-2.0
// A pipeline: a network whose layers are on several devices learns Fashion-MNIST; the micro-batches of a batch are on
// different devices at once. One flag chooses the schedule; with --replicas and --parts the devices are a mesh data x
// pipeline x tensor: pipelines beside one another that share the variables, each stage split over several devices.
//
//   images -> stage 0 on device 0 -> stage 1 on device 1 -> ... -> loss        the same for each micro-batch
//              ^  |                   ^  |                          |
//              |  +-- gradient -------|--+-- gradient --------------+
//              +-- update             +-- update                               once for each batch
#include <CLI/CLI.hpp>

#include "device_choice.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "train_images/images.h"
#include "troupe/device_mesh.h"
#include "troupe/pipeline.h"
#include "troupe/tensor_parallel.h"
#include "troupe/trace_file.h"

using namespace troupe;

struct Settings {
  std::string data = Options().data, schedule = "1f1b", devices = "cpu", trace;
  int stages = 4, micro_batches = 8, batches = 60, replicas = 1, parts = 1;
  bool asynchronous = false;
  programs::ClusterFlags cluster;
};

// The first stage takes pixels, the last gives the loss; all have a dense layer, its columns split over `parts`
// devices.
static nn::StageFn stage(int number, int count, int parts) {
  return [=](const Scope& s, nn::Variables& v, const std::vector<Output>& in, const std::vector<Output>& batch,
             bool) -> std::vector<Output> {
    const Output x = number == 0 ? nn::flatten(s, nn::pixels_to_float(s, in[0])) : in[0];
    const auto dense = [&](int64_t units, const std::string& name) {
      return nn::dense_by_columns(s, v, x, units, name, nn::part_devices(parts));
    };
    if (number + 1 < count) return {nn::gather(s, nn::each(s, dense(128, fmt::format("hidden_{}", number)), nn::relu))};
    const Output logits = nn::gather(s, dense(10, "logits"));
    return {nn::sparse_softmax_cross_entropy(s, logits, batch[1]), nn::accuracy(s, logits, batch[1])};
  };
}

static Status run(const Settings& settings) {
  using enum nn::PipelineSchedule;
  const std::map<std::string, nn::PipelineSchedule> schedules = {
      {"gpipe", kGPipe}, {"1f1b", kOneFOneB}, {"interleaved", kInterleaved}, {"zero-bubble", kZeroBubble}};
  nn::PipelineOptions options;
  options.schedule = schedules.at(settings.schedule);
  options.micro_batches = settings.micro_batches;
  options.asynchronous = settings.asynchronous;
  options.replicas = settings.replicas;
  options.parts = settings.parts;
  options.optimizer = nn::adam(nn::constant_rate(2e-3f));
  const int count = options.schedule == kInterleaved ? settings.stages / 2 : settings.stages;
  const int devices = settings.replicas * count * settings.parts;
  TROUPE_ASSIGN(const ChosenDevices chosen, choose_devices(settings.devices, devices, settings.cluster));
  TROUPE_ASSIGN(const auto mesh,
                nn::DeviceMesh::create(chosen.names,
                                       {{"data", settings.replicas}, {"pipeline", count}, {"tensor", settings.parts}}));
  options.devices = mesh.devices();
  std::unique_ptr<TraceFile> file;
  if (!settings.trace.empty()) {
    TROUPE_ASSIGN(file, TraceFile::create(settings.trace, *chosen.engine));
    options.trace = std::make_shared<Trace>();
  }
  Options input;
  input.data = settings.data;
  input.batch = 32 * settings.micro_batches;
  TROUPE_ASSIGN(const Images images, load_images(input));
  TROUPE_ASSIGN(const Dataset batches, training_batches(images, input, 0));
  std::vector<nn::StageFn> stages;
  for (int i = 0; i < settings.stages; ++i) stages.push_back(stage(i, settings.stages, settings.parts));
  TROUPE_ASSIGN(auto pipeline, nn::Pipeline::create(*chosen.engine, stages, batches, options));
  TROUPE_RETURN_IF_ERROR(pipeline->initialise());

  float first = 0, last = 0;
  const int64_t begun = chosen.now_ns();
  TROUPE_RETURN_IF_ERROR(pipeline->run(settings.batches, [&](const nn::StepReport& r) {
    if (first == 0) first = r.loss;
    last = r.loss;
    if (r.step % 10 == 0)
      programs::print("batch {:3}: loss {:.4f}, accuracy {:.1f} %\n", r.step, r.loss, 100 * r.accuracy);
  }));
  programs::print("{}: {:.2f} ms of {} time\n", mesh.str(), static_cast<double>(chosen.now_ns() - begun) / 1e6,
                  chosen.simulated ? "virtual" : "real");
  if (file) {
    TROUPE_RETURN_IF_ERROR(file->write(options.trace->take()));
    TROUPE_RETURN_IF_ERROR(file->close());
  }
  TROUPE_ASSIGN(const Dataset tests, test_batches(images));
  TROUPE_ASSIGN(const nn::Metrics metrics, pipeline->evaluate(tests));
  programs::print("loss {:.4f} -> {:.4f}, test accuracy {:.1f} %\n", first, last, 100 * metrics.accuracy);
  if (settings.batches > 1 && !(last < first)) return make_error(Code::kInternal, "the loss did not fall");
  return {};
}

int main(int argc, char** argv) {
  Settings s;
  CLI::App app("Trains a network on Fashion-MNIST as a pipeline over several devices.");
  app.add_option("--schedule", s.schedule, "gpipe, 1f1b, interleaved or zero-bubble")
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved", "zero-bubble"}))
      ->capture_default_str();
  app.add_option("--stages", s.stages, "Stages; interleaved ones are two on a device")
      ->check(CLI::Range(2, 32))
      ->capture_default_str();
  app.add_option("--micro-batches", s.micro_batches, "Of 32 images each, in a batch")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--async", s.asynchronous, "Each micro-batch updates the weights, nothing waits between batches");
  app.add_option("--replicas", s.replicas, "Pipelines beside one another; micro-batches go to them in turn")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--parts", s.parts, "Devices that share the layer of each stage")
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  app.add_option("--batches", s.batches, "To train on")->check(CLI::Range(1, 1'000'000'000))->capture_default_str();
  app.add_option("--devices", s.devices,
                 "cpu, sim (simulated: one machine stands for many), gpu or workers (of a cluster)")
      ->check(CLI::IsMember({"cpu", "sim", "gpu", "workers"}))
      ->capture_default_str();
  app.add_option("--data", s.data, "Folder of the four files")->capture_default_str();
  app.add_option("--trace", s.trace, "File to write for ui.perfetto.dev");
  s.cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(s); });
}
