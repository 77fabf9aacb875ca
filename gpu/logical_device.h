// SPDX-License-Identifier: Apache-2.0
// LogicalDevice: one device on a card, which it may share with others: its streams, its share of the memory, and the
// copies between that and the host. Implemented in gpu/logical_device.cpp.
//
// Kernels work in one stream, copies in and out in two others. What a copy brings is there for all that is put into the
// compute stream later; what a copy takes is what the compute stream has made before. So nobody waits for either.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/completions.h"
#include "gpu/compute.h"
#include "gpu/device_memory.h"
#include "gpu/timed_work.h"

namespace troupe::gpu {

/// Thread-safe, but for the compute stream's users, who must agree on an order among themselves.
class LogicalDevice {
 public:
  struct Options {
    int card = 0;
    int64_t memory = 0;  // bytes at most; 0: what the card has
    bool tf32 = false;
  };
  /// `pinned` gives host memory for copies; `blas` and `dnn` may be null. `completions` is the card's and outlives it.
  /// Errors: those of the runtime.
  static Result<std::unique_ptr<LogicalDevice>> make(std::shared_ptr<Runtime> runtime, const Options& options,
                                                     std::shared_ptr<Blas> blas, std::shared_ptr<Dnn> dnn,
                                                     std::shared_ptr<Allocator> pinned, Completions& completions);
  ~LogicalDevice();

  Compute& compute() { return *compute_; }
  int card() const { return compute_stream_->card(); }
  /// Whether a tensor is in its memory.
  bool holds(const Tensor& value) const;

  /// Whose values copy_in() may be given beside the host's. Before the first of them; they live as long as this.
  void know(std::vector<LogicalDevice*> others) { others_ = std::move(others); }
  /// The value, which is the host's or, as its device's stream makes it by now, another device's, in the card's memory,
  /// for all that is put into the compute stream from now on. `timed`: the copy is timed by it.
  Result<Tensor> copy_in(const Tensor& value, TimedWork* timed = nullptr);
  /// The value, as the compute stream makes it by now, in the host's memory. `done` is called once, by a thread that
  /// may not be kept; not where an error is returned.
  Status copy_out(const Tensor& value, std::function<void(Result<Tensor>)> done, TimedWork* timed = nullptr);
  /// The same, where the calling thread may wait.
  Result<Tensor> fetch(const Tensor& value);
  /// The error as it is, or that the card is lost, which is then why: memory of a card that is lost cannot be had, and
  /// libraries of products and convolutions then say that they failed.
  Error reason(Error error);
  /// Calls `done` once all is done that the compute stream holds by now, by a thread that may not be kept.
  void mark(std::function<void(Status)> done);
  const std::shared_ptr<TimedEvents>& timed_events() const { return timed_events_; }
  AllocatorStats memory() const { return memory_->stats(); }

 private:
  LogicalDevice(std::shared_ptr<Runtime> runtime, int card, Completions& completions,
                std::shared_ptr<Allocator> pinned);
  /// Calls `done` once the stream has done what it holds by now, which uses these tensors.
  void watch(Stream& stream, std::vector<Tensor> used, std::function<void(Status)> done);
  /// Memory that a copy may write at once.
  Result<Tensor> allocate_for_copy(DType dtype, const Shape& shape);
  /// Stream::copy() of a tensor, which `timed` times unless it is null.
  static Status copy(Stream& stream, Tensor& to, const Tensor& from, TimedWork* timed);
  /// Has `after` wait for what `before` holds by now.
  Status order(Stream& before, Stream& after);

  const std::shared_ptr<Runtime> runtime_;
  Completions& completions_;
  const std::shared_ptr<Allocator> pinned_;
  std::shared_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> in_stream_, out_stream_;
  std::unique_ptr<DeviceMemory> memory_;
  std::shared_ptr<Blas> blas_;
  std::shared_ptr<Dnn> dnn_;
  std::unique_ptr<Compute> compute_;
  EventPool events_;
  const std::shared_ptr<TimedEvents> timed_events_;
  std::vector<LogicalDevice*> others_;
  std::mutex mutex_;
  std::vector<Tensor> unwatched_;  // what copies may still use
};

}  // namespace troupe::gpu
