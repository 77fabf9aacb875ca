// SPDX-License-Identifier: Apache-2.0
// DeviceSegments: what stands behind the two allocators of DeviceMemory. One range of addresses is reserved; memory is
// mapped behind it by pieces, where a block fits with the fewest, and unmapped by pieces. Blocks of at most 1 MiB come
// from slabs of 2 MiB, so that they do not lie between larger ones.
//
// Invariants:
//  1. Each byte of the range is in one block: a hole without memory, free in a pool of one allocator, or used.
//  2. What one call of Runtime::map() mapped is in pieces_; holes are what is in no piece.
//  3. A free block with mark m is idle when passed_ >= m: marks_ says when the compute stream passes which. Of what
//     transfers freed, blocks of different marks are one only when they are idle.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "gpu/device_memory.h"
#include "gpu/event_pool.h"
#include "tensor/address_blocks.h"

namespace troupe::gpu {

/// Thread-safe.
class DeviceSegments {
 public:
  enum Owner : int { kStream = 0, kTransfers = 1 };

  DeviceSegments(std::shared_ptr<Runtime> runtime, std::shared_ptr<Stream> compute, DeviceMemoryOptions options);
  ~DeviceSegments();
  Status reserve();

  void* allocate(Owner owner, size_t bytes);
  void deallocate(Owner owner, void* memory, size_t bytes) noexcept;
  void trim();
  AllocatorStats stats(Owner owner) const;
  AllocatorStats stats() const;
  bool holds(const void* at) const { return at >= range_ && at < range_ + range_bytes_; }

 private:
  /// Pools: the large free blocks of the two owners, their small ones, and addresses without memory.
  static constexpr int kLarge = 0, kSmall = 2, kHoles = 4, kPools = 5;

  /// Addresses within a free block of the owner that it may use.
  struct Place {
    AddressBlock* block = nullptr;  // null: there are none
    char* at = nullptr;
  };
  Place find_small(Owner owner, size_t bytes);
  Place find_large(Owner owner, size_t bytes);
  Place fit(Owner owner, int pool, size_t bytes);
  Place grow(Owner owner, size_t bytes);
  /// Takes what the other owner has free, as far as this one may use it.
  Place take_over(Owner owner, size_t bytes);
  bool idle(const AddressBlock& block) const { return lost_ || block.mark <= passed_; }
  void give_back_idle();
  /// Slabs that are wholly free serve for large blocks too.
  void free_slabs(Owner owner);
  /// Puts a mark behind all that was freed so far.
  void mark();
  /// Sees which marks are passed.
  void collect();
  void count(Owner owner, int64_t bytes);

  struct Mark {
    uint64_t number;
    std::unique_ptr<Event> event;
  };

  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Stream> compute_;
  const DeviceMemoryOptions options_;
  const size_t unit_;   // bytes of the smallest piece
  const int64_t most_;  // bytes that may be mapped
  char* range_ = nullptr;
  size_t range_bytes_ = 0;
  EventPool events_;

  mutable std::mutex mutex_;
  AddressBlocks blocks_{kPools};
  AddressBlock* first_ = nullptr;  // by address
  std::map<char*, size_t> pieces_;
  int64_t mapped_ = 0, maps_ = 0;  // bytes, and calls that mapped some
  uint64_t next_mark_ = 1;         // what is freed now is idle when this one is passed
  uint64_t passed_ = 0;
  bool unmarked_ = false;  // something was freed since the last mark
  std::deque<Mark> marks_;
  bool lost_ = false;  // the card: then all is idle
  AllocatorStats stats_[2], all_;
};

}  // namespace troupe::gpu
