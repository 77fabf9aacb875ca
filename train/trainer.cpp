// SPDX-License-Identifier: Apache-2.0
// The loops of a Trainer: continuations that start the next step of the input, of each replica and of the update.
//
// Invariants, under mutex_:
// 1. started_ - done_ updates are in flight; started_ <= target_, but for a target that stop() lowered to started_.
// 2. A replica computes only while done_ < target_, so between two runs nothing changes a variable.
// 3. In kAsync with max_staleness s a replica computes only while it has made at most s updates more than the slowest.
// 4. In kLocal done_ updates are averaged; replicas compute towards round_end(), and the average begins when all are
//    there or out of data, so that no replica computes meanwhile, and what each computes depends on no other's speed.
// 5. In kHybrid the update of step s happens exactly if pushes_[s] reaches N - k: accumulators drop all others.
// 6. A replica's step begins when its batches are in their queue, so that no step in flight waits for input: what
//    stop() waits for is computing.
// 7. A snapshot is taken between two updates: while taking_, nothing that changes variables begins. Only kAsync, which
//    has no such moment, leaves the cut to the engine.
// 8. A replica has at most kMostReports reports that on_step has not taken: with so many it begins no step. Only those
//    of kLocal go on to the next average where a snapshot waits for that, since on_step may be what waits for it.
// 9. Once broken_, since a task was lost that all need, nothing begins; when all has ended, a thread of the user's that
//    waits in run(), snapshot() or evaluate() goes back to kept_ (recover()), and training begins anew from there.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>

#include "train/evaluation.h"
#include "train/gpus.h"
#include "train/shards.h"
#include "train/task_watch.h"
#include "train/tasks.h"
#include "troupe/guarded.h"

namespace troupe::nn {
namespace {

/// The sum of two counts, or the largest there is.
int64_t sum_of(int64_t a, int64_t b) { return b > INT64_MAX - a ? INT64_MAX : a + b; }

}  // namespace

class Trainer::Impl {
 public:
  using Prepared = std::shared_ptr<Session::Prepared>;
  using Launches = std::vector<std::function<void()>>;
  /// Nothing: it is to be asked for again.
  using Taken = std::function<void(std::optional<Result<Snapshot>>)>;
  enum class Phase { kReady, kComputing, kAwaitingToken, kAside };
  struct Replica {
    Prepared step;
    Phase phase = Phase::kReady;
    int64_t local_step = -1;  // kHybrid; -1: the current one
    int64_t updates = 0;      // made by it
    bool ended = false;       // kLocal: its batches have
    int64_t taken = 0;        // batches, by its steps
    int reports = 0;          // of its steps that on_step has not taken
    std::string task = {};    // of its device
    std::string why_aside = {};
    bool told_aside = false;  // when it is known that its task is lost: else others may be
    int64_t batches_lost = 0;
    Clock::time_point aside_since = {}, retry_at = {};
    bool token_asked = false;  // kHybrid
    Clock::time_point starved_since = {};
    int64_t input_wait_ns = 0;
  };

  Impl(Engine& engine, TrainerOptions options)
      : engine_(engine), tasks_(engine), options_(complete(std::move(options))), graph_(engine.ops()),
        variables_(options_.container, options_.seed) {
    run_options_.cancel = all_steps_;
    run_options_.check_numerics = options_.check_numerics;
  }

  ~Impl() {
    if (!engine_.status().ok()) {  // a child after fork(): the steps and their threads are the parent's
      (void)watch_.release();
      return;
    }
    if (engine_.on_engine_thread())
      detail::abort_with(make_error(Code::kFailedPrecondition,
                                    "trainer '{}' is destroyed in a callback of the engine, which it would wait for",
                                    options_.name));
    std::unique_lock lock(mutex_);
    closing_ = true;
    const auto wanted = std::exchange(wanted_, {});
    CancelToken update_step = update_step_;
    auto watch = std::move(watch_);
    lock.unlock();
    watch.reset();
    for (const Taken& taken : wanted) taken({make_error(Code::kCancelled, "the trainer is being destroyed")});
    all_steps_.cancel();
    update_step.cancel();
    lock.lock();
    changed_.wait(lock, [&] { return in_flight_ == 0; });
    if (claimed_) give_back();
  }

  Status build(const ModelFn& model, const Dataset& batches, std::source_location where) {
    TROUPE_ASSIGN(towers_,
                  build_towers(ScopeAt(Scope(graph_), where), variables_, model, batches, options_, tasks_.own()));
    if (any_gpu(options_.devices)) TROUPE_RETURN_IF_ERROR(are_there(engine_, options_.devices));
    SessionOptions settings{.soft_placement = any_gpu(options_.devices)};
    // What other devices wait for goes first, so that the rings turn while the backward pass goes on.
    settings.priority = [](const Node& n) { return n.name().starts_with(kReduceScope) ? 1 : 0; };
    session_ = std::make_unique<Session>(engine_, graph_, settings);
    const auto prepare = [&](const StepSpec& s) { return session_->prepare(s.feeds, s.fetches, s.targets); };
    for (const StepSpec& s : towers_.enqueue) {
      TROUPE_ASSIGN(Prepared p, prepare(s));
      enqueue_.push_back(std::move(p));
    }
    TROUPE_ASSIGN(close_, prepare(towers_.close));
    for (const StepSpec& s : towers_.replicas) {
      TROUPE_ASSIGN(Prepared p, prepare(s));
      replicas_.push_back({std::move(p)});
    }
    for (const StepSpec& s : towers_.tests) {
      TROUPE_ASSIGN(Prepared p, prepare(s));
      tests_.push_back(std::move(p));
    }
    for (const std::string& device : towers_.tested) test_tasks_.push_back(tasks_.task_of(device));
    if (local()) {
      TROUPE_ASSIGN(average_, prepare(towers_.average));
    }
    if (hybrid()) {
      TROUPE_ASSIGN(update_, prepare(towers_.update));
      TROUPE_ASSIGN(token_, prepare(towers_.token));
      TROUPE_ASSIGN(set_step_, prepare(towers_.set_step));
    }
    // Last, so that a trainer that cannot be made leaves nothing on the engine.
    TROUPE_RETURN_IF_ERROR(engine_.add_dataset(options_.name, batches));
    claimed_ = true;
    // Tasks may have queues of a client's that is dead, with its batches.
    engine_.reset_container(trainer_container(options_.name));
    batches_ = batches;
    watch_tasks();
    return {};
  }

  bool hybrid() const { return options_.mode == ReplicaMode::kHybrid; }
  bool local() const { return options_.mode == ReplicaMode::kLocal; }
  int64_t step() const { return first_step_ + done_; }

  Status initialise() {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::initialise"));
    TROUPE_RETURN_IF_ERROR(begin([&] { return assign_initial(); }));
    std::lock_guard lock(mutex_);
    if (input_started_) return {};
    first_step_ = 0;  // of an earlier restore()
    kept_ = Kept{};
    return {};
  }
  Status assign_initial() {
    // In a session of its own, so that each call draws the same random values.
    Session session(engine_, graph_, {.soft_placement = any_gpu(options_.devices)});
    TROUPE_RETURN_IF_ERROR(session.run({}, std::vector<Output>{}, towers_.initialise));
    return publish();
  }
  /// Gives what the first replica has to the others.
  Status publish() {
    if (towers_.publish.targets.empty()) return {};
    return session_->run({}, std::vector<Output>{}, towers_.publish.targets).status();
  }

  Status restore(const Snapshot& snapshot) {
    if (input_started_) return make_error(Code::kFailedPrecondition, "restore: the trainer has run already");
    TROUPE_RETURN_IF_ERROR(check_of_model(snapshot, variables_.trainable()));
    std::vector<Tensor> found;
    const Status restored = begin([&]() -> Status {
      TROUPE_RETURN_IF_ERROR(assign_initial());
      TROUPE_RETURN_IF_ERROR(assign(snapshot));
      TROUPE_ASSIGN(found, session_->run({}, {towers_.global_step}));
      return {};
    });
    std::lock_guard lock(mutex_);
    first_step_ = restored.ok() ? found[0].data<int64_t>()[0] : 0;
    kept_ = restored.ok() ? Kept{snapshot, first_step_, 0} : Kept{};
    return restored;
  }
  Status assign(const Snapshot& snapshot) {
    TROUPE_ASSIGN(auto parts, part_slots(towers_.shards, containers(), snapshot));
    TROUPE_RETURN_IF_ERROR(engine_.restore(parts[0], options_.container));
    TROUPE_RETURN_IF_ERROR(publish());
    for (size_t i = 1; i < parts.size(); ++i)
      TROUPE_RETURN_IF_ERROR(engine_.restore(parts[i], containers()[i]->container()));
    return {};
  }

  Result<Snapshot> snapshot() {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::snapshot"));
    while (true) {
      auto promise = std::make_shared<std::promise<std::optional<Result<Snapshot>>>>();
      auto future = promise->get_future();
      Launches launches;
      {
        std::unique_lock lock(mutex_);
        look_after_tasks();
        while (broken_ && !goes_on_from_kept()) recover(lock, false);
        if ((broken_ || gave_up_) && kept_->snapshot) return *kept_->snapshot;
        if (gave_up_) return *error_;
        catch_up(lock, false);
        wanted_.push_back([promise](std::optional<Result<Snapshot>> s) { promise->set_value(std::move(s)); });
        schedule(launches);
      }
      for (auto& launch : launches) launch();
      if (auto taken = future.get()) return std::move(*taken);
    }
  }
  /// The variables of each replica; one where they share.
  std::vector<const Variables*> containers() const {
    std::vector<const Variables*> out = {&variables_};
    for (const auto& copy : towers_.copies) out.push_back(copy.get());
    return out;
  }

  Result<RunSummary> run(int64_t updates, const std::function<void(const StepReport&)>& on_step) {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::run"));
    if (updates < 0) return invalid_argument("run: updates must be at least 0, got {}", updates);
    Launches launches;
    Status faults;  // of on_step
    std::unique_lock lock(mutex_);
    look_after_tasks();
    if (broken_) recover(lock, true);
    running_ = true;
    if (hybrid() && !broken_) {
      const int64_t now = step();
      lock.unlock();
      const Status told = tell_step(now);
      lock.lock();
      if (!told.ok() && !may_be_lost(told.error())) {
        running_ = false;
        return told.error();
      }
      if (!told.ok()) lose(told.error());
    }
    const int64_t before = target_;
    target_ = sum_of(target_, updates);
    stopping_ = false;
    reporting_ = static_cast<bool>(on_step);
    for (Replica& r : replicas_) r.input_wait_ns = 0, r.starved_since = {};
    bool stopped = false;
    const auto take_stop = [&] {
      if (!std::exchange(stop_, false)) return;
      stopped = stopping_ = true;
      target_ = std::min(target_, started_);
    };
    take_stop();
    if (recovers() && !kept_->snapshot) keep_snapshot();
    next_kept_ = later(Clock::now(), options_.recovery.snapshot_interval);
    last_update_ = Clock::now();
    if (!std::exchange(input_started_, true) && !broken_) enqueue_next(0, launches);
    schedule(launches);
    while (true) {
      lock.unlock();
      for (auto& launch : launches) launch();  // before on_step, which may wait for a snapshot
      launches.clear();
      lock.lock();
      const auto wake = next_wake();
      const auto earlier = [&] { return next_wake() < wake; };
      const auto woken = [&] {
        return !reports_.empty() || !news_.empty() || stop_ || idle() || may_recover() || earlier();
      };
      if (wake == Clock::time_point::max()) changed_.wait(lock, woken);
      else changed_.wait_until(lock, wake, woken);
      if (stop_) {
        take_stop();
        schedule(launches);
        continue;
      }
      if (Clock::now() >= wake) {
        take_care(launches);
        continue;
      }
      if (earlier()) continue;
      if (!news_.empty()) {
        const TaskReport told = news_.front();
        news_.pop_front();
        lock.unlock();
        if (faults.ok() && options_.recovery.on_task) faults = guarded_call([&] { options_.recovery.on_task(told); });
        lock.lock();
        if (!faults.ok() && !stopped) stop_ = true;
        continue;
      }
      if (reports_.empty() && may_recover()) {
        if (stopping_) break;
        recover(lock, true);
        continue;
      }
      if (reports_.empty()) break;
      const StepReport report = reports_.front();
      reports_.pop_front();
      lock.unlock();
      if (faults.ok()) faults = guarded_call([&] { on_step(report); });
      lock.lock();
      if (!faults.ok() && !stopped) stop_ = true;
      if (replicas_[size_t(report.replica)].reports-- == kMostReports) schedule(launches);
    }
    stop_ = stopping_ = running_ = reporting_ = false;  // a stop that came with the last update was for this run
    if (error_) {
      target_ = done_;
      return *error_;
    }
    if (broken_) done_ = started_ = kept_->step - first_step_;  // stopped while it waited
    target_ = done_;
    TROUPE_RETURN_IF_ERROR(faults);
    RunSummary summary{std::max<int64_t>(done_ - before, 0), stopped, ended_, {}, std::exchange(losses_, 0)};
    for (const Replica& r : replicas_) summary.input_wait_ns.push_back(r.input_wait_ns);
    return summary;
  }

  void stop() {
    std::shared_ptr<BatchSource> evaluated;
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
      evaluated = evaluated_;
    }
    if (evaluated) evaluated->interrupt();
  }

  Result<Metrics> evaluate(const Dataset& batches);
  /// step(), for those without the lock: between two runs what they made, also where some of it must be made again.
  int64_t step_made() const {
    std::lock_guard lock(mutex_);
    return first_step_ + (running_ ? done_ : target_);
  }

  Engine& engine_;
  const Tasks tasks_;
  const TrainerOptions options_;
  Graph graph_;
  Variables variables_;
  Towers towers_;

  mutable std::mutex mutex_;

 private:
  /// The options with the tasks of their devices.
  TrainerOptions complete(TrainerOptions o) const {
    for (std::string& device : o.devices) device = tasks_.complete(device);
    for (std::string& device : o.variable_devices) device = tasks_.complete(device);
    if (!o.input_device.empty()) o.input_device = tasks_.complete(o.input_device);
    return o;
  }
  /// All that is on the engine for this trainer alone.
  void give_back() {
    (void)engine_.remove_dataset(options_.name).ok();
    engine_.reset_container(trainer_container(options_.name));
    for (const auto& copy : towers_.copies) engine_.reset_container(copy->container());
  }

  // -- under mutex_ --------------------------------------------------------------------------------------------------

  bool idle() const {
    if (updating_ || averaging_ || computing_ > 0) return false;
    return error_ || (!broken_ && (done_ >= target_ || ended_));
  }
  /// Whether nothing may begin any more, at least for now.
  bool halted() const { return error_ || broken_ || closing_; }
  bool may_update() const { return !halted() && !ended_ && !stopping_ && !stop_ && started_ < target_; }
  int64_t slowest() const {
    int64_t out = INT64_MAX;
    for (const Replica& r : replicas_)
      if (r.phase != Phase::kAside) out = std::min(out, r.updates);
    return out;
  }
  /// kLocal: where the next average is.
  int64_t round_end() const { return std::min(sum_of(done_, options_.local_steps), target_); }

  bool may_compute(const Replica& r) const {
    if (r.phase != Phase::kReady || halted() || ended_ || withdrawing_ || held()) return false;
    if (r.reports >= kMostReports && !(local() && !wanted_.empty())) return false;
    switch (options_.mode) {
      // The first step after the update at work is not begun while a snapshot is to be taken in between.
      case ReplicaMode::kHybrid: return done_ < target_ && (wanted_.empty() || r.local_step <= step());
      case ReplicaMode::kLocal: return !averaging_ && !r.ended && r.updates < round_end();
      case ReplicaMode::kAsync:
        if (options_.max_staleness >= 0 && r.updates - slowest() > options_.max_staleness) return false;
        [[fallthrough]];
      case ReplicaMode::kSync: return started_ < target_ && !stop_;
    }
    return false;
  }

  /// Whether the next step of a replica has its batches in the queues.
  bool has_input(const Replica& r) const {
    if (input_closed_) return true;  // it takes what is left, or learns that nothing is
    const auto queues = std::ssize(enqueue_);
    if (queues == 1) return taken_ < filled_;
    if (options_.mode == ReplicaMode::kSync) return filled_ >= (taken_ + 1) * queues;
    return r.taken < (filled_ + queues - 1 - (&r - replicas_.data())) / queues;
  }
  void take_input(Replica& r) {
    ++r.taken;
    ++taken_;
    if (r.starved_since == Clock::time_point()) return;
    r.input_wait_ns += std::chrono::nanoseconds(Clock::now() - std::exchange(r.starved_since, {})).count();
  }

  /// Whether variables are as they are after an update, and stay so while no step is launched.
  bool between_updates() const {
    switch (options_.mode) {
      case ReplicaMode::kAsync: return true;
      // A replica whose gradients are taken may still move its averages; those that come too late are not waited for.
      case ReplicaMode::kHybrid: return !updating_ && (options_.backups > 0 || computing_ == 0);
      case ReplicaMode::kSync: return computing_ == 0;
      case ReplicaMode::kLocal:
        return computing_ == 0 && !averaging_ &&
               (error_ || std::ranges::all_of(replicas_, [&](const Replica& r) { return r.updates == done_; }));
    }
    return true;
  }
  /// Whether nothing may begin that changes variables: a snapshot is taken, or will be at once.
  bool held() const {
    if (options_.mode == ReplicaMode::kAsync) return false;
    if (taking_) return true;
    return !wanted_.empty() && (hybrid() ? !updating_ : between_updates());
  }

  /// Takes the snapshots that are wanted.
  void take_snapshots(Launches& launches) {
    taking_ = true;
    ++in_flight_;
    // Those that a step has taken which is under way may be used or not.
    const int64_t batches = position_ + taken_ * (options_.mode == ReplicaMode::kSync ? std::ssize(enqueue_) : 1) -
                            (options_.mode == ReplicaMode::kSync ? 0 : computing_);
    launches.push_back([this, batches, wanted = std::exchange(wanted_, {})] {
      struct Parts {
        std::mutex mutex;
        std::vector<Snapshot> snapshots;
        size_t left;
        Status status;
      };
      const auto from = containers();
      const size_t count = towers_.shards.empty() ? 1 : from.size();
      auto parts = std::make_shared<Parts>();
      parts->snapshots.resize(count);
      parts->left = count;
      for (size_t i = 0; i < count; ++i)
        engine_.snapshot(
            [this, i, batches, parts, wanted](Result<Snapshot> part) {
              {
                std::lock_guard lock(parts->mutex);
                if (part.ok()) parts->snapshots[i] = std::move(*part);
                else if (parts->status.ok()) parts->status = part.status();
                if (--parts->left > 0) return;
              }
              auto whole = parts->status.ok() ? join_slots(towers_.shards, std::move(parts->snapshots))
                                              : Result<Snapshot>(parts->status);
              finish(
                  [&](RunResult, Launches& launches) {
                    taking_ = false;
                    snapshot_taken(std::move(whole), batches, wanted, launches);
                  },
                  std::vector<Tensor>());
            },
            from[i]->container());
    });
  }

  void snapshot_taken(Result<Snapshot> whole, int64_t batches, const std::vector<Taken>& wanted, Launches& launches) {
    if (recovers() && !broken_) {
      // What a task had that has started again meanwhile is not in it.
      if (const auto why = watch_->lost(vital_)) lose(*why);
      else if (!whole.ok() && whole.error().code == Code::kUnavailable) lose(whole.error());
      const auto at = whole.ok() && !broken_ ? step_of(*whole) : Error();
      if (at.ok()) kept_ = Kept{*whole, *at, batches};
      next_kept_ = later(Clock::now(), options_.recovery.snapshot_interval);
      changed_.notify_all();  // run() waits for that
    }
    if (broken_) wanted_.insert(wanted_.end(), wanted.begin(), wanted.end());
    else
      launches.push_back([wanted, whole = std::move(whole)] {
        for (const Taken& taken : wanted) taken(whole);
      });
  }

  // Collects the steps that may start now; they are launched once the mutex is free.
  void schedule(Launches& launches) {
    if ((error_ || broken_) && !std::exchange(cancelled_, true)) {
      launches.push_back([token = all_steps_]() mutable { token.cancel(); });
      launches.push_back([token = update_step_]() mutable { token.cancel(); });
    }
    if (broken_ && !wanted_.empty())
      launches.push_back(
          [wanted = std::exchange(wanted_, {}),
           out = goes_on_from_kept() ? std::optional<Result<Snapshot>>(*kept_->snapshot) : std::nullopt] {
            for (const Taken& taken : wanted) taken(out);
          });
    if (!wanted_.empty() && !taking_ && !closing_ && between_updates()) take_snapshots(launches);
    if (hybrid() && !updating_ && may_update() && !held()) {
      ++started_;
      updating_ = true;
      RunOptions options = run_options_;
      options.cancel = update_step_;
      launch(launches, update_, {}, options, [this](RunResult r, Launches& more) { update_done(r, more); });
    }
    for (size_t i = 0; i < replicas_.size(); ++i) {
      Replica& r = replicas_[i];
      if (!may_compute(r)) continue;
      if (!has_input(r)) {
        if (r.starved_since == Clock::time_point()) r.starved_since = Clock::now();
        continue;
      }
      take_input(r);
      r.phase = Phase::kComputing;
      ++computing_;
      std::vector<Tensor> feeds;
      // Dropout follows from the step alone, so that a run which was resumed repeats one which was not.
      RunOptions options = run_options_;
      if (hybrid()) {
        if (r.local_step < 0) r.local_step = step();
        feeds.push_back(Tensor::scalar<int64_t>(r.local_step));
        options.random_step = r.local_step;
      } else if (local()) {
        options.random_step = first_step_ + r.updates;
        started_ = std::max(started_, r.updates + 1);
      } else {
        options.random_step = first_step_ + started_++;
      }
      launch(launches, r.step, std::move(feeds), options,
             [this, i](RunResult result, Launches& more) { replica_done(static_cast<int>(i), result, more); });
    }
    // Without input the update at work has not begun to change anything, and does not while replicas are held.
    const bool update_waits = updating_ && computing_ == 0 && pushes_[step()] < needed();
    if (hybrid() && !wanted_.empty() && !taking_ && !halted() && update_waits) {
      // A snapshot over tasks waits for what is under way: the update is made again after it.
      if (tasks_.own().empty()) take_snapshots(launches);
      else withdraw_update(launches);
    }
    if (local() && !averaging_ && computing_ == 0 && !halted()) end_round(launches);
    // The data ended, or are not there and a stop is wanted: the update would wait for gradients that do not come.
    if (update_waits && (ended_ || stopping_)) withdraw_update(launches);
  }

  /// kHybrid: ends the update at work, which waits for gradients.
  void withdraw_update(Launches& launches) {
    if (std::exchange(withdrawing_, true)) return;
    launches.push_back([token = update_step_]() mutable { token.cancel(); });
  }

  int needed() const { return static_cast<int>(replicas_.size()) - options_.backups; }

  using Done = std::function<void(RunResult, Launches&)>;
  void launch(Launches& launches, const Prepared& prepared, std::vector<Tensor> feeds, const RunOptions& options,
              Done done) {
    ++in_flight_;
    launches.push_back([this, prepared, options, feeds = std::move(feeds), done = std::move(done)]() mutable {
      session_->run_async(
          prepared, std::move(feeds), [this, done = std::move(done)](RunResult r) { finish(done, std::move(r)); },
          options);
    });
  }

  // What every step's callback does: takes the result in, then starts what may start.
  void finish(const Done& done, RunResult result) {
    Launches launches;
    {
      std::lock_guard lock(mutex_);
      done(std::move(result), launches);
      schedule(launches);
    }
    for (auto& launch : launches) launch();
    std::lock_guard lock(mutex_);
    --in_flight_;
    if (!reports_.empty() || !news_.empty() || idle() || closing_ || broken_) changed_.notify_all();
  }

  // Keeps the first error; schedule() cancels what runs.
  void fail(const Error& error) {
    if (halted()) return;
    if (may_be_lost(error)) lose(error);
    else error_ = error;
  }

  // -- lost tasks, under mutex_ --------------------------------------------------------------------------------------

  /// What training goes back to: a snapshot, or else the initial values, and how many batches came before it.
  struct Kept {
    std::optional<Snapshot> snapshot = {};
    int64_t step = 0;
    int64_t batches = 0;
  };

  /// Tells which tasks the steps need, and which all of them do.
  void watch_tasks() {
    if (cluster_status(engine_).empty() || options_.recovery.wait.count() <= 0) return;
    TaskWatch::Names names;
    const bool apart = options_.mode == ReplicaMode::kAsync || hybrid();
    std::map<std::string, std::string> tasks;  // by device
    for (int id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      const auto [at, fresh] = tasks.try_emplace(node.device());
      if (fresh) at->second = tasks_.task_of(node.device());
      names.insert(at->second);
      const bool resource = node.num_outputs() > 0 && node.dtype(0) == DType::kResource;
      if (!apart || resource) vital_.insert(at->second);
    }
    for (size_t i = 0; i < replicas_.size(); ++i)
      replicas_[i].task = options_.devices.empty() ? std::string() : tasks_.task_of(options_.devices[i]);
    auto watch = std::make_unique<TaskWatch>(engine_, std::move(names), [this] {
      Launches launches;
      {
        std::lock_guard lock(mutex_);
        look_after_tasks();
        schedule(launches);
        changed_.notify_all();
      }
      for (auto& launch : launches) launch();
    });
    std::lock_guard lock(mutex_);
    watch_ = std::move(watch);
  }
  /// Carries `assign` out, which gives variables their first values.
  Status begin(const std::function<Status()>& assign) {
    return watch_ && !input_started_ ? watch_->begin(mutex_, changed_, options_.recovery.wait, assign) : assign();
  }
  bool recovers() const { return watch_ && kept_ && !error_; }
  bool may_be_lost(const Error& error) const { return recovers() && watch_->explains(error, vital_); }
  bool may_recover() const { return broken_ && in_flight_ == 0; }

  /// All training waits for what is lost. schedule() cancels what runs.
  void lose(const Error& error) {
    const auto why = watch_->lost(vital_);
    broken_ = why.value_or(error);
    // What fails again at the same step though all tasks are there is still the same loss.
    if (why ? last_update_ >= lost_since_ : step() > lost_at_) lost_since_ = Clock::now(), ++losses_;
    lost_at_ = std::max(lost_at_, step());
    news_.push_back({.reason = broken_->message, .step = step()});
  }
  /// Whether a snapshot of the moment is the one that is kept.
  bool goes_on_from_kept() const {
    return broken_ && kept_->snapshot && (running_ || target_ == kept_->step - first_step_);
  }
  /// Between two runs: waits until the updates that were lost are made again. A stop, where it is heeded, ends it.
  void catch_up(std::unique_lock<std::mutex>& lock, bool heed_stop) {
    if (!watch_ || running_) return;
    const auto ends = [&] { return heed_stop && stop_; };
    while (!error_ && !ends() && !(idle() && !broken_)) {
      if (broken_) recover(lock, heed_stop);
      else changed_.wait(lock, [&] { return idle() || may_recover() || ends(); });
    }
  }

  /// Looks what has become of the tasks.
  void look_after_tasks() {
    if (!recovers() || closing_) return;
    if (!broken_)
      if (const auto why = watch_->lost(vital_)) lose(*why);
    if (broken_) return;
    for (Replica& r : replicas_) {
      if (r.phase != Phase::kAside) continue;
      if (const auto why = r.told_aside ? std::nullopt : watch_->lost({r.task})) {
        r.told_aside = true;
        r.why_aside = why->message;
        r.retry_at = {};
        ++losses_;
        news_.push_back({.reason = why->message, .replica = static_cast<int>(&r - replicas_.data()), .step = step()});
      }
      if (r.retry_at <= Clock::now() && watch_->up({r.task})) take_back(r);
    }
  }

  /// kAsync, kHybrid: leaves out replica `i`, whose step has failed, if no more than its own task is lost.
  bool set_aside(int i, const Error& error) {
    Replica& r = replicas_[static_cast<size_t>(i)];
    if (!recovers() || halted() || vital_.contains(r.task) || watch_->lost(vital_)) return false;
    const auto why = watch_->lost({r.task});
    if (!why && error.code != Code::kUnavailable) return false;
    r.phase = Phase::kAside;
    r.why_aside = error.message;
    r.aside_since = Clock::now();
    r.retry_at = r.aside_since + (why ? Clock::duration() : kPause);
    ++r.batches_lost;
    look_after_tasks();
    changed_.notify_all();  // run() looks after it
    return true;
  }
  void take_back(Replica& r) {
    watch_->accept({r.task});
    // Behind the slowest it would hold up the others.
    if (const int64_t others = slowest(); others != INT64_MAX) r.updates = std::max(r.updates, others);
    r.phase = r.token_asked ? Phase::kAwaitingToken : Phase::kReady;
    if (!std::exchange(r.told_aside, false)) return;
    const std::chrono::duration<double> seconds = Clock::now() - r.aside_since;
    news_.push_back({.reason = r.why_aside,
                     .back = true,
                     .replica = static_cast<int>(&r - replicas_.data()),
                     .step = step(),
                     .batches = std::exchange(r.batches_lost, 0),
                     .seconds = seconds.count()});
  }

  void keep_snapshot() {
    wanted_.push_back([](const auto&) {});
  }
  /// When run() has something to do by itself.
  Clock::time_point next_wake() const {
    if (!recovers() || broken_) return Clock::time_point::max();
    Clock::time_point out = taking_ || !wanted_.empty() ? Clock::time_point::max() : next_kept_;
    for (const Replica& r : replicas_)
      if (r.phase == Phase::kAside)
        out = std::min(out, std::max(r.retry_at, last_look_ + kPause));  // also to see whether any is left
    return out;
  }
  void take_care(Launches& launches) {
    last_look_ = Clock::now();
    look_after_tasks();
    if (!recovers() || broken_) return schedule(launches);
    const auto now = Clock::now();
    if (now >= next_kept_ && wanted_.empty() && !taking_) {
      keep_snapshot();
      next_kept_ = Clock::time_point::max();  // until that is taken
    }
    // So many are aside, for too long, that no update can be made.
    const auto aside = [](const Replica& r) { return r.phase == Phase::kAside; };
    const auto left = std::ssize(replicas_) - std::ranges::count_if(replicas_, aside);
    if (const int least = hybrid() ? needed() : 1; left < least && now >= later(last_update_, options_.recovery.wait))
      error_ = make_error(Code::kUnavailable, "{} of {} replicas {} left, and an update needs {}: {}", left,
                          replicas_.size(), left == 1 ? "is" : "are", least,
                          std::ranges::find_if(replicas_, aside)->why_aside);
    schedule(launches);
  }

  /// Waits for the tasks that are lost, goes back to what is kept and has training go on. A thread that may wait calls
  /// it, with the lock. After it the trainer is broken_ no more, or has error_, but for a stop that is heeded.
  void recover(std::unique_lock<std::mutex>& lock, bool heed_stop) {
    if (recovering_) return changed_.wait(lock, [&] { return !recovering_; });
    recovering_ = true;
    Launches launches, more;
    schedule(launches);
    lock.unlock();
    for (auto& launch : launches) launch();
    lock.lock();
    changed_.wait(lock, [&] { return in_flight_ == 0; });
    const auto deadline = later(lost_since_, options_.recovery.wait);
    const auto ends = [&] { return heed_stop && stop_; };
    for (bool again = false; broken_ && !error_ && !ends(); again = true) {
      // What has failed without a task being lost is not tried again at once.
      if (again || !watch_->lost(watch_->all())) changed_.wait_for(lock, kPause, ends);
      const auto there = [&] { return watch_->up(watch_->all()); };
      const auto woken = [&] { return ends() || there(); };
      if (deadline == Clock::time_point::max()) changed_.wait(lock, woken);
      else changed_.wait_until(lock, deadline, woken);
      if (ends()) break;
      if (Clock::now() >= deadline) {
        error_ = *broken_;
        break;
      }
      watch_->accept(watch_->all());
      all_steps_ = CancelToken();
      update_step_ = CancelToken();
      run_options_.cancel = all_steps_;
      const Kept kept = *kept_;
      lock.unlock();
      const Status back = go_back(kept);
      lock.lock();
      if (watch_->lost(watch_->all())) continue;
      if (back.ok()) {
        begin_again(kept);
        if (input_started_) enqueue_next(0, more);
      } else if (back.error().code != Code::kUnavailable) error_ = back.error();
    }
    if (error_) {
      gave_up_ = gave_up_ || broken_;
      broken_.reset();
    }
    recovering_ = false;
    changed_.notify_all();
    schedule(more);
    lock.unlock();
    for (auto& launch : more) launch();
    lock.lock();
  }
  /// Gives variables, queues and the dataset what they had; not under mutex_.
  Status go_back(const Kept& kept) {
    engine_.reset_container(trainer_container(options_.name));
    if (batches_->repeatable()) {
      TROUPE_RETURN_IF_ERROR(engine_.remove_dataset(options_.name));
      TROUPE_RETURN_IF_ERROR(engine_.add_dataset(options_.name, batches_->skip(kept.batches)));
    }
    TROUPE_RETURN_IF_ERROR(assign_initial());
    if (kept.snapshot) TROUPE_RETURN_IF_ERROR(assign(*kept.snapshot));
    return hybrid() ? tell_step(kept.step) : Status();
  }
  Status tell_step(int64_t step) { return session_->run(set_step_, {Tensor::scalar<int64_t>(step)}).status(); }
  void begin_again(const Kept& kept) {
    const std::chrono::duration<double> seconds = Clock::now() - lost_since_;
    const int64_t lost = step() - kept.step;
    const int64_t read = position_ + filled_ - kept.batches;
    news_.push_back({.reason = broken_->message,
                     .back = true,
                     .step = kept.step,
                     .updates = lost,
                     .batches = batches_->repeatable() ? 0 : read,
                     .seconds = seconds.count()});
    broken_.reset();
    next_kept_ = later(Clock::now(), options_.recovery.snapshot_interval);  // what was wanted was not taken
    done_ = started_ = kept.step - first_step_;
    position_ = kept.batches;
    filled_ = taken_ = 0;
    pushes_.clear();
    computing_ = 0;
    ended_ = input_closed_ = cancelled_ = updating_ = averaging_ = withdrawing_ = taking_ = false;
    for (Replica& r : replicas_) {
      r.phase = Phase::kReady;
      r.local_step = -1;
      r.updates = local() ? done_ : 0;
      r.taken = 0;
      r.ended = r.token_asked = r.told_aside = false;
      r.batches_lost = 0;
      r.starved_since = {};
    }
  }

  // -- what steps end with -------------------------------------------------------------------------------------------

  void replica_done(int i, RunResult& result, Launches& launches) {
    Replica& r = replicas_[i];
    r.phase = Phase::kReady;
    --computing_;
    if (!result.ok()) {
      if (!hybrid() && !local()) --started_;
      if (result.error().code == Code::kOutOfRange && !broken_) (local() ? r.ended : ended_) = true;
      else if (!set_aside(i, result.error())) fail(result.error());
      return;
    }
    StepReport report{0, i, (*result)[0].data<float>()[0], (*result)[1].data<float>()[0],
                      (*result)[2].data<int32_t>()[0]};
    if (hybrid()) {
      ++pushes_[r.local_step];
      r.phase = Phase::kAwaitingToken;
      ask_token(i, launches);
    } else if (!local()) {
      ++done_;
    }
    ++r.updates;
    last_update_ = Clock::now();
    report.step = local() ? first_step_ + r.updates : step();
    if (reporting_) {
      ++r.reports;
      reports_.push_back(report);
    }
    if (!std::isfinite(report.loss)) {
      Error error = invalid_argument("the loss of replica {} is {} at step {}", i, report.loss, report.step);
      error.step = report.step;
      fail(error);
    }
  }

  void ask_token(int i, Launches& launches) {
    replicas_[static_cast<size_t>(i)].token_asked = true;
    launch(launches, token_, {}, run_options_, [this, i](RunResult token, Launches&) { token_done(i, token); });
  }
  void token_done(int i, RunResult& token) {
    Replica& r = replicas_[static_cast<size_t>(i)];
    r.token_asked = false;
    if (!token.ok()) return fail(token.error());
    r.local_step = (*token)[0].data<int64_t>()[0];
    if (r.phase == Phase::kAwaitingToken) r.phase = Phase::kReady;
  }

  void update_done(RunResult& result, Launches& launches) {
    updating_ = false;
    const bool withdrawn = std::exchange(withdrawing_, false);
    if (result.ok()) {
      ++done_;
      pushes_.erase(pushes_.begin(), pushes_.lower_bound(step()));
      // Else the others would take the tokens that one who is aside does not, and those are of steps that are over.
      for (size_t i = 0; i < replicas_.size(); ++i)
        if (replicas_[i].phase == Phase::kAside && !replicas_[i].token_asked) ask_token(static_cast<int>(i), launches);
      return;
    }
    --started_;
    if (ended_ && !broken_) return;
    if (!withdrawn || error_ || result.error().code != Code::kCancelled) return fail(result.error());
    update_step_ = CancelToken();  // what comes next goes on with the gradients that there are
    if (stopping_) target_ = std::min(target_, started_);
  }

  /// Averages once every replica has made the updates of the round, or all that its batches are enough for.
  void end_round(Launches& launches) {
    const auto there = [&](const Replica& r) {
      return r.ended || r.updates >= round_end() || (stopping_ && !has_input(r));
    };
    if (!std::ranges::all_of(replicas_, there)) return;
    if (std::ranges::any_of(replicas_, [&](const Replica& r) { return r.updates > done_; })) {
      averaging_ = true;
      launch(launches, average_, {}, run_options_, [this](RunResult r, Launches&) { average_done(r); });
    } else {
      ended_ |= any_ended();
    }
  }
  bool any_ended() const { return std::ranges::any_of(replicas_, &Replica::ended); }

  void average_done(RunResult& result) {
    averaging_ = false;
    if (!result.ok()) return fail(result.error());
    // Where the data ended, or a stop came before them, the first replica, which is served first, has made as many
    // updates as any.
    done_ = replicas_[0].updates;
    if (stopping_) target_ = std::min(target_, done_);
    for (Replica& r : replicas_) r.updates = done_;
    ended_ |= any_ended();
  }

  // The input is one loop, so that batches keep their order: never two of its steps at once.
  void enqueue_next(size_t queue, Launches& launches) {
    launch(launches, enqueue_[queue], {}, run_options_, [this, queue](RunResult r, Launches& more) {
      if (r.ok()) {
        ++filled_;
        if (!halted()) enqueue_next((queue + 1) % enqueue_.size(), more);
      } else if (r.error().code == Code::kOutOfRange && !broken_) {
        launch(more, close_, {}, run_options_, [this](RunResult closed, Launches&) {
          input_closed_ = true;
          if (!closed.ok()) fail(closed.error());
        });
      } else {
        fail(r.error());
      }
    });
  }

  Prepared close_, update_, token_, set_step_, average_;
  std::vector<Prepared> enqueue_, tests_;
  std::vector<std::string> test_tasks_;
  RunOptions run_options_;
  CancelToken all_steps_;    // cancelled by an error and by the destructor
  CancelToken update_step_;  // the same for kHybrid's update, and when it can no longer happen

  std::condition_variable changed_;
  std::vector<Replica> replicas_;
  std::map<int64_t, int> pushes_;  // gradients pushed, by local step
  std::deque<StepReport> reports_;
  std::optional<Error> error_;
  bool gave_up_ = false;  // that is of a task that was lost and not got over: what it had is gone
  std::optional<Dataset> batches_;
  TaskWatch::Names vital_;  // tasks without which no replica can do
  std::optional<Error> broken_;
  bool recovering_ = false;  // a thread is in recover()
  bool running_ = false;     // one is in run()
  std::optional<Kept> kept_;
  Clock::time_point lost_since_ = {}, next_kept_ = {}, last_update_ = {}, last_look_ = {};
  int64_t lost_at_ = -1;  // the step
  int64_t position_ = 0;  // of the dataset: elements before those that are counted by filled_
  int losses_ = 0;        // of the run
  std::deque<TaskReport> news_;
  int64_t first_step_ = 0;
  int64_t target_ = 0, started_ = 0, done_ = 0;
  int64_t filled_ = 0, taken_ = 0;  // batches put into queues; taken by steps, in kSync counted once for all queues
  std::vector<Taken> wanted_;       // snapshots
  bool taking_ = false;
  int computing_ = 0;     // replica steps in flight, tokens not counted
  int in_flight_ = 0;     // all steps whose callback has not ended
  bool claimed_ = false;  // the name on the engine is ours
  bool updating_ = false, averaging_ = false, input_started_ = false, ended_ = false, stop_ = false, closing_ = false,
       cancelled_ = false, input_closed_ = false;
  bool stopping_ = false;   // the run in progress was told to stop
  bool reporting_ = false;  // it has an on_step
  /// kHybrid: the update is being cancelled. A gradient that came now could be taken for some variables and not for
  /// others, so no replica begins a step.
  bool withdrawing_ = false;
  std::shared_ptr<BatchSource> evaluated_;  // of the evaluation in progress

 public:
  std::unique_ptr<Session> session_;  // before the watch, so that it goes after that
  std::unique_ptr<TaskWatch> watch_;  // none: nothing can be lost, or is to be got over
};

Result<Metrics> Trainer::Impl::evaluate(const Dataset& batches) {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::evaluate"));
  const auto give_up = later(Clock::now(), options_.recovery.wait);
  while (true) {
    TROUPE_ASSIGN(const std::shared_ptr<BatchSource> source, BatchSource::make(batches));
    std::vector<Prepared> tests;
    {
      std::unique_lock lock(mutex_);
      look_after_tasks();
      if (broken_) recover(lock, true);
      catch_up(lock, true);
      if (broken_ || !(running_ || idle())) {
        stop_ = false;
        return make_error(Code::kCancelled, "the evaluation was stopped while a task was lost: {}",
                          broken_ ? broken_->message : "its updates are being made again");
      }
      evaluated_ = source;
      for (size_t i = 0; i < tests_.size(); ++i)
        if (!watch_ || watch_->up({test_tasks_[i]})) tests.push_back(tests_[i]);
      if (tests.empty()) tests = tests_;
    }
    auto metrics = evaluate_batches(*session_, *source, tests, 2 * tests.size(), [&] {
      std::lock_guard lock(mutex_);
      return stop_;
    });
    std::unique_lock lock(mutex_);
    evaluated_.reset();
    if (metrics.ok()) return metrics;
    const bool stopped = std::exchange(stop_, false);
    if (stopped || !may_be_lost(metrics.error()) || Clock::now() >= give_up) return metrics;
    // What is not there it does without, or waits for.
    if (watch_->lost(vital_)) lose(metrics.error());
    else changed_.wait_for(lock, kPause, [&] { return stop_; });
  }
}

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(Engine& engine, ModelFn model, Dataset batches, TrainerOptions options,
                                                 std::source_location where) {
  if (!model) return invalid_argument("trainer '{}': no model", options.name);
  return guarded([&]() -> Result<std::unique_ptr<Trainer>> {
    auto impl = std::make_unique<Impl>(engine, std::move(options));
    TROUPE_RETURN_IF_ERROR(impl->build(model, batches, where));
    return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
  });
}

Status Trainer::initialise() { return impl_->initialise(); }
Status Trainer::restore(const Snapshot& snapshot) { return impl_->restore(snapshot); }
Result<RunSummary> Trainer::run(int64_t updates, const std::function<void(const StepReport&)>& on_step) {
  return impl_->run(updates, on_step);
}
void Trainer::stop() { impl_->stop(); }
int64_t Trainer::step() const { return impl_->step_made(); }
Result<Snapshot> Trainer::snapshot() { return impl_->snapshot(); }
Result<Metrics> Trainer::evaluate(const Dataset& batches) { return impl_->evaluate(batches); }
const Graph& Trainer::graph() const { return impl_->graph_; }
Session& Trainer::session() { return *impl_->session_; }
const Variables& Trainer::variables() const { return impl_->variables_; }

}  // namespace troupe::nn
