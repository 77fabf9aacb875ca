// SPDX-License-Identifier: Apache-2.0
// FakeState: what a FakeRuntime, its streams and its events share: the queues of work and who carries it out, the
// memory of the cards, the faults that a test asked for.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpu/fake/access_checker.h"
#include "gpu/fake/fake_runtime.h"

namespace troupe::gpu {

/// What one call of Stream::record marked. An event that is recorded again gets another.
struct FakeMark {
  bool done = false;
  AccessChecker::Clock clock;
  double us = 0;  // when it was done
};

struct FakePiece {
  std::function<void()> work;      // else it records or waits
  std::vector<Access> accesses;    // of work: checked again when it is done
  std::shared_ptr<FakeMark> mark;  // to be done (`records`), or to wait for
  bool records = false;
  std::string name;
};

/// A stream.
struct FakeQueue {
  int id = 0;  // of the checker
  int card = 0;
  std::string name;
  std::deque<FakePiece> pieces;
  bool busy = false;  // a thread does a piece of it
  bool held = false;
  bool removed = false;                                        // by work, which may not wait: goes when it is empty
  std::map<std::thread::id, std::vector<Access>> told;         // by uses()
  Status refused;                                              // a launch since the last check_launch
  std::vector<std::shared_ptr<AccessChecker::Work>> launched;  // since then
};

/// Thread-safe. A function with a Lock is called with the state's mutex held, and may let go of it meanwhile.
class FakeState {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using Queue = std::shared_ptr<FakeQueue>;
  using Mark = std::shared_ptr<FakeMark>;

  explicit FakeState(const FakeOptions& options);
  ~FakeState();
  Lock lock() const { return Lock(mutex_); }

  /// An error if the card is not there or lost, or a test wants the call to fail.
  Status enter(Lock& lock, FakeCall call, const char* name, int card);
  /// The same of a call that is for no card.
  Status enter(Lock&, FakeCall call, const std::string& name);

  Queue add_queue(Lock&, int card);
  /// Waits for the work of the queue, and forgets it.
  void remove_queue(Lock& lock, const Queue& queue);
  /// Puts work in that tells what it uses.
  void put(Lock&, FakeQueue& queue, std::string name, std::function<void()> work, std::vector<Access> accesses,
           AccessChecker::Reach reach);
  Mark put_record(Lock&, FakeQueue& queue);
  void put_wait(Lock&, FakeQueue& queue, const Mark& mark);
  Status copy(Lock& lock, FakeQueue& queue, void* to, const void* from, size_t bytes);

  /// Does one piece, of `only` if that is not null; false if none can be done.
  bool step(Lock& lock, const FakeQueue* only = nullptr);
  /// Waits until `mark` is done, by hand or by the thread.
  Status await(Lock& lock, const Mark& mark, const char* name, int card);
  void drain(Lock& lock);
  /// What waits for a mark that nobody records goes on.
  void open(Lock&, const Mark& mark);
  void hold(Lock&, FakeQueue& queue, bool held);
  void start_thread(const std::shared_ptr<FakeState>& self);
  void stop_thread();

  Result<void*> reserve(Lock&, int card, size_t bytes);
  void unreserve(Lock&, void* at, size_t bytes);
  Status map(Lock&, int card, void* at, size_t bytes);
  void unmap(Lock& lock, void* at, size_t bytes);
  Result<void*> pin(Lock&, size_t bytes);
  void unpin(Lock&, void* at, size_t bytes);
  bool is_pinned(const void* at, size_t bytes) const;

  void lose(Lock&, int card, std::string why);
  bool is_lost(int card) const { return !cards_state[card].lost.empty(); }
  Error lost_error(const char* name, int card) const;
  /// Whether a thread carries out work of the card at this time.
  bool is_busy(int card) const;

  struct CardState {
    int64_t mapped = 0;
    int64_t lost_after = 0;  // pieces of work; 0: never
    std::string lost;        // why; empty: it is not
  };
  struct Fault {
    FakeCall call;
    int64_t after = 0;  // calls
    Code code = Code::kInternal;
  };

  const FakeOptions options;
  std::vector<Card> cards;
  // Below: with the mutex held.
  std::vector<CardState> cards_state;
  std::vector<Fault> faults;
  std::vector<Queue> queues;
  AccessChecker checker;
  int64_t unpinned_copies = 0, work_done = 0, pinned = 0;
  int64_t timed_events = 0, timed_records = 0;  // that are there; of them, so far

 private:
  bool by_hand() const { return options.by_hand || stopped_; }
  bool in_work() const;
  bool runnable(const FakeQueue& queue) const;
  /// Whether nothing goes on, and nothing can before a stream is let go.
  bool stuck() const;
  void carry_out(Lock& lock, const Queue& queue);
  void run_thread();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::mt19937_64 random_us_;  // apart, so that the order of streams does not depend on the clock
  int streams_made_ = 0;
  bool stopped_ = false;  // the thread, or there is none
  double us_ = 0;         // the clock of the cards: each piece of work takes some whole ones
  std::thread thread_;
  std::vector<std::thread::id> workers_;  // that do a piece now
  struct Reservation {
    void* block;  // of the system, in which the reserved addresses are aligned
    size_t block_bytes, bytes;
    int card;
  };
  struct Mapping {
    size_t bytes;
    int card;
  };
  std::map<const char*, Reservation> reservations_;
  std::map<const char*, Mapping> mappings_;
  std::map<const char*, size_t> pins_;
};

}  // namespace troupe::gpu
