// SPDX-License-Identifier: Apache-2.0
// Session: runs steps of a graph on an engine. Implemented in actors/session.cpp.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/deadline.h"
#include "troupe/engine.h"
#include "troupe/export.h"
#include "troupe/graph_passes.h"
#include "troupe/partial_run.h"
#include "troupe/placement.h"
#include "troupe/run_awaitable.h"
#include "troupe/run_lists.h"
#include "troupe/transfers.h"

namespace TROUPE_API troupe {

class Trace;

/// Lets any thread cancel the runs it was given to, of whatever sessions and engines; copies share. cancel() may come
/// at any time, more than once.
class CancelToken {
 public:
  CancelToken();
  // Copied where others would be moved, so that there is none without a state.
  CancelToken(const CancelToken&) = default;
  CancelToken& operator=(const CancelToken&) = default;
  void cancel();
  bool cancelled() const;

  class State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

struct RunOptions {
  /// The run fails with kDeadlineExceeded when it takes longer, whatever it waits for. Zero: the session's default;
  /// negative: it fails at once, and no node runs; nanoseconds::max(), or beyond what the clock can count: none. What a
  /// BlockingKernel was doing then goes on by itself, and nobody hears of it. The error names the first node that was
  /// found waiting; so does that of `cancel`. A task of a cluster that hangs is waited for until it counts as lost
  /// (ClusterOptions::silence).
  Deadline deadline = {};
  std::optional<CancelToken> cancel = {};
  /// Fails with the first node whose kernel or resource gives a floating output with a NaN or an infinity. What is fed
  /// and what is constant is the caller's, such as a mask of infinities, and not looked at.
  bool check_numerics = false;
  /// Takes what every node of the run did and when (troupe/trace.h); timing costs each of them two looks at the clock.
  std::shared_ptr<Trace> trace = {};
  /// From 0 on: what random ops draw follows from their seeds and this number alone, so that a run can be repeated, by
  /// another session too. Else it follows from their seeds and how often the session has run them.
  int64_t random_step = -1;
};

struct SessionOptions {
  /// For runs that name none; zero: none, and otherwise as RunOptions::deadline.
  Deadline deadline = {};
  /// Device of nodes that ask for none; empty: the first.
  std::string default_device = {};
  /// Nodes that ask for a device there is not, or that has no kernel for them, go to the one of that kind and number in
  /// any job, else to the default one or another with a kernel; of nodes that must be together and ask for different
  /// devices the first counts. Without this they are errors. For graphs that were made for other machines.
  bool soft_placement = false;
  /// How the graph may be rewritten for its steps.
  GraphPasses passes = {};
  /// Of the nodes that are ready on a device, in any of its steps, those with the greatest number run first, among them
  /// those of the oldest step; but a step that was passed over for 50 ms goes first for a moment, unless what keeps it
  /// waiting has a greater priority. Asked once for each node of a plan, from -1000 to 1000; a node that a pass put in
  /// place of another has its name. None: 0 for each. What it throws is the error of the run. It is called without a
  /// lock, by several threads at once where they plan at once (of two plans of one signature the first is kept), and
  /// may use the session, but not run what the plan is made for.
  std::function<int(const Node&)> priority = {};
  /// Chooses when constraints leave several devices; for a node that asks for none these are all devices, of
  /// the simulated and the others those of the default one's sort. By cost, nodes with the longest way to the end of
  /// the step run first, where `priority` does not say otherwise. What by the simulation of the placement does not fit
  /// the devices' memory is logged as a warning (check_memory) when the signature is first run.
  Placing placing = Placing::kByHand;
  /// What nodes were measured to cost in earlier runs (see Session::costs): placement by cost and the order of nodes
  /// begin with it. None: estimates. It must not change any more.
  std::shared_ptr<const CostModel> costs = {};
  /// Between any two devices, for placement by cost; none: that of the simulated devices where there are any, else what
  /// handing a pointer to another thread takes, and between tasks of a cluster what ClusterOptions::measure_links says.
  /// A bandwidth that is not positive, or a latency below 0, is an error of each run.
  std::optional<LinkRates> link = {};
  /// In so many steps of each signature, from the second on, the time of every node is taken, and later in every 64th:
  /// what costs() tells.
  int64_t timed_steps = 3;
  /// How the tensors of nodes that do not say it themselves (Scope::compress_transfers) cross from device to device.
  TransferCompression compress_transfers = TransferCompression::kOff;
  /// Lets what another device will need late, and which is cheap to make there from constants, feeds and variables
  /// alone, be made late: a device asks for it shortly before, as it does for values that it expands (white paper,
  /// 5.2). Needs less memory, costs messages. A variable is then read as late; one that the same step may change
  /// meanwhile is not.
  bool schedule_receives = false;
  /// Above 0: what a GPU has computed and will not read for so many nodes, in the order in which they fire, is in the
  /// host's memory meanwhile, such as what the backward part of a training step needs of the forward part. Takes less
  /// of the GPU's memory, and time where copies are slower than the nodes between; results are the same. Not done with
  /// loops and branches, in partial runs, and in steps of several tasks.
  int64_t swap_to_host_after = 0;
  /// Signatures (feeds, fetches, targets) whose plan is kept for the next run, and bytes of constants that passes made
  /// for these plans. Beyond either, the plans that were not run for longest go, and are made again when they are run
  /// again: results do not change, random ops go on where they were. What a Prepared or a step under way needs stays.
  /// The newest plan is kept always. Below 1 (0) counts as 1 (0).
  int64_t plans = 256;
  int64_t plan_bytes = int64_t{1} << 30;
};

/// Runs on a thread of the engine, exactly once, whatever the result and whenever it is known; never within the call
/// that it was given to, so a callback may start the next step without end. Once the engine has gone, and in a child
/// after fork(), there is no such thread: it then runs within the call, with kFailedPrecondition. It must not block:
/// calls that wait for the engine (Session::run, Engine::restore, ...) are errors in it. What it throws is logged and
/// dropped.
using RunCallback = std::function<void(RunResult)>;

/// Steps of one graph. Thread-safe: any number of threads and actors may run steps at once; but the destructor comes
/// last, from any thread.
class Session {
 public:
  /// `graph` must outlive the session and its steps in flight. When the engine goes first, calls are errors from then
  /// on.
  Session(Engine& engine, const Graph& graph, SessionOptions options = {});
  /// close().
  ~Session();
  Session(const Session&) = delete;

  /// Cancels the steps in flight and waits until the callbacks of all runs begun before have returned, also of those
  /// that failed before a step began: as long as the kernels at work take, whatever the steps wait for. Later runs are
  /// errors (kFailedPrecondition). Any thread, more than once, also while the engine ends on another. In a callback of
  /// the engine, and in an actor of its system that is not detached, it does not wait, and the graph must then outlive
  /// the steps in flight.
  void close();

  /// Runs what the fetches and targets need, once, and returns the fetched tensors in order. Nodes beyond feeds do not
  /// run. The graph may have grown since the last run. Blocks; on a thread of the engine it is an error. The calling
  /// thread may run kernels of the step meanwhile, if it has a megabyte of stack.
  /// Errors: the first of the step (see Error's fields); kDeadlineExceeded; kCancelled; kNotFound, kInvalidArgument for
  /// feeds and fetches that do not fit, with the names and shapes, or are of another graph; kFailedPrecondition where
  /// no step can begin: a closed session, an engine that has gone, a child after fork(), a thread of the engine.
  /// Tensors that are fed and fetched are frozen (see tensor.h).
  RunResult run(const FeedList& feeds, const OutputList& fetches, const NodeList& targets = {},
                const RunOptions& options = {});
  /// The same without feeds: run(loss), run({loss, accuracy}), run({loss}, {train}).
  RunResult run(const OutputList& fetches, const NodeList& targets = {}, const RunOptions& options = {});
  RunResult run(const OutputList& fetches, const RunOptions& options);
  /// Targets alone: run(train), run({first, second}), run(model.initializers()). Returns no tensors.
  RunResult run(const NodeList& targets, const RunOptions& options = {});
  /// The same by names: "x:0", "x", and node names as targets.
  RunResult run(const std::vector<std::pair<std::string, Tensor>>& feeds, const NameList& fetches,
                const NameList& targets = {}, const RunOptions& options = {});
  /// Returns at once; callable from anywhere.
  void run_async(const FeedList& feeds, const OutputList& fetches, const NodeList& targets, RunCallback done,
                 const RunOptions& options = {});
  std::future<RunResult> run_future(const FeedList& feeds, const OutputList& fetches, const NodeList& targets = {},
                                    const RunOptions& options = {});

  /// The same for coroutines: begins the run; `co_await` gives its result. See troupe/run_awaitable.h for the thread
  /// that goes on. Short forms as of run().
  RunAwaitable run_async(const FeedList& feeds, const OutputList& fetches, const NodeList& targets = {},
                         const RunOptions& options = {});
  RunAwaitable run_async(const OutputList& fetches, const NodeList& targets = {}, const RunOptions& options = {});
  RunAwaitable run_async(const OutputList& fetches, const RunOptions& options);
  RunAwaitable run_async(const NodeList& targets, const RunOptions& options = {});

  /// One signature looked up once, for loops: run(values) feeds `values` in the order of `feeds`. Of this session
  /// alone.
  class Prepared;
  Result<std::shared_ptr<Prepared>> prepare(const std::vector<Output>& feeds, const std::vector<Output>& fetches,
                                            const std::vector<const Node*>& targets = {});
  RunResult run(const std::shared_ptr<Prepared>& prepared, ValueList values = {}, const RunOptions& options = {});
  void run_async(const std::shared_ptr<Prepared>& prepared, ValueList values, RunCallback done,
                 const RunOptions& options = {});
  /// For coroutines.
  RunAwaitable run_async(const std::shared_ptr<Prepared>& prepared, ValueList values = {},
                         const RunOptions& options = {});

  /// Begins one step whose feeds and fetches come in several calls: see troupe/partial_run.h. `feeds` and `fetches` are
  /// all that it will be given and asked for, each once; `targets` run too. options.deadline and options.cancel are of
  /// the whole. Callable from anywhere. Errors: those of run().
  Result<PartialRun> partial_run(const OutputList& feeds, const OutputList& fetches, const NodeList& targets = {},
                                 const RunOptions& options = {});

  /// Engine::may_wait() of its engine, which may have gone: for functions that wait for its steps.
  Status may_wait(std::string_view what, std::string_view instead = "it from a thread of your own") const;

  Engine& engine() const;
  const Graph& graph() const;
  /// SessionOptions::costs with what steps have measured since, of the nodes that compute: nanoseconds of each firing,
  /// bytes of its outputs and how often they run in a step, by name and kind of device. A node that a pass made has the
  /// name of the one it stands for.
  CostModel costs() const;

  class Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;  // steps in flight have it too
};

}  // namespace troupe
