// SPDX-License-Identifier: Apache-2.0
// AddressBlocks: how address space is divided among who uses it. Free blocks are kept by size, in pools, and merge with
// free neighbours of their pool. What the memory is and when it may be used again is decided by who has an
// AddressBlocks: see device_memory.h and pinned_memory.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

namespace troupe::gpu {

/// A range of addresses that is used or free as a whole.
struct Block {
  char* at = nullptr;
  size_t bytes = 0;
  int pool = 0;
  bool used = false;
  /// Of a free one: the highest that a part of it was given back with.
  uint64_t mark = 0;
  /// Blocks merge with those of the same slab alone; null: in none.
  const char* slab = nullptr;
  Block* before = nullptr;  // the neighbours by address
  Block* after = nullptr;
};

/// Not thread-safe. Owns its blocks: a pointer to a free one is good until the next call that changes blocks, but for
/// what add() says, one to a used one until give_back().
class AddressBlocks {
 public:
  explicit AddressBlocks(int pools) : free_(static_cast<size_t>(pools)) {}
  ~AddressBlocks();
  AddressBlocks(const AddressBlocks&) = delete;

  /// New address space, free; it borders on nothing. What begins at `at` stays this very Block until remove().
  Block* add(char* at, size_t bytes, int pool);
  /// Forgets address space that was added, is free and one block.
  void remove(Block* block);

  /// The smallest free block of a pool of at least `bytes` whose mark is at most `mark`; of several the one with the
  /// lowest address. nullptr: none.
  Block* best_fit(int pool, size_t bytes, uint64_t mark = UINT64_MAX) const;
  /// Takes [at, at + bytes) of a free block, in which it lies, into use; the rest stays free.
  Block* use(Block* block, char* at, size_t bytes);
  /// The block in use that begins at an address; nullptr: none does.
  Block* find(const void* at) const;
  /// A used block becomes free, and one with its free neighbours of the same pool and slab: that one.
  Block* give_back(Block* block, uint64_t mark = 0);
  /// Makes [at, at + bytes) of a free block, in which it lies, a block of its own of another pool, slab and mark, and
  /// merges it there: the block that it then is, or is a part of.
  Block* move(Block* block, char* at, size_t bytes, int pool, uint64_t mark, const char* slab = nullptr);

  using Free = std::set<Block*, bool (*)(const Block*, const Block*)>;
  /// The free blocks of a pool, the smallest first.
  const Free& free(int pool) const { return free_[pool].blocks; }
  size_t free_bytes(int pool) const { return free_[pool].bytes; }

 private:
  struct Pool {
    Pool();
    Free blocks;
    size_t bytes = 0;
  };
  void insert(Block* block);
  void erase(Block* block);
  /// Takes [at, at + bytes) out of a free block and its pool; what is left of it stays there.
  Block* take(Block* block, char* at, size_t bytes);
  /// Cuts what is behind the first `bytes` off, neither in use nor in a pool.
  Block* cut(Block* block, size_t bytes);
  Block* merge(Block* block);
  /// Takes `after` into `block`.
  void join(Block* block, Block* after);

  std::vector<Pool> free_;
  std::unordered_map<const void*, Block*> used_;
};

}  // namespace troupe::gpu
