// SPDX-License-Identifier: Apache-2.0
// Worker: the parts that a task runs in the steps of clients: their plans, their steps, and what comes for these from
// other tasks. Thread-safe; it waits for nothing, and plans are made on a thread apart.
//
//  1. Each run is answered once. It begins when its program is planned, and ends as any step: a deadline is the
//     client's, who then aborts it.
//  2. What comes from other tasks may come before its run, since it takes another way. It waits here; for a step that
//     has ended it is dropped. A client tells with each run which of its steps is the oldest that has not ended, so
//     what is kept of ended steps has an end.
//  3. No value reaches a step that is not as its plan says: edge, dtype, shape, loops. One that is not fails the step.
//  4. Nothing is called, and no message sent, with the mutex held.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "actors/directory.h"
#include "actors/task_datasets.h"
#include "actors/task_link.h"
#include "plan/plan.h"

namespace troupe {

class Worker : public std::enable_shared_from_this<Worker> {
 public:
  /// What it needs of its engine, which calls close() before it ends.
  struct Host {
    const OpRegistry& ops;
    const KernelRegistry& kernels;
    std::span<const DeviceInfo> devices;  // of this task
    std::shared_ptr<Directory> directory;
    std::atomic<int64_t>& next_step;
    /// Has a thread that may wait call it.
    std::function<Status(std::function<void()>)> run_job;
    /// Brings a value to the worker of another task. Called by device actors; it must not wait. True: see
    /// StepSink::sent().
    std::function<bool(const std::string& task, EdgeValue)> send;
    /// The host of a container's variables.
    std::function<Result<caf::actor>(const std::string& container)> container = {};
    std::shared_ptr<TaskDatasets> datasets = {};  // of a cluster's task
    std::weak_ptr<void> engine = {};  // kept while run_job's calls run; never set: it lives as long as the worker
  };
  /// A program as it comes: its graph, which holds what is pointed to.
  struct Program {
    std::shared_ptr<const Graph> graph;
    std::vector<Output> feeds, fetches;
    std::map<uint32_t, std::string> sends;     // edge -> task
    std::map<uint32_t, std::string> receives;  // likewise
    int64_t timed_steps = 3;
    bool partial = false;  // see StepPart
  };

  explicit Worker(Host host) : host_(std::move(host)) {}

  /// Begins to plan what `read` returns, which a thread that may wait calls. A number that the client has used already
  /// replaces the old one.
  using Read = std::function<Result<Program>()>;
  void add_program(uint64_t client, uint64_t number, uint64_t session, Read read);
  void drop_program(uint64_t client, uint64_t number);
  /// Lets go of what kernels of the session kept from step to step.
  void drop_session(uint64_t client, uint64_t session);
  /// `lender`: of the calling thread, which may then run the devices.
  void run(uint64_t client, PartRun run, Lender* lender = nullptr);
  void received(EdgeValue value, Lender* lender = nullptr);
  void abort(uint64_t client, int64_t step, const Error& error);
  /// Ends a step of which what goes over that edge cannot be sent. The error is that of the node whose output it is.
  void cannot_send(uint64_t client, int64_t step, uint32_t edge, Error error);
  void ask(uint64_t client, ContainerAsk ask);
  /// The client has gone: its steps end, its programs are dropped.
  void drop_client(uint64_t client, const Error& why);
  /// The way to a task is cut: the steps that exchange something with it end.
  void lost_task(const std::string& task, const Error& why);
  /// Ends all steps; runs that come later are answered with `why`.
  void close(const Error& why);
  /// Runs that have not been answered.
  size_t running() const;

 private:
  using Key = std::pair<uint64_t, int64_t>;  // client, step or number
  struct Planned {
    Program program;  // once it is ready
    bool ready = false;
    Error error;  // of planning
    std::shared_ptr<const StepPlan> plan;
    std::vector<PartRun> waiting;
  };
  struct Step {
    int64_t id = -1;  // the engine's number for it, from the beginning: a snapshot may have to have it
    std::shared_ptr<Planned> program;
    StepRef call;  // none: it waits for the plan
    PartRun::Done done;
    bool costs = false;  // are to be told
    int64_t came_ns = 0;
    std::vector<EdgeValue> early;
  };
  struct Client {
    std::unordered_map<uint64_t, std::shared_ptr<Planned>> programs;
    std::map<uint64_t, std::shared_ptr<KernelCache>> kernels;  // by session
    std::map<int64_t, Step> steps;
    std::map<int64_t, std::vector<EdgeValue>> early;  // of steps that have not begun here
    std::map<int64_t, Error> aborted;                 // likewise: what ends a step may overtake its run
    std::set<int64_t> ended;                          // not before `oldest`
    uint64_t newest_program = 0;
    std::vector<PartRun> waiting;  // for programs that have not come: a long run may overtake them too
    int64_t oldest = 0;
    uint64_t visit = 0;  // see TaskDatasets; 0: no program has come
    bool gone = false;   // and some of its steps have not ended
  };
  class Sink;

  void plan(uint64_t client, const std::shared_ptr<Planned>& planned, const Read& read, KernelCache& kernels);
  Result<std::shared_ptr<const StepPlan>> make(const Program& program, KernelCache& kernels) const;
  void begin(uint64_t client, const std::shared_ptr<Planned>& planned, PartRun run, Lender* lender = nullptr);
  void ended(uint64_t client, int64_t step, Result<std::vector<Tensor>> result);
  void answer(Step& step, Result<std::vector<Tensor>> result);
  /// What the nodes of a plan have been seen to take.
  std::vector<net::CostRecord> costs_of(const StepPlan& plan) const;
  /// `done` is one that is called in any case (answered_once).
  void restart_dataset(const std::string& name, std::function<void(Result<ContainerAsk::Variables>)> done) const;
  /// Hands a value to the device that waits for it.
  void deliver(const StepRef& call, EdgeValue value, Lender* lender);
  /// Under mutex_: no step before `oldest` is under way; what was kept for one goes to `out`.
  static void forget_before(Client& c, int64_t oldest, std::vector<EdgeValue>& out);
  /// Under mutex_: the client that has gone has no step any more. Returns its visit; what was kept for it goes to
  /// `out`.
  uint64_t let_go(std::map<uint64_t, Client>::iterator at, Client& out);
  /// What a client that has gone had is let go of; `visit` is what let_go() returned.
  void went(uint64_t visit) const;
  /// Under mutex_: drops what came from other tasks for clients after they had gone. One client is served at a time.
  void forget_strays(std::vector<Client>& out);
  static Status check(const EdgeReceiver* receiver, const EdgeValue& value);
  /// Under mutex_; nullptr: there is none.
  Step* find(uint64_t client, int64_t number);
  using Which = std::function<bool(uint64_t client, int64_t number, const Step&)>;
  void end_steps(const Which& which, const Error& why);

  const Host host_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Client> clients_;
  uint64_t last_visit_ = 0;
  bool closed_ = false;
  Error why_closed_;
};

/// A program as a Worker takes it, of a part that is in this process.
Worker::Program local_program(const PartProgram& part);

}  // namespace troupe
