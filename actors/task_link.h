// SPDX-License-Identifier: Apache-2.0
// TaskLink: what a client asks of one task of a cluster, its own among them: to keep the task's part of a step, to run
// it, to end it. Worker (worker.h) carries it out; between processes peers bring it there.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "devices/step_call.h"
#include "net/messages.h"
#include "plan/cut.h"

namespace troupe {

/// A part of the steps of one signature.
struct PartProgram {
  uint64_t program = 0;  // the client's number for it
  uint64_t session = 0;  // those of one share what kernels keep from step to step
  std::shared_ptr<const CutStep> cut;
  uint32_t part = 0;  // of its parts
  int64_t timed_steps = 3;
};

/// How a part has ended, and what was asked to be told of it.
struct PartEnd {
  PartEnd(Result<std::vector<Tensor>> result) : result(std::move(result)) {}
  PartEnd(Error error) : result(std::move(error)) {}
  /// The fetches in the order of StepPart::fetches (undefined where a PartCaller has them), or the error of this part.
  Result<std::vector<Tensor>> result;
  std::vector<net::TraceRecord> trace = {};  // by names of the part's nodes
  std::vector<net::CostRecord> costs = {};   // likewise: of all its runs until now
  /// When the run came and when it ended, of the clock that the trace's times are of.
  int64_t began_ns = 0, ended_ns = 0;
};

/// Who gives a part its feeds while it runs and takes its fetches as they come: the caller of a partial run, by
/// StepPart::partial.
class PartCaller : public StepSink {
 public:
  /// The part runs: the Recvs of its plan's PartialPlan take feeds from now on, which are numbered as StepPart::feeds.
  /// Once, on any thread, perhaps after fetches have come.
  virtual void begun(const StepRef& part) = 0;
};

/// One step of it.
struct PartRun {
  using Done = std::function<void(PartEnd)>;
  uint64_t program = 0;
  int64_t step = 0;           // the client's number for it, above those of all steps it began before
  int64_t oldest = 0;         // of its steps that have not ended: what comes for one before it is dropped
  std::vector<Tensor> feeds;  // in the order of StepPart::feeds; none of a partial part
  bool check_numerics = false;
  int64_t random_step = -1;
  bool trace = false, costs = false;        // are to be told
  std::shared_ptr<PartCaller> caller = {};  // of a partial part, which is in the caller's process
  /// Called once, on any thread, perhaps within run(). Nothing of the step is under way there any more, but for kernels
  /// that may block.
  Done done;
};

/// Something about a container of the task, or a dataset, which are the default container's.
struct ContainerAsk {
  enum class Kind : uint8_t { kSnapshot, kRestore, kReset, kRestart };
  using Variables = std::map<std::string, Tensor>;
  Kind kind = Kind::kSnapshot;
  std::string container = {};
  /// Of a snapshot: the client's steps that run and are in it wholly. No step that begins after `made` is in it at all;
  /// the client begins none before.
  std::vector<int64_t> steps = {};
  std::function<void()> made = {};
  Variables variables = {};  // to be restored
  std::string dataset = {};  // to be restarted; kNotFound where there is none
  /// Called once, on any thread, after `made`, and perhaps without it where it fails.
  std::function<void(Result<Variables>)> done = {};
};

/// `done` as a function that calls it once: with the first result it is given or, when the last copy of it goes without
/// any, as the messages of an actor do that has ended, with `otherwise`.
template <class R> std::function<void(R)> answered_once(std::function<void(R)> done, Error otherwise) {
  struct State {
    State(std::function<void(R)> done, Error otherwise) : done(std::move(done)), otherwise(std::move(otherwise)) {}
    ~State() {
      if (done) done(std::move(otherwise));
    }
    std::function<void(R)> done;
    Error otherwise;
  };
  return [state = std::make_shared<State>(std::move(done), std::move(otherwise))](R result) {
    if (auto done = std::exchange(state->done, nullptr)) done(std::move(result));
  };
}

/// Thread-safe. No call waits.
class TaskLink {
 public:
  virtual ~TaskLink() = default;
  /// What is wrong with the program is told by its runs.
  virtual void add_program(PartProgram program) = 0;
  /// No run of it begins any more; those under way go on.
  virtual void drop_program(uint64_t program) = 0;
  /// None of its programs will run any more.
  virtual void drop_session(uint64_t session) = 0;
  virtual void run(PartRun run) = 0;
  /// Has the run of that step end with `error`; one that has ended already is none.
  virtual void abort(int64_t step, const Error& error) = 0;
  virtual void ask(ContainerAsk ask) = 0;
};

/// A step by its client and the client's number for it, as a value that goes from task to task names it.
struct StepOfClient {
  uint64_t client = 0, step = 0;
  auto operator<=>(const StepOfClient&) const = default;
};

/// A tensor (or, undefined, a mere signal) on its way from task to task.
struct EdgeValue {
  uint64_t client = 0;  // whose step it is
  int64_t step = 0;     // the client's number
  uint32_t edge = 0;
  Tensor value;
  bool dead = false;
  std::vector<uint32_t> iterations = {};  // see ReadyTensor
};

}  // namespace troupe
