// SPDX-License-Identifier: Apache-2.0
// FakeRuntime: a Runtime for machines without a card. Its cards' memory is the host's, its streams are queues, and a
// seed decides which stream's next piece of work goes next. So a test sees orders that a card may take once in a year,
// again and again. AccessChecker holds all work against what else uses the same memory.
//
// Work is carried out by whoever calls step(), drain() or a call that waits (by hand), or by a thread of the fake's
// own. Work itself may put no work in and wait for nothing: calls that wait fail there.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/runtime.h"

namespace troupe::gpu {

class FakeState;

struct FakeOptions {
  uint64_t seed = 1;
  int cards = 1;
  int64_t memory = int64_t{256} << 20;   // bytes of each card
  size_t granularity = size_t{2} << 20;  // a multiple of the system's pages
  bool by_hand = true;                   // nothing happens until step() or drain(), or else a call waits for it
  bool peers = true;                     // what connect() answers
  bool checked = true;                   // whether accesses are checked
};

/// Calls that can be told to fail. kLaunch counts Stream::enqueue: the work is refused, as check_launch then says.
enum class FakeCall {
  kMakeStream,
  kMakeEvent,
  kRecord,
  kWait,
  kCopy,
  kFill,
  kLaunch,
  kConnect,
  kReserve,
  kMap,
  kFreeMemory,
  kPin,
  kEventDone,
  kEventWait,
};

/// Thread-safe, like every Runtime. A lost card's memory can still be touched, but no work is done any more. Timed
/// events tell the time of a clock that all cards share: each piece of work takes 1 to 16 microseconds, as the seed
/// draws.
class FakeRuntime final : public Runtime {
 public:
  explicit FakeRuntime(FakeOptions options = {});
  /// Ends its thread; work that is left is dropped or, with its stream, done by who destroys that.
  ~FakeRuntime() override;

  std::span<const Card> cards() const override;
  Result<std::unique_ptr<Stream>> make_stream(int card, bool urgent = false) override;
  Result<std::unique_ptr<Event>> make_event(int card, bool timed = false) override;
  Result<bool> connect(int card, int peer) override;
  Result<void*> reserve(int card, size_t bytes) override;
  void unreserve(void* at, size_t bytes) override;
  Status map(int card, void* at, size_t bytes) override;
  void unmap(void* at, size_t bytes) override;
  size_t granularity(int card) const override;
  Result<int64_t> free_memory(int card) const override;
  Result<void*> pin(size_t bytes) override;
  void unpin(void* at, size_t bytes) override;

  /// Does one piece of work, of the stream that the seed draws. False: none can be done now.
  bool step();
  /// Does the next piece of one stream. False: it has none, or the stream waits or is held.
  bool step(const Stream& stream);
  /// Returns when all work is done that no held stream stands before; the host then knows it to be done, as after
  /// cudaDeviceSynchronize.
  void drain();
  /// A held stream does nothing until it is let go or destroyed, or a stream is destroyed that waits for it. A stream
  /// that is destroyed waits for no gate.
  void hold(const Stream& stream, bool held = true);

  /// The n-th call of a kind from now on (1: the next one) fails with `code`.
  void fail(FakeCall call, int64_t n, Code code);
  /// The card is lost instead of doing its n-th piece of work from now on (1: the next one; 0: it is lost now).
  /// Recording and waiting are no pieces of work here. From then on all calls for the card give kUnavailable, and its
  /// work is dropped; what other cards wait for there counts as done.
  void lose(int card, int64_t n);

  bool is_lost(int card) const;

  /// An event of a card that is not done until open() says so, for fakes of libraries whose work waits for that of
  /// other cards. Any thread opens it, work too; again does nothing.
  Result<std::unique_ptr<Event>> make_gate(int card);
  void open(Event& gate);

  /// What the calling thread reads and writes now in the host's memory.
  void host_uses(std::span<const Access> accesses, std::string_view what = "host code");
  /// Fills memory with what is NaN of all floating-point types, in the order of the stream.
  void poison(void* at, size_t bytes, Stream& stream);
  /// What the checker found so far; see AccessChecker::faults.
  std::vector<std::string> faults() const;

  /// Copies from or to host memory that is not pinned, so far.
  int64_t unpinned_copies() const;
  /// Copies, fills and kernels that were carried out so far.
  int64_t work_done() const;
  /// Pieces that are not done yet, records and waits included.
  int64_t pending() const;
  /// Timed events that are there now, and how often such were recorded so far.
  int64_t timed_events() const;
  int64_t timed_records() const;
  /// Bytes of a card that are mapped, and bytes of pinned host memory.
  int64_t mapped(int card) const;
  int64_t pinned() const;

 private:
  const std::shared_ptr<FakeState> state_;  // streams and events that outlive the runtime keep it
};

}  // namespace troupe::gpu
