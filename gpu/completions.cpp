// SPDX-License-Identifier: Apache-2.0
// The queues of watched events, one for each stream, and the threads that look after them.
#include "gpu/completions.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/event_pool.h"

namespace troupe::gpu {

struct Completions::Watched {
  std::unique_ptr<Event> event;  // null: `failed` says why
  Status failed;
  std::function<void(Status)> then;
};

struct Completions::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Watched> watched;  // who looks after the queue removes from the front, others add at the end
  bool ended = false;           // nobody looks after it any more
  std::thread thread;
};

struct Completions::Shared {
  Shared(std::shared_ptr<Runtime> r, CompletionsOptions o)
      : runtime(std::move(r)), options(o), events(*runtime, options.card) {}

  Watched watch(Stream& stream, std::function<void(Status)> then) {
    auto event = events.take();
    Status recorded = event.ok() ? stream.record(**event) : event.status();
    if (!recorded.ok()) return {nullptr, std::move(recorded), std::move(then)};
    return {std::move(*event), {}, std::move(then)};
  }

  /// Whether the work is done, or how it failed; an error that leaves this open counts as not yet.
  static bool passed(const Watched& watched, Status& status) {
    if (!watched.event) {
      status = watched.failed;
      return true;
    }
    const auto done = watched.event->done();
    if (done.ok()) return *done;
    status = done.status();
    return status.error().code == Code::kUnavailable;
  }

  Status await(const Watched& watched) const {
    const auto end = std::chrono::steady_clock::now() + options.spin;
    do {
      Status status;
      if (passed(watched, status)) return status;
    } while (std::chrono::steady_clock::now() < end);
    return watched.event->wait();
  }

  void tell(Watched watched, Status status) {
    if (watched.event) events.give_back(std::move(watched.event));
    if (status.ok() && stopping) status = make_error(Code::kCancelled, "card {} is not watched any more", options.card);
    watched.then(std::move(status));
  }

  void look_after(Queue& queue) {
    std::unique_lock lock(queue.mutex);
    for (;;) {
      queue.changed.wait(lock, [&] { return stopping || !queue.watched.empty(); });
      if (queue.watched.empty()) break;
      const Watched& front = queue.watched.front();
      lock.unlock();
      Status status = await(front);
      tell(pop(queue), std::move(status));
      lock.lock();
    }
    queue.ended = true;
  }

  static Watched pop(Queue& queue) {
    std::lock_guard guard(queue.mutex);
    Watched front = std::move(queue.watched.front());
    queue.watched.pop_front();
    return front;
  }

  std::vector<std::shared_ptr<Queue>> all() {
    std::lock_guard guard(mutex);
    std::vector<std::shared_ptr<Queue>> out;
    for (const auto& [stream, queue] : queues) out.push_back(queue);
    return out;
  }

  const std::shared_ptr<Runtime> runtime;
  const CompletionsOptions options;
  EventPool events;
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> calls{0};
  std::mutex mutex;
  std::vector<std::pair<const Stream*, std::shared_ptr<Queue>>> queues;  // few; in the order of their first calls
};

Completions::Completions(std::shared_ptr<Runtime> runtime, CompletionsOptions options)
    : shared_(std::make_shared<Shared>(std::move(runtime), options)) {}

Completions::~Completions() {
  shared_->stopping = true;
  for (const auto& queue : shared_->all()) {
    {
      std::lock_guard guard(queue->mutex);
      queue->changed.notify_all();
    }
    if (!queue->thread.joinable()) {  // passive, or it ended by what another's function did
      shared_->look_after(*queue);
    } else if (queue->thread.get_id() == std::this_thread::get_id()) {
      queue->thread.detach();  // it goes on with what is left when this function returns
    } else {
      queue->thread.join();
    }
  }
}

std::shared_ptr<Completions::Queue> Completions::queue_of(Stream& stream) {
  const std::shared_ptr<Shared> shared = shared_;
  std::lock_guard guard(shared->mutex);
  for (const auto& [of, known] : shared->queues)
    if (of == &stream) return known;
  auto queue = std::make_shared<Queue>();
  shared->queues.emplace_back(&stream, queue);
  if (shared->stopping) {
    queue->ended = true;
  } else if (!shared->options.passive) {
    try {
      queue->thread = std::thread([shared, queue] { shared->look_after(*queue); });
    } catch (...) {
      shared->queues.pop_back();  // nobody would look after it
      throw;
    }
  }
  return queue;
}

Status Completions::look_after(Stream& stream) {
  try {
    queue_of(stream);
  } catch (const std::system_error& e) {
    return make_error(Code::kResourceExhausted, "no thread to watch card {}: {}", shared_->options.card,
                      e.code().message());
  }
  return {};
}

uint64_t Completions::watch(Stream& stream, std::function<void(Status)> then) {
  const std::shared_ptr<Shared> shared = shared_;
  const std::shared_ptr<Queue> queue = queue_of(stream);
  const uint64_t number = ++shared->calls;
  std::unique_lock lock(queue->mutex);
  Watched watched = shared->watch(stream, std::move(then));  // in the order in which the queue has them
  if (queue->ended) {  // a function of another stream watches this one during the destruction
    lock.unlock();
    Status status = shared->await(watched);
    shared->tell(std::move(watched), std::move(status));
    return number;
  }
  queue->watched.push_back(std::move(watched));
  queue->changed.notify_all();
  return number;
}

int Completions::poll() {
  int told = 0;
  const std::shared_ptr<Shared> shared = shared_;  // a function may destroy this
  for (const auto& queue : shared->all()) {
    for (;;) {
      const Watched* front = nullptr;
      {
        std::lock_guard guard(queue->mutex);
        if (queue->watched.empty()) break;
        front = &queue->watched.front();
      }
      Status status;
      if (!Shared::passed(*front, status)) break;
      shared->tell(Shared::pop(*queue), std::move(status));
      ++told;
    }
  }
  return told;
}

}  // namespace troupe::gpu
