// SPDX-License-Identifier: Apache-2.0
// DeviceMemory: the memory of one logical GPU device, out of which two allocators give: one for what the compute stream
// alone uses, in its order, and one for what other streams write. Several devices may share a card, each with its
// limit.
//
// Freed memory is known to be idle when a mark that was put into the compute stream afterwards is passed. Memory in the
// order of the stream is given out again without that; what other streams write, and what goes back to the card, must
// be idle.
#pragma once
#include <functional>
#include <memory>

#include "gpu/runtime.h"
#include "troupe/allocator.h"

namespace troupe::gpu {

class DeviceSegments;

/// What a device can work with at least, in bytes: one slab for each of the two allocators.
constexpr int64_t kLeastDeviceMemory = int64_t{4} << 20;

struct DeviceMemoryOptions {
  int card = 0;
  /// Bytes taken from the card at most, rounded down to its granularity; 0: as many as it has.
  int64_t limit = 0;
  /// Called with each block when it is freed, before anybody gets it again. It may fill the block in the order of the
  /// compute stream; tests have it.
  std::function<void(void* at, size_t bytes)> poison = {};
};

/// Any thread may call anything; any thread may free. The memory stays as long as a block of it is used, and so do
/// runtime and stream; the end of it waits for the stream.
class DeviceMemory {
 public:
  /// Reserves addresses, and takes no memory yet. Errors: those of the runtime; kInternal for a card that is not there,
  /// or not the stream's.
  static Result<std::unique_ptr<DeviceMemory>> make(std::shared_ptr<Runtime> runtime, std::shared_ptr<Stream> compute,
                                                    DeviceMemoryOptions options);
  ~DeviceMemory();

  /// For what is used by work of the compute stream. A block may be freed while such work waits, and is given out again
  /// at once. Other streams may use it too, if whoever frees it knows that they are done, or has the compute stream
  /// wait for them. Without memory it takes what the other allocator has free, but never waits: nullptr.
  const std::shared_ptr<Allocator>& in_stream_order() const { return stream_; }
  /// For what other streams write: nothing that was put in before uses a block. Blocks are freed as above. Without idle
  /// memory nullptr: memory in stream order may then serve, if the other stream waits for an event that is recorded in
  /// the compute stream after the block was allocated.
  const std::shared_ptr<Allocator>& for_transfers() const { return transfers_; }

  /// Gives idle pieces of memory that are wholly free back to the card. What is freed but not yet known to be idle goes
  /// with a later call. Waits for nothing.
  void trim();
  /// Of both allocators together: `cached` is what the card gave and nobody uses.
  AllocatorStats stats() const;
  /// Whether memory there is its own.
  bool holds(const void* at) const;

 private:
  explicit DeviceMemory(std::shared_ptr<DeviceSegments> segments);
  std::shared_ptr<DeviceSegments> segments_;
  std::shared_ptr<Allocator> stream_, transfers_;
};

}  // namespace troupe::gpu
