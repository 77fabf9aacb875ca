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
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>

#include "train/evaluation.h"
#include "train/shards.h"
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
  using Clock = std::chrono::steady_clock;
  using Taken = std::function<void(Result<Snapshot>)>;
  enum class Phase { kReady, kComputing, kAwaitingToken };
  struct Replica {
    Prepared step;
    Phase phase = Phase::kReady;
    int64_t local_step = -1;  // kHybrid; -1: the current one
    int64_t updates = 0;      // made by it
    bool ended = false;       // kLocal: its batches have
    int64_t taken = 0;        // batches, by its steps
    int reports = 0;          // of its steps that on_step has not taken
    Clock::time_point starved_since = {};
    int64_t input_wait_ns = 0;
  };

  Impl(Engine& engine, TrainerOptions options)
      : engine_(engine), options_(std::move(options)), graph_(engine.ops()),
        variables_(options_.container, options_.seed) {
    run_options_.cancel = all_steps_;
    run_options_.check_numerics = options_.check_numerics;
  }

  ~Impl() {
    if (!engine_.status().ok()) return;  // a child after fork(): the steps and their threads are the parent's
    if (engine_.on_engine_thread())
      detail::abort_with(make_error(Code::kFailedPrecondition,
                                    "trainer '{}' is destroyed in a callback of the engine, which it would wait for",
                                    options_.name));
    std::unique_lock lock(mutex_);
    closing_ = true;
    const auto wanted = std::exchange(wanted_, {});
    CancelToken update_step = update_step_;
    lock.unlock();
    for (const Taken& taken : wanted) taken(make_error(Code::kCancelled, "the trainer is being destroyed"));
    all_steps_.cancel();
    update_step.cancel();
    lock.lock();
    changed_.wait(lock, [&] { return in_flight_ == 0; });
    if (claimed_) give_back();
  }

  Status build(const ModelFn& model, const Dataset& batches, std::source_location where) {
    TROUPE_ASSIGN(towers_, build_towers(ScopeAt(Scope(graph_), where), variables_, model, batches, options_));
    SessionOptions settings;
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
    return {};
  }

  bool hybrid() const { return options_.mode == ReplicaMode::kHybrid; }
  bool local() const { return options_.mode == ReplicaMode::kLocal; }
  int64_t step() const { return first_step_ + done_; }

  Status initialise() {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::initialise"));
    // In a session of its own, so that each call draws the same random values.
    Session session(engine_, graph_);
    TROUPE_RETURN_IF_ERROR(session.run({}, std::vector<Output>{}, towers_.initialise));
    TROUPE_RETURN_IF_ERROR(publish());
    std::lock_guard lock(mutex_);
    if (!input_started_) first_step_ = 0;  // of an earlier restore()
    return {};
  }
  /// Gives what the first replica has to the others.
  Status publish() {
    if (towers_.publish.targets.empty()) return {};
    return session_->run({}, std::vector<Output>{}, towers_.publish.targets).status();
  }

  Status restore(const Snapshot& snapshot) {
    if (input_started_) return make_error(Code::kFailedPrecondition, "restore: the trainer has run already");
    TROUPE_RETURN_IF_ERROR(initialise());
    TROUPE_ASSIGN(auto parts, part_slots(towers_.shards, containers(), snapshot));
    TROUPE_RETURN_IF_ERROR(engine_.restore(parts[0], options_.container));
    TROUPE_RETURN_IF_ERROR(publish());
    for (size_t i = 1; i < parts.size(); ++i)
      TROUPE_RETURN_IF_ERROR(engine_.restore(parts[i], containers()[i]->container()));
    TROUPE_ASSIGN(std::vector<Tensor> found, session_->run({}, {towers_.global_step}));
    std::lock_guard lock(mutex_);
    first_step_ = found[0].data<int64_t>()[0];
    return {};
  }

  Result<Snapshot> snapshot() {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::snapshot"));
    auto promise = std::make_shared<std::promise<Result<Snapshot>>>();
    auto future = promise->get_future();
    Launches launches;
    {
      std::lock_guard lock(mutex_);
      wanted_.push_back([promise](Result<Snapshot> s) { promise->set_value(std::move(s)); });
      schedule(launches);
    }
    for (auto& launch : launches) launch();
    return future.get();
  }
  /// The variables of each replica; one where they share.
  std::vector<const Variables*> containers() const {
    std::vector<const Variables*> out = {&variables_};
    for (const auto& copy : towers_.copies) out.push_back(copy.get());
    return out;
  }

  Result<RunSummary> run(int64_t updates, const std::function<void(const StepReport&)>& on_step) {
    TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::run"));
    if (updates < 0) return invalid_argument("run: the number of updates must not be negative, it is {}", updates);
    if (hybrid()) {
      auto told = session_->run(set_step_, {Tensor::scalar<int64_t>(step())});
      TROUPE_RETURN_IF_ERROR(told);
    }
    Launches launches;
    Status faults;  // of on_step
    std::unique_lock lock(mutex_);
    const int64_t before = done_;
    target_ = sum_of(done_, updates);
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
    if (!std::exchange(input_started_, true)) enqueue_next(0, launches);
    schedule(launches);
    while (true) {
      lock.unlock();
      for (auto& launch : launches) launch();  // before on_step, which may wait for a snapshot
      launches.clear();
      lock.lock();
      changed_.wait(lock, [&] { return !reports_.empty() || stop_ || idle(); });
      if (stop_) {
        take_stop();
        schedule(launches);
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
    stop_ = stopping_ = false;  // a stop that came with the last update was for this run
    if (error_) return *error_;
    TROUPE_RETURN_IF_ERROR(faults);
    RunSummary summary{done_ - before, stopped, ended_, {}};
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

  Engine& engine_;
  const TrainerOptions options_;
  Graph graph_;
  Variables variables_;
  Towers towers_;

  mutable std::mutex mutex_;

 private:
  /// All that is on the engine for this trainer alone.
  void give_back() {
    (void)engine_.remove_dataset(options_.name).ok();
    engine_.reset_container(trainer_container(options_.name));
    for (const auto& copy : towers_.copies) engine_.reset_container(copy->container());
  }

  // -- under mutex_ --------------------------------------------------------------------------------------------------

  bool idle() const {
    if (updating_ || averaging_ || computing_ > 0) return false;
    return done_ >= target_ || error_ || ended_;
  }
  bool may_update() const { return !error_ && !ended_ && !closing_ && !stopping_ && !stop_ && started_ < target_; }
  int64_t slowest() const { return std::ranges::min(replicas_, {}, &Replica::updates).updates; }
  /// kLocal: where the next average is.
  int64_t round_end() const { return std::min(sum_of(done_, options_.local_steps), target_); }

  bool may_compute(const Replica& r) const {
    if (r.phase != Phase::kReady || error_ || ended_ || closing_ || withdrawing_ || held()) return false;
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
    launches.push_back([this, wanted = std::exchange(wanted_, {})] {
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
            [this, i, parts, wanted](Result<Snapshot> part) {
              {
                std::lock_guard lock(parts->mutex);
                if (part.ok()) parts->snapshots[i] = std::move(*part);
                else if (parts->status.ok()) parts->status = part.status();
                if (--parts->left > 0) return;
              }
              auto whole = parts->status.ok() ? join_slots(towers_.shards, std::move(parts->snapshots))
                                              : Result<Snapshot>(parts->status);
              for (const Taken& taken : wanted) taken(whole);
              finish([this](RunResult, Launches&) { taking_ = false; }, std::vector<Tensor>());
            },
            from[i]->container());
    });
  }

  // Collects the steps that may start now; they are launched once the mutex is free.
  void schedule(Launches& launches) {
    if (error_ && !std::exchange(cancelled_, true)) {
      launches.push_back([this] { all_steps_.cancel(); });
      launches.push_back([token = update_step_]() mutable { token.cancel(); });
    }
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
    if (hybrid() && !wanted_.empty() && !taking_ && !closing_ && computing_ == 0 && pushes_[step()] < needed())
      take_snapshots(launches);
    if (local() && !averaging_ && computing_ == 0 && !error_ && !closing_) end_round(launches);
    // The data ended, or are not there and a stop is wanted: the update would wait for gradients that do not come.
    if (updating_ && !withdrawing_ && (ended_ || stopping_) && computing_ == 0 && pushes_[step()] < needed()) {
      withdrawing_ = true;
      launches.push_back([token = update_step_]() mutable { token.cancel(); });
    }
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
    if (!reports_.empty() || idle() || closing_) changed_.notify_all();
  }

  // Keeps the first error; schedule() cancels what runs.
  void fail(const Error& error) {
    if (!error_ && !closing_) error_ = error;
  }

  void replica_done(int i, RunResult& result, Launches& launches) {
    Replica& r = replicas_[i];
    r.phase = Phase::kReady;
    --computing_;
    if (!result.ok()) {
      if (!hybrid() && !local()) --started_;
      if (result.error().code == Code::kOutOfRange) (local() ? r.ended : ended_) = true;
      else fail(result.error());
      return;
    }
    StepReport report{0, i, (*result)[0].data<float>()[0], (*result)[1].data<float>()[0],
                      (*result)[2].data<int32_t>()[0]};
    if (hybrid()) {
      ++pushes_[r.local_step];
      r.phase = Phase::kAwaitingToken;
      launch(launches, token_, {}, run_options_, [this, i](RunResult token, Launches&) { token_done(i, token); });
    } else if (!local()) {
      ++done_;
    }
    ++r.updates;
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

  void token_done(int i, RunResult& token) {
    if (!token.ok()) return fail(token.error());
    replicas_[i].local_step = (*token)[0].data<int64_t>()[0];
    replicas_[i].phase = Phase::kReady;
  }

  void update_done(RunResult& result, Launches&) {
    updating_ = withdrawing_ = false;
    if (result.ok()) {
      ++done_;
      pushes_.erase(pushes_.begin(), pushes_.lower_bound(step()));
      return;
    }
    --started_;
    if (ended_) return;
    if (!stopping_ || error_ || result.error().code != Code::kCancelled) return fail(result.error());
    update_step_ = CancelToken();  // the next run goes on with the gradients that there are
    target_ = std::min(target_, started_);
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
        if (!closing_ && !error_) enqueue_next((queue + 1) % enqueue_.size(), more);
      } else if (r.error().code == Code::kOutOfRange) {
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
  RunOptions run_options_;
  CancelToken all_steps_;    // cancelled by an error and by the destructor
  CancelToken update_step_;  // the same for kHybrid's update, and when it can no longer happen

  std::condition_variable changed_;
  std::vector<Replica> replicas_;
  std::map<int64_t, int> pushes_;  // gradients pushed, by local step
  std::deque<StepReport> reports_;
  std::optional<Error> error_;
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
  std::unique_ptr<Session> session_;  // last, so that it goes first
};

Result<Metrics> Trainer::Impl::evaluate(const Dataset& batches) {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::evaluate"));
  TROUPE_ASSIGN(const std::shared_ptr<BatchSource> source, BatchSource::make(batches));
  {
    std::lock_guard lock(mutex_);
    evaluated_ = source;
  }
  auto metrics = evaluate_batches(*session_, *source, tests_, 2 * tests_.size(), [&] {
    std::lock_guard lock(mutex_);
    return stop_;
  });
  std::lock_guard lock(mutex_);
  evaluated_.reset();
  if (!metrics.ok()) stop_ = false;
  return metrics;
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
int64_t Trainer::step() const {
  std::lock_guard lock(impl_->mutex_);
  return impl_->step();
}
Result<Snapshot> Trainer::snapshot() { return impl_->snapshot(); }
Result<Metrics> Trainer::evaluate(const Dataset& batches) { return impl_->evaluate(batches); }
const Graph& Trainer::graph() const { return impl_->graph_; }
Session& Trainer::session() { return *impl_->session_; }
const Variables& Trainer::variables() const { return impl_->variables_; }

}  // namespace troupe::nn
