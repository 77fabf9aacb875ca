// SPDX-License-Identifier: Apache-2.0
// The queues of the fake, and who carries their work out.
#include "gpu/fake/fake_state.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "gpu/fake/take_due.h"

namespace troupe::gpu {

FakeState::FakeState(const FakeOptions& given)
    : options(given), cards_state(static_cast<size_t>(given.cards)), random_(given.seed), random_us_(given.seed) {
  for (int i = 0; i < options.cards; ++i)
    cards.push_back({fmt::format("Fake card {}", i), 9, 0, 4, options.memory, 1e12, 1e11});
}

Error FakeState::lost_error(const char* name, int card) const {
  return make_error(Code::kUnavailable, "{} on card {}: the card is lost: {}", name, card, cards_state[card].lost);
}

Status FakeState::enter(Lock& lock, FakeCall call, const char* name, int card) {
  if (card < 0 || card >= options.cards)
    return make_error(Code::kInternal, "{} on card {}: there are {} cards", name, card, options.cards);
  if (is_lost(card)) {
    while (is_busy(card) && !in_work()) changed_.wait(lock);  // its last work still touches memory
    return lost_error(name, card);
  }
  return faults.empty() ? Status() : enter(lock, call, fmt::format("{} on card {}", name, card));
}

Status FakeState::enter(Lock&, FakeCall call, const std::string& name) {
  const auto due = take_due(faults, [&](const Fault& fault) { return fault.call == call; });
  return due ? Status(make_error(due->code, "{}: failed as the test asked", name)) : Status();
}

FakeState::Queue FakeState::add_queue(Lock&, int card) {
  auto queue = std::make_shared<FakeQueue>();
  queue->card = card;
  queue->name = fmt::format("stream {} (card {})", ++streams_made_, card);
  queue->id = checker.add_stream(queue->name, card);
  queues.push_back(queue);
  return queue;
}

void FakeState::remove_queue(Lock& lock, const Queue& queue) {
  queue->held = false;
  changed_.notify_all();
  while (!queue->pieces.empty() || queue->busy) {
    if (in_work()) {
      queue->removed = true;
      return;
    }
    if (stuck()) {  // it waits for a stream that is held, or for a gate
      const bool held = std::ranges::any_of(queues, [](const Queue& other) { return other->held; });
      for (const Queue& other : queues) other->held = false;
      if (!held) queue->pieces.pop_front();
      changed_.notify_all();
    } else if (!by_hand() || !step(lock)) {
      changed_.wait(lock);
    }
  }
  checker.wait(AccessChecker::kHost, checker.mark(queue->id));
  std::erase(queues, queue);
}

void FakeState::put(Lock& lock, FakeQueue& queue, std::string name, std::function<void()> work,
                    std::vector<Access> accesses, AccessChecker::Reach reach) {
  if (is_lost(queue.card)) {
    lock.unlock();
    work = nullptr;  // may free memory, and so come back here
    lock.lock();
    return;
  }
  constexpr size_t kMostLaunched = 64;  // of those who never call check_launch
  if (options.checked) {
    auto known = checker.put(queue.id, name, accesses, reach);
    if (reach == AccessChecker::Reach::kKernel && queue.launched.size() < kMostLaunched)
      queue.launched.push_back(std::move(known));
  }
  queue.pieces.push_back({std::move(work), std::move(accesses), nullptr, false, std::move(name)});
  changed_.notify_all();
}

FakeState::Mark FakeState::put_record(Lock&, FakeQueue& queue) {
  auto mark = std::make_shared<FakeMark>();
  mark->clock = checker.mark(queue.id);
  queue.pieces.push_back({{}, {}, mark, true, {}});
  changed_.notify_all();
  return mark;
}

void FakeState::put_wait(Lock&, FakeQueue& queue, const Mark& mark) {
  checker.wait(queue.id, mark->clock);
  if (!mark->done) queue.pieces.push_back({{}, {}, mark, false, {}});
  changed_.notify_all();
}

Status FakeState::copy(Lock& lock, FakeQueue& queue, void* to, const void* from, size_t bytes) {
  const bool from_unpinned = checker.is_host(from, bytes) && !is_pinned(from, bytes);
  const bool to_unpinned = checker.is_host(to, bytes) && !is_pinned(to, bytes);
  std::vector<Access> accesses;
  accesses.push_back({to, bytes, true});
  // From memory that is not pinned the host itself copies; it does not learn when the stream has written.
  if (!from_unpinned || to_unpinned) accesses.push_back({from, bytes, false});
  else if (const Access read{from, bytes, false}; options.checked) checker.host("copy", {&read, 1});
  put(
      lock, queue, "copy", [=] { std::memcpy(to, from, bytes); }, std::move(accesses), AccessChecker::Reach::kCopy);
  if (!from_unpinned && !to_unpinned) return {};

  ++unpinned_copies;
  const Mark mark = put_record(lock, queue);
  const Status done = await(lock, mark, "Stream::copy", queue.card);
  if (done.ok() && to_unpinned) checker.wait(AccessChecker::kHost, mark->clock);
  if (!done.ok()) {  // the memory may go when the caller has the error
    const auto at = std::find_if(queue.pieces.begin(), queue.pieces.end(), [&](auto& p) { return p.mark == mark; });
    if (at != queue.pieces.end() && at != queue.pieces.begin()) std::prev(at)->work = [] {};
  }
  return done;
}

bool FakeState::in_work() const {
  return std::find(workers_.begin(), workers_.end(), std::this_thread::get_id()) != workers_.end();
}

bool FakeState::is_busy(int card) const {
  return std::any_of(queues.begin(), queues.end(), [&](const Queue& q) { return q->busy && q->card == card; });
}

bool FakeState::runnable(const FakeQueue& queue) const {
  if (queue.busy || queue.held || queue.pieces.empty()) return false;
  const FakePiece& next = queue.pieces.front();
  return !next.mark || next.records || next.mark->done;
}

bool FakeState::stuck() const {
  return std::none_of(queues.begin(), queues.end(), [&](const Queue& q) { return q->busy || runnable(*q); });
}

bool FakeState::step(Lock& lock, const FakeQueue* only) {
  std::vector<Queue> able;
  for (const Queue& queue : queues)
    if ((!only || queue.get() == only) && runnable(*queue)) able.push_back(queue);
  if (able.empty()) return false;
  carry_out(lock, able[random_() % able.size()]);
  return true;
}

void FakeState::carry_out(Lock& lock, const Queue& queue) {
  FakePiece piece = std::move(queue->pieces.front());
  queue->pieces.pop_front();
  CardState& card = cards_state[queue->card];
  if (piece.work) {
    if (card.lost_after > 0 && --card.lost_after == 0)
      lose(lock, queue->card, fmt::format("the test asked for it at a {} of {}", piece.name, queue->name));
    for (const Access& a : piece.accesses)
      if (!is_lost(queue->card) && a.bytes > 0 && !checker.usable(a.at, a.bytes))
        lose(lock, queue->card, fmt::format("a {} of {} used an illegal address", piece.name, queue->name));
    const bool works = !is_lost(queue->card);
    queue->busy = true;
    workers_.push_back(std::this_thread::get_id());
    lock.unlock();
    std::string thrown;
    try {
      if (works) piece.work();
    } catch (const std::exception& e) {
      thrown = fmt::format("a {} of {} threw: {}", piece.name, queue->name, e.what());
    }
    piece.work = nullptr;  // what it holds may call back when it goes
    lock.lock();
    workers_.erase(std::find(workers_.begin(), workers_.end(), std::this_thread::get_id()));
    queue->busy = false;
    if (!thrown.empty()) lose(lock, queue->card, thrown);
    work_done += works;
    us_ += 1 + static_cast<double>(random_us_() % 16);
  } else if (piece.records) {
    piece.mark->done = true;
    piece.mark->us = us_;
  }
  if (queue->removed && queue->pieces.empty()) std::erase(queues, queue);
  changed_.notify_all();
}

void FakeState::lose(Lock&, int card, std::string why) {
  if (!is_lost(card)) {
    cards_state[card].lost = std::move(why);
    // Nothing of it is done any more, so the host may do as it likes with what its work was to use.
    for (const Queue& queue : queues)
      if (queue->card == card) checker.wait(AccessChecker::kHost, checker.mark(queue->id));
  }
  changed_.notify_all();
}

Status FakeState::await(Lock& lock, const Mark& mark, const char* name, int card) {
  if (in_work()) return make_error(Code::kInternal, "{} on card {}: called by work, which must not wait", name, card);
  for (;;) {
    if (is_lost(card)) {
      if (!is_busy(card)) return lost_error(name, card);
    } else if (mark->done) {
      return {};
    }
    if (by_hand()) {
      if (step(lock)) continue;
      if (stuck()) return make_error(Code::kInternal, "{} on card {}: nothing can be done any more", name, card);
    }
    changed_.wait(lock);
  }
}

void FakeState::drain(Lock& lock) {
  while (!stuck())
    if (!by_hand() || !step(lock)) changed_.wait(lock);
  for (const Queue& queue : queues)
    if (queue->pieces.empty()) checker.wait(AccessChecker::kHost, checker.mark(queue->id));
}

void FakeState::open(Lock&, const Mark& mark) {
  mark->done = true;
  changed_.notify_all();
}

void FakeState::hold(Lock&, FakeQueue& queue, bool held) {
  queue.held = held;
  changed_.notify_all();
}

void FakeState::start_thread(const std::shared_ptr<FakeState>& self) {
  thread_ = std::thread([self] { self->run_thread(); });
}

void FakeState::run_thread() {
  Lock lock(mutex_);
  while (!stopped_)
    if (!step(lock)) changed_.wait(lock);
}

void FakeState::stop_thread() {
  {
    Lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();  // work held the last of the runtime
  else thread_.join();
}

}  // namespace troupe::gpu
