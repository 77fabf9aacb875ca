// SPDX-License-Identifier: Apache-2.0
// The main job: trains a network on labelled images with several replicas; see --help.
//
//   files -> dataset -> queue -+-> replica 0 on cpu:0 -+-> variables, see replica_flags.h -> checkpoints, events
//                              +-> replica 1 on cpu:1 -+
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include <CLI/CLI.hpp>

#include "device_choice.h"
#include "programs/program.h"
#include "train_images/images.h"
#include "train_images/models.h"
#include "train_images/progress.h"
#include "train_images/records.h"
#include "troupe/cluster.h"
#include "troupe/trace_file.h"

using namespace troupe;

namespace {

// Share of the time of training that the replicas were idle for want of input.
class InputWait {
 public:
  void begin() { begun_ = Progress::Clock::now(); }
  void end(const nn::RunSummary& run) {
    waited_.resize(run.input_wait_ns.size());
    for (size_t i = 0; i < waited_.size(); ++i) waited_[i] += run.input_wait_ns[i];
    seconds_ += std::chrono::duration<double>(Progress::Clock::now() - begun_).count();
  }
  void print() const {
    for (size_t i = 0; i < waited_.size(); ++i)
      programs::print("{} waited for input {:.1f} % of the time\n",
                      waited_.size() > 1 ? fmt::format("replica {}", i) : "training",
                      seconds_ > 0 ? static_cast<double>(waited_[i]) / 1e7 / seconds_ : 0);
  }

 private:
  std::vector<int64_t> waited_;
  Progress::Clock::time_point begun_;
  double seconds_ = 0;
};

void print(const nn::TaskReport& report) {
  const std::string who = report.replica < 0 ? "all replicas" : fmt::format("replica {}", report.replica);
  if (!report.back) {
    programs::print("lost at step {}: {}\n", report.step, report.reason);
    programs::print("{}\n", report.replica < 0 ? "waiting until it is back" : fmt::format("going on without {}", who));
    return;
  }
  programs::print("back after {:.1f} s: {} go{} on from step {}", report.seconds, who, report.replica < 0 ? "" : "es",
                  report.step);
  if (report.updates > 0) programs::print("; {} updates are made again", report.updates);
  if (report.batches > 0)
    programs::print("; {} {} lost", report.batches, report.batches == 1 ? "batch is" : "batches are");
  programs::print("\n");
}

Error interrupted(const char* when) {
  return make_error(Code::kCancelled, "interrupted by {} {}", programs::first_signal(), when);
}

/// As long as it lives, the first signal has `what` called, also while a trainer waits for a lost task and makes no
/// step.
class AtSignal {
 public:
  explicit AtSignal(std::function<void()> what)
      : thread_([what = std::move(what)](const std::stop_token& ended) {
          std::mutex mutex;
          std::condition_variable_any changed;
          std::unique_lock lock(mutex);
          while (!ended.stop_requested()) {
            if (programs::interrupts() > 0) return what();
            changed.wait_for(lock, ended, std::chrono::milliseconds(100), [] { return false; });
          }
        }) {}

 private:
  const std::jthread thread_;
};

/// What every node did, in a file that grows with each step.
struct Tracing {
  std::unique_ptr<TraceFile> file;  // null: not asked for
  std::shared_ptr<Trace> trace = {};

  Status write() { return file ? file->write(trace->take()) : Status(); }
  Status close() {
    TROUPE_RETURN_IF_ERROR(write());
    return file ? file->close() : Status();
  }
};

struct Job {
  const Options& options;
  Engine& engine;
  nn::Trainer& trainer;
  Records& records;
  const Images& images;
  int64_t images_at_start;
  int64_t step_at_start;
  Progress& progress;
  Tracing& tracing;
  InputWait wait = {};
  int64_t saved_at = step_at_start;

  int64_t per_update() const { return static_cast<int64_t>(options.batch) * options.batches_per_update(); }
  int64_t per_epoch() const { return images.train_images.dim(0) / options.batch * options.batch; }
  int64_t trained(int64_t step) const { return images_at_start + (step - step_at_start) * per_update(); }

  /// After a signal it waits for no lost task: it is then the one that the trainer has kept.
  Result<Snapshot> snapshot() {
    std::stop_source hurry;
    std::optional<AtSignal> hurries;  // without a cluster nothing is waited for
    if (!cluster_status(engine).empty()) hurries.emplace([&hurry] { hurry.request_stop(); });
    return trainer.snapshot(hurry.get_token());
  }

  Status save() {
    TROUPE_ASSIGN(Snapshot taken, snapshot());
    TROUPE_ASSIGN(saved_at, records.save(std::move(taken), images_at_start, step_at_start, per_update()));
    return {};
  }

  // Updates until the end of `epoch`, with progress, events and checkpoints beside them.
  Status train(int epoch) {
    progress.begin(epoch);
    const int64_t left = (epoch + 1) * per_epoch() - trained(trainer.step());
    const Status status = run((left + per_update() - 1) / per_update());
    progress.clear();
    return status;
  }

  Status run(int64_t updates) {
    wait.begin();
    Status faults;
    auto saved = Progress::Clock::now();
    const AtSignal stops([this] { trainer.stop(); });
    auto summary = trainer.run(updates, [&](const nn::StepReport& report) {
      progress.step(report.loss, report.accuracy, report.examples);
      if (programs::interrupts() > 0 || !faults.ok()) return trainer.stop();
      if (report.step % 20 == 0) {
        faults = records.scalar("train/loss", report.loss, report.step);
        if (faults.ok()) faults = records.scalar("train/accuracy", report.accuracy, report.step);
        if (faults.ok()) faults = records.scalar("images_per_second", progress.images_per_second(), report.step);
      }
      if (faults.ok()) faults = tracing.write();
      const auto now = Progress::Clock::now();
      if (!faults.ok() || now - saved <= std::chrono::duration<double>(options.save_seconds)) return;
      saved = now;
      faults = save();
    });
    TROUPE_RETURN_IF_ERROR(faults);
    TROUPE_RETURN_IF_ERROR(summary);
    wait.end(*summary);
    return {};
  }

  Status test(int epoch, const Dataset& tests) {
    std::optional<AtSignal> stops;  // without a cluster nothing is waited for
    if (!cluster_status(engine).empty()) stops.emplace([this] { trainer.stop(); });
    const auto tested = trainer.evaluate(tests);
    if (!tested.ok() && tested.error().code == Code::kCancelled && programs::interrupts() > 0) {
      trainer.stop();
      return trainer.run(0).status();  // where a task is lost: back to what was kept
    }
    TROUPE_RETURN_IF_ERROR(tested);
    const nn::Metrics& metrics = *tested;
    programs::print("epoch {}/{}: loss {:.4f}, training accuracy {:.2f} %, test accuracy {:.2f} %, {:.0f} images/s\n",
                    epoch + 1, options.epochs, progress.loss(), 100 * progress.accuracy(), 100 * metrics.accuracy,
                    progress.images_per_second());
    TROUPE_RETURN_IF_ERROR(records.scalar("test/loss", metrics.loss, trainer.step()));
    TROUPE_RETURN_IF_ERROR(records.scalar("test/accuracy", metrics.accuracy, trainer.step()));
    TROUPE_ASSIGN(const Snapshot taken, snapshot());
    return records.weights(taken, trainer.variables(), trainer.step());
  }

  Status run() {
    TROUPE_ASSIGN(const Dataset tests, test_batches(images));
    TROUPE_RETURN_IF_ERROR(records.start(trainer.graph(), images, trainer.step()));
    const int first = static_cast<int>(images_at_start / per_epoch());
    if (first >= options.epochs) {
      TROUPE_ASSIGN(const nn::Metrics metrics, trainer.evaluate(tests));
      programs::print(
          "trained for {} epochs already: test accuracy {:.2f} %; --epochs N goes on, --fresh starts anew\n", first,
          100 * metrics.accuracy);
      return {};
    }
    TROUPE_RETURN_IF_ERROR(records.go_on(step_at_start));
    programs::count_signals();  // from here on there will be something to save
    programs::print("training {} on {} images of {}, {} replicas, {}\n", options.model, images.train_images.dim(0),
                    options.data, options.replicas, options.together.mode);
    for (int epoch = first; epoch < options.epochs && programs::interrupts() == 0; ++epoch) {
      TROUPE_RETURN_IF_ERROR(train(epoch));
      if (trainer.step() == step_at_start) break;  // a signal came before the first step
      if (programs::interrupts() == 0) TROUPE_RETURN_IF_ERROR(test(epoch, tests));
      TROUPE_RETURN_IF_ERROR(save());
      TROUPE_RETURN_IF_ERROR(programs::flush());  // what nobody can read is not worth going on
    }
    if (trainer.step() == step_at_start) return interrupted("before the first step; nothing new is saved");
    programs::saved();
    if (trained(saved_at) < options.epochs * per_epoch())
      programs::print("interrupted at step {} by {}: checkpoint saved in {}; run again to go on\n", saved_at,
                      programs::first_signal(), options.out);
    wait.print();
    return {};
  }
};

Status run(const Options& options) {
  TROUPE_ASSIGN(const Images images, load_images(options));
  TROUPE_ASSIGN(Records records, Records::open(options.out, settings_of(options, images.train_images.dim(0))));
  // A device for each replica, and one for the steps that fill the queue.
  const bool on_gpus = options.devices == "gpu";
  const size_t own = options.devices == "cpu" ? static_cast<size_t>(options.replicas) + 1 : 1;
  TROUPE_RETURN_IF_ERROR(check_devices(options.devices, options.cluster));
  const EngineOptions with = options.cluster.engine({.cpu_threads = std::vector<int>(own, 1)});
  TROUPE_ASSIGN(auto engine, on_gpus ? engine_with_gpus(with, options.replicas) : Engine::create(with));
  options.cluster.forget_former_client(*engine);
  const std::string input_device = engine->devices()[own - 1];  // GPUs and a cluster's come behind
  const std::vector<std::string> there = on_gpus    ? gpus_of(*engine)
                                         : own == 1 ? devices_of_workers(*engine)
                                                    : engine->devices();
  if (there.empty()) return invalid_argument("--devices workers: no task of the cluster but those of the job ps");
  std::vector<std::string> devices;
  for (size_t i = 0; i < static_cast<size_t>(options.replicas); ++i) devices.push_back(there[i % there.size()]);

  Records::Point point;
  if (!options.fresh) {
    auto found = records.load();
    if (found.ok()) point = std::move(*found);
    else if (options.resume || found.error().code != Code::kNotFound) return found.error();
  }
  const int64_t batches = images.train_images.dim(0) / options.batch * options.epochs;
  TROUPE_ASSIGN(Dataset data, training_batches(images, options, point.images / options.batch));
  nn::TrainerOptions settings{.devices = devices,
                              .optimizer = make_optimizer(options, batches / options.batches_per_update()),
                              .input_device = input_device,
                              .seed = options.seed,
                              .check_numerics = options.check_numerics};
  Tracing tracing;
  if (!options.trace.empty()) {
    TROUPE_ASSIGN(tracing.file, TraceFile::create(options.trace, *engine));
    tracing.trace = settings.trace = std::make_shared<Trace>();
  }
  options.together.apply_to(settings);
  if (options.together.servers) settings.variable_devices = devices_of_servers(*engine);
  if (options.together.servers && settings.variable_devices.empty())
    return invalid_argument("--servers: the cluster has no task of the job ps");
  Progress progress(options.epochs, images.train_images.dim(0) / options.batch * options.batch, point.images);
  settings.recovery.on_task = [&](const nn::TaskReport& report) {
    progress.clear();
    progress.go_back(report.updates * options.batch * options.batches_per_update());
    // An error comes again with the next point.
    if (report.updates > 0) (void)records.go_on(report.step).ok();
    print(report);
  };
  const DType dtype = *dtype_from_string(options.dtype);
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(*engine, make_model(options.model, dtype), data, settings));
  TROUPE_RETURN_IF_ERROR(point.path.empty() ? trainer->initialise() : trainer->restore(point.variables));
  if (!point.path.empty()) programs::print("going on from step {} of {}\n", trainer->step(), point.path);
  Job job{options, *engine, *trainer, records, images, point.images, trainer->step(), progress, tracing};
  const Status ran = job.run(), closed = tracing.close();
  return ran.ok() ? closed : ran;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(kDescription);
  add_options(app, options);
  return programs::run(app, argc, argv, [&] { return run(options); });
}
