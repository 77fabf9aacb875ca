// SPDX-License-Identifier: Apache-2.0
// BlockHeap: where the caching allocator has its large blocks. They lie side by side in one range of addresses, and a
// freed one merges with its free neighbours, so that what tensors of one size leave serves those of another: a network
// of layers of many sizes needs little more than what it has in use at once. Implemented in tensor/block_heap.cpp.
#pragma once
#include <atomic>
#include <cstddef>
#include <mutex>

#include "tensor/address_blocks.h"

namespace troupe {

/// Memory in pages of this many bytes is cleared by the system, and mapped by the processor, at once and not by 4 KiB,
/// which makes the first writes to it three times as fast.
inline constexpr size_t kHugePage = size_t{2} << 20;

/// Thread-safe. As many addresses as twice the machine's memory are reserved with the first block, but none where the
/// process is limited in addresses; the system gives memory for those that are written. Blocks must have come back
/// before the heap goes.
class BlockHeap {
 public:
  /// Blocks are of multiples of it, and begin at one.
  static constexpr size_t kUnit = 4096;
  static size_t rounded(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

  BlockHeap() = default;
  BlockHeap(const BlockHeap&) = delete;
  ~BlockHeap();

  /// A block of rounded(bytes); nullptr where there is no room for it, or it is more than the machine has. `fresh` is
  /// set to how many of them were not kept for reuse, so that the system will give them.
  void* allocate(size_t bytes, size_t& fresh);
  /// Frees a block of allocate(bytes) and keeps its memory for reuse, or else gives it back to the system.
  void deallocate(void* memory, size_t bytes, bool keep) noexcept;
  /// Gives the largest free block that is kept back to the system. Returns how many bytes; 0: none is kept.
  size_t give_back_largest() noexcept;
  /// Whether a block is of this heap.
  bool holds(const void* memory) const {
    const char* first = first_.load(std::memory_order_acquire);
    return first && memory >= first && memory < first + bytes_;
  }

 private:
  enum Pool : int { kKept, kHoles, kPools };  // what is free with memory behind it, and without

  bool reserve();
  /// The free block, with memory, in which `bytes` begin; nullptr: there is no room.
  AddressBlock* find(size_t bytes, size_t& fresh);
  /// Makes addresses up to `end` such that may be written.
  bool open(char* end);

  std::mutex mutex_;
  bool tried_ = false;  // to reserve addresses
  AddressBlocks blocks_{kPools};
  std::atomic<char*> first_{nullptr};
  size_t bytes_ = 0;  // set before first_
  char* open_ = nullptr;
};

}  // namespace troupe
