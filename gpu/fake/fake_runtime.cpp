// SPDX-License-Identifier: Apache-2.0
// Streams, events and calls of the fake: each takes the lock, checks the card, and puts something into a queue.
#include "gpu/fake/fake_runtime.h"

#include <cstring>

#include "gpu/fake/fake_state.h"

namespace troupe::gpu {
namespace {

class FakeEvent final : public Event {
 public:
  FakeEvent(std::shared_ptr<FakeState> state, int card, bool timed)
      : state_(std::move(state)), card_(card), timed_(timed) {}
  ~FakeEvent() override {
    auto lock = state_->lock();
    state_->timed_events -= timed_;
  }

  Result<bool> done() override {
    auto lock = state_->lock();
    if (state_->is_lost(card_) && state_->is_busy(card_)) return false;  // its last work still touches memory
    TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kEventDone, "Event::done", card_));
    if (!mark_) return true;
    if (mark_->done) state_->checker.wait(AccessChecker::kHost, mark_->clock);
    return mark_->done;
  }

  Status wait() override {
    auto lock = state_->lock();
    const FakeState::Mark mark = mark_;  // it may be recorded again meanwhile
    if (!state_->is_lost(card_))
      TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kEventWait, "Event::wait", card_));
    if (!mark) return state_->is_lost(card_) ? Status(state_->lost_error("Event::wait", card_)) : Status();
    TROUPE_RETURN_IF_ERROR(state_->await(lock, mark, "Event::wait", card_));
    state_->checker.wait(AccessChecker::kHost, mark->clock);
    return {};
  }

  Result<double> us_since(const Event& earlier) const override {
    auto lock = state_->lock();
    const auto& other = static_cast<const FakeEvent&>(earlier);
    if (state_->is_lost(card_)) return state_->lost_error("Event::us_since", card_);
    if (!timed_ || !other.timed_)
      return make_error(Code::kInternal, "Event::us_since on card {}: an event was not made timed", card_);
    if (!mark_ || !mark_->done || !other.mark_ || !other.mark_->done || card_ != other.card_)
      return make_error(Code::kInternal, "Event::us_since on card {}: an event is not done, or of another card", card_);
    return mark_->us - other.mark_->us;
  }

  // Of a gate, with the state's lock:
  void close() { mark_ = std::make_shared<FakeMark>(); }
  const FakeState::Mark& mark() const { return mark_; }

 private:
  friend class FakeStream;
  const std::shared_ptr<FakeState> state_;
  const int card_;
  const bool timed_;
  FakeState::Mark mark_;  // with the state's lock
};

class FakeStream final : public Stream {
 public:
  FakeStream(std::shared_ptr<FakeState> state, FakeState::Queue queue)
      : state_(std::move(state)), queue_(std::move(queue)) {}
  ~FakeStream() override {
    auto lock = state_->lock();
    state_->remove_queue(lock, queue_);
  }

  int card() const override { return queue_->card; }
  void* native() const override { return nullptr; }
  FakeQueue& queue() const { return *queue_; }

  Status record(Event& event) override {
    auto& to = static_cast<FakeEvent&>(event);
    auto lock = state_->lock();
    TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kRecord, "Stream::record", card()));
    if (to.card_ != card())
      return make_error(Code::kInternal, "Stream::record on card {}: the event is of card {}", card(), to.card_);
    state_->timed_records += to.timed_;
    to.mark_ = state_->put_record(lock, *queue_);
    return {};
  }

  Status wait(const Event& event) override {
    auto lock = state_->lock();
    TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kWait, "Stream::wait", card()));
    if (const FakeState::Mark& mark = static_cast<const FakeEvent&>(event).mark_) state_->put_wait(lock, *queue_, mark);
    return {};
  }

  Status copy(void* to, const void* from, size_t bytes) override {
    auto lock = state_->lock();
    TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kCopy, "Stream::copy", card()));
    return bytes == 0 ? Status() : state_->copy(lock, *queue_, to, from, bytes);
  }

  Status fill(void* at, int byte, size_t bytes) override {
    auto lock = state_->lock();
    TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kFill, "Stream::fill", card()));
    if (bytes > 0)
      state_->put(
          lock, *queue_, "fill", [=] { std::memset(at, byte, bytes); }, {{at, bytes, true}},
          AccessChecker::Reach::kCopy);
    return {};
  }

  Status check_launch(const char* kernel) override {
    auto lock = state_->lock();
    for (const auto& work : queue_->launched) work->name = kernel;
    queue_->launched.clear();
    const Status refused = std::exchange(queue_->refused, {});
    if (state_->is_lost(card())) return state_->lost_error(kernel, card());
    if (!refused.ok())
      return make_error(refused.error().code, "{} on card {}: {}", kernel, card(), refused.error().message);
    return {};
  }

  void uses(std::span<const Access> accesses) override {
    auto lock = state_->lock();
    if (accesses.empty()) queue_->told.erase(std::this_thread::get_id());
    else queue_->told[std::this_thread::get_id()].assign(accesses.begin(), accesses.end());
  }

  void enqueue(std::function<void()> work) override {
    auto lock = state_->lock();
    if (Status may = state_->enter(lock, FakeCall::kLaunch, "Stream::enqueue", card()); !may.ok()) {
      if (queue_->refused.ok()) queue_->refused = std::move(may);
      lock.unlock();  // before `work` goes
      return;
    }
    const auto told = queue_->told.find(std::this_thread::get_id());
    state_->put(lock, *queue_, "kernel", std::move(work),
                told == queue_->told.end() ? std::vector<Access>() : told->second, AccessChecker::Reach::kKernel);
  }

 private:
  const std::shared_ptr<FakeState> state_;
  const FakeState::Queue queue_;
};

}  // namespace

FakeRuntime::FakeRuntime(FakeOptions options) : state_(std::make_shared<FakeState>(options)) {
  if (!options.by_hand) state_->start_thread(state_);
}

FakeRuntime::~FakeRuntime() { state_->stop_thread(); }

std::span<const Card> FakeRuntime::cards() const { return state_->cards; }

Result<std::unique_ptr<Stream>> FakeRuntime::make_stream(int card, bool) {
  auto lock = state_->lock();
  TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kMakeStream, "Runtime::make_stream", card));
  return std::unique_ptr<Stream>(new FakeStream(state_, state_->add_queue(lock, card)));
}

Result<std::unique_ptr<Event>> FakeRuntime::make_event(int card, bool timed) {
  auto lock = state_->lock();
  TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kMakeEvent, "Runtime::make_event", card));
  state_->timed_events += timed;
  return std::unique_ptr<Event>(new FakeEvent(state_, card, timed));
}

Result<bool> FakeRuntime::connect(int card, int peer) {
  auto lock = state_->lock();
  TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kConnect, "Runtime::connect", card));
  if (peer < 0 || peer >= state_->options.cards || peer == card)
    return make_error(Code::kInternal, "Runtime::connect on card {}: {} cannot be its peer", card, peer);
  if (state_->options.peers) state_->checker.connect(card, peer);
  return state_->options.peers;
}

Result<void*> FakeRuntime::reserve(int card, size_t bytes) {
  auto lock = state_->lock();
  TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kReserve, "Runtime::reserve", card));
  return state_->reserve(lock, card, bytes);
}

void FakeRuntime::unreserve(void* at, size_t bytes) {
  auto lock = state_->lock();
  state_->unreserve(lock, at, bytes);
}

Status FakeRuntime::map(int card, void* at, size_t bytes) {
  auto lock = state_->lock();
  TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kMap, "Runtime::map", card));
  return state_->map(lock, card, at, bytes);
}

void FakeRuntime::unmap(void* at, size_t bytes) {
  auto lock = state_->lock();
  state_->unmap(lock, at, bytes);
}

size_t FakeRuntime::granularity(int) const { return state_->options.granularity; }

Result<int64_t> FakeRuntime::free_memory(int card) const {
  auto lock = state_->lock();
  TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kFreeMemory, "Runtime::free_memory", card));
  return state_->options.memory - state_->cards_state[card].mapped;
}

Result<void*> FakeRuntime::pin(size_t bytes) {
  auto lock = state_->lock();
  TROUPE_RETURN_IF_ERROR(state_->enter(lock, FakeCall::kPin, "Runtime::pin"));
  return state_->pin(lock, bytes);
}

void FakeRuntime::unpin(void* at, size_t bytes) {
  auto lock = state_->lock();
  state_->unpin(lock, at, bytes);
}

bool FakeRuntime::step() {
  auto lock = state_->lock();
  return state_->step(lock);
}

bool FakeRuntime::step(const Stream& stream) {
  auto lock = state_->lock();
  return state_->step(lock, &static_cast<const FakeStream&>(stream).queue());
}

void FakeRuntime::drain() {
  auto lock = state_->lock();
  state_->drain(lock);
}

void FakeRuntime::hold(const Stream& stream, bool held) {
  auto lock = state_->lock();
  state_->hold(lock, static_cast<const FakeStream&>(stream).queue(), held);
}

void FakeRuntime::fail(FakeCall call, int64_t n, Code code) {
  auto lock = state_->lock();
  state_->faults.push_back({call, n, code});
}

void FakeRuntime::lose(int card, int64_t n) {
  auto lock = state_->lock();
  if (n > 0) state_->cards_state[card].lost_after = n;
  else state_->lose(lock, card, "the test asked for it");
}

bool FakeRuntime::is_lost(int card) const {
  auto lock = state_->lock();
  return state_->is_lost(card);
}

Result<std::unique_ptr<Event>> FakeRuntime::make_gate(int card) {
  auto lock = state_->lock();
  if (state_->is_lost(card)) return state_->lost_error("FakeRuntime::make_gate", card);
  auto gate = std::make_unique<FakeEvent>(state_, card, false);
  gate->close();
  return std::unique_ptr<Event>(std::move(gate));
}

void FakeRuntime::open(Event& gate) {
  auto lock = state_->lock();
  state_->open(lock, static_cast<FakeEvent&>(gate).mark());
}

void FakeRuntime::host_uses(std::span<const Access> accesses, std::string_view what) {
  auto lock = state_->lock();
  if (state_->options.checked) state_->checker.host(std::string(what), accesses);
}

void FakeRuntime::poison(void* at, size_t bytes, Stream& stream) {
  auto lock = state_->lock();
  state_->put(
      lock, static_cast<FakeStream&>(stream).queue(), "poison", [=] { std::memset(at, 0xff, bytes); },
      {{at, bytes, true}}, AccessChecker::Reach::kCopy);
}

std::vector<std::string> FakeRuntime::faults() const {
  auto lock = state_->lock();
  return state_->checker.faults();
}

int64_t FakeRuntime::unpinned_copies() const {
  auto lock = state_->lock();
  return state_->unpinned_copies;
}

int64_t FakeRuntime::work_done() const {
  auto lock = state_->lock();
  return state_->work_done;
}

int64_t FakeRuntime::pending() const {
  auto lock = state_->lock();
  int64_t out = 0;
  for (const FakeState::Queue& queue : state_->queues) out += static_cast<int64_t>(queue->pieces.size()) + queue->busy;
  return out;
}

int64_t FakeRuntime::timed_events() const {
  auto lock = state_->lock();
  return state_->timed_events;
}

int64_t FakeRuntime::timed_records() const {
  auto lock = state_->lock();
  return state_->timed_records;
}

int64_t FakeRuntime::mapped(int card) const {
  auto lock = state_->lock();
  return state_->cards_state[card].mapped;
}

int64_t FakeRuntime::pinned() const {
  auto lock = state_->lock();
  return state_->pinned;
}

}  // namespace troupe::gpu
