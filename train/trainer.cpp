// SPDX-License-Identifier: Apache-2.0
// What a user calls of a Trainer, and run(), which waits for its loops.
#include "train/evaluation.h"
#include "train/gpus.h"
#include "train/trainer_impl.h"
#include "troupe/guarded.h"

namespace troupe::nn {

Trainer::Impl::Impl(Engine& engine, TrainerOptions options)
    : engine_(engine), tasks_(engine), options_(complete(std::move(options))), graph_(engine.ops()),
      variables_(options_.container, options_.seed) {
  run_options_.cancel = all_steps_;
  run_options_.check_numerics = options_.check_numerics;
  run_options_.trace = options_.trace;
}

Trainer::Impl::~Impl() {
  if (!engine_.status().ok()) {  // a child after fork(): the steps and their threads are the parent's
    (void)watch_.release();
    return;
  }
  if (!engine_.may_wait("the destructor").ok())
    detail::abort_with(make_error(
        Code::kFailedPrecondition,
        "trainer '{}' is destroyed in a callback of the engine, or in an actor of its system, which it would wait for",
        options_.name));
  std::unique_lock lock(mutex_);
  closing_ = true;
  const auto wanted = std::exchange(wanted_, {});
  CancelToken update_step = update_step_;
  auto watch = std::move(watch_);
  lock.unlock();
  watch.reset();
  tell(wanted, make_error(Code::kCancelled, "the trainer is being destroyed"));
  all_steps_.cancel();
  update_step.cancel();
  lock.lock();
  changed_.wait(lock, [&] { return in_flight_ == 0; });
  if (claimed_) give_back();
}

Status Trainer::Impl::build(const ModelFn& model, const Dataset& batches, std::source_location where) {
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
  if (!towers_.count.fetches.empty()) {
    TROUPE_ASSIGN(count_, prepare(towers_.count));
  }
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
  // Tasks may have queues of a client's that is dead, with its batches, and the copies of its replicas.
  engine_.reset_container(trainer_container(options_.name));
  for (const auto& copy : towers_.copies) engine_.reset_container(copy->container());
  batches_ = batches;
  watch_tasks();
  return {};
}

Result<RunSummary> Trainer::Impl::run(int64_t updates, const std::function<void(const StepReport&)>& on_step) {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::run"));
  if (updates < 0) return invalid_argument("run: updates must be at least 0, got {}", updates);
  Launches launches;
  Status faults;  // of on_step
  std::unique_lock lock(mutex_);
  TROUPE_RETURN_IF_ERROR(between_runs("run"));
  begin_wait();
  look_after_tasks();
  if (broken_) recover(lock, at_stop());
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
  // When it was due in the runs before it is due in this one: short runs keep snapshots, too.
  next_kept_ = std::min(next_kept_, later(Clock::now(), snapshot_interval(options_.recovery, took_)));
  record_.update(Clock::now());
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
      recover(lock, at_stop());
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
  RunSummary summary{.updates = std::max<int64_t>(done_ - before, 0),
                     .stopped = stopped,
                     .end_of_data = ended_,
                     .losses = std::exchange(losses_, 0),
                     .batches_lost = std::max<int64_t>(lost_ - std::exchange(summed_lost_, lost_), 0)};
  for (const Replica& r : replicas_) summary.input_wait_ns.push_back(r.input_wait_ns);
  return summary;
}

void Trainer::Impl::stop() {
  std::shared_ptr<BatchSource> evaluated;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    evaluated = evaluated_;
  }
  if (evaluated) evaluated->interrupt();
}

TrainerOptions Trainer::Impl::complete(TrainerOptions o) const {
  for (std::string& device : o.devices) device = tasks_.complete(device);
  for (std::string& device : o.variable_devices) device = tasks_.complete(device);
  if (!o.input_device.empty()) o.input_device = tasks_.complete(o.input_device);
  return o;
}

void Trainer::Impl::give_back() {
  (void)engine_.remove_dataset(options_.name).ok();
  engine_.reset_container(trainer_container(options_.name));
  for (const auto& copy : towers_.copies) engine_.reset_container(copy->container());
}

Result<Metrics> Trainer::Impl::evaluate(const Dataset& batches) {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::evaluate"));
  const auto give_up = later(Clock::now(), options_.recovery.wait);
  for (bool again = false; true; again = true) {
    TROUPE_ASSIGN(const std::shared_ptr<BatchSource> source, BatchSource::make(batches));
    std::vector<Prepared> tests;
    {
      std::unique_lock lock(mutex_);
      if (!again) begin_wait();
      look_after_tasks();
      if (broken_) recover(lock, at_stop());
      catch_up(lock, at_stop());
      if (broken_ || !(running_ || idle())) {
        if (!running_) stop_ = false;  // else the run ends by it too
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
    const bool stopped = running_ ? stop_ : std::exchange(stop_, false);  // in on_step the run ends by it too
    if (stopped || !may_be_lost(metrics.error()) || Clock::now() >= give_up) return metrics;
    // What is not there it does without, or waits for.
    if (broken_) continue;  // the watch has told of it
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
Result<Snapshot> Trainer::snapshot(const std::stop_token& hurry) { return impl_->snapshot(hurry); }
Result<Metrics> Trainer::evaluate(const Dataset& batches) { return impl_->evaluate(batches); }
const Graph& Trainer::graph() const { return impl_->graph_; }
Session& Trainer::session() { return *impl_->session_; }
const Variables& Trainer::variables() const { return impl_->variables_; }

}  // namespace troupe::nn
