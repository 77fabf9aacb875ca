// SPDX-License-Identifier: Apache-2.0
// Pipeline: trains a model whose layers are on several devices, many micro-batches at once. Implemented in
// train/pipeline_cut.cpp (where the model is cut), train/pipeline_graph.cpp (the graph), train/pipeline.cpp (the loop).
//
// The training step of one micro-batch is one step of a session: forward and backward through all stages. The
// micro-batches of a batch are steps that run at once; how they share the devices follows from two things alone:
// credit, which bounds how many micro-batches a device has begun and not finished, and the priority of forward and
// backward nodes. So every schedule is the same graph with other numbers (docs/pipeline.md).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "troupe/device_rates.h"
#include "troupe/export.h"
#include "troupe/train.h"

namespace TROUPE_API troupe {
namespace nn {

/// Of p stages on p devices, m micro-batches in a batch.
enum class PipelineSchedule {
  kGPipe,        // all forward passes first: m micro-batches in flight. Huang et al., 2019
  kOneFOneB,     // a backward pass for each forward pass: p in flight on the first stage, 1 on the last. Narayanan 2019
  kInterleaved,  // the same with several stages on each device, so that the pipeline fills faster. Narayanan 2021
  kZeroBubble,   // gradients of weights run when a device has nothing else to do; 2p in flight. Qi et al., 2023
};

/// In a pipeline's model, part `i` of whatever stage and replica a node comes to be in; from 0.
std::string part_device(int i);
/// part_device of 0 to parts - 1.
std::vector<std::string> part_devices(int parts);

/// One stage: what it hands on. `inputs` is what the stage before returned, of the first stage `batch`; in later stages
/// they are nodes of the stage itself, so operators on them belong to it. `batch` holds the components of one
/// micro-batch, for whoever needs labels. The last stage returns the loss and, if there is one,
/// the accuracy: float32 scalars.
using StageFn =
    std::function<std::vector<Output>(const Scope& scope, Variables& variables, const std::vector<Output>& inputs,
                                      const std::vector<Output>& batch, bool training)>;

/// The stages one after the other as one model, each in a scope of its own: "stage_0", "stage_1", ...
ModelFn chain(std::vector<StageFn> stages);

struct PipelineOptions {
  /// The devices, one for each stage; with kInterleaved stage i is on device i modulo their number. With several
  /// replicas: those of the first, then those of the second, ...; with several parts, the parts of the first stage,
  /// then those of the second, ...: as DeviceMesh::devices() of axes data, pipeline and tensor. They may be of several
  /// tasks, as TrainerOptions::devices; variables live with their stage's device of the first replica. Required.
  std::vector<std::string> devices = {};
  PipelineSchedule schedule = PipelineSchedule::kOneFOneB;
  /// Stages on each device, 2 or more with kInterleaved, else 1; 0: 2 or 1.
  int chunks = 0;
  /// Parts that a batch is cut into along its first axis. With kInterleaved a multiple of the devices fits best.
  int micro_batches = 1;
  /// Data parallel: pipelines beside one another that share the variables; micro-batch i is for replica i modulo their
  /// number, which divides micro_batches. The order of sums stays that of the micro-batches, so that the result has the
  /// same bits. Moving averages follow the micro-batches of the first replica.
  int replicas = 1;
  /// Tensor parallel: devices that share the layers of each stage. A model names them by part_device, on which
  /// tensor_parallel.h puts shares; nodes that name none are on the first part.
  int parts = 1;
  /// Each micro-batch updates the variables as soon as its gradients are there, and a backward pass takes the values
  /// that its forward pass read: no waiting between batches, but weights that are up to p updates old. PipeDream,
  /// Narayanan et al., 2019.
  bool asynchronous = false;
  /// Name scopes of the stages, in order; nodes outside of them join the stage of what they read, or else of what reads
  /// them. Empty: the cost model cuts the chain of the model's nodes so that the dearest stage is cheapest.
  std::vector<std::string> scopes = {};
  /// What that cut takes devices to be able to do.
  DeviceRates rates = {};

  Optimizer optimizer = {};
  GradientOptions gradients = {};
  /// Where the variables live, and a name for what else the pipeline keeps on the engine: two pipelines need two names.
  std::string container = {};
  std::string name = "pipeline";
  int64_t seed = 1;
  /// Batches whose micro-batches may be under way or waiting at once; at least 2 keep the pipeline full between
  /// batches.
  int batches_in_flight = 2;
  /// Stops with the first node whose output has a NaN or an infinity. A loss that is not finite always stops.
  bool check_numerics = false;
  /// A lost task is got over as a trainer in kSync gets over one: to the same bits, if the dataset is repeatable and
  /// the pipeline not `asynchronous`. A snapshot is taken when the batches under way have ended; those that
  /// Pipeline::snapshot() takes serve too.
  RecoveryOptions recovery = {};
  /// Takes what every node did and when (troupe/trace.h).
  std::shared_ptr<Trace> trace = {};
};

/// What a stage of a pipeline is.
struct PipelineStage {
  std::string device;  // of the first replica, part 0
  double cost_ns = 0;  // forward and backward of one micro-batch, as the cost model estimates it
  int nodes = 0;       // forward
  int credit = 0;      // micro-batches that may be in flight on its device, counted for each stage there
  std::vector<std::string> variables = {};
};

/// Owns graph, session and loop. All calls come from one thread at a time; stop() and snapshot() from any. On a thread
/// of the engine, that is in a callback, and in an actor of its system that is not detached, they are errors (but
/// stop()), and the destructor, which cannot return one, ends the program with a line that says so.
///
/// But for `asynchronous`, the variables are bit for bit those of a run without a pipeline that takes the same
/// micro-batches one after the other and adds up their gradients of loss / micro_batches in that order, whatever the
/// schedule: sums and moving averages have a fixed order, and random ops (dropout) draw by the number of the
/// micro-batch. Each stage updates its variables as soon as its last gradient is there, and begins the next batch at
/// once. An optimizer that clips by the global norm makes each update wait for all stages.
class Pipeline {
 public:
  /// Builds the graph. `batches` gives what the model takes, with known inner sizes. The engine must outlive the
  /// pipeline. Errors: those of the model's graph; a loss or accuracy as in Trainer::create; no optimizer; options that
  /// do not fit one another (values are named); a scope without a node; an edge from a later stage to an earlier one
  /// (both nodes are named); more stages than the model has layers to cut between; a batch that micro_batches does not
  /// divide, where its size is known; kAlreadyExists for a name in use. What the pipeline itself adds to the graph is
  /// told at the caller's line, `where`.
  static Result<std::unique_ptr<Pipeline>> create(Engine& engine, ModelFn model, Dataset batches,
                                                  PipelineOptions options,
                                                  std::source_location where = std::source_location::current());
  /// The same with one stage for each function; options.scopes stays empty.
  static Result<std::unique_ptr<Pipeline>> create(Engine& engine, std::vector<StageFn> stages, Dataset batches,
                                                  PipelineOptions options,
                                                  std::source_location where = std::source_location::current());
  /// Cancels what runs and waits for it; for a dataset that waits no longer than a second, then it is left behind.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  /// Assigns every variable its initial value. Before the first run step() is then 0, also after a restore(). Error:
  /// kFailedPrecondition in a run, that is in on_step.
  Status initialise();
  /// initialise(), then the values of a checkpoint, all or none; step() goes on from its global step.
  /// Errors as of Trainer::restore.
  Status restore(const Snapshot& snapshot);

  /// Trains on `batches` batches, or until stop() or the end of the data; returns when the last update is made.
  /// `on_step` is called on the calling thread once for each batch, with means over its micro-batches, and may block;
  /// the batches in flight go on beside it, the next waits for it. What it throws stops the run and is its error. On
  /// simulated devices the clock stands still while batches_in_flight batches are started, so a run of no more batches
  /// has an exact schedule. Errors: the first of any step, which ends the others; the pipeline then only repeats it. A
  /// loss that is not finite, a batch that micro_batches does not divide; kFailedPrecondition in a run, that is in
  /// on_step. For lost tasks see RecoveryOptions.
  Result<RunSummary> run(int64_t batches, const std::function<void(const StepReport&)>& on_step = {});
  /// The run in progress (or else the next one) ends after the batches in flight, at most batches_in_flight, which
  /// on_step still gets. It does not wait for a batch that the dataset has not given: that is the first of the next
  /// run. An evaluation that waits for its dataset, now or next, ends with kCancelled.
  void stop();
  /// Updates of the variables so far: batches, with `asynchronous` micro-batches.
  int64_t step() const;

  /// The variables, slots and the global step after a whole batch, for restore() and checkpoint.h: also while a run is
  /// in progress, from any thread but the engine's, on_step included. The batches under way end first and the next
  /// waits, so the pipeline is empty once. step_of() tells which step it is of: in on_step mostly a later one than the
  /// report's. While a task is lost amid a run it is the one that training will go on from; between two runs the
  /// updates that are lost are made again first. After a run that has ended since the task did not come back, it is the
  /// last one that was kept. Errors: another one that has ended the steps, since some stages may have made an update
  /// that others have not; what on_task throws meanwhile; those of Engine::snapshot.
  Result<Snapshot> snapshot();

  /// Tests on every batch of `batches` with training off, each as one micro-batch through the stages of the first
  /// replica, several at once. Batches without rows count for nothing. Its errors are its own: training may go on.
  /// Where a task is lost, also in on_step, training first goes back as it does by itself, and the test is made again.
  Result<Metrics> evaluate(const Dataset& batches);

  const std::vector<PipelineStage>& stages() const;
  const Graph& graph() const;
  Session& session();
  const Variables& variables() const;

 private:
  class Impl;
  explicit Pipeline(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Cuts a chain into `stages` runs of neighbours, none of them empty, so that the dearest run is as cheap as can be:
/// returns where each begins, in order. Time: stages * n^2 for n costs.
/// Errors: kInvalidArgument for fewer costs than stages, no stage, or a cost, or their sum, that is negative or not
/// finite.
Result<std::vector<size_t>> balance(const std::vector<double>& costs, int stages);

}  // namespace nn
}  // namespace troupe
