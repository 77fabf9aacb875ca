// SPDX-License-Identifier: Apache-2.0
// The loop of a Pipeline: cuts batches into micro-batches and starts their steps, which wait for one another by
// themselves; takes in how they end.
#include "troupe/pipeline.h"

#include <cmath>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include "train/batch_source.h"
#include "train/evaluation.h"
#include "train/gpus.h"
#include "train/pipeline_graph.h"
#include "train/shards.h"
#include "train/snapshot_interval.h"
#include "train/task_watch.h"
#include "train/tasks.h"
#include "troupe/guarded.h"

namespace troupe::nn {

class Pipeline::Impl {
 public:
  using Prepared = std::shared_ptr<Session::Prepared>;

  Impl(Engine& engine, PipelineOptions options)
      : engine_(engine), options_(std::move(options)), graph_(engine.ops()),
        variables_(options_.container, options_.seed) {}

  ~Impl() {
    if (!engine_.status().ok()) {  // a child after fork(): the steps and their threads are the parent's
      (void)watch_.release();
      return;
    }
    if (!engine_.may_wait("the destructor").ok())
      detail::abort_with(make_error(Code::kFailedPrecondition,
                                    "pipeline '{}' is destroyed in a callback of the engine, or in an actor of its "
                                    "system, which it would wait for",
                                    options_.name));
    take_watch().reset();
    all_steps_.cancel();
    wait_until([&] { return in_flight_ == 0; });
    source_.reset();
    session_.reset();
    if (claimed_) reset_containers();
  }

  Status build(const ModelFn& model, const Dataset& batches, std::source_location where) {
    TROUPE_RETURN_IF_ERROR(complete_options());
    std::vector<DType> dtypes = batches.dtypes();
    if (dtypes.empty()) return invalid_argument("pipeline '{}': the dataset has no components", options_.name);
    std::vector<PartialShape> shapes = batches.shapes();
    shapes.resize(dtypes.size());
    for (PartialShape& shape : shapes) {
      if (!shape.has_rank()) continue;
      if (shape.rank() == 0)
        return invalid_argument("pipeline '{}': a batch has a scalar component, which cannot be cut", options_.name);
      if (shape.dim(0) < 0) continue;
      TROUPE_RETURN_IF_ERROR(check_size(shape.dim(0)));
      shape.set(0, shape.dim(0) / options_.micro_batches);
    }
    TROUPE_ASSIGN(built_, build_pipeline(graph_, variables_, model, dtypes, shapes, options_, where));
    const auto priority = [this](const Node& node) {
      const auto at = built_.priorities.find(node.name());
      return at == built_.priorities.end() ? 3 : at->second;
    };
    if (any_gpu(options_.devices)) TROUPE_RETURN_IF_ERROR(are_there(engine_, options_.devices));
    SessionOptions session{
        .default_device = options_.devices[0], .soft_placement = any_gpu(options_.devices), .priority = priority};
    session.passes.sum_products = false;  // which products it joins, and so how sums round, would depend on the cut
    session_ = std::make_unique<Session>(engine_, graph_, std::move(session));
    for (const PipelineStep& s : built_.steps) {
      TROUPE_ASSIGN(Prepared prepared, session_->prepare(s.feeds, s.fetches, s.targets));
      steps_.push_back(std::move(prepared));
    }
    TROUPE_ASSIGN(test_, session_->prepare(built_.test.feeds, built_.test.fetches, {}));
    passes_ = {static_cast<int64_t>(options_.devices.size()) / options_.replicas / options_.parts, options_.chunks,
               options_.micro_batches / options_.replicas};
    batches_ = batches;
    TROUPE_RETURN_IF_ERROR(claim_name());
    watch_tasks();
    return {};
  }

  Status initialise() {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Pipeline::initialise"));
    TROUPE_RETURN_IF_ERROR(between_runs("initialise"));
    TROUPE_RETURN_IF_ERROR(begin([&] { return assign_initial(); }));
    const std::lock_guard lock(mutex_);
    if (source_) return {};
    first_step_ = 0;  // of an earlier restore()
    kept_ = Kept{};
    return {};
  }
  Status assign_initial() {
    // In a session of its own, so that each call draws the same random values.
    Session session(engine_, graph_,
                    {.default_device = options_.devices[0], .soft_placement = any_gpu(options_.devices)});
    return session.run({}, std::vector<Output>{}, built_.initialise).status();
  }

  Status restore(const Snapshot& snapshot) {
    if (source_) return make_error(Code::kFailedPrecondition, "restore: the pipeline has run already");
    TROUPE_RETURN_IF_ERROR(check_of_model(snapshot, variables_.trainable()));
    std::vector<Tensor> found;
    const Status restored = begin([&]() -> Status {
      TROUPE_RETURN_IF_ERROR(assign_initial());
      TROUPE_RETURN_IF_ERROR(engine_.restore(snapshot, options_.container));
      TROUPE_ASSIGN(found, session_->run({}, {built_.global_step}));
      return {};
    });
    const std::lock_guard lock(mutex_);
    first_step_ = restored.ok() ? found[0].data<int64_t>()[0] : 0;
    kept_ = restored.ok() ? Kept{snapshot, first_step_} : Kept{};
    return restored;
  }

  Result<Snapshot> snapshot() {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Pipeline::snapshot"));
    std::unique_lock lock(mutex_);
    for (bool again = false;;) {
      // A batch that waits for earlier snapshots goes first.
      changed_.wait(lock, [&] { return !may_begin_ && !others_catch_up(); });
      // What the variables are until it has gone back is of no step.
      if (going_back_) return kept_->snapshot ? Result<Snapshot>(*kept_->snapshot) : Result<Snapshot>(*error_);
      ++snapshots_;  // no further batch begins
      hold_.reset();
      changed_.wait(lock, [&] { return in_flight_ == 0; });
      lock.unlock();
      auto taken = engine_.snapshot(options_.container).get();
      look_after_tasks();  // what a task had that has started again meanwhile is not in it
      lock.lock();
      if (!error_ && !taken.ok() && watch_ && taken.error().code == Code::kUnavailable) error_ = taken.error();
      // Between two runs no other call makes the lost updates again.
      const bool misses = may_be_lost() && !trains() && kept_->step < first_step_ + updates();
      if ((gave_up_ || may_be_lost()) && kept_->snapshot) taken = *kept_->snapshot;
      else if (error_) taken = *error_;
      else if (taken.ok() && watch_ && kept_) kept_ = Kept{*taken, first_step_ + updates(), position()};
      --snapshots_;
      changed_.notify_all();
      if (!misses) return taken;
      wait_for_others(lock);
      if (trains() || !may_be_lost()) continue;
      if (!std::exchange(again, true)) begin_wait();
      RunSummary made;
      if (const Status status = catch_up(lock, false, made); !status.ok() && !gave_up_) return status.error();
    }
  }

  Result<RunSummary> run(int64_t batches, const std::function<void(const StepReport&)>& on_step) {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Pipeline::run"));
    if (batches < 0) return invalid_argument("run: batches must be at least 0, got {}", batches);
    TROUPE_RETURN_IF_ERROR(between_runs("run"));
    if (!source_) {
      TROUPE_ASSIGN(std::shared_ptr<BatchSource> source, BatchSource::make(*batches_));
      const std::lock_guard lock(mutex_);
      source_ = std::move(source);
    }
    RunSummary summary;
    {
      std::unique_lock lock(mutex_);
      wait_for_others(lock);
      running_ = true;
      summary_ = &summary;
      std::swap(summary.losses, between_.losses);
      std::swap(summary.batches_lost, between_.batches_lost);
      begin_wait();
    }
    const int64_t before = step();
    goal_ = batches > INT64_MAX - goal_ ? INT64_MAX : goal_ + batches;
    faults_ = {};
    const Status trained = train(on_step, summary);
    const std::lock_guard lock(mutex_);
    running_ = false;
    changed_.notify_all();
    goal_ = position();
    if (may_be_lost()) {  // stopped while it waited: the next run goes on from what is kept
      goal_ = kept_->batches;
      first_step_ = kept_->step;
      batches_done_ = micro_batches_done_ = 0;
    }
    stop_ = false;
    TROUPE_RETURN_IF_ERROR(trained);
    summary.updates = std::max<int64_t>(first_step_ + updates() - before, 0);
    return summary;
  }

  /// Until as many batches were trained on as runs asked for; goes back where tasks are lost on the way.
  Status train(const std::function<void(const StepReport&)>& on_step, RunSummary& summary) {
    for (;;) {
      look_after_tasks();
      train_once(on_step, summary);
      {
        const std::lock_guard lock(mutex_);
        if (!error_) {
          // It has gone back where an evaluation in on_step did, perhaps of the last report.
          if (position() < goal_ && !summary.end_of_data && !summary.stopped && faults_.ok()) continue;
          return faults_;
        }
        if (!may_be_lost()) return *error_;
        if (summary.stopped || !faults_.ok()) return faults_;  // the next run goes back
      }
      summary.stopped = !go_back(summary);
      const std::lock_guard lock(mutex_);
      if (summary.stopped) return faults_;
    }
  }

  void train_once(const std::function<void(const StepReport&)>& on_step, RunSummary& summary) {
    {
      std::shared_ptr<void> hold = engine_.hold_sim();
      const std::lock_guard lock(mutex_);
      if (snapshots_ == 0) hold_ = std::move(hold);
    }
    while (position() < goal_ && !summary.end_of_data) {
      if (Clock::now() >= next_kept_) keep_snapshot(on_step);
      // Room for one more batch.
      {
        const std::lock_guard lock(mutex_);
        if (!may_start()) hold_.reset();
      }
      wait_until([&] { return may_start() || error_ || ends(); });
      report(on_step);
      {
        const std::lock_guard lock(mutex_);
        summary.stopped = ends();
        if (error_ || ends()) break;
      }
      if (keeps_next()) {
        keep_snapshot(on_step);
        continue;
      }
      const auto batch = next_batch(on_step);
      if (!batch) {
        const std::lock_guard lock(mutex_);
        summary.stopped = ends();
        break;
      }
      const auto& element = *batch;
      if (!element.ok()) fail(element.error());
      else if (!*element) summary.end_of_data = true;
      else if (const Status status = start(**element); !status.ok()) fail(status.error());
    }
    {
      const std::lock_guard lock(mutex_);
      hold_.reset();
    }
    drain(on_step);
  }
  /// Waits for the batches under way, and reports them.
  void drain(const std::function<void(const StepReport&)>& on_step) {
    for (bool more = true; more;) {
      wait_until([&] { return in_flight_ == 0 || !reports_.empty(); });
      report(on_step);
      const std::lock_guard lock(mutex_);
      more = in_flight_ > 0 || !reports_.empty();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    interrupt();
  }

  int64_t step() const {
    const std::lock_guard lock(mutex_);
    return first_step_ + updates();
  }

  Result<Metrics> evaluate(const Dataset& batches);

  Engine& engine_;
  PipelineOptions options_;
  Graph graph_;
  Variables variables_;
  PipelineGraph built_;

 private:
  /// A batch under way.
  struct Batch {
    int left = 0;  // micro-batches
    double loss = 0, accuracy = 0;
    int64_t examples = 0;
  };

  Status complete_options() {
    PipelineOptions& o = options_;
    const auto wrong = [&](const std::string& what) { return invalid_argument("pipeline '{}': {}", o.name, what); };
    const bool interleaved = o.schedule == PipelineSchedule::kInterleaved;
    if (o.name.empty()) return invalid_argument("a pipeline needs a name: PipelineOptions::name is empty");
    if (o.chunks == 0) o.chunks = interleaved ? 2 : 1;
    if (!o.optimizer.update || !o.optimizer.rate) return wrong("no optimizer");
    if (o.micro_batches < 1) return wrong(fmt::format("micro_batches must be at least 1, got {}", o.micro_batches));
    if (!(o.rates.flops > 0) || !(o.rates.memory_bandwidth > 0) || !(o.rates.launch_ns >= 0))
      return wrong(fmt::format("no device can do {} FLOP/s, {} B/s of memory, launch in {} ns", o.rates.flops,
                               o.rates.memory_bandwidth, o.rates.launch_ns));
    if (o.batches_in_flight < 1)
      return wrong(fmt::format("batches_in_flight must be at least 1, got {}", o.batches_in_flight));
    if (o.replicas < 1 || o.micro_batches % o.replicas != 0)
      return wrong(fmt::format("{} micro-batches cannot be shared by {} replicas", o.micro_batches, o.replicas));
    if (o.parts < 1) return wrong(fmt::format("parts must be at least 1, got {}", o.parts));
    const Tasks tasks(engine_);
    for (std::string& device : o.devices) device = tasks.complete(device);
    const auto count = static_cast<int64_t>(o.devices.size());
    const int64_t in_each = int64_t{o.replicas} * o.parts;  // devices of each stage
    if (count == 0 || count % in_each != 0)
      return wrong(
          fmt::format("{} devices for {} replicas of stages of {} parts", o.devices.size(), o.replicas, o.parts));
    if (interleaved ? o.chunks < 2 : o.chunks != 1)
      return wrong(fmt::format("{} stages on each device; interleaved schedules need 2 or more, others 1", o.chunks));
    const int64_t stages = count / in_each * o.chunks;
    if (stages > std::numeric_limits<int>::max()) return wrong(fmt::format("{} stages", stages));
    if (!o.scopes.empty() && std::ssize(o.scopes) != stages)
      return wrong(fmt::format("{} stages for {} devices of a replica with {} each", o.scopes.size(), count / in_each,
                               o.chunks));
    return {};
  }

  Status check_size(int64_t rows) const {
    if (rows > 0 && rows % options_.micro_batches == 0) return {};
    return invalid_argument("pipeline '{}': a batch of {} rows cannot be cut into {} micro-batches", options_.name,
                            rows, options_.micro_batches);
  }

  /// Two pipelines of one name would count each other's events and add up each other's gradients.
  Status claim_name() {
    Graph graph(engine_.ops());
    // In this process, so that it ends with it.
    const std::string own = Tasks(engine_).own();
    const Scope s = Scope(graph).device(own);
    const Output claims = s.op("FIFOQueueV2", {},
                               {{"component_types", std::vector{DType::kInt32}},
                                {"container", claims_container()},
                                {"shared_name", "claims"}});
    const Node* claim = s.node("QueueEnqueueV2", {claims, s.constant(0)});
    const Output count = s.after(std::vector<const Node*>{claim}).op("QueueSizeV2", {claims});
    Session session(engine_, graph, {.default_device = own});
    TROUPE_ASSIGN(const std::vector<Tensor> found, session.run(std::vector<Feed>{}, {count}));
    if (found[0].data<int32_t>()[0] > 1)
      return make_error(Code::kAlreadyExists, "there is a pipeline '{}' already", options_.name);
    claimed_ = true;
    // Tasks may have what a client left that is dead.
    reset_steps();
    return {};
  }

  std::string claims_container() const { return events_container(options_.name) + "/claims"; }
  void reset_containers() {
    engine_.reset_container(claims_container());
    reset_steps();
  }
  void reset_steps() {
    engine_.reset_container(events_container(options_.name));
    for (size_t k = 0; k < built_.stages.size(); ++k)
      engine_.reset_container(sums_container(options_.name, static_cast<int>(k)));
  }

  template <class F> void wait_until(F&& condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
  }

  /// Has those that wait for the next batch look what has happened; not under mutex_.
  void interrupt() {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<BatchSource> source = source_, tests = tests_;
    lock.unlock();
    if (source) source->interrupt();
    if (tests) tests->interrupt();
  }

  /// Of the dataset; nothing if the run is to end before it comes. Reports batches that are done meanwhile.
  std::optional<BatchSource::Batch> next_batch(const std::function<void(const StepReport&)>& on_step) {
    for (;;) {
      auto batch = source_->next([&] {
        const std::lock_guard lock(mutex_);
        return error_ || ends() || !reports_.empty();
      });
      if (batch) return batch;
      report(on_step);
      const std::lock_guard lock(mutex_);
      if (error_ || ends()) return {};
    }
  }

  // -- lost tasks ----------------------------------------------------------------------------------------------------

  /// What training goes back to: a snapshot, or else the initial values, and how many batches came before it.
  struct Kept {
    std::optional<Snapshot> snapshot = {};
    int64_t step = 0;
    int64_t batches = 0;
  };

  /// Whether the caller is within run() or catch_up(), or another thread within run(); under mutex_.
  bool trains() const { return running_ || catching_up_ == std::this_thread::get_id(); }
  bool others_catch_up() const { return catching_up_ != std::thread::id() && !trains(); }
  void wait_for_others(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return !others_catch_up(); });
  }
  /// Whether training is to end; under mutex_.
  bool ends() const { return stop_ && heeds_stop_; }
  /// The error of a call `what` amid a run, that is in on_step.
  Status between_runs(const char* what) {
    std::unique_lock lock(mutex_);
    wait_for_others(lock);
    if (!trains()) return {};
    return make_error(Code::kFailedPrecondition, "{}: the pipeline is in a run, which must end first", what);
  }
  /// Carries `assign` out, which gives variables their first values.
  Status begin(const std::function<Status()>& assign) {
    return watch_ && !source_ ? watch_->begin(mutex_, changed_, options_.recovery.wait, assign) : assign();
  }

  void watch_tasks() {
    if (cluster_status(engine_).empty() || options_.recovery.wait.count() <= 0) return;
    const Tasks tasks(engine_);
    std::map<std::string, std::string> found;  // by device
    TaskWatch::Names names;
    for (int id = 0; id < graph_.size(); ++id) {
      const auto [at, fresh] = found.try_emplace(graph_.node(id).device());
      if (fresh) names.insert(at->second = tasks.task_of(at->first));
    }
    auto watch = std::make_unique<TaskWatch>(engine_, std::move(names), [this] {
      look_after_tasks();
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    });
    const std::lock_guard lock(mutex_);
    watch_ = std::move(watch);
  }
  std::unique_ptr<TaskWatch> take_watch() {
    const std::lock_guard lock(mutex_);
    return std::move(watch_);
  }
  /// A task that is lost ends the steps.
  void look_after_tasks() {
    CancelToken steps;
    {
      const std::lock_guard lock(mutex_);
      if (!watch_ || !kept_ || going_back_ || error_) return;
      const auto why = watch_->lost(watch_->all());
      if (!why) return;
      error_ = *why;
      steps = all_steps_;
    }
    steps.cancel();
    interrupt();
  }
  /// Under mutex_: whether an error comes of a lost task that can be got over.
  bool may_be_lost(const Error& error) const {
    return watch_ && kept_ && !gave_up_ && watch_->explains(error, watch_->all());
  }
  bool may_be_lost() const { return error_ && may_be_lost(*error_); }
  /// Under mutex_: a loss that is found from now on is another one than the last.
  void begin_wait() {
    last_update_ = Clock::now();
    failed_at_ = -1;
  }

  /// Lets the batches under way end and keeps what the variables are then.
  void keep_snapshot(const std::function<void(const StepReport&)>& on_step) {
    next_kept_ = Clock::time_point::max();
    if (!watch_ || !kept_) return;
    keeps_next_ = false;
    const auto begin = Clock::now();
    drain(on_step);
    auto taken = engine_.snapshot(options_.container).get();
    look_after_tasks();  // what a task had that has started again meanwhile is not in it
    const std::lock_guard lock(mutex_);
    next_kept_ = later(Clock::now(), snapshot_interval(options_.recovery, Clock::now() - begin));
    if (error_) return;
    if (!taken.ok() && taken.error().code == Code::kUnavailable) error_ = taken.error();
    if (!taken.ok()) return;
    kept_ = Kept{std::move(*taken), first_step_ + updates(), position()};
  }

  /// Waits for the lost tasks and goes back to what is kept; no step is under way. False: a stop came before. What
  /// lasts too long or fails otherwise is then error_, and not of a lost task.
  bool go_back(RunSummary& summary) {
    std::unique_lock lock(mutex_);
    summary.end_of_data = false;
    going_back_ = true;
    const Error why = *error_;
    const int64_t lost_at = first_step_ + updates();
    // What fails again at the same step though all tasks are there is still the same loss, as is one without an update
    // since the last.
    const bool is_known = watch_->lost(watch_->all()).has_value();
    if (last_update_ >= lost_since_ && (is_known || lost_at > failed_at_)) lost_since_ = Clock::now(), ++summary.losses;
    const int64_t failed_before = failed_at_;
    if (!is_known) failed_at_ = std::max(failed_at_, lost_at);
    const auto since = lost_since_;
    const auto deadline = later(since, options_.recovery.wait);
    TaskReport told{.reason = why.message, .step = lost_at};
    lock.unlock();
    tell(told);
    lock.lock();
    for (bool again = false; !ends(); again = true) {
      if (again || !watch_->lost(watch_->all())) changed_.wait_for(lock, kPause, [&] { return ends(); });
      const auto woken = [&] { return ends() || watch_->up(watch_->all()); };
      if (deadline == Clock::time_point::max()) changed_.wait(lock, woken);
      else changed_.wait_until(lock, deadline, woken);
      if (ends()) break;
      if (Clock::now() >= deadline) {
        gave_up_ = true;
        going_back_ = false;
        return true;
      }
      if (watch_->lost(watch_->all())) failed_at_ = failed_before;  // other tasks only told of it sooner
      watch_->accept(watch_->all());
      changed_.wait(lock, [&] { return snapshots_ == 0; });
      const Kept kept = *kept_;
      const int64_t read = position();
      lock.unlock();
      const Status back = assign(kept);
      lock.lock();
      if (watch_->lost(watch_->all())) continue;
      if (!back.ok() && back.error().code == Code::kUnavailable) continue;
      going_back_ = false;
      if (!back.ok()) {
        error_ = back.error();
        gave_up_ = true;
        return true;
      }
      const std::chrono::duration<double> seconds = Clock::now() - since;
      told.back = true;
      told.updates = told.step - kept.step;
      told.step = kept.step;
      told.batches = batches_->repeatable() ? 0 : read - kept.batches;
      summary.batches_lost += told.batches;
      told.seconds = seconds.count();
      error_.reset();
      all_steps_ = CancelToken();
      keeps_next_ = true;
      first_step_ = kept.step;
      batches_before_ = kept.batches;
      batches_started_ = batches_done_ = micro_batches_done_ = 0;
      lock.unlock();
      tell(told);
      return true;
    }
    going_back_ = false;
    return false;
  }
  /// Between two runs, and no other thread trains: makes the updates that were lost again.
  Status catch_up(std::unique_lock<std::mutex>& lock, bool heed_stop, RunSummary& summary) {
    catching_up_ = std::this_thread::get_id();
    heeds_stop_ = heed_stop;
    faults_ = {};
    const bool stopped = stop_;
    lock.unlock();
    const Status status = train({}, summary);
    lock.lock();
    between_.losses += summary.losses;
    between_.batches_lost += summary.batches_lost;
    if (!faults_.ok()) stop_ = stopped;  // on_task's
    heeds_stop_ = true;
    catching_up_ = {};
    changed_.notify_all();
    return status;
  }
  void tell(const TaskReport& report) {
    if (!options_.recovery.on_task || !faults_.ok()) return;
    faults_ = guarded_call([&] { options_.recovery.on_task(report); });
    if (!faults_.ok()) stop();
  }
  /// Gives variables, counters and the dataset what they had.
  Status assign(const Kept& kept) {
    reset_steps();
    if (batches_->repeatable()) {
      TROUPE_ASSIGN(std::shared_ptr<BatchSource> source, BatchSource::make(batches_->skip(kept.batches)));
      const std::lock_guard lock(mutex_);
      source_.swap(source);
    }
    TROUPE_RETURN_IF_ERROR(assign_initial());
    return kept.snapshot ? engine_.restore(*kept.snapshot, options_.container) : Status();
  }
  /// Batches that were begun.
  int64_t position() const { return batches_before_ + batches_started_; }

  bool may_start() const {
    return static_cast<int>(under_way_.size()) < (keeps_next_ ? 1 : options_.batches_in_flight);
  }
  /// Whether a snapshot is due for the update that follows a loss.
  bool keeps_next() const {
    const std::lock_guard lock(mutex_);
    return keeps_next_ && first_step_ + updates() > kept_->step;
  }
  int64_t updates() const { return options_.asynchronous ? micro_batches_done_ : batches_done_; }

  void fail(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = error;
    }
    all_steps_.cancel();
  }

  void report(const std::function<void(const StepReport&)>& on_step) {
    std::unique_lock lock(mutex_);
    auto reports = std::exchange(reports_, {});
    lock.unlock();
    if (!on_step || !faults_.ok()) return;
    const Status done = guarded_call([&] {
      for (const StepReport& r : reports) on_step(r);
    });
    if (faults_.ok()) faults_ = done;  // else on_task's, which an evaluation in on_step told
    if (!faults_.ok()) stop();
  }

  /// Starts the steps of one batch.
  Status start(const Element& element) {
    const int m = options_.micro_batches;
    for (const Tensor& t : element) {
      if (t.rank() == 0 || t.dim(0) != element[0].dim(0))
        return invalid_argument("pipeline '{}': the components of a batch have {} and {}; one first size is needed",
                                options_.name, element[0].shape().str(), t.shape().str());
      TROUPE_RETURN_IF_ERROR(check_size(t.dim(0)));
    }
    const int64_t rows = element[0].dim(0) / m;
    std::vector<std::vector<Tensor>> feeds;
    for (int i = 0; i < m; ++i) {
      feeds.push_back(numbers(i));
      for (const Tensor& t : element) {
        TROUPE_ASSIGN(Tensor part, t.slice(i * rows, (i + 1) * rows));
        feeds.back().push_back(std::move(part));
      }
    }
    int64_t batch;
    {
      std::unique_lock lock(mutex_);
      if (snapshots_ > 0) hold_.reset();
      may_begin_ = true;
      changed_.wait(lock, [&] { return snapshots_ == 0; });
      may_begin_ = false;
      batch = batches_started_++;
      under_way_[batch].left = m;
      in_flight_ += m;
      changed_.notify_all();
    }
    for (int i = 0; i < m; ++i) {
      const int64_t number = batch * m + i;
      RunOptions options{.cancel = all_steps_, .check_numerics = options_.check_numerics, .trace = options_.trace};
      // What is drawn follows from the micro-batch alone, so that a run that was resumed repeats one that was not.
      options.random_step = options_.asynchronous ? first_step_ + number : first_step_ * m + number;
      session_->run_async(
          steps_[size_t(i)], std::move(feeds[size_t(i)]),
          [this, batch, rows](RunResult result) { done(batch, rows, result); }, options);
    }
    return {};
  }

  /// What the i-th micro-batch of the next batch is fed before its components.
  std::vector<Tensor> numbers(int i) const {
    const int64_t m = options_.micro_batches, number = batches_started_ * m + i;
    const int64_t step = first_step_ + (options_.asynchronous ? number : batches_started_);
    std::vector<Tensor> out = {Tensor::scalar<int64_t>(number), Tensor::scalar<int64_t>(batches_started_),
                               Tensor::scalar<int64_t>(step)};
    for (int64_t c = 0; c < options_.chunks; ++c)
      for (const bool forward : {true, false})
        out.push_back(Tensor::scalar<int64_t>(passes_.number(number / options_.replicas, c, forward)));
    return out;
  }

  void done(int64_t number, int64_t rows, RunResult& result) {
    bool cancel = false, ended = false;
    {
      const std::lock_guard lock(mutex_);
      Batch& batch = under_way_[number];
      if (result.ok()) {
        const float loss = (*result)[0].data<float>()[0];
        ++micro_batches_done_;
        batch.loss += loss;
        batch.accuracy += (*result)[1].data<float>()[0];
        batch.examples += rows;
        if (!std::isfinite(loss) && !error_)
          error_ = invalid_argument("pipeline '{}': the loss is {} at step {}", options_.name, loss,
                                    first_step_ + updates());
      } else if (!error_) {
        error_ = result.error();
      }
      cancel = error_.has_value();
      if (--batch.left == 0) {
        if (!error_) {
          ++batches_done_;
          last_update_ = Clock::now();
          const double m = options_.micro_batches;
          reports_.push_back({first_step_ + updates(), 0, static_cast<float>(batch.loss / m),
                              static_cast<float>(batch.accuracy / m), batch.examples});
        }
        under_way_.erase(number);
        ended = true;
      }
    }
    // The others may wait for what this one will never do.
    if (cancel) all_steps_.cancel();
    if (cancel || ended) interrupt();
    const std::lock_guard lock(mutex_);
    --in_flight_;
    changed_.notify_all();
  }

  std::optional<Dataset> batches_;
  Passes passes_;
  std::vector<Prepared> steps_;  // by micro-batch of a batch
  Prepared test_;
  CancelToken all_steps_;
  bool claimed_ = false;  // the name
  int64_t batches_started_ = 0;
  int64_t batches_before_ = 0;  // the first of those
  int64_t goal_ = 0;            // of position()
  /// After a loss, so that those that come faster than snapshots do not keep a run from its end: the next update is
  /// made alone, and kept. Of who runs.
  bool keeps_next_ = false;
  Clock::time_point next_kept_ = {};
  int64_t first_step_ = 0;
  Status faults_;  // of the run's on_step

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::shared_ptr<BatchSource> source_;  // of the runs; set by the first
  std::shared_ptr<BatchSource> tests_;   // of the evaluation in progress
  std::map<int64_t, Batch> under_way_;
  std::deque<StepReport> reports_;
  std::optional<Error> error_;
  int64_t batches_done_ = 0, micro_batches_done_ = 0;
  std::optional<Kept> kept_;
  bool going_back_ = false, gave_up_ = false;
  bool running_ = false;              // a thread is in run()
  RunSummary* summary_ = nullptr;     // of that
  RunSummary between_;                // losses that the next run is to tell of
  std::thread::id catching_up_ = {};  // the thread that is in catch_up()
  bool heeds_stop_ = true;            // what trains does
  Clock::time_point last_update_ = {}, lost_since_ = {};
  int64_t failed_at_ = -1;  // the last step that failed though all tasks were there
  int in_flight_ = 0;       // steps whose callback has not ended
  bool stop_ = false;
  int snapshots_ = 0;           // calls of snapshot() at work: no batch begins
  bool may_begin_ = false;      // a batch waits for those
  std::shared_ptr<void> hold_;  // has the clock of simulated devices stand still

 public:
  std::unique_ptr<Session> session_;
  std::unique_ptr<TaskWatch> watch_;  // none: nothing can be lost, or is to be got over
};

Result<Metrics> Pipeline::Impl::evaluate(const Dataset& batches) {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Pipeline::evaluate"));
  const auto give_up = later(Clock::now(), options_.recovery.wait);
  {
    const std::lock_guard lock(mutex_);
    begin_wait();
  }
  for (;;) {
    TROUPE_ASSIGN(const std::shared_ptr<BatchSource> source, BatchSource::make(batches));
    look_after_tasks();
    std::unique_lock lock(mutex_);
    wait_for_others(lock);
    // In on_task, of going back, it is not.
    const auto in_on_task = [&] { return going_back_ || (trains() && !running_); };
    if (may_be_lost() && !in_on_task()) {
      // What a lost task had is made again first; in a run that goes on from what is kept.
      bool stopped = false;
      if (running_) {
        changed_.wait(lock, [&] { return in_flight_ == 0; });
        lock.unlock();
        stopped = !go_back(*summary_);
        lock.lock();
        if (gave_up_) return *error_;
      } else {
        RunSummary again;
        TROUPE_RETURN_IF_ERROR(catch_up(lock, true, again));
        stopped = again.stopped;
      }
      if (stopped) {
        if (!running_) stop_ = false;  // else the run ends by it too
        return make_error(Code::kCancelled, "the evaluation was stopped while a task was lost");
      }
    }
    tests_ = source;
    lock.unlock();
    auto metrics = evaluate_batches(*session_, *source, {&test_, 1}, 2 * options_.devices.size() + 1, [&] {
      const std::lock_guard stopping(mutex_);
      return stop_;
    });
    lock.lock();
    tests_.reset();
    if (metrics.ok()) return metrics;
    const bool stopped = running_ ? stop_ : std::exchange(stop_, false);  // in on_step the run ends by it too
    if (stopped || in_on_task() || !may_be_lost(metrics.error()) || Clock::now() >= give_up) return metrics;
    // A run goes on where nothing but the test has failed.
    if (!error_ && (!running_ || watch_->lost(watch_->all()))) error_ = metrics.error();
    if (!error_) changed_.wait_for(lock, kPause, [&] { return stop_; });
    if (!error_) continue;
    CancelToken steps = all_steps_;
    lock.unlock();
    steps.cancel();
  }
}

Pipeline::Pipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pipeline::~Pipeline() = default;

Result<std::unique_ptr<Pipeline>> Pipeline::create(Engine& engine, ModelFn model, Dataset batches,
                                                   PipelineOptions options, std::source_location where) {
  if (!model) return invalid_argument("pipeline '{}': no model", options.name);
  return guarded([&]() -> Result<std::unique_ptr<Pipeline>> {
    auto impl = std::make_unique<Impl>(engine, std::move(options));
    TROUPE_RETURN_IF_ERROR(impl->build(model, batches, where));
    return std::unique_ptr<Pipeline>(new Pipeline(std::move(impl)));
  });
}

Result<std::unique_ptr<Pipeline>> Pipeline::create(Engine& engine, std::vector<StageFn> stages, Dataset batches,
                                                   PipelineOptions options, std::source_location where) {
  if (stages.empty()) return invalid_argument("pipeline '{}': no stages", options.name);
  if (!options.scopes.empty())
    return invalid_argument("pipeline '{}': stages are functions and scopes at once", options.name);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!stages[i]) return invalid_argument("pipeline '{}': stage {} is empty", options.name, i);
    options.scopes.push_back(fmt::format("stage_{}", i));
  }
  return create(engine, chain(std::move(stages)), std::move(batches), std::move(options), where);
}

Status Pipeline::initialise() { return impl_->initialise(); }
Status Pipeline::restore(const Snapshot& snapshot) { return impl_->restore(snapshot); }
Result<RunSummary> Pipeline::run(int64_t batches, const std::function<void(const StepReport&)>& on_step) {
  return impl_->run(batches, on_step);
}
void Pipeline::stop() { impl_->stop(); }
int64_t Pipeline::step() const { return impl_->step(); }
Result<Snapshot> Pipeline::snapshot() { return impl_->snapshot(); }
Result<Metrics> Pipeline::evaluate(const Dataset& batches) { return impl_->evaluate(batches); }
const std::vector<PipelineStage>& Pipeline::stages() const { return impl_->built_.stages; }
const Graph& Pipeline::graph() const { return impl_->graph_; }
Session& Pipeline::session() { return *impl_->session_; }
const Variables& Pipeline::variables() const { return impl_->variables_; }

}  // namespace troupe::nn
