// SPDX-License-Identifier: Apache-2.0
// Trainer: replicas of a model on several devices, fed through queues, that share one container of variables or keep
// copies that agree (docs/data_parallel.md). Implemented in train/towers.cpp, train/copies.cpp (the graph) and
// train/trainer.cpp (the loops); step_of in train/shards.cpp.
//
// An input loop runs steps that move elements of a dataset into a queue; replicas dequeue. Loops are continuations:
// the callback of a step starts the next one, so no thread waits in between.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "troupe/export.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace TROUPE_API troupe {
namespace nn {

/// What a model gives: two float32 scalars.
struct ModelOutputs {
  Output loss = {};      // what training makes small
  Output accuracy = {};  // any metric to report; may be empty
};

/// Builds the model once on the scope's device. `batch` holds the components of one element of the dataset. Called
/// once for each replica and, with training false, once for each device that tests; with variable_devices once more
/// before, in a graph of its own.
using ModelFn = std::function<ModelOutputs(const Scope& scope, Variables& variables, const std::vector<Output>& batch,
                                           bool training)>;

enum class ReplicaMode {
  kSync,    // one step: every replica takes a batch, gradients are averaged in replica order, one update
  kAsync,   // every replica takes batches and updates the variables on its own
  kHybrid,  // gradients gather in accumulators; an update takes those of N - k replicas, late ones are dropped
  kLocal,   // every replica updates a copy of the variables; the copies are averaged now and then. Stich, 2018
};

/// How kSync brings the gradients of the replicas together.
enum class ReduceBy {
  kChief,  // the first replica's device adds them up and updates variables that all share
  kRing,   // by ring all-reduce, while the backward pass goes on; every replica makes the same update of its own copy
};

/// A task that a trainer has lost, or has again.
struct TaskReport {
  std::string reason;  // with the task's name; of one that is back, why it was lost
  bool back = false;
  int replica = -1;     // that goes on without, or is back; -1: all training had to wait
  int64_t step = 0;     // Trainer::step() when it was lost; of one that is back, from which training goes on
  int64_t updates = 0;  // back: that are lost, and made again
  int64_t batches = 0;  // back: of a replica, that no update has seen, nor will. At most: a step of it that failed may
                        // have taken none
  double seconds = 0;   // back: since the loss
};

/// What a trainer does about tasks of a cluster (EngineOptions::cluster) that are lost: their process was killed,
/// hangs, or has started again and so has nothing any more. Without a cluster it has no meaning.
///
/// Where the steps of all replicas need a lost task, which with kSync and kLocal is any, all wait until it is back, go
/// back to the last snapshot and go on from there: with kSync to the same bits as if nothing had happened, if the
/// dataset gives the same elements when it is iterated again. With kAsync and kHybrid replicas on a lost task that has
/// no variables are left out, and the others go on, in kHybrid if an update can do without them, and else wait; once
/// the task is back, they take the variables as they are and go on too. A batch that they had is lost. A dataset that
/// is not Dataset::repeatable goes on where it is: what was taken from it and not trained on is lost.
struct RecoveryOptions {
  /// How long a run waits without an update before the loss is its error. 0: at once.
  std::chrono::nanoseconds wait{std::chrono::minutes(5)};
  /// How often a run takes a snapshot to go back to, which this process keeps in memory; the first at its beginning,
  /// another at the first update after a loss, before the next one begins. Those of Trainer::snapshot() and of
  /// restore() serve too. 0: after a hundred times as long as the last one took, but after 1 s at least and 30 s at
  /// most.
  std::chrono::nanoseconds snapshot_interval{0};
  /// Told of each loss and return, by the thread that calls run(), as its on_step is.
  std::function<void(const TaskReport&)> on_task = {};
};

struct TrainerOptions {
  ReplicaMode mode = ReplicaMode::kSync;
  /// The device of each replica; one device may serve several. They may be of several tasks of a cluster
  /// (EngineOptions::cluster); a name without a task is of the first that has such a device, the engine's own before
  /// others. Empty: one replica on the default device.
  std::vector<std::string> devices = {};
  /// Of kHybrid: how many replicas an update does not wait for; fewer than there are replicas.
  int backups = 0;
  /// Of kSync.
  ReduceBy reduce = ReduceBy::kChief;
  /// Of ReduceBy::kRing and kLocal: tensors go round packed into vectors of at most so many bytes (a larger tensor has
  /// one to itself), gradients in the order in which the backward pass makes them. Gradients of rows (of gathers) are
  /// gathered, not packed.
  int64_t bucket_bytes = 1 << 20;
  /// Of ReduceBy::kRing: each of N replicas keeps 1/N of the optimizer's slots, makes 1/N of the update, and gets the
  /// rest of the new variables from the others. ZeRO, stage 1: Rajbhandari et al., 2020.
  bool shard_optimizer_state = false;
  /// Of kAsync: a replica begins an update only while it has made at most so many more than the slowest one has; 0:
  /// they go in rounds; -1: no bound. Stale synchronous parallel: Ho et al., 2013.
  int64_t max_staleness = -1;
  /// Of kLocal: updates of each replica between two averages, at least 1.
  int64_t local_steps = 1;
  Optimizer optimizer = {};
  /// How each replica's gradients are made.
  GradientOptions gradients = {};
  /// Where the variables live, and stay; copies of further replicas are in "<container>/<name>/replica_<i>" as long as
  /// the trainer lives. So do its queues, iterator and accumulators, which have its name: two trainers that live at
  /// once on one engine need two.
  std::string container = {};
  std::string name = "train";
  /// Batches waiting in front of each replica: in the memory of its GPU, if it is on one and no other replica takes
  /// them, copied there while it works on those before.
  int queue_capacity = 4;
  /// The device that runs the steps of the input; empty: that of the first replica, or where that is of another task
  /// the engine's first. The dataset itself is on devices of the engine's own task always.
  std::string input_device = {};
  /// Parameter servers: devices in whose tasks the variables live, with their slots and accumulators. The largest
  /// variable goes to the first, each further one, by size, to the one with the fewest bytes so far. Empty: all live in
  /// the task of the first replica. Within one task it makes no difference. Not for kRing and kLocal.
  std::vector<std::string> variable_devices = {};
  int64_t seed = 1;
  /// Stops with the first node whose output has a NaN or an infinity. A loss that is not finite always stops.
  bool check_numerics = false;
  RecoveryOptions recovery = {};
  /// Takes what every node of every step did and when (troupe/trace.h), of the steps of the input too. It grows until
  /// its events are taken, whose nodes live as long as the trainer.
  std::shared_ptr<Trace> trace = {};
};

/// One step of one replica (in kSync, of all).
struct StepReport {
  int64_t step = 0;  // updates of the variables when it ended; in kLocal of the replica's own
  int replica = 0;
  float loss = 0;
  float accuracy = 0;
  int64_t examples = 0;
};

/// Reports of a replica that wait for Trainer::run's on_step at most.
constexpr int kMostReports = 64;

struct RunSummary {
  int64_t updates = 0;                      // made by this run
  bool stopped = false;                     // by stop()
  bool end_of_data = false;                 // the dataset ended first
  std::vector<int64_t> input_wait_ns = {};  // of each replica (kSync: of all together): ready, and no batch was there
  int losses = 0;            // of tasks, that this run got over, and those between it and the run before.
                             // Where all had to wait, losses without an update between them are one
  int64_t batches_lost = 0;  // that no update has seen, nor will: those of TaskReport, also of replicas
                             // whose tasks are not back, less those that have turned out not to be
};

/// Means over a test set.
struct Metrics {
  double loss = 0;
  double accuracy = 0;
  int64_t examples = 0;
};

/// The updates of the variables that a snapshot of a Trainer or Pipeline has behind it: what step() was when it was
/// taken, with kAsync also those of steps that were not counted yet, one of a replica at most, and of steps that failed
/// with their task once they had made them. Any thread. Error: kInvalidArgument for a snapshot without a global step,
/// an int64 scalar.
Result<int64_t> step_of(const Snapshot& snapshot);

/// Owns graph, session and loops. run(), evaluate(), initialise() and restore() come from one thread at a time; stop()
/// and snapshot() from any. On a thread of the engine, that is in a callback, and in an actor of its system that is
/// not detached, they are errors (but stop()), and the destructor, which cannot return one, ends the program with a
/// line that says so.
///
/// kSync and kLocal: the same seed, dataset and devices give bit-identical variables: batches go to replicas in turn by
/// a queue for each, sums have a fixed order, only the first replica moves moving averages, and random ops (dropout)
/// draw by the global step. So does in kSync a run that was stopped and restored, if the dataset begins where it was.
///
/// kLocal: an update is one of every replica. At the end of a run too the copies are averaged; slots are never.
///
/// A replica that fails ends the run with its error in every mode: no other waits for it.
class Trainer {
 public:
  /// Builds the graph. `batches` gives what the model takes, with known inner sizes; it is added to the engine under
  /// options.name. The engine must outlive the trainer. Errors: those of the model's graph; a loss or accuracy that is
  /// not a float32 scalar (of one whose shape is not known, an error of the step); options out of range or that do not
  /// fit the mode; no optimizer; a name in use. What the trainer itself adds to the graph is told at the caller's line,
  /// `where`.
  static Result<std::unique_ptr<Trainer>> create(Engine& engine, ModelFn model, Dataset batches, TrainerOptions options,
                                                 std::source_location where = std::source_location::current());
  /// Cancels what runs or waits, waits for the kernels at work, and gives its name free; the variables stay.
  ~Trainer();
  Trainer(const Trainer&) = delete;

  /// Assigns every variable its initial value. Before the first run step() is then 0, also after a restore(). Error:
  /// kFailedPrecondition in a run, that is in on_step.
  Status initialise();
  /// initialise(), then the values of a checkpoint, all or none, in any mode whatever mode it comes from; step() goes
  /// on from its global step. What the checkpoint lacks keeps its initial value. Errors: kInvalidArgument for a
  /// checkpoint without any of the model's trainable variables, which is another model's, and for values that do not
  /// fit; kFailedPrecondition after the first run.
  Status restore(const Snapshot& snapshot);

  /// Trains for `updates` updates, or until stop() or the end of the data. Between two runs nothing changes the
  /// variables. `on_step` is called on the calling thread, once for each step, and may block. Training goes on beside
  /// it until kMostReports reports of a replica wait: that replica then begins its next step when one of them is taken
  /// (in kLocal, where a snapshot is asked for, it first goes on to the next average). What on_step throws stops the
  /// run and is its error. A dataset that has no element ready is waited for without a step in flight. Errors: the
  /// first of any loop; the trainer then only repeats it; kFailedPrecondition in a run, that is in on_step. A loss that
  /// is not finite names its step. For lost tasks see RecoveryOptions: steps that are made again are reported again.
  Result<RunSummary> run(int64_t updates, const std::function<void(const StepReport&)>& on_step = {});
  /// The run in progress (or else the next one) ends after the steps in flight, which have their batches: it does not
  /// wait for a dataset that is silent. on_step still gets the reports of all steps that were made: at most
  /// kMostReports of each replica, in kLocal also those of the steps with which replicas catch up with the fastest, in
  /// kHybrid those of the steps whose gradients the update at work waits for. In kLocal the copies are then averaged.
  /// An evaluation that waits for its dataset, now or next, ends with kCancelled.
  void stop();
  /// Updates of the variables so far.
  int64_t step() const;

  /// The variables and slots as one replica alone would have them, after a whole update: also while a run is in
  /// progress, which it does not stop, from any thread but the engine's, on_step included. Training goes on beside
  /// on_step, so a snapshot taken there is mostly of a later step than its report: step_of() tells. Where runs give
  /// bit-identical variables, what a snapshot of step N has is the same in every run. kAsync: each update is in it
  /// wholly or not at all. kLocal: it is taken when copies are averaged. Waits until the update in progress has been
  /// made. While a task is lost that all need, it is the one that training will go on from, and after a run that has
  /// ended since the task did not come back, the last one that was kept. Error: that of such a run, where none was.
  /// Between two runs it waits for a lost task, and for the updates that are then made again; once `hurry` says so it
  /// is the last one that was kept instead, if any was: perhaps of an earlier step than step(), which step_of() tells.
  Result<Snapshot> snapshot(const std::stop_token& hurry = {});

  /// Tests on every batch of `batches`, replicas' devices side by side, with training off. Batches without rows count
  /// for nothing. Its errors are its own: training may go on.
  Result<Metrics> evaluate(const Dataset& batches);

  const Graph& graph() const;
  Session& session();
  const Variables& variables() const;

 private:
  class Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nn
}  // namespace troupe
