// SPDX-License-Identifier: Apache-2.0
// The loop of a Pipeline: cuts batches into micro-batches and starts their steps, which wait for one another by
// themselves; takes in how they end.
#include <cmath>
#include <limits>

#include "train/gpus.h"
#include "train/pipeline_impl.h"
#include "train/shards.h"
#include "train/tasks.h"

namespace troupe::nn {

Pipeline::Impl::~Impl() {
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

Status Pipeline::Impl::build(const ModelFn& model, const Dataset& batches, std::source_location where) {
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

Status Pipeline::Impl::initialise() {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Pipeline::initialise"));
  TROUPE_RETURN_IF_ERROR(between_runs("initialise"));
  TROUPE_RETURN_IF_ERROR(begin([&] { return assign_initial(); }));
  const std::lock_guard lock(mutex_);
  if (source_) return {};
  first_step_ = 0;  // of an earlier restore()
  kept_ = Kept{};
  return {};
}

Status Pipeline::Impl::assign_initial() {
  // In a session of its own, so that each call draws the same random values.
  Session session(engine_, graph_,
                  {.default_device = options_.devices[0], .soft_placement = any_gpu(options_.devices)});
  return session.run({}, std::vector<Output>{}, built_.initialise).status();
}

Status Pipeline::Impl::restore(const Snapshot& snapshot) {
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

Result<RunSummary> Pipeline::Impl::run(int64_t batches, const std::function<void(const StepReport&)>& on_step) {
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

Status Pipeline::Impl::train(const std::function<void(const StepReport&)>& on_step, RunSummary& summary) {
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

void Pipeline::Impl::train_once(const std::function<void(const StepReport&)>& on_step, RunSummary& summary) {
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

void Pipeline::Impl::drain(const std::function<void(const StepReport&)>& on_step) {
  for (bool more = true; more;) {
    wait_until([&] { return in_flight_ == 0 || !reports_.empty(); });
    report(on_step);
    const std::lock_guard lock(mutex_);
    more = in_flight_ > 0 || !reports_.empty();
  }
}

void Pipeline::Impl::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  interrupt();
}

Status Pipeline::Impl::complete_options() {
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
    return wrong(
        fmt::format("{} stages for {} devices of a replica with {} each", o.scopes.size(), count / in_each, o.chunks));
  return {};
}

Status Pipeline::Impl::claim_name() {
  Graph graph(engine_.ops());
  // In this process, so that it ends with it.
  const std::string own = Tasks(engine_).own();
  const Scope s = Scope(graph).device(own);
  const Output claims = s.op(
      "FIFOQueueV2", {},
      {{"component_types", std::vector{DType::kInt32}}, {"container", claims_container()}, {"shared_name", "claims"}});
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

void Pipeline::Impl::interrupt() {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<BatchSource> source = source_, tests = tests_;
  lock.unlock();
  if (source) source->interrupt();
  if (tests) tests->interrupt();
}

std::optional<BatchSource::Batch> Pipeline::Impl::next_batch(const std::function<void(const StepReport&)>& on_step) {
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

Status Pipeline::Impl::between_runs(const char* what) {
  std::unique_lock lock(mutex_);
  wait_for_others(lock);
  if (!trains()) return {};
  return make_error(Code::kFailedPrecondition, "{}: the pipeline is in a run, which must end first", what);
}

void Pipeline::Impl::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  all_steps_.cancel();
}

void Pipeline::Impl::report(const std::function<void(const StepReport&)>& on_step) {
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

Status Pipeline::Impl::start(const Element& element) {
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

std::vector<Tensor> Pipeline::Impl::numbers(int i) const {
  const int64_t m = options_.micro_batches, number = batches_started_ * m + i;
  const int64_t step = first_step_ + (options_.asynchronous ? number : batches_started_);
  std::vector<Tensor> out = {Tensor::scalar<int64_t>(number), Tensor::scalar<int64_t>(batches_started_),
                             Tensor::scalar<int64_t>(step)};
  for (int64_t c = 0; c < options_.chunks; ++c)
    for (const bool forward : {true, false})
      out.push_back(Tensor::scalar<int64_t>(passes_.number(number / options_.replicas, c, forward)));
  return out;
}

void Pipeline::Impl::done(int64_t number, int64_t rows, RunResult& result) {
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
        error_ =
            invalid_argument("pipeline '{}': the loss is {} at step {}", options_.name, loss, first_step_ + updates());
    } else if (!error_) {
      error_ = result.error();
    }
    cancel = error_.has_value();
    if (--batch.left == 0) {
      if (!error_) {
        ++batches_done_;
        record_.update(Clock::now());
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
