// SPDX-License-Identifier: Apache-2.0
#include "troupe/dataset_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/engine_thread.h"
#include "io/dataset_stages.h"

namespace troupe {

/// What handles, stages and iterators share.
class DatasetQueue::State {
 public:
  using Time = std::chrono::steady_clock::time_point;

  State(std::vector<DType> dtypes, std::vector<PartialShape> shapes, int64_t capacity)
      : dtypes(std::move(dtypes)), shapes(std::move(shapes)), capacity_(static_cast<size_t>(capacity)) {}

  const std::vector<DType> dtypes;
  const std::vector<PartialShape> shapes;

  /// Waits for room until `until`; false: there was none.
  Result<bool> push(Element element, Time until) {
    TROUPE_RETURN_IF_ERROR(check_components(element, dtypes, shapes, "push"));
    for (const Tensor& t : element) t.freeze();
    std::unique_lock lock(mutex_);
    const auto may_go_on = [&] { return closed_ || abandoned() || elements_.size() < capacity_; };
    if (until == Time::max()) changed_.wait(lock, may_go_on);
    else if (!changed_.wait_until(lock, until, may_go_on)) return false;
    if (closed_) return make_error(Code::kFailedPrecondition, "push: the queue of the dataset is closed");
    if (abandoned()) return make_error(Code::kCancelled, "push: no iterator reads the queue of the dataset any more");
    elements_.push_back(std::move(element));
    changed_.notify_all();
    return true;
  }

  void close(std::optional<Error> error) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }

  /// `told` belongs to the reader: whether it has had the error.
  Result<std::optional<Element>> next(const std::stop_token& stop, bool& told) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] { return closed_ || !elements_.empty(); });
    // Takes nothing then: another iterator may want it.
    if (stop.stop_requested()) return make_error(Code::kCancelled, "the iterator was cancelled");
    if (elements_.empty()) {
      if (error_ && !std::exchange(told, true)) return *error_;
      return std::optional<Element>();
    }
    std::optional<Element> out = std::move(elements_.front());
    elements_.pop_front();
    changed_.notify_all();
    return out;
  }

  void add_reader() {
    const std::lock_guard lock(mutex_);
    ++readers_;
    had_readers_ = true;
  }
  void remove_reader() {
    const std::lock_guard lock(mutex_);
    --readers_;
    changed_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  int64_t size() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(elements_.size());
  }

 private:
  bool abandoned() const { return had_readers_ && readers_ == 0; }

  const size_t capacity_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable_any changed_;
  std::deque<Element> elements_;
  std::optional<Error> error_;
  int64_t readers_ = 0;
  bool had_readers_ = false;
  bool closed_ = false;
};

namespace {

/// An iterator that reads the queue: one for all its passes, so that it is there between two of them too.
class QueueReader {
 public:
  explicit QueueReader(std::shared_ptr<DatasetQueue::State> queue) : queue_(std::move(queue)) { queue_->add_reader(); }
  QueueReader(const QueueReader&) = delete;
  ~QueueReader() { queue_->remove_reader(); }
  Result<std::optional<Element>> next(const std::stop_token& stop) { return queue_->next(stop, told_); }

 private:
  const std::shared_ptr<DatasetQueue::State> queue_;
  bool told_ = false;
};

class QueueFlow final : public Flow<Element> {
 public:
  QueueFlow(std::shared_ptr<QueueReader> reader, std::stop_token stop)
      : reader_(std::move(reader)), stop_(std::move(stop)) {}
  Result<std::optional<Element>> next() override { return reader_->next(stop_); }

 private:
  const std::shared_ptr<QueueReader> reader_;
  const std::stop_token stop_;
};

class QueueStage final : public FlowStage {
 public:
  explicit QueueStage(std::shared_ptr<DatasetQueue::State> queue) : queue_(std::move(queue)) {}
  Result<FlowPtr<Element>> flow(const Pass& pass) const override {
    std::shared_ptr<void>& kept = (*pass.kept)[queue_.get()];
    if (!kept) kept = std::make_shared<QueueReader>(queue_);
    return FlowPtr<Element>(new QueueFlow(std::static_pointer_cast<QueueReader>(kept), pass.stop));
  }
  std::vector<DType> dtypes() const override { return queue_->dtypes; }
  std::vector<PartialShape> shapes() const override { return queue_->shapes; }
  bool repeatable() const override { return false; }

 private:
  const std::shared_ptr<DatasetQueue::State> queue_;
};

}  // namespace

DatasetQueue::DatasetQueue(std::shared_ptr<State> state)
    : state_(std::move(state)), closer_(nullptr, [state = state_](void*) { state->close({}); }) {}

Result<DatasetQueue> DatasetQueue::create(std::vector<DType> dtypes, std::vector<PartialShape> shapes,
                                          int64_t capacity) {
  if (dtypes.empty()) return invalid_argument("the queue of a dataset needs the dtypes of its components");
  if (shapes.empty()) shapes.resize(dtypes.size());
  if (shapes.size() != dtypes.size())
    return invalid_argument("the queue of a dataset has {} dtypes, but {} shapes", dtypes.size(), shapes.size());
  if (capacity < 1) return invalid_argument("the capacity of a dataset's queue must be at least 1, got {}", capacity);
  return DatasetQueue(std::make_shared<State>(std::move(dtypes), std::move(shapes), capacity));
}

Status DatasetQueue::push(Element element, std::chrono::nanoseconds deadline) const {
  if (deadline.count() < 0) return make_error(Code::kDeadlineExceeded, "push: the deadline has passed already");
  if (EngineThread::is_any()) {
    TROUPE_ASSIGN(const bool pushed, try_push(std::move(element)));
    if (pushed) return {};
    return make_error(Code::kFailedPrecondition,
                      "push would wait for room in the queue of the dataset, but was called by a callback, kernel or "
                      "actor of an engine; call try_push");
  }
  const auto now = std::chrono::steady_clock::now();
  const bool endless = deadline > State::Time::max() - now;
  TROUPE_ASSIGN(const bool pushed, state_->push(std::move(element), endless ? State::Time::max() : now + deadline));
  if (!pushed) return make_error(Code::kDeadlineExceeded, "push: the queue of the dataset is still full");
  return {};
}

Result<bool> DatasetQueue::try_push(Element element) const { return state_->push(std::move(element), State::Time()); }

void DatasetQueue::close() const { state_->close({}); }
void DatasetQueue::fail(Error error) const { state_->close(std::move(error)); }
bool DatasetQueue::closed() const { return state_->closed(); }
int64_t DatasetQueue::size() const { return state_->size(); }

Dataset Dataset::from_queue(const DatasetQueue& queue) { return Dataset(std::make_shared<QueueStage>(queue.state_)); }

}  // namespace troupe
