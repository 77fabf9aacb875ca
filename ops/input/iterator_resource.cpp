// SPDX-License-Identifier: Apache-2.0
#include "ops/input/iterator_resource.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "ops/parts/resource_kernel.h"
#include "troupe/guarded.h"

namespace troupe {

std::string iterator_key(const std::string& name) {
  ResourceHandle handle;
  handle.type = "iterator";
  handle.name = name;
  return handle.host_key();
}

/// One iterator, its elements that are ready, and what the host wants of it. Shared by the resource and a job.
class IteratorResource::Producer {
 public:
  using Answer = Result<std::vector<Tensor>>;

  /// `before` has the iterator that this one replaces: it stays until there is a new one, so that a source with
  /// somebody at its other end is never without a reader.
  Producer(const Source& source, std::function<void()> wake, std::shared_ptr<Producer> before)
      : dataset_(source.dataset), ahead_(source.ahead), wake_(std::move(wake)), before_(std::move(before)) {}

  // -- by the host ----------------------------------------------------------------------------------------------------

  /// Answers as many of those that wait as there is something for; true: a job is to be started for the rest.
  bool serve(std::deque<Reply>& waiting) {
    std::vector<std::pair<Reply, Answer>> answers;
    bool start = false;
    {
      const std::lock_guard lock(mutex_);
      while (!waiting.empty() && (!ready_.empty() || end_)) {
        if (ready_.empty()) {
          answers.emplace_back(std::move(waiting.front()), *end_);
        } else {
          answers.emplace_back(std::move(waiting.front()), std::move(ready_.front()));
          ready_.pop_front();
        }
        waiting.pop_front();
      }
      waiting_ = static_cast<int64_t>(waiting.size());
      woken_ = false;
      // To wake a thread costs more than many an element: not for each, but once more than half of them are gone.
      start = !running_ && wants_more() && (waiting_ > 0 || 2 * std::ssize(ready_) < *ahead_);
    }
    for (auto& [reply, answer] : answers) reply(std::move(answer));
    return start;
  }
  bool wants_work() const {
    const std::lock_guard lock(mutex_);
    return !running_ && wants_more();
  }
  /// Before a job is started; after it, when it could not be.
  void set_running(bool running) {
    const std::lock_guard lock(mutex_);
    running_ = running;
  }
  /// From now on elements are dropped, and next() is asked to return.
  void stop() {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    ready_.clear();
    const std::shared_ptr<DatasetIterator> iterator = iterator_;
    lock.unlock();
    if (iterator) (void)guarded_call([&] { iterator->cancel(); }).ok();
  }
  /// The newest producer with an iterator: this or the one before.
  static std::shared_ptr<Producer> with_iterator(const std::shared_ptr<Producer>& self) {
    const std::lock_guard lock(self->mutex_);
    return self->iterator_ || self->running_ || !self->before_ ? self : self->before_;
  }

  // -- by the job, or by the host where nothing waits -----------------------------------------------------------------

  /// Produces until nobody wants more.
  void run() {
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        running_ = wants_more();
        if (!running_) return;
      }
      if (produce()) wake_();
    }
  }
  /// Produces one element, or the end; true: the host is to be told.
  bool produce() {
    Answer answer = next();
    const std::lock_guard lock(mutex_);
    if (stopped_) return false;
    if (answer.ok() || !end_) ready_.push_back(std::move(answer));
    return waiting_ > 0 && !std::exchange(woken_, true);
  }

 private:
  bool wants_more() const { return !stopped_ && !end_ && std::ssize(ready_) - waiting_ < *ahead_; }

  Answer end_with(Error error) {
    const std::lock_guard lock(mutex_);
    end_ = error;
    return error;
  }

  Answer next() {
    if (!iterator_) {
      auto made = guarded([&] { return dataset_.iterate(); });
      if (made.ok() && !*made) made = make_error(Code::kInternal, "the dataset gave no iterator");
      if (!made.ok()) return end_with(std::move(made.error()));  // restart() tries again
      std::shared_ptr<Producer> before;  // its iterator, which is the user's, goes without the lock
      const std::lock_guard lock(mutex_);
      iterator_ = std::move(*made);
      before = std::move(before_);
      if (stopped_) return make_error(Code::kCancelled, "the iterator was dropped");
    }
    Result<std::optional<Element>> element = guarded([&] { return iterator_->next(); });
    if (!element.ok()) return std::move(element.error());
    if (*element) {
      for (const Tensor& t : **element) t.freeze();  // a function of the user's may have kept it
      return std::move(**element);
    }
    return end_with(make_error(Code::kOutOfRange, "end of the dataset"));
  }

  const Dataset dataset_;
  const std::shared_ptr<const std::atomic<int64_t>> ahead_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;                   // guards the rest
  std::shared_ptr<DatasetIterator> iterator_;  // set once, by the job, which alone calls next()
  std::shared_ptr<Producer> before_;
  std::deque<Answer> ready_;
  std::optional<Error> end_;  // once all elements are in ready_: what comes behind them
  int64_t waiting_ = 0;       // that ask and have nothing
  bool woken_ = false;        // the host has been told that there is something
  bool running_ = false;      // a job is at work
  bool stopped_ = false;
};

namespace {

/// A dataset of a graph, with who calls its functions.
class BoundStage final : public Dataset::Stage {
 public:
  BoundStage(StagePtr stage, std::shared_ptr<FunctionCaller> functions, std::shared_ptr<std::atomic<int64_t>> ahead)
      : stage_(std::move(stage)), functions_(std::move(functions)), ahead_(std::move(ahead)) {}
  Result<std::unique_ptr<DatasetIterator>> iterate() const override {
    const auto* ours = dynamic_cast<const FlowStage*>(stage_.get());
    if (!ours) return stage_->iterate();
    Pass pass;
    pass.functions = functions_;
    pass.ahead = ahead_;
    return ours->iterate(std::move(pass));
  }
  std::vector<DType> dtypes() const override { return stage_->dtypes(); }
  std::vector<PartialShape> shapes() const override { return stage_->shapes(); }
  int64_t size() const override { return stage_->size(); }
  bool may_wait() const override { return stage_->may_wait(); }
  bool repeatable() const override { return stage_->repeatable(); }

 private:
  const StagePtr stage_;
  const std::shared_ptr<FunctionCaller> functions_;
  const std::shared_ptr<std::atomic<int64_t>> ahead_;
};

}  // namespace

IteratorResource::Source IteratorResource::bind(StagePtr stage, int64_t ahead) {
  auto wanted = std::make_shared<std::atomic<int64_t>>(ahead);
  const bool may_wait = stage->may_wait();
  return {Dataset(std::make_shared<BoundStage>(std::move(stage), host_->functions(), wanted)), wanted, may_wait};
}

IteratorResource::IteratorResource(Dataset dataset, Begin begin) : begun_(begin == Begin::kAtOnce) {
  const bool may_wait = dataset.may_wait();
  auto ahead = std::make_shared<const std::atomic<int64_t>>(dataset.prefetch_depth());
  source_ = Source{std::move(dataset), std::move(ahead), may_wait};
  producer_ = std::make_shared<Producer>(*source_, nullptr, nullptr);
}

IteratorResource::IteratorResource(std::string name) : name_(std::move(name)) {}

IteratorResource::IteratorResource(StagePtr stage, int64_t ahead) : unbound_(std::move(stage)), ahead_(ahead) {}

IteratorResource::~IteratorResource() { let_go(std::move(producer_)); }

void IteratorResource::attach(ResourceHost& host) {
  host_ = &host;
  HostedResource::attach(host);
  if (unbound_) source_ = bind(std::exchange(unbound_, nullptr), ahead_);
  if (!source_) return;
  producer_ = std::make_shared<Producer>(*source_, host.waker(), nullptr);
  serve();
}

void IteratorResource::set_dataset(StagePtr stage, int64_t ahead) {
  clear();
  source_ = bind(std::move(stage), ahead);
  producer_ = std::make_shared<Producer>(*source_, host_->waker(), nullptr);
  serve();
}

void IteratorResource::clear() {
  let_go(std::exchange(producer_, nullptr));
  source_.reset();
}

void IteratorResource::get_next(Reply reply) {
  begun_ = true;
  waiting_.push_back(std::move(reply));
  serve();
}

void IteratorResource::serve() {
  if (!producer_) {
    for (Reply& reply : std::exchange(waiting_, {}))
      reply(make_error(Code::kFailedPrecondition,
                       "the iterator '{}' has no dataset: its initializer, a MakeIterator, must run first", name_));
    return;
  }
  if (!begun_ || !producer_->serve(waiting_) || !source_->may_wait || !host_) return;
  producer_->set_running(true);
  const Status status = host_->start_blocking([producer = producer_] { producer->run(); });
  if (status.ok()) return;
  producer_->set_running(false);
  for (Reply& reply : std::exchange(waiting_, {})) reply(status.error());
}

void IteratorResource::cancel(uint64_t requester, int64_t step) {
  std::vector<Reply> cancelled;
  std::erase_if(waiting_, [&](Reply& reply) {
    if (reply.tag().requester != requester || reply.tag().step != step) return false;
    cancelled.push_back(std::move(reply));
    return true;
  });
  for (Reply& reply : cancelled) reply(make_error(Code::kCancelled, "step {} was cancelled", step));
  serve();
}

void IteratorResource::restart() {
  if (!producer_) return;
  const std::shared_ptr<Producer> before = Producer::with_iterator(producer_);
  producer_->stop();
  producer_ = std::make_shared<Producer>(*source_, host_ ? host_->waker() : nullptr, before);
  serve();
}

bool IteratorResource::wants_work() const {
  return producer_ && begun_ && !source_->may_wait && producer_->wants_work();
}

void IteratorResource::work() {
  if (!wants_work()) return;
  (void)producer_->produce();
  serve();
}

void IteratorResource::let_go(std::shared_ptr<Producer> producer) {
  if (!producer) return;
  producer->stop();
  if (host_ && source_->may_wait) (void)host_->start_blocking([gone = std::move(producer)] {}).ok();
}

namespace {
/// The kind of their host, of which an engine has one.
constexpr const char* kAnonymousType = "anonymous iterator";
}  // namespace

AnonymousIterator::AnonymousIterator()
    : core(new IteratorResource("without a name"), [](IteratorResource* gone) {
        gone->detach();  // on whatever thread had the last handle
        delete gone;
      }) {
  type = kAnonymousType;
  input = true;
  factory = []() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(std::make_unique<AnonymousIterators>());
  };
}

AnonymousIterators::AnonymousIterators()
    : number_([] {
        static std::atomic<uint64_t> last = 0;
        return ++last;
      }()) {}

Result<IteratorResource*> AnonymousIterators::use(const AnonymousIterator& handle) {
  IteratorResource& core = *handle.core;
  uint64_t of = 0;
  if (!core.of_.compare_exchange_strong(of, number_)) {
    if (of == number_) return &core;
    return make_error(Code::kFailedPrecondition,
                      "the iterator without a name is of another engine, or has gone since the default container was "
                      "reset");
  }
  core.attach(host());
  std::erase_if(known_, [](const auto& known) { return known.expired(); });
  known_.push_back(handle.core);
  return &core;
}

void AnonymousIterators::cancel(uint64_t requester, int64_t step) {
  for (const auto& known : known_)
    if (const auto core = known.lock()) core->cancel(requester, step);
}

void AnonymousIterators::woken() {
  for (const auto& known : known_)
    if (const auto core = known.lock()) core->woken();
}

bool AnonymousIterators::wants_work() const {
  return std::ranges::any_of(known_, [](const auto& known) {
    const auto core = known.lock();
    return core && core->wants_work();
  });
}

void AnonymousIterators::work() {
  for (const auto& known : known_)
    if (const auto core = known.lock()) core->work();
}

IteratorResource* iterator_of(Resource& resource, ResourceRequest& request) {
  auto* shared = dynamic_cast<AnonymousIterators*>(&resource);
  if (!shared) return core_as<IteratorResource>(resource, request, "dataset iterator");
  const ResourceHandle* handle = handle_at(request, 0);
  if (!handle || handle->type != kAnonymousType) {
    request.reply(invalid_argument("the op needs a dataset iterator"));
    return nullptr;
  }
  auto core = shared->use(*static_cast<const AnonymousIterator*>(handle));
  if (core.ok()) return *core;
  request.reply(std::move(core.error()));
  return nullptr;
}

}  // namespace troupe
