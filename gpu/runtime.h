// SPDX-License-Identifier: Apache-2.0
// Runtime: what Troupe asks of CUDA: cards, streams, events, memory. There are two: CUDA's own (gpu/cuda/), and a fake
// for machines without a card (gpu/fake/), which does the same work in host memory, in an order that a seed decides.
//
// Any thread may call anything; what several threads put into one stream comes in the order of their calls. Work is
// done later, in the order of its stream. Only these wait for a card: Event::wait(), Stream::copy() with host memory
// that is not pinned, the end of a stream, and what makes and unmakes things or memory. Whoever puts work into a stream
// keeps the memory that it uses until the work is done. Streams and events go before their runtime; an event may go, or
// be recorded again, while something waits for what it marked.
//
// Errors of all calls: kUnavailable when the card is lost (it fell off, or a kernel did what is not allowed: nothing of
// this process can use it any more); kResourceExhausted without memory; else kInternal. Each names the call and the
// card. An error of work shows in a later call of any kind, as CUDA has it. Once a call said kUnavailable, no work of
// the card touches memory any more.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "troupe/error.h"

namespace troupe::gpu {

/// One GPU that is there.
struct Card {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t memory = 0;           // bytes
  double flops = 0;             // float32, a second; a guess from the clock
  double memory_bandwidth = 0;  // bytes a second
};

/// Memory that a piece of work reads, or writes (and perhaps reads).
struct Access {
  const void* at = nullptr;
  size_t bytes = 0;
  bool writes = false;
};

class Stream;

/// A mark in a stream of the card that it was made for. It is recorded by Stream::record, again as often as one likes:
/// the last time counts.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether all is done that its stream held when it was recorded; true for one that never was. Errors: those of work.
  virtual Result<bool> done() = 0;
  /// Blocks the calling thread, without spinning, until done().
  virtual Status wait() = 0;
  /// Microseconds on the card from an earlier event to this one; both were made timed, and are done.
  virtual Result<double> us_since(const Event& earlier) const = 0;
};

/// Work of one card, done one piece after the other. When it goes its work is waited for.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual int card() const = 0;
  virtual Status record(Event& event) = 0;
  /// What is put into this stream from now on waits for what `event` marks now.
  virtual Status wait(const Event& event) = 0;
  /// Copies between any two of: host memory (pinned by Runtime::pin, else the call may block until the copy is done),
  /// memory of this card, and that of another one. The two do not overlap.
  virtual Status copy(void* to, const void* from, size_t bytes) = 0;
  virtual Status fill(void* at, int byte, size_t bytes) = 0;
  /// After kernels were launched (gpu/launch.h) or a library was called: the error of a launch, if one was refused.
  virtual Status check_launch(const char* kernel) = 0;
  /// Says what each kernel uses that the calling thread puts in from now on, until its next call; copies and fills tell
  /// by themselves. The fake holds that against what other streams do to the same memory; CUDA's does nothing.
  virtual void uses(std::span<const Access> accesses) = 0;
  /// The cudaStream_t, with its card made the calling thread's CUDA device, as launches need it; nullptr of the fake.
  virtual void* native() const = 0;
  /// Of the fake alone: runs `work` on the host when the stream comes to it. gpu/launch.h and fake libraries call it.
  virtual void enqueue(std::function<void()> work) = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  /// Those that CUDA_VISIBLE_DEVICES lets be seen; numbered from 0 on.
  virtual std::span<const Card> cards() const = 0;
  /// An urgent stream goes before others of its card.
  virtual Result<std::unique_ptr<Stream>> make_stream(int card, bool urgent = false) = 0;
  virtual Result<std::unique_ptr<Event>> make_event(int card, bool timed = false) = 0;
  /// Lets streams of `card` use the memory of `peer` directly; false: they cannot, and copies between the two pass by
  /// the host. Called before memory is mapped.
  virtual Result<bool> connect(int card, int peer) = 0;

  /// Addresses, without memory behind them, at which `card` may map memory. A multiple of granularity().
  virtual Result<void*> reserve(int card, size_t bytes) = 0;
  virtual void unreserve(void* at, size_t bytes) = 0;
  /// Puts memory of `card` behind reserved addresses, whose contents are then undefined. Multiples of granularity().
  virtual Status map(int card, void* at, size_t bytes) = 0;
  /// Takes back what one call of map() put there. No work uses it any more.
  virtual void unmap(void* at, size_t bytes) = 0;
  virtual size_t granularity(int card) const = 0;
  /// Bytes that nobody uses, this process or another.
  virtual Result<int64_t> free_memory(int card) const = 0;

  /// Host memory that cards copy from and to without blocking anybody.
  virtual Result<void*> pin(size_t bytes) = 0;
  virtual void unpin(void* at, size_t bytes) = 0;
};

}  // namespace troupe::gpu
