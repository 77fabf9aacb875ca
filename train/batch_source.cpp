// SPDX-License-Identifier: Apache-2.0
#include "train/batch_source.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "troupe/guarded.h"

namespace troupe::nn {
namespace {
constexpr auto kPatience = std::chrono::seconds(1);
}  // namespace

/// Shared with the thread, which may be left behind.
struct BatchSource::State {
  Dataset dataset;
  std::shared_ptr<DatasetIterator> iterator;  // made by the first next(), by whoever calls its next()
  std::mutex mutex;                           // guards the rest, and `iterator` while it is made
  std::condition_variable changed;
  std::optional<Batch> batch;  // that has come
  bool wanted = false;         // one is asked for and has not come
  bool closing = false;
  bool ended = false;  // the thread has
  std::thread thread = {};
  const pid_t process = ::getpid();

  explicit State(Dataset d) : dataset(std::move(d)) {}

  Batch produce() {
    return guarded([&]() -> Batch {
      if (!iterator) {
        TROUPE_ASSIGN(std::unique_ptr<DatasetIterator> made, dataset.iterate());
        if (!made) return make_error(Code::kInternal, "the dataset gave no iterator");
        const std::lock_guard lock(mutex);
        iterator = std::move(made);
        if (closing) return make_error(Code::kCancelled, "the source was closed");
      }
      return iterator->next();
    });
  }
  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closing || (wanted && !batch); });
      if (closing) break;
      lock.unlock();
      Batch made = produce();
      lock.lock();
      batch.emplace(std::move(made));
      changed.notify_all();
    }
    ended = true;
    changed.notify_all();
  }
};

Result<std::unique_ptr<BatchSource>> BatchSource::make(const Dataset& batches) {
  std::unique_ptr<BatchSource> out(new BatchSource(std::make_shared<State>(batches)));
  TROUPE_ASSIGN(const bool may_wait, guarded([&] { return Result<bool>(batches.may_wait()); }));
  if (!may_wait) {
    TROUPE_ASSIGN(out->state_->iterator, guarded([&] { return batches.iterate(); }));
    return out;
  }
  try {
    out->state_->thread = std::thread([state = out->state_] { state->serve(); });
  } catch (const std::system_error& e) {
    return make_error(Code::kResourceExhausted, "no thread for a dataset that may wait: {}", e.what());
  }
  return out;
}

BatchSource::BatchSource(std::shared_ptr<State> state) : state_(std::move(state)) {}

BatchSource::~BatchSource() {
  State& s = *state_;
  if (!s.thread.joinable() || ::getpid() != s.process) return;
  std::unique_lock lock(s.mutex);
  s.closing = true;
  s.changed.notify_all();
  const std::shared_ptr<DatasetIterator> iterator = s.iterator;
  lock.unlock();
  if (iterator) (void)guarded_call([&] { iterator->cancel(); }).ok();
  lock.lock();
  const bool back = s.changed.wait_for(lock, kPatience, [&] { return s.ended; });
  std::thread thread = std::move(s.thread);
  lock.unlock();
  if (back) thread.join();
  else thread.detach();
}

std::optional<BatchSource::Batch> BatchSource::next(const std::function<bool()>& stopped) {
  State& s = *state_;
  if (!s.thread.joinable()) return s.produce();
  std::unique_lock lock(s.mutex);
  s.wanted = true;
  s.changed.notify_all();
  s.changed.wait(lock, [&] { return s.batch || stopped(); });
  if (!s.batch) return {};
  s.wanted = false;
  return std::exchange(s.batch, {});
}

void BatchSource::interrupt() {
  const std::lock_guard lock(state_->mutex);
  state_->changed.notify_all();
}

}  // namespace troupe::nn
